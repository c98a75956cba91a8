//! Signed context of calls between services: the header `x-holdfast-context`.
//!
//! | version | value | signed |
//! |---|---|---|
//! | 2 | `v2.<tenant>.<calling service>.<time>.<nonce>.<HMAC-SHA-256>` | these, the called service and the method |
//! | 1 | `v1.<tenant>.<calling service>.<time>.<HMAC-SHA-256>` | these |
//!
//! Each service has a key of its own: a configured one, or one that follows from the mesh's secret
//! and the service's name. A context of version 2 is accepted once by each process of the called
//! service. Version 1 is of services of the previous version of Holdfast; it is not written any
//! more, is accepted only with `mesh.accept_version_1`, and the next version will not know it.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_kit::{Nonce, RefusedMessage, SeenMessages, config};
use holdfast_types::{Fault, Kind, TenantId};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use tracing::warn;

/// Name of the HTTP header and of the gRPC metadata key.
pub const CONTEXT_HEADER: &str = "x-holdfast-context";

/// Interval at which a difference between clocks is logged, in seconds.
const SKEW_LOG_INTERVAL_SECONDS: u64 = 60;

/// Minimum length of the mesh's secret and of a service's key, in bytes.
pub(crate) const MIN_SECRET_BYTES: usize = 16;

/// Purpose of the keys that follow from the mesh's secret.
const KEY_LABEL: &str = "holdfast mesh key 2";

type Key = Hmac<Sha256>;

/// Error for keys of the mesh that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMeshKey {
    #[error(
        "`{setting}` has {bytes} bytes, and {MIN_SECRET_BYTES} are the least: try `openssl rand \
         -hex 32`"
    )]
    Weak { setting: &'static str, bytes: usize },
    #[error("`mesh.caller_keys` cannot be read: write `channel-bridge=<key>,agent-runner=<key>`")]
    Malformed,
    #[error("`mesh.node_public_key` is no key: copy what a runner logs at its start")]
    MalformedPublicKey,
}

/// Reason why a context is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidContext {
    #[error("the context is malformed")]
    Malformed,
    /// Signed with another key, for another service or method, or changed.
    #[error(
        "the context's signature is wrong: are `mesh.caller_keys` here the callers' `mesh.key`, or \
         is `mesh.secret` the same in both services?"
    )]
    Forged,
    /// Of version 1, which is not accepted here.
    #[error(
        "the calling service is of the version before: update it, or set `mesh.accept_version_1` \
         here until it is"
    )]
    OldVersion,
    /// The call was received before.
    #[error("the context was used before: each call needs its own")]
    Replayed,
    /// Too many calls are remembered to accept another one.
    #[error("too many calls arrived within `mesh.clock_tolerance`: lower it, or add a replica")]
    TooMany,
    /// The service may not call this one.
    #[error("this service may not call that one")]
    WrongService,
    /// Too old, or from the future.
    #[error(
        "the clock of the calling service is {skew} s {} this one's, and \
         `mesh.clock_tolerance` is {tolerance} s: set the clocks of both machines, or raise it",
        if *is_ahead { "ahead of" } else { "behind" }
    )]
    Expired {
        /// Difference in seconds.
        skew: u64,
        is_ahead: bool,
        /// Accepted difference in seconds.
        tolerance: u64,
    },
}

impl Fault for InvalidContext {
    fn kind(&self) -> Kind {
        match self {
            Self::Malformed
            | Self::Forged
            | Self::OldVersion
            | Self::Replayed
            | Self::Expired { .. } => Kind::Unauthenticated,
            Self::WrongService => Kind::Forbidden,
            Self::TooMany => Kind::Unavailable,
        }
    }
}

/// Returns the service in whose name a context is, before it is verified.
pub(crate) fn claimed_service(context: &str) -> Option<&str> {
    context.split('.').nth(2)
}

/// Call that a context is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTarget<'a> {
    /// Name of the called service.
    pub audience: &'a str,
    /// Path of the request: `/package.Service/Method`.
    pub method: &'a str,
}

