//! Erases what is held of sessions and agents that were deleted, and what came late of what people had
//! erased.
//!
//! Who deletes one leaves a row in the same transaction (`memory.forget_later`), so that it is
//! found here however long this service was away. What went and what is left is counted in the
//! transaction that erases, and stays in the row as the proof.
//!
//! **What can go wrong.** A turn, or a model that is asked what is worth remembering, is under way
//! when its session is deleted, and has something kept afterwards. So it is looked a second time,
//! [`LATE`] after the first: whoever keeps something has given up by then. So it is with what people
//! had erased of a session or a person, who go on: of them only what was said before goes then.

use std::time::Duration;

use holdfast_kit::Backoff;
use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{AgentId, TenantId};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use crate::{
    Error, keep,
    space::Views,
    store::{
        erasures::{self, Erasure, Rows},
        forget::{Count, Erase},
        late,
        sources::Conversations,
    },
    who::ALL_AGENTS,
};

/// How often it is looked for what was deleted.
const LOOK: Duration = Duration::from_secs(2);

/// When it is looked again for what was kept late.
pub const LATE: Duration = Duration::from_secs(15 * 60);

/// How often it is looked.
const PASSES: i32 = 2;

const AWAY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// The loop.
#[derive(Debug)]
pub struct Eraser {
    pools: Pools,
    views: Views,
}

impl Eraser {
    /// One that tells `views` of tenants who hold less than before.
    pub const fn new(pools: Pools, views: Views) -> Self {
        Self { pools, views }
    }

    /// Works until `stop`.
    ///
    /// # Errors
    ///
    /// None: what fails is tried again.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let pause = match self.step().await {
                Ok(()) => {
                    failures = 0;
                    LOOK
                }
                Err(error) => {
                    let pause = AWAY.delay(failures);
                    failures += 1;
                    let error = &error as &dyn std::error::Error;
                    warn!(error, again_in = ?pause, "what was deleted cannot be forgotten yet");
                    pause
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(pause) => {}
            }
        }
        Ok(())
    }

    /// Erases what is due; one that cannot be erased keeps no other.
    async fn step(&self) -> Result<(), Error> {
        let mut tx = self.pools.system().await?;
        let due = erasures::due(&mut tx).await?;
        tx.commit().await?;
        let mut failed = Ok(());
        for (tenant, id) in due {
            if let Err(error) = self.erase(tenant, id).await {
                failed = Err(error);
            }
        }
        failed
    }

    async fn erase(&self, tenant: TenantId, id: Uuid) -> Result<(), Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let Some(erasure) = erasures::take(&mut tx, id).await? else {
            tx.finish_reading();
            return Ok(());
        };
        let (erased, left) = match late::until(&mut tx, id).await? {
            None => keep::erase(&mut tx, &what(&erasure)?).await?,
            Some(until) => erase_late(&mut tx, &erasure, until).await?,
        };
        let is_last = erasure.passes + 1 >= PASSES;
        let again = (!is_last).then_some(LATE.as_secs_f64());
        let gone: i64 = erased.iter().map(|(_, rows)| rows).sum();
        let (erased, left) = (added(erasure.erased.0, &erased), added(Rows::new(), &left));
        erasures::looked(&mut tx, id, (&erased, &left), again).await?;
        tx.commit().await?;
        self.views.forget(tenant);
        if gone > 0 {
            info!(
                what = erasure.what,
                rows = gone,
                "what was remembered of a deleted one is erased"
            );
        }
        Ok(())
    }
}

/// Erases what was written before people had it erased, and was kept since.
async fn erase_late(
    tx: &mut TenantTx,
    erasure: &Erasure,
    until: jiff_sqlx::Timestamp,
) -> Result<(Vec<Count>, Vec<Count>), Error> {
    let (mut erased, mut left) = late::erase(tx, (&erasure.what, &erasure.subject), until).await?;
    if let Some(of) = Conversations::of(&what(erasure)?) {
        let (of_articles, left_of_articles) = keep::erase_articles(tx, &of.up_to(until)).await?;
        keep::add(&mut erased, &of_articles);
        keep::add(&mut left, &left_of_articles);
    }
    Ok((erased, left))
}

fn what(erasure: &Erasure) -> Result<Erase, Error> {
    match erasure.what.as_str() {
        "session" => Ok(Erase::Session(erasure.subject.clone(), None)),
        "user" => Ok(Erase::User(erasure.subject.clone())),
        "agent" => {
            let agent: AgentId = erasure.subject.parse()?;
            // What belongs to all agents is nobody's to take along.
            match agent.as_uuid() == ALL_AGENTS {
                true => Err(Error::Corrupt("erasure")),
                false => Ok(Erase::Agent(agent.as_uuid())),
            }
        }
        _ => Err(Error::Corrupt("erasure")),
    }
}

/// Rows by table, and those that came since.
pub fn added(mut rows: Rows, counts: &[Count]) -> Rows {
    for (what, count) in counts {
        *rows.entry((*what).to_owned()).or_default() += count;
    }
    rows
}
