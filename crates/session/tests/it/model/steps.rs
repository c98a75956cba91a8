//! Transitions of the model. Each verb of the protocol is one atomic step of the database, with the
//! result that the shipped verb returns.

use std::collections::BTreeSet;

use super::state::{
    Bridge, ClaimName, Database, Delivery, DeliveryName, DeliveryState, Entry, LeaseState, Loaded,
    Message, MessageName, MessageState, Runner, State, Violation,
};

/// Whether the caller of a verb learns its result. The database is changed in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    Received,
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A sender repeats a message until its answer is received.
    Ingest {
        key: u8,
    },
    Claim {
        runner: usize,
        answer: Answer,
    },
    Load {
        runner: usize,
    },
    Append {
        runner: usize,
        answer: Answer,
    },
    Complete {
        runner: usize,
        answer: Answer,
    },
    Release {
        runner: usize,
    },
    Renew {
        runner: usize,
    },
    /// The runner forgets its claim.
    CrashRunner {
        runner: usize,
    },
    /// The lease of the running session expires.
    ExpireLease,
    Sweep,
    ClaimDelivery {
        bridge: usize,
        answer: Answer,
    },
    /// The bridge calls the platform, which accepts the message.
    Send {
        bridge: usize,
    },
    RecordSent {
        bridge: usize,
        answer: Answer,
    },
    /// The platform certainly has not received the message.
    RecordRetry {
        bridge: usize,
    },
    CrashBridge {
        bridge: usize,
    },
    /// The leases of all sends expire.
    ExpireSends,
    /// The standby receives all commits so far.
    Replicate,
    /// The standby takes over: the commits that it has not received are lost.
    FailOver,
}

/// Result of an action, as its caller or an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    Nothing,
    Accepted { place: usize, duplicate: bool },
    NoneReady,
    Claimed { epoch: i64, attempts: i32 },
    Loaded { waiting: Vec<(usize, u8, MessageState)>, entries: Vec<Entry> },
    Written,
    Ended { again: bool },
    Renewed,
    Fenced,
    JournalMoved,
    Swept { orphaned: u64, dead: u64 },
    Sending { place: usize, attempt: i32 },
    Recorded,
}

/// What the fence of a write compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    EpochAndOwner,
    EpochOnly,
}

/// How a write recognizes messages that its turn has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxCheck {
    /// The newest one by its id.
    NewestId,
    /// By their places only.
    Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The platform recognizes a repeated message by its key.
    Keyed,
    Plain,
}

/// Rules of the database that a transition depends on.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub fence: Fence,
    pub inbox_check: InboxCheck,
    pub channel: Channel,
    pub max_attempts: i32,
    /// Whether turns reply to a channel.
    pub replies: bool,
}

impl Rules {
    /// Performs an action; the state stays the same if there is nothing to do.
    pub fn step(&self, state: &State, action: Action) -> (State, Outcome) {
        let mut next = state.clone();
        let outcome = self.apply(&mut next, action);
        (next, outcome)
    }

    fn apply(&self, s: &mut State, action: Action) -> Outcome {
        match action {
            Action::Ingest { key } => ingest(s, key),
            Action::Claim { runner, answer } => claim(s, runner, answer),
            Action::Load { runner } => self.load(s, runner),
            Action::Append { runner, answer } => self.append(s, runner, answer),
            Action::Complete { runner, answer } => self.complete(s, runner, answer),
            Action::Release { runner } => self.release(s, runner),
            Action::Renew { runner } => self.renew(s, runner),
            Action::Sweep => self.sweep(s),
            Action::ClaimDelivery { bridge, answer } => self.claim_delivery(s, bridge, answer),
            Action::Send { bridge } => self.send(s, bridge),
            Action::RecordSent { bridge, answer } => record_sent(s, bridge, answer),
            Action::RecordRetry { bridge } => record_retry(s, bridge),
            Action::CrashRunner { runner } => {
                s.runners[runner] = None;
                Outcome::Nothing
            }
            Action::CrashBridge { bridge } => {
                s.bridges[bridge] = None;
                Outcome::Nothing
            }
            Action::ExpireLease => {
                s.primary.lease_expired = true;
                Outcome::Nothing
            }
            Action::ExpireSends => {
                for delivery in &mut s.primary.deliveries {
                    if let DeliveryState::Sending { expired, .. } = &mut delivery.state {
                        *expired = true;
                    }
                }
                Outcome::Nothing
            }
            Action::Replicate => {
                s.standby = s.primary.clone();
                s.replicated = true;
                Outcome::Nothing
            }
            Action::FailOver => {
                fail_over(s);
                Outcome::Nothing
            }
        }
    }

