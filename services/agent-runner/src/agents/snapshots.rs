//! Agent snapshots: loaded from the directory and the workspace, and cached for a second.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use holdfast_agent::{
    bootstrap::{BootstrapFile, BootstrapName},
    prompt::{DailyNote, PromptMode},
};
use holdfast_directory::{
    AGENT_CACHE_TTL, Agent, AgentState, BehaviorSettings, Connection, Directory, ModelChoice,
    ModelSetup, Product, ProviderKind, RenewableTokens,
};
use holdfast_egress::Guard;
use holdfast_llm::{
    Alternatives, Catalogue, Model, ModelCard, Models, Provider, ThinkingForm, WorkloadIdentity,
    credentials::{Credential, Profile},
};
use holdfast_lock::Locks;
use holdfast_types::{
    AccountId, AgentId, AgentKind, AgentName, ContextOptions, DmScope, Fault as _,
    HitPointSettings, Kind, ModelId, PromptStrategy, Reactions, SelfImproveSettings, SessionKind,
    Target, TenantId, Thinking, TreePath,
};
use holdfast_workspace::{Revision, SkillHead, TurnFiles, Workspaces};
use jiff::{civil::Date, tz::TimeZone};
use secrecy::{ExposeSecret as _, SecretString};
use tracing::warn;

use crate::{
    agents::{
        behaviors::{AgentBehaviors, load_behaviors},
        budget::Ledger,
        fallback::{Chain, ChainModel},
        key_health::{HealthSubject, KeyHealth, platform_keys_owner},
        notes::{self, RecentNotes},
        skills::{AgentSkills, SkillLoader},
        token_renewal::{ClientSettings, CurrentToken, RenewableModel, TokenRenewer},
    },
    error::Error,
};

/// Providers whose clients are cached. When the cache is full, all of it is cleared.
const MAX_CACHED_PROVIDERS: usize = 2_000;

/// Age from which a snapshot in use is refreshed in the background, so that no turn waits for it.
const SNAPSHOT_REFRESH_AGE: Duration = Duration::from_millis(600);

/// Snapshots that are cached. When the cache is full, all of it is cleared.
const MAX_CACHED_SNAPSHOTS: usize = 10_000;

/// Files of an agent that are in prompts.
struct LoadedFiles {
    files: Vec<BootstrapFile>,
    outside_files: Vec<BootstrapName>,
    notes: RecentNotes,
    skills: Vec<SkillHead>,
}

/// The settings of an agent as one turn uses them.
#[derive(Debug, Clone)]
pub(crate) struct AgentSnapshot {
    pub(crate) agent: AgentId,
    pub(crate) name: AgentName,
    pub(crate) kind: AgentKind,
    pub(crate) state: AgentState,
    pub(crate) instructions: String,
    /// Bootstrap files with their current contents.
    pub(crate) files: Vec<BootstrapFile>,
    /// Those of them that may have text from outside.
    pub(crate) outside_files: Vec<BootstrapName>,
    /// Notes of the last days.
    pub(crate) notes: RecentNotes,
    /// Names of the tools that the agent may use; `None` means all.
    pub(crate) tools: Option<Vec<String>>,
    /// Connections that the agent may use, each in the conversations it is meant for.
    pub(crate) connections: Vec<Connection>,
    pub(crate) skills: Arc<AgentSkills>,
    pub(crate) context: ContextOptions,
    /// Thinking level that the agent is set to, also if its model cannot be told.
    pub(crate) thinking: Thinking,
    /// How often it reacts to messages, on channels with reactions.
    pub(crate) reactions: Reactions,
    /// Prompt of its heartbeats; `None` means the default.
    pub(crate) heartbeat_prompt: Option<String>,
    /// How direct messages are split into sessions.
    pub(crate) dm_scope: DmScope,
    /// Time limit for an approval decision.
    pub(crate) approval_timeout: Duration,
    pub(crate) zone: TimeZone,
    pub(crate) zone_name: String,
    pub(crate) model_id: ModelId,
    /// Fallback chain for requests that belong to no conversation.
    pub(crate) model: Arc<dyn Model>,
    /// Unique across agents. Changes with the agent's name, instructions or files.
    pub(crate) version: u64,
    /// Card of the first model of the chain.
    pub(crate) card: Arc<ModelCard>,
    /// Whether a provider for speech is set up.
    pub(crate) speaks: bool,
    /// Whether the tenant has a key of a search provider.
    pub(crate) has_search: bool,
    /// Models in the order they are tried, with their keys.
    pub(crate) chain: Arc<Chain>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) tenant: Arc<TenantFacts>,
    /// Set if the agent works by behaviours.
    pub(crate) behaviors: Option<AgentBehaviors>,
    pub(crate) behavior_settings: Option<BehaviorSettings>,
    /// Set if work costs the agent hit points.
    pub(crate) hit_points: Option<HitPointSettings>,
    /// Set if the agent looks after itself while nobody needs it.
    pub(crate) self_improve: Option<SelfImproveSettings>,
}

