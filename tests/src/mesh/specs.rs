//! Start parameters of a mesh's processes: ports and settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_testkit::ports::free_address_on;

use super::{
    BRIDGE_KEY, Certificates, GATEWAY_KEY, Mesh, MeshConfig, NODE_KEY, PEPPER, Peer, RUNNER_KEY,
};
use crate::node::{Node, NodeSpec, Role};

impl Mesh {
    fn shared(&self, role: Role, plan: &MeshConfig) -> anyhow::Result<Vec<(String, String)>> {
        let set = |name: &str, value: String| (format!("HOLDFAST_{name}"), value);
        let database = self.proxies.database(role);
        let (nats, redis, memory) = self.proxies.ways(role)?;
        // The pooler knows one login only.
        let login = match &self.pooler {
            Some(_) => self.database.url(),
            None => self.database.service_url(service(role)),
        };
        let mut env = vec![
            set("FAILPOINTS", String::new()),
            set("DATABASE__URL", database.through(&login)),
            set("DATABASE__ACQUIRE_TIMEOUT", format!("{}s", plan.acquire_timeout.as_secs())),
            set("NATS__URL", nats.through(self.nats.service_url(service(role)))),
            set("NATS__PREFIX", self.nats.prefix().to_owned()),
            set("REDIS__URL", redis.through(self.redis.service_url(service(role)))),
            set("REDIS__PREFIX", self.redis.prefix().to_owned()),
            // The scripted model and platforms are on this machine.
            set("EGRESS__ALLOW", format!(r#"["{}"]"#, self.network.of_peer(role, Peer::World))),
            set("TELEMETRY__LOG", log_level()),
        ];
        env.extend(secrets(role)?.into_iter().map(|(name, value)| set(name, value)));
        env.extend(self.certificates.iter().flat_map(Certificates::env));
        if self.network.namespace(role).is_some() {
            env.push(set("TLS__ALLOW_PLAIN", true.to_string()));
        }
        if let Some(replicas) = &self.replicas {
            let through = self.proxies.nats_cluster.iter().zip(&replicas.nats_urls);
            let urls: Vec<_> = through.map(|(proxy, url)| proxy.through(url)).collect();
            env.extend([
                set("NATS__URL", urls.join(",")),
                set("NATS__EVENTS_REPLICAS", "3".to_owned()),
                set("REDIS__URL", replicas.redis_url.clone()),
                set("REDIS__SENTINELS", replicas.sentinels.clone()),
                set("REDIS__SENTINEL_GROUP", replicas.sentinel_group.clone()),
            ]);
        }
        if self.pooler.is_some() {
            env.push(set("DATABASE__TRANSACTION_POOLING", true.to_string()));
        }
        env.extend(memory.map(|memory| {
            set("MESH__MEMORY_URL", format!("{}://{}", self.scheme(), memory.addr()))
        }));
        Ok(env)
    }

    /// A node in the namespace of its role.
    fn node(&self, mut spec: NodeSpec) -> anyhow::Result<Node> {
        if let Some(namespace) = self.network.namespace(spec.role) {
            let program = spec.program.to_string_lossy().into_owned();
            let within = ["netns", "exec", &namespace, &program].map(str::to_owned);
            spec.args.splice(0..0, within);
            spec.program = "ip".into();
        }
        Node::new(spec)
    }

    pub(super) fn gateway(
        &self,
        number: usize,
        program: PathBuf,
        plan: &MeshConfig,
    ) -> anyhow::Result<(Node, SocketAddr)> {
        let at = self.network.of_role(Role::Gateway);
        let (http, grpc) = (free_address_on(at)?, free_address_on(at)?);
        let mut env = self.shared(Role::Gateway, plan)?;
        env.push(("HOLDFAST_GATEWAY__HTTP".to_owned(), http.to_string()));
        env.push(("HOLDFAST_GATEWAY__GRPC".to_owned(), grpc.to_string()));
        env.push(("HOLDFAST_GATEWAY__SHUTDOWN_GRACE".to_owned(), "5s".to_owned()));
        let name = format!("gateway-{number}");
        let args = vec!["gateway".to_owned()];
        Ok((self.node(NodeSpec { name, role: Role::Gateway, program, args, env, http })?, grpc))
    }

    pub(super) fn runner(&self, number: usize, plan: &MeshConfig) -> anyhow::Result<Node> {
        let http = free_address_on(self.network.of_role(Role::Runner))?;
        let mut env = self.shared(Role::Runner, plan)?;
        let sweep = (plan.lease / 3).min(Duration::from_secs(1)).as_millis();
        env.extend([
            ("HOLDFAST_RUNNER__LISTEN".to_owned(), http.to_string()),
            ("HOLDFAST_RUNNER__LEASE".to_owned(), format!("{}ms", plan.lease.as_millis())),
            ("HOLDFAST_RUNNER__SWEEP".to_owned(), format!("{sweep}ms")),
            ("HOLDFAST_RUNNER__SLOTS".to_owned(), plan.slots.to_string()),
            ("HOLDFAST_RUNNER__SHUTDOWN_GRACE".to_owned(), "10s".to_owned()),
            // Reminders may follow each other as soon as in a test.
            ("HOLDFAST_SCHEDULES__REMINDERS_APART".to_owned(), "1s".to_owned()),
            // A receiver of events that was down is asked again as soon as in a test.
            ("HOLDFAST_RUNNER__WEBHOOK_RETRY".to_owned(), "1s".to_owned()),
            ("HOLDFAST_FAILPOINTS".to_owned(), plan.failpoints.clone()),
            ("CHAOS_WORLD_URL".to_owned(), self.fakes.world.url()),
        ]);
        let name = format!("runner-{number}");
        let program = plan.runner.clone();
        self.node(NodeSpec { name, role: Role::Runner, program, args: Vec::new(), env, http })
    }

    pub(super) fn scheduler(
        &self,
        number: usize,
        program: PathBuf,
        plan: &MeshConfig,
    ) -> anyhow::Result<Node> {
        let http = free_address_on(self.network.of_role(Role::Scheduler))?;
        let mut env = self.shared(Role::Scheduler, plan)?;
        env.push(("HOLDFAST_SCHEDULER__LISTEN".to_owned(), http.to_string()));
        env.push(("HOLDFAST_SCHEDULER__HANDOVER".to_owned(), "3s".to_owned()));
        let name = format!("scheduler-{number}");
        let args = vec!["scheduler".to_owned()];
        self.node(NodeSpec { name, role: Role::Scheduler, program, args, env, http })
    }

    pub(super) fn memory(
        &self,
        number: usize,
        program: PathBuf,
        plan: &MeshConfig,
    ) -> anyhow::Result<Node> {
        let http = free_address_on(self.network.of_role(Role::Memory))?;
        let mut env = self.shared(Role::Memory, plan)?;
        env.push(("HOLDFAST_MEMORY__LISTEN".to_owned(), http.to_string()));
        env.push(("HOLDFAST_MEMORY__EMBEDDING__ENGINE".to_owned(), "hashed".to_owned()));
        let name = format!("memory-{number}");
        let args = vec!["memory-service".to_owned()];
        self.node(NodeSpec { name, role: Role::Memory, program, args, env, http })
    }

    pub(super) fn bridge(
        &self,
        number: usize,
        program: PathBuf,
        plan: &MeshConfig,
    ) -> anyhow::Result<Node> {
        let http = free_address_on(self.network.of_role(Role::Bridge))?;
        let gateway = self.proxies.gateway_of_bridge(number)?;
        let mut env = self.shared(Role::Bridge, plan)?;
        env.extend([
            ("HOLDFAST_BRIDGE__LISTEN".to_owned(), http.to_string()),
            ("HOLDFAST_BRIDGE__TELEGRAM__API_BASE".to_owned(), self.fakes.telegram.url()),
            ("HOLDFAST_BRIDGE__TELEGRAM__POLL_TIMEOUT".to_owned(), "2s".to_owned()),
            ("HOLDFAST_BRIDGE__REFRESH".to_owned(), "1s".to_owned()),
            ("HOLDFAST_MESH__GATEWAY_URL".to_owned(), format!("{}://{gateway}", self.scheme())),
        ]);
        if let Some(platforms) = &self.fakes.platforms {
            env.push(("HOLDFAST_BRIDGE__SLACK__API_BASE".to_owned(), platforms.slack.url()));
            env.push(("HOLDFAST_BRIDGE__DISCORD__API_BASE".to_owned(), platforms.discord.url()));
        }
        let name = format!("bridge-{number}");
        let args = vec!["channel-bridge".to_owned()];
        self.node(NodeSpec { name, role: Role::Bridge, program, args, env, http })
    }
}

const fn service(role: Role) -> &'static str {
    match role {
        Role::Gateway => "gateway",
        Role::Runner => "agent-runner",
        Role::Bridge => "channel-bridge",
        Role::Scheduler => "scheduler",
        Role::Memory => "memory-service",
    }
}

/// Secrets of a service: each has those that it uses.
fn secrets(role: Role) -> anyhow::Result<Vec<(&'static str, String)>> {
    let kek = ("SECRETS__KEK", STANDARD.encode([7; 32]));
    let key = |key: &str| ("MESH__KEY", key.to_owned());
    Ok(match role {
        Role::Gateway => {
            let mesh = holdfast_kit::config::Mesh {
                node_key: NODE_KEY.into(),
                ..holdfast_kit::config::Mesh::default()
            };
            let public_key = STANDARD.encode(holdfast_grpc::node_public_key(&mesh)?);
            vec![
                kek,
                ("SECRETS__PEPPER", PEPPER.to_owned()),
                key(GATEWAY_KEY),
                ("MESH__CALLER_KEYS", format!("channel-bridge={BRIDGE_KEY}")),
                ("MESH__NODE_PUBLIC_KEY", public_key),
            ]
        }
        Role::Runner => vec![kek, key(RUNNER_KEY), ("MESH__NODE_KEY", NODE_KEY.to_owned())],
        Role::Bridge => vec![kek, key(BRIDGE_KEY)],
        Role::Memory => {
            let callers = format!("gateway={GATEWAY_KEY},agent-runner={RUNNER_KEY}");
            vec![("MESH__CALLER_KEYS", callers)]
        }
        Role::Scheduler => Vec::new(),
    })
}

/// What the processes log; their output is shown where a test fails.
pub(crate) fn log_level() -> String {
    std::env::var("HOLDFAST_CHAOS_LOG").unwrap_or_else(|_| "warn".to_owned())
}
