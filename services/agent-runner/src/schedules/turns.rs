//! Turns that a job's firing began.
//!
//! | firing | turn |
//! |---|---|
//! | has `as_is` | uses no model; the text is the agent's answer |
//! | names no target | answers at the last target of its conversation |
//! | posts its answer | tells the agent's main conversation, in the transaction that ends it |

use holdfast_schedule::{Isolation, PostMode};
use holdfast_session::Completed;
use holdfast_types::{Entry, Post, Posted, SessionKey, SessionKind, SystemEvent, Usage};

use crate::{error::Error, turn::Turn, turn::thoughts};

impl Turn<'_> {
    /// Adds system events at the beginning of a turn: later they would separate a call from its
    /// result.
    pub(crate) fn hear_of(&mut self, events: &[SystemEvent], is_new: bool) {
        if is_new && !events.is_empty() {
            self.journal.hear(SystemEvent::entry(events));
        }
    }

    /// The text of the turn if a firing with `as_is` began it.
    pub(crate) fn said_as_it_is(&self) -> Option<String> {
        let begun = thoughts(self.journal.turn()) > 0;
        self.fired().filter(|fired| fired.as_is && !begun)?;
        self.journal.turn().iter().find_map(|entry| match entry {
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
    pub(crate) async fn say_as_it_is(&mut self, text: String) -> Result<Completed, Error> {
        metrics::counter!("holdfast_runner_said_as_is_total").increment(1);
        let thought = Entry::Thought {
            text: text.clone(),
            calls: Vec::new(),
            usage: Usage::default(),
            model: String::new(),
            carry: None,
        };
        self.conclude(thought, text).await
    }

    /// Entry for the agent's main conversation, if the firing posts the answer there.
    pub(crate) fn posted(&self, answer: &str) -> Option<Entry> {
        let post = self.fired()?.post.as_ref()?;
        let own: SessionKey = self.key.parse().ok()?;
        let text = told(post, answer)?;
        Some(Posted { key: SessionKey::main(own.agent()?), text }.entry())
    }

    /// Whether a firing began the turn in a conversation that users take part in.
    pub(crate) fn is_visited(&self) -> bool {
        self.kind != SessionKind::Cron && self.fired().is_some()
    }
}

fn told(post: &Post, answer: &str) -> Option<String> {
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
        let post = |full, max_chars| Post { prefix: "Cron".into(), full, max_chars };

        assert_eq!(told(&post(false, 100), answer).as_deref(), Some("Cron: All is well."));
        assert_eq!(told(&post(true, 100), answer), Some(format!("Cron: {answer}")));
        assert_eq!(told(&post(true, 3), answer).as_deref(), Some("Cron: All…"));
        assert_eq!(told(&post(true, 3), "  "), None);
    }
}
