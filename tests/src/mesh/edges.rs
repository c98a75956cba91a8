//! Network edges of a mesh: a proxy on each way from a process to what it calls.

use std::net::SocketAddr;

use anyhow::Context as _;
use holdfast_testkit::Proxy;

use super::network::{Network, Peer};
use crate::node::Role;

pub(super) const ROLES: [Role; 5] =
    [Role::Gateway, Role::Runner, Role::Bridge, Role::Scheduler, Role::Memory];

/// Proxies between processes, and between processes and backends. Processes with the same role
/// share them.
#[derive(Debug)]
pub struct Proxies {
    pub gateway_database: Proxy,
    pub runner_database: Proxy,
    pub bridge_database: Proxy,
    pub scheduler_database: Proxy,
    pub memory_database: Proxy,
    /// All ways to NATS.
    pub nats: Proxy,
    /// All ways to each server of a NATS cluster, which takes the place of that NATS.
    pub nats_cluster: Vec<Proxy>,
    /// All ways to Redis.
    pub redis: Proxy,
    ways: Vec<Ways>,
    /// Ways from clients to each gateway.
    from_clients: Vec<Proxy>,
    /// Ways from bridges to each gateway.
    from_bridges: Vec<Proxy>,
}

/// Ways of the processes with one role.
#[derive(Debug)]
struct Ways {
    role: Role,
    nats: Proxy,
    redis: Proxy,
    /// `None` where the mesh has no memory service, and for that service itself.
    memory: Option<Proxy>,
}

impl Proxies {
    pub(super) async fn start(
        network: &Network,
        database: &str,
        nats: &str,
        redis: &str,
    ) -> anyhow::Result<Self> {
        let (nats, redis) = (Proxy::in_front_of(nats).await?, Proxy::in_front_of(redis).await?);
        let mut ways = Vec::new();
        for role in ROLES {
            let at = |peer| network.of_peer(role, peer);
            let nats = Proxy::start_on(at(Peer::Nats), nats.addr()).await?;
            let redis = Proxy::start_on(at(Peer::Redis), redis.addr()).await?;
            ways.push(Ways { role, nats, redis, memory: None });
        }
        let server = Proxy::server_of(database).await?;
        let database = |role| Proxy::start_on(network.of_peer(role, Peer::Postgres), server);
        Ok(Self {
            gateway_database: database(Role::Gateway).await?,
            runner_database: database(Role::Runner).await?,
            bridge_database: database(Role::Bridge).await?,
            scheduler_database: database(Role::Scheduler).await?,
            memory_database: database(Role::Memory).await?,
            nats,
            nats_cluster: Vec::new(),
            redis,
            ways,
            from_clients: Vec::new(),
            from_bridges: Vec::new(),
        })
    }

    /// Puts proxies in front of the memory service that all processes call.
    pub(super) async fn add_memory(
        &mut self,
        network: &Network,
        memory: SocketAddr,
    ) -> anyhow::Result<()> {
        for ways in self.ways.iter_mut().filter(|ways| ways.role != Role::Memory) {
            let at = network.of_peer(ways.role, Peer::Memory);
            ways.memory = Some(Proxy::start_on(at, memory).await?);
        }
        Ok(())
    }

    /// Puts proxies in front of a gateway; returns the address for clients.
    pub(super) async fn add_gateway(
        &mut self,
        network: &Network,
        gateway: SocketAddr,
    ) -> anyhow::Result<SocketAddr> {
        let for_clients = Proxy::start(gateway).await?;
        let addr = for_clients.addr();
        self.from_clients.push(for_clients);
        let at = network.of_peer(Role::Bridge, Peer::Gateway);
        self.from_bridges.push(Proxy::start_on(at, gateway).await?);
        Ok(addr)
    }

    /// Address at which the bridge with this number reaches its gateway.
    pub(super) fn gateway_of_bridge(&self, number: usize) -> anyhow::Result<SocketAddr> {
        let gateways = &self.from_bridges;
        Ok(gateways.get(number % gateways.len().max(1)).context("no gateway")?.addr())
    }

    pub(super) const fn database(&self, role: Role) -> &Proxy {
        match role {
            Role::Gateway => &self.gateway_database,
            Role::Runner => &self.runner_database,
            Role::Bridge => &self.bridge_database,
            Role::Scheduler => &self.scheduler_database,
            Role::Memory => &self.memory_database,
        }
    }

    /// Ways to NATS, Redis and memory.
    pub(super) fn ways(&self, role: Role) -> anyhow::Result<(&Proxy, &Proxy, Option<&Proxy>)> {
        let ways = self.ways.iter().find(|ways| ways.role == role).context("no such role")?;
        Ok((&ways.nats, &ways.redis, ways.memory.as_ref()))
    }

    /// All edges that the processes of these roles use, by name.
    #[must_use]
    pub fn edges(&self, roles: &[Role]) -> Vec<(String, &Proxy)> {
        let mut edges = Vec::new();
        for ways in self.ways.iter().filter(|ways| roles.contains(&ways.role)) {
            let from = |to: &str| format!("{:?} to {to}", ways.role).to_lowercase();
            edges.push((from("Postgres"), self.database(ways.role)));
            edges.push((from("NATS"), &ways.nats));
            edges.push((from("Redis"), &ways.redis));
            edges.extend(ways.memory.iter().map(|memory| (from("memory"), memory)));
        }
        let clients = self.from_clients.iter().map(|proxy| ("client to gateway".to_owned(), proxy));
        edges.extend(clients);
        if roles.contains(&Role::Bridge) {
            let bridges = self.from_bridges.iter();
            edges.extend(bridges.map(|proxy| ("bridge to gateway".to_owned(), proxy)));
        }
        edges
    }
}
