//! Credentials of programs that share a listener of the proxy.
//!
//! Each command in a pod has one of its own, which it finds in the proxy's URL. The credential
//! selects the rules of its tenant, and ends with the command.

use std::{
    collections::HashMap,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use tokio_util::sync::CancellationToken;

use crate::ConnectRules;

/// User name in the proxy's URL; the credential is the password.
const USER: &str = "command";

/// Rules of the running commands, by their credential.
pub(crate) type Admissions = Mutex<HashMap<String, AdmittedRules>>;

/// Rules of the command that has a credential.
#[derive(Clone)]
pub(crate) struct AdmittedRules {
    pub(crate) rules: Arc<dyn ConnectRules>,
    /// Cancelled when the admission ends.
    pub(crate) ended: CancellationToken,
}

/// Permission to use a proxy. Dropping it ends the connections that used it.
pub struct Admission {
    admissions: Arc<Admissions>,
    credential: String,
    ended: CancellationToken,
}

impl Admission {
    pub(crate) fn new(admissions: &Arc<Admissions>, rules: Arc<dyn ConnectRules>) -> Self {
        let credential = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let ended = CancellationToken::new();
        let admitted = AdmittedRules { rules, ended: ended.clone() };
        lock(admissions).insert(credential.clone(), admitted);
        Self { admissions: Arc::clone(admissions), credential, ended }
    }

    /// URL of the proxy at this address, with the credential.
    #[must_use]
    pub fn url(&self, address: SocketAddr) -> String {
        format!("http://{USER}:{}@{address}", self.credential)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        lock(&self.admissions).remove(&self.credential);
        self.ended.cancel();
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").finish_non_exhaustive()
    }
}

/// Returns the rules for the credential in the head of a request.
pub(crate) fn rules_of(admissions: &Admissions, head: &str) -> Option<AdmittedRules> {
    let headers = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    let mut values = headers.filter_map(|(name, value)| {
        name.eq_ignore_ascii_case("proxy-authorization").then_some(value.trim())
    });
    let (scheme, value) = values.next()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") || values.next().is_some() {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
    let (_, credential) = decoded.split_once(':')?;
    lock(admissions).get(credential).cloned()
}

fn lock(admissions: &Admissions) -> MutexGuard<'_, HashMap<String, AdmittedRules>> {
    admissions.lock().unwrap_or_else(PoisonError::into_inner)
}
