//! Authentication, rate limit and limit on open calls, the same for HTTP and gRPC.
//!
//! | credential | sent by | permits |
//! |---|---|---|
//! | `authorization: Bearer hf_…` | a program, over HTTP or gRPC | what the key's scopes permit |
//! | `x-api-key: hf_…`, without `authorization` | a client of Anthropic's API, over HTTP | the same |
//! | `authorization: Bearer eyJ…` | a person, over HTTP or gRPC: a token of a configured issuer | what the person's role permits |
//! | `x-holdfast-context` | a service of the mesh, over gRPC | what needs the scope `service` |
//! | `authorization: Bearer hfn_…` | a node, over gRPC | connecting as that node |
//! | `hfd_…` | a device, over WebSocket, with its signature | what it was approved for, of what its approver may do |
//! | a cookie with `hfs_…` | the web console, below `/console` | what its key or person may do, unless its scopes limit it |
//!
//! The tenant is derived here and nowhere else. All callers of a tenant share one rate limit, kept in
//! Redis; while Redis is unreachable each process enforces a part of it by itself. Services of the
//! mesh have none for their calls, but messages that bridges received have one for each tenant: anybody
//! can write to a tenant's channels.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use holdfast_directory::{
    ApproverRights, ConsolePrincipal, ConsoleSessionLimits, DevicePrincipal, Directory,
    Error as DirectoryError, KeyPrincipal, LimitLevel, LimitName, PersonPrincipal, ProviderAnswer,
    SignIn, Tenant,
};
use holdfast_doors::{CLIENTS_PER_SITE, ClientNetwork};
use holdfast_grpc::{
    CONTEXT_HEADER, CallTarget, Caller, InvalidContext, Principal, Scope, Scopes, Signer, Via,
};
use holdfast_kit::config::reload::Current;
use holdfast_lock::{Limit, Locks, Verdict};
use holdfast_types::{Fault as _, KeyId, Kind, PersonId, TenantId, TenantRole};
use http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, ORIGIN},
};
use jiff::Timestamp;
use secrecy::SecretString;

use crate::{
    Config, Error,
    bodies::BodyBudget,
    calls::{CallLimiter, OpenCall},
    config,
    oidc::{TokenError, TokenVerifier, VerifiedToken},
    permissions::{includes_scope, operator_scopes::Grants},
};

/// Service of the mesh that calls the gateway.
const CALLING_SERVICE: &str = "channel-bridge";

/// Refused calls of a tenant that the audit log records.
const RECORDED_REFUSALS: Limit = Limit { burst: 120, per: Duration::from_secs(60) };

/// Sign-ins to the web console that are tried from one address.
const SIGN_INS: Limit = Limit { burst: 60, per: Duration::from_secs(60) };

/// Scopes of which roles of people are made.
const ROLE_SCOPES: [Scope; 7] = [
    Scope::Guest,
    Scope::Chat,
    Scope::Read,
    Scope::Events,
    Scope::Approve,
    Scope::Admin,
    Scope::Owner,
];

/// Token of a console session, an extension of requests that came with its cookie.
#[derive(Debug, Clone)]
pub struct SessionToken(pub SecretString);

/// Authenticates callers and enforces their limits. Clones share the limits.
#[derive(Debug, Clone)]
pub struct Authenticator {
    directory: Directory,
    locks: Locks,
    signer: Option<Signer>,
    tokens: TokenVerifier,
    settings: Current<Config>,
    calls: Arc<CallLimiter>,
    bodies: BodyBudget,
}

impl Authenticator {
    /// Without a `signer`, calls from services of the mesh are refused.
    #[must_use]
    pub fn new(
        directory: Directory,
        locks: Locks,
        signer: Option<Signer>,
        tokens: TokenVerifier,
        settings: Current<Config>,
    ) -> Self {
        let (calls, bodies) = (Arc::new(CallLimiter::new()), BodyBudget::new(settings.clone()));
        Self { directory, locks, signer, tokens, settings, calls, bodies }
    }

    pub(crate) const fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whether the audit log may get one more refused call of this tenant now.
    pub(crate) async fn may_record_refusal(&self, tenant: TenantId) -> bool {
        let key = format!("{}:audit", tenant.as_uuid().simple());
        matches!(self.locks.allow(&key, RECORDED_REFUSALS, 1).await, Verdict::Allow { .. })
    }

    /// Budget of the bodies of admitted calls.
    #[must_use]
    pub const fn bodies(&self) -> &BodyBudget {
        &self.bodies
    }

