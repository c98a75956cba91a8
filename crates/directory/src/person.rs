//! People of a tenant, and invitations.

use holdfast_types::{InvitationId, PersonId, TenantId, TenantRole};
use jiff::Timestamp;
use secrecy::SecretString;

/// Issuer of people who sign in without an identity provider.
pub(crate) const INVITATION: &str = "invitation";

/// Subject of the first owner of a tenant, whom nobody invited.
pub(crate) const FIRST_OWNER: &str = "owner";

/// A person of a tenant, known since their first sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    pub id: PersonId,
    /// Identity provider, or `invitation`.
    pub issuer: String,
    /// The person's id at the issuer, or of the invitation.
    pub subject: String,
    pub name: String,
    /// Role of the newest token, or of the invitation.
    pub role: TenantRole,
    pub created_at: Timestamp,
    /// Exact to the hour.
    pub seen_at: Timestamp,
    /// Set if the person is refused.
    pub disabled_at: Option<Timestamp>,
    /// Time zone that they chose.
    pub zone: Option<String>,
    /// Language that they chose.
    pub language: Option<String>,
    /// Id of the key or the person who invited them.
    pub invited_by: Option<String>,
    /// The person who they are besides: their sign-in leads there.
    pub merged_into: Option<PersonId>,
    /// Whether they operate the installation.
    pub operates: bool,
}

/// Something by which a person is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonIdentity {
    /// `sign_in`, `invitation`, `key`, `account`, `api_user` or `person`, one who was merged.
    pub kind: String,
    /// `telegram:42`, `api:anna`, an id, or issuer and subject.
    pub value: String,
    /// When it was proven, if that is known.
    pub proven_at: Option<Timestamp>,
}

/// Changes of a person's record; what is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersonChanges {
    pub name: Option<String>,
    /// A time zone; the empty one is none.
    pub zone: Option<String>,
    /// A language tag (BCP 47); the empty one is none.
    pub language: Option<String>,
    pub role: Option<TenantRole>,
}

/// Whether this can be a language tag: `nb`, `zh-Hant-TW`.
pub(crate) fn is_language_tag(text: &str) -> bool {
    let mut parts = text.split('-');
    let first = parts.next().unwrap_or_default();
    text.len() <= 35
        && (2..=8).contains(&first.len())
        && first.bytes().all(|byte| byte.is_ascii_alphabetic())
        && parts.all(|part| {
            (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
}

impl Person {
    /// Whether an identity provider says who the person is and which role they have.
    #[must_use]
    pub fn is_of_provider(&self) -> bool {
        self.issuer != INVITATION
    }

    /// Whether the person may decide about tool calls now.
    #[must_use]
    pub fn may_approve(&self) -> bool {
        self.disabled_at.is_none() && self.role >= TenantRole::Approver
    }
}

/// An invitation that was not accepted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    pub id: InvitationId,
    pub name: String,
    /// Role that the person gets.
    pub role: TenantRole,
    /// Id of the key or the person who invites.
    pub invited_by: String,
    /// Name of the key or the person who invites; empty if it is not known.
    pub inviter: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Refresh token of a person, with which their identity provider is asked about them.
#[derive(Debug, Clone)]
pub struct ProviderSignIn {
    pub issuer: String,
    pub client_id: String,
    pub refresh_token: SecretString,
}

/// What an identity provider says about a person.
#[derive(Debug, Clone)]
pub enum ProviderAnswer {
    /// The person is one of its people; with the refresh token for the next time, if it is another one.
    Accepted(Option<SecretString>),
    /// The person is none of its people any more.
    Refused,
    /// The provider does not answer.
    Unavailable,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_a_tag_and_no_sentence() {
        for good in ["nb", "zh-CN", "zh-Hant-TW", "de-1996"] {
            assert!(is_language_tag(good), "{good}");
        }
        let long = format!("en-{}", "a".repeat(40));
        for bad in ["", "n", "norwegian", "nb_NO", "nb-", "nb. Do as I say", "1a", &long] {
            assert!(!is_language_tag(bad), "{bad}");
        }
    }
}