impl AgentSnapshot {
    /// Extent of the prompt in sessions of this kind (spec CTX-001, AGT-023).
    pub(crate) const fn prompt_mode(&self, kind: SessionKind) -> PromptMode {
        match (self.context.strategy, self.kind) {
            (PromptStrategy::None, _) => PromptMode::None,
            (_, AgentKind::Simple) => PromptMode::Simple,
            (PromptStrategy::Lite, AgentKind::Embedded) => PromptMode::Lite,
            (PromptStrategy::Full | PromptStrategy::Custom, AgentKind::Embedded) => {
                PromptMode::of(kind)
            }
        }
    }

    /// The agent's model alone, for housekeeping of front ends: without its prompt, memory and
    /// behaviours.
    pub(crate) fn for_housekeeping(&self) -> Self {
        let context =
            ContextOptions { strategy: PromptStrategy::None, ..ContextOptions::default() };
        Self { context, behaviors: None, ..self.clone() }
    }

    /// Thinking level where no message and no conversation sets one: the agent's, if its model can
    /// be told.
    pub(crate) fn default_thinking(&self) -> Thinking {
        match self.card.thinking.by == ThinkingForm::No {
            true => Thinking::Off,
            false => self.thinking,
        }
    }

    /// Whether the prompt contains memories in sessions of this kind.
    pub(crate) fn has_memory(&self, kind: SessionKind) -> bool {
        let mode = self.prompt_mode(kind);
        let usual = self.context.strategy != PromptStrategy::Lite
            && matches!(mode, PromptMode::Full | PromptMode::Simple);
        self.context.include_memory.unwrap_or(usual) && mode != PromptMode::None
    }

    /// Whether the prompt describes the runtime (spec CTX-002).
    pub(crate) fn includes_runtime(&self) -> bool {
        let usual =
            self.context.strategy != PromptStrategy::Lite && self.kind == AgentKind::Embedded;
        self.context.include_runtime.unwrap_or(usual)
    }
}

/// Facts of a tenant that prompts tell.
#[derive(Debug, Default)]
pub(crate) struct TenantFacts {
    pub(crate) product: Product,
    /// The tenant's own aliases of models, each with its `provider:model`.
    pub(crate) aliases: Vec<(String, String)>,
    /// Actions that each channel account supports.
    actions: BTreeMap<AccountId, &'static [&'static str]>,
}

impl TenantFacts {
    /// Actions that the account of a conversation supports; none if it was deleted.
    pub(crate) fn actions_at(&self, place: &Target) -> &'static [&'static str] {
        self.actions.get(&place.account).copied().unwrap_or_default()
    }
}

#[derive(Debug)]
pub(crate) enum AgentLookup {
    Ready(Arc<AgentSnapshot>),
    NoAgent,
    /// The agent's model, by this name, cannot be used as it is configured; `None` is the tenant's
    /// default.
    NoModel(Option<String>),
}

