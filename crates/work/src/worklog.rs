//! Worklog: what an agent and its subagents did, for people and for prompts.
//!
//! | type | written for | shown in prompts |
//! |---|---|---|
//! | `GetMessage.v1` | a message that a step was given | no |
//! | `ReplyMessage.v1` | a text for a person | yes |
//! | `FunctionRecord.v1` | a tool that the model called within a step | no |
//! | `ActionRecord.v1` | an action that a step's result asked for | yes |
//! | `CreateSubAgent.v1` | a subagent that was started | yes |
//! | `TodoChange.v1` | an operation on the todo list | yes |
//! | `Payment.v1` | a payment of the agent's wallet | yes |
//! | `SelfUpdate.v1` | a change of what the agent says of itself | yes |
//! | `Proposal.v1` | a proposal of the agent that was made or decided | yes |
//! | `StepSummary.v1` | a step | yes |
//! | `StepRolledBack.v1` | a step that a person has rolled back | yes |
//!
//! Records that are written within a step are `PENDING` until the step is saved, which makes them
//! `COMMITTED`. Those of a step that was not saved become `ABORTED` when the session saves another,
//! and those of a step that is rolled back with the rollback.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, RunId, SessionId};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use crate::{Error, Place, members::list_of, todo::tokens};

pub(crate) const GET_MESSAGE: &str = "GetMessage.v1";
pub(crate) const REPLY_MESSAGE: &str = "ReplyMessage.v1";
pub(crate) const FUNCTION_RECORD: &str = "FunctionRecord.v1";
pub(crate) const ACTION_RECORD: &str = "ActionRecord.v1";
pub(crate) const CREATE_SUBAGENT: &str = "CreateSubAgent.v1";
pub(crate) const TODO_CHANGE: &str = "TodoChange.v1";
pub(crate) const PAYMENT: &str = "Payment.v1";
pub(crate) const SELF_UPDATE: &str = "SelfUpdate.v1";
pub(crate) const PROPOSAL: &str = "Proposal.v1";
pub(crate) const STEP_SUMMARY: &str = "StepSummary.v1";
pub(crate) const STEP_ROLLED_BACK: &str = "StepRolledBack.v1";

/// Records that a prompt is made of.
const RECORDS_FOR_PROMPT: i64 = 256;
const IMPACTS_IN_PROMPT: usize = 6;
const DIGESTS_IN_PROMPT: usize = 8;
const DETAILS_IN_PROMPT: usize = 2;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImpactLevel {
    /// The world outside of the agent is changed, or may be.
    External,
    /// The agent's own files, todos or memory are changed.
    Internal,
    #[default]
    None,
}

impl ImpactLevel {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Internal => "internal",
            Self::None => "none",
        }
    }
}

/// A record to be written.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NewRecord {
    pub id: Uuid,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub todo: Option<String>,
    pub level: ImpactLevel,
    pub domain: &'static str,
    /// Whether it failed.
    pub error: Option<String>,
    pub payload: Value,
    pub artifacts: Vec<String>,
    pub digest: String,
    pub detail: String,
    pub trace: Option<String>,
    /// Whether the record is that of its step, which is being saved.
    pub is_saved: bool,
}

impl NewRecord {
    pub fn new(kind: &'static str, payload: Value, digest: String) -> Self {
        let (level, domain) = match kind {
            TODO_CHANGE => (ImpactLevel::Internal, "todo"),
            PAYMENT => (ImpactLevel::External, "wallet"),
            SELF_UPDATE | PROPOSAL => (ImpactLevel::Internal, "self"),
            STEP_ROLLED_BACK => (ImpactLevel::Internal, "step"),
            _ => (ImpactLevel::None, ""),
        };
        Self {
            id: Uuid::now_v7(),
            kind,
            todo: None,
            level,
            domain,
            error: None,
            payload,
            artifacts: Vec::new(),
            digest,
            detail: String::new(),
            trace: None,
            is_saved: false,
        }
    }
}

