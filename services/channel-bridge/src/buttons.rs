//! Buttons below a request for approval, on channels that have them.
//!
//! The data of a button is a letter and an approval's id: Telegram allows 64 bytes
//! (<https://core.telegram.org/bots/api#inlinekeyboardbutton>), others more.

use holdfast_types::ApprovalId;

/// Labels and data of a request's buttons.
pub fn approval_buttons(approval: ApprovalId) -> [(String, String); 3] {
    let button = |shown: &str, word: &str| (shown.to_owned(), format!("{word}:{approval}"));
    [button("Allow once", "o"), button("Always allow", "a"), button("Deny", "d")]
}

/// Returns the command for a button's data; `None` if the button is not ours.
pub fn button_command(data: &str) -> Option<String> {
    let (word, id) = data.split_once(':')?;
    let id: ApprovalId = id.parse().ok()?;
    Some(match word {
        "o" => format!("/approve {id} once"),
        "a" => format!("/approve {id} always"),
        "d" => format!("/deny {id}"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_button_says_what_could_be_written_and_fits() {
        let id = ApprovalId::generate();

        let said: Vec<_> =
            approval_buttons(id).iter().map(|(_, data)| button_command(data).unwrap()).collect();

        assert!(approval_buttons(id).iter().all(|(_, data)| data.len() <= 64));
        assert_eq!(
            said,
            [format!("/approve {id} once"), format!("/approve {id} always"), format!("/deny {id}")]
        );
    }

    #[test]
    fn what_is_no_button_of_ours_says_nothing() {
        let id = ApprovalId::generate();
        for data in ["", "o", "o:", "o:x", "x:apr_1", "/approve", &format!("z:{id}")] {
            assert_eq!(button_command(data), None, "{data}");
        }
    }
}