/// Signs the contexts of outgoing calls and verifies those of incoming ones.
#[derive(Clone)]
pub struct Signer {
    /// Keys that follow from the mesh's secret and the previous one, before the name of a service.
    shared: Vec<Key>,
    /// Key of this service, if it is not one of those.
    own: Option<Key>,
    /// Keys of calling services that have their own: one, or two during a rotation.
    callers: Arc<HashMap<String, Vec<Key>>>,
    accepts_version_1: bool,
    /// Accepted difference between clocks, in seconds.
    tolerance: u64,
    seen: Arc<Mutex<SeenMessages>>,
    /// Time of the last log line about a difference, in Unix seconds.
    logged_at: Arc<AtomicU64>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    /// # Errors
    ///
    /// If a key is too short, or the list of keys cannot be read. `mesh.secret` may be empty only
    /// if there are other keys.
    pub fn new(mesh: &config::Mesh) -> Result<Self, InvalidMeshKey> {
        let (own, callers) = (optional("mesh.key", &mesh.key)?, caller_keys(&mesh.caller_keys)?);
        let secret = match own.is_none() && callers.is_empty() {
            true => Some(key("mesh.secret", mesh.secret.expose_secret())?),
            false => optional("mesh.secret", &mesh.secret)?,
        };
        let previous = optional("mesh.previous_secret", &mesh.previous_secret)?;
        Ok(Self {
            shared: secret.into_iter().chain(previous).collect(),
            own,
            callers: Arc::new(callers),
            accepts_version_1: mesh.accept_version_1,
            tolerance: mesh.clock_tolerance.as_secs(),
            seen: Arc::default(),
            logged_at: Arc::default(),
        })
    }

