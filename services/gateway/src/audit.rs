//! Audit of administrative calls: their author for the database's triggers, and their outcome.
//!
//! The transaction of a change writes the audit's row. A call that was refused, or that changed
//! something outside of these tables (conversations, memories), gets a row after its end.

use std::{
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
};

use holdfast_directory::CallOutcome;
use holdfast_grpc::Caller;
use tokio::task_local;
use tonic::Code;
use tracing::error;
use uuid::Uuid;

use crate::{auth::Authenticator, permissions::Rule};

/// Maximum length of a target in the audit, in characters.
const MAX_TARGET_CHARS: usize = 200;

task_local! {
    static TARGET: Arc<Mutex<String>>;
}

/// Names what the current call is about, for the audit: an id or a name, never content.
pub fn set_target(target: impl Display) {
    let text = target.to_string();
    // A key that was given instead of its id is a secret.
    if ["hf_", "hfn_", "hfd_", "hfs_", "hfl_"].iter().any(|prefix| text.starts_with(prefix)) {
        return;
    }
    let shown = text.chars().filter(|c| !c.is_control()).take(MAX_TARGET_CHARS).collect();
    // Outside of an audited call there is nothing to name.
    TARGET.try_with(|target| *target.lock().unwrap_or_else(PoisonError::into_inner) = shown).ok();
}

/// Runs a call, and records it if its rule says so. `code_of` is the status of its result.
pub async fn audited<F: Future>(
    doorman: &Authenticator,
    caller: &Caller,
    (rule, request): (&Rule, Uuid),
    call: F,
    code_of: impl FnOnce(&F::Output) -> Code,
) -> F::Output {
    if !rule.is_change {
        return call.await;
    }
    let (actor, target) = (caller.id(), Arc::new(Mutex::new(String::new())));
    let call = TARGET.scope(Arc::clone(&target), call);
    let via = caller.via.as_ref().map(ToString::to_string).unwrap_or_default();
    let result = holdfast_pg::with_change_author(request, rule.method, (&actor, &via), call).await;
    let target = target.lock().unwrap_or_else(PoisonError::into_inner).clone();
    record(doorman, caller, (rule, request), code_of(&result), &target).await;
    result
}

/// Records how a call ended.
pub async fn record(
    doorman: &Authenticator,
    caller: &Caller,
    (rule, request): (&Rule, Uuid),
    code: Code,
    target: &str,
) {
    // Refused calls are cheap to make, and each is a row: their number is limited.
    if !rule.is_change || (code != Code::Ok && !doorman.may_record_refusal(caller.tenant).await) {
        return;
    }
    let call = CallOutcome {
        request,
        method: rule.method,
        actor: &caller.id(),
        via: caller.via.as_ref().map(ToString::to_string),
        subject: target,
        outcome: name_of(code),
    };
    if let Err(error) = doorman.directory().audit().record_outcome(caller.tenant, call).await {
        let error: &dyn std::error::Error = &error;
        error!(error, method = rule.method, "a call is not in the audit log");
    }
}

const fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Cancelled => "cancelled",
        Code::Unknown => "unknown",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}
