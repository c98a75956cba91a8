//! What an agent is told to be, and how its model is reached.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use holdfast_agent::bootstrap::{BootstrapFile, BootstrapName};
use holdfast_directory::{Agent, Directory, ModelChoice, ProviderKind};
use holdfast_llm::{Model, Models, Provider};
use holdfast_types::{AgentId, AgentName, DmScope, Fault as _, Kind, ModelId, TenantId, TreePath};
use holdfast_workspace::{Revision, Workspaces};
use jiff::tz::TimeZone;
use secrecy::{ExposeSecret as _, SecretString};
use tracing::warn;

use crate::error::Error;

/// How long a connection to a provider may take.
const CONNECT: Duration = Duration::from_secs(5);

/// The most providers whose models are kept ready; beyond them all are made anew.
const MOST_MODELS: usize = 2_000;

/// For how long an agent is believed to be what it was: a change counts after so long.
const KEPT: Duration = Duration::from_secs(1);

/// The most agents that are kept.
const MOST_KEPT: usize = 10_000;

/// What a turn needs to know of its agent.
#[derive(Debug, Clone)]
pub(crate) struct Brief {
    pub(crate) agent: AgentId,
    pub(crate) name: AgentName,
    pub(crate) instructions: String,
    /// The files that make it what it is, as they are now.
    pub(crate) files: Vec<BootstrapFile>,
    /// Tools that it may use; `None` is all.
    pub(crate) tools: Option<Vec<String>>,
    /// How finely its direct conversations are told apart.
    pub(crate) dm_scope: DmScope,
    /// How long a person's word on a call is waited for.
    pub(crate) approval_timeout: Duration,
    pub(crate) zone: TimeZone,
    pub(crate) zone_name: String,
    pub(crate) model_id: ModelId,
    pub(crate) model: Arc<dyn Model>,
}

/// What came of looking for an agent.
#[derive(Debug)]
pub(crate) enum Found {
    /// It can think.
    Ready(Arc<Brief>),
    /// There is no such agent any more.
    NoAgent,
    /// Its model cannot be used as it is set up.
    NoModel,
}

/// Agents and their models. The models of one provider share its connections.
pub(crate) struct Agents {
    directory: Directory,
    workspaces: Workspaces,
    /// Where the files are that make an agent what it is.
    paths: Vec<TreePath>,
    client: reqwest::Client,
    built_in: Models,
    /// How long a person's word is waited for, unless the agent says otherwise.
    approval_timeout: Duration,
    ready: Mutex<HashMap<(TenantId, String), Ready>>,
    kept: Mutex<HashMap<Which, Kept>>,
}

/// Whose agent, which, and the model that it takes instead of its own.
type Which = (TenantId, AgentId, Option<String>);

/// An agent as it was at a moment.
type Kept = (Instant, Arc<Brief>);

/// A provider's model, and what it was made from.
struct Ready {
    kind: holdfast_llm::ProviderKind,
    base_url: String,
    api_key: Option<SecretString>,
    models: Models,
}

