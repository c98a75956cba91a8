//! Judge of a history: which promises it breaks. Pure: it reads nothing but the events.
//!
//! | rule | promise |
//! |---|---|
//! | `acceptance` | copies of a message are one message; what was refused is not processed |
//! | `ends` | a message has one end, which somebody asked for; its answer names it |
//! | `answers` | every acknowledged message is answered, or reported as dead or unknown |
//! | `replies` | a keyed reply arrives exactly once, others at most once |
//! | `order` | first answers follow the order of a client's acknowledged messages |
//! | `privacy` | nobody sees words of another tenant, no client those of another client |
//! | `actions` | an action is done at most once, and only after it was allowed |
//! | `pauses`, `deletions` | a paused session works on nothing; a deleted one is forgotten |

use std::collections::{BTreeMap, BTreeSet};

use super::{Client, End, Event, EventKind, Link, MessageId, Observation, WitnessKind};
use crate::script::MessageKind;

#[derive(Debug, Default)]
pub struct Verdict {
    pub broken: Vec<String>,
    /// What there was to judge: a verdict about nothing proves nothing.
    pub counts: BTreeMap<&'static str, usize>,
}

impl Verdict {
    fn ensure(&mut self, holds: bool, promise: &str, offender: impl std::fmt::Display) {
        if !holds {
            self.broken.push(format!("history: {promise}: {offender}"));
        }
    }

    fn count(&mut self, what: &'static str, number: usize) {
        *self.counts.entry(what).or_default() += number;
    }
}

/// Judges events, which are in the order of their times.
#[must_use]
pub fn judge(events: &[Event]) -> Verdict {
    let facts = Facts::of(events);
    let mut verdict = Verdict::default();
    for rule in [acceptance, ends, answers, replies, order, privacy, actions, pauses, deletions] {
        rule(&facts, &mut verdict);
    }
    verdict
}

/// What a reply says about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    /// It is answered.
    Re,
    /// A message besides the answer.
    Note,
    /// A subagent or a chain has ended.
    Told,
    /// A reminder fired.
    Reminded,
}

impl Verb {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "re" => Some(Self::Re),
            "note" => Some(Self::Note),
            "told" => Some(Self::Told),
            "reminded" => Some(Self::Reminded),
            _ => None,
        }
    }

    /// What a message that was completed led to besides its answer.
    const fn consequence(wish: MessageKind) -> Option<Self> {
        match wish {
            MessageKind::Note => Some(Self::Note),
            MessageKind::Spawn | MessageKind::Chain => Some(Self::Told),
            MessageKind::Remind => Some(Self::Reminded),
            MessageKind::Say
            | MessageKind::Status
            | MessageKind::Act
            | MessageKind::ActIfAllowed
            | MessageKind::Poison => None,
        }
    }
}

/// What a text says of which messages: `re t0m000001 told t0m000002`. Other texts say nothing.
fn statements(text: &str) -> Vec<(Verb, MessageId)> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let (mut verb, mut said) = (None, Vec::new());
    for (place, word) in words.enumerate() {
        match (Verb::parse(word), MessageId::parse(word), verb) {
            (Some(next), _, _) => verb = Some(next),
            (None, Some(message), Some(verb)) => said.push((verb, message)),
            (None, None, _) if place == 0 => return Vec::new(),
            (None, _, _) => {}
        }
    }
    said
}

#[derive(Debug)]
struct Message<'e> {
    client: Client,
    wish: MessageKind,
    may_be_interrupted: bool,
    /// Places of events in the history.
    sent: usize,
    acknowledged: Option<usize>,
    names: BTreeSet<&'e str>,
    refused: bool,
    ends: Vec<(End, &'e str)>,
    consequence_dead: bool,
}

impl Message<'_> {
    fn has_end(&self, end: End) -> bool {
        self.ends.iter().any(|(is, _)| *is == end)
    }
}

