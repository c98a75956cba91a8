//! Choice of the messages to keep and to summarise (CMP-007, CMP-008, CMP-010).
//!
//! A conversation is cut only where its journal can be cut: everything before the cut in the
//! journal is also before it in the conversation, and no call is separated from its results.

use holdfast_types::ChatMessage;

use super::{
    measure::{Budget, compute_adaptive_chunk_ratio, share},
    prompt::{MAX_BACKGROUND_MESSAGE_CHARS, MAX_MESSAGE_CHARS, SummaryRequest},
    split::{chunk_messages_by_max_tokens, split_messages_by_token_share},
    stages::Summary,
    trigger::{ConversationSize, KEPT_MESSAGES, needs_summary},
};
use crate::{
    history::{Conversation, introduced},
    text::line,
    tokens::{Tokenizer, message_tokens, messages_tokens},
};

/// Number of parts of the older messages.
const PARTS: usize = 2;

/// The background summarises up to this number of messages as a whole, and more in two halves.
const MAX_MESSAGES_IN_ONE_PART: usize = 10;

/// Remark at the end of a background summary that left out a message.
const LEFT_OUT_REMARK: &str = "[Some messages were too long to be part of this summary.]";

/// Maximum length of the user's wish, in characters.
const MAX_WISH_CHARS: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The conversation is estimated not to fit.
    Proactive,
    /// The model refused the request as too long.
    Overflow,
    /// The user asked for it.
    Asked,
}

/// Requests for a summary, and the messages that it will replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(super) requests: Vec<SummaryRequest>,
    /// Number of the journal's newest entries that it will not replace.
    pub(super) keeps: u32,
    /// Maximum size of the texts in one merge, in tokens.
    pub(super) max_merge: usize,
    pub(super) remark: Option<&'static str>,
    /// Text of the user's `/compact`; may be empty.
    pub(super) wish: String,
}

impl Plan {
    /// Plans to keep the newest messages up to a share of the window and to summarise the rest in
    /// stages. `None` if everything fits, or if there is nothing to summarise.
    ///
    /// The share is [`compute_adaptive_chunk_ratio`]; keeping stops at the first message that does
    /// not fit. More is kept only if calls at the journal's end have no results yet. The previous
    /// summary becomes part of the new one. If the user asked, everything but the newest exchange
    /// is summarised.
    #[must_use]
    pub fn compact(
        conversation: &Conversation<'_>,
        reason: Reason,
        budget: Budget,
        tokenizer: &(impl Tokenizer + ?Sized),
    ) -> Option<Self> {
        let messages = &conversation.messages;
        let summary = conversation.summary.map(introduced);
        let before = summary.map_or(0, |summary| tokenizer.count(&summary));
        let total = before + messages_tokens(tokenizer, messages);
        if reason == Reason::Proactive && budget.fits(total) {
            return None;
        }
        let cut = match reason {
            Reason::Proactive | Reason::Overflow => {
                let ratio = compute_adaptive_chunk_ratio(messages, budget.window, tokenizer);
                cut_within(conversation, share(budget.window, ratio), tokenizer)?
            }
            // A user who asks wants a shorter conversation, however short it is. Keep the newest
            // exchange.
            Reason::Asked => cut_before_newest_exchange(conversation)?,
        };
        let older = &messages[..cut.message];
        let max_chunk = budget.max_chunk();
        let chunks: Vec<&[ChatMessage]> = split_messages_by_token_share(older, PARTS, tokenizer)
            .into_iter()
            .flat_map(|part| chunk_messages_by_max_tokens(part, max_chunk, tokenizer))
            .collect();
        Some(Self {
            requests: summary_requests(conversation.summary, &chunks, MAX_MESSAGE_CHARS),
            keeps: kept_entries(conversation, cut),
            max_merge: max_chunk,
            remark: None,
            wish: String::new(),
        })
    }

    /// Adds the user's own words about what matters to every request.
    #[must_use]
    pub fn with_wish(mut self, wish: &str) -> Self {
        self.wish = line(wish, MAX_WISH_CHARS);
        for request in &mut self.requests {
            request.add_wish(&self.wish);
        }
        self
    }

