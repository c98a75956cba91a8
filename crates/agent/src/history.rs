//! The newest part of the conversation that fits in a budget.

mod conversation;
#[cfg(test)]
pub(crate) mod fixtures;
mod message_text;
#[cfg(test)]
mod tests;

use holdfast_types::{ChatMessage, Entry, SessionKind};

pub(crate) use conversation::EARLIER_NOT_SHOWN;
use conversation::conversation_start;
pub use conversation::{Conversation, Picture};
use message_text::is_system;
pub(crate) use message_text::{introduced, render_message};

use crate::{
    text::shortened,
    tokens::{CjkAware, messages_tokens, tokens},
};

/// Length to which old tool outputs are cut when the exchange is too long, in characters.
const SHORT_OUTPUT: usize = 1_000;

/// Estimated cost of an image: about what providers count for a million pixels.
const PICTURE_TOKENS: usize = 1_600;

/// Conversation as a model sees it, within a budget.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Summary of the earlier conversation, with its introduction.
    pub(crate) summary: Option<String>,
    /// Oldest first.
    pub(crate) messages: Vec<ChatMessage>,
    /// Number of earlier exchanges that are left out.
    pub(crate) left_out: usize,
}

/// Reads the newest part of the conversation that fits in a budget of tokens. The summary and the
/// last exchange are always kept.
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

/// Returns the system messages of a seeded history, oldest first.
pub(crate) fn instructions(journal: &[Entry]) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for entry in &journal[conversation_start(journal)..] {
        if let Entry::Heard { body, .. } = entry
            && is_system(body)
            && !found.contains(&body.text.trim())
        {
            found.push(body.text.trim());
        }
    }
    found
}

/// Shortens tool outputs, oldest first, until the exchange fits.
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
