//! Ports for servers that a test starts later, or again.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Mutex;

use anyhow::bail;

use crate::http::LOCALHOST;
use crate::scratch::lock;

/// Ports that this process has given out.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A free port of loopback; see [`free_address_on`].
///
/// # Errors
///
/// If no free port is found.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    free_address_on(LOCALHOST)
}

/// So many free ports of loopback; see [`free_address_on`].
///
/// # Errors
///
/// If there are not so many.
pub fn free_addresses(count: usize) -> anyhow::Result<Vec<SocketAddr>> {
    (0..count).map(|_| free_address()).collect()
}

/// A free port of this address, which this process has given out to nobody else. It is below the
/// ports that connections are made from: those could take the port of a server that is down.
///
/// # Errors
///
/// If no free port is found.
pub fn free_address_on(at: IpAddr) -> anyhow::Result<SocketAddr> {
    for _ in 0..200 {
        let port = rand::random_range(20_000..32_000);
        let addr = SocketAddr::from((at, port));
        // An address that is not of loopback is in a network namespace, where nobody else listens.
        let is_free = !at.is_loopback() || TcpListener::bind(addr).is_ok();
        if is_free && lock(&GIVEN).insert(port) {
            return Ok(addr);
        }
    }
    bail!("no port is free between 20000 and 32000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_out_twice() {
        let ports: BTreeSet<u16> = (0..500).map(|_| free_address().unwrap().port()).collect();

        assert_eq!(ports.len(), 500);
    }
}