    /// Returns the context of a call that `service` makes for a tenant, at `now` in Unix seconds.
    ///
    /// `service` must not contain a dot, which separates the parts. Without a key for the service
    /// the context is empty, which no service accepts.
    #[must_use]
    pub fn sign(
        &self,
        tenant: TenantId,
        service: &str,
        target: CallTarget<'_>,
        now: u64,
    ) -> String {
        let shared = || self.shared.first().map(|secret| service_key(secret, service));
        let Some(key) = self.own.clone().or_else(shared) else { return String::new() };
        let nonce = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<Nonce>());
        let claim = format!("v2.{}.{service}.{now}.{nonce}", tenant.as_uuid().simple());
        let mac = bound(key, &claim, target).finalize().into_bytes();
        format!("{claim}.{}", BASE64_URL_SAFE_NO_PAD.encode(mac))
    }

    /// Returns the tenant and the calling service of a valid context, and remembers the call; `now`
    /// is in Unix seconds. Logs clocks that differ by more than half of what is accepted, once a
    /// minute.
    ///
    /// # Errors
    ///
    /// [`InvalidContext`] if it is malformed, forged, for another target, expired or used before.
    pub fn verify(
        &self,
        value: &str,
        target: CallTarget<'_>,
        now: u64,
    ) -> Result<(TenantId, String), InvalidContext> {
        use InvalidContext::{Forged, Malformed, OldVersion};

        let (claim, mac) = value.rsplit_once('.').ok_or(Malformed)?;
        let mac = BASE64_URL_SAFE_NO_PAD.decode(mac).map_err(|_| Malformed)?;
        let parts: Vec<&str> = claim.split('.').collect();
        let (version, tenant, service, issued, nonce) = match parts.as_slice() {
            ["v1", tenant, service, issued] => (1, tenant, service, issued, None),
            ["v2", tenant, service, issued, nonce] => (2, tenant, service, issued, Some(nonce)),
            _ => return Err(Malformed),
        };
        if version == 1 && !self.accepts_version_1 {
            return Err(OldVersion);
        }
        // Of the claim only the service's name is used before the signature is verified. The
        // comparisons take constant time.
        let is_signed = match (self.callers.get(*service), version) {
            (Some(keys), 2) => {
                keys.iter().any(|key| bound(key.clone(), claim, target).verify_slice(&mac).is_ok())
            }
            (None, 2) => self.shared.iter().any(|secret| {
                bound(service_key(secret, service), claim, target).verify_slice(&mac).is_ok()
            }),
            (None, _) => self
                .shared
                .iter()
                .any(|secret| secret.clone().chain_update(claim).verify_slice(&mac).is_ok()),
            // The key of version 1 is not this service's own.
            (Some(_), _) => false,
        };
        if !is_signed {
            return Err(Forged);
        }

        let tenant = format!("ten_{tenant}").parse().map_err(|_| Malformed)?;
        let issued: u64 = issued.parse().map_err(|_| Malformed)?;
        self.check_time(service, issued, now)?;
        if let Some(nonce) = nonce {
            let nonce = BASE64_URL_SAFE_NO_PAD.decode(nonce).map_err(|_| Malformed)?;
            let nonce: Nonce = nonce.try_into().map_err(|_| Malformed)?;
            let expired = now.saturating_sub(self.tolerance);
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.record(issued, nonce, expired).map_err(|refused| match refused {
                RefusedMessage::Seen => InvalidContext::Replayed,
                RefusedMessage::Full => InvalidContext::TooMany,
            })?;
        }
        Ok((tenant, (*service).to_owned()))
    }

    fn check_time(&self, service: &str, issued: u64, now: u64) -> Result<(), InvalidContext> {
        let (skew, is_ahead, tolerance) = (issued.abs_diff(now), issued > now, self.tolerance);
        if skew > tolerance / 2 && self.should_log_skew(now) {
            warn!(
                service,
                skew_seconds = skew,
                is_ahead,
                tolerance_seconds = tolerance,
                "the clock of a service differs from this one's"
            );
        }
        if skew > tolerance {
            return Err(InvalidContext::Expired { skew, is_ahead, tolerance });
        }
        Ok(())
    }

    fn should_log_skew(&self, now: u64) -> bool {
        let last = self.logged_at.load(Ordering::Relaxed);
        now.abs_diff(last) >= SKEW_LOG_INTERVAL_SECONDS
            && self
                .logged_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

fn optional(setting: &'static str, text: &SecretString) -> Result<Option<Key>, InvalidMeshKey> {
    match text.expose_secret() {
        "" => Ok(None),
        text => key(setting, text).map(Some),
    }
}

fn key(setting: &'static str, text: &str) -> Result<Key, InvalidMeshKey> {
    let weak = || InvalidMeshKey::Weak { setting, bytes: text.len() };
    if text.len() < MIN_SECRET_BYTES {
        return Err(weak());
    }
    Key::new_from_slice(text.as_bytes()).map_err(|_| weak())
}

fn caller_keys(text: &SecretString) -> Result<HashMap<String, Vec<Key>>, InvalidMeshKey> {
    let mut keys: HashMap<String, Vec<Key>> = HashMap::new();
    for pair in text.expose_secret().split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (service, text) = pair.split_once('=').ok_or(InvalidMeshKey::Malformed)?;
        let key = key("mesh.caller_keys", text.trim())?;
        keys.entry(service.trim().to_owned()).or_default().push(key);
    }
    Ok(keys)
}

/// Key of a service that follows from a secret of the mesh.
fn service_key(secret: &Key, service: &str) -> Key {
    let key = secret.clone().chain_update(KEY_LABEL).chain_update([0_u8]).chain_update(service);
    // HMAC's block size is larger than its output.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key.finalize().into_bytes().as_slice());
    Key::new(&block.into())
}

