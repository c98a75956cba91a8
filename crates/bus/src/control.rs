//! What a runner is told about a session that it runs.

use bytes::Bytes;
use holdfast_types::{RunnerId, SessionId};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::{Bus, Error, Subject, Subscription};

/// Something about a session that its runner would see at its next renewal anyway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// Which session.
    pub session: SessionId,
    /// What.
    pub kind: ControlKind,
    /// The claim it is meant for; a runner passes over what is for another.
    pub epoch: i64,
}

/// What a runner is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlKind {
    /// Its user cancelled the turn.
    Cancel,
    /// There is new input.
    Input,
    /// Stop at the next step's boundary.
    Pause,
    /// New input ends the turn.
    Interrupt,
}

/// What one runner is told, as it arrives.
#[derive(Debug)]
pub struct Controls(Subscription);

impl Controls {
    /// The next one; `None` once the process' connection has been closed for good.
    pub async fn next(&mut self) -> Option<Control> {
        self.0.next_json().await
    }
}

impl Bus {
    /// Tells a runner.
    pub fn control(&self, runner: RunnerId, control: &Control) {
        self.publish_json(&Subject::control(runner), control);
    }

    /// What a runner is told.
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
