//! Signed context of calls between services: the header `x-holdfast-context`.
//!
//! The value holds the tenant, the calling service and the time, with an HMAC-SHA-256 of all three
//! under the mesh's secret. While its time is within the tolerance for clocks it can be replayed by
//! anyone who saw it: mTLS or a network policy must keep others away, and requests that change
//! state carry a `request_id`.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_types::TenantId;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use tracing::warn;

/// Name of the HTTP header and of the gRPC metadata key.
pub const CONTEXT_HEADER: &str = "x-holdfast-context";

/// Default for the accepted age of a context, in both directions because clocks differ.
const DEFAULT_TOLERANCE: Duration = Duration::from_secs(300);

/// Interval at which a difference between clocks is logged, in seconds.
const SKEW_LOG_INTERVAL_SECONDS: u64 = 60;

/// Minimum length of the mesh's secret, in bytes.
const MIN_SECRET_BYTES: usize = 16;

/// Error for a secret that is too short; holds its length in bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the mesh's secret has {0} bytes, and {MIN_SECRET_BYTES} are the least: try `openssl rand -hex 32`"
)]
pub struct WeakSecret(usize);

/// Reason why a context is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidContext {
    #[error("the context is malformed")]
    Malformed,
    /// Signed with another secret, or changed.
    #[error("the context's signature is wrong: do all services have the same mesh secret?")]
    Forged,
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

/// Signs the contexts of outgoing calls and verifies those of incoming ones.
#[derive(Clone)]
pub struct Signer {
    mac: Hmac<Sha256>,
    /// Accepted difference between clocks, in seconds.
    tolerance: u64,
    /// Time of the last log line about a difference, in Unix seconds.
    logged_at: Arc<AtomicU64>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    /// `secret` is the mesh's secret, the same in all services.
    ///
    /// # Errors
    ///
    /// If the secret is too short.
    pub fn new(secret: &SecretString) -> Result<Self, WeakSecret> {
        let secret = secret.expose_secret().as_bytes();
        let weak = || WeakSecret(secret.len());
        if secret.len() < MIN_SECRET_BYTES {
            return Err(weak());
        }
        let mac = Hmac::new_from_slice(secret).map_err(|_| weak())?;
        Ok(Self { mac, tolerance: DEFAULT_TOLERANCE.as_secs(), logged_at: Arc::default() })
    }

    /// Replaces the accepted difference between clocks, five minutes by default.
    #[must_use]
    pub fn with_tolerance(self, tolerance: Duration) -> Self {
        Self { tolerance: tolerance.as_secs(), ..self }
    }

    /// Returns the context of a call that `service` makes for a tenant, at `now` in Unix seconds.
    ///
    /// `service` must not contain a dot, which separates the parts.
    #[must_use]
    pub fn sign(&self, tenant: TenantId, service: &str, now: u64) -> String {
        let claim = format!("v1.{}.{service}.{now}", tenant.as_uuid().simple());
        let mac = self.mac.clone().chain_update(&claim).finalize().into_bytes();
        format!("{claim}.{}", BASE64_URL_SAFE_NO_PAD.encode(mac))
    }

    /// Returns the tenant and the service of a valid context; `now` is in Unix seconds. Logs clocks
    /// that differ by more than half of what is accepted, once a minute.
    ///
    /// # Errors
    ///
    /// [`InvalidContext`] if it is malformed, forged or expired.
    pub fn verify(&self, value: &str, now: u64) -> Result<(TenantId, String), InvalidContext> {
        use InvalidContext::{Expired, Forged, Malformed};

        let (claim, mac) = value.rsplit_once('.').ok_or(Malformed)?;
        let mac = BASE64_URL_SAFE_NO_PAD.decode(mac).map_err(|_| Malformed)?;
        // The comparison takes constant time. Nothing in the claim is used before it succeeds.
        self.mac.clone().chain_update(claim).verify_slice(&mac).map_err(|_| Forged)?;

        let parts: Vec<&str> = claim.split('.').collect();
        let ["v1", tenant, service, issued] = parts.as_slice() else { return Err(Malformed) };
        let tenant = format!("ten_{tenant}").parse().map_err(|_| Malformed)?;
        let issued: u64 = issued.parse().map_err(|_| Malformed)?;
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
            return Err(Expired { skew, is_ahead, tolerance });
        }
        Ok((tenant, (*service).to_owned()))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn signer(secret: &str) -> Signer {
        Signer::new(&secret.into()).unwrap()
    }

    #[test]
    fn a_context_is_valid_while_its_time_is_within_the_tolerance() {
        let tolerance = Duration::from_secs(60);
        let signer = signer("0123456789abcdef").with_tolerance(tolerance);
        let tenant = TenantId::generate();
        let value = signer.sign(tenant, "channel-bridge", NOW);

        let read = Ok((tenant, "channel-bridge".to_owned()));
        assert_eq!(signer.verify(&value, NOW + 60), read);
        assert_eq!(signer.verify(&value, NOW - 60), read);
        let behind = signer.verify(&value, NOW + 61).unwrap_err();
        let ahead = signer.verify(&value, NOW - 100).unwrap_err();
        assert_eq!(behind, InvalidContext::Expired { skew: 61, is_ahead: false, tolerance: 60 });
        assert!(ahead.to_string().contains("is 100 s ahead of this one's"), "{ahead}");
    }

    #[test]
    fn a_context_for_one_tenant_is_none_for_another() {
        let (signer, tenant) = (signer("0123456789abcdef"), TenantId::generate());
        let value = signer.sign(tenant, "scheduler", NOW);
        let theirs = TenantId::generate().as_uuid().simple().to_string();

        let forged = value.replace(&tenant.as_uuid().simple().to_string(), &theirs);

        assert_eq!(signer.verify(&forged, NOW), Err(InvalidContext::Forged));
    }

    #[test]
    fn another_secret_is_not_believed_and_a_short_one_not_taken() {
        let value = signer("0123456789abcdef").sign(TenantId::generate(), "runner", NOW);

        let other = signer("fedcba9876543210").verify(&value, NOW);

        assert_eq!(other, Err(InvalidContext::Forged));
        assert_eq!(Signer::new(&"short".into()).unwrap_err(), WeakSecret(5));
    }

    #[test]
    fn nonsense_is_refused() {
        for value in ["", ".", "v1", "v1.x.y.z.AAAA", "\u{0}.é"] {
            assert!(signer("0123456789abcdef").verify(value, NOW).is_err(), "{value}");
        }
    }

    proptest! {
        #[test]
        fn only_an_unchanged_context_is_believed(
            at in any::<proptest::sample::Index>(),
            letter in any::<char>(),
            other in "(v1[.])?[a-z0-9.-]{0,80}[.][A-Za-z0-9_-]{0,60}",
        ) {
            let signer = signer("0123456789abcdef");
            let value = signer.sign(TenantId::generate(), "gateway", NOW);
            let mut changed: Vec<char> = value.chars().collect();
            let at = at.index(changed.len());
            changed[at] = letter;
            let changed: String = changed.into_iter().collect();

            prop_assert!(signer.verify(&value, NOW).is_ok());
            prop_assert!(changed == value || signer.verify(&changed, NOW).is_err());
            prop_assert!(signer.verify(&other, NOW).is_err());
        }
    }
}
