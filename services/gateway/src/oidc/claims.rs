//! Tenant, role and name of a person, from the claims of a verified token.

use holdfast_types::TenantRole;
use serde_json::{Map, Value};

use super::{TokenError, VerifiedToken, config::Issuer, shown};

/// Maximum length of a person's id at the issuer, in bytes (OpenID Connect Core, 2).
const MAX_SUBJECT_BYTES: usize = 255;
/// Maximum length of a person's name, in characters.
const MAX_NAME_CHARS: usize = 200;

type Claims = Map<String, Value>;

/// Whether `aud`, a text or a list, contains one of these.
pub fn has_audience(claims: &Claims, audiences: &[String]) -> bool {
    texts(claims.get("aud")).any(|given| audiences.iter().any(|wanted| wanted == given))
}

pub fn read(issuer: &Issuer, claims: &Claims) -> Result<VerifiedToken, TokenError> {
    let subject = text(claims, "sub").filter(|subject| {
        !subject.is_empty()
            && subject.len() <= MAX_SUBJECT_BYTES
            && !subject.contains(char::is_control)
    });
    let subject = subject.ok_or_else(|| TokenError::Claim("sub".to_owned()))?;
    let tenant = tenant(issuer, claims)?;
    let role = role(issuer, &tenant, claims).ok_or_else(|| TokenError::NoRole(tenant.clone()))?;
    Ok(VerifiedToken {
        tenant,
        issuer: issuer.url.clone(),
        subject: subject.to_owned(),
        name: name(claims).unwrap_or_else(|| shown(subject)),
        role,
    })
}

fn tenant(issuer: &Issuer, claims: &Claims) -> Result<String, TokenError> {
    let Some(claim) = &issuer.tenant_claim else {
        return issuer.tenant.clone().ok_or_else(|| TokenError::Claim("tenant".to_owned()));
    };
    let named = text(claims, claim).ok_or_else(|| TokenError::Claim(shown(claim)))?;
    if issuer.tenants.is_empty() {
        return Ok(named.to_owned());
    }
    let tenant = issuer.tenants.get(named).cloned();
    tenant.ok_or_else(|| TokenError::NoTenant(claim.clone()))
}

/// Greatest role of the person's groups.
fn role(issuer: &Issuer, tenant: &str, claims: &Claims) -> Option<TenantRole> {
    let roles = issuer.tenant_roles.get(tenant).unwrap_or(&issuer.roles);
    let groups = texts(claims.get(&issuer.groups_claim));
    groups.filter_map(|group| roles.get(group)).copied().max().or(issuer.default_role)
}

fn name(claims: &Claims) -> Option<String> {
    ["name", "preferred_username", "email"].into_iter().find_map(|claim| {
        let letters = text(claims, claim)?.chars().filter(|letter| !letter.is_control());
        let name: String = letters.take(MAX_NAME_CHARS).collect();
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    })
}

fn text<'c>(claims: &'c Claims, claim: &str) -> Option<&'c str> {
    claims.get(claim).and_then(Value::as_str)
}

/// The texts of a claim that is a list or one text.
fn texts(claim: Option<&Value>) -> impl Iterator<Item = &str> {
    let (one, many) = match claim {
        Some(Value::String(one)) => (Some(one.as_str()), None),
        Some(Value::Array(many)) => (None, Some(many)),
        _ => (None, None),
    };
    one.into_iter().chain(many.into_iter().flatten().filter_map(Value::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn issuer(settings: Value) -> Issuer {
        let mut whole = json!({"url": "https://id", "audiences": ["holdfast"]});
        whole.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    fn read_from(settings: Value, claims: Value) -> Result<(String, TenantRole), TokenError> {
        let claims = claims.as_object().unwrap();
        read(&issuer(settings), claims).map(|person| (person.tenant, person.role))
    }

    #[test]
    fn the_greatest_role_of_a_persons_groups_counts() {
        let roles = json!({"staff": "member", "admins": "owner", "ops": "operator"});
        let settings = json!({"tenant": "acme", "roles": roles});

        let of = |groups: Value| read_from(settings.clone(), json!({"sub": "1", "groups": groups}));

        assert_eq!(of(json!(["staff", "ops", "x"])), Ok(("acme".into(), TenantRole::Operator)));
        assert_eq!(of(json!("admins")), Ok(("acme".into(), TenantRole::Owner)));
        assert_eq!(of(json!(["x"])), Err(TokenError::NoRole("acme".into())));
        assert_eq!(of(json!(7)), Err(TokenError::NoRole("acme".into())));
    }

    #[test]
    fn a_tenants_own_roles_replace_the_general_ones() {
        let settings = json!({
            "tenant_claim": "org", "roles": {"staff": "owner"},
            "tenant_roles": {"acme": {"staff": "viewer"}},
        });
        let of = |org: &str| {
            read_from(settings.clone(), json!({"sub": "1", "org": org, "groups": ["staff"]}))
        };

        assert_eq!(of("acme"), Ok(("acme".into(), TenantRole::Viewer)));
        assert_eq!(of("other"), Ok(("other".into(), TenantRole::Owner)));
    }

    #[test]
    fn only_listed_values_of_the_claim_name_a_tenant_if_there_is_a_list() {
        let settings = json!({
            "tenant_claim": "org", "tenants": {"org-1": "acme"}, "default_role": "viewer",
        });
        let of = |claims: Value| read_from(settings.clone(), claims).map(|(tenant, _)| tenant);

        assert_eq!(of(json!({"sub": "1", "org": "org-1"})), Ok("acme".into()));
        assert_eq!(of(json!({"sub": "1", "org": "acme"})), Err(TokenError::NoTenant("org".into())));
        assert_eq!(of(json!({"sub": "1", "org": 1})), Err(TokenError::Claim("org".into())));
        assert_eq!(of(json!({"org": "org-1"})), Err(TokenError::Claim("sub".into())));
    }
}
