//! The CPU time of every process of the mesh.

use std::time::Duration;

use holdfast_testkit::backends::Server;

use crate::{
    mesh::{Mesh, Service},
    usage,
};

const SERVERS: [(&str, Server); 3] =
    [("postgres", Server::Postgres), ("nats", Server::Nats), ("redis", Server::Redis)];

/// CPU time by process: our services first, then the backends.
#[derive(Debug)]
pub struct Spent(Vec<(&'static str, Duration)>);

impl Spent {
    /// What each has used since its start.
    pub fn so_far(mesh: &Mesh) -> anyhow::Result<Self> {
        let mut spent = Vec::new();
        for service in Service::ALL {
            spent.push((service.name(), usage::cpu(mesh.pid(service)?)?));
        }
        for (name, server) in SERVERS {
            spent.push((name, usage::family_cpu(mesh.backends().pid(server)?)?));
        }
        Ok(Self(spent))
    }

    /// What each has used since then.
    pub fn since(&self, then: &Self) -> Self {
        let used = self.0.iter().zip(&then.0);
        Self(used.map(|(now, then)| (now.0, now.1.saturating_sub(then.1))).collect())
    }

    /// What our services have used together.
    pub fn own(&self) -> Duration {
        self.0.iter().take(Service::ALL.len()).map(|spent| spent.1).sum()
    }

    /// What all have used together.
    pub fn all(&self) -> Duration {
        self.0.iter().map(|spent| spent.1).sum()
    }

    pub fn each(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.0.iter().copied()
    }
}
