//! Who makes the changes of a call, for the audit log.

use tokio::task_local;
use uuid::Uuid;

task_local! {
    static AUTHOR: String;
}

/// Runs a call whose changes of tenants' rows are recorded with their author.
///
/// Its transactions are told by the setting `holdfast.change` who makes the changes: request, method
/// and actor. Triggers of the database record them (migration 0083). Tasks that the call spawns are
/// not covered.
pub async fn with_change_author<F: Future>(
    request: Uuid,
    method: &'static str,
    actor: &str,
    call: F,
) -> F::Output {
    // The setting is part of an SQL text: only letters that cannot end it.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.');
    let actor: String = actor.chars().filter(|c| is_plain(*c)).collect();
    let method: String = method.chars().filter(|c| is_plain(*c)).collect();
    AUTHOR.scope(format!("{} {method} {actor}", request.simple()), call).await
}

/// Statement that sets the author for the current transaction; `None` outside of such a call.
pub(crate) fn setting_sql() -> Option<String> {
    AUTHOR.try_with(|author| format!("; SET LOCAL holdfast.change = '{author}'")).ok()
}
