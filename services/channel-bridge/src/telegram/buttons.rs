//! Buttons below a request for approval.
//!
//! What a button says to the bot is at most 64 bytes
//! (<https://core.telegram.org/bots/api#inlinekeyboardbutton>): a letter and an
//! approval's id.

use holdfast_types::ApprovalId;

/// What stands on the buttons of a request, and what they say.
pub fn of(approval: ApprovalId) -> [(String, String); 3] {
    let button = |shown: &str, word: &str| (shown.to_owned(), format!("{word}:{approval}"));
    [button("Allow once", "o"), button("Always allow", "a"), button("Deny", "d")]
}

/// The command that a button stands for; `None` if it is none of ours.
pub fn said(data: &str) -> Option<String> {
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

        let said: Vec<_> = of(id).iter().map(|(_, data)| said(data).unwrap()).collect();

        assert!(of(id).iter().all(|(_, data)| data.len() <= 64));
        assert_eq!(
            said,
            [format!("/approve {id} once"), format!("/approve {id} always"), format!("/deny {id}")]
        );
    }

    #[test]
    fn what_is_no_button_of_ours_says_nothing() {
        let id = ApprovalId::generate();
        for data in ["", "o", "o:", "o:x", "x:apr_1", "/approve", &format!("z:{id}")] {
            assert_eq!(said(data), None, "{data}");
        }
    }
}
