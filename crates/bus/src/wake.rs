//! Wake-ups: messages that say "try to claim".
//!
//! A wake-up is a hint and goes to one member of a group. If that one has no capacity, or the
//! wake-up is lost, a poll finds the work within a second.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::{Bus, Error, Subject, Subscription};

impl Bus {
    /// Wakes a runner after `delay_ms`, since there is a session to claim.
    ///
    /// A delayed wake-up is kept in this process, and lost with it.
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

    /// Wakes a bridge of a channel, since there is a delivery to claim.
    pub fn wake_deliver(&self, channel: &str) {
        self.publish(&Subject::wake_deliver(channel), Bytes::new());
    }

    /// Wakes a scheduler, since a job was created, changed or requested to run and may be due
    /// earlier than the scheduler expects.
    pub fn wake_schedule(&self) {
        self.publish(&Subject::wake_schedule(), Bytes::new());
    }

    /// Subscribes to the wake-ups of schedulers. Each goes to one of them.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn schedule_wakes(&self) -> Result<Subscription, Error> {
        self.subscribe_queue(&Subject::wake_schedule(), "schedulers").await
    }

    /// Subscribes to the wake-ups of runners. Each goes to one of them.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn run_wakes(&self) -> Result<Subscription, Error> {
        self.subscribe_queue(&Subject::wake_run(), "runners").await
    }

    /// Subscribes to the wake-ups of a channel's bridges. Each goes to one of them.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn deliver_wakes(&self, channel: &str) -> Result<Subscription, Error> {
        self.subscribe_queue(&Subject::wake_deliver(channel), "bridges").await
    }
}