/// MAC over a claim and the call that it is for. No part contains a line break.
fn bound(key: Key, claim: &str, target: CallTarget<'_>) -> Key {
    let CallTarget { audience, method } = target;
    key.chain_update(claim)
        .chain_update("\n")
        .chain_update(audience)
        .chain_update("\n")
        .chain_update(method)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const SEARCH: CallTarget<'_> =
        CallTarget { audience: "memory-service", method: "/holdfast.memory.v1.Memory/Search" };

    fn mesh(secret: &str) -> config::Mesh {
        config::Mesh { secret: secret.into(), ..config::Mesh::default() }
    }

    fn signer(secret: &str) -> Signer {
        Signer::new(&mesh(secret)).unwrap()
    }

    #[test]
    fn a_context_is_valid_while_its_time_is_within_the_tolerance() {
        let clock_tolerance = Duration::from_secs(60);
        let mesh = config::Mesh { clock_tolerance, ..mesh("0123456789abcdef") };
        let signer = Signer::new(&mesh).unwrap();
        let tenant = TenantId::generate();
        let sign = || signer.sign(tenant, "channel-bridge", SEARCH, NOW);
        let verify = |now| signer.verify(&sign(), SEARCH, now);

        let read = Ok((tenant, "channel-bridge".to_owned()));
        assert_eq!(verify(NOW + 60), read);
        assert_eq!(verify(NOW - 60), read);
        let behind = verify(NOW + 61).unwrap_err();
        let ahead = verify(NOW - 100).unwrap_err();
        assert_eq!(behind, InvalidContext::Expired { skew: 61, is_ahead: false, tolerance: 60 });
        assert!(ahead.to_string().contains("is 100 s ahead of this one's"), "{ahead}");
    }

    #[test]
    fn a_context_is_for_one_tenant_one_service_and_one_method_and_serves_once() {
        let (signer, tenant) = (signer("0123456789abcdef"), TenantId::generate());
        let value = signer.sign(tenant, "scheduler", SEARCH, NOW);
        let theirs = TenantId::generate().as_uuid().simple().to_string();
        let other_tenant = value.replace(&tenant.as_uuid().simple().to_string(), &theirs);
        let other_service = value.replace("scheduler", "gateway");
        let method = "/holdfast.memory.v1.Memory/Forget";

        for (value, target) in [
            (&other_tenant, SEARCH),
            (&other_service, SEARCH),
            (&value, CallTarget { audience: "gateway", ..SEARCH }),
            (&value, CallTarget { method, ..SEARCH }),
        ] {
            assert_eq!(signer.verify(value, target, NOW), Err(InvalidContext::Forged), "{value}");
        }
        assert!(signer.verify(&value, SEARCH, NOW).is_ok());
        assert_eq!(signer.verify(&value, SEARCH, NOW + 1), Err(InvalidContext::Replayed));
    }

    #[test]
    fn another_secret_is_not_believed_and_a_short_one_not_taken() {
        let value = signer("0123456789abcdef").sign(TenantId::generate(), "runner", SEARCH, NOW);

        let other = signer("fedcba9876543210").verify(&value, SEARCH, NOW);

        assert_eq!(other, Err(InvalidContext::Forged));
        let weak = |setting, bytes| Some(InvalidMeshKey::Weak { setting, bytes });
        assert_eq!(Signer::new(&mesh("short")).err(), weak("mesh.secret", 5));
        assert_eq!(Signer::new(&mesh("")).err(), weak("mesh.secret", 0));
        let unreadable = config::Mesh { caller_keys: "a".into(), ..mesh("0123456789abcdef") };
        assert_eq!(Signer::new(&unreadable).err(), Some(InvalidMeshKey::Malformed));
    }

    #[test]
    fn both_secrets_of_a_rotation_are_believed() {
        let (old, new) = ("0123456789abcdef", "fedcba9876543210");
        let rotating = config::Mesh { previous_secret: old.into(), ..mesh(new) };
        let rotating = Signer::new(&rotating).unwrap();
        let sign = |signer: &Signer| signer.sign(TenantId::generate(), "gateway", SEARCH, NOW);

        for signer in [signer(old), signer(new)] {
            assert!(rotating.verify(&sign(&signer), SEARCH, NOW).is_ok());
        }
        assert!(signer(new).verify(&sign(&rotating), SEARCH, NOW).is_ok());
    }

    #[test]
    fn a_service_with_a_key_of_its_own_is_believed_with_that_key_only() {
        let (shared, own) = ("0123456789abcdef", "the key of the bridge");
        let bridge = config::Mesh { key: own.into(), ..config::Mesh::default() };
        let bridge = Signer::new(&bridge).unwrap();
        let caller_keys = format!("channel-bridge={own}").into();
        let gateway = Signer::new(&config::Mesh { caller_keys, ..mesh(shared) }).unwrap();
        let accept =
            CallTarget { audience: "gateway", method: "/holdfast.gateway.v1.Ingest/Accept" };
        let tenant = TenantId::generate();
        let sign = |signer: &Signer, service| signer.sign(tenant, service, accept, NOW);
        let verify = |value: &str| gateway.verify(value, accept, NOW);

        assert!(verify(&sign(&bridge, "channel-bridge")).is_ok());
        for forged in [sign(&signer(shared), "channel-bridge"), sign(&bridge, "agent-runner")] {
            assert_eq!(verify(&forged), Err(InvalidContext::Forged), "{forged}");
        }
        let caller_keys = format!("channel-bridge={own}").into();
        let updating = config::Mesh { caller_keys, accept_version_1: true, ..mesh(shared) };
        let old = version_1(shared, tenant, "channel-bridge");
        let refused = Signer::new(&updating).unwrap().verify(&old, accept, NOW);
        assert_eq!(refused, Err(InvalidContext::Forged));
    }

    #[test]
    fn both_keys_of_a_service_are_believed_while_its_key_is_replaced() {
        let (old, new) = ("the key of the bridge until today", "the key of the bridge from today");
        let own = |key: &str| {
            let mesh = config::Mesh { key: key.into(), ..config::Mesh::default() };
            Signer::new(&mesh).unwrap()
        };
        let caller_keys = format!("channel-bridge={new}, channel-bridge={old}").into();
        let gateway = config::Mesh { caller_keys, ..config::Mesh::default() };
        let gateway = Signer::new(&gateway).unwrap();
        let verify = |signer: &Signer| {
            let value = signer.sign(TenantId::generate(), "channel-bridge", SEARCH, NOW);
            gateway.verify(&value, SEARCH, NOW)
        };

        assert!(verify(&own(old)).is_ok() && verify(&own(new)).is_ok());
        assert_eq!(verify(&own("the key of a stranger")), Err(InvalidContext::Forged));
    }

    /// Context as services of the previous version make it.
    fn version_1(secret: &str, tenant: TenantId, service: &str) -> String {
        let claim = format!("v1.{}.{service}.{NOW}", tenant.as_uuid().simple());
        let mac = key("", secret).unwrap().chain_update(&claim).finalize().into_bytes();
        format!("{claim}.{}", BASE64_URL_SAFE_NO_PAD.encode(mac))
    }

    #[test]
    fn a_service_of_the_previous_version_is_believed_only_during_an_upgrade() {
        let tenant = TenantId::generate();
        let value = version_1("0123456789abcdef", tenant, "channel-bridge");
        let updating =
            |secret| Signer::new(&config::Mesh { accept_version_1: true, ..mesh(secret) }).unwrap();

        let read = updating("0123456789abcdef").verify(&value, SEARCH, NOW);

        assert_eq!(read, Ok((tenant, "channel-bridge".to_owned())));
        let expired = updating("0123456789abcdef").verify(&value, SEARCH, NOW + 301);
        assert!(matches!(expired, Err(InvalidContext::Expired { skew: 301, .. })));
        let other = updating("fedcba9876543210").verify(&value, SEARCH, NOW);
        assert_eq!(other, Err(InvalidContext::Forged));
        let refused = signer("0123456789abcdef").verify(&value, SEARCH, NOW);
        assert_eq!(refused, Err(InvalidContext::OldVersion));
    }

    #[test]
    fn nonsense_is_refused() {
        for value in ["", ".", "v1", "v1.x.y.z.AAAA", "v2.x.y.z.n.AAAA", "\u{0}.é"] {
            assert!(signer("0123456789abcdef").verify(value, SEARCH, NOW).is_err(), "{value}");
        }
    }

    proptest! {
        #[test]
        fn only_an_unchanged_context_is_believed(
            at in any::<proptest::sample::Index>(),
            letter in any::<char>(),
            other in "(v[12][.])?[a-z0-9.-]{0,80}[.][A-Za-z0-9_-]{0,60}",
        ) {
            let signer = signer("0123456789abcdef");
            let value = signer.sign(TenantId::generate(), "gateway", SEARCH, NOW);
            let mut changed: Vec<char> = value.chars().collect();
            let at = at.index(changed.len());
            changed[at] = letter;
            let changed: String = changed.into_iter().collect();

            prop_assert!(changed == value || signer.verify(&changed, SEARCH, NOW).is_err());
            prop_assert!(signer.verify(&other, SEARCH, NOW).is_err());
            prop_assert!(signer.verify(&value, SEARCH, NOW).is_ok());
        }
    }
}
