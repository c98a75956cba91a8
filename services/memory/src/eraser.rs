//! Erasure of all data about deleted sessions and agents, and second pass of erasures that people
//! requested.
//!
//! The deleting service inserts a row in its own transaction (`memory.forget_later`), so nothing is
//! missed while this service is down. Erased and remaining rows are counted in the transaction that
//! erases; the row keeps the counts as proof.
//!
//! **What can go wrong.** A turn or a memory extraction is running when its session is deleted, and
//! stores something afterwards. So each erasure has a second pass, [`second_pass::DELAY`] after the first: by
//! then such writers have given up. If people erased a session or a user that continues to exist,
//! the second pass erases only what was said before the request.

use std::time::Duration;

use holdfast_kit::Backoff;
use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{AgentId, TenantId};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use crate::{
    Error, operations,
    space::Views,
    store::{
        erasures::{self, Erasure, Rows},
        forget::{Count, Erase},
        second_pass,
        sources::Conversations,
    },
    viewer::ALL_AGENTS,
};

/// Interval of the check for due erasures.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Passes per erasure.
const MAX_PASSES: i32 = 2;

const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

#[derive(Debug)]
pub struct Eraser {
    pools: Pools,
    views: Views,
}

impl Eraser {
    /// Creates an eraser. `views` is invalidated for tenants whose data was erased.
    pub const fn new(pools: Pools, views: Views) -> Self {
        Self { pools, views }
    }

    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let pause = match self.step().await {
                Ok(()) => {
                    failures = 0;
                    POLL_INTERVAL
                }
                Err(error) => {
                    let pause = RETRY_BACKOFF.delay(failures);
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

    /// Processes all due erasures; one failure does not stop the others.
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
        let (erased, left) = match second_pass::until(&mut tx, id).await? {
            None => operations::erase(&mut tx, &target(&erasure)?).await?,
            Some(until) => erase_late(&mut tx, &erasure, until).await?,
        };
        let is_last = erasure.passes + 1 >= MAX_PASSES;
        let again = (!is_last).then_some(second_pass::DELAY.as_secs_f64());
        let gone: i64 = erased.iter().map(|(_, rows)| rows).sum();
        let (erased, left) = (
            erasures::add_counts(erasure.erased.0, &erased),
            erasures::add_counts(Rows::new(), &left),
        );
        erasures::record_pass(&mut tx, id, (&erased, &left), again).await?;
        tx.commit().await?;
        self.views.invalidate(tenant);
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

/// Erases data that was written before the request and stored after it.
async fn erase_late(
    tx: &mut TenantTx,
    erasure: &Erasure,
    until: jiff_sqlx::Timestamp,
) -> Result<(Vec<Count>, Vec<Count>), Error> {
    let (mut erased, mut left) =
        second_pass::erase(tx, (&erasure.what, &erasure.subject), until).await?;
    if let Some(of) = Conversations::of(&target(erasure)?) {
        let (of_articles, left_of_articles) =
            operations::erase_articles(tx, &of.up_to(until)).await?;
        operations::add(&mut erased, &of_articles);
        operations::add(&mut left, &left_of_articles);
    }
    Ok((erased, left))
}

fn target(erasure: &Erasure) -> Result<Erase, Error> {
    match erasure.what.as_str() {
        "session" => Ok(Erase::Session(erasure.subject.clone(), None)),
        "user" => Ok(Erase::User(erasure.subject.clone())),
        "agent" => {
            let agent: AgentId = erasure.subject.parse()?;
            // The nil agent owns what all agents share; it is never erased.
            match agent.as_uuid() == ALL_AGENTS {
                true => Err(Error::Corrupt("erasure")),
                false => Ok(Erase::Agent(agent.as_uuid())),
            }
        }
        _ => Err(Error::Corrupt("erasure")),
    }
}
