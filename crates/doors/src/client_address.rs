//! Address of a client behind proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::http::{Extensions, HeaderMap};
use holdfast_kit::is_public;

use crate::PeerAddress;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Returns the address of whoever sent a request. A proxy in a private network is believed, because
/// anybody else could invent addresses.
pub fn client_address(extensions: &Extensions, headers: &HeaderMap) -> IpAddr {
    let own = IpAddr::from(Ipv4Addr::LOCALHOST);
    let peer = extensions.get::<PeerAddress>().map_or(own, |peer| peer.0);
    if is_public(peer) {
        return peer.to_canonical();
    }
    // The last entry is the proxy's own; those before it are what the client wrote.
    let forwarded = headers.get_all(FORWARDED_FOR).into_iter().next_back();
    let forwarded = forwarded.and_then(|list| list.to_str().ok()?.rsplit(',').next());
    forwarded.and_then(|address| parse(address.trim())).unwrap_or(peer).to_canonical()
}

/// Some proxies add the client's port.
fn parse(address: &str) -> Option<IpAddr> {
    address.parse().ok().or_else(|| Some(address.parse::<SocketAddr>().ok()?.ip()))
}

/// Returns the address under which a client is counted: a customer gets a whole IPv6 /64.
#[must_use]
pub fn counted_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
    }
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

        assert_eq!(client("10.0.0.7", "1.2.3.4, 8.8.8.8"), "8.8.8.8");
        assert_eq!(client("8.8.4.4", "1.2.3.4"), "8.8.4.4");
        assert_eq!(client("127.0.0.1", "nonsense"), "127.0.0.1");
        assert_eq!(client("::ffff:10.0.0.7", "8.8.8.8:4711"), "8.8.8.8");
        assert_eq!(client("::ffff:8.8.4.4", ""), "8.8.4.4");
    }
}
