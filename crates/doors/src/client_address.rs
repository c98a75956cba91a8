//! Statements of proxies in front of a listener about a request: its client's address, and whether it came
//! over TLS.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::http::{Extensions, HeaderMap};
use holdfast_kit::config::Proxies;

use crate::client_network::ClientNetwork;

const FORWARDED_FOR: &str = "x-forwarded-for";

const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// Address from which a connection was made, an extension of its requests: the caller's, or its
/// proxy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// Proxies that a listener believes, an extension of its requests.
#[derive(Debug, Clone)]
pub(crate) struct TrustedProxies(pub Arc<Proxies>);

impl TrustedProxies {
    /// Removes what only a trusted proxy may say of its clients, so that no reader of the header has to
    /// know the peer. `X-Forwarded-For` stays: [`client_address`] judges it, and its presence tells that
    /// a request came through a proxy.
    pub(crate) fn remove_untrusted(&self, peer: PeerAddress, headers: &mut HeaderMap) {
        if !self.0.trusts(peer.0.to_canonical()) {
            headers.remove(FORWARDED_PROTO);
        }
    }
}

/// Returns the address of the client that sent a request: what a trusted proxy says, or the peer, because
/// anybody else could invent addresses.
pub fn client_address(extensions: &Extensions, headers: &HeaderMap) -> IpAddr {
    let peer = peer_address(extensions);
    forwarded_address(peer, extensions, headers).unwrap_or(peer)
}

/// Returns the network under which the client of a request is counted. `None` for a request of a trusted
/// proxy that names no client: it may be anybody's.
pub fn counted_client(extensions: &Extensions, headers: &HeaderMap) -> Option<ClientNetwork> {
    let peer = peer_address(extensions);
    let client = match is_proxy(peer, extensions) {
        true => forwarded_address(peer, extensions, headers),
        false => Some(peer),
    };
    client.map(ClientNetwork::of)
}

fn peer_address(extensions: &Extensions) -> IpAddr {
    let own = IpAddr::from(Ipv4Addr::LOCALHOST);
    extensions.get::<PeerAddress>().map_or(own, |peer| peer.0).to_canonical()
}

fn is_proxy(address: IpAddr, extensions: &Extensions) -> bool {
    match extensions.get::<TrustedProxies>() {
        Some(TrustedProxies(proxies)) => proxies.trusts(address),
        None => Proxies::default().trusts(address),
    }
}

/// Address that a trusted peer names.
fn forwarded_address(peer: IpAddr, extensions: &Extensions, headers: &HeaderMap) -> Option<IpAddr> {
    if !is_proxy(peer, extensions) {
        return None;
    }
    let lines = headers.get_all(FORWARDED_FOR).into_iter().rev();
    // Each proxy adds the address of its peer at the end; those before it are what the client wrote.
    let mut entries = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
    let mut client = parse(entries.next()?.trim())?.to_canonical();
    let has_names = extensions
        .get::<TrustedProxies>()
        .is_some_and(|TrustedProxies(proxies)| proxies.trusted.is_some());
    // A client in a private network is no proxy, so only proxies that the setting names may stand before
    // another.
    while has_names && is_proxy(client, extensions) {
        match entries.next().and_then(|entry| parse(entry.trim())) {
            Some(before) => client = before.to_canonical(),
            None => break,
        }
    }
    Some(client)
}