    /// Admits a call with an API key or a person's token. The call counts as open until the returned
    /// guard is dropped.
    ///
    /// # Errors
    ///
    /// If the credential is missing or not valid, the rate is used up, or too many calls are open.
    pub async fn admit(&self, headers: &HeaderMap) -> Result<(Caller, OpenCall), Error> {
        let (caller, limits) = self.verify(key_of_request(headers)?, headers.get(ORIGIN)).await?;
        let call = self.admit_call(caller.tenant, limits).await?;
        Ok((caller, call))
    }

    /// As [`admit`](Self::admit), with the token of a console session.
    ///
    /// # Errors
    ///
    /// As [`admit`](Self::admit).
    pub async fn admit_session(&self, token: &str) -> Result<(Caller, OpenCall), Error> {
        let idle = self.session_limits().idle;
        let sessions = self.directory.console_sessions();
        let mut known = sessions.authenticate(token, idle).await?;
        if self.ask_provider(&known).await? {
            known = sessions.check(token, idle).await?;
        }
        let (caller, limits) = caller_of_session(known)?;
        let call = self.admit_call(caller.tenant, limits).await?;
        Ok((caller, call))
    }

    /// Time after which sessions of the console end.
    #[must_use]
    pub fn session_limits(&self) -> ConsoleSessionLimits {
        let console = &self.settings.get().gateway.console;
        ConsoleSessionLimits {
            idle: console.idle_timeout,
            lifetime: console.session_lifetime,
            unchecked: console.unchecked_lifetime,
        }
    }

