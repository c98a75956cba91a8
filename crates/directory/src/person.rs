//! People who sign in at an identity provider.

use holdfast_types::{PersonId, TenantId, TenantRole};
use jiff::Timestamp;

/// A person of a tenant, known since their first sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    pub id: PersonId,
    pub issuer: String,
    /// The person's id at the issuer.
    pub subject: String,
    pub name: String,
    /// Role of the newest token.
    pub role: TenantRole,
    pub created_at: Timestamp,
    /// Exact to the hour.
    pub seen_at: Timestamp,
    /// Set if the person is refused.
    pub disabled_at: Option<Timestamp>,
}

impl Person {
    /// Whether the person may decide about tool calls now.
    #[must_use]
    pub fn may_approve(&self) -> bool {
        self.disabled_at.is_none() && self.role >= TenantRole::Approver
    }
}

/// What a verified token says about its person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    /// Name of the tenant.
    pub tenant: String,
    pub issuer: String,
    /// The person's id at the issuer.
    pub subject: String,
    /// 1 to 200 characters.
    pub name: String,
    pub role: TenantRole,
}

/// Authenticated person of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonPrincipal {
    pub tenant: TenantId,
    pub person: PersonId,
    pub name: String,
    pub role: TenantRole,
    /// Requests per minute that all callers of the tenant share.
    pub rate: u32,
    /// Calls that the tenant may have open at once in one process, if its plan limits them.
    pub concurrent_calls: Option<u32>,
}

/// Cached sign-in.
#[derive(Debug, Clone)]
pub(crate) struct CachedPerson {
    pub who: PersonPrincipal,
    pub is_disabled: bool,
    pub tenant_active: bool,
}
