//! Networks under which clients are counted, and budgets of them.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use holdfast_kit::{Budget, BudgetShare, BudgetSpent};

/// How many times the limit of one client the clients of a site have together. A holder of an IPv6 /48
/// has 65,536 networks, each of which counts as a client.
pub const CLIENTS_PER_SITE: u32 = 4;

/// Network under which clients are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientNetwork {
    address: IpAddr,
    /// Length of the network's prefix, in bits.
    prefix: u8,
}

impl ClientNetwork {
    /// Network that counts as one client: an IPv4 address, or an IPv6 /64, which is the least that a
    /// customer gets.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            v4 @ IpAddr::V4(_) => Self { address: v4, prefix: 32 },
            IpAddr::V6(v6) => Self::of_prefix(v6, 64),
        }
    }

    /// Network of the site: the /48 of an IPv6 network, which is what a customer gets at most as a rule.
    /// `None` for an IPv4 address.
    #[must_use]
    pub fn site(self) -> Option<Self> {
        match self.address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => Some(Self::of_prefix(v6, 48)),
        }
    }

    fn of_prefix(address: Ipv6Addr, prefix: u8) -> Self {
        let mask = u128::MAX << (128 - u32::from(prefix));
        Self { address: IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask)), prefix }
    }
}

impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(address) => write!(f, "{address}/{}", self.prefix),
        }
    }
}

/// Places that clients share, limited for each client and for each site.
#[derive(Debug)]
pub struct NetworkBudget {
    /// `None` are clients of proxies that name none.
    clients: Arc<Budget<Option<ClientNetwork>>>,
    sites: Arc<Budget<ClientNetwork>>,
}

/// Place of one client, free again when it is dropped.
#[derive(Debug)]
pub struct NetworkShare {
    _of_client: BudgetShare<Option<ClientNetwork>>,
    _of_site: Option<BudgetShare<ClientNetwork>>,
}

impl Default for NetworkBudget {
    fn default() -> Self {
        Self { clients: Budget::new(0, 0), sites: Budget::new(u64::MAX, u64::MAX) }
    }
}

impl NetworkBudget {
    /// Takes a place, within these limits of all clients and of each. A client that nobody names counts
    /// for all only: it may be anybody.
    ///
    /// # Errors
    ///
    /// [`BudgetSpent::Owner`] if the client or its site has too many.
    pub fn admit(
        &self,
        client: Option<ClientNetwork>,
        max_total: u64,
        max_per_client: u64,
    ) -> Result<NetworkShare, BudgetSpent> {
        self.clients.set_limits(max_total, max_total);
        let of_client = self.clients.share(client);
        of_client.grow_to(1, if client.is_some() { max_per_client } else { max_total })?;
        let of_site = client.and_then(ClientNetwork::site).map(|site| self.sites.share(site));
        if let Some(of_site) = &of_site {
            of_site.grow_to(1, max_per_client.saturating_mul(CLIENTS_PER_SITE.into()))?;
        }
        Ok(NetworkShare { _of_client: of_client, _of_site: of_site })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> Option<ClientNetwork> {
        Some(ClientNetwork::of(address.parse().unwrap()))
    }

    #[test]
    fn a_client_is_an_address_or_an_ipv6_network_and_a_site_has_many() {
        let shown = |address: &str| {
            let client = client(address).unwrap();
            (client.to_string(), client.site().map(|site| site.to_string()))
        };

        assert_eq!(shown("8.8.8.8"), ("8.8.8.8".to_owned(), None));
        assert_eq!(shown("::ffff:8.8.8.8"), ("8.8.8.8".to_owned(), None));
        let (network, site) = shown("2606:4700:1:2:3:4:5:6");
        assert_eq!(
            (network.as_str(), site.as_deref()),
            ("2606:4700:1:2::/64", Some("2606:4700:1::/48"))
        );
        // The first network of a site is not the site.
        let first = client("2606:4700::1").unwrap();
        assert_ne!(Some(first), first.site());
    }

    #[test]
    fn a_holder_of_many_networks_leaves_room_for_others() {
        let budget = NetworkBudget::default();
        let admit = |address: &str| budget.admit(client(address), 100, 2);
        let held: Vec<NetworkShare> = (0..2 * CLIENTS_PER_SITE)
            .map(|n| admit(&format!("2606:4700:1:{n:x}::1")).unwrap())
            .collect();

        assert_eq!(admit("2606:4700:1:ff::1").unwrap_err(), BudgetSpent::Owner);
        let others = [admit("2606:4700:2::1"), admit("2606:4700:2::2"), admit("8.8.8.8")];
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(admit("2606:4700:2::3").unwrap_err(), BudgetSpent::Owner);

        // A refusal takes no place.
        drop((held, others));
        assert_eq!((budget.clients.used(), budget.sites.used()), (0, 0));
        assert!(admit("2606:4700:1:ff::1").is_ok());
    }

    #[test]
    fn clients_that_nobody_names_have_all_places_and_no_more() {
        let budget = NetworkBudget::default();
        let admit = || budget.admit(None, 3, 1);

        let held = [admit(), admit(), admit()];

        assert!(held.iter().all(Result::is_ok));
        assert_eq!(admit().unwrap_err(), BudgetSpent::Total);
    }
}
