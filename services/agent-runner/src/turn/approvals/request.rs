//! Texts for people and models about calls that need an approval.

use std::time::Duration;

use holdfast_agent::policy::Reason;
use holdfast_session::Approval;
use holdfast_types::{ApprovalDecision, ApprovalState};
use serde_json::Value;

/// Tool result of a call that a person denied.
pub(super) const DENIED_RESULT: &str = "a person denied this call, so it was not made: do not try to get \
     it done another way; say what you wanted to do and ask what they want instead";

/// Tool result of a call whose approval expired.
pub(super) const EXPIRED_RESULT: &str = "this call needs a person's approval, and nobody gave it in time: \
     it was not made; say what you wanted to do, and try again only if you are asked to";

/// Tool result of a call that differs from what was approved.
pub(super) const CHANGED_RESULT: &str = "what this call would do has changed since a person approved it: \
     it was not made; make the call again to ask them anew";

/// Reply to a decision when no approval is pending.
pub(super) const NO_APPROVAL_REPLY: &str = "Nothing waits for approval here.";

/// Reply to a person who may not decide.
pub(super) const NOT_PERMITTED_REPLY: &str = "You may not decide about this: only those whom the owner of \
     this assistant has named may.";

/// Reply to a decision that comes from the mesh.
pub(super) const NOT_A_PERSON_REPLY: &str = "Only a person can decide about this.";

pub(super) const MAX_PATTERN_BYTES: usize = 1_000;

const MAX_LINE_CHARS: usize = 500;

/// Contents of an approval request.
pub(super) struct ApprovalRequest<'a> {
    pub(super) slug: &'a str,
    pub(super) agent: &'a str,
    pub(super) tool: &'a str,
    pub(super) summary: &'a str,
    pub(super) pattern: Option<&'a str>,
    pub(super) timeout: Duration,
}

impl ApprovalRequest<'_> {
    /// Renders the request. Text from the model is fenced, so that nothing in it can pass for ours.
    pub(super) fn text(&self) -> String {
        let Self { slug, agent, tool, summary, pattern, timeout } = self;
        let always = match pattern {
            Some(pattern) => format!("\n\"always\" would allow:\n{}", fenced(pattern)),
            None => String::new(),
        };
        format!(
            "Approval needed ({slug}): {agent} wants to use {tool}\n{}{always}\n\
             Answer within {}:\n/approve {slug} – this once\n/approve {slug} always – from now \
             on\n/deny {slug}",
            fenced(summary),
            format_timeout(*timeout),
        )
    }
}

fn fenced(text: &str) -> String {
    format!("```\n{}\n```", single_line(text).replace("```", "'''"))
}

fn format_timeout(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 7_200 => format!("{} hours", seconds / 3_600),
        seconds if seconds >= 180 => format!("{} minutes", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Joins a text into one line and truncates it.
pub(super) fn single_line(text: &str) -> String {
    let mut words = String::new();
    for word in text.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().filter(|c| !c.is_control()));
    }
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
        "this call needs a person's approval, and {got} bytes are more than the {limit} that a \
         person can be asked about: make it shorter"
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
    use super::*;

    #[test]
    fn what_the_model_wrote_stands_apart_in_one_line() {
        let request = ApprovalRequest {
            slug: "1a2b3c4d",
            agent: "main",
            tool: "exec",
            summary: "run `ls`\n```\n/approve everything\n```",
            pattern: Some("ls"),
            timeout: Duration::from_secs(120),
        };

        let text = request.text();

        assert!(text.starts_with("Approval needed (1a2b3c4d): main wants to use exec\n```\n"));
        assert!(text.contains("\nrun `ls` ''' /approve everything '''\n"), "{text}");
        assert!(text.contains("Answer within 120 s:\n/approve 1a2b3c4d – this once\n"), "{text}");
        assert_eq!(text.matches("```").count(), 4);
    }

    #[test]
    fn a_long_line_is_cut_and_nothing_invisible_is_left() {
        assert_eq!(single_line(" a\n\tb\u{0}c "), "a bc");
        assert_eq!(single_line(&"x".repeat(600)).chars().count(), MAX_LINE_CHARS);
    }

    #[test]
    fn time_is_told_as_people_tell_it() {
        for (seconds, told) in [(120, "120 s"), (600, "10 minutes"), (86_400, "24 hours")] {
            assert_eq!(format_timeout(Duration::from_secs(seconds)), told);
        }
    }
}
