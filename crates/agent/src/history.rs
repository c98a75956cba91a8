//! What of the journal the model sees: the newest of the conversation that fits.

mod conversation;
mod said;
#[cfg(test)]
mod tests;

use holdfast_types::{ChatMessage, Entry, SessionKind};

pub(crate) use conversation::NOT_MADE;
use conversation::began;
pub use conversation::{Conversation, Picture};
use said::is_system;

use crate::{
    context::introduced,
    text::shortened,
    tokens::{CjkAware, messages_tokens, tokens},
};

/// To how many characters an old output of a tool is shortened when all is too long.
const SHORT_OUTPUT: usize = 1_000;

/// What a picture is taken to cost: about what providers count for one of a million dots.
const PICTURE_TOKENS: usize = 1_600;

/// The conversation as a model sees it, within a budget.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// What was said before the messages, in short, with the words that introduce it.
    pub(crate) summary: Option<String>,
    /// The messages, oldest first.
    pub(crate) messages: Vec<ChatMessage>,
    /// How many exchanges before them are left out.
    pub(crate) left_out: usize,
}

/// Reads the conversation out of the journal: the newest of it that fits in a budget of tokens.
/// The summary and the last exchange are kept whatever they cost.
pub(crate) fn history(
    journal: &[Entry],
    kind: SessionKind,
    pictures: &[Picture],
    budget: usize,
) -> History {
    let Conversation { summary, mut messages, exchanges, .. } =
        Conversation::with_pictures(journal, kind, pictures);
    let summary = summary.map(introduced);
    let budget = budget.saturating_sub(summary.as_deref().map_or(0, tokens));
    let (mut left, mut first, mut end) = (budget, exchanges.len(), messages.len());
    for (at, start) in exchanges.iter().copied().enumerate().rev() {
        let Some(rest) = left.checked_sub(cost(&messages[start..end])) else {
            break;
        };
        (left, first, end) = (rest, at, start);
    }
    let none_fits = first == exchanges.len();
    if let (true, Some(last)) = (none_fits, exchanges.last()) {
        (first, end) = (first - 1, *last);
    }
    messages.drain(..end);
    if none_fits {
        shorten(&mut messages, budget);
    }
    History { summary, messages, left_out: first }
}

fn cost(messages: &[ChatMessage]) -> usize {
    let pictures = messages.iter().map(|message| match message {
        ChatMessage::User { images, .. } => images.len(),
        ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => 0,
    });
    messages_tokens(&CjkAware, messages) + PICTURE_TOKENS * pictures.sum::<usize>()
}

/// The instructions among seeded messages, oldest first.
pub(crate) fn instructions(journal: &[Entry]) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for entry in &journal[began(journal)..] {
        if let Entry::Heard { body, .. } = entry
            && is_system(body)
            && !found.contains(&body.text.trim())
        {
            found.push(body.text.trim());
        }
    }
    found
}

/// Shortens outputs of tools, oldest first, until the exchange fits.
fn shorten(exchange: &mut [ChatMessage], budget: usize) {
    let mut over = cost(exchange).saturating_sub(budget);
    for message in exchange {
        if let (1.., ChatMessage::Tool { output, .. }) = (over, message) {
            let before = tokens(output);
            *output = shortened(output, SHORT_OUTPUT);
            over = over.saturating_sub(before.saturating_sub(tokens(output)));
        }
    }
}