impl Agents {
    /// Agents as the directory knows them; `built_in` are providers that no tenant sets up.
    pub(crate) fn new(
        directory: Directory,
        workspaces: Workspaces,
        built_in: Models,
    ) -> anyhow::Result<Self> {
        holdfast_kit::tls::install_crypto();
        let client = reqwest::Client::builder()
            .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .context("no https client can be built: are ca certificates installed?")?;
        let paths = BootstrapName::ALL.iter().map(|name| name.path().parse());
        let paths = paths.collect::<Result<Vec<TreePath>, _>>()?;
        Ok(Self {
            directory,
            workspaces,
            paths,
            client,
            built_in,
            approval_timeout: Duration::from_secs(120),
            ready: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    /// The same, waiting so long for a person's word where an agent does not say otherwise.
    #[must_use]
    pub(crate) fn with_approval_timeout(self, approval_timeout: Duration) -> Self {
        Self { approval_timeout, ..self }
    }

    /// An agent and its model, as they are now or were a second ago; `model` goes before its own.
    pub(crate) async fn find(
        &self,
        tenant: TenantId,
        agent: AgentId,
        model: Option<String>,
    ) -> Result<Found, Error> {
        let now = Instant::now();
        let which = (tenant, agent, model);
        let kept = lock(&self.kept).get(&which).cloned();
        if let Some((_, brief)) = kept.filter(|(at, _)| now.duration_since(*at) < KEPT) {
            return Ok(Found::Ready(brief));
        }
        let found = self.look_up(&which).await?;
        let mut kept = lock(&self.kept);
        match &found {
            Found::Ready(brief) => {
                if kept.len() >= MOST_KEPT {
                    kept.clear();
                }
                kept.insert(which, (now, Arc::clone(brief)));
            }
            Found::NoAgent | Found::NoModel => {
                kept.remove(&which);
            }
        }
        Ok(found)
    }

    async fn look_up(&self, which: &Which) -> Result<Found, Error> {
        let (tenant, agent, instead) = (which.0, which.1, &which.2);
        let agent = match self.directory.agent_by_id(tenant, agent).await {
            Ok(agent) => Agent { model: instead.clone().or(agent.model), ..agent },
            Err(error) if error.kind() == Kind::NotFound => return Ok(Found::NoAgent),
            Err(error) => return Err(Error::directory(error)),
        };
        let choice = match self.directory.model(tenant, &agent).await {
            Ok(choice) => choice,
            Err(error) if is_for_the_tenant(error.kind()) => {
                warn!(error = &error as &dyn std::error::Error, "the agent's model cannot be used");
                return Ok(Found::NoModel);
            }
            Err(error) => return Err(Error::directory(error)),
        };
        let model_id = choice.model.clone();
        let model = match self.model(tenant, choice) {
            Ok(model) => model,
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "the agent's model cannot be used");
                return Ok(Found::NoModel);
            }
        };
        let files = self.files(tenant, agent.id).await?;
        let own = agent.settings.approval_timeout_s.map(u64::from).map(Duration::from_secs);
        let zone_name = agent.settings.time_zone;
        // A zone that this machine's database lacks; the directory checked that it is one.
        let zone = TimeZone::get(&zone_name).unwrap_or(TimeZone::UTC);
        Ok(Found::Ready(Arc::new(Brief {
            agent: agent.id,
            name: agent.name,
            instructions: agent.instructions,
            files,
            tools: agent.settings.tools,
            dm_scope: agent.settings.dm_scope,
            approval_timeout: own.unwrap_or(self.approval_timeout),
            zone,
            zone_name,
            model_id,
            model,
        })))
    }

    /// The files that make an agent what it is. A new agent gets its first ones here.
    async fn files(&self, tenant: TenantId, agent: AgentId) -> Result<Vec<BootstrapFile>, Error> {
        let mut found = self.workspaces.read_many(tenant, agent, &self.paths).await?;
        if found.is_empty() && self.workspaces.head(tenant, agent).await? == Revision::EMPTY {
            self.workspaces.seed(tenant, agent).await?;
            found = self.workspaces.read_many(tenant, agent, &self.paths).await?;
        }
        let file = |name: BootstrapName| {
            let text = found.iter().find(|(path, _)| path.as_str() == name.path());
            // What is no text is as good as not there, for a prompt.
            let content = text.and_then(|(_, file)| file.text().map(str::to_owned));
            BootstrapFile { name, content }
        };
        Ok(BootstrapName::ALL.map(file).to_vec())
    }

    fn model(
        &self,
        tenant: TenantId,
        choice: ModelChoice,
    ) -> Result<Arc<dyn Model>, holdfast_llm::Error> {
        let ModelChoice { model, kind, base_url, api_key } = choice;
        let kind = match kind {
            ProviderKind::Demo => return self.built_in.get(&model),
            ProviderKind::OpenAi => holdfast_llm::ProviderKind::OpenAi,
            ProviderKind::Responses => holdfast_llm::ProviderKind::Responses,
            ProviderKind::Anthropic => holdfast_llm::ProviderKind::Anthropic,
            ProviderKind::Gemini => holdfast_llm::ProviderKind::Gemini,
            ProviderKind::Ollama => holdfast_llm::ProviderKind::Ollama,
        };
        let name = (tenant, model.provider().to_owned());
        let mut ready = lock(&self.ready);
        let same = |ready: &&Ready| {
            let key =
                |key: &Option<SecretString>| key.as_ref().map(|key| key.expose_secret().to_owned());
            ready.kind == kind && ready.base_url == base_url && key(&ready.api_key) == key(&api_key)
        };
        if let Some(found) = ready.get(&name).filter(same) {
            return found.models.get(&model);
        }
        let provider =
            Provider { kind, base_url: Some(base_url.clone()), api_key: api_key.clone() };
        let models =
            Models::new([])?.with_provider(model.provider(), self.client.clone(), &provider)?;
        let answer = models.get(&model);
        if ready.len() >= MOST_MODELS {
            ready.clear();
        }
        ready.insert(name, Ready { kind, base_url, api_key, models });
        answer
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agents").field("built_in", &self.built_in).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it is the tenant who can do something about it.
const fn is_for_the_tenant(kind: Kind) -> bool {
    match kind {
        Kind::Invalid | Kind::NotFound | Kind::Forbidden | Kind::Conflict => true,
        Kind::Unauthenticated | Kind::Exhausted | Kind::Unavailable | Kind::Internal => false,
    }
}
