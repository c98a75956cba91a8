//! Addresses of a mesh's processes: all on loopback, or the processes of each role in a network
//! namespace of their own, with one pair of virtual interfaces for each peer. There, packets between
//! two processes can be lost.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::edges::ROLES;
use crate::node::Role;

/// Nobody has this hardware address: packets to it are dropped.
const NOBODY: &str = "02:00:00:00:00:01";

/// What the processes of a role are connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Postgres,
    Nats,
    Redis,
    Memory,
    /// For bridges.
    Gateway,
    /// Clients, models and platforms.
    World,
}

const PEERS: [Peer; 6] =
    [Peer::Postgres, Peer::Nats, Peer::Redis, Peer::Memory, Peer::Gateway, Peer::World];

#[derive(Debug)]
pub struct Network {
    /// `None`: everything is on loopback.
    namespaces: Option<Namespaces>,
}

/// Network namespaces; they are deleted with the value.
#[derive(Debug)]
struct Namespaces {
    /// Part of all names, so that two tests do not meet.
    token: u16,
    /// Second byte of all addresses.
    net: u8,
}

impl Network {
    pub(super) const fn loopback() -> Self {
        Self { namespaces: None }
    }

    /// Creates the namespaces.
    ///
    /// # Errors
    ///
    /// If this process may not create network namespaces.
    pub(super) fn with_namespaces() -> anyhow::Result<Self> {
        let made = Namespaces { token: rand::random(), net: rand::random_range(64..128) };
        for role in ROLES {
            made.create(role).with_context(|| format!("the network of {role:?}"))?;
        }
        Ok(Self { namespaces: Some(made) })
    }

    /// Address at which the processes of a role reach a peer.
    pub(super) fn of_peer(&self, role: Role, peer: Peer) -> IpAddr {
        self.address(role, peer, 1)
    }

    /// Address at which the processes of a role listen.
    pub(super) fn of_role(&self, role: Role) -> IpAddr {
        self.address(role, Peer::World, 2)
    }

    fn address(&self, role: Role, peer: Peer, end: u8) -> IpAddr {
        match &self.namespaces {
            Some(made) => made.address(role, peer, end).into(),
            None => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Name of the namespace in which the processes of a role run.
    pub(super) fn namespace(&self, role: Role) -> Option<String> {
        self.namespaces.as_ref().map(|made| made.name(role))
    }

    /// The connections of a role that can be cut.
    #[must_use]
    pub fn links(role: Role) -> Vec<Peer> {
        let is_used = |peer: &Peer| match peer {
            Peer::Memory => role != Role::Memory,
            Peer::Gateway => role == Role::Bridge,
            Peer::Postgres | Peer::Nats | Peer::Redis | Peer::World => true,
        };
        PEERS.into_iter().filter(is_used).collect()
    }

    /// From now on packets between a role and a peer are lost, in both directions.
    pub fn cut(&self, role: Role, peer: Peer) -> anyhow::Result<()> {
        let made = self.namespaces.as_ref().context("the mesh has no network namespaces")?;
        made.each_end(role, peer, |at, other, device| {
            [at, &["neigh", "replace", other, "lladdr", NOBODY, "dev", device, "nud", "permanent"]]
                .concat()
        })
    }

    pub fn heal(&self, role: Role, peer: Peer) -> anyhow::Result<()> {
        let made = self.namespaces.as_ref().context("the mesh has no network namespaces")?;
        made.each_end(role, peer, |at, other, device| {
            [at, &["neigh", "del", other, "dev", device]].concat()
        })
    }
}

impl Namespaces {
    fn name(&self, role: Role) -> String {
        format!("holdfast-{:04x}-{role:?}", self.token).to_lowercase()
    }

    /// Name of an interface, of at most 15 characters.
    fn device(&self, role: Role, peer: Peer, end: u8) -> String {
        format!("hf{:04x}-{}{}-{end}", self.token, role as u8, peer as u8)
    }

    const fn address(&self, role: Role, peer: Peer, end: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.net, role as u8 * 8 + peer as u8, end)
    }

    fn create(&self, role: Role) -> anyhow::Result<()> {
        let name = self.name(role);
        ip(&["netns", "add", &name])?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        for peer in PEERS {
            let (here, there) = (self.device(role, peer, 1), self.device(role, peer, 2));
            ip(&["link", "add", &here, "type", "veth", "peer", "name", &there, "netns", &name])?;
            let address = |end| format!("{}/30", self.address(role, peer, end));
            ip(&["address", "add", &address(1), "dev", &here])?;
            ip(&["-n", &name, "address", "add", &address(2), "dev", &there])?;
            ip(&["link", "set", &here, "up"])?;
            ip(&["-n", &name, "link", "set", &there, "up"])?;
        }
        Ok(())
    }

    /// Runs a command at both ends of a connection: it is given the options that name the end, the
    /// address of the other end, and the interface.
    fn each_end(
        &self,
        role: Role,
        peer: Peer,
        command: impl for<'a> Fn(&'a [&'a str], &'a str, &'a str) -> Vec<&'a str>,
    ) -> anyhow::Result<()> {
        let name = self.name(role);
        let inside: [&str; 2] = ["-n", &name];
        for (at, end, other) in [(&[][..], 1, 2), (&inside[..], 2, 1)] {
            let (other, device) =
                (self.address(role, peer, other).to_string(), self.device(role, peer, end));
            ip(&command(at, &other, &device))?;
        }
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for role in ROLES {
            // One that was not created, and its interfaces, cannot be deleted.
            let _ = ip(&["netns", "del", &self.name(role)]);
        }
    }
}

fn ip(args: &[&str]) -> anyhow::Result<()> {
    let done = Command::new("ip").args(args).output().context("cannot run `ip`")?;
    if !done.status.success() {
        bail!("`ip {}`: {}", args.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    ensure!(done.stderr.is_empty(), "`ip {}` warns", args.join(" "));
    Ok(())
}