/// The events by whom and what they are about.
#[derive(Debug, Default)]
struct Facts<'e> {
    messages: BTreeMap<MessageId, Message<'e>>,
    /// Acknowledgements and ends of messages that nobody sent.
    strange: Vec<MessageId>,
    /// The messages of each client, in the order of sending.
    clients: BTreeMap<Client, Vec<MessageId>>,
    of_clients: BTreeMap<Client, Vec<(usize, &'e EventKind)>>,
    of_witnesses: Vec<(usize, &'e WitnessKind)>,
    /// The messages of each client that a model was shown at once.
    shown: BTreeMap<Client, Vec<(usize, BTreeSet<MessageId>)>>,
    /// When a client first decided to allow an action.
    allowed: BTreeMap<MessageId, usize>,
    /// When each statement was first made by a model, and first heard by the client.
    first_answered: BTreeMap<(Verb, MessageId), usize>,
    first_heard: BTreeMap<(Verb, MessageId), usize>,
    /// How often each statement was heard.
    heard: BTreeMap<(Verb, MessageId), usize>,
    /// Statements of answers in whose place notes were sent.
    replaced_by_notes: BTreeSet<(Verb, MessageId)>,
}

impl<'e> Facts<'e> {
    fn of(events: &'e [Event]) -> Self {
        let mut facts = Self::default();
        for (place, event) in events.iter().enumerate() {
            match &event.what {
                Observation::OfClient(client, kind) => facts.add_of_client(place, *client, kind),
                Observation::OfWitness(kind) => facts.of_witnesses.push((place, kind)),
            }
        }
        let witnesses = std::mem::take(&mut facts.of_witnesses);
        for (place, kind) in &witnesses {
            let text = match kind {
                WitnessKind::Answered { text, .. } => text,
                WitnessKind::Shown { messages, .. } => {
                    facts.add_shown(*place, messages);
                    continue;
                }
                WitnessKind::Acted { .. } => continue,
            };
            let said = statements(text);
            let wish = |id: &MessageId| facts.messages.get(id).map(|message| message.wish);
            let has_note = said.iter().any(|(_, id)| wish(id) == Some(MessageKind::Note));
            for statement in said {
                facts.first_answered.entry(statement).or_insert(*place);
                if has_note {
                    facts.replaced_by_notes.insert(statement);
                }
            }
        }
        facts.of_witnesses = witnesses;
        facts
    }

    fn add_shown(&mut self, place: usize, messages: &[MessageId]) {
        let mut of_clients: BTreeMap<Client, BTreeSet<MessageId>> = BTreeMap::new();
        for id in messages {
            if let Some(message) = self.messages.get(id) {
                of_clients.entry(message.client).or_default().insert(*id);
            }
        }
        for (client, ids) in of_clients {
            self.shown.entry(client).or_default().push((place, ids));
        }
    }

    fn add_of_client(&mut self, place: usize, client: Client, kind: &'e EventKind) {
        self.of_clients.entry(client).or_default().push((place, kind));
        match kind {
            EventKind::Sent { message, wish, may_be_interrupted } => {
                let new = Message {
                    client,
                    wish: *wish,
                    may_be_interrupted: *may_be_interrupted,
                    sent: place,
                    acknowledged: None,
                    names: BTreeSet::new(),
                    refused: false,
                    ends: Vec::new(),
                    consequence_dead: false,
                };
                // A message may be sent again later, under the same key.
                if !self.messages.contains_key(message) {
                    self.messages.insert(*message, new);
                    self.clients.entry(client).or_default().push(*message);
                }
            }
            EventKind::Acknowledged { message, name } => {
                let Some(known) = self.known(*message) else { return };
                known.acknowledged.get_or_insert(place);
                known.names.extend(name.as_deref());
            }
            EventKind::Refused { message } => {
                let Some(known) = self.known(*message) else { return };
                known.refused = true;
            }
            EventKind::Ended { message, end, text } => {
                let Some(known) = self.known(*message) else { return };
                known.ends.push((*end, text.as_str()));
            }
            EventKind::ConsequenceDead { message } => {
                let Some(known) = self.known(*message) else { return };
                known.consequence_dead = true;
            }
            EventKind::Heard { text, .. } => {
                for statement in statements(text) {
                    self.first_heard.entry(statement).or_insert(place);
                    *self.heard.entry(statement).or_default() += 1;
                }
            }
            EventKind::Deciding { message, allow: true } => {
                self.allowed.entry(*message).or_insert(place);
            }
            EventKind::Unanswered { .. }
            | EventKind::UnknownReplies { .. }
            | EventKind::Deciding { .. }
            | EventKind::Cancelling
            | EventKind::Paused
            | EventKind::Resuming
            | EventKind::Deleting
            | EventKind::Deleted => {}
        }
    }

    fn known(&mut self, message: MessageId) -> Option<&mut Message<'e>> {
        if !self.messages.contains_key(&message) {
            self.strange.push(message);
        }
        self.messages.get_mut(&message)
    }

    /// Places of a client's events of one kind.
    fn places(&self, client: Client, is: impl Fn(&EventKind) -> bool) -> Vec<usize> {
        let of_client = self.of_clients.get(&client).into_iter().flatten();
        of_client.filter(|(_, kind)| is(kind)).map(|(place, _)| *place).collect()
    }

    fn all_of_clients(&self) -> impl Iterator<Item = (Client, &'e EventKind)> {
        let all = self.of_clients.iter();
        all.flat_map(|(client, events)| events.iter().map(|(_, kind)| (*client, *kind)))
    }

    fn does_later(&self, message: &Message<'_>, is: impl Fn(&EventKind) -> bool) -> bool {
        let of_client = self.of_clients.get(&message.client).into_iter().flatten();
        of_client.rev().take_while(|(place, _)| *place > message.sent).any(|(_, kind)| is(kind))
    }

    fn is_deleted(&self, message: &Message<'_>) -> bool {
        self.does_later(message, |kind| matches!(kind, EventKind::Deleting))
    }

    /// Whether a later message of the client may have ended the turn.
    fn may_be_interrupted(&self, message: &Message<'_>) -> bool {
        message.may_be_interrupted
            && self.does_later(message, |kind| matches!(kind, EventKind::Sent { .. }))
    }

    /// What models were shown of a client's messages.
    fn shown_of(&self, client: Client) -> &[(usize, BTreeSet<MessageId>)] {
        self.shown.get(&client).map_or(&[], Vec::as_slice)
    }
}

