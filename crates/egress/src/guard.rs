//! Protection against requests to private addresses.
//!
//! Tenants, models and the authors of pages choose addresses. Unchecked, they could reach
//! everything that this process can reach and they cannot: the database's port, the metadata
//! service of a cloud. So private, local and special addresses are refused.
//!
//! **What can go wrong.** A name may resolve to one address when checked and to another when used:
//! names are resolved once per connection, and the connection goes to the checked address. An
//! address may be written in unusual forms (`http://2130706433/`): the URL parser knows them all. A
//! public server may redirect to a private one: redirects are followed by our code, and each is
//! checked like the first. A proxy would resolve names outside our check: none is used.

use std::{
    collections::BTreeSet,
    error::Error as StdError,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use holdfast_kit::is_public;
use reqwest::{
    Client, Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

use crate::{client_builder, describe_failure, is_loopback};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that an idle connection is kept. Shorter than the timeouts of servers: if the other side
/// closes a connection just as it is used, the outcome of the request is unknown.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Future of the addresses of a name.
pub type LookupFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolver of names.
pub trait Lookup: Send + Sync + 'static {
    /// Returns the addresses of a name, in the order in which they are tried.
    fn lookup(&self, name: String) -> LookupFuture;
}

/// Resolver of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct SystemResolver;

impl Lookup for SystemResolver {
    fn lookup(&self, name: String) -> LookupFuture {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Reason why an address is not fetched. The texts are for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// The text is not an `http` or `https` URL.
    #[error("`{0}` is no address of the web: write `https://host/path`")]
    Url(String),
    #[error("an address with a user name or a password is not fetched: leave them out")]
    Credentials,
    /// The address is not on the public Internet.
    #[error("`{0}` is not on the public internet, and is not fetched")]
    Private(String),
    /// The request would send a secret without TLS.
    #[error("`{0}` is asked without TLS, and a secret goes by `https://` only")]
    NoTls(String),
    /// The name has no address.
    #[error("`{0}` has no address")]
    NoAddress(String),
}

/// HTTP clients, and the rules that choose one for an address.
#[derive(Clone)]
pub struct Guard {
    guarded: Client,
    /// Client for addresses that the operator listed.
    open: Client,
    allow: Arc<BTreeSet<String>>,
    /// Whether every address of this machine's loopback is allowed.
    has_loopback: bool,
    lookup: Arc<dyn Lookup>,
}

impl Guard {
    /// Builds a guard with the system's resolver. `allow` lists addresses that are not checked:
    /// `host:port`, or `host` for any port.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn with_system_resolver(allow: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        Self::new(allow, Arc::new(SystemResolver))
    }

    /// Builds a guard. `allow` lists addresses that are not checked: `host:port`, or `host` for any
    /// port.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn new(
        allow: impl IntoIterator<Item = String>,
        lookup: Arc<dyn Lookup>,
    ) -> anyhow::Result<Self> {
        let client = |is_guarded| -> anyhow::Result<Client> {
            // A proxy would resolve names outside our check.
            let resolver = Resolver { lookup: Arc::clone(&lookup), is_guarded };
            let builder = client_builder(CONNECT_TIMEOUT)?.no_proxy();
            let builder = builder.pool_idle_timeout(IDLE_TIMEOUT).dns_resolver(Arc::new(resolver));
            Ok(builder.build()?)
        };
        let allow = allow.into_iter().map(|entry| entry.to_lowercase()).collect();
        let (guarded, open) = (client(true)?, client(false)?);
        Ok(Self { guarded, open, allow: Arc::new(allow), has_loopback: false, lookup })
    }

    /// Allows every address of this machine's loopback, too.
    #[must_use]
    pub(crate) fn with_loopback(self) -> Self {
        Self { has_loopback: true, ..self }
    }

    /// Parses an address, in which `https://` may be missing. Whoever judges an address must judge
    /// this value: the same text may mean another host to another parser.
    ///
    /// # Errors
    ///
    /// If it is not a URL.
    pub fn parse(said: &str) -> Result<Url, AddressRefusal> {
        let said = said.trim();
        let whole = if has_scheme(said) { said.to_owned() } else { format!("https://{said}") };
        Url::parse(&whole).map_err(|_| AddressRefusal::Url(shown(said)))
    }

    /// Returns the client for an address. A literal address is checked here; a name is checked when
    /// the client resolves it. The client follows no redirects.
    ///
    /// # Errors
    ///
    /// If the address may not be fetched.
    pub fn client(&self, url: &Url) -> Result<&Client, AddressRefusal> {
        let is_web = matches!(url.scheme(), "http" | "https");
        let Some(host) = url.host_str().filter(|host| is_web && !host.is_empty()) else {
            return Err(AddressRefusal::Url(shown(url.as_str())));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressRefusal::Credentials);
        }
        let port = url.port_or_known_default().unwrap_or_default();
        if self.is_listed(host, port) {
            return Ok(&self.open);
        }
        // A literal address needs no resolving, so the resolver's check would not see it.
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) if !is_public(address) => Err(AddressRefusal::Private(shown(host))),
            Ok(_) | Err(_) => Ok(&self.guarded),
        }
    }
}

