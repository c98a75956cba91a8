//! Rollback of a session's last step.

use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    RollBackStepRequest, RollBackStepResponse,
    roll_back_step_response::{FileConflict, NotUndone},
};
use holdfast_rollback::{RollbackMode, RollbackReport, RollbackRequest};
use holdfast_types::SessionId;

use crate::{
    Error, audit,
    control::{State, non_empty},
};

pub(super) async fn roll_back(
    state: &State,
    caller: &Caller,
    session: SessionId,
    request: RollBackStepRequest,
) -> Result<RollBackStepResponse, Error> {
    audit::set_target(&request.session);
    let step = non_empty(request.step_id).map(|id| id.parse()).transpose()?;
    let mode = if request.dry_run { RollbackMode::Look } else { RollbackMode::Make };
    let (again, by, author) = (request.again, caller.name.clone(), caller.id());
    let request = RollbackRequest { session, step, mode, again, by, author };

    let done = state.rollback.roll_back(caller.tenant, &request).await?;

    if done.wake {
        state.bus.wake_run(0);
    }
    Ok(response(done.report, done.repeated))
}

fn response(report: RollbackReport, repeated: bool) -> RollBackStepResponse {
    let conflicts = report
        .file_conflicts
        .into_iter()
        .map(|conflict| FileConflict { path: conflict.path, changed_by: conflict.changed_by });
    let not_undone =
        report.not_undone.into_iter().map(|one| NotUndone { what: one.what, text: one.text });
    RollBackStepResponse {
        step_id: report.step_id,
        behavior: report.behavior,
        step: report.step,
        files: report.files,
        file_conflicts: conflicts.collect(),
        todo_operations: report.todo_operations,
        refused_todo_operations: report.refused_todo_operations,
        values: report.values,
        value_conflicts: report.value_conflicts,
        not_undone: not_undone.collect(),
        repeated,
    }
}
