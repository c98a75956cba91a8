//! The key or person whose rights a device or a session of the console has, as they are now.

use holdfast_types::{KeyId, PersonId, TenantRole};
use uuid::Uuid;

use crate::{Approver, ApproverRights, Error, TenantState};

/// Converts the two columns of an approver, of which one is set.
pub(super) fn from_columns(key: Option<Uuid>, person: Option<Uuid>) -> Result<Approver, Error> {
    match (key, person) {
        (Some(key), None) => Ok(Approver::Key(KeyId::from(key))),
        (None, Some(person)) => Ok(Approver::Person(PersonId::from(person))),
        (Some(_), Some(_)) | (None, None) => {
            Err(Error::corrupt("approver", anyhow::anyhow!("not exactly one")))
        }
    }
}

/// Key and person of an approver, of which one is set.
pub(super) fn columns(approver: Approver) -> (Option<Uuid>, Option<Uuid>) {
    match approver {
        Approver::Key(key) => (Some(key.as_uuid()), None),
        Approver::Person(person) => (None, Some(person.as_uuid())),
    }
}

fn parse_role(role: &str) -> Result<TenantRole, Error> {
    role.parse().map_err(|error| Error::corrupt("role", error))
}

/// Columns of an approver, and of the tenant's limits, that an authentication needs.
#[derive(sqlx::FromRow)]
pub(crate) struct ApproverLookup {
    approver_key: Option<Uuid>,
    approver_person: Option<Uuid>,
    key_scopes: Option<Vec<String>>,
    key_live: Option<bool>,
    key_person: Option<Uuid>,
    key_role: Option<String>,
    role: Option<String>,
    operates: Option<bool>,
    person_live: Option<bool>,
    rate: i32,
    concurrent_calls: Option<i64>,
    tenant_state: String,
}

impl ApproverLookup {
    /// The rights, and whether their holder may still sign in; `None` if there is no such person.
    pub(crate) fn rights(&self) -> Result<Option<(ApproverRights, bool)>, Error> {
        match from_columns(self.approver_key, self.approver_person)? {
            // The row of a key stays when it is revoked.
            Approver::Key(key) => {
                let scopes = self.key_scopes.clone().unwrap_or_default();
                let person = match (self.key_person, &self.key_role) {
                    (Some(person), Some(role)) => Some((person.into(), parse_role(role)?)),
                    _ => None,
                };
                let rights = ApproverRights::Key { key, scopes, person };
                Ok(Some((rights, self.key_live.unwrap_or_default())))
            }
            Approver::Person(person) => {
                let Some(role) = &self.role else { return Ok(None) };
                let (role, operates) = (parse_role(role)?, self.operates.unwrap_or_default());
                let rights = ApproverRights::Person { person, role, operates };
                Ok(Some((rights, self.person_live.unwrap_or_default())))
            }
        }
    }

    /// Most requests of the tenant in a minute.
    pub(crate) const fn rate(&self) -> u32 {
        self.rate.unsigned_abs()
    }

    /// Most calls of the tenant at once; `None` is the gateway's default.
    pub(crate) fn concurrent_calls(&self) -> Option<u32> {
        self.concurrent_calls.and_then(|most| u32::try_from(most).ok())
    }

    pub(crate) fn is_tenant_active(&self) -> Result<bool, Error> {
        Ok(TenantState::parse(&self.tenant_state)? == TenantState::Active)
    }
}
