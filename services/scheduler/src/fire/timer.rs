//! A wake-up that asks no model by itself (spec HBT-021): a silent event. A session that waits for
//! it is woken; any other reads of it in its next turn.

use holdfast_jobs::{Job, Timer};
use holdfast_types::{Body, QueueMode, SessionKey, SessionSettings};

use super::{Ends, Errand, Fate, UNREADABLE};

pub fn fate(job: &Job) -> Fate {
    let Ok(timer) = job.payload::<Timer>() else { return UNREADABLE };
    let Ok(key) = timer.session.parse::<SessionKey>() else { return UNREADABLE };
    let body = Body {
        event: Some(event(timer.event.as_deref())),
        silent: true,
        ..Body::text(job.name.clone())
    };
    Fate::Message(Box::new(Errand {
        key,
        agent: job.agent,
        settings: SessionSettings::default(),
        body,
        target: None,
        mode: QueueMode::Followup,
        ends: Ends::Accepted,
    }))
}

/// What the event is called: always a timer's, so that none is taken for the mesh's own.
fn event(name: Option<&str>) -> String {
    match name {
        None | Some("") => "timer".to_owned(),
        Some(name) if name.starts_with("timer.") => name.to_owned(),
        Some(name) => format!("timer.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::APPROVAL_RESOLVED;

    use super::*;

    #[test]
    fn no_timer_is_taken_for_an_event_of_the_mesh() {
        assert_eq!(event(Some(APPROVAL_RESOLVED)), "timer.approval.resolved");
        assert_eq!(event(Some("timer.tea")), "timer.tea");
        assert_eq!(event(None), "timer");
    }
}
