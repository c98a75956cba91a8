//! Jobs and reminders: the tools that create them.
//!
//! | file | contents |
//! |---|---|
//! | `reminders.rs` | the tools `scheduler_…` |
//! | `crons.rs` | the tool `cron` |

mod crons;
mod reminders;

use std::sync::Arc;

use holdfast_schedule::store::{Jobs, Rules};
use holdfast_schedule::{
    Zone,
    reminder::{Locale, Renewal},
};
use holdfast_types::{Author, JobId};

use crate::tools::mesh::{self, SessionTools};

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

/// User who asks for a job or a reminder, with their settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requester {
    /// `None` if the conversation belongs to no single user.
    pub(crate) user: Option<String>,
    /// Author of what is asked for; `None` if the mesh is.
    pub(crate) author: Option<Author>,
    /// Time zone of the user.
    pub(crate) zone: Zone,
    /// Language of the user's last message.
    pub(crate) locale: Locale,
    /// Set if a reminder began the turn.
    pub(crate) renewal: Option<Renewal>,
}
