//! State of the interface, and its changes by events and keys. No I/O: effects are returned.

mod events;
mod keys;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use holdfast_proto::gateway::v1::{ApprovalRequested, Decision, Entry, RunEvent, Session};
use ratatui::text::Line;

use super::input::Input;

/// Time after which an approval's keys count. Whoever was typing must not decide by accident.
const APPROVAL_DELAY: Duration = Duration::from_millis(700);

/// An action that the state requests: a call of the gateway, or the end.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Sends a message and follows its turn.
    Send(String),
    /// Sends a message into a turn that runs; it is followed afterwards.
    Queue(String),
    /// Follows an accepted message.
    Follow(String),
    Cancel,
    Decide(String, Decision),
    LoadSessions,
    LoadHistory,
    /// Shows another session, which the state names by now.
    Opened,
    Quit,
}

/// An event of a turn, or the result of a call.
#[derive(Debug)]
pub enum Update {
    Event(Box<RunEvent>),
    /// The stream of the turn broke; it is followed again.
    Lost,
    /// The turn cannot be followed any more.
    TurnFailed(String),
    /// A message was accepted into a turn that runs.
    Queued(String),
    History(Vec<Entry>),
    /// State of the session, asked for regularly.
    Polled(Poll),
    /// The gateway did not answer a regular question.
    Unreachable(String),
    Sessions(Vec<Session>),
    Decided(String),
    Failed(String),
}

#[derive(Debug, Default)]
pub struct Poll {
    /// `seq` of the newest journal entry.
    pub newest: i64,
    pub approvals: Vec<ApprovalRequested>,
    /// Whether a turn runs.
    pub is_running: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolState {
    Running,
    Done,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    User(String),
    Agent(String),
    Thinking(String),
    Tool { id: String, name: String, state: ToolState },
    Note(String),
    Error(String),
}

/// An item of the transcript with its lines for one width.
#[derive(Debug)]
pub struct Block {
    pub item: Item,
    pub lines: Option<(usize, Vec<Line<'static>>)>,
}

/// The turn that is followed.
#[derive(Debug)]
pub struct Turn {
    pub since: Instant,
    /// Activity of the turn, in words.
    pub phase: String,
    /// Index of the first block of the current step.
    step: usize,
    /// Whether the next text comes from a new connection, which may repeat the step.
    is_new_stream: bool,
    /// Whether events were lost.
    has_gap: bool,
}

#[derive(Debug)]
pub struct Approval {
    pub asked: ApprovalRequested,
    pub since: Instant,
}

/// The list of sessions, while it is shown.
#[derive(Debug, Default)]
pub struct SessionList {
    /// `None` until it is loaded.
    pub sessions: Option<Vec<Session>>,
    pub selected: usize,
}

#[derive(Debug)]
pub struct State {
    pub agent: String,
    /// Key of the session.
    pub session: String,
    pub blocks: Vec<Block>,
    pub input: Input,
    pub turn: Option<Turn>,
    pub approvals: Vec<Approval>,
    pub list: Option<SessionList>,
    /// Whether a turn runs that was begun elsewhere.
    pub runs_elsewhere: bool,
    /// Why the gateway does not answer.
    pub unreachable: Option<String>,
    /// Lines between the end of the transcript and the last one shown.
    pub scroll: usize,
    /// Lines of a page, as last drawn.
    pub page: usize,
    /// Messages that wait until the turn has ended.
    queued: VecDeque<String>,
    /// `seq` of the newest journal entry that is shown; `None` until the next question.
    newest: Option<i64>,
}

impl State {
    pub fn new(agent: String, session: String) -> Self {
        Self {
            agent,
            session,
            blocks: Vec::new(),
            input: Input::default(),
            turn: None,
            approvals: Vec::new(),
            list: None,
            runs_elsewhere: false,
            unreachable: None,
            scroll: 0,
            page: 10,
            queued: VecDeque::new(),
            newest: Some(0),
        }
    }

    /// Shows another session.
    fn open(&mut self, agent: String, session: String) {
        let input = std::mem::take(&mut self.input);
        *self = Self { input, page: self.page, ..Self::new(agent, session) };
    }

    fn push(&mut self, item: Item) {
        self.blocks.push(Block { item, lines: None });
    }

    /// Returns the approval to decide next.
    pub fn approval(&self) -> Option<&Approval> {
        self.approvals.first()
    }

    /// Whether a key decides the approval.
    pub fn can_decide(&self, now: Instant) -> bool {
        self.input.is_empty()
            && self
                .approval()
                .is_some_and(|approval| now.duration_since(approval.since) >= APPROVAL_DELAY)
    }

    pub fn queued(&self) -> usize {
        self.queued.len()
    }
}
