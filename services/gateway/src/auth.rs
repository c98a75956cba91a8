//! Authentication, rate limit and limit on open calls, the same for HTTP and gRPC.
//!
//! | credential | sent by | permits |
//! |---|---|---|
//! | `authorization: Bearer hf_…` | any caller, over HTTP or gRPC | what the key's scopes permit |
//! | `x-holdfast-context` | a service of the mesh, over gRPC | what needs the scope `service` |
//! | `authorization: Bearer hfn_…` | a node, over gRPC | connecting as that node |
//!
//! The tenant is derived here and nowhere else. All keys of a tenant share one rate limit, kept in
//! Redis; while Redis is unreachable each process enforces a part of it by itself. Services of the
//! mesh have no rate limit.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use holdfast_directory::{Directory, KeyPrincipal};
use holdfast_grpc::{CONTEXT_HEADER, CallTarget, Caller, InvalidContext, Scope, Scopes, Signer};
use holdfast_lock::{Limit, Locks, Verdict};
use holdfast_types::TenantId;
use http::{HeaderMap, header::AUTHORIZATION};

use crate::{
    Error,
    bodies::BodyBudget,
    calls::{CallLimiter, OpenCall},
    config,
};

/// Service of the mesh that calls the gateway.
const CALLING_SERVICE: &str = "channel-bridge";

/// Authenticates callers and enforces their limits. Clones share the limits.
#[derive(Debug, Clone)]
pub struct Authenticator {
    directory: Directory,
    locks: Locks,
    signer: Option<Signer>,
    window: Duration,
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
        config: &config::Gateway,
    ) -> Self {
        let calls = Arc::new(CallLimiter::new(config.calls, config.calls_per_tenant));
        let (window, bodies) = (config.rate_window, BodyBudget::new(config));
        Self { directory, locks, signer, window, calls, bodies }
    }

    /// Budget of the bodies of admitted calls.
    #[must_use]
    pub const fn bodies(&self) -> &BodyBudget {
        &self.bodies
    }

    /// Admits a call with an API key. The call counts as open until the returned guard is
    /// dropped.
    ///
    /// # Errors
    ///
    /// If the key is missing or not valid, the rate is used up, or too many calls are open.
    pub async fn admit(&self, headers: &HeaderMap) -> Result<(Caller, OpenCall), Error> {
        let known = self.directory.keys().authenticate(bearer(headers)?).await?;
        self.check_rate(known.tenant, known.rate).await?;
        let call = self.calls.open(known.tenant)?;
        Ok((caller(known), call))
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
                let call = self.calls.open(tenant)?;
                Ok((Caller { tenant, key: None, scopes, name }, call))
            }
            _ => match bearer(headers) {
                Ok(token) if Directory::is_node_token(token) => self.admit_node(token).await,
                Ok(_) | Err(_) => self.admit(headers).await,
            },
        }
    }

    async fn admit_node(&self, token: &str) -> Result<(Caller, OpenCall), Error> {
        let known = self.directory.nodes().authenticate(token).await?;
        self.check_rate(known.tenant, known.rate).await?;
        let call = self.calls.open(known.tenant)?;
        let scopes = Scopes::EMPTY.with(Scope::Node);
        Ok((Caller { tenant: known.tenant, key: None, scopes, name: known.name }, call))
    }

    async fn check_rate(&self, tenant: TenantId, rate: u32) -> Result<(), Error> {
        let limit = limit(rate, self.window);
        let key = format!("{}:calls", tenant.as_uuid().simple());
        match self.locks.allow(&key, limit, 1).await {
            Verdict::Allow { .. } => Ok(()),
            Verdict::Deny { retry_after } => Err(Error::RateLimited { rate, retry_after }),
        }
    }
}

/// Checks that the caller has a scope.
///
/// # Errors
///
/// [`Error::Scope`], with the missing scope.
pub fn require(caller: &Caller, scope: Scope) -> Result<(), Error> {
    if caller.scopes.has(scope) {
        Ok(())
    } else {
        Err(Error::Scope { needs: scope.as_str(), has: caller.scopes })
    }
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

fn bearer(headers: &HeaderMap) -> Result<&str, Error> {
    let header = headers.get(AUTHORIZATION).ok_or(Error::NoKey)?;
    let token = header.to_str().ok().and_then(|header| {
        let (scheme, token) = header.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    token.filter(|token| !token.is_empty()).ok_or(Error::MalformedKey)
}

fn caller(known: KeyPrincipal) -> Caller {
    // Scopes that only a later version knows grant nothing here.
    let scopes = known.scopes.iter().filter_map(|word| word.parse::<Scope>().ok());
    // No key acts as a service or a node, whatever scopes are stored with it.
    let scopes = scopes.filter(|scope| !matches!(scope, Scope::Service | Scope::Node)).collect();
    Caller { tenant: known.tenant, key: Some(known.key), scopes, name: known.name }
}

#[cfg(test)]
mod tests {
    use holdfast_types::KeyId;

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
    fn no_key_is_a_service_of_the_mesh() {
        let known = KeyPrincipal {
            tenant: TenantId::generate(),
            key: KeyId::generate(),
            name: "ci".into(),
            scopes: ["chat", "service", "node", "of-tomorrow"].map(str::to_owned).into(),
            rate: 1,
        };

        assert_eq!(caller(known).scopes, Scopes::EMPTY.with(Scope::Chat));
    }
}
