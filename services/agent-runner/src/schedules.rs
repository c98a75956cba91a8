//! Jobs and reminders, as agents make them and as turns come of them.
//!
//! | file | what |
//! |---|---|
//! | `asked.rs` | who asks, where, on whose clock, in which language, and what led to it |
//! | `reminders.rs` | the tools `scheduler_…` |
//! | `crons.rs` | the tool `cron` |
//! | `turns.rs` | turns that a firing began |

mod asked;
mod crons;
mod reminders;
mod turns;

use std::sync::Arc;

use holdfast_jobs::{Jobs, Rules};
use holdfast_types::JobId;

pub(crate) use self::asked::Asked;
use crate::mesh::{self, Inside};

/// What the tools of schedules stand on.
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

/// The id of what a call makes: the same for the same call, whoever makes it.
fn job_id(key: &str) -> JobId {
    mesh::id(&format!("{key}:job")).as_uuid().into()
}
