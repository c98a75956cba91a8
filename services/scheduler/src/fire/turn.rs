//! A turn of an agent in a session of its own (spec CRN-008).

use std::time::Duration;

use holdfast_jobs::{Firing, Job, Slot};
use holdfast_schedule::AgentTurn;
use holdfast_types::{Body, QueueMode, SessionKey, SessionSettings, Thinking};
use jiff::Timestamp;

use super::{Ctx, Ends, Errand, Fate, NO_AGENT, UNREADABLE};

pub async fn fate(ctx: &Ctx, firing: &Firing, job: &Job, turn: AgentTurn) -> Fate {
    let Ok(agents) = ctx.agents.of(job.tenant).await else {
        return Fate::Later(Duration::from_secs(1));
    };
    let Some(agent) = agents.get(&job.agent) else { return NO_AGENT };
    let run = run(firing.id.slot);
    let Ok(key) = SessionKey::cron(&agent.name, &job.id.to_string(), &run) else {
        return UNREADABLE;
    };
    // How much it thinks is checked when the job is made; a word that a later version knows is
    // as good as none.
    let thinking = turn.thinking.as_deref().and_then(|word| word.parse().ok());
    Fate::Message(Box::new(Errand {
        key,
        agent: job.agent,
        settings: SessionSettings {
            model: turn.model,
            thinking: Some(thinking.unwrap_or(Thinking::Medium)),
            ..SessionSettings::default()
        },
        body: Body::text(turn.message),
        target: None,
        mode: QueueMode::Followup,
        ends: Ends::Answered(Duration::from_secs(u64::from(turn.timeout_seconds))),
    }))
}

/// What the run is called in its session's key: its slot in seconds, as the seed has it, with what
/// tells it from others.
fn run(slot: Slot) -> String {
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

        assert_eq!(run(Slot::at(whole)), "1795352400");
        assert_eq!(run(Slot::at(at("2026-11-22T13:00:00.25Z"))), "1795352400.250000");
        assert_eq!(run(Slot::Again { at: whole, n: 2 }), "1795352400-2");
    }
}
