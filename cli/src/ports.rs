//! Loopback ports of the services of one `up`.
//!
//! With base `b` (18789): gateway `b` for HTTP and `b + 1` for gRPC, channel-bridge `b + 3`,
//! scheduler `b + 4`, memory `b + 5`, secrets `b + 7`, runner `n` `b + 11 + n`, further gateways from `b + 100`. If
//! a port is taken, the next free one is used. With base 0 the system chooses, for parallel tests.

use std::{
    collections::BTreeSet,
    io,
    net::{Ipv4Addr, SocketAddr},
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tokio::net::TcpSocket;

/// First port of Linux's range for outgoing connections.
const FIRST_EPHEMERAL_PORT: u16 = 32_768;
const BRIDGE_OFFSET: u16 = 3;
const SCHEDULER_OFFSET: u16 = 4;
const MEMORY_OFFSET: u16 = 5;
const SECRETS_OFFSET: u16 = 7;
const RUNNERS_OFFSET: u16 = 12;
const GATEWAYS_OFFSET: u16 = 100;

/// Addresses of the services of one `up`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// HTTP and gRPC addresses of each gateway.
    pub gateways: Vec<(SocketAddr, SocketAddr)>,
    pub runners: Vec<SocketAddr>,
    pub bridge: SocketAddr,
    pub scheduler: SocketAddr,
    pub memory: SocketAddr,
    /// Used only if each service is a process of its own.
    pub secrets: SocketAddr,
}

/// Sockets that are bound to the ports that the system has chosen, and never listen. While they
/// exist, the system gives these ports to no other process; the services can listen there.
#[derive(Debug)]
pub struct Reservation {
    _sockets: Vec<TcpSocket>,
}

impl Ports {
    /// Chooses ports that are free now, and reserves those that the system chooses.
    ///
    /// # Errors
    ///
    /// If there are no free ports.
    pub fn choose(base: u16, gateways: u16, runners: u16) -> anyhow::Result<(Self, Reservation)> {
        let mut choice = PortAllocator { base, taken: BTreeSet::new(), sockets: Vec::new() };
        let mut pairs = vec![(choice.port(0)?, choice.port(1)?)];
        let bridge = choice.port(BRIDGE_OFFSET)?;
        let scheduler = choice.port(SCHEDULER_OFFSET)?;
        let memory = choice.port(MEMORY_OFFSET)?;
        let secrets = choice.port(SECRETS_OFFSET)?;
        let runners =
            (0..runners).map(|n| choice.port(RUNNERS_OFFSET + n)).collect::<anyhow::Result<_>>()?;
        for n in 1..gateways {
            let at = GATEWAYS_OFFSET + 2 * n;
            pairs.push((choice.port(at)?, choice.port(at + 1)?));
        }
        // Other systems let nobody listen at an address that a socket is bound to.
        let is_reserved = base == 0 && cfg!(target_os = "linux");
        let reservation =
            Reservation { _sockets: if is_reserved { choice.sockets } else { Vec::new() } };
        Ok((Self { gateways: pairs, runners, bridge, scheduler, memory, secrets }, reservation))
    }
}

/// Ports chosen so far. They stay bound until all are chosen, so that none is chosen twice.
struct PortAllocator {
    base: u16,
    taken: BTreeSet<u16>,
    sockets: Vec<TcpSocket>,
}

impl PortAllocator {
    fn port(&mut self, offset: u16) -> anyhow::Result<SocketAddr> {
        if self.base == 0 {
            let socket = bind(0).context("there is no free port")?;
            let address = socket.local_addr()?;
            self.sockets.push(socket);
            return Ok(address);
        }
        let first = self.base.saturating_add(offset);
        for port in first..FIRST_EPHEMERAL_PORT.max(first.saturating_add(1_000)) {
            if self.taken.contains(&port) {
                continue;
            }
            if let Ok(socket) = bind(port) {
                self.taken.insert(port);
                let address = socket.local_addr()?;
                self.sockets.push(socket);
                return Ok(address);
            }
        }
        bail!("no port from {first} on is free on 127.0.0.1: choose others by --port-base")
    }
}

/// Binds a socket to a port of loopback on which nobody listens.
fn bind(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // On Linux a service can listen at the port although this socket is bound to it.
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_taken_port_makes_way_for_the_next_free_one() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let base = taken.local_addr().unwrap().port().min(u16::MAX - 2_000);

        let (ports, _) = Ports::choose(base, 2, 3).unwrap();

        let mut all: Vec<u16> = ports.runners.iter().map(SocketAddr::port).collect();
        all.extend(ports.gateways.iter().flat_map(|(http, grpc)| [http.port(), grpc.port()]));
        all.extend(
            [ports.bridge, ports.scheduler, ports.memory, ports.secrets].map(|at| at.port()),
        );
        let distinct: BTreeSet<u16> = all.iter().copied().collect();
        assert_eq!(distinct.len(), 2 * 2 + 3 + 4, "{all:?}");
        assert!(!distinct.contains(&taken.local_addr().unwrap().port()));
    }

    #[test]
    fn the_system_s_choices_are_distinct_and_on_loopback() {
        let (ports, _) = Ports::choose(0, 1, 2).unwrap();

        assert_ne!(ports.runners[0], ports.runners[1]);
        assert!(ports.gateways[0].0.ip().is_loopback());
    }

    #[test]
    fn a_service_listens_at_a_port_that_is_reserved_for_it() {
        let (ports, _reservation) = Ports::choose(0, 1, 1).unwrap();

        drop(TcpListener::bind(ports.memory).unwrap());
        TcpListener::bind(ports.memory).unwrap();
    }
}
