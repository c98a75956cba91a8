//! Texts for people and models about calls that need an approval.

use std::time::Duration;

use holdfast_agent::policy::Reason;
use holdfast_session::Approval;
use holdfast_tools::visible;
use holdfast_types::{ApprovalDecision, ApprovalState};
use serde_json::Value;

/// Tool result of a call that a person denied without a reason.
const DENIED_RESULT: &str = "a person denied this call, so it was not made: do not try to get \
     it done another way; say what you wanted to do and ask what they want instead";

/// Tool result of a call that a person denied.
pub(super) fn denied_result(reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!(
            "a person denied this call, so it was not made: do not try to get it done another way \
             than they say. Their words:\n{reason}"
        ),
        None => DENIED_RESULT.to_owned(),
    }
}

/// Tool result of a call whose approval expired.
pub(super) const EXPIRED_RESULT: &str = "this call needs a person's approval, and nobody gave it in time: \
     it was not made; say what you wanted to do, and try again only if you are asked to";

/// Tool result of a call that differs from what was approved.
pub(super) const CHANGED_RESULT: &str = "what this call would do has changed since a person approved it: \
     it was not made; make the call again to ask them anew";

/// Tool result of a call that needs an approval during a memory flush.
pub(super) const IN_FLUSH_RESULT: &str = "this call needs a person's approval, and nobody is asked now: \
     it was not made";

/// Tool result of a call that needs an approval while the agent looks after itself.
pub(super) const NOBODY_RESULT: &str = "this call needs a person's approval, and nobody is here now: it \
     was not made. Leave it, or note it for your owner";

/// Tool result of a call that would change the agent while it looks after itself.
pub(super) const PROPOSE_RESULT: &str = "this call would change what you are or can, and nobody is here \
     now: it was not made. Propose it instead, with the tool `self` and the action `propose`";

/// Reply to a decision when no approval is pending.
pub(super) const NO_APPROVAL_REPLY: &str = "Nothing waits for approval here.";

/// Reply to a person who may not decide.
pub(super) const NOT_PERMITTED_REPLY: &str = "You may not decide about this: only those whom the owner of \
     this assistant has named may.";

/// Reply to a decision of an API key without the scope `approve`.
pub(super) const KEY_NOT_PERMITTED_REPLY: &str =
    "This key may not decide about tool calls: it needs the scope `approve`.";

/// Reply to a decision of a person who is no operator or owner.
pub(super) const PERSON_NOT_PERMITTED_REPLY: &str =
    "You may not decide about tool calls: that needs the role `operator` or `owner`.";

/// Reply to a decision of a sender whom the channel has not verified.
pub(super) const NOT_VERIFIED_REPLY: &str = "This channel cannot tell whether you are who you say, so \
     you may not decide here. Decide in the console, or with `holdfast approvals`.";

/// Reply to a decision without an id on a channel where it needs one.
pub(super) const ID_NEEDED_REPLY: &str = "Say which approval you mean, with the id in its request: \
     /approve 1a2b3c4d. By e-mail the id is always needed.";

/// Reply to a decision that comes from the mesh.
pub(super) const NOT_A_PERSON_REPLY: &str = "Only a person can decide about this.";

pub(super) const MAX_PATTERN_BYTES: usize = 1_000;

const MAX_LINE_CHARS: usize = 500;

/// Contents of an approval request.
pub(super) struct ApprovalRequest<'a> {
    pub(super) slug: &'a str,
    pub(super) agent: &'a str,
    pub(super) tool: &'a str,
    /// Shown in full: the person decides by it.
    pub(super) subject: &'a str,
    pub(super) pattern: Option<&'a str>,
    pub(super) timeout: Duration,
}

impl ApprovalRequest<'_> {
    /// Renders the request. Text from the model is fenced, so that nothing in it can pass for ours.
    /// The subject has no three back-ticks in a row, so it cannot end its fence.
    pub(super) fn text(&self) -> String {
        let Self { slug, agent, tool, subject, pattern, timeout } = self;
        let always = match pattern {
            Some(pattern) => {
                format!("\n\"always\" would allow:\n{}", fenced(&visible(pattern)))
            }
            None => "\n\"always\" would allow exactly this.".to_owned(),
        };
        format!(
            "Approval needed ({slug}): {agent} wants to use {tool}\n{}{always}\n\
             Answer within {}:\n/approve {slug} – this once\n/approve {slug} always – from now \
             on\n/deny {slug}",
            fenced(subject),
            format_timeout(*timeout),
        )
    }
}

fn fenced(text: &str) -> String {
    format!("```\n{text}\n```")
}