    /// Whether the database takes a claim for the current one.
    fn is_current(&self, row: &Database, claim: ClaimName) -> bool {
        let owner = match self.fence {
            Fence::EpochAndOwner => row.owner == Some(claim.owner),
            Fence::EpochOnly => true,
        };
        row.state == LeaseState::Running && row.epoch == claim.epoch && owner
    }

    fn load(&self, s: &mut State, runner: usize) -> Outcome {
        let Some(held) = s.runners[runner].clone() else { return Outcome::Nothing };
        if !self.is_current(&s.primary, held.claim) {
            s.runners[runner] = None;
            return Outcome::Fenced;
        }
        let row = &s.primary;
        let waiting: Vec<_> = row.unfinished().map(|n| (n, row.inbox[n])).collect();
        let entries = row.entries.clone();
        let shown = waiting.iter().map(|(n, m)| (*n, m.name.key, m.state)).collect();
        let waiting = waiting.into_iter().map(|(n, m)| (n, m.name)).collect();
        let loaded = Some(Loaded { waiting, entries: entries.clone() });
        s.runners[runner] = Some(Runner { loaded, ..held });
        Outcome::Loaded { waiting: shown, entries }
    }

    /// Checks a write as the database does. Records what it accepts although it should not.
    fn check_write(&self, s: &mut State, runner: usize) -> Result<(ClaimName, Loaded), Outcome> {
        let Some(Runner { claim, loaded: Some(loaded) }) = s.runners[runner].clone() else {
            return Err(Outcome::Nothing);
        };
        let row = &s.primary;
        if !self.is_current(row, claim) {
            s.runners[runner] = None;
            return Err(Outcome::Fenced);
        }
        let known = |(n, name): &(usize, MessageName)| match self.inbox_check {
            InboxCheck::NewestId => row.inbox.get(*n).is_some_and(|m| m.name == *name),
            InboxCheck::Place => row.inbox.get(*n).is_some(),
        };
        if row.entries.len() != loaded.entries.len() || !loaded.waiting.last().is_none_or(known) {
            s.runners[runner] = Some(Runner { claim, loaded: None });
            return Err(Outcome::JournalMoved);
        }
        if !is_of_owner(row, claim) {
            s.records.violation = Some(Violation::FencedWrite);
        } else if row.entries != loaded.entries {
            s.records.violation = Some(Violation::OtherJournal);
        } else if loaded.waiting.iter().any(|(n, name)| row.inbox[*n].name != *name) {
            s.records.violation = Some(Violation::UnreadMessageFinished);
        }
        Ok((claim, loaded))
    }

    fn append(&self, s: &mut State, runner: usize, answer: Answer) -> Outcome {
        let (claim, mut loaded) = match self.check_write(s, runner) {
            Ok(current) => current,
            Err(refused) => return refused,
        };
        for (place, _) in &loaded.waiting {
            s.primary.inbox[*place].state = MessageState::Seen;
        }
        s.primary.entries.push(Entry::Thought(claim));
        s.primary.attempts = 0;
        loaded.entries = s.primary.entries.clone();
        let loaded = (answer == Answer::Received).then_some(loaded);
        s.runners[runner] = Some(Runner { claim, loaded });
        Outcome::Written
    }

    fn complete(&self, s: &mut State, runner: usize, answer: Answer) -> Outcome {
        let (claim, loaded) = match self.check_write(s, runner) {
            Ok(current) => current,
            Err(refused) => return refused,
        };
        let Some((_, first)) = loaded.waiting.first().copied() else { return Outcome::Nothing };
        for (place, _) in &loaded.waiting {
            s.primary.inbox[*place].state = MessageState::Done;
        }
        s.primary.entries.push(Entry::Thought(claim));
        if self.replies {
            let answers = loaded.waiting.iter().map(|(_, name)| *name).collect();
            add_delivery(&mut s.primary, DeliveryName::Reply(first), answers);
        }
        end_claim(&mut s.primary);
        s.runners[runner] = match answer {
            Answer::Received => None,
            Answer::Lost => Some(Runner { claim, loaded: None }),
        };
        Outcome::Ended { again: s.primary.state == LeaseState::Ready }
    }

