//! Model of the session protocol: one session, the processes that use it, and a database whose
//! failover loses the newest commits. All interleavings within the bounds are visited.
//!
//! A paused process is one that takes no step for a while, so pauses need no action of their own.
//! [`replaying`](crate::replaying) shows that the shipped verbs make the same transitions.

mod state;
mod steps;

use stateright::{Checker, Model, Property};

pub use state::{
    ClaimName, DeliveryName, DeliveryState, Entry, LeaseState, MessageName, MessageState, State,
};
pub use steps::{Action, Answer, Channel, Fence, InboxCheck, Outcome, Rules};

use state::{Database, Records, Violation};

/// The rules of the shipped protocol, with the bounds of the states that are visited.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    pub rules: Rules,
    pub runners: usize,
    pub bridges: usize,
    pub messages: u8,
    pub max_epoch: i64,
    pub max_entries: usize,
    pub max_sends: i32,
    pub max_failovers: u8,
}

/// Rules of the shipped code. Fewer attempts than there need fewer states.
pub const SHIPPED: Rules = Rules {
    fence: Fence::EpochAndOwner,
    inbox_check: InboxCheck::NewestId,
    channel: Channel::Keyed,
    max_attempts: 2,
    replies: false,
};

/// Two runners and two messages, without replies to a channel.
const TURNS: Protocol = Protocol {
    rules: SHIPPED,
    runners: 2,
    bridges: 0,
    messages: 2,
    max_epoch: 2,
    max_entries: 2,
    max_sends: 0,
    max_failovers: 1,
};

/// One runner and one message, whose reply two bridges can send.
const DELIVERIES: Protocol = Protocol {
    rules: Rules { replies: true, ..SHIPPED },
    runners: 1,
    bridges: 2,
    messages: 1,
    max_epoch: 2,
    max_entries: 1,
    max_sends: 3,
    max_failovers: 1,
};

impl Protocol {
    fn runner_actions(&self, state: &State, runner: usize, actions: &mut Vec<Action>) {
        for answer in ANSWERS {
            actions.push(Action::Claim { runner, answer });
        }
        let Some(held) = &state.runners[runner] else { return };
        actions.extend([
            Action::Load { runner },
            Action::Release { runner },
            Action::Renew { runner },
            Action::CrashRunner { runner },
        ]);
        if held.loaded.is_some() {
            for answer in ANSWERS {
                actions.push(Action::Append { runner, answer });
                actions.push(Action::Complete { runner, answer });
            }
        }
    }

    fn bridge_actions(&self, state: &State, bridge: usize, actions: &mut Vec<Action>) {
        let Some(sending) = &state.bridges[bridge] else {
            for answer in ANSWERS {
                actions.push(Action::ClaimDelivery { bridge, answer });
            }
            return;
        };
        actions.push(Action::CrashBridge { bridge });
        if sending.called {
            for answer in ANSWERS {
                actions.push(Action::RecordSent { bridge, answer });
            }
        } else {
            actions.extend([Action::Send { bridge }, Action::RecordRetry { bridge }]);
        }
    }
}

