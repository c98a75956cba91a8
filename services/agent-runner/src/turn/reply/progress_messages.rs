//! Verbose and reasoning messages: tool calls and the model's reasoning, sent to the user before
//! the answer if they asked for it (spec UIC-004).
//!
//! They are sent with the next write, under an id derived from the call's key or the step, so a
//! repeated step sends them once. None of them is in the journal.

use holdfast_session::NewDelivery;
use holdfast_types::{Reasoning, Target, ToolCall, Verbose};

use crate::{
    tools::mesh,
    turn::{
        calls,
        state::{TurnState, count_thoughts},
    },
};

/// Limit on a call's input, in characters: usually, and with `full`.
const MAX_INPUT_CHARS: (usize, usize) = (160, 600);

/// Limit on a result with `full`, in characters.
const MAX_OUTPUT_CHARS: usize = 1_500;

/// Limit on the first line of a failure otherwise, in characters.
const MAX_REASON_CHARS: usize = 200;

const SHORTENING: &str = "Our conversation is longer than the model can read. I shorten what was said \
                          before, and try again.";

/// Limit on shown reasoning, in characters.
const MAX_REASONING_CHARS: usize = 8_000;

/// Announces calls. Returns `false` if nobody is told.
pub(crate) fn announce_calls(turn: &mut TurnState<'_>, calls: &[ToolCall]) -> bool {
    let verbose = turn.effective_verbose();
    let (Some(first), false, Some(place)) =
        (calls.first(), verbose == Verbose::Off || turn.is_flushing(), turn.conversation_target())
    else {
        return false;
    };
    let lines: Vec<String> = calls.iter().map(|call| call_text(call, verbose)).collect();
    let key = format!("{}:calling", calls::call_key(turn, first));
    turn.journal.enqueue([message(place, lines.join("\n"), &key)]);
    true
}

/// Message that reports the result of a call, if the user asked for it.
pub(crate) fn result_message(
    turn: &TurnState<'_>,
    call: &ToolCall,
    output: &str,
    failed: bool,
) -> Option<NewDelivery> {
    let verbose = turn.effective_verbose();
    if verbose == Verbose::Off || turn.is_flushing() {
        return None;
    }
    let key = format!("{}:called", calls::call_key(turn, call));
    let text = result_text(&call.tool, output, failed, verbose);
    Some(message(turn.conversation_target()?, text, &key))
}

pub(crate) fn send_reasoning(turn: &mut TurnState<'_>, thinking: &str) {
    if turn.effective_reasoning() == Reasoning::Off || thinking.trim().is_empty() {
        return;
    }
    let Some(place) = turn.conversation_target() else { return };
    let step = count_thoughts(turn.journal.turn());
    let key = format!("{}:{}:{step}:thinking", turn.lease.claim.session, turn.run);
    turn.journal.enqueue([message(place, reasoning_text(thinking), &key)]);
}

/// Tells the person on a channel that the conversation is shortened, once in a turn: repeated
/// messages have the same id (CHN-030).
pub(crate) fn announce_shortening(turn: &mut TurnState<'_>) {
    let (None, Some(place)) = (turn.heartbeat(), turn.reply_target()) else { return };
    let key = format!("{}:{}:shortening", turn.lease.claim.session, turn.run);
    turn.journal.enqueue([message(place, SHORTENING.to_owned(), &key)]);
}

fn message(place: Target, text: String, key: &str) -> NewDelivery {
    let target = Target { reply_to: None, ..place };
    NewDelivery {
        target,
        text,
        act: None,
        id: mesh::delivery_id(key),
        delay: std::time::Duration::ZERO,
    }
}

fn call_text(call: &ToolCall, verbose: Verbose) -> String {
    let most = match verbose {
        Verbose::Off | Verbose::On => MAX_INPUT_CHARS.0,
        Verbose::Full => MAX_INPUT_CHARS.1,
    };
    let (tool, input) = (inline_code(&call.tool, MAX_REASON_CHARS), inline_code(&call.input, most));
    match input.is_empty() || input == "{}" {
        true => format!("Calling `{tool}`"),
        false => format!("Calling `{tool}`: `{input}`"),
    }
}

fn result_text(tool: &str, output: &str, failed: bool, verbose: Verbose) -> String {
    let tool = inline_code(tool, MAX_REASON_CHARS);
    let how = if failed { "failed" } else { "is done" };
    let output = output.trim();
    if verbose == Verbose::Full && !output.is_empty() {
        // No line of the output may end the code block.
        let shown = truncate(&output.replace("```", "'''"), MAX_OUTPUT_CHARS);
        return format!("`{tool}` {how}:\n```\n{shown}\n```");
    }
    let first = inline_code(output.lines().next().unwrap_or_default(), MAX_REASON_CHARS);
    match failed && !first.is_empty() {
        true => format!("`{tool}` {how}: `{first}`"),
        false => format!("`{tool}` {how}"),
    }
}

/// Formats reasoning as a quotation, to distinguish it from the answer.
fn reasoning_text(thinking: &str) -> String {
    let shown = truncate(thinking.trim(), MAX_REASONING_CHARS);
    let lines: Vec<String> = shown.lines().map(|line| format!("> {line}")).collect();
    format!("Thinking:\n{}", lines.join("\n"))
}

/// Formats a text as one line without backticks.
fn inline_code(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', "'");
    truncate(&line, most)
}

fn truncate(text: &str, most: usize) -> String {
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
        assert_eq!(call_text(&call("{}"), Verbose::On), "Calling `exec`");
        let told = call_text(&call("{\"command\": \"echo `id`\n\"}"), Verbose::On);
        assert_eq!(told, "Calling `exec`: `{\"command\": \"echo 'id' \"}`");
        let long = call(&"x".repeat(1_000));
        assert_eq!(call_text(&long, Verbose::On).chars().count(), 17 + 160 + 2);
        assert_eq!(call_text(&long, Verbose::Full).chars().count(), 17 + 600 + 2);
    }

    #[test]
    fn what_came_is_told_whole_only_in_full() {
        assert_eq!(result_text("exec", "a\nb", false, Verbose::On), "`exec` is done");
        assert_eq!(result_text("exec", "no\nb", true, Verbose::On), "`exec` failed: `no`");
        assert_eq!(
            result_text("exec", "a\n```\nb", false, Verbose::Full),
            "`exec` is done:\n```\na\n'''\nb\n```"
        );
        assert_eq!(result_text("exec", " ", false, Verbose::Full), "`exec` is done");
        let long = result_text("exec", &"語".repeat(2_000), false, Verbose::Full);
        assert!(long.ends_with("語…\n```"), "{long}");
    }

    #[test]
    fn a_thought_is_a_quotation() {
        assert_eq!(reasoning_text(" a\n\nb "), "Thinking:\n> a\n> \n> b");
    }
}
