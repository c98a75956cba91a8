//! Commands for work that runs at given times: jobs, reminders, heartbeats.

pub mod cron;
pub mod heartbeat;
pub mod reminders;
