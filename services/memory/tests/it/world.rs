//! Memory service over a database of its own.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail};
use holdfast_grpc::{MemoryCallError, MemoryClient, Mesh, Signer};
use holdfast_pg::Pools;
use holdfast_proto::memory::v1 as pb;
use holdfast_testkit::Database;
use holdfast_types::{AgentId, TenantId};
use memory::{App, Config, Engine};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Database with the schema, and the settings to serve it.
pub struct World {
    pub config: Config,
    pub database: Database,
}

/// Running memory service.
pub struct Served {
    pub memory: MemoryClient,
    pub url: String,
    stop: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

/// Agent and user of a tenant.
#[derive(Clone)]
pub struct Person {
    pub tenant: TenantId,
    pub who: pb::Who,
    pub memory: MemoryClient,
}

impl World {
    pub async fn new() -> anyhow::Result<Self> {
        let database = Database::create_from(&holdfast_pg::fingerprint(), async |url: String| {
            holdfast_pg::migrate(&url).await?;
            Ok(())
        })
        .await?;
        let mut config = Config::default();
        config.memory.listen = "127.0.0.1:0".parse()?;
        config.memory.embedding.engine = Engine::Hashed;
        config.database.url = database.service_url("memory-service").into();
        config.database.pool_size = 6;
        // A stall of the machine is waited for.
        config.database.acquire_timeout = Duration::from_secs(20);
        config.mesh.secret = SECRET.into();
        Ok(Self { config, database })
    }

    pub async fn serve(&self) -> anyhow::Result<Served> {
        self.serve_with(self.config.clone()).await
    }

    pub async fn serve_with(&self, config: Config) -> anyhow::Result<Served> {
        let reader = env!("CARGO_BIN_EXE_memory-document-reader");
        let app = App::connect(config).await?.with_document_reader(reader.into());
        let url = format!("http://{}", app.address()?);
        let stop = CancellationToken::new();
        let running = tokio::spawn(app.run(stop.clone()));
        Ok(Served { memory: client(&url)?, url, stop, running })
    }

    /// Creates a world with a running memory service.
    pub async fn start() -> anyhow::Result<(Self, Served)> {
        let world = Self::new().await?;
        let served = world.serve().await?;
        Ok((world, served))
    }

    pub fn pools(&self) -> anyhow::Result<Pools> {
        Pools::lazy(&self.config.database, "test")
    }
}

impl Served {
    /// Waits until the service ends by itself.
    pub async fn ended(self) -> anyhow::Result<()> {
        self.running.await?
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.running.await?
    }

    pub fn somebody(&self) -> Person {
        person(self.memory.clone())
    }

    pub fn of(&self, tenant: TenantId, user: &str) -> Person {
        Person { tenant, ..person(self.memory.clone()) }.as_user(user)
    }
}

pub fn person(memory: MemoryClient) -> Person {
    let who = pb::Who {
        agent: AgentId::generate().to_string(),
        user: "ann".to_owned(),
        ..pb::Who::default()
    };
    Person { tenant: TenantId::generate(), who, memory }
}

/// Client of a service that knows this secret of a mesh.
pub fn client_of(url: &str, secret: &str) -> anyhow::Result<MemoryClient> {
    let mesh = holdfast_kit::config::Mesh {
        secret: secret.into(),
        ..holdfast_kit::config::Mesh::default()
    };
    Ok(MemoryClient::new(url, Mesh::new(Signer::new(&mesh)?, "gateway"))?)
}

pub fn client(url: &str) -> anyhow::Result<MemoryClient> {
    client_of(url, SECRET)
}

impl Person {
    /// Returns another user of the same tenant and agent.
    pub fn as_user(&self, user: &str) -> Self {
        Self { who: pb::Who { user: user.to_owned(), ..self.who.clone() }, ..self.clone() }
    }

    /// Returns the same user in a group.
    pub fn in_group(&self) -> Self {
        Self { who: pb::Who { group: true, ..self.who.clone() }, ..self.clone() }
    }

    /// Returns the same user as an administrator.
    pub fn as_admin(&self) -> Self {
        Self { who: pb::Who { everything: true, ..self.who.clone() }, ..self.clone() }
    }

    pub async fn put(&self, items: Vec<pb::NewItem>) -> Result<Vec<String>, MemoryCallError> {
        let request =
            pb::PutItemsRequest { who: self.me(), items, ..pb::PutItemsRequest::default() };
        let answer = self.memory.put_items(self.tenant, request).await?;
        Ok(answer.items.into_iter().map(|item| item.id).collect())
    }

    /// Stores a memory and returns its id.
    pub async fn tell(&self, text: &str) -> anyhow::Result<String> {
        self.put(vec![fact(text)]).await?.pop().context("one thing, one id")
    }

    pub async fn say(&self, session: &str, turns: &[(&str, &str)]) -> anyhow::Result<u32> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let turns = turns
            .iter()
            .map(|(author, text)| pb::Turn {
                r#ref: format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
                author: (*author).to_owned(),
                text: (*text).to_owned(),
                at: None,
            })
            .collect();
        let request = pb::AddTurnsRequest {
            who: self.me(),
            session: session.to_owned(),
            turns,
            group_safe: false,
            provenance: from(),
        };
        Ok(self.memory.add_turns(self.tenant, request).await?.added)
    }

    pub async fn index(
        &self,
        path: &str,
        text: &str,
    ) -> Result<pb::IndexDocumentResponse, MemoryCallError> {
        let request = pb::IndexDocumentRequest {
            who: self.me(),
            path: path.to_owned(),
            text: text.to_owned(),
            provenance: from(),
            ..pb::IndexDocumentRequest::default()
        };
        self.memory.index_document(self.tenant, request).await
    }

    pub async fn search(&self, query: &str) -> anyhow::Result<pb::SearchResponse> {
        self.search_in(query, pb::Filter::default()).await
    }

    pub async fn search_in(
        &self,
        query: &str,
        filter: pb::Filter,
    ) -> anyhow::Result<pb::SearchResponse> {
        let request = pb::SearchRequest {
            who: self.me(),
            query: query.to_owned(),
            k: 10,
            filter: Some(filter),
            ..pb::SearchRequest::default()
        };
        Ok(self.memory.search(self.tenant, request).await?)
    }

    /// Returns the texts of the hits, best first.
    pub async fn found(&self, query: &str) -> anyhow::Result<Vec<String>> {
        Ok(self.search(query).await?.hits.into_iter().map(|hit| hit.text).collect())
    }

    pub async fn status(&self) -> anyhow::Result<pb::GetStatusResponse> {
        let request = pb::GetStatusRequest { who: self.me() };
        Ok(self.memory.status(self.tenant, request).await?)
    }

    /// Waits until all units of the tenant are embedded.
    pub async fn embedded(&self) -> anyhow::Result<pb::GetStatusResponse> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let status = self.status().await?;
            if status.pending == 0 {
                return Ok(status);
            }
            if Instant::now() > until {
                bail!("{} units still wait", status.pending);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn me(&self) -> Option<pb::Who> {
        Some(self.who.clone())
    }
}

/// Default provenance.
pub fn from() -> Option<pb::Provenance> {
    Some(pb::Provenance {
        kind: pb::SourceKind::User.into(),
        name: "ann".into(),
        ..pb::Provenance::default()
    })
}

pub fn fact(text: &str) -> pb::NewItem {
    pb::NewItem {
        kind: pb::Kind::Memory.into(),
        r#type: "fact".into(),
        content: text.into(),
        provenance: from(),
        ..pb::NewItem::default()
    }
}
