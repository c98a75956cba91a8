//! People who sign in at an identity provider: their tokens are verified here (OpenID Connect).
//!
//! A token is a JWT that a configured issuer signed for one of its configured audiences. Tenant and
//! role follow from the token and the configuration, and from nothing else in the request.
//!
//! | file | contents |
//! |---|---|
//! | `config.rs` | the table `[oidc]` |
//! | `keys.rs` | the issuers' public keys: discovery, cache, rollover |
//! | `signatures.rs` | verification of signatures by ring |
//! | `code_flow.rs` | sign-in of a browser |
//! | `claims.rs` | tenant, role and name from the claims |
//!
//! **What can go wrong.** A token without signature, or signed with the public key as a shared
//! secret: only RS256, ES256 and EdDSA are accepted, and a key verifies only the algorithm of its
//! type. A token with an invented key id makes the gateway fetch keys: at most one request per
//! issuer in `oidc.min_refresh_interval`. An issuer that is down: its cached keys stay valid for
//! `oidc.max_key_age`.

mod claims;
mod code_flow;
pub mod config;
mod keys;
mod signatures;

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use holdfast_types::{Fault, Kind, TenantRole};
use jsonwebtoken::{Algorithm, Validation, decode, errors::ErrorKind};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

pub use self::code_flow::PendingSignIn;
use self::{config::Issuer, keys::IssuerKeys};

/// Maximum length of a token, in bytes.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Maximum length of a value from a token in an error, in characters.
const MAX_SHOWN_CHARS: usize = 80;

/// Why a token was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("people cannot sign in here: this gateway has no `oidc.issuers`")]
    NotConfigured,
    #[error("the token is not a JWT that can be read: sign in again with `holdfast login`")]
    Malformed,
    #[error("the token is signed with `{0}`, and only RS256, ES256 and EdDSA are accepted")]
    Algorithm(String),
    #[error("the token's issuer `{0}` is not one of `oidc.issuers`")]
    Issuer(String),
    #[error("the token is for another audience than `{}`: sign in with that client id", .0.join("` or `"))]
    Audience(Vec<String>),
    /// Several entries of `oidc.issuers` have an audience of the token.
    #[error(
        "the token is for several clients of this gateway, and its claim `azp` names none of them: \
         sign in with one client id"
    )]
    SeveralAudiences,
    #[error(
        "the token was signed with a key that its issuer does not have (any more): sign in again"
    )]
    UnknownKey,
    #[error("the token's signature is not its issuer's")]
    Signature,
    #[error("the token has expired: sign in again with `holdfast login`")]
    Expired,
    #[error("the token is not valid yet: are the clocks of the issuer and the gateway right?")]
    NotYetValid,
    #[error("the token is of another sign-in: sign in again")]
    Nonce,
    #[error(
        "the identity provider did not accept the sign-in: try again, or ask whoever runs the \
         platform whether client id, secret and redirect address are right"
    )]
    CodeRefused,
    #[error("the gateway has no random numbers: try again")]
    NoRandom,
    /// A required claim is missing or malformed.
    #[error("the token's claim `{0}` is missing or not a text")]
    Claim(String),
    /// Holds the claim, or the name that is no tenant's.
    #[error("the token belongs to no tenant of this installation (`{0}`): ask its operator")]
    NoTenant(String),
    #[error("none of your groups has a role in the tenant `{0}`: ask whoever manages it")]
    NoRole(String),
    /// The issuer's keys are not known and cannot be fetched.
    #[error("the identity provider `{issuer}` does not answer ({why}): try again later")]
    Unavailable { issuer: String, why: String },
}

impl Fault for TokenError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoTenant(_) | Self::NoRole(_) => Kind::Forbidden,
            Self::Unavailable { .. } => Kind::Unavailable,
            Self::NoRandom => Kind::Internal,
            Self::NotConfigured
            | Self::Malformed
            | Self::Algorithm(_)
            | Self::Issuer(_)
            | Self::Audience(_)
            | Self::SeveralAudiences
            | Self::UnknownKey
            | Self::Signature
            | Self::Expired
            | Self::NotYetValid
            | Self::Nonce
            | Self::CodeRefused
            | Self::Claim(_) => Kind::Unauthenticated,
        }
    }
}

/// What a verified token says about its person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedToken {
    /// Name of the tenant.
    pub tenant: String,
    pub issuer: String,
    /// The person's id at the issuer.
    pub subject: String,
    /// Name for people to read.
    pub name: String,
    pub role: TenantRole,
}

/// Verifies tokens of the configured issuers. Clones share the cached keys.
#[derive(Debug, Clone)]
pub struct TokenVerifier {
    issuers: Arc<[(Issuer, Arc<IssuerKeys>)]>,
    clock_skew_seconds: u64,
}

/// Header of a token, before its signature is verified.
#[derive(Debug, Deserialize)]
struct UnverifiedHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that the receiver must understand (RFC 7515, 4.1.11): none is understood here.
    crit: Option<Value>,
}

