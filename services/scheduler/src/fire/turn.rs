//! Agent turns in a session of their own (spec CRN-008).

use std::time::Duration;

use anyhow::Context as _;
use holdfast_schedule::AgentTurn;
use holdfast_schedule::store::{Firing, Job, Slot};
use holdfast_types::{QueueMode, SessionKey, SessionSettings, Thinking};
use jiff::Timestamp;

use super::{
    EndCondition, FiringMessage, FiringOutcome, NO_AGENT, UNREADABLE, agent,
    answer_target::{AnswerTarget, find_target},
};
use crate::context::Ctx;

pub async fn prepare(
    ctx: &Ctx,
    firing: &Firing,
    job: &Job,
    turn: AgentTurn,
) -> anyhow::Result<FiringOutcome> {
    let Some(agent) = agent(ctx, job).await? else { return Ok(NO_AGENT) };
    let run = run_key_part(firing.id.slot);
    let Ok(key) = SessionKey::cron(&agent.name, &job.id.to_string(), &run) else {
        return Ok(UNREADABLE);
    };
    let target = match find_target(ctx, job, &turn).await.context("the answer's target")? {
        AnswerTarget::Known(target) => target,
        AnswerTarget::Unknown(_) if turn.best_effort_deliver => None,
        AnswerTarget::Unknown(why) => return Ok(FiringOutcome::Refused(why)),
    };
    // The thinking level is checked when the job is created. A level that only a later version
    // knows is treated as unset.
    let thinking = turn.thinking.as_deref().and_then(|word| word.parse().ok());
    let Ok(body) = job.message(firing.at) else { return Ok(UNREADABLE) };
    let within = Duration::from_secs(u64::from(turn.timeout_seconds));
    let ends = match turn.deliver && !turn.best_effort_deliver {
        true => EndCondition::Arrived(within),
        false => EndCondition::Answered(within),
    };
    Ok(FiringOutcome::Message(Box::new(FiringMessage {
        key,
        agent: job.agent,
        settings: SessionSettings {
            model: turn.model,
            thinking: Some(thinking.unwrap_or(Thinking::Medium)),
            ..SessionSettings::default()
        },
        body,
        target,
        mode: QueueMode::Followup,
        end_condition: ends,
    })))
}

/// Returns the run's part of the session key: its slot in seconds, with a suffix if the slot alone
/// is not unique.
fn run_key_part(slot: Slot) -> String {
    let time = |at: Timestamp| match at.as_microsecond().rem_euclid(1_000_000) {
        0 => at.as_second().to_string(),
        micros => format!("{}.{micros:06}", at.as_second()),
    };
    match slot {
        Slot::At(at) => time(at),
        Slot::Again { at, n } => format!("{}-{n}", time(at)),
        Slot::Now(request) => format!("now-{}", request.simple()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_a_session_of_its_own() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let whole = at("2026-11-22T13:00:00Z");

        assert_eq!(run_key_part(Slot::at(whole)), "1795352400");
        assert_eq!(run_key_part(Slot::at(at("2026-11-22T13:00:00.25Z"))), "1795352400.250000");
        assert_eq!(run_key_part(Slot::Again { at: whole, n: 2 }), "1795352400-2");
    }
}