/// Agents and their models. Models of one provider share its connections.
pub(crate) struct Agents {
    health: Arc<KeyHealth>,
    renewals: Arc<TokenRenewer>,
    locks: Locks,
    directory: Directory,
    workspaces: Workspaces,
    shelves: SkillLoader,
    /// Paths of the bootstrap files.
    paths: Vec<TreePath>,
    /// Checks the addresses of tenants' providers.
    guard: Guard,
    built_in: Models,
    /// The cloud's credentials of this installation, for tenants that the operator named.
    identity: WorkloadIdentity,
    /// Time limit for an approval decision, unless the agent sets one.
    approval_timeout: Duration,
    provider_cache: Mutex<HashMap<(TenantId, String), CachedProvider>>,
    snapshot_cache: Mutex<HashMap<AgentKey, CachedSnapshot>>,
    /// Time of the last invalidation. Results of look-ups that began before it may be outdated and
    /// are not cached.
    last_invalidation: Mutex<Option<Instant>>,
    /// Snapshots that are being refreshed.
    refreshing: Mutex<HashSet<AgentKey>>,
    /// Source of snapshot versions.
    versions: AtomicU64,
}

/// Tenant, agent, and the model that replaces the agent's own.
pub(crate) type AgentKey = (TenantId, AgentId, Option<String>);

/// When a snapshot was loaded, and the snapshot.
type CachedSnapshot = (Instant, Arc<AgentSnapshot>);

/// A cached provider client with the settings it was built from.
struct CachedProvider {
    provider: Provider,
    among: Alternatives,
    models: Models,
}

impl Agents {
    /// `built_in` are providers that no tenant configures.
    pub(crate) fn new(
        directory: Directory,
        workspaces: Workspaces,
        shelves: SkillLoader,
        built_in: Models,
        locks: Locks,
        guard: Guard,
    ) -> anyhow::Result<Self> {
        let paths = BootstrapName::ALL.iter().map(|name| name.path().parse());
        let paths = paths.collect::<Result<Vec<TreePath>, _>>()?;
        Ok(Self {
            health: Arc::new(KeyHealth::new(locks.clone(), directory.clone())),
            renewals: Arc::new(TokenRenewer::new(directory.clone(), guard.clone())),
            locks,
            directory,
            workspaces,
            shelves,
            paths,
            guard,
            built_in,
            identity: WorkloadIdentity::default(),
            approval_timeout: Duration::from_secs(120),
            provider_cache: Mutex::default(),
            snapshot_cache: Mutex::default(),
            last_invalidation: Mutex::default(),
            refreshing: Mutex::default(),
            versions: AtomicU64::new(0),
        })
    }

    /// Sets the time limit for approval decisions of agents that have none of their own.
    #[must_use]
    pub(crate) fn with_approval_timeout(self, approval_timeout: Duration) -> Self {
        Self { approval_timeout, ..self }
    }

    /// Sets this installation's identity in the cloud.
    #[must_use]
    pub(crate) fn with_identity(self, identity: WorkloadIdentity) -> Self {
        Self { identity, ..self }
    }

    /// Returns an agent, at most a second old; `model` replaces its own.
    pub(crate) async fn find(
        &self,
        tenant: TenantId,
        agent: AgentId,
        model: Option<String>,
    ) -> Result<AgentLookup, Error> {
        let now = Instant::now();
        let which = (tenant, agent, model);
        let kept = lock(&self.snapshot_cache).get(&which).cloned();
        if let Some((at, snapshot)) = &kept
            && now.duration_since(*at) < AGENT_CACHE_TTL
        {
            return Ok(AgentLookup::Ready(Arc::clone(snapshot)));
        }
        let before = kept.map(|(_, snapshot)| snapshot);
        // A large future, which each caller would have within its own.
        let found = Box::pin(self.look_up(&which, before.as_deref())).await?;
        let mut kept = lock(&self.snapshot_cache);
        match &found {
            AgentLookup::Ready(_)
                if lock(&self.last_invalidation).is_some_and(|forgot| now <= forgot) => {}
            AgentLookup::Ready(snapshot) => {
                if kept.len() >= MAX_CACHED_SNAPSHOTS {
                    kept.clear();
                }
                kept.insert(which, (now, Arc::clone(snapshot)));
            }
            AgentLookup::NoAgent | AgentLookup::NoModel(_) => {
                kept.remove(&which);
            }
        }
        Ok(found)
    }

