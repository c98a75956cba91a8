//! Jobs and reminders: the tools that create them, and the turns that they begin.
//!
//! | file | contents |
//! |---|---|
//! | `asked.rs` | requester: user, time zone, language, and the reminder that began the turn |
//! | `reminders.rs` | the tools `scheduler_…` |
//! | `crons.rs` | the tool `cron` |
//! | `turns.rs` | turns that a firing begins |

mod asked;
mod crons;
mod reminders;
mod turns;

use std::sync::Arc;

use holdfast_jobs::{Jobs, Rules};
use holdfast_types::JobId;

pub(crate) use self::asked::Asked;
use crate::mesh::{self, Inside};

/// Backends of the schedule tools.
#[derive(Debug)]
pub(crate) struct Schedules {
    mesh: Arc<Inside>,
    jobs: Jobs,
    rules: Rules,
}

impl Schedules {
    pub(crate) const fn new(mesh: Arc<Inside>, jobs: Jobs, rules: Rules) -> Self {
        Self { mesh, jobs, rules }
    }
}

/// Id of the job that a call creates, derived from the call's key so that a retry gives the same
/// id.
fn job_id(key: &str) -> JobId {
    mesh::id(&format!("{key}:job")).as_uuid().into()
}
