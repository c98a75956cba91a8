//! Delta stream: a reply as it is written, for its watchers.
//!
//! The first text of a step is sent at once; what follows is collected, so that no turn sends more
//! than thirty deltas a second. Sending neither waits nor fails.

use std::{
    convert::Infallible,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_bus::{Bus, Delta, DeltaBody, StepProgress};
use holdfast_session::Claim;
use holdfast_types::{Reasoning, RunId};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// Minimum time between two text deltas.
const MIN_DELTA_INTERVAL: Duration = Duration::from_millis(33);

#[derive(Debug)]
pub(crate) struct DeltaStream {
    bus: Bus,
    claim: Claim,
    state: Mutex<StreamState>,
    text_pending: Notify,
}

#[derive(Debug)]
struct StreamState {
    run: RunId,
    step: u32,
    n: u32,
    pending_text: String,
    /// Reasoning that is not sent yet.
    pending_reasoning: String,
    shown_reasoning: Reasoning,
    sent_at: Option<Instant>,
}

impl DeltaStream {
    pub(crate) fn new(bus: Bus, claim: Claim, run: RunId) -> Self {
        let state = StreamState {
            run,
            step: 0,
            n: 0,
            pending_text: String::new(),
            pending_reasoning: String::new(),
            shown_reasoning: Reasoning::Off,
            sent_at: None,
        };
        Self { bus, claim, state: Mutex::new(state), text_pending: Notify::new() }
    }

    pub(crate) fn begin_step(&self, step: usize) {
        self.flush();
        let mut state = self.lock();
        state.step = u32::try_from(step).unwrap_or(u32::MAX);
        state.sent_at = None;
    }

    /// Sends a delta other than text, after the pending text.
    pub(crate) fn send(&self, body: DeltaBody) {
        self.flush();
        self.publish(&mut self.lock(), body);
    }

    /// Sends the progress of a step, after the pending text. It is outside of the numbering, so that
    /// listeners that do not know it notice no gap.
    pub(crate) fn send_progress(&self, progress: StepProgress) {
        self.flush();
        let state = self.lock();
        let body = DeltaBody::StepProgress(progress);
        let delta =
            Delta { run: state.run, epoch: self.claim.epoch, step: state.step, n: state.n, body };
        self.bus.publish_delta(self.claim.tenant, self.claim.session, &delta);
    }

    /// Processes a delta of the model.
    pub(crate) fn on_model_delta(&self, delta: holdfast_llm::Delta) {
        match delta {
            holdfast_llm::Delta::Text(text) => self.push_text(&text),
            holdfast_llm::Delta::Thought(text) => self.push_reasoning(&text),
            // Sent when the call is made: the model may still change its mind.
            holdfast_llm::Delta::ToolCallStarted { .. } => {}
            holdfast_llm::Delta::Restarted => {
                {
                    let mut state = self.lock();
                    state.pending_text.clear();
                    state.pending_reasoning.clear();
                }
                self.send(DeltaBody::StepRestarted);
            }
        }
    }

    /// Sends pending text when it is due. Never returns.
    pub(crate) async fn send_pending(&self) -> Infallible {
        loop {
            self.text_pending.notified().await;
            let due = self.lock().sent_at.map(|sent_at| sent_at + MIN_DELTA_INTERVAL);
            if let Some(due) = due {
                sleep_until(due).await;
            }
            self.flush();
        }
    }

    /// Sets how much of the model's reasoning is sent.
    pub(crate) fn set_reasoning(&self, shows: Reasoning) {
        self.lock().shown_reasoning = shows;
    }

    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        let thought = std::mem::take(&mut state.pending_reasoning);
        if !thought.is_empty() {
            state.sent_at = Some(Instant::now());
            self.publish(&mut state, DeltaBody::Thought { text: thought });
        }
        if !state.pending_text.is_empty() {
            let text = std::mem::take(&mut state.pending_text);
            state.sent_at = Some(Instant::now());
            self.publish(&mut state, DeltaBody::Text { text });
        }
    }

    /// Sends reasoning as it arrives or, with [`Reasoning::On`], when text or another delta
    /// follows.
    fn push_reasoning(&self, text: &str) {
        let shows = self.lock().shown_reasoning;
        if text.is_empty() || shows == Reasoning::Off {
            return;
        }
        // Keeps the order of text and reasoning.
        if !self.lock().pending_text.is_empty() {
            self.flush();
        }
        let due = {
            let mut state = self.lock();
            state.pending_reasoning.push_str(text);
            state.sent_at.is_none_or(|sent_at| sent_at.elapsed() >= MIN_DELTA_INTERVAL)
        };
        match shows {
            Reasoning::Off | Reasoning::On => {}
            Reasoning::Stream if due => self.flush(),
            Reasoning::Stream => self.text_pending.notify_one(),
        }
    }

    fn push_text(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        let due = {
            let mut state = self.lock();
            if !state.pending_reasoning.is_empty() {
                let thought = std::mem::take(&mut state.pending_reasoning);
                self.publish(&mut state, DeltaBody::Thought { text: thought });
            }
            state.pending_text.push_str(text);
            state.sent_at.is_none_or(|sent_at| sent_at.elapsed() >= MIN_DELTA_INTERVAL)
        };
        if due {
            self.flush();
        } else {
            self.text_pending.notify_one();
        }
    }

    fn publish(&self, state: &mut StreamState, body: DeltaBody) {
        let (run, step, n) = (state.run, state.step, state.n);
        state.n = n.saturating_add(1);
        let delta = Delta { run, epoch: self.claim.epoch, step, n, body };
        self.bus.publish_delta(self.claim.tenant, self.claim.session, &delta);
    }

    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
