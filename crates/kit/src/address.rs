//! Public Internet addresses, and networks. No call for a tenant may go to an address that is not public.
//!
//! The ranges follow IANA's registries of special-purpose addresses (RFC 6890 and its updates). An
//! IPv6 address that embeds an IPv4 address is public if the IPv4 address is.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// Network, written as `10.0.0.0/8`, or as one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    /// Bits that all addresses of the network share.
    prefix: u32,
}

/// A text that is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no network: write it as `10.0.0.0/8`, `fd00::/8` or `10.0.0.7`")]
pub struct InvalidNetwork(String);

impl Network {
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let parse = || {
            let (address, prefix) = match text.split_once('/') {
                Some((address, prefix)) => (address, Some(prefix.parse().ok()?)),
                None => (text, None),
            };
            let address: IpAddr = address.parse().ok()?;
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let prefix = prefix.unwrap_or(bits);
            (prefix <= bits).then_some(Self { address, prefix })
        };
        parse().ok_or_else(|| InvalidNetwork(text.to_owned()))
    }
}

impl TryFrom<String> for Network {
    type Error = InvalidNetwork;

    fn try_from(text: String) -> Result<Self, InvalidNetwork> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Returns whether `address` belongs to the public Internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        // Carrier-grade NAT; IETF protocol assignments; benchmarks; the old 6to4 relays; AS112;
        // AMT.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
        || (a == 192 && b == 88 && c == 99)
        || (a == 192 && b == 31 && c == 196)
        || (a == 192 && b == 175 && c == 48)
        || (a == 192 && b == 52 && c == 193)
        // Two clouds answer for their machines' secrets on addresses that look public.
        || address == Ipv4Addr::new(168, 63, 129, 16)
        || address == Ipv4Addr::new(100, 100, 100, 200);
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    let [a, b, c, d, e, f, g, h] = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b) {
        // NAT64 and 6to4 lead to the IPv4 address inside.
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => embedded(g, h),
        (0x2002, _) => embedded(b, c),
        // Teredo, ORCHID, benchmarks, documentation.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff) => false,
        // ISATAP embeds an IPv4 address, wherever the network is.
        _ if (e, f) == (0, 0x5efe) || (e, f) == (0x200, 0x5efe) => embedded(g, h),
        // IANA allocates global unicast addresses from this eighth of the space only.
        _ => a & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(address: &str) -> bool {
        is_public(address.parse().unwrap())
    }

    #[test]
    fn a_network_has_the_addresses_that_share_its_prefix() {
        let has = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };

        assert!(has("10.1.0.0/16", "10.1.2.3") && !has("10.1.0.0/16", "10.2.2.3"));
        assert!(has("10.1.2.3", "::ffff:10.1.2.3") && !has("10.1.2.3", "10.1.2.4"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
        assert!(has("0.0.0.0/0", "8.8.8.8") && !has("0.0.0.0/0", "::1"));
        assert!(has("::/0", "2606:4700::1"));
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "proxy.example", "10.0.0.0/-1"] {
            let error = wrong.parse::<Network>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}` is no network")), "{error}");
        }
    }

    #[test]
    fn addresses_of_the_internet_are_public() {
        for address in [
            "1.1.1.1",
            "149.154.167.220",
            "100.128.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(public(address), "{address}");
        }
    }

    #[test]
    fn what_is_private_local_or_special_is_not() {
        for address in [
            "127.0.0.1",
            "127.8.9.1",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.0.192",
            "198.18.0.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:db8::1",
            "3fff::1",
            "2001::1",
            "2606:4700::5efe:a00:1",
            "100::1",
        ] {
            assert!(!public(address), "{address}");
        }
    }
}
