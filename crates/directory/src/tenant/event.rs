//! Events of a tenant's life, its limits and its settings.

use holdfast_types::TenantId;
use jiff::Timestamp;
use serde_json::Value;

/// Kinds of events. Most of `config.changed` are written by a trigger (migration 0084).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TenantEventKind {
    Created,
    Activated,
    Suspended,
    Expired,
    DeletionStarted,
    Deleted,
    PlanChanged,
    LimitsChanged,
    ConfigChanged,
    QuotaWarning,
    QuotaExceeded,
    WebhookDisabled,
}

impl TenantEventKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "tenant.created",
            Self::Activated => "tenant.activated",
            Self::Suspended => "tenant.suspended",
            Self::Expired => "tenant.expired",
            Self::DeletionStarted => "tenant.deletion_started",
            Self::Deleted => "tenant.deleted",
            Self::PlanChanged => "plan.changed",
            Self::LimitsChanged => "limits.changed",
            Self::ConfigChanged => "config.changed",
            Self::QuotaWarning => "quota.warning",
            Self::QuotaExceeded => "quota.exceeded",
            Self::WebhookDisabled => "webhook.disabled",
        }
    }
}

/// All kinds, with those that only a trigger writes (migrations 0091, 0114).
pub const TENANT_EVENT_KINDS: &[&str] = &[
    TenantEventKind::Created.as_str(),
    TenantEventKind::Activated.as_str(),
    TenantEventKind::Suspended.as_str(),
    TenantEventKind::Expired.as_str(),
    TenantEventKind::DeletionStarted.as_str(),
    TenantEventKind::Deleted.as_str(),
    TenantEventKind::PlanChanged.as_str(),
    TenantEventKind::LimitsChanged.as_str(),
    TenantEventKind::ConfigChanged.as_str(),
    TenantEventKind::QuotaWarning.as_str(),
    TenantEventKind::QuotaExceeded.as_str(),
    TenantEventKind::WebhookDisabled.as_str(),
    "agent.created",
    "agent.changed",
    "agent.deleted",
    "agent.disabled",
    "agent.enabled",
];

/// Actions of `config.changed` after which a credential may permit less than before (migration
/// 0124).
const REVOKING_ACTIONS: [&str; 8] = [
    "console.end",
    "console.sign_out",
    "device.remove",
    "device.revoke",
    "device.rotate",
    "key.revoke",
    "person.disable",
    "person.role",
];

#[derive(Debug, Clone, PartialEq)]
pub struct TenantEvent {
    /// Grows; the same whenever the event is published.
    pub id: i64,
    pub tenant: TenantId,
    /// Name of the tenant.
    pub name: String,
    /// Such as `tenant.suspended`.
    pub kind: String,
    /// Names and numbers, never what was said.
    pub detail: Value,
    pub created_at: Timestamp,
}

impl TenantEvent {
    /// Whether a key, a person, a device or a console session may permit less than before.
    #[must_use]
    pub fn may_revoke_access(&self) -> bool {
        let action = self.detail.get("action").and_then(Value::as_str);
        self.kind == TenantEventKind::ConfigChanged.as_str()
            && action.is_some_and(|action| REVOKING_ACTIONS.contains(&action))
    }
}

/// Which events are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantEventFilter {
    /// Only events of this tenant.
    pub tenant: Option<TenantId>,
    /// Only events after this one.
    pub after: i64,
    pub limit: i64,
}