impl TokenVerifier {
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn new(config: &config::Oidc) -> anyhow::Result<Self> {
        signatures::install();
        // Two clients of one issuer share its keys.
        let mut by_url = BTreeMap::new();
        let mut issuers = Vec::new();
        for issuer in &config.issuers {
            let keys = match by_url.get(&issuer.url) {
                Some(keys) => Arc::clone(keys),
                None => Arc::new(IssuerKeys::new(&issuer.url, config)?),
            };
            by_url.insert(issuer.url.clone(), Arc::clone(&keys));
            issuers.push((issuer.clone(), keys));
        }
        Ok(Self { issuers: issuers.into(), clock_skew_seconds: config.clock_skew.as_secs() })
    }

    /// Whether a bearer token has the form of a JWT.
    #[must_use]
    pub fn is_jwt(token: &str) -> bool {
        token.split('.').count() == 3
    }

    /// Verifies a token: signature, issuer, audience and times.
    ///
    /// # Errors
    ///
    /// [`TokenError`] for the first thing that is wrong.
    pub async fn verify(&self, token: &str) -> Result<VerifiedToken, TokenError> {
        let (issuer, claims) = self.verified_claims(token).await?;
        claims::read(issuer, &claims)
    }

    /// Returns the issuer and the claims of a token whose signature, audience and times are verified.
    async fn verified_claims(
        &self,
        token: &str,
    ) -> Result<(&Issuer, Map<String, Value>), TokenError> {
        if self.issuers.is_empty() {
            return Err(TokenError::NotConfigured);
        }
        let (header, claims) = read_unverified(token)?;
        let algorithm = accepted_algorithm(&header)?;
        let (issuer, keys) = self.choose_issuer(&claims)?;
        let key = keys.find(header.kid.as_deref(), algorithm).await?;

        let mut validation = Validation::new(algorithm);
        validation.set_issuer(&[&issuer.url]);
        validation.set_audience(&issuer.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.validate_nbf = true;
        validation.leeway = self.clock_skew_seconds;
        let verified = decode::<Map<String, Value>>(token, &key, &validation)
            .map_err(|error| refusal(error.kind(), issuer))?;
        Ok((issuer, verified.claims))
    }

    /// Returns the configured issuer that the unverified claims name. The signature is verified with
    /// its keys. Of several with an audience of the token, it is that of the client to which the token was
    /// given (`azp`): another one may have another tenant.
    fn choose_issuer(
        &self,
        claims: &Map<String, Value>,
    ) -> Result<&(Issuer, Arc<IssuerKeys>), TokenError> {
        let url = claims.get("iss").and_then(Value::as_str).unwrap_or_default();
        let mut named = self.issuers.iter().filter(|(issuer, _)| issuer.url == url).peekable();
        if named.peek().is_none() {
            return Err(TokenError::Issuer(shown(url)));
        }
        let wanted: Vec<String> =
            named.clone().flat_map(|(issuer, _)| issuer.audiences.clone()).collect();
        let mut able = named.filter(|(issuer, _)| claims::has_audience(claims, &issuer.audiences));
        let first = able.next().ok_or(TokenError::Audience(wanted))?;
        let Some(second) = able.next() else { return Ok(first) };
        let party = claims.get("azp").and_then(Value::as_str).unwrap_or_default();
        let mut all = [first, second].into_iter().chain(able);
        let found = all.find(|(issuer, _)| issuer.audiences.iter().any(|one| one == party));
        found.ok_or(TokenError::SeveralAudiences)
    }
}

fn read_unverified(token: &str) -> Result<(UnverifiedHeader, Map<String, Value>), TokenError> {
    let mut parts = token.split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(_), None) if token.len() <= MAX_TOKEN_BYTES => {
            Ok((read_part(header)?, read_part(claims)?))
        }
        _ => Err(TokenError::Malformed),
    }
}

fn read_part<T: DeserializeOwned>(part: &str) -> Result<T, TokenError> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| TokenError::Malformed)
}

fn accepted_algorithm(header: &UnverifiedHeader) -> Result<Algorithm, TokenError> {
    // A logout token has the same issuer and audience, and signs nobody in.
    let typ = header.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
    let is_known = matches!(typ.trim_start_matches("application/"), "jwt" | "at+jwt");
    if !is_known || header.crit.is_some() {
        return Err(TokenError::Malformed);
    }
    match header.alg.as_str() {
        "RS256" => Ok(Algorithm::RS256),
        "ES256" => Ok(Algorithm::ES256),
        "EdDSA" => Ok(Algorithm::EdDSA),
        other => Err(TokenError::Algorithm(shown(other))),
    }
}

fn refusal(kind: &ErrorKind, issuer: &Issuer) -> TokenError {
    match kind {
        ErrorKind::ExpiredSignature => TokenError::Expired,
        ErrorKind::ImmatureSignature => TokenError::NotYetValid,
        ErrorKind::InvalidAudience => TokenError::Audience(issuer.audiences.clone()),
        ErrorKind::InvalidIssuer => TokenError::Issuer(issuer.url.clone()),
        ErrorKind::MissingRequiredClaim(claim) | ErrorKind::InvalidClaimFormat(claim) => {
            TokenError::Claim(shown(claim))
        }
        ErrorKind::InvalidSignature => TokenError::Signature,
        _ => TokenError::Malformed,
    }
}

/// Beginning of a value from a token, for an error.
fn shown(value: &str) -> String {
    value.chars().filter(|letter| !letter.is_control()).take(MAX_SHOWN_CHARS).collect()
}
