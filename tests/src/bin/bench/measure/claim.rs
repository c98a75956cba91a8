//! Duration of a claim while 10,000 sessions of 100 tenants wait: the protocol alone, in a database
//! of its own, with claimers that complete what they claim.

use std::{sync::Arc, time::Duration};

use holdfast_session::{Claim, Completion, NewMessage, Sessions, TurnOutcome};
use holdfast_types::{
    AgentId, AgentName, Body, QueueMode, RunId, RunnerId, SessionKey, Source, TenantId, Usage, Wait,
};
use jiff::Timestamp;
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use crate::{Pace, mesh::Mesh, report::Line, stats::Samples};

const TENANTS: usize = 100;
const CLAIMERS: usize = 4;
/// Sessions that one claim may take.
const SLOTS: u32 = 4;

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let (_database, pools) = mesh.empty_database().await?;
    let sessions = Sessions::new(pools);
    let each = pace.count(100, 20);
    queue(&sessions, each).await?;

    let claims = pace.count(600, 50);
    let mut claimers = JoinSet::new();
    for _ in 0..CLAIMERS {
        claimers.spawn(claim(sessions.clone(), claims / CLAIMERS));
    }
    let (mut times, mut taken) = (Vec::new(), 0);
    while let Some(claimer) = claimers.join_next().await {
        let (took, sessions) = claimer??;
        times.extend(took);
        taken += sessions;
    }
    let times: Samples = times.into_iter().collect();
    Ok(vec![
        Line::millis("claim, p50", times.median()),
        Line::millis("claim, p99", times.permille(990)).at_most(25.0).note(format!(
            "{} claims by {CLAIMERS} claimers took {taken} of {} sessions",
            times.count(),
            TENANTS * each
        )),
    ])
}

async fn queue(sessions: &Sessions, each: usize) -> anyhow::Result<()> {
    let room = Arc::new(Semaphore::new(8));
    let mut tenants = JoinSet::new();
    for _ in 0..TENANTS {
        let (sessions, room) = (sessions.clone(), Arc::clone(&room));
        tenants.spawn(async move {
            let _permit = room.acquire().await?;
            let (tenant, agent) = (TenantId::generate(), AgentId::generate());
            let messages = (0..each).map(|nth| message(agent, nth)).collect();
            for accepted in sessions.ingest_batch(tenant, messages).await {
                accepted?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(tenant) = tenants.join_next().await {
        tenant??;
    }
    Ok(())
}

fn message(agent: AgentId, nth: usize) -> NewMessage {
    NewMessage {
        key: SessionKey::main(&AgentName::new(&format!("a{nth}"))),
        agent,
        label: None,
        source: Source::Internal("bench".to_owned()),
        idem_key: format!("m{nth}"),
        body: Body::text("hello"),
        target: None,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: None,
    }
}

async fn claim(sessions: Sessions, count: usize) -> anyhow::Result<(Vec<Duration>, usize)> {
    let runner = RunnerId::generate();
    let (mut times, mut taken) = (Vec::new(), 0);
    for _ in 0..count {
        let begun = Instant::now();
        let claims = sessions.claim(runner, SLOTS).await?;
        times.push(begun.elapsed());
        taken += claims.len();
        for claim in claims {
            sessions.complete(&claim, completion(&claim)).await?;
        }
    }
    Ok((times, taken))
}

/// The end of a turn that had one message and said nothing.
fn completion(claim: &Claim) -> Completion {
    Completion {
        run: RunId::from(claim.session.as_uuid()),
        at: None,
        newest: None,
        entries: Vec::new(),
        done: vec![1],
        outcome: TurnOutcome::Completed,
        reason: None,
        reply: None,
        deliveries: Vec::new(),
        usage: Usage::default(),
        model: "fake".to_owned(),
        steps: 1,
        tools: Vec::new(),
        started_at: Timestamp::now(),
        wait: Wait::Anything,
        last_target: None,
        effects: None,
    }
}
