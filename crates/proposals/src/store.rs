//! `work.proposals`.

use holdfast_directory::Actor;
use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, ProposalId};
use sqlx::FromRow;
use uuid::Uuid;

use crate::{Error, NewProposal, Proposal, ProposalFilter, ProposalState, target::CurrentText};

#[derive(FromRow)]
struct Row {
    proposal_id: Uuid,
    agent_id: Uuid,
    session_id: Uuid,
    list_id: Uuid,
    kind: String,
    target: String,
    goal: String,
    risk: String,
    benefit: String,
    content: String,
    before: Option<String>,
    base: String,
    diff: String,
    outside: bool,
    state: String,
    reason: String,
    decided_by: Option<String>,
    decided_at: Option<jiff_sqlx::Timestamp>,
    applied_as: Option<String>,
    created_at: jiff_sqlx::Timestamp,
}

impl Row {
    fn read(self) -> Result<Proposal, Error> {
        Ok(Proposal {
            id: self.proposal_id.into(),
            agent: self.agent_id.into(),
            session: self.session_id.into(),
            list: self.list_id.into(),
            kind: self.kind.parse().map_err(|_unknown| Error::Corrupt("kind of a proposal"))?,
            target: self.target,
            goal: self.goal,
            risk: self.risk,
            benefit: self.benefit,
            content: self.content,
            before: self.before,
            base: self.base,
            diff: self.diff,
            outside: self.outside,
            state: self.state.parse().map_err(|_unknown| Error::Corrupt("state of a proposal"))?,
            reason: self.reason,
            decided_by: self.decided_by,
            decided_at: self.decided_at.map(jiff_sqlx::Timestamp::to_jiff),
            applied_as: self.applied_as,
            created_at: self.created_at.to_jiff(),
        })
    }
}

macro_rules! columns {
    () => {
        "proposal_id, agent_id, session_id, list_id, kind, target, goal, risk, benefit, content, \
         before, base, diff, outside, state, reason, decided_by, decided_at, applied_as, created_at"
    };
}

/// Stores a proposal. `None` if there is one with this key.
pub(crate) async fn insert(
    tx: &mut TenantTx,
    new: &NewProposal,
    (target, current, diff): (&str, &CurrentText, &str),
) -> Result<Option<Proposal>, Error> {
    const SQL: &str = concat!(
        "insert into work.proposals (tenant_id, proposal_id, agent_id, session_id, list_id, key, kind,
                                     target, goal, risk, benefit, content, before, base, diff, outside)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
         on conflict on constraint proposals_key do nothing
         returning ",
        columns!()
    );
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(ProposalId::generate().as_uuid())
        .bind(new.place.agent.as_uuid())
        .bind(new.place.session.as_uuid())
        .bind(new.place.list.as_uuid())
        .bind(&new.key)
        .bind(new.kind.as_str())
        .bind(target)
        .bind(&new.goal)
        .bind(&new.risk)
        .bind(&new.benefit)
        .bind(&new.content)
        .bind(&current.text)
        .bind(&current.base)
        .bind(diff)
        .bind(new.outside)
        .fetch_optional(tx.conn())
        .await?;
    row.map(Row::read).transpose()
}

pub(crate) async fn by_key(tx: &mut TenantTx, key: &str) -> Result<Option<Proposal>, Error> {
    const SQL: &str =
        concat!("select ", columns!(), " from work.proposals where tenant_id = $1 and key = $2");
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(key).fetch_optional(tx.conn()).await?;
    row.map(Row::read).transpose()
}

pub(crate) async fn get(tx: &mut TenantTx, id: ProposalId) -> Result<Proposal, Error> {
    const SQL: &str = concat!(
        "select ",
        columns!(),
        " from work.proposals where tenant_id = $1 and proposal_id = $2"
    );
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_as(SQL).bind(tenant).bind(id.as_uuid());
    let row: Option<Row> = query.fetch_optional(tx.conn()).await?;
    row.ok_or(Error::NotFound(id))?.read()
}

/// Returns proposals, newest first.
pub(crate) async fn list(
    tx: &mut TenantTx,
    filter: ProposalFilter,
) -> Result<Vec<Proposal>, Error> {
    const SQL: &str = concat!(
        "select ",
        columns!(),
        " from work.proposals
          where tenant_id = $1 and ($2::uuid is null or agent_id = $2)
            and ($3::text is null or state = $3)
          order by created_at desc, proposal_id desc limit $4"
    );
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(filter.agent.map(AgentId::as_uuid))
        .bind(filter.state.map(ProposalState::as_str))
        .bind(i64::from(filter.limit))
        .fetch_all(tx.conn())
        .await?;
    rows.into_iter().map(Row::read).collect()
}

/// Number of a tenant's proposals that nobody has decided about; at most 1000.
pub(crate) async fn count_all_open(tx: &mut TenantTx) -> Result<i64, Error> {
    const SQL: &str = "
        select count(*) from (
            select from work.proposals where tenant_id = $1 and state = 'proposed' limit 1000) p";
    let tenant = tx.tenant().as_uuid();
    Ok(holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await?)
}

/// Number of an agent's proposals that nobody has decided about.
pub(crate) async fn count_open(tx: &mut TenantTx, agent: AgentId) -> Result<i64, Error> {
    const SQL: &str = "select count(*) from work.proposals
                       where tenant_id = $1 and agent_id = $2 and state = 'proposed'";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_scalar(SQL).bind(tenant).bind(agent.as_uuid());
    Ok(query.fetch_one(tx.conn()).await?)
}

/// A change of a proposal's state.
pub(crate) struct Decision<'a> {
    pub(crate) from: ProposalState,
    pub(crate) to: ProposalState,
    pub(crate) by: Actor,
    pub(crate) reason: &'a str,
    /// Version of what was applied.
    pub(crate) version: Option<&'a str>,
}

/// Changes the state. `None` if the proposal is in another state than the decision is made from.
pub(crate) async fn decide(
    tx: &mut TenantTx,
    id: ProposalId,
    decision: &Decision<'_>,
) -> Result<Option<Proposal>, Error> {
    const SQL: &str = concat!(
        "update work.proposals
         set state = $4, decided_by = $5, decided_at = clock_timestamp(), reason = $6,
             applied_as = coalesce($7, applied_as)
         where tenant_id = $1 and proposal_id = $2 and state = $3
         returning ",
        columns!()
    );
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(decision.from.as_str())
        .bind(decision.to.as_str())
        .bind(decision.by.to_string())
        .bind(decision.reason)
        .bind(decision.version)
        .fetch_optional(tx.conn())
        .await?;
    row.map(Row::read).transpose()
}
