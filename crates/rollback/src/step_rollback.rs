//! The rollback of a step, from its lock to its commit.

use std::time::Duration;

use holdfast_grpc::MemoryClient;
use holdfast_pg::{Pools, TenantTx};
use holdfast_session::{
    LockedStep, NewMessage, Sessions, StepId, StepRestoration, WorkspaceBinding, bind_workspace,
    lock_last_step, restore_step, run_message, step_entries, step_input,
};
use holdfast_types::{Body, QueueMode, SessionId, Source, Target, TenantId};
use holdfast_work::{
    Actor, ActorKind, Place, Rollback, UndoneTodos, abort_step, newest_step, record_rollback,
    undo_todos,
};
use holdfast_workspace::{ChangeAuthor, UndoneFiles, WorkspaceLock, Workspaces};
use serde_json::Value;

use crate::{
    Error,
    memory::{UndoneValues, undo_values},
    report::{FileConflict, NotUndone, RollbackMode, RollbackReport},
};

/// Source of messages that are given to a step once more.
const SOURCE: &str = "rollback";

/// Event that lets a step run again that no message began.
const AGAIN_EVENT: &str = "step.again";
const AGAIN_TEXT: &str = "Your last step was rolled back: do it again.";

/// Takes back steps of sessions.
#[derive(Debug, Clone)]
pub struct StepRollback {
    pools: Pools,
    sessions: Sessions,
    workspaces: Workspaces,
    /// `None` if the mesh has no memory service.
    memory: Option<MemoryClient>,
}

/// Which step is taken back, and by whom.
#[derive(Debug, Clone)]
pub struct RollbackRequest {
    pub session: SessionId,
    /// The step, which must be the session's last; `None` is the last one. A repetition with the id
    /// changes nothing and returns the first report.
    pub step: Option<StepId>,
    pub mode: RollbackMode,
    /// Whether the step runs again after that, with the same messages.
    pub again: bool,
    /// Name of the person.
    pub by: String,
    /// Id of the person, for the history of files.
    pub author: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollbackResult {
    pub report: RollbackReport,
    /// The step was rolled back before.
    pub repeated: bool,
    /// A wake-up of runners should be sent.
    pub wake: bool,
}

/// What is restored, and what the step did besides.
struct Undone {
    todos: UndoneTodos,
    files: UndoneFiles,
    values: UndoneValues,
    not_undone: Vec<NotUndone>,
}

impl StepRollback {
    #[must_use]
    pub const fn new(
        pools: Pools,
        sessions: Sessions,
        workspaces: Workspaces,
        memory: Option<MemoryClient>,
    ) -> Self {
        Self { pools, sessions, workspaces, memory }
    }

    /// Rolls back the last step of a session.
    ///
    /// # Errors
    ///
    /// As [`lock_last_step`]; [`Error::Files`] if a file cannot be restored;
    /// [`Error::Memory`] if the memory service fails. Nothing but the memory is changed then.
    pub async fn roll_back(
        &self,
        tenant: TenantId,
        request: &RollbackRequest,
    ) -> Result<RollbackResult, Error> {
        let mut tx = self.pools.tenant(tenant).await.map_err(holdfast_session::Error::from)?;
        let step = lock_last_step(&mut tx, request.session, request.step).await?;
        let messages = match request.again {
            true => messages_again(&mut tx, &step).await?,
            false => Vec::new(),
        };
        let is_made = request.mode == RollbackMode::Make;
        let (report, repeated, mut wake) = match &step.rollback {
            Some(first) => (read_report(first)?, true, false),
            None => {
                let (report, wake) = self.take_back(&mut tx, &step, request).await?;
                (report, false, wake)
            }
        };
        match is_made {
            true => tx.commit().await.map_err(holdfast_session::Error::from)?,
            false => tx.rollback().await.map_err(holdfast_session::Error::from)?,
        }
        if is_made {
            for message in messages {
                let accepted = self.sessions.ingest(tenant, message).await?;
                wake |= accepted.wake.is_some();
            }
        }
        Ok(RollbackResult { report, repeated, wake: wake && is_made })
    }

    async fn take_back(
        &self,
        tx: &mut TenantTx,
        step: &LockedStep,
        request: &RollbackRequest,
    ) -> Result<(RollbackReport, bool), Error> {
        let place = place(step);
        if newest_step(tx, &place).await? != step.log_seq {
            let why = "the session's last step was saved by a version that cannot roll it back";
            return Err(holdfast_session::Error::Conflict(why.to_owned()).into());
        }
        let undone = self.undo(tx, step, &place, request).await?;
        let report = report_of(step, undone);
        let stored = serde_json::to_value(&report).map_err(corrupt)?;
        let rollback =
            Rollback { by: request.by.clone(), digest: report.digest(&request.by), report: stored };
        record_rollback(tx, &place, &rollback).await?;
        if let Some(workspace) = &step.workspace_before {
            let binding = self.binding(tx.tenant(), workspace.clone()).await?;
            bind_workspace(tx, step.session, binding.as_ref()).await?;
        }
        let note = report.note(&request.by);
        let restoration = StepRestoration { note: &note, report: &rollback.report };
        let wake = restore_step(tx, step, &restoration).await?;
        Ok((report, wake))
    }