    /// Asks the identity provider of a session's person whether they are one of its people, if it was not
    /// asked for a while. Returns whether it was asked: then the session may have ended, or the role may
    /// have changed. A provider that does not answer is asked again later.
    async fn ask_provider(&self, known: &ConsolePrincipal) -> Result<bool, Error> {
        let (Some(checked_at), ApproverRights::Person { person, .. }) =
            (known.checked_at, &known.holder)
        else {
            return Ok(false);
        };
        let interval = self.settings.get().gateway.console.provider_check_interval;
        let age = Timestamp::now().duration_since(checked_at);
        if Duration::try_from(age).unwrap_or_default() < interval {
            return Ok(false);
        }
        let people = self.directory.people();
        let check = people.begin_provider_check(known.tenant, *person, interval).await?;
        let Some(check) = check else { return Ok(false) };
        let answer = match self.tokens.refresh(&check.sign_in).await {
            Ok(refreshed) => {
                // Name and role may have changed.
                let is_same = match refreshed.person {
                    None => true,
                    Some(token) => match self.known_person(token).await {
                        Ok(found) => found.person == *person && found.tenant == known.tenant,
                        // The refresh token was used: whatever fails here, the new one is stored.
                        Err(error) => matches!(error.kind(), Kind::Unavailable | Kind::Internal),
                    },
                };
                match is_same {
                    true => ProviderAnswer::Accepted(refreshed.refresh_token),
                    false => ProviderAnswer::Refused,
                }
            }
            Err(error @ (TokenError::Unavailable { .. } | TokenError::NotConfigured)) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "an identity provider cannot be asked about a person");
                ProviderAnswer::Unavailable
            }
            Err(_) => ProviderAnswer::Refused,
        };
        people.end_provider_check(&check, answer).await?;
        Ok(true)
    }

    /// Counts an attempt to sign in to the console.
    ///
    /// # Errors
    ///
    /// [`Error::TooManySignIns`] if too many come from this address or its site.
    pub async fn count_sign_in(&self, address: IpAddr) -> Result<(), Error> {
        let client = ClientNetwork::of(address);
        let of_site = Limit { burst: SIGN_INS.burst * CLIENTS_PER_SITE, ..SIGN_INS };
        let networks = [(Some(client), SIGN_INS), (client.site(), of_site)];
        for (network, limit) in networks {
            let Some(network) = network else { continue };
            match self.locks.allow(&format!("sign-in:{network}"), limit, 1).await {
                Verdict::Allow { .. } => {}
                Verdict::Deny { retry_after } => return Err(Error::TooManySignIns { retry_after }),
            }
        }
        Ok(())
    }

    /// As [`admit`](Self::admit), with the credential of a WebSocket connection.
    ///
    /// # Errors
    ///
    /// As [`admit`](Self::admit).
    pub async fn admit_connection(
        &self,
        token: &str,
    ) -> Result<(CredentialHolder, OpenCall), Error> {
        if Directory::is_console_token(token) {
            let (caller, call) = self.admit_session(token).await?;
            return Ok((CredentialHolder::of_caller(caller), call));
        }
        let (identity, limits) = self.verify_connection(token).await?;
        let call = self.admit_call(identity.caller.tenant, limits).await?;
        Ok((identity, call))
    }

    /// Returns the holder of the credential of a WebSocket handshake. The handshake counts against the
    /// tenant's rate.
    ///
    /// # Errors
    ///
    /// If the credential is not valid, or the rate is used up.
    pub async fn identify(&self, token: &str) -> Result<CredentialHolder, Error> {
        let (identity, limits) = self.verify_connection(token).await?;
        self.count_call(identity.caller.tenant, limits.rate).await?;
        Ok(identity)
    }

    /// As [`identify`](Self::identify), for a connection that is open: counts no call, and stores
    /// nothing about its person.
    ///
    /// # Errors
    ///
    /// As [`identify`](Self::identify).
    pub async fn check_connection(&self, token: &str) -> Result<CredentialHolder, Error> {
        if !TokenVerifier::is_jwt(token) {
            return self.verify_connection(token).await.map(|(identity, _)| identity);
        }
        let said = sign_in(self.tokens.verify(token).await?);
        let person = self.directory.people().check(&said).await?;
        Ok(CredentialHolder::of_caller(caller_of_person(person).0))
    }

    async fn verify_connection(
        &self,
        token: &str,
    ) -> Result<(CredentialHolder, CallLimits), Error> {
        if Directory::is_device_token(token) {
            let known = self.directory.devices().authenticate(token).await?;
            let limits = CallLimits { rate: known.rate, concurrent: known.concurrent_calls };
            return Ok((identity_of_device(known), limits));
        }
        let (caller, limits) = if Directory::is_console_token(token) {
            let sessions = self.directory.console_sessions();
            let idle = self.session_limits().idle;
            // A connection of which nobody makes use does not keep its session alive.
            let mut known = sessions.check(token, idle).await?;
            if self.ask_provider(&known).await? {
                known = sessions.check(token, idle).await?;
            }
            caller_of_session(known)?
        } else {
            self.verify(token, None).await?
        };
        Ok((CredentialHolder::of_caller(caller), limits))
    }

    async fn verify(
        &self,
        token: &str,
        origin: Option<&HeaderValue>,
    ) -> Result<(Caller, CallLimits), Error> {
        if TokenVerifier::is_jwt(token) {
            return self.person(token).await;
        }
        let known = self.directory.keys().authenticate(token).await?;
        let is_from = |allowed: &String| origin.is_some_and(|origin| origin == allowed.as_str());
        if !known.origins.is_empty() && !known.origins.iter().any(is_from) {
            return Err(Error::OriginOfKey);
        }
        let limits = CallLimits { rate: known.rate, concurrent: known.concurrent_calls };
        Ok((caller(known), limits))
    }

    /// Returns the person of a token, and the tenant's limits.
    async fn person(&self, token: &str) -> Result<(Caller, CallLimits), Error> {
        let known = self.known_person(self.tokens.verify(token).await?).await?;
        Ok(caller_of_person(known))
    }

    /// Returns the person of a verified token.
    ///
    /// # Errors
    ///
    /// If the person or the tenant may not sign in.
    pub async fn known_person(&self, token: VerifiedToken) -> Result<PersonPrincipal, Error> {
        let said = sign_in(token);
        self.directory.people().sign_in(&said).await.map_err(|error| match error {
            DirectoryError::NotFound { .. } => TokenError::NoTenant(said.tenant.clone()).into(),
            other => Error::from(other),
        })
    }

    /// As [`admit`](Self::admit), and also admits nodes and the mesh's service for channels. `method`
    /// is the path of the request.
    ///
    /// # Errors
    ///
    /// As [`admit`](Self::admit), or if the signed context is not valid.
    pub async fn admit_any(
        &self,
        headers: &HeaderMap,
        method: &str,
    ) -> Result<(Caller, OpenCall), Error> {
        match (&self.signer, headers.get(CONTEXT_HEADER)) {
            (Some(signer), Some(context)) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let context = context.to_str().unwrap_or_default();
                let target = CallTarget { audience: "gateway", method };
                let (tenant, name) = signer.verify(context, target, now.as_secs())?;
                if name != CALLING_SERVICE {
                    return Err(InvalidContext::WrongService.into());
                }
                let scopes = Scopes::EMPTY.with(Scope::Service);
                let call = self.open_call(tenant, None)?;
                let principal = Principal::Service;
                Ok((
                    Caller {
                        tenant,
                        principal,
                        person: None,
                        agent: None,
                        via: None,
                        scopes,
                        name,
                    },
                    call,
                ))
            }
            _ => match bearer(headers) {
                Ok(token) if Directory::is_node_token(token) => self.admit_node(token).await,
                Ok(_) | Err(_) => self.admit(headers).await,
            },
        }
    }

    async fn admit_node(&self, token: &str) -> Result<(Caller, OpenCall), Error> {
        let known = self.directory.nodes().authenticate(token).await?;
        let limits = CallLimits { rate: known.rate, concurrent: known.concurrent_calls };
        let call = self.admit_call(known.tenant, limits).await?;
        let scopes = Scopes::EMPTY.with(Scope::Node);
        let (principal, tenant) = (Principal::Node, known.tenant);
        Ok((
            Caller {
                tenant,
                principal,
                person: None,
                agent: None,
                via: None,
                scopes,
                name: known.name,
            },
            call,
        ))
    }

    fn open_call(&self, tenant: TenantId, of_plan: Option<u32>) -> Result<OpenCall, Error> {
        let config::Gateway { calls, calls_per_tenant, .. } = self.settings.get().gateway;
        self.calls.open(tenant, (calls, calls_per_tenant), of_plan)
    }

    /// Counts a call against the tenant's rate, and opens it. A limit that is nearly or fully used up
    /// is noticed in the background.
    async fn admit_call(&self, tenant: TenantId, limits: CallLimits) -> Result<OpenCall, Error> {
        let CallLimits { rate, concurrent } = limits;
        self.count_call(tenant, rate).await?;
        let call = self.open_call(tenant, concurrent);
        if let (Some(limit), Err(Error::TooManyCalls { .. })) = (concurrent, &call) {
            self.notice(tenant, LimitName::ConcurrentCalls, (limit.into(), limit.into()));
        }
        call
    }

    /// Counts a call against the tenant's rate per minute.
    async fn count_call(&self, tenant: TenantId, rate: u32) -> Result<(), Error> {
        let bucket = limit(rate, self.settings.get().gateway.rate_window);
        let key = format!("{}:calls", tenant.as_uuid().simple());
        let (verdict, left) = match self.locks.allow(&key, bucket, 1).await {
            Verdict::Allow { remaining } => (Ok(()), remaining),
            Verdict::Deny { retry_after } => (Err(Error::RateLimited { rate, retry_after }), 0),
        };
        let used = u64::from(bucket.burst.saturating_sub(left));
        let used_of_minute = match verdict {
            // Of a bucket that is full, as much of the rate is used.
            Ok(()) => u64::from(rate) * used.saturating_sub(1) / u64::from(bucket.burst.max(1)),
            Err(_) => rate.into(),
        };
        self.notice(tenant, LimitName::CallsPerMinute, (used_of_minute, rate.into()));
        verdict
    }

    /// Counts a message of a channel against the tenant's rate; calls are counted by themselves. Returns
    /// the tenant.
    ///
    /// # Errors
    ///
    /// If the rate is used up, or there is no such tenant.
    pub async fn count_message(&self, tenant: TenantId) -> Result<Tenant, Error> {
        let tenant = self.directory.tenants().get(&tenant.to_string()).await?;
        let bucket = limit(tenant.rate, self.settings.get().gateway.rate_window);
        let key = format!("{}:messages", tenant.id.as_uuid().simple());
        match self.locks.allow(&key, bucket, 1).await {
            Verdict::Allow { .. } => Ok(tenant),
            Verdict::Deny { retry_after } => {
                Err(Error::RateLimited { rate: tenant.rate, retry_after })
            }
        }
    }

    /// Gives notice of a limit in the background, if it is nearly or fully used up.
    fn notice(&self, tenant: TenantId, name: LimitName, (used, limit): (u64, u64)) {
        if LimitLevel::of(used, limit) == LimitLevel::Ok {
            return;
        }
        let directory = self.directory.clone();
        tokio::spawn(async move {
            if let Err(error) = directory.plans().notice(tenant, name, (used, limit)).await {
                let error: &dyn std::error::Error = &error;
                tracing::debug!(error, tenant.id = %tenant, "a limit was not noticed");
            }
        });
    }
}