impl Guard {
    /// Returns the client for a request with a secret: without TLS only to listed addresses.
    ///
    /// # Errors
    ///
    /// If the address may not be fetched, or not without TLS.
    pub fn client_for_secret(&self, url: &Url) -> Result<&Client, AddressRefusal> {
        let client = self.client(url)?;
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default());
        if url.scheme() != "https" && !self.is_listed(host, port.unwrap_or_default()) {
            return Err(AddressRefusal::NoTls(shown(host)));
        }
        Ok(client)
    }
}

impl Guard {
    /// Resolves and checks a host, for connections without an HTTP client.
    ///
    /// # Errors
    ///
    /// If the host has no address, or one that is not public.
    pub async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, AddressRefusal> {
        let host = host.to_lowercase();
        let found = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.lookup.lookup(host.clone()).await.unwrap_or_default(),
        };
        if found.is_empty() {
            return Err(AddressRefusal::NoAddress(shown(&host)));
        }
        // The list has IPv6 addresses in brackets, as in URLs.
        let listed = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if !self.is_listed(&listed, port) && !found.iter().all(|address| is_public(*address)) {
            return Err(AddressRefusal::Private(shown(&host)));
        }
        Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

impl Guard {
    /// Describes a failed request: the refusal or the failure, but never the address, which may
    /// contain a key.
    #[must_use]
    pub fn told(error: &reqwest::Error) -> String {
        refusal(error)
            .as_ref()
            .map_or_else(|| describe_failure(error).to_owned(), AddressRefusal::to_string)
    }

    /// Whether the operator allowed this host.
    #[must_use]
    pub fn is_listed(&self, host: &str, port: u16) -> bool {
        (self.has_loopback && is_loopback(host))
            || self.allow.contains(host)
            || self.allow.contains(&format!("{host}:{port}"))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("allow", &self.allow).finish_non_exhaustive()
    }
}

/// Returns the refusal that caused a client's error, if there is one.
#[must_use]
pub fn refusal(error: &reqwest::Error) -> Option<AddressRefusal> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(refused) = error.downcast_ref::<AddressRefusal>() {
            return Some(refused.clone());
        }
        source = error.source();
    }
    None
}

/// Resolver of a client, asked once for each connection.
struct Resolver {
    lookup: Arc<dyn Lookup>,
    is_guarded: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let (found, is_guarded) = (self.lookup.lookup(name.clone()), self.is_guarded);
        Box::pin(async move {
            let found = found.await?;
            // If only one of several addresses is private, it is an attack or a mistake: use none.
            if is_guarded && !found.iter().all(|address| is_public(*address)) {
                return Err(AddressRefusal::Private(shown(&name)).into());
            }
            let addresses: Addrs =
                Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// Whether a text begins with a scheme and `//`. `https:host` does not: the URL parser would accept it,
/// although nobody writes it.
fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        !scheme.is_empty() && scheme.chars().all(is_part)
    })
}

