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

use crate::{agents::AgentSnapshot, error::Error, turn::Turn};

const NOTHING_TO_SUMMARISE_REPLY: &str = "There is nothing to summarise yet.";
const SUMMARISED_REPLY: &str = "Summarised.";
const NO_SUMMARY_REPLY: &str = "The model gave no summary; nothing was changed. Please try again.";

impl Turn<'_> {
    /// Executes the command if it begins this turn. Returns `None` during the memory flush.
    pub(crate) async fn run_compact_command(
        &mut self,
        brief: &AgentSnapshot,
    ) -> Result<Option<CompletionResult>, Error> {
        let Some(command) = self.command() else { return Ok(None) };
        let Command::Compact(wish) = &command else { return Ok(None) };
        if self.is_flushing() {
            return Ok(None);
        }
        if !command.is_for(self.kind) {
            return self.execute_command(command).await.map(Some);
        }
        if self.is_compacted() {
            // The previous runner crashed before it could answer.
            return self.finish_command(Note::Command, SUMMARISED_REPLY.to_owned()).await.map(Some);
        }
        if let Some(why) = self.spent_budget(brief).await? {
            return self.finish_command(Note::Command, why).await.map(Some);
        }
        if self.begin_flush(brief, Reason::Asked).await? {
            return Ok(None);
        }
        let before = self.prompt_tokens();
        if !self.can_compact(brief) {
            return self
                .finish_command(Note::Command, NOTHING_TO_SUMMARISE_REPLY.to_owned())
                .await
                .map(Some);
        }
        let text = match self.compact(brief, Reason::Asked, wish).await? {
            true => length_change(before, self.prompt_tokens()),
            false => NO_SUMMARY_REPLY.to_owned(),
        };
        self.finish_command(Note::Command, text).await.map(Some)
    }

    fn is_compacted(&self) -> bool {
        let is_summary = |entry: &Entry| matches!(entry, Entry::Noted { note: Note::Summary, .. });
        self.journal.turn().iter().any(is_summary)
    }

    /// Tokens of the conversation in the prompt.
    fn prompt_tokens(&self) -> usize {
        let conversation = self.conversation();
        let summary = conversation.summary().map_or(0, |summary| CjkAware.count(summary));
        summary + messages_tokens(&CjkAware, conversation.messages())
    }
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
