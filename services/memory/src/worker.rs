//! Embedding worker: embeds queued units, embeds all units again after a change of models, and
//! builds tenants' indexes.
//!
//! A unit is claimed from the queue table for a minute, and is deleted from it in the transaction
//! after its vector is written: nothing is lost in a crash, and no vector is written twice. Tenants
//! take turns with one batch each, so a large import delays other tenants by one batch at most.
//!
//! **What can go wrong.** The embedder is unavailable: claimed units go back to the queue, and the
//! worker retries with growing delays. The embedder refuses one text for good: the batch is
//! repeated text by text, and that one is given up after [`TRIES`](crate::store::queue::TRIES);
//! keyword search still finds it.
//! up after [`TRIES`](crate::store::queue::TRIES); its words find it still.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use holdfast_embed::{Embedder, Purpose};
use holdfast_kit::Backoff;
use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{Fault as _, TenantId};
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use crate::{
    Error,
    embedders::Embedders,
    space::{VIEW_MAX_AGE, Views},
    store::{
        items,
        queue::{self, QueuedUnit},
        spaces,
        vectors::{self, Model},
    },
    unit::embedded_text,
};

/// Units per batch.
const BATCH_SIZE: i64 = 64;

/// Interval of the queue check without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of the maintenance work: changed models, expired items.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);

/// Time in seconds that a former model's vectors are kept, for processes that have not noticed the
/// change.
const FORMER_VECTORS_SECONDS: i64 = 12 * VIEW_MAX_AGE.as_secs() as i64;

/// Rows per step of the maintenance work.
const PAGE_SIZE: i64 = 1_000;

/// Factor by which a tenant may exceed the index threshold while it is being filled.
const MAX_DEFERRAL_FACTOR: i64 = 3;

const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

#[derive(Debug)]
pub struct Worker {
    pools: Pools,
    embedders: Embedders,
    views: Views,
    waiting: Arc<Notify>,
    index_above: i64,
    started: Instant,
    last: Option<TenantId>,
}

impl Worker {
    /// Creates a worker that is notified by `waiting` when units are queued.
    pub fn new(
        pools: Pools,
        embedders: Embedders,
        views: Views,
        waiting: Arc<Notify>,
        index_above: u32,
    ) -> Self {
        Self {
            pools,
            embedders,
            views,
            waiting,
            index_above: index_above.into(),
            started: Instant::now(),
            last: None,
        }
    }

    /// Runs until `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// If stored vectors of a configured model have another dimension. Other failures are retried.
    pub async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        self.check_dimension(&stop).await?;
        let mut failures = 0;
        let mut tended: Option<Instant> = None;
        while !stop.is_cancelled() {
            let mut done = self.step().await;
            if done.is_ok() && tended.is_none_or(|at| at.elapsed() >= MAINTENANCE_INTERVAL) {
                done = self.run_maintenance().await.map(|more| more || matches!(done, Ok(true)));
                tended = Some(Instant::now());
            }
            let pause = match done {
                Ok(true) => {
                    failures = 0;
                    continue;
                }
                Ok(false) => {
                    failures = 0;
                    POLL_INTERVAL
                }
                Err(error) => {
                    let pause = RETRY_BACKOFF.delay(failures);
                    failures += 1;
                    warn!(
                        error = &error as &dyn std::error::Error,
                        again_in = ?pause,
                        "embedding failed"
                    );
                    pause
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.waiting.notified(), if failures == 0 => {}
                () = sleep(pause) => {}
            }
        }
        Ok(())
    }

    /// Checks that no model's dimension was changed: stored vectors are distinguished by the
    /// model's name only, and cannot be compared if their dimensions differ.
    async fn check_dimension(&self, stop: &CancellationToken) -> anyhow::Result<()> {
        let models = [Some(&self.embedders.current), self.embedders.former.as_ref()];
        for embedder in models.into_iter().flatten() {
            let model = Model { name: embedder.model(), dimension: embedder.dimension() };
            let Some(other) = self.stored_dimension(model, stop).await else { continue };
            bail!(
                "the vectors of the model `{}` have {other} numbers here, and the settings say {}: \
                 set `memory.embedding.dimension` back, or take a model of another name",
                model.name,
                model.dimension
            );
        }
        Ok(())
    }