/// Appends records to the worklog of the place's list. Returns the `seq` of the last one, or 0 if
/// there is none.
pub(crate) async fn append(
    tx: &mut TenantTx,
    place: &Place,
    records: &[NewRecord],
) -> Result<i64, Error> {
    const SQL: &str = "
        with head as (
            insert into work.lists as l (tenant_id, list_id, agent_id, log_seq)
            select $1, coalesce((select m.list_id from work.list_members m
                                 where m.tenant_id = $1 and m.session_id = $2), $2), $3, $4
            on conflict (tenant_id, list_id) do update set log_seq = l.log_seq + $4
            returning list_id, log_seq)
        insert into work.worklog
            (tenant_id, list_id, seq, record_id, type, scope, agent_id, session_id, run_id, behavior,
             step, todo, impact_level, domain, importance, status, trace, payload, artifacts, error,
             digest, detail, commit_state, member_id, outside)
        select $1, head.list_id, head.log_seq - $4 + r.place, (r.body->>'id')::uuid,
               r.body->>'type',
               case when $2 <> $5 then 'subagent' when head.list_id <> $2 then 'workspace'
                    else 'session' end,
               $3, $5, $6, $7, $8,
               coalesce(r.body->>'todo', $9), r.body->>'level', r.body->>'domain',
               case r.body->>'level' when 'external' then 2 when 'internal' then 1 else 0 end,
               case when r.body->>'error' is null then 'OK' else 'FAILED' end, r.body->>'trace',
               r.body->'payload', r.body->'artifacts', r.body->>'error', r.body->>'digest',
               r.body->>'detail',
               case when $10 and not (r.body->>'is_saved')::boolean then 'PENDING' else 'COMMITTED' end,
               nullif($2, head.list_id), $12
        from head, unnest($11::jsonb[]) with ordinality r (body, place)
        returning seq";

    if records.is_empty() {
        return Ok(0);
    }
    let written: Vec<i64> = holdfast_pg::query_scalar(SQL)
        .bind(tx.tenant().as_uuid())
        .bind(place.list.as_uuid())
        .bind(place.agent.as_uuid())
        .bind(crate::to_column(records.len() as u64))
        .bind(place.session.as_uuid())
        .bind(place.run.map(RunId::as_uuid))
        .bind(&place.behavior)
        .bind(i32::try_from(place.step).unwrap_or(i32::MAX))
        .bind(&place.todo)
        .bind(place.is_in_step())
        .bind(records.iter().map(Json).collect::<Vec<_>>())
        .bind(place.has_outside_text)
        .fetch_all(tx.conn())
        .await?;
    Ok(written.into_iter().max().unwrap_or(0))
}

/// A record that a rollback has aborted.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct AbortedRecord {
    /// Such as `ActionRecord.v1`.
    pub r#type: String,
    /// `external`, `internal` or `none`.
    pub impact_level: String,
    /// Name of the tool; empty in records of other things.
    pub tool: String,
    /// One line.
    pub digest: String,
    pub failed: bool,
}

/// Aborts the records of a step that came after the `seq` of `after`, and returns them in their
/// order.
pub async fn abort_step(
    tx: &mut TenantTx,
    place: &Place,
    after: i64,
) -> Result<Vec<AbortedRecord>, Error> {
    const SQL: &str = "
        with aborted as (
            update work.worklog set commit_state = 'ABORTED'
            where tenant_id = $1 and list_id = $2 and seq > $3 and session_id = $4 and run_id = $5
              and behavior = $6 and step = $7 and commit_state <> 'ABORTED' and type <> $8
            returning seq, type, impact_level, coalesce(payload->>'tool', '') as tool, digest,
                      error is not null as failed)
        select type, impact_level, tool, digest, failed from aborted order by seq";
    let (tenant, list) = (tx.tenant().as_uuid(), list_of(tx, place.list).await?);
    Ok(holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(list.as_uuid())
        .bind(after)
        .bind(place.session.as_uuid())
        .bind(place.run.map(RunId::as_uuid))
        .bind(&place.behavior)
        .bind(i32::try_from(place.step).unwrap_or(i32::MAX))
        .bind(STEP_ROLLED_BACK)
        .fetch_all(tx.conn())
        .await?)
}

/// `seq` of the summary of the session's newest step that is committed; 0 if there is none.
pub async fn newest_step(tx: &mut TenantTx, place: &Place) -> Result<i64, Error> {
    const SQL: &str = "
        select coalesce(max(seq), 0) from work.worklog
        where tenant_id = $1 and list_id = $2 and session_id = $3 and type = $4
          and commit_state = 'COMMITTED'";
    let (tenant, list) = (tx.tenant().as_uuid(), list_of(tx, place.list).await?);
    Ok(holdfast_pg::query_scalar(SQL)
        .bind(tenant)
        .bind(list.as_uuid())
        .bind(place.session.as_uuid())
        .bind(STEP_SUMMARY)
        .fetch_one(tx.conn())
        .await?)
}