/// Some proxies add the client's port.
fn parse(address: &str) -> Option<IpAddr> {
    address.parse().ok().or_else(|| Some(address.parse::<SocketAddr>().ok()?.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_proxy_names_the_client_and_a_public_peer_is_the_client() {
        let client = |peer: &str, forwarded: &str| {
            let mut extensions = Extensions::new();
            extensions.insert(PeerAddress(peer.parse().unwrap()));
            let headers = HeaderMap::from_iter([(
                FORWARDED_FOR.parse().unwrap(),
                forwarded.parse().unwrap(),
            )]);
            client_address(&extensions, &headers).to_string()
        };

        assert_eq!(client("10.7.7.7", "1.2.3.4, 8.8.8.8"), "8.8.8.8");
        assert_eq!(client("8.8.4.4", "1.2.3.4"), "8.8.4.4");
        assert_eq!(client("127.0.0.1", "nonsense"), "127.0.0.1");
        assert_eq!(client("::ffff:10.0.0.7", "8.8.8.8:4711"), "8.8.8.8");
        assert_eq!(client("::ffff:8.8.4.4", ""), "8.8.4.4");
    }

    /// Request of this peer at a listener that believes these proxies.
    fn request(trusted: &[&str], peer: &str, forwarded: &[&str]) -> (Extensions, HeaderMap) {
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddress(peer.parse().unwrap()));
        let trusted = trusted.iter().map(|network| network.parse().unwrap()).collect();
        extensions.insert(TrustedProxies(Arc::new(Proxies { trusted: Some(trusted) })));
        let name: axum::http::HeaderName = FORWARDED_FOR.parse().unwrap();
        let lines = forwarded.iter().map(|line| (name.clone(), line.parse().unwrap()));
        (extensions, lines.collect())
    }

    #[test]
    fn only_proxies_that_the_setting_names_are_believed() {
        let client = |trusted: &[&str], peer: &str, forwarded: &[&str]| {
            let (extensions, headers) = request(trusted, peer, forwarded);
            client_address(&extensions, &headers).to_string()
        };
        let named = ["10.7.7.0/24", "104.16.0.0/13"];

        assert_eq!(client(&named, "10.7.7.7", &["1.2.3.4, 8.8.8.8"]), "8.8.8.8");
        // Another pod, and a client that invents addresses.
        assert_eq!(client(&named, "10.0.1.7", &["8.8.8.8"]), "10.0.1.7");
        assert_eq!(client(&[], "127.0.0.1", &["8.8.8.8"]), "127.0.0.1");
        // A proxy before a proxy.
        assert_eq!(client(&named, "10.7.7.7", &["1.2.3.4, 8.8.8.8", "104.16.0.9"]), "8.8.8.8");
        assert_eq!(client(&named, "104.16.0.9", &["8.8.8.8"]), "8.8.8.8");
        assert_eq!(client(&named, "10.7.7.7", &["nonsense, 104.16.0.9"]), "104.16.0.9");
    }

    #[test]
    fn only_a_trusted_proxy_says_that_a_request_came_over_tls() {
        let is_believed = |trusted: Option<&[&str]>, peer: &str| {
            let parse =
                |networks: &[&str]| networks.iter().map(|net| net.parse().unwrap()).collect();
            let proxies = TrustedProxies(Arc::new(Proxies { trusted: trusted.map(parse) }));
            let name: axum::http::HeaderName = FORWARDED_PROTO.parse().unwrap();
            let mut headers = HeaderMap::from_iter([(name, "https".parse().unwrap())]);
            proxies.remove_untrusted(PeerAddress(peer.parse().unwrap()), &mut headers);
            headers.contains_key(FORWARDED_PROTO)
        };
        let named = Some(["10.7.7.0/24"].as_slice());

        assert!(is_believed(named, "10.7.7.7"));
        assert!(is_believed(named, "::ffff:10.7.7.7"));
        assert!(!is_believed(named, "10.0.1.7"));
        assert!(!is_believed(Some(&[]), "127.0.0.1"));
        assert!(is_believed(None, "10.0.1.7"));
        assert!(!is_believed(None, "8.8.8.8"));
    }

    #[test]
    fn clients_of_a_proxy_that_names_none_are_not_counted_as_one() {
        let counted = |peer: &str, forwarded: &[&str]| {
            let (extensions, headers) = request(&["10.7.7.0/24"], peer, forwarded);
            counted_client(&extensions, &headers).map(|network| network.to_string())
        };

        assert_eq!(counted("10.7.7.7", &[]), None);
        assert_eq!(counted("10.7.7.7", &["2606:4700:0:1:2:3:4:5"]).unwrap(), "2606:4700:0:1::/64");
        assert_eq!(counted("10.0.1.7", &["8.8.8.8"]).unwrap(), "10.0.1.7");
    }
}
