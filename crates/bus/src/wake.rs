//! Wake-ups: messages that say "try to claim".
//!
//! A wake-up is a hint and goes to one member of a group. If that one has no capacity, or the
//! wake-up is lost, a poll finds the work within a second.

use std::time::Duration;

use bytes::Bytes;
use holdfast_types::TenantId;
use tokio::time::sleep;

use crate::{Bus, Error, Subject, Subscription};

/// Wake-ups that name tenants, as they arrive.
#[derive(Debug)]
pub struct TenantWakes(Subscription);

impl TenantWakes {
    /// Returns the tenants of the next wake-up; `None` once the connection is closed for good.
    pub async fn next(&mut self) -> Option<Vec<TenantId>> {
        let message = self.0.next().await?;
        let text = String::from_utf8_lossy(&message.payload);
        Some(text.split(' ').filter_map(|id| id.parse().ok()).collect())
    }
}

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

    /// Tells all gateways and runners that events of these tenants were logged.
    pub fn wake_events(&self, tenants: &[TenantId]) {
        self.wake_tenants(&Subject::wake_events(), tenants);
    }

    /// Subscribes to the wake-ups about logged events. Each goes to all subscribers.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn event_wakes(&self) -> Result<TenantWakes, Error> {
        Ok(TenantWakes(self.subscribe(&Subject::wake_events()).await?))
    }

    /// Tells all gateways that rights of callers of these tenants were taken away.
    pub fn wake_access(&self, tenants: &[TenantId]) {
        self.wake_tenants(&Subject::wake_access(), tenants);
    }

    /// Subscribes to the wake-ups about rights that were taken away. Each goes to all subscribers.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn access_wakes(&self) -> Result<TenantWakes, Error> {
        Ok(TenantWakes(self.subscribe(&Subject::wake_access()).await?))
    }

    fn wake_tenants(&self, subject: &Subject, tenants: &[TenantId]) {
        let ids: Vec<String> = tenants.iter().map(ToString::to_string).collect();
        self.publish(subject, Bytes::from(ids.join(" ")));
    }

    /// Subscribes to the wake-ups of runners. Each goes to one runner of each pool, since its sender
    /// need not know the pool of the tenant. An empty `pool` is the default one.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn run_wakes(&self, pool: &str) -> Result<Subscription, Error> {
        let group = match pool {
            "" => "runners".to_owned(),
            pool => format!("runners-{pool}"),
        };
        self.subscribe_queue(&Subject::wake_run(), &group).await
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