/// Holder of the credential of a WebSocket connection.
#[derive(Debug, Clone)]
pub struct CredentialHolder {
    pub caller: Caller,
    /// Scopes that the connection may have.
    pub grants: Grants,
    /// Id of the device whose token the credential is. The connection has to prove that it is this
    /// device.
    pub device: Option<String>,
}

impl CredentialHolder {
    fn of_caller(caller: Caller) -> Self {
        let grants = Grants::of(&caller);
        Self { caller, grants, device: None }
    }
}

/// Limits of a tenant's calls.
#[derive(Debug, Clone, Copy)]
struct CallLimits {
    /// Requests per minute.
    rate: u32,
    /// Calls open at once.
    concurrent: Option<u32>,
}

/// Converts a rate per minute to a token bucket that refills in `window`; it holds at least one
/// call.
fn limit(rate: u32, window: Duration) -> Limit {
    let minute = Duration::from_secs(60);
    let burst = (window.as_secs_f64() / minute.as_secs_f64() * f64::from(rate)).max(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float that is too large becomes the largest integer, which is what is meant"
    )]
    let burst = burst as u32;
    Limit { burst, per: minute.mul_f64(f64::from(burst) / f64::from(rate.max(1))) }
}

/// Header in which clients of Anthropic's API send their key.
const API_KEY: &str = "x-api-key";