    fn release(&self, s: &mut State, runner: usize) -> Outcome {
        let Some(Runner { claim, .. }) = s.runners[runner].take() else { return Outcome::Nothing };
        if !self.is_current(&s.primary, claim) {
            return Outcome::Fenced;
        }
        if !is_of_owner(&s.primary, claim) {
            s.records.violation = Some(Violation::FencedWrite);
        }
        s.primary.attempts = (s.primary.attempts - 1).max(0);
        free(&mut s.primary);
        Outcome::Written
    }

    fn renew(&self, s: &mut State, runner: usize) -> Outcome {
        let Some(Runner { claim, .. }) = &s.runners[runner] else { return Outcome::Nothing };
        // A renewal compared the owner from the beginning.
        let row = &mut s.primary;
        let is_current = row.state == LeaseState::Running
            && row.epoch == claim.epoch
            && row.owner == Some(claim.owner);
        if !is_current {
            s.runners[runner] = None;
            return Outcome::Fenced;
        }
        row.lease_expired = false;
        Outcome::Renewed
    }

    fn sweep(&self, s: &mut State) -> Outcome {
        let row = &mut s.primary;
        if row.state != LeaseState::Running || !row.lease_expired {
            return Outcome::Swept { orphaned: 0, dead: 0 };
        }
        if row.attempts < self.max_attempts {
            free(row);
            return Outcome::Swept { orphaned: 1, dead: 0 };
        }
        let oldest = row.unfinished().next();
        if let Some(oldest) = oldest {
            let name = row.inbox[oldest].name;
            for message in row.inbox.iter_mut().filter(|m| m.state == MessageState::Seen) {
                message.state = MessageState::New;
            }
            row.inbox[oldest].state = MessageState::Dead;
            row.entries.push(Entry::GivenUp);
            if self.replies {
                add_delivery(row, DeliveryName::DeadLetter(name), BTreeSet::from([name]));
            }
        }
        end_claim(row);
        row.epoch += 1;
        Outcome::Swept { orphaned: 0, dead: u64::from(oldest.is_some()) }
    }

    fn claim_delivery(&self, s: &mut State, bridge: usize, answer: Answer) -> Outcome {
        for delivery in &mut s.primary.deliveries {
            if matches!(delivery.state, DeliveryState::Sending { expired: true, .. }) {
                delivery.state = match self.channel {
                    Channel::Keyed => DeliveryState::Pending,
                    Channel::Plain => DeliveryState::Unknown,
                };
            }
        }
        // Replies of a session arrive in their order.
        let first = s.primary.deliveries.iter().position(|d| d.state.is_open());
        let due = first.filter(|n| s.primary.deliveries[*n].state == DeliveryState::Pending);
        let Some(place) = due else { return Outcome::NoneReady };
        let delivery = &mut s.primary.deliveries[place];
        delivery.state = DeliveryState::Sending { owner: bridge, expired: false };
        delivery.attempt += 1;
        let Delivery { name, ref answers, attempt, .. } = *delivery;
        if answer == Answer::Received {
            let answers = answers.clone();
            s.bridges[bridge] = Some(Bridge { name, answers, attempt, called: false });
        }
        Outcome::Sending { place, attempt }
    }

    fn send(&self, s: &mut State, bridge: usize) -> Outcome {
        let Some(sending) = &mut s.bridges[bridge] else { return Outcome::Nothing };
        sending.called = true;
        let records = &mut s.records;
        if !records.arrived.insert(sending.name) {
            if self.channel == Channel::Plain && !records.resent.contains(&sending.name) {
                records.violation = Some(Violation::PlainSentTwice);
            }
            return Outcome::Nothing;
        }
        for message in &sending.answers {
            if !records.answered.insert(*message) && !records.reopened.contains(message) {
                records.violation = Some(Violation::AnsweredTwice);
            }
        }
        Outcome::Nothing
    }
}

/// Whether the row's claim is this one, whatever the fence compares. A claim of the same runner under
/// the same epoch is the same: a runner has one turn of a session at a time.
fn is_of_owner(row: &Database, claim: ClaimName) -> bool {
    row.owner == Some(claim.owner) && row.epoch == claim.epoch
}

