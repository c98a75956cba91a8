//! Settings of the scheduler.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use holdfast_kit::{config::Tls, telemetry};
use serde::{Deserialize, Serialize};

/// All settings that the scheduler reads: its own table, and the shared tables.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub scheduler: Scheduler,
    pub database: holdfast_pg::Config,
    /// Redis, for the hashes of recent heartbeat messages.
    pub redis: holdfast_lock::Config,
    pub nats: holdfast_bus::Config,
    pub telemetry: telemetry::Config,
    /// Certificate of the server.
    pub tls: Tls,
}

/// Settings of the claim loop: the table `[scheduler]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scheduler {
    /// Address of the HTTP server: health, metrics.
    pub listen: SocketAddr,

    /// Maximum number of jobs decided by one claim. If more are due, the next claim follows at
    /// once.
    pub batch: u32,

    /// Maximum number of firings in progress. Further due firings are left to other replicas, or
    /// until some are delivered.
    pub backlog: u32,

    /// Number of tenants whose firings are delivered concurrently. Each needs a database
    /// connection.
    pub deliver_slots: u32,

    /// Time in which a claimed firing must be delivered before it is handed out again, so that
    /// other replicas take over the work of one that died. The same in all replicas.
    #[serde(with = "humantime_serde")]
    pub handover: Duration,
    /// Minimum interval between two heartbeats of an agent, whatever its own setting.
    #[serde(with = "humantime_serde")]
    pub heartbeat_floor: Duration,

    /// Maximum number of concurrent heartbeats in the whole installation. Further ones are delayed
    /// by some seconds.
    pub heartbeats: u32,

    /// Retention of a job that has ended, with its log.
    #[serde(with = "humantime_serde")]
    pub keep_done: Duration,

    /// Maximum time for deliveries in progress to finish after SIGTERM.
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
            handover: holdfast_schedule::store::HANDOVER_TIMEOUT,
            heartbeat_floor: Duration::from_secs(60),
            heartbeats: 64,
            keep_done: Duration::from_secs(30 * 24 * 3600),
            shutdown_grace: Duration::from_secs(25),
        }
    }
}

impl Config {
    /// Rejects settings that cannot work.
    ///
    /// # Errors
    ///
    /// If a setting is out of range; the error names it.
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
        self.tls.check_listener("scheduler.listen", own.listen)
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
