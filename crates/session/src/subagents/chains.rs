//! Chain runs: their progress, and the message to the requester at the end.
//!
//! The steps of a chain are subagents, and the next step follows from how they ended, so a run
//! stores only its chain, its input and its progress. Continuing a run twice changes nothing: a
//! step's subagent has a fixed key, and the end is announced under the run's id.

use std::time::Duration;

use holdfast_types::{Chain, RunId, SessionId, TenantId};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Acceptance, Error, Subagent, Subagents};

/// Event name of the message that reports a chain's end.
pub const CHAIN_EVENT: &str = "chain";

/// A chain run to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChainRun {
    /// A repeated request has the same id.
    pub run: RunId,
    pub session: SessionId,
    pub name: String,
    /// Definition of the chain at the start of the run.
    pub chain: Chain,
    pub input: String,
    /// The part of the agent's files that the requester sees, and so do the steps.
    pub files_of: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainRun {
    pub run: RunId,
    pub session: SessionId,
    pub name: String,
    /// Definition of the chain at the start of the run.
    pub chain: Chain,
    pub input: String,
    /// The part of the agent's files that the steps see; `None` if an earlier version started the
    /// run.
    pub files_of: Option<String>,
    /// Index of the current stage.
    pub stage: i32,
    /// `ok` or `error`; `None` while the run has not ended.
    pub outcome: Option<String>,
    /// Duration; until the last of its steps ended, if the end is not recorded yet, and until now
    /// if a step has not ended.
    pub took: Duration,
    /// Subagents of the run, ordered by stage.
    pub steps: Vec<Subagent>,
}

type Row = (Uuid, Uuid, String, Json<Chain>, String, Option<String>, i32, Option<String>, f64);

impl Subagents<'_> {
    /// Stores a chain run; a run with the same id stays unchanged.
    pub async fn start_chain(self, tenant: TenantId, new: &NewChainRun) -> Result<(), Error> {
        const SQL: &str = "
            insert into session.chain_runs (tenant_id, run_id, session_id, name, spec, input, files_of)
            values ($1, $2, $3, $4, $5, $6, $7)
            on conflict do nothing";
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(new.run.as_uuid())
            .bind(new.session.as_uuid())
            .bind(&new.name)
            .bind(Json(&new.chain))
            .bind(&new.input)
            .bind(&new.files_of)
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Returns a chain run with its subagents.
    pub async fn chain_run(self, tenant: TenantId, run: RunId) -> Result<Option<ChainRun>, Error> {
        const SQL: &str = "
            select run_id, session_id, name, spec, input, files_of, stage, outcome,
                   extract(epoch from coalesce(
                       finished_at,
                       (select case when bool_and(a.finished_at is not null)
                                    then max(a.finished_at) end
                        from session.subagents a
                        where a.tenant_id = $1 and a.chain_run_id = $2),
                       clock_timestamp()) - started_at)::float8
            from session.chain_runs where tenant_id = $1 and run_id = $2";
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        let row: Option<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(run.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        let Some((run, session, name, chain, input, files_of, stage, outcome, took)) = row else {
            return Ok(None);
        };
        let run = RunId::from(run);
        Ok(Some(ChainRun {
            run,
            session: session.into(),
            name,
            chain: chain.0,
            input,
            files_of,
            stage,
            outcome,
            took: Duration::try_from_secs_f64(took).unwrap_or_default(),
            steps: self.chain_steps(tenant, run).await?,
        }))
    }

    /// Records that a run reached a stage; a lower stage changes nothing.
    pub async fn set_chain_stage(
        self,
        tenant: TenantId,
        run: RunId,
        stage: i32,
    ) -> Result<(), Error> {
        const SQL: &str = "
            update session.chain_runs set stage = $3
            where tenant_id = $1 and run_id = $2 and stage < $3";
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(run.as_uuid())
            .bind(stage)
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Tells the requester how a run ended, once, and records the end. Returns `None` if the
    /// requester's session is deleted, or if an earlier try told it in other words.
    ///
    /// # Errors
    ///
    /// [`Error::SessionFull`] if the requester's inbox is full: try again later.
    pub async fn end_chain(
        self,
        tenant: TenantId,
        run: &ChainRun,
        outcome: &'static str,
        told: String,
    ) -> Result<Option<Acceptance>, Error> {
        const SQL: &str = "
            update session.chain_runs set outcome = $3, finished_at = clock_timestamp()
            where tenant_id = $1 and run_id = $2 and outcome is null";
        let key = format!("chain:{}", run.run);
        let message = self.event_message(tenant, run.session, CHAIN_EVENT, key, told).await?;
        let accepted = self.tell_once(tenant, message).await?;
        let mut tx = self.sessions.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(run.run.as_uuid())
            .bind(outcome)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(accepted)
    }
}