    /// Whether this agent should be refreshed before its snapshot expires. Returns `true` to one
    /// caller only, who must then refresh it.
    pub(crate) fn should_refresh(&self, which: &AgentKey) -> bool {
        let at = lock(&self.snapshot_cache).get(which).map(|(at, _)| *at);
        at.is_some_and(|at| (SNAPSHOT_REFRESH_AGE..AGENT_CACHE_TTL).contains(&at.elapsed()))
            && lock(&self.refreshing).insert(which.clone())
    }

    /// Reloads an agent for the following turns.
    pub(crate) async fn refresh_snapshot(&self, which: AgentKey) {
        let now = Instant::now();
        let before = lock(&self.snapshot_cache).get(&which).cloned();
        if let Some((at, before)) = before {
            // A failure is ignored here: the next turn that needs the agent looks it up and reports
            // it.
            let found = Box::pin(self.look_up(&which, Some(&before))).await;
            if let (Ok(AgentLookup::Ready(snapshot)), Some(kept)) =
                (found, lock(&self.snapshot_cache).get_mut(&which).filter(|kept| kept.0 == at))
            {
                *kept = (now, snapshot);
            }
        }
        lock(&self.refreshing).remove(&which);
    }

    /// Returns names and texts of the given skills of an agent.
    pub(crate) async fn skill_texts(
        &self,
        of: (TenantId, AgentId),
        skills: &AgentSkills,
        names: &[String],
    ) -> Result<Vec<(String, String)>, Error> {
        self.shelves.texts(of, skills, names).await
    }

    /// Drops an agent's cached snapshots after a change.
    pub(crate) fn invalidate(&self, tenant: TenantId, agent: AgentId) {
        let mut kept = lock(&self.snapshot_cache);
        kept.retain(|which, _| (which.0, which.1) != (tenant, agent));
        *lock(&self.last_invalidation) = Some(Instant::now());
    }

