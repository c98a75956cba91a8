//! Verbose and reasoning messages: tool calls and the model's reasoning, sent to the user before
//! the answer if they asked for it (spec UIC-004).
//!
//! They are sent with the next write, under an id derived from the call's key or the step, so a
//! repeated step sends them once. None of them is in the journal.

use holdfast_session::NewDelivery;
use holdfast_types::{Reasoning, Target, ToolCall, Verbose};

use crate::{mesh, turn::Turn, turn::thoughts};

/// Limit on a call's input, in characters: usually, and with `full`.
const MOST_INPUT: (usize, usize) = (160, 600);

/// Limit on a result with `full`, in characters.
const MOST_OUTPUT: usize = 1_500;

/// Limit on the first line of a failure otherwise, in characters.
const MOST_REASON: usize = 200;

/// Limit on shown reasoning, in characters.
const MOST_THINKING: usize = 8_000;

impl Turn<'_> {
    /// Announces calls. Returns `false` if nobody is told.
    pub(crate) fn tell_calls(&self, calls: &[ToolCall]) -> bool {
        let verbose = self.verbose();
        let (Some(first), false, Some(place)) =
            (calls.first(), verbose == Verbose::Off || self.is_flushing(), self.listener())
        else {
            return false;
        };
        let lines: Vec<String> = calls.iter().map(|call| calling(call, verbose)).collect();
        let key = format!("{}:calling", self.key_of(first));
        self.tell_person(place, lines.join("\n"), &key);
        true
    }

    /// Reports the result of a call.
    pub(crate) fn tell_result(&self, call: &ToolCall, output: &str, failed: bool) {
        let verbose = self.verbose();
        if verbose == Verbose::Off || self.is_flushing() {
            return;
        }
        let Some(place) = self.listener() else { return };
        let key = format!("{}:called", self.key_of(call));
        self.tell_person(place, came(&call.tool, output, failed, verbose), &key);
    }

    pub(crate) fn tell_thinking(&self, thinking: &str) {
        if self.reasoning() == Reasoning::Off || thinking.trim().is_empty() {
            return;
        }
        let Some(place) = self.listener() else { return };
        let step = thoughts(self.journal.turn());
        let key = format!("{}:{}:{step}:thinking", self.hold.claim.session, self.run);
        self.tell_person(place, thought(thinking), &key);
    }

    fn listener(&self) -> Option<Target> {
        self.target().or_else(|| self.hold.desk().place.clone())
    }

    fn tell_person(&self, place: Target, text: String, key: &str) {
        let target = Target { reply_to: None, ..place };
        let new = NewDelivery { target, text, act: None, id: mesh::id(key) };
        self.hold.desk().outbox.push(new);
    }
}

fn calling(call: &ToolCall, verbose: Verbose) -> String {
    let most = match verbose {
        Verbose::Off | Verbose::On => MOST_INPUT.0,
        Verbose::Full => MOST_INPUT.1,
    };
    let (tool, input) = (code(&call.tool, MOST_REASON), code(&call.input, most));
    match input.is_empty() || input == "{}" {
        true => format!("Calling `{tool}`"),
        false => format!("Calling `{tool}`: `{input}`"),
    }
}

fn came(tool: &str, output: &str, failed: bool, verbose: Verbose) -> String {
    let tool = code(tool, MOST_REASON);
    let how = if failed { "failed" } else { "is done" };
    let output = output.trim();
    if verbose == Verbose::Full && !output.is_empty() {
        // No line of the output may end the code block.
        let shown = cut(&output.replace("```", "'''"), MOST_OUTPUT);
        return format!("`{tool}` {how}:\n```\n{shown}\n```");
    }
    let first = code(output.lines().next().unwrap_or_default(), MOST_REASON);
    match failed && !first.is_empty() {
        true => format!("`{tool}` {how}: `{first}`"),
        false => format!("`{tool}` {how}"),
    }
}

/// Formats reasoning as a quotation, to distinguish it from the answer.
fn thought(thinking: &str) -> String {
    let shown = cut(thinking.trim(), MOST_THINKING);
    let lines: Vec<String> = shown.lines().map(|line| format!("> {line}")).collect();
    format!("Thinking:\n{}", lines.join("\n"))
}

/// Formats a text as one line without backticks.
fn code(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', "'");
    cut(&line, most)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(input: &str) -> ToolCall {
        ToolCall { id: "a".into(), tool: "exec".into(), input: input.into() }
    }

    #[test]
    fn a_call_is_told_in_a_line_and_nothing_in_it_breaks_out() {
        assert_eq!(calling(&call("{}"), Verbose::On), "Calling `exec`");
        let told = calling(&call("{\"command\": \"echo `id`\n\"}"), Verbose::On);
        assert_eq!(told, "Calling `exec`: `{\"command\": \"echo 'id' \"}`");
        let long = call(&"x".repeat(1_000));
        assert_eq!(calling(&long, Verbose::On).chars().count(), 17 + 160 + 2);
        assert_eq!(calling(&long, Verbose::Full).chars().count(), 17 + 600 + 2);
    }

    #[test]
    fn what_came_is_told_whole_only_in_full() {
        assert_eq!(came("exec", "a\nb", false, Verbose::On), "`exec` is done");
        assert_eq!(came("exec", "no\nb", true, Verbose::On), "`exec` failed: `no`");
        assert_eq!(
            came("exec", "a\n```\nb", false, Verbose::Full),
            "`exec` is done:\n```\na\n'''\nb\n```"
        );
        assert_eq!(came("exec", " ", false, Verbose::Full), "`exec` is done");
        let long = came("exec", &"語".repeat(2_000), false, Verbose::Full);
        assert!(long.ends_with("語…\n```"), "{long}");
    }

    #[test]
    fn a_thought_is_a_quotation() {
        assert_eq!(thought(" a\n\nb "), "Thinking:\n> a\n> \n> b");
    }
}
