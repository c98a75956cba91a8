//! What an operator may choose about the scheduler.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use holdfast_kit::{config::Secrets, telemetry};
use serde::{Deserialize, Serialize};

/// Everything that the scheduler reads: its own table, and those that all services share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The loop.
    pub scheduler: Scheduler,
    /// Postgres.
    pub database: holdfast_pg::Config,
    /// Redis, for what heartbeats said lately.
    pub redis: holdfast_lock::Config,
    /// NATS.
    pub nats: holdfast_bus::Config,
    /// Logs and spans.
    pub telemetry: telemetry::Config,
    /// What secrets are sealed with.
    pub secrets: Secrets,
}

/// The loop: the table `[scheduler]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scheduler {
    /// Where to listen for HTTP: health, metrics.
    pub listen: SocketAddr,

    /// The most jobs that one claim decides; more are claimed at once after it.
    pub batch: u32,

    /// The most firings that are in hand at once: what is due beyond is left to other replicas, or
    /// until there is room.
    pub backlog: u32,

    /// Tenants whose firings are delivered at once. Each takes a connection to the database.
    pub deliver_slots: u32,

    /// The shortest time between two heartbeats of an agent, whatever it is set to.
    #[serde(with = "humantime_serde")]
    pub heartbeat_floor: Duration,

    /// Heartbeats that may be under way at once, in the whole mesh; more wait for a few seconds.
    pub heartbeats: u32,

    /// How long a firing that was claimed may take to be delivered, before it is handed out again:
    /// after so long others do the work of a replica that died. The same in all replicas.
    #[serde(with = "humantime_serde")]
    pub handover: Duration,

    /// How long a job that is done is kept, with its log.
    #[serde(with = "humantime_serde")]
    pub keep_done: Duration,

    /// How long to let deliveries at hand finish after SIGTERM.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 18793)),
            batch: 1_000,
            backlog: 20_000,
            deliver_slots: 8,
            heartbeat_floor: Duration::from_secs(60),
            heartbeats: 64,
            handover: holdfast_jobs::HANDOVER,
            keep_done: Duration::from_secs(30 * 24 * 3600),
            shutdown_grace: Duration::from_secs(25),
        }
    }
}

impl Config {
    /// Refuses what cannot work.
    ///
    /// # Errors
    ///
    /// With the setting to change.
    pub fn check(&self) -> anyhow::Result<()> {
        let own = &self.scheduler;
        for (setting, number) in [
            ("batch", own.batch),
            ("backlog", own.backlog),
            ("deliver_slots", own.deliver_slots),
            ("heartbeats", own.heartbeats),
        ] {
            ensure!(number > 0, "`scheduler.{setting}` is 0: give it 1 at least");
        }
        ensure!(
            own.handover >= Duration::from_secs(1),
            "`scheduler.handover` is {:?}: give it `1s` at least",
            own.handover
        );
        let hour = Duration::from_secs(3600);
        ensure!(
            own.keep_done >= hour,
            "`scheduler.keep_done` is {:?}: give it `1h` at least",
            own.keep_done
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_with_the_setting_to_change() {
        Config::default().check().unwrap();
        for (change, setting) in [
            ((|s| s.batch = 0) as fn(&mut Scheduler), "`scheduler.batch`"),
            (|s| s.backlog = 0, "`scheduler.backlog`"),
            (|s| s.deliver_slots = 0, "`scheduler.deliver_slots`"),
            (|s| s.handover = Duration::ZERO, "`scheduler.handover`"),
            (|s| s.keep_done = Duration::ZERO, "`scheduler.keep_done`"),
        ] {
            let mut config = Config::default();
            change(&mut config.scheduler);
            let refused = config.check().unwrap_err().to_string();
            assert!(refused.contains(setting), "{refused}");
        }
    }
}