fn acceptance(facts: &Facts<'_>, verdict: &mut Verdict) {
    for id in &facts.strange {
        verdict.ensure(false, "nothing is accepted that nobody sent", id);
    }
    let shown: BTreeSet<_> = facts.shown.values().flatten().flat_map(|(_, ids)| ids).collect();
    for (id, message) in &facts.messages {
        let is_one = message.names.len() <= 1;
        verdict.ensure(is_one, "copies of a message are one message", format!("{id} {message:?}"));
        let is_refused = message.refused && message.acknowledged.is_none();
        let kept = !is_refused || !shown.contains(id);
        verdict.ensure(kept, "a refused message is not processed", id);
        verdict.count("messages acknowledged", usize::from(message.acknowledged.is_some()));
    }
}

fn ends(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (id, message) in &facts.messages {
        let mut told = message.ends.clone();
        told.dedup();
        verdict.ensure(told.len() <= 1, "a message has one end", format!("{id}: {told:?}"));
        for (end, text) in told {
            let is_asked_for = match end {
                End::Completed => {
                    let said = statements(text);
                    verdict.ensure(
                        said.contains(&(Verb::Re, *id)),
                        "an answer names its message",
                        format!("{id}: `{text}`"),
                    );
                    true
                }
                End::Dead => {
                    let poison = message.wish == MessageKind::Poison;
                    verdict.count("messages given up", 1);
                    verdict.count("messages given up that were no poison", usize::from(!poison));
                    true
                }
                End::Interrupted => facts.may_be_interrupted(message),
                End::Cancelled => {
                    verdict.count("messages cancelled", 1);
                    facts.does_later(message, |kind| matches!(kind, EventKind::Cancelling))
                }
                End::Failed => false,
            };
            verdict.ensure(
                is_asked_for,
                "a message ends as its client asked for",
                format!("{id}: {end:?} `{text}`"),
            );
        }
    }
}

