//! Turns that a job's firing began.
//!
//! | firing | turn |
//! |---|---|
//! | has `as_is` | uses no model; the text is the agent's answer |
//! | names no target | answers at the last target of its conversation |
//! | posts its answer | tells the agent's main conversation, in the transaction that ends it |

use holdfast_schedule::{Isolation, PostMode};
use holdfast_session::CompletionResult;
use holdfast_types::{
    DmScope, Entry, MainSessionPost, SessionKey, SessionKind, SessionPost, SystemEvent, Usage,
};

use crate::{
    error::Error,
    turn::{
        reply::completion,
        state::{TurnState, count_thoughts},
    },
};

impl TurnState<'_> {
    /// Whether a firing began the turn in a conversation that users take part in.
    pub(crate) fn is_firing_in_user_session(&self) -> bool {
        self.kind != SessionKind::Cron && self.firing().is_some()
    }
}

/// Adds system events at the beginning of a turn: later they could separate a call from its result.
/// A turn that was going on is told of lost state once it has all results.
pub(crate) fn receive_system_events(
    turn: &mut TurnState<'_>,
    events: Vec<SystemEvent>,
    is_new: bool,
) {
    if is_new || turn.was_moved {
        turn.pending_events = events;
    }
    if is_new {
        add_pending_events(turn);
    }
}

/// Adds the events that wait for the turn to have all results.
pub(crate) fn add_pending_events(turn: &mut TurnState<'_>) {
    let events = std::mem::take(&mut turn.pending_events);
    if !events.is_empty() {
        turn.journal.add_unstored(SystemEvent::entry(&events));
    }
}

/// The text of the turn if a firing with `as_is` began it.
pub(crate) fn fixed_text(turn: &TurnState<'_>) -> Option<String> {
    let begun = count_thoughts(turn.journal.turn()) > 0;
    turn.firing().filter(|fired| fired.as_is && !begun)?;
    turn.journal.turn().iter().find_map(|entry| match entry {
        Entry::Heard { body, .. } if body.fired.as_ref().is_some_and(|fired| fired.as_is) => {
            Some(body.text.clone())
        }
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    })
}

/// Ends the turn with a fixed text as the agent's answer.
pub(crate) async fn finish_with_fixed_text(
    turn: &mut TurnState<'_>,
    text: String,
) -> Result<CompletionResult, Error> {
    metrics::counter!("holdfast_runner_said_as_is_total").increment(1);
    let thought = Entry::Thought {
        text: text.clone(),
        calls: Vec::new(),
        usage: Usage::default(),
        model: String::new(),
        carry: None,
        record: None,
    };
    completion::finish_with_note(turn, thought, text).await
}

/// Entry for the agent's main conversation, if the firing posts the answer there.
pub(crate) fn main_session_post(turn: &TurnState<'_>, answer: &str) -> Option<Entry> {
    let post = turn.firing()?.post.as_ref()?;
    let own: SessionKey = turn.key.parse().ok()?;
    let text = post_text(post, answer)?;
    // Other people's words are no owner's.
    let audience = turn.access_for_scope(DmScope::default()).audience;
    let outside = turn.has_read_outside_text() || !audience.has_owner_rights();
    Some(SessionPost { key: SessionKey::main(own.agent()?), text, outside }.entry())
}

fn post_text(post: &MainSessionPost, answer: &str) -> Option<String> {
    let isolation = Isolation {
        post_to_main_prefix: post.prefix.clone(),
        post_to_main_mode: if post.full { PostMode::Full } else { PostMode::Summary },
        post_to_main_max_chars: post.max_chars,
    };
    let summary = answer.trim().split("\n\n").next().unwrap_or_default();
    isolation.post(summary, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_by_its_first_paragraph_or_whole_and_never_longer_than_it_may() {
        let answer = "All is well.\n\nDetails: none.";
        let post = |full, max_chars| MainSessionPost { prefix: "Cron".into(), full, max_chars };

        assert_eq!(post_text(&post(false, 100), answer).as_deref(), Some("Cron: All is well."));
        assert_eq!(post_text(&post(true, 100), answer), Some(format!("Cron: {answer}")));
        assert_eq!(post_text(&post(true, 3), answer).as_deref(), Some("Cron: All…"));
        assert_eq!(post_text(&post(true, 3), "  "), None);
    }
}
