//! Requester of jobs and reminders: derived from the turn, not from what its model writes.

use holdfast_agent::{
    bootstrap::Audience,
    person::{self, OWNER, id_of, person},
};
use holdfast_schedule::reminder::{Locale, Renewal};
use holdfast_types::{Body, Entry, JobFiring, NameSpace, SessionKey, SessionKind};
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
pub(crate) fn requester(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> Requester {
    let fired = turn.firing();
    let speaker = turn.participants().user;
    let owner = fired.and_then(|fired| fired.owner.clone());
    let audience = turn.audience(snapshot);
    Requester {
        user: user_of(turn.kind, &turn.key, audience, speaker).or(owner),
        author: turn.author(audience),
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

/// User of the conversation, else the author of the message.
fn user_of(
    kind: SessionKind,
    key: &str,
    audience: Audience,
    speaker: Option<String>,
) -> Option<String> {
    let parsed: SessionKey = key.parse().ok()?;
    let tail = |word: &str| {
        let agent = parsed.agent()?;
        let rest = key.strip_prefix(&format!("agent:{agent}:{word}:"))?;
        Some(rest.to_owned())
    };
    match kind {
        // The tail of a linked account's key would be another user on each channel.
        SessionKind::Dm => tail("dm").map(|tail| match tail.contains(":=") {
            true => person(kind, key, Audience::Others).unwrap_or(tail),
            false => tail,
        }),
        SessionKind::Api => match parsed.name_space().and_then(NameSpace::person) {
            Some(person) => Some(person::of_id(person)),
            None => tail("api").map(|user| format!("api:{user}")),
        },
        SessionKind::Main => match audience {
            Audience::Owner | Audience::Agent => Some(OWNER.to_owned()),
            Audience::Others => speaker,
        },
        SessionKind::Group | SessionKind::Topic | SessionKind::Global => speaker,
        SessionKind::Cron | SessionKind::Work => match audience {
            Audience::Owner | Audience::Agent => Some(OWNER.to_owned()),
            // Others have no conversation that is known from here.
            Audience::Others => speaker.filter(|author| id_of(author).is_some()),
        },
        SessionKind::Heartbeat => Some(OWNER.to_owned()),
        SessionKind::Subagent => None,
    }
}

/// Whether a person or an API client wrote the message.
fn is_from_person(body: &Body) -> bool {
    !body.silent && body.event.is_none() && body.role.is_none() && body.fired.is_none()
}

/// Language of the last message of a person.
fn user_locale(entries: &[Entry]) -> Locale {
    let last = heard_messages(entries).rev().find(|body| is_from_person(body));
    last.map_or_else(Locale::default, |body| Locale::detect(&body.text))
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
    use holdfast_agent::person::of_id;
    use holdfast_types::{Author, JobId, PersonId};

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
    fn what_is_asked_for_is_whose_conversation_it_is_or_who_speaks_in_it() {
        let speaker = || Some("telegram:7".to_owned());
        let others = Audience::Others;
        for (kind, key, audience, user) in [
            (SessionKind::Main, "agent:main:main", Audience::Owner, Some("owner")),
            (SessionKind::Main, "agent:main:main", others, Some("telegram:7")),
            (SessionKind::Heartbeat, "agent:main:heartbeat", others, Some("owner")),
            (SessionKind::Dm, "agent:main:dm:telegram:42", others, Some("telegram:42")),
            (SessionKind::Dm, "agent:main:dm:any:a%3Ab", others, Some("any:a%3Ab")),
            (SessionKind::Dm, "agent:main:dm:discord:=telegram%3A42", others, Some("telegram:42")),
            (SessionKind::Api, "agent:main:api:anna", others, Some("api:anna")),
            (SessionKind::Group, "agent:main:group:telegram:1", others, Some("telegram:7")),
            (SessionKind::Subagent, "agent:main:subagent:x", others, None),
            (SessionKind::Cron, "agent:main:cron:a:b", Audience::Agent, Some("owner")),
            (SessionKind::Cron, "agent:main:cron:a:b", others, None),
        ] {
            assert_eq!(user_of(kind, key, audience, speaker()).as_deref(), user, "{key}");
        }
        assert_eq!(user_of(SessionKind::Group, "agent:main:group:telegram:1", others, None), None);
        let person = of_id(PersonId::generate());
        let of_job =
            user_of(SessionKind::Cron, "agent:main:cron:a:b", others, Some(person.clone()));
        assert_eq!(of_job, Some(person));
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