fn answers(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (client, messages) in &facts.clients {
        let mut missing = Vec::new();
        // An answer may name several messages, so that one reply whose arrival is not known may
        // have answered all that are missing between two answers that were heard.
        let (mut gaps, mut is_in_gap) = (0, false);
        for id in messages {
            let message = &facts.messages[id];
            let is_open = message.acknowledged.is_some()
                && message.ends.is_empty()
                && !facts.is_deleted(message);
            // Without a name a client cannot ask for the end: it sees only what it hears.
            let is_replaced = facts.replaced_by_notes.contains(&(Verb::Re, *id));
            let is_settled =
                client.link == Link::Plain && (is_replaced || facts.may_be_interrupted(message));
            let is_heard = facts.heard.contains_key(&(Verb::Re, *id));
            if is_open && !is_settled && !is_heard {
                missing.push(*id);
                gaps += usize::from(!is_in_gap);
                is_in_gap = true;
            } else if is_heard {
                is_in_gap = false;
            }
        }
        let unknown: usize = facts.of_clients[client].iter().fold(0, |sum, (_, kind)| match kind {
            EventKind::UnknownReplies { count } => sum + count,
            _ => sum,
        });
        verdict.count("replies reported as unknown", unknown);
        verdict.ensure(
            gaps <= unknown,
            "an acknowledged message is answered, or reported as dead or unknown",
            format!("{client:?}: {missing:?}, {unknown} unknown"),
        );
    }
}

fn replies(facts: &Facts<'_>, verdict: &mut Verdict) {
    let mut texts: BTreeMap<&str, &str> = BTreeMap::new();
    for (_, kind) in facts.all_of_clients() {
        let EventKind::Heard { text, key: Some(key) } = kind else { continue };
        let first = texts.insert(key, text).is_none_or(|before| before == text);
        verdict.ensure(first, "a key has one reply", format!("{key}: `{text}`"));
    }
    for (statement, times) in &facts.heard {
        let what = format!("{statement:?} {times} times");
        verdict.ensure(*times == 1, "a reply arrives at most once", what);
    }
    for (id, message) in &facts.messages {
        let is_due = message.client.link == Link::Keyed && message.has_end(End::Completed);
        let consequence = Verb::consequence(message.wish).filter(|_| !message.consequence_dead);
        for verb in [Some(Verb::Re), consequence].into_iter().flatten() {
            let statement = (verb, *id);
            let arrived = facts.heard.contains_key(&statement);
            let is_replaced = verb != Verb::Note && facts.replaced_by_notes.contains(&statement);
            verdict.ensure(
                !is_due || arrived || is_replaced,
                "a reply to a keyed channel arrives",
                format!("{statement:?}"),
            );
        }
        let count = |verb| usize::from(facts.heard.contains_key(&(verb, *id)));
        verdict.count("answers heard", count(Verb::Re));
        verdict.count("notes heard", count(Verb::Note));
        verdict.count("reminders heard", count(Verb::Reminded));
        let told = |wish| if message.wish == wish { count(Verb::Told) } else { 0 };
        verdict.count("ends of subagents heard", told(MessageKind::Spawn));
        verdict.count("ends of chains heard", told(MessageKind::Chain));
    }
}

fn order(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (client, messages) in &facts.clients {
        for (how, first) in [("answered", &facts.first_answered), ("heard", &facts.first_heard)] {
            let mut before: Option<(MessageId, usize)> = None;
            for id in messages.iter().filter(|id| facts.messages[id].acknowledged.is_some()) {
                // A runner that was stopped may ask a model about an interrupted message later.
                let message = &facts.messages[id];
                let may_be_late =
                    facts.may_be_interrupted(message) && !message.has_end(End::Completed);
                if how == "answered" && may_be_late {
                    continue;
                }
                let Some(place) = first.get(&(Verb::Re, *id)) else { continue };
                let in_order = before.is_none_or(|(_, earlier)| earlier <= *place);
                verdict.ensure(
                    in_order,
                    "first answers follow the order of a client's messages",
                    format!("{client:?}: {id} is {how} before {before:?}"),
                );
                before = Some((*id, *place));
            }
        }
    }
}

