//! Jobs and reminders: the tools that create them, and the turns that they begin.
//!
//! | file | contents |
//! |---|---|
//! | `requester.rs` | requester: user, time zone, language, and the reminder that began the turn |
//! | `reminders.rs` | the tools `scheduler_…` |
//! | `crons.rs` | the tool `cron` |
//! | `turns.rs` | turns that a firing begins |

mod crons;
mod reminders;
mod requester;
mod turns;

use std::sync::Arc;

use holdfast_jobs::{Jobs, Rules};
use holdfast_types::JobId;

pub(crate) use self::requester::Requester;
use crate::mesh::{self, SessionTools};

/// Backends of the schedule tools.
#[derive(Debug)]
pub(crate) struct ScheduleTools {
    mesh: Arc<SessionTools>,
    jobs: Jobs,
    rules: Rules,
}

impl ScheduleTools {
    pub(crate) const fn new(mesh: Arc<SessionTools>, jobs: Jobs, rules: Rules) -> Self {
        Self { mesh, jobs, rules }
    }
}

/// Id of the job that a call creates, derived from the call's key so that a retry gives the same
/// id.
fn job_id(key: &str) -> JobId {
    mesh::delivery_id(&format!("{key}:job")).as_uuid().into()
}