    /// Plans the background summary, if it is due. The last 4 messages stay; the texts of the user
    /// and the assistant before them are summarised, in two halves if there are many. Messages
    /// larger than half a window are left out, with a remark. `None` if no summary is due or
    /// nothing would be summarised.
    #[must_use]
    pub fn background(
        conversation: &Conversation<'_>,
        window: usize,
        tokenizer: &(impl Tokenizer + ?Sized),
    ) -> Option<Self> {
        let messages = &conversation.messages;
        let tokens = messages_tokens(tokenizer, messages);
        if !needs_summary(ConversationSize { messages: messages.len(), tokens, window }) {
            return None;
        }
        let upto = messages.len().checked_sub(KEPT_MESSAGES)?;
        let cut = cuts(conversation).rfind(|cut| cut.message <= upto)?;
        let spoken: Vec<ChatMessage> =
            messages[..cut.message].iter().filter_map(without_calls).collect();
        let half = window / 2;
        let all = spoken.len();
        let fitting: Vec<ChatMessage> = spoken
            .into_iter()
            .filter(|message| message_tokens(tokenizer, message) <= half)
            .collect();
        if fitting.is_empty() {
            return None;
        }
        let halves = match fitting.len() {
            ..=MAX_MESSAGES_IN_ONE_PART => vec![fitting.as_slice()],
            many => {
                let (first, second) = fitting.split_at(many / 2);
                vec![first, second]
            }
        };
        let chunks: Vec<&[ChatMessage]> = halves
            .into_iter()
            .flat_map(|part| chunk_messages_by_max_tokens(part, half, tokenizer))
            .collect();
        Some(Self {
            requests: summary_requests(conversation.summary, &chunks, MAX_BACKGROUND_MESSAGE_CHARS),
            keeps: kept_entries(conversation, cut),
            max_merge: half,
            remark: (fitting.len() < all).then_some(LEFT_OUT_REMARK),
            wish: String::new(),
        })
    }
}

/// Drops the oldest half of the messages without asking a model, as the last resort.
///
/// The rest begins where the journal may be cut. The previous summary stays, with a note of the
/// loss. `None` if the messages cannot be cut.
#[must_use]
pub fn drop_oldest(conversation: &Conversation<'_>) -> Option<Summary> {
    let half = conversation.messages.len() / 2;
    let inner = || cuts(conversation).filter(|cut| cut.message < conversation.messages.len());
    let cut = inner().find(|cut| cut.message >= half).or_else(|| inner().next_back())?;
    let dropped = cut.message;
    let note = format!(
        "[Emergency compression dropped the {dropped} oldest messages: the conversation was too \
         long for the model.]"
    );
    let text = match conversation.summary {
        Some(summary) => format!("{}\n\n{note}", summary.trim()),
        None => note,
    };
    Some(Summary { text, keeps: kept_entries(conversation, cut) })
}

/// Place where the conversation may be cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// First message that is kept.
    message: usize,
    /// First entry that is kept.
    entry: usize,
}

/// Returns all cuts, oldest first; the last may be the end.
fn cuts(conversation: &Conversation<'_>) -> impl DoubleEndedIterator<Item = Cut> {
    let inner = conversation.cuts.iter().copied().enumerate();
    let end = (conversation.messages.len(), conversation.end);
    inner
        .chain(std::iter::once(end))
        .filter_map(|(message, entry)| entry.map(|entry| Cut { message, entry }))
        .filter(|cut| cut.message > 0)
}

/// Returns the oldest cut after which all messages fit in `room`, or the newest cut if none does.
/// `None` if there is no cut, or if everything fits.
fn cut_within(
    conversation: &Conversation<'_>,
    room: usize,
    tokenizer: &(impl Tokenizer + ?Sized),
) -> Option<Cut> {
    let messages = &conversation.messages;
    let mut found: Option<Cut> = None;
    let mut tokens = 0;
    for cut in cuts(conversation).rev() {
        let end = found.map_or(messages.len(), |found| found.message);
        tokens += messages_tokens(tokenizer, &messages[cut.message..end]);
        if tokens > room && found.is_some() {
            return found;
        }
        found = Some(cut);
    }
    let oldest = found?;
    tokens += messages_tokens(tokenizer, &messages[..oldest.message]);
    (tokens > room).then_some(oldest)
}

/// Returns the newest cut that keeps the newest exchange whole.
fn cut_before_newest_exchange(conversation: &Conversation<'_>) -> Option<Cut> {
    let newest = conversation.exchanges.last().copied().unwrap_or_default();
    cuts(conversation).rfind(|cut| cut.message <= newest)
}

fn kept_entries(conversation: &Conversation<'_>, cut: Cut) -> u32 {
    u32::try_from(conversation.entries - cut.entry).unwrap_or(u32::MAX)
}

/// Returns one request for each chunk; the first includes the previous summary.
fn summary_requests(
    summary: Option<&str>,
    chunks: &[&[ChatMessage]],
    longest: usize,
) -> Vec<SummaryRequest> {
    let before = std::iter::once(summary).chain(std::iter::repeat(None));
    chunks
        .iter()
        .zip(before)
        .map(|(chunk, before)| SummaryRequest::chunk(before, chunk, longest))
        .collect()
}

/// Returns the text of a user or assistant message, without calls; `None` if it has none.
fn without_calls(message: &ChatMessage) -> Option<ChatMessage> {
    match message {
        ChatMessage::User { text, .. } if !text.trim().is_empty() => Some(message.clone()),
        ChatMessage::Assistant { text, .. } if !text.trim().is_empty() => {
            Some(ChatMessage::assistant(text.clone(), Vec::new()))
        }
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => None,
    }
}