/// Key of an HTTP request.
fn key_of_request(headers: &HeaderMap) -> Result<&str, Error> {
    match headers.get(API_KEY) {
        Some(key) if !headers.contains_key(AUTHORIZATION) => {
            let key = key.to_str().ok().map(str::trim);
            key.filter(|key| !key.is_empty()).ok_or(Error::MalformedKey)
        }
        Some(_) | None => bearer(headers),
    }
}

fn bearer(headers: &HeaderMap) -> Result<&str, Error> {
    let header = headers.get(AUTHORIZATION).ok_or(Error::NoKey)?;
    let token = header.to_str().ok().and_then(|header| {
        let (scheme, token) = header.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    token.filter(|token| !token.is_empty()).ok_or(Error::MalformedKey)
}

fn caller(known: KeyPrincipal) -> Caller {
    let KeyPrincipal { tenant, key, name, scopes, person, agent, .. } = known;
    Caller { agent, ..caller_of_key(tenant, (key, &scopes, person), name) }
}

/// A key that is a person's has those of its scopes that their role includes.
fn caller_of_key(
    tenant: TenantId,
    (key, scopes, person): (KeyId, &[String], Option<(PersonId, TenantRole)>),
    name: String,
) -> Caller {
    let role = person.map(|(_, role)| role);
    let is_included = |scope: &Scope| role.is_none_or(|role| includes_scope(role, *scope));
    let scopes = scopes_of_key(scopes).iter().filter(is_included).collect();
    let (principal, person) = (Principal::Key(key), person.map(|(person, _)| person));
    Caller { tenant, principal, person, agent: None, via: None, scopes, name }
}

fn sign_in(token: VerifiedToken) -> SignIn {
    let VerifiedToken { tenant, issuer, subject, name, role } = token;
    SignIn { tenant, issuer, subject, name, role }
}

fn caller_of_person(known: PersonPrincipal) -> (Caller, CallLimits) {
    let principal = Principal::Person { id: known.person, role: known.role };
    let limits = CallLimits { rate: known.rate, concurrent: known.concurrent_calls };
    let (tenant, person) = (known.tenant, Some(known.person));
    (
        Caller {
            tenant,
            principal,
            person,
            agent: None,
            via: None,
            scopes: Scopes::EMPTY,
            name: known.name,
        },
        limits,
    )
}

fn scopes_of_key(stored: &[String]) -> Scopes {
    // Scopes that only a later version knows grant nothing here.
    let scopes = stored.iter().filter_map(|word| word.parse::<Scope>().ok());
    // No key acts as a service or a node, whatever scopes are stored with it.
    scopes.filter(|scope| !matches!(scope, Scope::Service | Scope::Node)).collect()
}

/// A session acts as its key or person, with those of their rights that its scopes include.
fn caller_of_session(known: ConsolePrincipal) -> Result<(Caller, CallLimits), Error> {
    let limits = CallLimits { rate: known.rate, concurrent: known.concurrent_calls };
    let limit = known.scopes.as_deref().map(scopes_of_key);
    if limit == Some(Scopes::EMPTY) {
        // This version knows none of its scopes, and a person without scopes has no limit.
        return Err(DirectoryError::SessionEnded.into());
    }
    let mut caller = caller_of_rights(known.tenant, known.holder, known.name);
    caller.via = Some(Via::Session(known.session));
    if let Some(limit) = limit {
        // A person without scopes has no limit.
        let is_unlimited =
            matches!(caller.principal, Principal::Person { .. }) && caller.scopes == Scopes::EMPTY;
        let own = if is_unlimited { ROLE_SCOPES.into_iter().collect() } else { caller.scopes };
        caller.scopes = own.iter().filter(|scope| limit.has(*scope)).collect();
        if caller.scopes == Scopes::EMPTY && is_unlimited {
            return Err(DirectoryError::SessionEnded.into());
        }
    }
    Ok((caller, limits))
}

/// Caller with the rights of a key or a person, as they are now.
fn caller_of_rights(tenant: TenantId, rights: ApproverRights, name: String) -> Caller {
    match rights {
        ApproverRights::Key { key, scopes, person } => {
            caller_of_key(tenant, (key, &scopes, person), name)
        }
        ApproverRights::Person { person: id, role, operates } => {
            let scopes = match operates {
                // No role includes the operation of the installation.
                true => ROLE_SCOPES.into_iter().chain([Scope::Platform]).collect(),
                false => Scopes::EMPTY,
            };
            let principal = Principal::Person { id, role };
            Caller { tenant, principal, person: Some(id), agent: None, via: None, scopes, name }
        }
    }
}

/// A device acts as its person, or else as its approver, with those of the approver's rights that it was
/// approved for.
fn identity_of_device(known: DevicePrincipal) -> CredentialHolder {
    let DevicePrincipal { tenant, device, name, approver, person, .. } = known;
    let approved_by = match &approver {
        ApproverRights::Key { key, .. } => key.to_string(),
        ApproverRights::Person { person, .. } => person.to_string(),
    };
    let mut caller = caller_of_rights(tenant, approver, name);
    caller.via = Some(Via::Device { id: device.clone(), approver: approved_by });
    if let Some(id) = person {
        caller.person = Some(id);
        caller.principal = match caller.principal {
            Principal::Person { role, .. } => Principal::Person { id, role },
            // A person without scopes would have no limit.
            Principal::Key(_) if caller.scopes != Scopes::EMPTY => {
                Principal::Person { id, role: TenantRole::Owner }
            }
            other => other,
        };
    }
    let grants = Grants::of(&caller).limit_to(Some(&known.scopes));
    CredentialHolder { caller, grants, device: Some(device) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_a_minute_becomes_a_bucket_that_fills_as_fast() {
        let ten = Duration::from_secs(10);

        assert_eq!(limit(6000, ten), Limit { burst: 1000, per: ten });
        assert_eq!(limit(1, ten), Limit { burst: 1, per: Duration::from_secs(60) });
    }

    #[test]
    fn only_a_bearer_token_is_read() {
        let token = |value: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            bearer(&headers).map(str::to_owned)
        };

        assert_eq!(token("bearer  hf_x").unwrap(), "hf_x");
        for wrong in ["", "hf_x", "Basic hf_x", "Bearer ", "Bearer"] {
            assert!(matches!(token(wrong), Err(Error::MalformedKey)), "{wrong:?}");
        }
        assert!(matches!(bearer(&HeaderMap::new()), Err(Error::NoKey)));
    }

    #[test]
    fn a_key_in_its_own_header_counts_where_no_other_is() {
        let mut headers = HeaderMap::new();
        headers.insert(API_KEY, HeaderValue::from_static(" hf_x "));
        assert_eq!(key_of_request(&headers).unwrap(), "hf_x");

        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer hf_y"));
        assert_eq!(key_of_request(&headers).unwrap(), "hf_y");

        let empty =
            HeaderMap::from_iter([(API_KEY.parse().unwrap(), HeaderValue::from_static(""))]);
        assert!(matches!(key_of_request(&empty), Err(Error::MalformedKey)));
        assert!(matches!(key_of_request(&HeaderMap::new()), Err(Error::NoKey)));
    }

    #[test]
    fn no_key_is_a_service_of_the_mesh() {
        let known = KeyPrincipal {
            tenant: TenantId::generate(),
            key: KeyId::generate(),
            name: "ci".into(),
            scopes: ["chat", "service", "node", "of-tomorrow"].map(str::to_owned).into(),
            person: None,
            agent: None,
            origins: Vec::new(),
            rate: 1,
            concurrent_calls: None,
        };

        assert_eq!(caller(known).scopes, Scopes::EMPTY.with(Scope::Chat));
    }
}
