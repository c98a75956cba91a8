//! How events of turns and answers of the gateway change the state.

use std::time::{Duration, Instant};

use holdfast_proto::gateway::v1::{
    ApprovalRequested, Done, Entry, Outcome, RunEvent, run_event::Event,
};
use serde_json::Value;

use crate::view::step_progress;

use super::{Approval, Block, Effect, Item, Poll, State, ToolState, Turn, Update};

/// Age from which an approval that the gateway does not list any more is removed: a younger one may
/// have been asked for after the gateway answered.
const APPROVAL_SETTLE_TIME: Duration = Duration::from_secs(4);

impl State {
    /// Applies an update.
    pub fn update(&mut self, update: Update) -> Vec<Effect> {
        match update {
            Update::Event(event) => return self.event(*event),
            Update::Lost => {
                if let Some(turn) = &mut self.turn {
                    "the connection broke, trying again".clone_into(&mut turn.phase);
                    (turn.is_new_stream, turn.has_gap) = (true, true);
                }
            }
            Update::TurnFailed(why) => {
                self.push(Item::Error(why));
                return self.end_turn();
            }
            Update::Queued(message) => {
                // The turn may have ended meanwhile.
                if self.turn.is_none() {
                    self.begin_turn();
                    return vec![Effect::Follow(message)];
                }
                self.queued.push_back(message);
            }
            Update::History(entries) => self.show_history(&entries),
            Update::Polled(poll) => return self.polled(poll),
            Update::Unreachable(why) => self.unreachable = Some(why),
            Update::Sessions(sessions) => {
                let shown = self.session.clone();
                if let Some(list) = &mut self.list {
                    let at = sessions.iter().position(|session| session.key == shown);
                    list.selected = at.unwrap_or_default();
                    list.sessions = Some(sessions);
                }
            }
            Update::Decided(id) => {
                self.approvals.retain(|approval| approval.asked.approval_id != id);
            }
            Update::Failed(why) => self.push(Item::Error(why)),
        }
        Vec::new()
    }

    pub(super) fn begin_turn(&mut self) {
        self.turn = Some(Turn {
            since: Instant::now(),
            phase: "waiting for a runner".to_owned(),
            step: self.blocks.len(),
            is_new_stream: false,
            has_gap: false,
        });
        self.runs_elsewhere = false;
    }

    fn phase(&mut self, phase: impl Into<String>) {
        if let Some(turn) = &mut self.turn {
            turn.phase = phase.into();
        }
    }

    fn event(&mut self, event: RunEvent) -> Vec<Effect> {
        self.unreachable = None;
        match event.event {
            Some(Event::StepStarted(step)) => {
                if step.again {
                    self.forget_step();
                }
                let end = self.blocks.len();
                if let Some(turn) = &mut self.turn {
                    (turn.step, turn.is_new_stream) = (end, false);
                }
                self.phase("thinking");
                self.approvals.clear();
            }
            Some(Event::Text(delta)) => {
                if self.turn.as_mut().is_some_and(|turn| std::mem::take(&mut turn.is_new_stream)) {
                    self.forget_step();
                }
                self.phase("answering");
                self.add_text(&delta.text, Item::Agent(String::new()));
            }
            Some(Event::Thinking(delta)) => {
                self.add_text(&delta.text, Item::Thinking(String::new()));
            }
            Some(Event::ToolStarted(tool)) => {
                self.phase(format!("{} runs", tool.tool));
                let (id, name) = (tool.call_id, tool.tool);
                let is_known = |block: &Block| matches!(&block.item, Item::Tool { id: known, .. } if *known == id);
                if !self.blocks.iter().any(is_known) {
                    self.push(Item::Tool { id, name, state: ToolState::Running });
                }
            }
            Some(Event::ToolEnded(tool)) => {
                self.phase("thinking");
                self.end_tool(&tool.call_id, tool.failed);
            }
            Some(Event::ApprovalRequested(asked)) => {
                self.phase("waiting for your decision");
                self.ask(asked);
            }
            Some(Event::CanvasChanged(changed)) => {
                let surfaces = changed.surfaces.join(", ");
                self.push(Item::Note(format!("shown: {surfaces}; see `holdfast sessions canvas`")));
            }
            Some(Event::StepProgress(progress)) => {
                self.phase(step_progress(&progress));
            }
            Some(Event::Done(done)) => return self.done(done),
            Some(Event::Accepted(_)) | None => {}
        }
        Vec::new()
    }

    /// Removes the text of a step that is begun anew, or repeated by a new connection.
    fn forget_step(&mut self) {
        let from = self.turn.as_ref().map_or(self.blocks.len(), |turn| turn.step);
        let mut at = 0;
        self.blocks.retain(|block| {
            let is_text = matches!(block.item, Item::Agent(_) | Item::Thinking(_));
            at += 1;
            at <= from || !is_text
        });
    }

    /// Appends to the last block, if it is of the same kind and of this step.
    fn add_text(&mut self, text: &str, kind: Item) {
        let from = self.turn.as_ref().map_or(0, |turn| turn.step);
        let is_new = match self.blocks.last() {
            Some(last) if self.blocks.len() > from => {
                std::mem::discriminant(&last.item) != std::mem::discriminant(&kind)
            }
            _ => true,
        };
        if is_new {
            self.push(kind);
        }
        if let Some(Block { item: Item::Agent(said) | Item::Thinking(said), lines }) =
            self.blocks.last_mut()
        {
            said.push_str(text);
            *lines = None;
        }
    }

