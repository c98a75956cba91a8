//! A reminder (spec REM-005, REM-006): a message in the conversation in which it was asked for, so
//! that it has its place there among all else that is said.
//!
//! | `auto_continue` | the turn |
//! |---|---|
//! | no | says the text, without a model |
//! | yes | asks the agent, who may set the next one |

use std::time::Duration;

use holdfast_jobs::{Firing, Job, Reminder};
use holdfast_schedule::reminder::Locale;
use holdfast_types::{Body, Fired, QueueMode, SessionKey, SessionSettings};

use super::{Ends, Errand, Fate, UNREADABLE};

/// What the event is called.
const EVENT: &str = "reminder";

/// How long its turn is waited for; its runner ends it sooner.
const PATIENCE: Duration = Duration::from_secs(3_600);

pub fn fate(firing: &Firing, job: &Job) -> Fate {
    let Ok(reminder) = job.payload::<Reminder>() else { return UNREADABLE };
    let Ok(key) = reminder.session.parse::<SessionKey>() else { return UNREADABLE };
    Fate::Message(Box::new(Errand {
        key,
        agent: job.agent,
        settings: SessionSettings::default(),
        body: body(firing, job, &reminder),
        target: reminder.target,
        mode: QueueMode::Followup,
        ends: Ends::Arrived(PATIENCE),
    }))
}

fn body(firing: &Firing, job: &Job, reminder: &Reminder) -> Body {
    let locale = Locale::of(&reminder.locale);
    let text = match reminder.auto_continue {
        true => locale.fired(&reminder.content),
        false => locale.push(&reminder.content),
    };
    let fired = Fired {
        as_is: !reminder.auto_continue,
        owner: job.owner.clone(),
        chain: reminder.renewals,
        ..Fired::new(job.id, firing.at.as_millisecond())
    };
    Body { event: Some(EVENT.to_owned()), fired: Some(Box::new(fired)), ..Body::text(text) }
}
