//! Wake-ups: a token that says "try to claim".
//!
//! A token is a hint. One runner of all gets it; if that one has no room, or the
//! token is lost, the poll finds the work within its second.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::{Bus, Error, Subject, Subscription};

impl Bus {
    /// Says that there is a session to claim, after `delay_ms`.
    ///
    /// A delayed token is kept in this process, and dies with it.
    pub fn wake_run(&self, delay_ms: u64) {
        if delay_ms == 0 {
            return self.publish(&Subject::wake_run(), Bytes::new());
        }
        let bus = self.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(delay_ms)).await;
            bus.wake_run(0);
        });
    }

    /// Says that there is a delivery to claim for a channel.
    pub fn wake_deliver(&self, channel: &str) {
        self.publish(&Subject::wake_deliver(channel), Bytes::new());
    }

    /// Says that a job was made, changed or asked for: it may be due sooner than a scheduler thinks.
    pub fn wake_schedule(&self) {
        self.publish(&Subject::wake_schedule(), Bytes::new());
    }

    /// The tokens for schedulers; each goes to one of them.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn schedule_wakes(&self) -> Result<Subscription, Error> {
        self.subscribe_queue(&Subject::wake_schedule(), "schedulers").await
    }

    /// The tokens for runners; each goes to one of them.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn run_wakes(&self) -> Result<Subscription, Error> {
        self.subscribe_queue(&Subject::wake_run(), "runners").await
    }

    /// The tokens for a channel's bridges; each goes to one of them.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn deliver_wakes(&self, channel: &str) -> Result<Subscription, Error> {
        self.subscribe_queue(&Subject::wake_deliver(channel), "bridges").await
    }
}
