//! Who makes the changes of a call, for the audit log.

use tokio::task_local;
use uuid::Uuid;

task_local! {
    static AUTHOR: String;
}

/// Runs a call whose changes of tenants' rows are recorded with their author.
///
/// Its transactions are told by the setting `holdfast.change` who makes the changes: request, method,
/// actor, and through what, if that is known. Triggers of the database record them (migrations 0083 and 0126). Tasks that the call spawns are
/// not covered.
pub async fn with_change_author<F: Future>(
    request: Uuid,
    method: &'static str,
    (actor, via): (&str, &str),
    call: F,
) -> F::Output {
    // The setting is part of an SQL text: only letters that cannot end it.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.');
    let plain = |text: &str| text.chars().filter(|c| is_plain(*c)).collect::<String>();
    let (method, actor, via) = (plain(method), plain(actor), plain(via));
    AUTHOR.scope(format!("{} {method} {actor} {via}", request.simple()), call).await
}

/// Statement that sets the author for the current transaction; `None` outside of such a call.
pub(crate) fn setting_sql() -> Option<String> {
    AUTHOR.try_with(|author| format!("; SET LOCAL holdfast.change = '{author}'")).ok()
}
