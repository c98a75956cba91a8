//! Texts of approval requests, and the replies that a person may type.

use holdfast_proto::gateway::v1::{ApprovalRequested, Decision};

use crate::screen::plain;

pub const REPLY_HINT: &str = "type y (this once), a (always) or n (no)";

/// Returns the text of an approval request. The summary was written by the model, so control
/// characters are removed.
pub fn request(asked: &ApprovalRequested) -> String {
    let ApprovalRequested { slug, tool, summary, left_ms, .. } = asked;
    let summary = plain(summary).replace('\n', " ");
    format!(
        "approval needed ({slug}): {} – {summary}\n{REPLY_HINT}, or `holdfast approvals allow {slug}`, \
         within {} s",
        plain(tool),
        left_ms.div_ceil(1_000),
    )
}

/// Parses a reply; `None` if it is not one.
pub fn decision(line: &str) -> Option<Decision> {
    let line = line.trim().to_ascii_lowercase();
    let mut words = line.split_whitespace();
    Some(match words.next()? {
        "y" | "yes" | "o" | "once" => Decision::AllowOnce,
        "a" | "always" => Decision::AllowAlways,
        "n" | "no" | "deny" | "/deny" => Decision::Deny,
        "/approve" if words.any(|word| word == "always") => Decision::AllowAlways,
        "/approve" => Decision::AllowOnce,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_decides_only_if_it_is_plain() {
        for (line, means) in [
            ("y", Some(Decision::AllowOnce)),
            (" Yes ", Some(Decision::AllowOnce)),
            ("a", Some(Decision::AllowAlways)),
            ("n", Some(Decision::Deny)),
            ("/approve", Some(Decision::AllowOnce)),
            ("/approve 1a2b3c4d always", Some(Decision::AllowAlways)),
            ("/deny 1a2b3c4d", Some(Decision::Deny)),
            ("", None),
            ("maybe", None),
        ] {
            assert_eq!(decision(line), means, "{line}");
        }
    }

    #[test]
    fn what_is_shown_says_what_to_type_and_obeys_nothing() {
        let asked = ApprovalRequested {
            slug: "1a2b3c4d".to_owned(),
            tool: "exec".to_owned(),
            summary: "run \u{1b}[2Jls\nx".to_owned(),
            left_ms: 119_200,
            ..ApprovalRequested::default()
        };

        let shown = request(&asked);

        assert!(shown.starts_with("approval needed (1a2b3c4d): exec – run [2Jls x\n"), "{shown}");
        assert!(shown.ends_with("within 120 s"), "{shown}");
    }
}
