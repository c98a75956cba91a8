//! Signals to a runner about a session that it runs.

use bytes::Bytes;
use holdfast_types::{RunnerId, SessionId};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::{Bus, Error, Subject, Subscription};

/// A signal to the runner of a session: a hint to read the session's state from the database, by which
/// alone it acts. If it is lost, the runner sees the same state at its next lease renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    pub session: SessionId,
    pub kind: ControlKind,
    /// Epoch of the claim that the signal is meant for. A runner ignores signals for other claims.
    pub epoch: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlKind {
    /// The user cancelled the turn.
    Cancel,
    Input,
    /// Stop at the boundary of the next step.
    Pause,
    /// New input ends the turn.
    Interrupt,
}

/// Signals to one runner, as they arrive.
#[derive(Debug)]
pub struct Controls(Subscription);

impl Controls {
    /// Returns the next signal; `None` once the connection is closed for good.
    pub async fn next(&mut self) -> Option<Control> {
        self.0.next_json().await
    }
}

impl Bus {
    /// Sends a signal to a runner.
    pub fn control(&self, runner: RunnerId, control: &Control) {
        self.publish_json(&Subject::control(runner), control);
    }

    /// Subscribes to the signals to a runner.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn controls(&self, runner: RunnerId) -> Result<Controls, Error> {
        self.subscribe(&Subject::control(runner)).await.map(Controls)
    }

    pub(crate) fn publish_json(&self, subject: &Subject, value: &impl Serialize) {
        match serde_json::to_vec(value) {
            Ok(payload) => self.publish(subject, Bytes::from(payload)),
            Err(error) => error!(%subject, %error, "a message cannot be written as json"),
        }
    }
}