const DEAD_LETTER: &str = "a message becomes a dead letter";
const ANSWERS: [Answer; 2] = [Answer::Received, Answer::Lost];

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            primary: Database::new(),
            standby: Database::new(),
            replicated: false,
            timeline: 0,
            runners: vec![None; self.runners],
            bridges: vec![None; self.bridges],
            records: Records::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for key in 0..self.messages {
            actions.push(Action::Ingest { key });
        }
        for runner in 0..self.runners {
            self.runner_actions(state, runner, actions);
        }
        for bridge in 0..self.bridges {
            self.bridge_actions(state, bridge, actions);
        }
        actions.push(Action::Sweep);
        if state.primary.state == LeaseState::Running && !state.primary.lease_expired {
            actions.push(Action::ExpireLease);
        }
        if state
            .primary
            .deliveries
            .iter()
            .any(|d| matches!(d.state, DeliveryState::Sending { expired: false, .. }))
        {
            actions.push(Action::ExpireSends);
        }
        if state.timeline < self.max_failovers {
            // One standby that stops at any commit is as general as one that follows.
            actions.extend((!state.replicated).then_some(Action::Replicate));
            actions.push(Action::FailOver);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let (next, _) = self.rules.step(state, action);
        (next != *state).then_some(next)
    }

    fn within_boundary(&self, state: &State) -> bool {
        let row = &state.primary;
        row.epoch <= self.max_epoch
            && row.entries.len() <= self.max_entries
            && row.deliveries.iter().all(|d| d.attempt <= self.max_sends)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("no fenced write is accepted", |_, state: &State| {
                state.records.violation != Some(Violation::FencedWrite)
            }),
            Property::always("a write continues the journal that was read", |_, state: &State| {
                state.records.violation != Some(Violation::OtherJournal)
            }),
            Property::always("only messages that were read are finished", |_, state: &State| {
                state.records.violation != Some(Violation::UnreadMessageFinished)
            }),
            Property::always("no accepted message is lost", |_, state: &State| {
                let inbox = &state.primary.inbox;
                state.records.accepted.iter().all(|name| inbox.iter().any(|m| m.name == *name))
            }),
            Property::always("one owner writes per epoch", |_, state: &State| {
                one_owner_per_epoch(&state.primary.entries)
            }),
            Property::always("no message is answered twice", |_, state: &State| {
                state.records.violation != Some(Violation::AnsweredTwice)
            }),
            Property::always("a plain delivery is sent at most once", |_, state: &State| {
                state.records.violation != Some(Violation::PlainSentTwice)
            }),
            Property::always(
                "an expired lease is freed by a sweep",
                |model: &Protocol, state: &State| {
                    let (expired, _) = model.rules.step(state, Action::ExpireLease);
                    let (swept, _) = model.rules.step(&expired, Action::Sweep);
                    swept.primary.state != LeaseState::Running
                },
            ),
            Property::always("all accepted messages can be finished", Self::can_finish),
            Property::sometimes("a message is answered", |_, state: &State| {
                state.primary.inbox.iter().any(|m| m.state == MessageState::Done)
            }),
            Property::sometimes("a failover loses an accepted message", |_, state: &State| {
                !state.records.lost.is_empty()
            }),
        ];
        if self.max_epoch >= 2 * i64::from(self.rules.max_attempts) {
            properties.push(Property::sometimes(DEAD_LETTER, |_, state: &State| {
                state.primary.inbox.iter().any(|m| m.state == MessageState::Dead)
            }));
        }
        properties
    }
}

impl Protocol {
    /// Whether one runner that does everything right finishes all messages, from any state.
    fn can_finish(&self, state: &State) -> bool {
        let mut state = state.clone();
        let answer = Answer::Received;
        for _ in 0..=self.messages {
            for action in [
                Action::ExpireLease,
                Action::Sweep,
                Action::Claim { runner: 0, answer },
                Action::Load { runner: 0 },
                Action::Complete { runner: 0, answer },
            ] {
                state = self.rules.step(&state, action).0;
            }
        }
        state.primary.state == LeaseState::Idle && state.primary.unfinished().next().is_none()
    }
}

fn one_owner_per_epoch(entries: &[Entry]) -> bool {
    let mut owners = std::collections::BTreeMap::new();
    entries.iter().all(|entry| match entry {
        Entry::Thought(claim) => *owners.entry(claim.epoch).or_insert(claim.owner) == claim.owner,
        Entry::GivenUp => true,
    })
}

/// Visits all states of a model.
fn visit(protocol: Protocol) -> impl Checker<Protocol> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    protocol.checker().threads(threads).spawn_bfs().join()
}

#[test]
fn turns_keep_their_promises_in_all_interleavings_with_lost_answers_and_a_failover() {
    let checker = visit(TURNS);
    checker.assert_properties();
}

#[test]
fn runners_that_lose_a_session_to_each_other_keep_their_promises_in_all_interleavings() {
    let checker = visit(Protocol { messages: 1, max_epoch: 3, ..TURNS });
    checker.assert_properties();
}

#[test]
fn messages_that_lose_their_runners_become_dead_letters_in_all_interleavings() {
    let checker = visit(Protocol { runners: 1, max_epoch: 4, ..TURNS });
    checker.assert_properties();
    checker.assert_any_discovery(DEAD_LETTER);
}

#[test]
fn a_keyed_reply_arrives_once_in_all_interleavings() {
    let checker = visit(DELIVERIES);
    checker.assert_properties();
}

#[test]
fn a_plain_reply_is_sent_at_most_once_in_all_interleavings() {
    let rules = Rules { channel: Channel::Plain, ..DELIVERIES.rules };
    let checker = visit(Protocol { rules, ..DELIVERIES });
    checker.assert_properties();
}

#[test]
fn without_the_owner_in_the_fence_the_model_finds_two_writers_of_one_epoch() {
    let rules = Rules { fence: Fence::EpochOnly, ..SHIPPED };
    let checker = visit(Protocol { rules, messages: 1, ..TURNS });
    checker.assert_any_discovery("no fenced write is accepted");
}

#[test]
fn without_the_ids_of_messages_the_model_finds_one_that_is_finished_unread() {
    let rules = Rules { inbox_check: InboxCheck::Place, ..SHIPPED };
    let checker = visit(Protocol { rules, ..TURNS });
    checker.assert_any_discovery("only messages that were read are finished");
}
