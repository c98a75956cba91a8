//! What an agent is told to be, and how its model is reached.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use holdfast_directory::{Directory, ModelChoice, ProviderKind};
use holdfast_llm::{Model, Models, Provider};
use holdfast_types::{AgentId, AgentName, Fault as _, Kind, ModelId, TenantId};
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
    /// Tools that it may use; `None` is all.
    pub(crate) tools: Option<Vec<String>>,
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
    client: reqwest::Client,
    built_in: Models,
    ready: Mutex<HashMap<(TenantId, String), Ready>>,
    kept: Mutex<HashMap<(TenantId, AgentId), Kept>>,
}

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
    pub(crate) fn new(directory: Directory, built_in: Models) -> anyhow::Result<Self> {
        holdfast_kit::tls::install_crypto();
        let client = reqwest::Client::builder()
            .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .context("no https client can be built: are ca certificates installed?")?;
        Ok(Self { directory, client, built_in, ready: Mutex::default(), kept: Mutex::default() })
    }

    /// An agent and its model, as they are now or were a second ago.
    pub(crate) async fn find(&self, tenant: TenantId, agent: AgentId) -> Result<Found, Error> {
        let now = Instant::now();
        let kept = lock(&self.kept).get(&(tenant, agent)).cloned();
        if let Some((_, brief)) = kept.filter(|(at, _)| now.duration_since(*at) < KEPT) {
            return Ok(Found::Ready(brief));
        }
        let found = self.look_up(tenant, agent).await?;
        let mut kept = lock(&self.kept);
        match &found {
            Found::Ready(brief) => {
                if kept.len() >= MOST_KEPT {
                    kept.clear();
                }
                kept.insert((tenant, agent), (now, Arc::clone(brief)));
            }
            Found::NoAgent | Found::NoModel => {
                kept.remove(&(tenant, agent));
            }
        }
        Ok(found)
    }

    async fn look_up(&self, tenant: TenantId, agent: AgentId) -> Result<Found, Error> {
        let agent = match self.directory.agent_by_id(tenant, agent).await {
            Ok(agent) => agent,
            Err(error) if error.kind() == Kind::NotFound => return Ok(Found::NoAgent),
            Err(error) => return Err(failed(error)),
        };
        let choice = match self.directory.model(tenant, &agent).await {
            Ok(choice) => choice,
            Err(error) if is_for_the_tenant(error.kind()) => {
                warn!(error = &error as &dyn std::error::Error, "the agent's model cannot be used");
                return Ok(Found::NoModel);
            }
            Err(error) => return Err(failed(error)),
        };
        let model_id = choice.model.clone();
        let model = match self.model(tenant, choice) {
            Ok(model) => model,
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "the agent's model cannot be used");
                return Ok(Found::NoModel);
            }
        };
        let zone_name = agent.settings.time_zone;
        // A zone that this machine's database lacks; the directory checked that it is one.
        let zone = TimeZone::get(&zone_name).unwrap_or(TimeZone::UTC);
        Ok(Found::Ready(Arc::new(Brief {
            agent: agent.id,
            name: agent.name,
            instructions: agent.instructions,
            tools: agent.settings.tools,
            zone,
            zone_name,
            model_id,
            model,
        })))
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

fn failed(error: holdfast_directory::Error) -> Error {
    let kind = error.kind();
    Error::Agents(error.into(), kind)
}
