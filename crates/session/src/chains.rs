//! Runs of chains: how far each has come, and telling whoever asked of its end.
//!
//! A chain's steps are subagents; what is next follows from how they ended, so a run needs no more
//! than its chain and its input. Going on with it twice changes nothing: a subagent's key is the same
//! for the same step, and the end is told under the run's id.

use std::time::Duration;

use holdfast_types::{Chain, RunId, SessionId, TenantId};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Accepted, Error, Sessions, Subagent};

/// The event's name under which a chain's end is told.
pub const CHAIN_ENDED: &str = "chain";

/// A run of a chain to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChainRun {
    /// Its id: the same for the same request.
    pub run: RunId,
    /// The session that asks for it.
    pub session: SessionId,
    /// The chain's name.
    pub name: String,
    /// The chain as it is now.
    pub chain: Chain,
    /// What is asked of it.
    pub input: String,
}

/// A run of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainRun {
    /// Its id.
    pub run: RunId,
    /// The session that asked for it.
    pub session: SessionId,
    /// The chain's name.
    pub name: String,
    /// The chain as it was then.
    pub chain: Chain,
    /// What was asked of it.
    pub input: String,
    /// The stage that is under way.
    pub stage: i32,
    /// How it ended, if it has: ok or error.
    pub outcome: Option<String>,
    /// How long it took, or has taken so far.
    pub took: Duration,
    /// Its subagents, those made first first.
    pub steps: Vec<Subagent>,
}

type Row = (Uuid, Uuid, String, Json<Chain>, String, i32, Option<String>, f64);

impl Sessions {
    /// Stores a run of a chain, once for the same id.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn start_chain(&self, tenant: TenantId, new: &NewChainRun) -> Result<(), Error> {
        const SQL: &str = "
            insert into session.chain_runs (tenant_id, run_id, session_id, name, spec, input)
            values ($1, $2, $3, $4, $5, $6)
            on conflict do nothing";
        let mut tx = self.pools.tenant(tenant).await?;
        sqlx::query(SQL)
            .bind(tenant.as_uuid())
            .bind(new.run.as_uuid())
            .bind(new.session.as_uuid())
            .bind(&new.name)
            .bind(Json(&new.chain))
            .bind(&new.input)
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// A run of a chain, with its subagents.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn chain_run(&self, tenant: TenantId, run: RunId) -> Result<Option<ChainRun>, Error> {
        const SQL: &str = "
            select run_id, session_id, name, spec, input, stage, outcome,
                   extract(epoch from coalesce(finished_at, clock_timestamp()) - started_at)::float8
            from session.chain_runs where tenant_id = $1 and run_id = $2";
        let mut tx = self.pools.tenant(tenant).await?;
        let row: Option<Row> = sqlx::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(run.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        let Some((run, session, name, chain, input, stage, outcome, took)) = row else {
            return Ok(None);
        };
        let run = RunId::from(run);
        Ok(Some(ChainRun {
            run,
            session: session.into(),
            name,
            chain: chain.0,
            input,
            stage,
            outcome,
            took: Duration::try_from_secs_f64(took).unwrap_or_default(),
            steps: self.chain_steps(tenant, run).await?,
        }))
    }

    /// Notes that a run has come to a stage.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn chain_at(&self, tenant: TenantId, run: RunId, stage: i32) -> Result<(), Error> {
        const SQL: &str = "
            update session.chain_runs set stage = $3
            where tenant_id = $1 and run_id = $2 and stage < $3";
        let mut tx = self.pools.tenant(tenant).await?;
        sqlx::query(SQL)
            .bind(tenant.as_uuid())
            .bind(run.as_uuid())
            .bind(stage)
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Tells the session that asked for a run how it ended, once, and notes it. `None` if that
    /// session is gone.
    ///
    /// # Errors
    ///
    /// [`Error::SessionFull`] if it takes no more for now: do it again later.
    pub async fn end_chain(
        &self,
        tenant: TenantId,
        run: &ChainRun,
        outcome: &'static str,
        told: String,
    ) -> Result<Option<Accepted>, Error> {
        const SQL: &str = "
            update session.chain_runs set outcome = $3, finished_at = clock_timestamp()
            where tenant_id = $1 and run_id = $2 and outcome is null";
        let key = format!("chain:{}", run.run);
        let accepted = match self.notice(tenant, run.session, CHAIN_ENDED, key, told).await? {
            Some(message) => Some(self.ingest(tenant, message).await?),
            None => None,
        };
        let mut tx = self.pools.tenant(tenant).await?;
        sqlx::query(SQL)
            .bind(tenant.as_uuid())
            .bind(run.run.as_uuid())
            .bind(outcome)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(accepted)
    }
}
