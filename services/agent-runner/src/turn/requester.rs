//! Requester of jobs and reminders: derived from the turn, not from what its model writes.

use holdfast_agent::access::ConversationAccess;
use holdfast_schedule::reminder::{Locale, Renewal};
use holdfast_types::{Body, Entry, JobFiring};
use jiff::Timestamp;

use crate::{
    agents::snapshots::AgentSnapshot, tools::schedules::Requester, turn::state::TurnState,
};

impl TurnState<'_> {
    /// The firing that began the turn, if one did.
    pub(crate) fn firing(&self) -> Option<&JobFiring> {
        first_firing(self.journal.turn())
    }
}

/// Requester of jobs and reminders that the turn creates.
pub(crate) fn requester(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    access: &ConversationAccess,
) -> Requester {
    let fired = turn.firing();
    let owner = fired.and_then(|fired| fired.owner.clone());
    Requester {
        user: access.reminder_owner.clone().or(owner),
        author: turn.author(access.audience),
        zone: turn.user_zone().or_else(|| snapshot.zone_name.parse().ok()).unwrap_or_default(),
        locale: user_locale(turn.journal.entries()),
        renewal: renewal(turn.journal.entries(), turn.journal.turn()),
    }
}

fn first_firing(turn: &[Entry]) -> Option<&JobFiring> {
    heard_messages(turn).find(|body| !body.silent)?.fired.as_deref()
}

fn heard_messages(entries: &[Entry]) -> impl DoubleEndedIterator<Item = &Body> {
    entries.iter().filter_map(|entry| match entry {
        Entry::Heard { body, .. } => Some(body),
        Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    })
}

/// Whether a person or an API client wrote the message.
fn is_from_person(body: &Body) -> bool {
    !body.silent && body.event.is_none() && body.role.is_none() && body.fired.is_none()
}

/// Language of the last message of a person.
fn user_locale(entries: &[Entry]) -> Locale {
    let last = heard_messages(entries).rev().find(|body| is_from_person(body));
    last.map_or_else(Locale::default, |body| Locale::detect(&body.text_and_speech()))
}

/// The reminder that began the turn, with the number of its predecessors that nobody answered.
fn renewal(entries: &[Entry], turn: &[Entry]) -> Option<Renewal> {
    let fired = first_firing(turn).filter(|fired| fired.owner.is_some())?;
    let at = Timestamp::from_millisecond(fired.at_ms).ok()?;
    let before = entries.len().saturating_sub(turn.len());
    let earlier = heard_messages(&entries[..before]).rev();
    let since = earlier.take_while(|body| body.fired.as_ref().is_none_or(|f| f.owner.is_none()));
    let was_answered = since.into_iter().any(is_from_person);
    let later = at.checked_add(jiff::SignedDuration::from_millis(1)).ok();
    Some(Renewal {
        chain: if was_answered { 0 } else { fired.chain },
        fired_at: at,
        // A person who writes in this turn has seen the reminder.
        last_message_at: later.filter(|_| heard_messages(turn).any(is_from_person)),
    })
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Author, JobId};

    use super::*;

    fn said(text: &str) -> Entry {
        let author = Some(Author { id: "telegram:7".into(), roles: Vec::new() });
        Entry::Heard { seq: 1, body: Body { author, ..Body::text(text) } }
    }

    fn fired(at_ms: i64, chain: u32) -> Entry {
        let owner = Some("telegram:7".to_owned());
        let fired = JobFiring { owner, chain, ..JobFiring::new(JobId::generate(), at_ms) };
        let event = Some("reminder".to_owned());
        let body = Body { event, fired: Some(Box::new(fired)), ..Body::text("x") };
        Entry::Heard { seq: 2, body }
    }

    #[test]
    fn reminders_that_follow_each_other_count_until_somebody_says_something() {
        let chain = |entries: &[Entry], turn: usize| {
            let renewal = renewal(entries, &entries[entries.len() - turn..])?;
            Some((renewal.chain, renewal.last_message_at.is_some()))
        };

        assert_eq!(chain(&[said("remind me")], 1), None);
        assert_eq!(chain(&[said("remind me"), fired(5, 0)], 1), Some((0, false)));
        assert_eq!(chain(&[fired(5, 3), fired(9, 4)], 1), Some((4, false)));
        assert_eq!(chain(&[fired(5, 3), said("done"), fired(9, 4)], 1), Some((0, false)));
        assert_eq!(chain(&[fired(5, 3), fired(9, 4), said("wait")], 2), Some((4, true)));
    }

    #[test]
    fn the_language_is_that_of_the_last_words_of_a_person() {
        assert_eq!(user_locale(&[said("hello"), said("提醒我喝水"), fired(5, 0)]), Locale::Zh);
        assert_eq!(user_locale(&[said("提醒我喝水"), said("thanks")]), Locale::En);
        assert_eq!(user_locale(&[]), Locale::En);
    }
}
