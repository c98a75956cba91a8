//! Command `/compact`: compaction at the user's request (spec UIC-003, CMP).
//!
//! A memory flush runs first, in steps of its own, so that the turn can move between runners. Then
//! everything but the newest exchange is summarised, and the turn ends with the change in length.

use holdfast_agent::{
    compact::Reason,
    tokens::{CjkAware, Tokenizer as _, messages_tokens},
};
use holdfast_session::CompletionResult;
use holdfast_types::{Command, Entry, Note};

use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    turn::{
        budget, commands,
        context::{compaction, flush},
        state::TurnState,
    },
};

const NOTHING_TO_SUMMARISE_REPLY: &str = "There is nothing to summarise yet.";
const SUMMARISED_REPLY: &str = "Summarised.";
const NO_SUMMARY_REPLY: &str = "The model gave no summary; nothing was changed. Please try again.";

/// Executes the command if it begins this turn. Returns `None` during the memory flush.
pub(crate) async fn run_compact_command(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<Option<CompletionResult>, Error> {
    let Some(command) = commands::command(turn) else { return Ok(None) };
    let Command::Compact(wish) = &command else { return Ok(None) };
    if turn.is_flushing() {
        return Ok(None);
    }
    if !command.is_for(turn.kind) {
        return commands::execute_command(turn, command).await.map(Some);
    }
    if is_compacted(turn) {
        // The previous runner crashed before it could answer.
        return commands::finish_command(turn, Note::Command, SUMMARISED_REPLY.to_owned())
            .await
            .map(Some);
    }
    if let Some(why) = budget::spent_budget(turn, snapshot).await? {
        return commands::finish_command(turn, Note::Command, why).await.map(Some);
    }
    if flush::begin_flush(turn, snapshot, Reason::Asked).await? {
        // What the flush writes down is no step of a behaviour.
        turn.behavior = None;
        return Ok(None);
    }
    let before = prompt_tokens(turn);
    if !compaction::can_compact(turn, snapshot) {
        return commands::finish_command(
            turn,
            Note::Command,
            NOTHING_TO_SUMMARISE_REPLY.to_owned(),
        )
        .await
        .map(Some);
    }
    let text = match compaction::compact(turn, snapshot, Reason::Asked, wish).await? {
        true => length_change(before, prompt_tokens(turn)),
        false => NO_SUMMARY_REPLY.to_owned(),
    };
    commands::finish_command(turn, Note::Command, text).await.map(Some)
}

fn is_compacted(turn: &TurnState<'_>) -> bool {
    let is_summary = |entry: &Entry| matches!(entry, Entry::Noted { note: Note::Summary, .. });
    turn.journal.turn().iter().any(is_summary)
}

/// Tokens of the conversation in the prompt.
fn prompt_tokens(turn: &TurnState<'_>) -> usize {
    let conversation = turn.conversation();
    let summary = conversation.summary().map_or(0, |summary| CjkAware.count(summary));
    summary + messages_tokens(&CjkAware, conversation.messages())
}

/// Text about the change in length.
fn length_change(before: usize, after: usize) -> String {
    if after >= before {
        return format!("Summarised; it was short already: {before} tokens are {after} now.");
    }
    let percent = (before - after) * 100 / before;
    format!("Summarised: about {before} tokens are {after} now, {percent} % less.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_how_much_shorter_it_became() {
        assert_eq!(
            length_change(2_000, 500),
            "Summarised: about 2000 tokens are 500 now, 75 % less."
        );
        assert!(length_change(10, 40).contains("short already"));
        assert!(length_change(0, 0).contains("short already"));
    }
}