    /// Returns the differing stored dimension, if any; waits until the database answers.
    async fn stored_dimension(&self, model: Model<'_>, stop: &CancellationToken) -> Option<i32> {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let asked = async {
                let mut tx = self.pools.system().await?;
                let other = spaces::other_dimension(&mut tx, model).await?;
                tx.finish_reading();
                Ok::<_, sqlx::Error>(other)
            };
            match asked.await {
                Ok(other) => return other,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "the dimension of vectors is not known yet");
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(RETRY_BACKOFF.delay(failures)) => failures += 1,
            }
        }
        None
    }

    /// Embeds a batch of the next tenant. Returns whether there was one.
    async fn step(&mut self) -> Result<bool, Error> {
        let mut tx = self.pools.system().await?;
        let Some(tenant) = queue::next_tenant(&mut tx, self.last).await? else {
            tx.finish_reading();
            return Ok(false);
        };
        self.last = Some(tenant);
        let units = queue::claim(&mut tx, tenant, BATCH_SIZE).await?;
        tx.commit().await?;
        match self.embed(tenant, &units).await {
            Err(error) if error.kind().is_transient() => {
                let mut tx = self.pools.system().await?;
                queue::give_back(&mut tx, tenant, &units).await?;
                tx.commit().await?;
                return Err(error);
            }
            Err(error) if units.len() > 1 => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    units = units.len(),
                    "a batch cannot be embedded, so its texts are tried one by one"
                );
                for unit in &units {
                    if let Err(error) = self.embed(tenant, &[*unit]).await {
                        let error = &error as &dyn std::error::Error;
                        warn!(error, unit.id = %unit, "a text cannot be embedded");
                    }
                }
            }
            done => done?,
        }
        Ok(true)
    }

    /// Writes the vectors of units and removes them from the queue.
    async fn embed(&self, tenant: TenantId, units: &[Uuid]) -> Result<(), Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let texts = queue::texts(&mut tx, units).await?;
        let space = spaces::get(&mut tx).await?;
        tx.finish_reading();

        let now = Arc::clone(&self.embedders.current);
        let is_scanned = self.embed_by(tenant, &now, &texts).await?;
        // Until the switch, questions are embedded by the former model: it must find new units too.
        if let Some(former) = self.embedders.former.clone()
            && space.is_some_and(|space| space.model == former.model())
        {
            self.embed_by(tenant, &former, &texts).await?;
        }
        let mut tx = self.pools.tenant(tenant).await?;
        queue::done(&mut tx, units).await?;
        let began = Instant::now();
        let made =
            if is_scanned { self.build_index_if_large(&mut tx, now.model()).await? } else { 0 };
        tx.commit().await?;
        if made > 0 {
            self.views.invalidate(tenant);
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            info!(tenant.id = %tenant, vectors = made, duration_ms = took_ms, "made an index");
        }
        Ok(())
    }

    /// Writes the vectors of one model. Returns whether the tenant is searched by this model with
    /// an exact scan.
    async fn embed_by(
        &self,
        tenant: TenantId,
        embedder: &Arc<dyn Embedder>,
        texts: &[QueuedUnit],
    ) -> Result<bool, Error> {
        let model = Model { name: embedder.model(), dimension: embedder.dimension() };
        let ids: Vec<Uuid> = texts.iter().map(|waiting| waiting.unit_id).collect();
        let mut tx = self.pools.tenant(tenant).await?;
        let reused: HashSet<Uuid> =
            vectors::reuse(&mut tx, model.name, &ids).await?.into_iter().collect();
        tx.commit().await?;

        let rest: Vec<&QueuedUnit> =
            texts.iter().filter(|waiting| !reused.contains(&waiting.unit_id)).collect();
        let said: Vec<String> =
            rest.iter().map(|waiting| embedded_text(&waiting.headings, &waiting.text)).collect();
        let made = if said.is_empty() {
            Vec::new()
        } else {
            embedder.embed(&said, Purpose::Passage).await?
        };
        let vectors: Vec<(Uuid, &[f32])> = rest
            .iter()
            .zip(&made)
            .map(|(waiting, vector)| (waiting.unit_id, vector.as_slice()))
            .collect();

        let mut tx = self.pools.tenant(tenant).await?;
        let space = spaces::ensure(&mut tx, model).await?;
        let written = vectors::insert(&mut tx, model, &vectors).await?;
        tx.commit().await?;
        metrics::counter!("holdfast_memory_embedded_units_total").increment(written);
        Ok(space.model == model.name && space.own.is_none())
    }

    /// Builds the tenant's index if it has become large enough. Returns the number of vectors in
    /// it.
    ///
    /// While more units are queued, this waits until [`AT_LAST`] times the threshold: building an
    /// index takes a tenth of the time of inserting into one.
    async fn build_index_if_large(&self, tx: &mut TenantTx, model: &str) -> Result<i64, Error> {
        let above =
            self.index_above * if queue::has_queued(tx).await? { MAX_DEFERRAL_FACTOR } else { 1 };
        if vectors::count(tx, model, above + 1).await? <= above {
            return Ok(0);
        }
        Ok(spaces::make_own(tx).await?)
    }

    /// Does the maintenance work. Returns whether there is more to do at once.
    async fn run_maintenance(&self) -> Result<bool, Error> {
        let now = Arc::clone(&self.embedders.current);
        let model = Model { name: now.model(), dimension: now.dimension() };
        let running = i64::try_from(self.started.elapsed().as_secs()).unwrap_or(i64::MAX);
        let mut tx = self.pools.system().await?;
        let outdated = spaces::outdated(&mut tx, model.name, running).await?;
        let former = spaces::with_former(&mut tx, FORMER_VECTORS_SECONDS).await?;
        let expiring = items::expiring(&mut tx).await?;
        tx.commit().await?;

        let mut more = false;
        // A former model that is current again keeps its vectors.
        for (tenant, former) in former.into_iter().filter(|(_, former)| *former != model.name) {
            more |= self.delete_former_vectors(tenant, &former).await?;
        }
        for tenant in outdated {
            more |= self.reembed(tenant, model).await?;
        }
        for tenant in expiring {
            let mut tx = self.pools.tenant(tenant).await?;
            items::expire(&mut tx).await?;
            tx.commit().await?;
        }
        Ok(more)
    }

    /// Queues the units that have no vector of the new model; once all have one, switches the
    /// tenant to it. Returns whether units were queued.
    async fn reembed(&self, tenant: TenantId, model: Model<'_>) -> Result<bool, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let (waiting, given_up) = queue::counts(&mut tx).await?;
        tx.finish_reading();
        if waiting > given_up {
            return Ok(false);
        }
        let mut after = Uuid::nil();
        loop {
            let mut tx = self.pools.tenant(tenant).await?;
            let last = queue::queue_missing(&mut tx, model.name, after, PAGE_SIZE).await?;
            tx.commit().await?;
            match last {
                Some(last) => after = last,
                None => break,
            }
        }
        let mut tx = self.pools.tenant(tenant).await?;
        let (waiting, given_up) = queue::counts(&mut tx).await?;
        if waiting > given_up {
            tx.finish_reading();
            info!(tenant.id = %tenant, units = waiting, model = model.name, "embedding anew");
            return Ok(true);
        }
        let is_switched = spaces::switch(&mut tx, model).await?;
        tx.commit().await?;
        if !is_switched {
            return Ok(false);
        }
        self.views.invalidate(tenant);
        info!(tenant.id = %tenant, model = model.name, "all is embedded anew");
        Ok(false)
    }

    /// Deletes some of a former model's vectors. Returns whether there are more.
    async fn delete_former_vectors(&self, tenant: TenantId, former: &str) -> Result<bool, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let removed = vectors::remove_some(&mut tx, former, PAGE_SIZE).await?;
        if removed == 0 {
            spaces::forget_former(&mut tx, former).await?;
        }
        tx.commit().await?;
        Ok(removed > 0)
    }
}