    fn end_tool(&mut self, call: &str, failed: bool) {
        for block in &mut self.blocks {
            if let Item::Tool { id, state, .. } = &mut block.item
                && *id == call
            {
                *state = if failed { ToolState::Failed } else { ToolState::Done };
                block.lines = None;
            }
        }
    }

    fn ask(&mut self, asked: ApprovalRequested) {
        let is_known = |known: &Approval| known.asked.approval_id == asked.approval_id;
        if !self.approvals.iter().any(is_known) {
            self.approvals.push(Approval { asked, since: Instant::now() });
        }
    }

    fn done(&mut self, done: Done) -> Vec<Effect> {
        let from = self.turn.as_ref().map_or(0, |turn| turn.step).min(self.blocks.len());
        let said = self.blocks[from..].iter().rev().find_map(|block| match &block.item {
            Item::Agent(said) => Some(said.clone()),
            _ => None,
        });
        let said = said.unwrap_or_default();
        match done.text.strip_prefix(said.as_str()) {
            Some("") => {}
            Some(rest) => {
                let rest = rest.to_owned();
                self.add_text(&rest, Item::Agent(String::new()));
            }
            None if done.text.is_empty() => {}
            None => self.push(Item::Agent(done.text.clone())),
        }
        let reason = match done.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        match done.outcome() {
            Outcome::Completed => {}
            Outcome::Cancelled => self.push(Item::Note("the turn was stopped".to_owned())),
            Outcome::Interrupted => {
                self.push(Item::Note("a newer message ended the turn".to_owned()));
            }
            Outcome::Failed => self.push(Item::Error(format!("the turn failed{reason}"))),
            Outcome::Dead => self.push(Item::Error(format!(
                "the message was given up{reason}; `holdfast dead list` shows it"
            ))),
            Outcome::Unspecified => {
                self.push(Item::Error("the gateway is newer than this command".to_owned()));
            }
        }
        self.end_turn()
    }

    /// Ends the turn, and follows the next message that waits.
    fn end_turn(&mut self) -> Vec<Effect> {
        let had_gap = self.turn.take().is_some_and(|turn| turn.has_gap);
        self.approvals.clear();
        for block in &mut self.blocks {
            if let Item::Tool { state: state @ ToolState::Running, .. } = &mut block.item {
                *state = ToolState::Done;
                block.lines = None;
            }
        }
        // What is shown is what the journal has now.
        self.newest = None;
        let mut effects = Vec::new();
        if let Some(message) = self.queued.pop_front() {
            self.begin_turn();
            self.mark_gap(had_gap);
            effects.push(Effect::Follow(message));
        } else if had_gap {
            effects.push(Effect::LoadHistory);
        }
        effects
    }

    fn polled(&mut self, poll: Poll) -> Vec<Effect> {
        self.unreachable = None;
        self.runs_elsewhere = poll.is_running && self.turn.is_none();
        let listed = |approval: &Approval| {
            poll.approvals.iter().any(|asked| asked.approval_id == approval.asked.approval_id)
        };
        self.approvals
            .retain(|known| listed(known) || known.since.elapsed() < APPROVAL_SETTLE_TIME);
        for asked in poll.approvals {
            self.ask(asked);
        }
        if self.turn.is_some() {
            return Vec::new();
        }
        match self.newest {
            Some(newest) if newest != poll.newest => vec![Effect::LoadHistory],
            Some(_) => Vec::new(),
            None => {
                self.newest = Some(poll.newest);
                Vec::new()
            }
        }
    }

    /// Remembers that the journal has more than is shown: it is loaded when the turn has ended.
    fn mark_gap(&mut self, has_gap: bool) {
        if let Some(turn) = &mut self.turn {
            turn.has_gap |= has_gap;
        }
    }

    /// Replaces the transcript by the journal, unless a turn writes to it.
    fn show_history(&mut self, entries: &[Entry]) {
        if self.turn.is_some() {
            return self.mark_gap(true);
        }
        self.blocks.clear();
        self.newest = Some(entries.last().map_or(0, |entry| entry.seq));
        for entry in entries {
            let detail: Value = serde_json::from_str(&entry.detail).unwrap_or_default();
            match entry.kind.as_str() {
                "heard" if !entry.text.is_empty() => self.push(Item::User(entry.text.clone())),
                "thought" => self.show_thought(entry, &detail),
                "returned" => {
                    let call = detail["call"].as_str().unwrap_or_default();
                    self.end_tool(call, detail["failed"] == true);
                }
                _ => {}
            }
        }
    }

    fn show_thought(&mut self, entry: &Entry, detail: &Value) {
        if !entry.text.trim().is_empty() {
            self.push(Item::Agent(entry.text.clone()));
        }
        for call in detail["calls"].as_array().map_or(&[][..], Vec::as_slice) {
            let text = |field: &str| call[field].as_str().unwrap_or_default().to_owned();
            let (id, name) = (text("id"), text("tool"));
            self.push(Item::Tool { id, name, state: ToolState::Running });
        }
    }
}