fn ingest(s: &mut State, key: u8) -> Outcome {
    let known = s.primary.inbox.iter().position(|m| m.name.key == key);
    let duplicate = known.is_some();
    let place = known.unwrap_or(s.primary.inbox.len());
    if !duplicate {
        let name = MessageName { key, timeline: s.timeline };
        s.primary.inbox.push(Message { name, state: MessageState::New });
        if s.primary.state == LeaseState::Idle {
            s.primary.state = LeaseState::Ready;
        }
    }
    s.records.accepted.insert(s.primary.inbox[place].name);
    Outcome::Accepted { place, duplicate }
}

fn claim(s: &mut State, runner: usize, answer: Answer) -> Outcome {
    let row = &mut s.primary;
    if row.state != LeaseState::Ready {
        return Outcome::NoneReady;
    }
    row.state = LeaseState::Running;
    row.epoch += 1;
    row.owner = Some(runner);
    row.lease_expired = false;
    row.attempts += 1;
    let claim = ClaimName { epoch: row.epoch, owner: runner, timeline: s.timeline };
    // A runner that claims its session again ends the older turn. Not covered: the answer is lost, and
    // the older turn is of a lost timeline and has the same epoch.
    s.runners[runner] = match answer {
        Answer::Received => Some(Runner { claim, loaded: None }),
        Answer::Lost => None,
    };
    Outcome::Claimed { epoch: row.epoch, attempts: row.attempts }
}

/// Ends a claim so that another runner can continue at once.
fn free(row: &mut Database) {
    row.state = LeaseState::Ready;
    row.epoch += 1;
    row.owner = None;
    row.lease_expired = false;
}

/// Ends a turn: unfinished messages make the session ready again.
fn end_claim(row: &mut Database) {
    let again = row.unfinished().next().is_some();
    row.state = if again { LeaseState::Ready } else { LeaseState::Idle };
    row.owner = None;
    row.lease_expired = false;
    row.attempts = 0;
}

fn add_delivery(row: &mut Database, name: DeliveryName, answers: BTreeSet<MessageName>) {
    row.deliveries.push(Delivery { name, answers, state: DeliveryState::Pending, attempt: 0 });
}

fn record_sent(s: &mut State, bridge: usize, answer: Answer) -> Outcome {
    let Some(sent) = s.bridges[bridge].clone() else { return Outcome::Nothing };
    if let Some(delivery) = s.primary.deliveries.iter_mut().find(|d| d.name == sent.name)
        && (is_ours(delivery, bridge, sent.attempt) || delivery.state == DeliveryState::Unknown)
    {
        delivery.state = DeliveryState::Sent;
    }
    if answer == Answer::Received {
        s.bridges[bridge] = None;
    }
    Outcome::Recorded
}

fn record_retry(s: &mut State, bridge: usize) -> Outcome {
    let Some(sent) = s.bridges[bridge].take() else { return Outcome::Nothing };
    if let Some(delivery) = s.primary.deliveries.iter_mut().find(|d| d.name == sent.name)
        && is_ours(delivery, bridge, sent.attempt)
    {
        delivery.state = DeliveryState::Pending;
    }
    Outcome::Recorded
}

fn is_ours(delivery: &Delivery, bridge: usize, attempt: i32) -> bool {
    delivery.attempt == attempt
        && matches!(delivery.state, DeliveryState::Sending { owner, .. } if owner == bridge)
}

fn fail_over(s: &mut State) {
    let standby = std::mem::replace(&mut s.standby, Database::new());
    let lost = std::mem::replace(&mut s.primary, standby);
    s.replicated = false;
    let kept = &s.primary;
    s.timeline += 1;
    for message in &lost.inbox {
        let standby = kept.inbox.iter().find(|m| m.name == message.name);
        if standby.is_none() && s.records.accepted.remove(&message.name) {
            s.records.lost.insert(message.name);
        }
        // Only replies tell whether a message was answered.
        if !lost.deliveries.is_empty()
            && standby.is_none_or(|m| m.state != message.state)
            && !message.state.is_unfinished()
        {
            s.records.reopened.insert(message.name);
        }
    }
    for delivery in &lost.deliveries {
        if kept.deliveries.iter().all(|d| d != delivery) {
            s.records.resent.insert(delivery.name);
        }
    }
}
