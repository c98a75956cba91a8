//! Limits on open connections, in total and for one public address.

use std::{net::IpAddr, sync::Arc};

use holdfast_kit::is_public;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    client_address::TrustedProxies,
    client_network::{ClientNetwork, NetworkBudget, NetworkShare},
};

/// Open connections of a listener.
#[derive(Debug)]
pub(crate) struct Connections {
    total: Arc<Semaphore>,
    max_per_address: usize,
    proxies: TrustedProxies,
    networks: NetworkBudget,
}

/// Place of one connection, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _total: OwnedSemaphorePermit,
    _of_network: Option<NetworkShare>,
}

impl Connections {
    pub fn new((max_total, max_per_address): (usize, usize), proxies: TrustedProxies) -> Arc<Self> {
        let total = Arc::new(Semaphore::new(max_total));
        Arc::new(Self { total, max_per_address, proxies, networks: NetworkBudget::default() })
    }

    /// Waits until one more connection may be open.
    pub async fn free(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.total).acquire_owned().await.ok()
    }

    /// Returns `None` if the address or its site has as many connections open as one may.
    pub fn admit(&self, total: OwnedSemaphorePermit, peer: IpAddr) -> Option<ConnectionPermit> {
        let of_network = match self.counted_network(peer) {
            Some(network) => {
                let max = u64::try_from(self.max_per_address).unwrap_or(u64::MAX);
                Some(self.networks.admit(Some(network), u64::MAX, max).ok()?)
            }
            None => None,
        };
        Some(ConnectionPermit { _total: total, _of_network: of_network })
    }

    /// Network under which a peer's connections are counted.
    ///
    /// Private addresses and proxies that the setting names are not counted: a proxy brings the
    /// connections of all callers, and the operator's services are in private networks.
    fn counted_network(&self, peer: IpAddr) -> Option<ClientNetwork> {
        let is_counted = is_public(peer) && !self.proxies.0.trusts(peer);
        is_counted.then(|| ClientNetwork::of(peer))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_kit::config::Proxies;

    use super::*;

    fn connections(total: usize, per_address: usize, trusted: &str) -> Arc<Connections> {
        let trusted = (!trusted.is_empty()).then(|| vec![trusted.parse().unwrap()]);
        let proxies = TrustedProxies(Arc::new(Proxies { trusted }));
        Connections::new((total, per_address), proxies)
    }

    fn admitted(connections: &Arc<Connections>, peer: &str) -> Option<ConnectionPermit> {
        let total = Arc::clone(&connections.total).try_acquire_owned().ok()?;
        connections.admit(total, peer.parse().ok()?)
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let connections = connections(5, 2, "");

        let held = [admitted(&connections, "8.8.8.8"), admitted(&connections, "::ffff:8.8.8.8")];

        assert!(held.iter().all(Option::is_some));
        assert!(admitted(&connections, "8.8.8.8").is_none());
        let network = ["2606:4700::1", "2606:4700::2"].map(|peer| admitted(&connections, peer));
        assert!(network.iter().all(Option::is_some));
        assert!(admitted(&connections, "2606:4700::3").is_none());
        drop((held, network));
        assert_eq!(connections.total.available_permits(), 5);
        assert!(admitted(&connections, "8.8.8.8").is_some());
    }

    #[test]
    fn a_site_cannot_take_all_connections() {
        let connections = connections(20, 1, "");

        let held: Vec<_> =
            (0..8).map(|n| admitted(&connections, &format!("2606:4700:1:{n}::1"))).collect();

        assert_eq!(held.iter().flatten().count(), 4);
        assert!(admitted(&connections, "2606:4700:2::1").is_some());
    }

    #[test]
    fn a_proxy_of_the_operator_may_bring_everyone() {
        let connections = connections(8, 1, "104.16.0.0/13");

        let held =
            ["10.0.0.1", "10.0.0.1", "127.0.0.1", "fd00::1", "fd00::1", "104.16.0.1", "104.16.0.1"]
                .map(|peer| admitted(&connections, peer));

        assert!(held.iter().all(Option::is_some));
    }
}
