//! Which service may call which methods of gateway and memory service, tried with the key of each: a
//! table of `docs/stolen-parts.md`.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use holdfast_grpc::{CONTEXT_HEADER, CallTarget, Signer};
use holdfast_kit::config::Mesh;
use holdfast_proto::DESCRIPTORS;
use holdfast_testkit::generated::check_stolen_parts;
use holdfast_types::TenantId;
use http::uri::PathAndQuery;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::{
    Code, Request,
    client::Grpc,
    transport::{Channel, Endpoint},
};

use crate::{
    foreign::raw::Plain,
    world::{PATIENCE, World, database},
};

/// Services, and whose keys they hold: their own, which those without one could make up, and those of
/// `mesh.caller_keys`.
const CALLERS: [(&str, &[&str]); 5] = [
    ("gateway", &["gateway", "channel-bridge"]),
    ("agent-runner", &["agent-runner"]),
    ("scheduler", &["scheduler"]),
    ("memory-service", &["memory-service", "gateway", "agent-runner"]),
    ("channel-bridge", &["channel-bridge"]),
];

/// Key with which a service signs.
fn key_of(service: &str) -> String {
    format!("{service} 0123456789abcdef")
}

/// Keys of the mesh as a called service has them.
fn called_by(callers: &[&str]) -> Mesh {
    let keys: Vec<String> =
        callers.iter().map(|service| format!("{service}={}", key_of(service))).collect();
    Mesh { caller_keys: keys.join(",").into(), ..Mesh::default() }
}

/// Contract of the memory service, which reflection does not offer.
const MEMORY: &str = include_str!("../../../../proto/holdfast/memory/v1/memory.proto");

/// Full names of the memory service's methods, by the names of their services.
fn memory_methods() -> BTreeMap<String, Vec<String>> {
    let mut methods: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut service = "";
    for line in MEMORY.lines() {
        let mut words = line.split([' ', '(']).filter(|word| !word.is_empty());
        match (words.next(), words.next()) {
            (Some("service"), Some(name)) => service = name,
            (Some("rpc"), Some(name)) => {
                let path = format!("/holdfast.memory.v1.{service}/{name}");
                methods.entry(service.to_owned()).or_default().push(path);
            }
            _ => (),
        }
    }
    methods
}

/// Full names of the methods of a package, by the names of their services.
fn methods(package: &str) -> BTreeMap<String, Vec<String>> {
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    let mut methods: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.package() == package) {
        for service in &file.service {
            let paths = service
                .method
                .iter()
                .map(|method| format!("/{package}.{}/{}", service.name(), method.name()));
            methods.entry(service.name().to_owned()).or_default().extend(paths);
        }
    }
    methods
}

/// A called service.
struct Called {
    channel: Channel,
    audience: &'static str,
    tenant: TenantId,
}

impl Called {
    fn new(address: SocketAddr, audience: &'static str, tenant: TenantId) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Self { channel: endpoint.timeout(PATIENCE).connect_lazy(), audience, tenant }
    }

    /// Whether a call is let in that is signed with the key of `owner` and names `caller`. What an empty
    /// message leads to does not matter.
    async fn lets_in(&self, path: &str, owner: &str, caller: &str) -> bool {
        let mesh = Mesh { key: key_of(owner).into(), ..Mesh::default() };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let target = CallTarget { audience: self.audience, method: path };
        let context = Signer::new(&mesh).unwrap().sign(self.tenant, caller, target, now);
        let mut request = Request::new(Vec::new());
        request.metadata_mut().insert(CONTEXT_HEADER, context.parse().unwrap());
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = PathAndQuery::try_from(path.to_owned()).unwrap();
        let code = match grpc.server_streaming(request, path, Plain).await {
            Ok(answers) => answers.into_inner().message().await.err().map(|status| status.code()),
            Err(status) => Some(status.code()),
        };
        !matches!(code, Some(Code::Unauthenticated | Code::PermissionDenied))
    }

    /// Number of methods that let a process in that has these keys, under any name.
    async fn count(&self, paths: &[String], keys: &[&str]) -> usize {
        let mut count = 0;
        for path in paths {
            let mut is_let_in = false;
            for owner in keys {
                for (caller, _) in CALLERS {
                    is_let_in |= self.lets_in(path, owner, caller).await;
                }
            }
            count += usize::from(is_let_in);
        }
        count
    }

    /// What each service may call among these methods.
    async fn cells(&self, paths: &[String]) -> Vec<String> {
        let mut cells = Vec::new();
        for (service, keys) in CALLERS {
            if service == self.audience {
                cells.push("itself".to_owned());
                continue;
            }
            cells.push(match self.count(paths, keys).await {
                0 => "—".to_owned(),
                count if count == paths.len() => "calls".to_owned(),
                count => format!("calls {count} of {}", paths.len()),
            });
        }
        cells
    }
}

#[tokio::test]
async fn the_page_says_which_methods_accept_which_service() -> anyhow::Result<()> {
    let world = World::start_with(|config| {
        config.mesh = Mesh { key: key_of("gateway").into(), ..called_by(&["channel-bridge"]) };
    })
    .await?;
    let database = database().await?;
    let mut config = memory::Config::default();
    config.database.url = database.service_url("memory-service").into();
    config.database.acquire_timeout = PATIENCE;
    config.memory.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.memory.embedding.engine = memory::Engine::Hashed;
    config.mesh = called_by(&["gateway", "agent-runner"]);
    let memory = Box::pin(memory::App::connect(config)).await?;
    let (address, stop) = (memory.address()?, CancellationToken::new());
    let _served = AbortOnDropHandle::new(tokio::spawn(memory.run(stop.clone())));
    let gateway = Called::new(world.grpc, "gateway", world.anna.id);
    let memory = Called::new(address, "memory-service", world.anna.id);

    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut of_gateway = methods("holdfast.gateway.v1");
    let ingest = of_gateway.remove("Ingest").unwrap();
    let others: Vec<String> = of_gateway.into_values().flatten().collect();
    assert!(others.len() > 100, "{others:?}");
    for (name, called, paths) in [
        ("gateway, `Ingest`: messages of channels", &gateway, ingest),
        ("gateway, all other services", &gateway, others),
    ] {
        rows.push([name.to_owned()].into_iter().chain(called.cells(&paths).await).collect());
    }
    let of_memory = memory_methods();
    assert!(of_memory.values().flatten().count() > 10, "{of_memory:?}");
    for (name, paths) in of_memory {
        let cells = memory.cells(&paths).await;
        rows.push([format!("memory-service, `{name}`")].into_iter().chain(cells).collect());
    }
    stop.cancel();

    let services = CALLERS.map(|(service, _)| service);
    let head: Vec<&str> = ["methods"].into_iter().chain(services).collect();
    check_stolen_parts("calls", &head, &rows)
}
