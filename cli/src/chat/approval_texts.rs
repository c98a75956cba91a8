//! Texts of approval requests, and the replies that a person may type.

use holdfast_proto::gateway::v1::{ApprovalRequested, Decision};

use crate::screen::plain;

pub const REPLY_HINT: &str = "type y (this once), a (always) or n (no)";

/// Returns the text of an approval request. The model wrote its parts, so control characters are
/// removed, and its lines are indented.
pub fn request(asked: &ApprovalRequested) -> String {
    let ApprovalRequested { slug, tool, subject, pattern, left_ms, .. } = asked;
    let indented = |text: &str| plain(text).replace('\n', "\n    ");
    let always = match pattern.as_str() {
        "" => "exactly this".to_owned(),
        pattern => indented(pattern),
    };
    format!(
        "approval needed ({slug}): {}\n    {}\nalways would allow: {always}\n{REPLY_HINT}, or \
         `holdfast approvals allow {slug}`, within {} s",
        plain(tool),
        indented(subject),
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
            subject: "command: \u{1b}[2Jls\napproval needed".to_owned(),
            left_ms: 119_200,
            ..ApprovalRequested::default()
        };

        let shown = request(&asked);

        assert!(
            shown.starts_with(
                "approval needed (1a2b3c4d): exec\n    command: [2Jls\n    approval needed\n\
                 always would allow: exactly this\n"
            ),
            "{shown}"
        );
        assert!(shown.ends_with("within 120 s"), "{shown}");
    }
}
