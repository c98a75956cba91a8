//! Limits on open connections, in total and for one public address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use holdfast_kit::is_public;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client_address::{TrustedProxies, counted_network};

/// Open connections of a listener.
#[derive(Debug)]
pub(crate) struct Connections {
    total: Arc<Semaphore>,
    max_per_address: usize,
    proxies: TrustedProxies,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// Place of one connection, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _total: OwnedSemaphorePermit,
    counted: Option<IpAddr>,
    connections: Arc<Connections>,
}

impl Connections {
    pub fn new((max_total, max_per_address): (usize, usize), proxies: TrustedProxies) -> Arc<Self> {
        let total = Arc::new(Semaphore::new(max_total));
        Arc::new(Self { total, max_per_address, proxies, by_address: Mutex::default() })
    }

    /// Waits until one more connection may be open.
    pub async fn free(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.total).acquire_owned().await.ok()
    }

    /// Returns `None` if the address has as many connections open as one address may.
    pub fn admit(
        self: &Arc<Self>,
        total: OwnedSemaphorePermit,
        peer: IpAddr,
    ) -> Option<ConnectionPermit> {
        let counted = self.counted_address(peer);
        if let Some(address) = counted {
            let mut by_address = self.lock();
            let open = by_address.entry(address).or_default();
            if *open >= self.max_per_address {
                return None;
            }
            *open += 1;
        }
        Some(ConnectionPermit { _total: total, counted, connections: Arc::clone(self) })
    }

    /// Address under which a peer's connections are counted.
    ///
    /// Private addresses and proxies that the setting names are not counted: a proxy brings the
    /// connections of all callers, and the operator's services are in private networks.
    fn counted_address(&self, peer: IpAddr) -> Option<IpAddr> {
        let is_counted = is_public(peer) && !self.proxies.0.trusts(peer);
        is_counted.then(|| counted_network(peer))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let Some(address) = self.counted else { return };
        let mut by_address = self.connections.lock();
        if let Some(open) = by_address.get_mut(&address) {
            *open -= 1;
            if *open == 0 {
                by_address.remove(&address);
            }
        }
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
        assert!(connections.lock().is_empty());
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