    async fn look_up(
        &self,
        which: &AgentKey,
        before: Option<&AgentSnapshot>,
    ) -> Result<AgentLookup, Error> {
        let (tenant, agent, instead) = (which.0, which.1, &which.2);
        let agent = match self.directory.agents().by_id(tenant, agent).await {
            Ok(agent) => Agent { model: instead.clone().or(agent.model), ..agent },
            Err(error) if error.kind() == Kind::NotFound => return Ok(AgentLookup::NoAgent),
            Err(error) => return Err(Error::directory(error)),
        };
        let Some(setup) = self.load_setup(tenant, &agent).await? else {
            return Ok(AgentLookup::NoModel(agent.model));
        };
        let ModelSetup { choices, catalogue, budgets, limits, .. } = setup;
        let aliases = setup.aliases.into_iter().map(|(alias, model)| (alias, model.to_string()));
        let tenant_facts = TenantFacts {
            product: setup.product,
            aliases: aliases.collect(),
            actions: setup.actions,
        };
        let platform = platform_models(&choices);
        let chain = match self.build_chain(tenant, choices, &catalogue) {
            Ok(chain) => Arc::new(chain),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "the agent's model cannot be used");
                return Ok(AgentLookup::NoModel(agent.model));
            }
        };
        let Some(first) = chain.models.first() else {
            return Ok(AgentLookup::NoModel(agent.model));
        };
        let (model_id, card) = (first.id.clone(), Arc::clone(&first.card));
        let model: Arc<dyn Model> = Arc::new(chain.for_conversation(None));
        let ledger = Ledger::new(catalogue, budgets, limits).with_platform_models(platform);
        let known = before.and_then(|before| before.behaviors.as_ref());
        let behaviors = load_behaviors(&self.directory, tenant, &agent, known).await?;
        let zone_name = agent.settings.time_zone;
        // The directory validated the zone; this machine's database may lack it.
        let zone = TimeZone::get(&zone_name).unwrap_or(TimeZone::UTC);
        let (loaded, connections) = self.load_content(tenant, agent.id, &chain).await?;
        let LoadedFiles { files, outside_files, notes, skills } = loaded;
        let known = before.map(|before| &before.skills);
        let skills = self.shelves.load(tenant, skills, known).await?;
        let own = agent.settings.approval_timeout_s.map(u64::from).map(Duration::from_secs);
        let version = self.version(before, &agent.name, &agent.instructions, &files);
        Ok(AgentLookup::Ready(Arc::new(AgentSnapshot {
            agent: agent.id,
            name: agent.name,
            kind: agent.settings.kind,
            state: agent.state,
            instructions: agent.instructions,
            files,
            outside_files,
            notes,
            version,
            tools: agent.settings.tools,
            connections,
            skills,
            context: agent.settings.context,
            thinking: agent.settings.thinking,
            reactions: agent.settings.reactions,
            heartbeat_prompt: agent.settings.heartbeat.prompt,
            dm_scope: agent.settings.dm_scope,
            approval_timeout: own.unwrap_or(self.approval_timeout),
            zone,
            zone_name,
            model_id,
            model,
            card,
            speaks: setup.has_speech,
            has_search: setup.has_search,
            chain,
            ledger: Arc::new(ledger),
            tenant: Arc::new(tenant_facts),
            behaviors,
            behavior_settings: agent.settings.behaviors,
            hit_points: agent.settings.hit_points,
            self_improve: agent.settings.self_improve,
        })))
    }

    /// Loads an agent's files and connections. Cooldowns recorded by other runners are fetched in
    /// parallel with them.
    async fn load_content(
        &self,
        tenant: TenantId,
        agent: AgentId,
        chain: &Chain,
    ) -> Result<(LoadedFiles, Vec<Connection>), Error> {
        let connections = async {
            let found = self.directory.connections().of_agent(tenant, agent).await;
            found.map_err(Error::directory)
        };
        let (files, connections, ()) =
            tokio::join!(self.load_files(tenant, agent), connections, self.refresh_health(chain));
        Ok((files?, connections?))
    }

    /// Version of the texts from which the stable part of a prompt is written.
    fn version(
        &self,
        before: Option<&AgentSnapshot>,
        name: &AgentName,
        instructions: &str,
        files: &[BootstrapFile],
    ) -> u64 {
        let is_same = |before: &&AgentSnapshot| {
            before.name == *name && before.instructions == instructions && before.files == files
        };
        match before.filter(is_same) {
            Some(before) => before.version,
            None => self.versions.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Loads the models of an agent; `None` if its own cannot be used.
    async fn load_setup(
        &self,
        tenant: TenantId,
        agent: &Agent,
    ) -> Result<Option<ModelSetup>, Error> {
        match self.directory.models().setup(tenant, agent).await {
            Ok(setup) => Ok(Some(setup)),
            Err(error) if is_fixable_by_tenant(error.kind()) => {
                warn!(error = &error as &dyn std::error::Error, "the agent's model cannot be used");
                Ok(None)
            }
            Err(error) => Err(Error::directory(error)),
        }
    }

    /// Loads an agent's bootstrap files, the notes of the last days and the headers of its skills.
    /// A new agent gets its first files here.
    async fn load_files(&self, tenant: TenantId, agent: AgentId) -> Result<LoadedFiles, Error> {
        let noted: Vec<(Date, TreePath)> = notes::recent_paths(jiff::Timestamp::now())
            .into_iter()
            .filter_map(|(day, path)| Some((day, path.parse().ok()?)))
            .collect();
        let note_paths = noted.iter().map(|(_, path)| path);
        let paths: Vec<TreePath> = self.paths.iter().chain(note_paths).cloned().collect();
        let mut briefing = self.workspaces.turn_files(tenant, agent, &paths).await?;
        if briefing.files.is_empty() {
            if self.workspaces.head(tenant, agent).await? == Revision::EMPTY {
                self.workspaces.seed(tenant, agent).await?;
            }
            // Read again also if somebody else has just seeded the workspace: the first sessions of
            // a new agent start at the same time.
            briefing = self.workspaces.turn_files(tenant, agent, &paths).await?;
        }
        let TurnFiles { files: found, skills } = briefing;
        let file = |name: BootstrapName| {
            let text = found.iter().find(|(path, _)| path.as_str() == name.path());
            // A file that is not text counts as missing.
            let content = text.and_then(|(_, file)| file.text().map(str::to_owned));
            BootstrapFile { name, content }
        };
        let mut recent = RecentNotes::default();
        for (day, path) in noted {
            let Some(file) = found.get(&path) else { continue };
            let Some(text) = file.text() else { continue };
            recent.add(day, DailyNote { path: path.to_string(), text: text.to_owned() });
            if file.outside {
                recent.mark_outside(day);
            }
        }
        let is_outside = |name: &BootstrapName| {
            found.iter().any(|(path, file)| path.as_str() == name.path() && file.outside)
        };
        Ok(LoadedFiles {
            files: BootstrapName::ALL.map(file).to_vec(),
            outside_files: BootstrapName::ALL.into_iter().filter(is_outside).collect(),
            notes: recent,
            skills,
        })
    }

    pub(crate) const fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Fetches the cooldowns that other runners recorded, if there is more than one key or model to
    /// choose from.
    async fn refresh_health(&self, chain: &Chain) {
        if !chain.has_alternatives() {
            return;
        }
        let mut all = Vec::new();
        for link in &chain.models {
            for profile in &link.profiles {
                let (shared, of_tenant) = link.health_subjects(chain.tenant, &profile.id);
                all.push(shared);
                all.extend(of_tenant);
            }
            if chain.models.len() > 1 {
                all.push((chain.tenant, HealthSubject::Model(link.id.to_string())));
            }
        }
        self.health.refresh(all).await;
    }

    /// Builds the fallback chain. A fallback that cannot be used is left out; an error of the first
    /// model is returned.
    fn build_chain(
        &self,
        tenant: TenantId,
        choices: Vec<ModelChoice>,
        catalogue: &Catalogue,
    ) -> Result<Chain, holdfast_llm::Error> {
        let alone = choices.len() == 1 && choices.iter().all(|one| one.keys.profiles.len() < 2);
        let among = if alone { Alternatives::Absent } else { Alternatives::Available };
        let mut links: Vec<ChainModel> = Vec::new();
        for choice in choices {
            if links.iter().any(|link| link.id == choice.model) {
                continue;
            }
            match self.build_link(tenant, choice, catalogue, among) {
                Ok(link) => links.push(link),
                Err(error) if links.is_empty() => return Err(error),
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "a fallback is left out");
                }
            }
        }
        Ok(Chain { tenant, models: links, health: Arc::clone(&self.health) })
    }

    /// Builds a model with a client for each of its provider's keys.
    fn build_link(
        &self,
        tenant: TenantId,
        choice: ModelChoice,
        catalogue: &Catalogue,
        among: Alternatives,
    ) -> Result<ChainModel, holdfast_llm::Error> {
        let ModelChoice { model: id, kind, base_url, keys, extras, is_platform, .. } = choice;
        let key_owner = if is_platform { platform_keys_owner() } else { tenant };
        let card = Arc::new(catalogue.card(&id).clone());
        for (key, remembered) in &keys.stats {
            let of = HealthSubject::Key(id.provider().to_owned(), key.clone());
            self.health.store_if_newer(key_owner, of, remembered);
        }
        if kind == ProviderKind::Demo {
            let models = [(String::new(), self.built_in.get(&id)?)].into();
            let (profiles, order) = (Vec::new(), None);
            let strict = false;
            return Ok(ChainModel { id, card, key_owner, profiles, order, strict, models });
        }
        let mut models = BTreeMap::new();
        let keyless = Provider {
            kind: kind.protocol(),
            base_url: Some(base_url),
            api_key: None,
            is_oauth: false,
            extras,
            identity: None,
        };
        for Profile { id: key, credential, .. } in &keys.profiles {
            let (api_key, is_oauth, expires) = match credential {
                Credential::ApiKey { key } => (key, false, None),
                Credential::Token { token, .. } => (token, false, None),
                Credential::OAuth { access, expires, .. } => (access, true, *expires),
            };
            let api_key = Some(api_key.clone());
            let provider = Provider { api_key, is_oauth, ..keyless.clone() };
            let mut model = self.provider_model((tenant, &id, key), provider.clone(), among)?;
            if let Some(version) = keys.versions.get(key) {
                let (provider_name, name) = (id.provider().to_owned(), key.clone());
                let which = RenewableTokens { tenant, provider: provider_name, name };
                let held = CurrentToken { version: *version, expires, model };
                let make =
                    ClientSettings { id: id.clone(), provider, among, guard: self.guard.clone() };
                let renewals = Arc::clone(&self.renewals);
                model = Arc::new(RenewableModel::new(renewals, which, held, make));
            }
            models.insert(key.clone(), model);
        }
        if models.is_empty() {
            let identity = self.identity.of_tenant(tenant);
            let keyless = Provider { identity, ..keyless };
            models.insert(String::new(), self.provider_model((tenant, &id, ""), keyless, among)?);
        }
        let (order, strict) = (keys.order, keys.strict);
        Ok(ChainModel { id, card, key_owner, profiles: keys.profiles, order, strict, models })
    }

    /// Returns the client of a provider and key, reusing the cached one if no setting changed.
    fn provider_model(
        &self,
        (tenant, id, key): (TenantId, &ModelId, &str),
        provider: Provider,
        among: Alternatives,
    ) -> Result<Arc<dyn Model>, holdfast_llm::Error> {
        let name = (tenant, format!("{}/{key}", id.provider()));
        let mut ready = lock(&self.provider_cache);
        let same = |ready: &&CachedProvider| {
            let key =
                |key: &Option<SecretString>| key.as_ref().map(|key| key.expose_secret().to_owned());
            ready.among == among
                && ready.provider.is_oauth == provider.is_oauth
                && ready.provider.kind == provider.kind
                && ready.provider.base_url == provider.base_url
                && ready.provider.extras == provider.extras
                && key(&ready.provider.api_key) == key(&provider.api_key)
        };
        if let Some(found) = ready.get(&name).filter(same) {
            return found.models.get(id);
        }
        let models = Models::demo().with_provider_and_alternatives(
            id.provider(),
            &self.guard,
            &provider,
            among,
        )?;
        let answer = models.get(id);
        if ready.len() >= MAX_CACHED_PROVIDERS {
            ready.clear();
        }
        ready.insert(name, CachedProvider { provider, among, models });
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

/// The models that are asked with keys of the installation.
fn platform_models(choices: &[ModelChoice]) -> Vec<ModelId> {
    let of_platform = choices.iter().filter(|choice| choice.is_platform);
    of_platform.map(|choice| choice.model.clone()).collect()
}

/// Whether the tenant can fix errors of this kind.
const fn is_fixable_by_tenant(kind: Kind) -> bool {
    match kind {
        Kind::Invalid | Kind::NotFound | Kind::Forbidden | Kind::Conflict => true,
        Kind::Unauthenticated | Kind::Exhausted | Kind::Unavailable | Kind::Internal => false,
    }
}