/// Commits the session's pending records of this step, and aborts those of other steps.
pub(crate) async fn settle_pending(tx: &mut TenantTx, place: &Place) -> Result<(), Error> {
    const SQL: &str = "
        update work.worklog
        set commit_state = case
            when run_id is not distinct from $3 and behavior = $4 and step = $5 then 'COMMITTED'
            else 'ABORTED' end
        where tenant_id = $1 and session_id = $2 and commit_state = 'PENDING'";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(place.session.as_uuid())
        .bind(place.run.map(RunId::as_uuid))
        .bind(&place.behavior)
        .bind(i32::try_from(place.step).unwrap_or(i32::MAX))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// A record of the worklog.
#[derive(Debug, Clone, PartialEq)]
pub struct WorklogRecord {
    pub seq: i64,
    pub id: Uuid,
    pub at: Timestamp,
    pub kind: String,
    /// `session`, `workspace` or `subagent`.
    pub scope: String,
    pub agent: AgentId,
    pub session: SessionId,
    pub run: Option<RunId>,
    pub behavior: String,
    pub step: u32,
    pub todo: Option<String>,
    /// `external`, `internal` or `none`.
    pub impact_level: String,
    pub domain: String,
    pub importance: i16,
    /// `OK`, `FAILED` or `PENDING`.
    pub status: String,
    pub trace: Option<String>,
    pub payload: Value,
    pub artifacts: Vec<String>,
    pub error: Option<String>,
    pub digest: String,
    pub detail: String,
    /// `PENDING`, `COMMITTED` or `ABORTED`.
    pub commit_state: String,
}

#[derive(FromRow)]
struct Row {
    seq: i64,
    record_id: Uuid,
    at: jiff_sqlx::Timestamp,
    r#type: String,
    scope: String,
    agent_id: Uuid,
    session_id: Uuid,
    run_id: Option<Uuid>,
    behavior: String,
    step: i32,
    todo: Option<String>,
    impact_level: String,
    domain: String,
    importance: i16,
    status: String,
    trace: Option<String>,
    payload: Json<Value>,
    artifacts: Json<Vec<String>>,
    error: Option<String>,
    digest: String,
    detail: String,
    commit_state: String,
}

impl Row {
    fn read(self) -> WorklogRecord {
        WorklogRecord {
            seq: self.seq,
            id: self.record_id,
            at: self.at.to_jiff(),
            kind: self.r#type,
            scope: self.scope,
            agent: self.agent_id.into(),
            session: self.session_id.into(),
            run: self.run_id.map(RunId::from),
            behavior: self.behavior,
            step: self.step.unsigned_abs(),
            todo: self.todo,
            impact_level: self.impact_level,
            domain: self.domain,
            importance: self.importance,
            status: self.status,
            trace: self.trace,
            payload: self.payload.0,
            artifacts: self.artifacts.0,
            error: self.error,
            digest: self.digest,
            detail: self.detail,
            commit_state: self.commit_state,
        }
    }
}

/// Reads records before the `seq` of `before`, the newest first, in the worklog of the list that a root
/// session works on.
pub async fn worklog_page(
    tx: &mut TenantTx,
    root: SessionId,
    (before, limit): (Option<i64>, u32),
) -> Result<Vec<WorklogRecord>, Error> {
    const SQL: &str = "
        select seq, record_id, at, type, scope, agent_id, session_id, run_id, behavior, step, todo,
               impact_level, domain, importance, status, trace, payload, artifacts, error, digest,
               detail, commit_state
        from work.worklog where tenant_id = $1 and list_id = $2 and seq < $3
        order by seq desc limit $4";
    let (tenant, list) = (tx.tenant().as_uuid(), list_of(tx, root).await?);
    let query = holdfast_pg::query_as(SQL).bind(tenant).bind(list.as_uuid());
    let query = query.bind(before.unwrap_or(i64::MAX)).bind(i64::from(limit));
    let rows: Vec<Row> = query.fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

/// Columns that a prompt is made of.
#[derive(Debug, Clone, FromRow)]
struct PromptRow {
    seq: i64,
    r#type: String,
    impact_level: String,
    digest: String,
    detail: String,
    outside: bool,
}

/// The part of a worklog that a prompt shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorklogText {
    /// Empty if there is nothing to show.
    pub text: String,
    /// Whether it may repeat text from outside.
    pub has_outside_text: bool,
}

/// The worklog of a root session and its subagents for a prompt, within a budget; empty if there is
/// nothing to show. What other sessions did in the same workspace may be of other conversations.
pub async fn worklog_text(
    tx: &mut TenantTx,
    root: SessionId,
    budget_tokens: usize,
) -> Result<WorklogText, Error> {
    const SQL: &str = "
        select seq, type, impact_level, digest, detail, outside from (
            select w.seq, w.type, w.impact_level, w.digest, w.detail, w.outside, w.commit_state
            from (select (select m.list_id from work.list_members m
                          where m.tenant_id = $1 and m.session_id = $2) as shared) list,
                lateral (
                    select * from work.worklog
                    where tenant_id = $1 and list_id = coalesce(list.shared, $2)
                      and member_id is not distinct from
                          case when list.shared is not null then $2 end
                    order by seq desc limit $3) w) newest
        where commit_state = 'COMMITTED' order by seq desc";
    let query = holdfast_pg::query_as(SQL).bind(tx.tenant().as_uuid()).bind(root.as_uuid());
    let rows: Vec<PromptRow> = query.bind(RECORDS_FOR_PROMPT).fetch_all(tx.conn()).await?;
    let text = render(&rows, budget_tokens);
    let is_shown = |row: &PromptRow| has_renderer(&row.r#type);
    let has_outside_text = !text.is_empty() && rows.iter().any(|row| row.outside && is_shown(row));
    Ok(WorklogText { text, has_outside_text })
}

/// Whether records of a type may be shown in prompts.
fn has_renderer(kind: &str) -> bool {
    [
        REPLY_MESSAGE,
        ACTION_RECORD,
        CREATE_SUBAGENT,
        TODO_CHANGE,
        PAYMENT,
        SELF_UPDATE,
        PROPOSAL,
        STEP_SUMMARY,
        STEP_ROLLED_BACK,
    ]
    .contains(&kind)
}

/// Renders records, the newest first: effects, steps, and details of the newest steps.
fn render(rows: &[PromptRow], budget_tokens: usize) -> String {
    let shown: Vec<&PromptRow> = rows.iter().filter(|row| has_renderer(&row.r#type)).collect();
    if shown.is_empty() {
        return String::new();
    }
    let steps: Vec<&PromptRow> =
        shown.iter().copied().filter(|row| row.r#type == STEP_SUMMARY).collect();
    let mut impacts: Vec<&PromptRow> =
        shown.iter().copied().filter(|row| row.r#type != STEP_SUMMARY).collect();
    impacts.sort_by_key(|row| (row.impact_level != "external", -row.seq));
    impacts.truncate(IMPACTS_IN_PROMPT);
    impacts.sort_by_key(|row| -row.seq);

    let mut omitted: Vec<&str> =
        rows.iter().map(|row| row.r#type.as_str()).filter(|kind| !has_renderer(kind)).collect();
    omitted.sort_unstable();
    omitted.dedup();
    let last_line = if omitted.is_empty() {
        String::new()
    } else {
        format!("omitted_event_types: {}", omitted.join(", "))
    };
    let mut left = budget_tokens.saturating_sub(tokens(&last_line));
    let mut text = String::new();
    let layers = [
        ("Effects", impacts.iter().map(|row| row.digest.as_str()).collect::<Vec<_>>()),
        ("Steps", steps.iter().take(DIGESTS_IN_PROMPT).map(|row| row.digest.as_str()).collect()),
        (
            "Newest steps",
            steps.iter().take(DETAILS_IN_PROMPT).map(|row| row.detail.as_str()).collect(),
        ),
    ];
    for (title, lines) in layers {
        left = add_layer(&mut text, (title, lines.as_slice()), left);
    }
    text.push_str(&last_line);
    text.trim_end().to_owned()
}

/// Adds as many lines as fit, given the newest first, in the order of time. Returns the tokens that
/// are left.
fn add_layer(text: &mut String, (title, lines): (&str, &[&str]), budget: usize) -> usize {
    let Some(mut left) = budget.checked_sub(tokens(title) + 1) else { return budget };
    let mut fitting: Vec<&str> = Vec::new();
    for line in lines.iter().filter(|line| !line.is_empty()) {
        let Some(rest) = left.checked_sub(tokens(line) + 2) else { break };
        left = rest;
        fitting.push(line);
    }
    if fitting.is_empty() {
        return budget;
    }
    text.push_str(title);
    text.push_str(":\n");
    for line in fitting.iter().rev() {
        text.push_str("- ");
        text.push_str(line);
        text.push('\n');
    }
    left
}

/// A change of what an agent says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelfUpdate {
    pub section: String,
    pub goal: String,
    pub risk: String,
    pub benefit: String,
    /// Version of the agent's files that has the change.
    pub revision: String,
    /// Difference, as a unified diff.
    pub diff: String,
}

/// Records a change of what an agent says of itself, once for its key.
pub async fn record_self_update(
    tx: &mut TenantTx,
    place: &Place,
    key: &str,
    update: &SelfUpdate,
) -> Result<(), Error> {
    const IS_RECORDED: &str = "
        select exists (select from work.worklog
                       where tenant_id = $1 and list_id = $2 and type = $3 and payload->>'key' = $4)";
    let (tenant, list) = (tx.tenant().as_uuid(), list_of(tx, place.list).await?);
    let query = holdfast_pg::query_scalar(IS_RECORDED).bind(tenant).bind(list.as_uuid());
    let is_recorded: bool = query.bind(SELF_UPDATE).bind(key).fetch_one(tx.conn()).await?;
    if is_recorded {
        return Ok(());
    }
    let payload = json!({
        "key": key,
        "section": update.section,
        "goal": update.goal,
        "risk": update.risk,
        "benefit": update.benefit,
        "revision": update.revision,
        "diff": update.diff,
    });
    let digest = format!("changed {} of self.md: {}", update.section, update.goal);
    let record = NewRecord {
        // The file is changed, whether or not the step is saved.
        is_saved: true,
        ..NewRecord::new(SELF_UPDATE, payload, crate::todo::shown(&digest))
    };
    append(tx, place, &[record]).await?;
    Ok(())
}

/// A proposal of an agent in its present state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProposalRecord<'a> {
    pub id: String,
    pub state: &'a str,
    pub kind: &'a str,
    pub target: &'a str,
    pub goal: &'a str,
    pub risk: &'a str,
    pub benefit: &'a str,
    pub diff: &'a str,
    /// Revision of the files or version of the behaviour that has the change.
    pub applied_as: Option<&'a str>,
    /// Why it was rejected or has failed.
    pub reason: &'a str,
    /// Who decided.
    pub by: Option<&'a str>,
}

/// Records that a proposal was made or decided. A decision about one whose session was deleted is
/// recorded nowhere here.
pub async fn record_proposal(
    tx: &mut TenantTx,
    place: &Place,
    proposal: &ProposalRecord<'_>,
) -> Result<(), Error> {
    const EXISTS: &str =
        "select exists (select from work.lists where tenant_id = $1 and list_id = $2)";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_scalar(EXISTS).bind(tenant).bind(place.list.as_uuid());
    let exists: bool = query.fetch_one(tx.conn()).await?;
    if !exists && place.run.is_none() {
        return Ok(());
    }
    let ProposalRecord { id, state, kind, target, goal, .. } = proposal;
    let digest = format!("{state} proposal {id} for {kind} {target}: {goal}");
    let record = NewRecord {
        // The proposal is stored, whether or not the step is saved.
        is_saved: true,
        ..NewRecord::new(PROPOSAL, json!(proposal), crate::todo::shown(&digest))
    };
    append(tx, place, &[record]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seq: i64, kind: &str, level: &str) -> PromptRow {
        PromptRow {
            seq,
            r#type: kind.to_owned(),
            impact_level: level.to_owned(),
            digest: format!("digest {seq}"),
            detail: format!("detail {seq}"),
            outside: false,
        }
    }

    #[test]
    fn types_without_a_renderer_are_named_and_never_shown() {
        let rows = [
            row(4, FUNCTION_RECORD, "none"),
            row(3, "Invented.v9", "external"),
            row(2, STEP_SUMMARY, "none"),
            row(1, ACTION_RECORD, "external"),
        ];

        let text = render(&rows, 1_000);

        assert_eq!(
            text,
            "Effects:\n- digest 1\nSteps:\n- digest 2\nNewest steps:\n- detail 2\n\
             omitted_event_types: FunctionRecord.v1, Invented.v9"
        );
        assert_eq!(render(&rows[..2], 1_000), "");
    }

    #[test]
    fn each_layer_has_its_number_and_the_whole_its_budget() {
        let mut rows: Vec<PromptRow> =
            (0..40).map(|seq| row(100 + seq, STEP_SUMMARY, "none")).collect();
        rows.extend((0..40).map(|seq| row(seq, ACTION_RECORD, "external")));
        rows.extend((40..80).map(|seq| row(seq, TODO_CHANGE, "internal")));
        rows.sort_by_key(|row| -row.seq);

        let text = render(&rows, 10_000);

        let number = |word: &str| text.lines().filter(|line| line.contains(word)).count();
        assert_eq!((number("- digest"), number("- detail")), (6 + 8, 2), "{text}");
        assert!(text.contains("- digest 39\n") && !text.contains("- digest 79\n"), "{text}");
        for budget in [0, 10, 40, 100] {
            let text = render(&rows, budget);
            assert!(text.is_empty() || tokens(&text) <= budget, "{budget}: {text}");
        }
    }
}