    /// Undoes what the step has changed. The memory comes last: it is not part of the transaction.
    async fn undo(
        &self,
        tx: &mut TenantTx,
        step: &LockedStep,
        place: &Place,
        request: &RollbackRequest,
    ) -> Result<Undone, Error> {
        let (key, by) = (step.rollback_key(), &request.by);
        let actor =
            Actor { kind: ActorKind::User, name: by.clone(), role: None, has_outside_text: false };
        let is_own = |id: &str| step.owns_key(id.strip_prefix("call:").unwrap_or(id));
        let todos = undo_todos(tx, place, &actor, &key, &is_own).await?;
        let records = abort_step(tx, place, step.log_seq_before).await?;
        let reason = format!("step {} of {} was rolled back", step.step, step.behavior);
        let author = ChangeAuthor::new(&request.author, &reason);
        let run = (step.agent, step.id.run);
        let files =
            self.workspaces.undo_changes(tx, run, &author, &|key| step.owns_key(key)).await?;
        let entries = step_entries(tx, step).await?;
        let memory = self.memory.as_ref();
        let values = undo_values(memory, tx.tenant(), &entries, (&key, request.mode)).await?;
        let not_undone = records.into_iter().filter_map(NotUndone::of_record).collect();
        Ok(Undone { todos, files, values, not_undone })
    }

    /// The workspace to which the session was bound before, if it still exists.
    async fn binding(
        &self,
        tenant: TenantId,
        workspace: Option<String>,
    ) -> Result<Option<WorkspaceBinding>, Error> {
        let Some(workspace) = workspace else { return Ok(None) };
        let Ok(id) = workspace.parse() else { return Ok(None) };
        let found = self.workspaces.named(tenant, id).await?;
        Ok(found.map(|found| WorkspaceBinding {
            workspace,
            drains: found.lock == WorkspaceLock::TodoDrain,
        }))
    }
}

fn place(step: &LockedStep) -> Place {
    Place {
        run: Some(step.id.run),
        behavior: step.behavior.clone(),
        step: step.step,
        ..Place::outside(step.session, step.agent)
    }
}

fn report_of(step: &LockedStep, undone: Undone) -> RollbackReport {
    let Undone { todos, files, values, not_undone } = undone;
    RollbackReport {
        step_id: step.id.to_string(),
        behavior: step.behavior.clone(),
        step: step.step,
        files: files.restored.iter().map(ToString::to_string).collect(),
        file_conflicts: files
            .conflicts
            .into_iter()
            .map(|conflict| FileConflict {
                path: conflict.path.to_string(),
                changed_by: conflict.changed_by,
            })
            .collect(),
        todo_operations: todos.operations,
        refused_todo_operations: todos.refused,
        values: values.restored,
        value_conflicts: values.conflicts,
        not_undone,
    }
}

/// Messages that let the step run again: those that it has read, or an event if it has read none.
async fn messages_again(tx: &mut TenantTx, step: &LockedStep) -> Result<Vec<NewMessage>, Error> {
    let mut input = step_input(tx, step).await?;
    if input.is_empty() {
        // The event has the rights of whoever began the run, and is answered there.
        let (first, target) = run_message(tx, step).await?.unwrap_or_default();
        let Body { author, sender, tools, outside, .. } = first;
        let event = Some(AGAIN_EVENT.to_owned());
        let body = Body { event, author, sender, tools, outside, ..Body::text(AGAIN_TEXT) };
        input.push((body, target));
    }
    let message = |(number, (body, target)): (usize, (Body, Option<Target>))| NewMessage {
        key: step.key.clone(),
        agent: step.agent,
        label: None,
        source: Source::Internal(SOURCE.to_owned()),
        idem_key: format!("{}:{number}", step.rollback_key()),
        body: Body { answer_options: None, ..body },
        target,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: None,
    };
    Ok(input.into_iter().enumerate().map(message).collect())
}

fn read_report(stored: &Value) -> Result<RollbackReport, Error> {
    serde_json::from_value(stored.clone()).map_err(corrupt)
}

fn corrupt(source: serde_json::Error) -> Error {
    holdfast_session::Error::Corrupt { what: "report of a rollback", source }.into()
}
