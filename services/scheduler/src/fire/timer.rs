//! Timers (spec HBT-021): silent events that run no model by themselves. A session that waits for
//! the event is woken; any other session reads it in its next turn.

use holdfast_schedule::store::{Job, Timer};
use holdfast_types::{Body, QueueMode, SessionKey, SessionSettings};

use super::{EndCondition, FiringMessage, FiringOutcome, UNREADABLE};

pub fn prepare(job: &Job) -> FiringOutcome {
    let Ok(timer) = job.payload::<Timer>() else { return UNREADABLE };
    let Ok(key) = timer.session.parse::<SessionKey>() else { return UNREADABLE };
    let body = Body {
        event: Some(event_name(timer.event.as_deref())),
        silent: true,
        ..Body::text(job.name.clone())
    };
    FiringOutcome::Message(Box::new(FiringMessage {
        key,
        agent: job.agent,
        settings: SessionSettings::default(),
        body,
        target: None,
        mode: QueueMode::Followup,
        end_condition: EndCondition::Accepted,
    }))
}

/// Returns the event's name. It always begins with `timer`, so that it cannot be taken for an
/// internal event.
fn event_name(name: Option<&str>) -> String {
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
        assert_eq!(event_name(Some(APPROVAL_RESOLVED)), "timer.approval.resolved");
        assert_eq!(event_name(Some("timer.tea")), "timer.tea");
        assert_eq!(event_name(None), "timer");
    }
}