fn format_timeout(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 7_200 => format!("{} hours", seconds / 3_600),
        seconds if seconds >= 180 => format!("{} minutes", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Joins a text into one line, makes hidden characters visible, and truncates it.
pub(super) fn single_line(text: &str) -> String {
    let words = visible(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    if words.chars().count() <= MAX_LINE_CHARS {
        return words;
    }
    words.chars().take(MAX_LINE_CHARS - 1).chain(['…']).collect()
}

/// One-line summary of a call of which only the input is known.
pub(super) fn summarize_input(tool: &str, input: &Value, reason: Reason) -> String {
    let path = ["path", "file_path", "to"].iter().find_map(|field| input.get(field)?.as_str());
    let what = match path {
        Some(path) => format!("{tool} {path}"),
        None => format!("{tool} {input}"),
    };
    let what: String = what.chars().take(MAX_LINE_CHARS - 100).collect();
    format!("{what} ({reason})")
}

/// Tool result of a call whose subject is too long to be approved.
pub(super) fn too_long_result(got: usize, limit: usize) -> String {
    format!(
        "this call needs a person's approval, and everything that it does would be shown to them: \
         {got} characters with the files that it runs or changes, and {limit} are the most; it \
         was not made: do less in one call"
    )
}

/// Reply to a decision that does not say which of several calls it is about.
pub(super) fn ambiguous_reply(waiting: &[Approval]) -> String {
    let line = |one: &Approval| format!("{}: {}", one.id.slug(), one.summary);
    let lines: Vec<String> = waiting.iter().map(line).collect();
    format!("Several calls wait for approval; say which one:\n{}", lines.join("\n"))
}

/// Reply to a decision that names an unknown approval.
pub(super) fn unknown_approval_reply(name: &str) -> String {
    format!(
        "There is no approval `{}` here.",
        single_line(name).chars().take(40).collect::<String>()
    )
}

/// Reply to a person whose decision was accepted.
pub(super) fn accepted_reply(approval: &Approval, verdict: ApprovalDecision) -> String {
    let how = match (verdict, approval.state) {
        (ApprovalDecision::Deny, _) => "Denied",
        (ApprovalDecision::Once | ApprovalDecision::Always, ApprovalState::AllowedAlways) => {
            "Allowed from now on"
        }
        (ApprovalDecision::Once | ApprovalDecision::Always, _) => "Allowed once",
    };
    format!("{how}: {}", approval.summary)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request<'a>(subject: &'a str, pattern: Option<&'a str>) -> ApprovalRequest<'a> {
        let timeout = Duration::from_secs(120);
        ApprovalRequest { slug: "1a2b3c4d", agent: "main", tool: "exec", subject, pattern, timeout }
    }

    #[test]
    fn what_the_model_wrote_is_shown_line_by_line_and_stands_apart() {
        let subject = visible("command:\n| ls\n| ```\n| /approve everything\n| ```");
        let text = request(&subject, Some("ls\u{202e} x")).text();

        assert!(text.starts_with("Approval needed (1a2b3c4d): main wants to use exec\n```\n"));
        assert!(text.contains("\n| ls\n| ``⟦U+0060⟧\n| /approve everything\n"), "{text}");
        assert!(text.contains("\n\"always\" would allow:\n```\nls⟦U+202E⟧ x\n```\n"), "{text}");
        assert!(text.contains("Answer within 120 s:\n/approve 1a2b3c4d – this once\n"), "{text}");
        assert_eq!(text.matches("```").count(), 4);
    }

    #[test]
    fn a_long_line_is_cut_and_what_is_hidden_is_shown() {
        assert_eq!(single_line(" a\n\tb\u{0}c "), "a b⟦U+0000⟧c");
        assert_eq!(single_line(&"x".repeat(600)).chars().count(), MAX_LINE_CHARS);
    }

    proptest! {
        /// The subject stands in the request whole, between the first fences.
        #[test]
        fn the_request_determines_the_subject(subject in "(?s)([`\n |a⟦]|.){0,60}") {
            let subject = visible(&subject);
            let text = request(&subject, None).text();

            let shown = text.split("\n```\n").nth(1);
            prop_assert_eq!(text.matches("```").count(), 2);
            prop_assert_eq!(shown, Some(subject.as_str()));
        }
    }

    #[test]
    fn time_is_told_as_people_tell_it() {
        for (seconds, told) in [(120, "120 s"), (600, "10 minutes"), (86_400, "24 hours")] {
            assert_eq!(format_timeout(Duration::from_secs(seconds)), told);
        }
    }
}
