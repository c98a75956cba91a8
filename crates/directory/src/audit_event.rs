//! Entries of the audit log, and the filter of a list.

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq)]
pub struct AuditEvent {
    /// The order of the ids is that of the time.
    pub id: Uuid,
    pub created_at: Timestamp,
    /// Id of a key, a person or an agent; `operator` at the installation's console.
    pub actor: String,
    /// Name of the key or the person; empty if there is none.
    pub actor_name: String,
    /// What was done, such as `key.create`; the method for a call that changed nothing here.
    pub action: String,
    /// Id or name of what was changed, never content.
    pub subject: String,
    /// `Service/Method`; empty outside of calls.
    pub method: String,
    /// Id of the request; empty outside of calls.
    pub request_id: String,
    /// `ok`, or the name of a gRPC status.
    pub outcome: String,
    /// Changed rows, before and after; null if there are none.
    pub changes: Value,
    /// Through what the actor did it: `console/<session>`, or `device/<device>/<its approver>`; empty if
    /// that is not known.
    pub via: String,
    /// Name of what was changed; empty if none is known.
    pub subject_name: String,
    /// Id of the key or the person who invited the actor; empty if nobody did.
    pub invited_by: String,
    /// Name of who invited the actor.
    pub inviter_name: String,
}

/// Which events are listed. Empty texts and `None` select all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub actor: String,
    /// Beginning of the action or the method: `key.`, `Files/`.
    pub action: String,
    pub subject: String,
    pub outcome: String,
    pub request_id: String,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Only events before this one.
    pub before: Option<Uuid>,
    pub limit: i64,
}

/// Outcome of a call, to be recorded after its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOutcome<'c> {
    pub request: Uuid,
    pub method: &'static str,
    pub actor: &'c str,
    /// Through what the actor made the call.
    pub via: Option<String>,
    pub subject: &'c str,
    /// `ok`, or the name of a gRPC status.
    pub outcome: &'static str,
}