fn privacy(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (_, kind) in &facts.of_witnesses {
        let (tenant, seen) = match kind {
            WitnessKind::Shown { tenant, messages } => (tenant, messages.clone()),
            WitnessKind::Answered { tenant, text } => {
                (tenant, MessageId::all_in(text).into_iter().collect())
            }
            WitnessKind::Acted { .. } => continue,
        };
        for id in seen.iter().filter(|id| id.tenant != *tenant) {
            let what = format!("{id} at t{tenant}");
            verdict.ensure(false, "a model sees its tenant's messages only", what);
        }
    }
    for (client, kind) in facts.all_of_clients() {
        let (EventKind::Heard { text, .. } | EventKind::Ended { text, .. }) = kind else {
            continue;
        };
        for id in MessageId::all_in(text) {
            let own = facts.messages.get(&id).is_some_and(|message| message.client == client);
            verdict.ensure(
                own,
                "a client sees its own conversation only",
                format!("{client:?} sees {id} in `{text}`"),
            );
        }
    }
}

fn actions(facts: &Facts<'_>, verdict: &mut Verdict) {
    let (mut done, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for (place, kind) in &facts.of_witnesses {
        let WitnessKind::Acted { message: id, key } = kind else { continue };
        let once = done.insert(*id) & keys.insert(key);
        verdict.ensure(once, "an action is done at most once", format!("{id} {key}"));
        let allowed = facts.allowed.get(id).is_some_and(|decided| decided < place);
        let may = match facts.messages.get(id).map(|message| message.wish) {
            Some(MessageKind::Act) => true,
            Some(MessageKind::ActIfAllowed) => allowed,
            _ => false,
        };
        verdict.ensure(may, "only what was asked for and allowed is done", id);
        verdict.count("actions after an approval", usize::from(allowed));
    }
    for (_, kind) in facts.all_of_clients() {
        let EventKind::Deciding { allow, .. } = kind else { continue };
        verdict.count(if *allow { "approvals granted" } else { "approvals denied" }, 1);
    }
    verdict.count("actions", done.len());
}

fn pauses(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (client, messages) in &facts.clients {
        for paused in facts.places(*client, |kind| matches!(kind, EventKind::Paused)) {
            let resuming = facts.places(*client, |kind| matches!(kind, EventKind::Resuming));
            let end = resuming.into_iter().find(|place| *place > paused).unwrap_or(usize::MAX);
            let is_within = |place: usize| paused < place && place < end;
            let held: BTreeSet<&MessageId> =
                messages.iter().filter(|id| is_within(facts.messages[id].sent)).collect();
            let shown = facts.shown_of(*client).iter();
            for (_, seen) in shown.filter(|(place, _)| is_within(*place)) {
                let worked_on: Vec<_> = seen.iter().filter(|id| held.contains(id)).collect();
                let none = worked_on.is_empty();
                verdict.ensure(none, "a paused session works on nothing", format!("{worked_on:?}"));
            }
            verdict.count("pauses", 1);
            verdict.count("messages to a paused session", held.len());
        }
    }
}

fn deletions(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (client, messages) in &facts.clients {
        let begun = facts.places(*client, |kind| matches!(kind, EventKind::Deleting));
        for deleted in facts.places(*client, |kind| matches!(kind, EventKind::Deleted)) {
            let begin = begun.iter().rfind(|place| **place < deleted).copied().unwrap_or(deleted);
            let (mut gone, mut new) = (BTreeSet::new(), BTreeSet::new());
            for id in messages {
                let sent = facts.messages[id].sent;
                if sent < begin {
                    gone.insert(id);
                } else if sent > deleted {
                    new.insert(id);
                }
            }
            // A request that was under way at the deletion may still show what is gone by now.
            for (_, seen) in facts.shown_of(*client) {
                let forgotten = !seen.iter().any(|id| new.contains(id))
                    || !seen.iter().any(|id| gone.contains(id));
                verdict.ensure(forgotten, "a deleted session is forgotten", format!("{seen:?}"));
            }
            verdict.count("sessions deleted", 1);
        }
    }
}

#[cfg(test)]
mod tests;