/// Visible part of a text that somebody else wrote, for a message.
fn shown(text: &str) -> String {
    let is_visible = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' '..='~');
    text.chars().filter(is_visible).take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Answers of a name server, used in order.
    struct Answers(Mutex<Vec<Vec<IpAddr>>>);

    impl Lookup for Answers {
        fn lookup(&self, _: String) -> LookupFuture {
            let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = answers.remove(0);
            Box::pin(async { Ok(found) })
        }
    }

    fn guard(allow: &[&str]) -> Guard {
        Guard::new(allow.iter().map(|&entry| entry.to_owned()), Arc::new(SystemResolver)).unwrap()
    }

    fn check(guard: &Guard, url: &str) -> Option<AddressRefusal> {
        Guard::parse(url).and_then(|url| guard.client(&url).map(drop)).err()
    }

    #[test]
    fn addresses_that_need_no_resolving_are_checked_however_they_are_written() {
        let guard = guard(&[]);
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://0x7f.1/",
            "http://127.0.0.1./",
            "http://①②⑦.⓪.⓪.①/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://169.254.169.254/latest/meta-data/",
            "http://0/",
            "10.0.0.1:8080/x",
        ] {
            assert!(matches!(check(&guard, url), Some(AddressRefusal::Private(_))), "{url}");
        }
        assert_eq!(check(&guard, "http://1.1.1.1/"), None);
        assert_eq!(check(&guard, "example.com/x"), None);
    }

    #[test]
    fn an_address_with_another_address_in_it_is_of_its_own_host() {
        for (text, host) in [
            ("HTTPS://A.example/x", Some("a.example")),
            ("a.example/x?to=https://b.example/", Some("a.example")),
            ("https:b.example/x?to=://a.example/", None),
            ("https:/b.example/x?to=://a.example/", None),
            ("//a.example/x", Some("a.example")),
            ("https://a.example\\@b.example/", Some("a.example")),
            ("ht\ttps://b.example/", None),
            ("https://b.exam\nple/", Some("b.example")),
        ] {
            let parsed = Guard::parse(text).ok();
            let parsed = parsed.and_then(|url| url.host_str().map(str::to_owned));
            let parsed = parsed.filter(|host| host.contains('.'));
            assert_eq!(parsed.as_deref(), host, "{text:?}");
        }
    }

    #[test]
    fn what_is_not_of_the_web_is_refused() {
        let guard = guard(&["x"]);
        for url in
            ["file:///etc/passwd", "ftp://x/", "gopher://x/", "https://", "", "data:text/html,x"]
        {
            assert!(matches!(check(&guard, url), Some(AddressRefusal::Url(_))), "{url}");
        }
        for url in
            ["https://u@x/", "https://u:p@x/", "https://:p@x/", "http://x.example@127.0.0.1/"]
        {
            assert_eq!(check(&guard, url), Some(AddressRefusal::Credentials), "{url}");
        }
    }

    #[test]
    fn what_the_operator_listed_is_let_through_and_its_neighbours_are_not() {
        let guard = guard(&["127.0.0.1:8080", "10.1.2.3"]);

        assert_eq!(check(&guard, "http://127.0.0.1:8080/x"), None);
        assert_eq!(check(&guard, "http://10.1.2.3:99/x"), None);
        for url in ["http://127.0.0.1:8081/", "https://127.0.0.1/", "http://10.1.2.4/"] {
            assert!(check(&guard, url).is_some(), "{url}");
        }
    }

    async fn resolved(resolver: &Resolver, name: &str) -> Result<Vec<IpAddr>, String> {
        match resolver.resolve(name.parse().unwrap()).await {
            Ok(found) => Ok(found.map(|address| address.ip()).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[tokio::test]
    async fn a_name_that_is_rebound_is_checked_for_each_connection() {
        let private: IpAddr = "127.0.0.1".parse().unwrap();
        let public: IpAddr = "93.184.215.14".parse().unwrap();
        let lookup = Answers(Mutex::new(vec![vec![public], vec![private], vec![public, private]]));
        let resolver = Resolver { lookup: Arc::new(lookup), is_guarded: true };

        assert_eq!(resolved(&resolver, "rebind.test").await, Ok(vec![public]));
        for _ in 0..2 {
            let told = resolved(&resolver, "rebind.test").await.unwrap_err();
            assert_eq!(told, "`rebind.test` is not on the public internet, and is not fetched");
        }
    }
}
