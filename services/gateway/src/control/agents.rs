//! The service `Agents`.

pub mod behaviors;
mod channel_options;
pub mod proposals;
pub mod settings;
mod state;
mod templates;

use std::collections::BTreeMap;

use holdfast_directory::{
    Agent, AgentSettings, AgentState, BaseVersion, BehaviorSettings, NewAgent,
};
use holdfast_proto::gateway::v1::{
    self as pb, CreateAgentRequest, CreateAgentResponse, DeleteAgentRequest, DeleteAgentResponse,
    GetAgentRequest, GetAgentResponse, ListAgentTemplatesRequest, ListAgentTemplatesResponse,
    ListAgentsRequest, ListAgentsResponse, SetAgentStateRequest, SetAgentStateResponse,
    UpdateAgentRequest, UpdateAgentResponse, agents_server::Agents as Service,
};
use holdfast_types::{AgentName, ContextOptions, RecommendSkills, SelfImproveSettings, TenantId};
use tonic::{Request, Response, Status};

use self::state::AgentFacts;
use super::{
    State, actor, heartbeats, invalid, non_empty, parse_word_or_default, policies::list_warnings,
    required, timestamp, word_of, work::economy,
};
use crate::permissions::rights;
use crate::{Error, audit};

/// Implements `holdfast.gateway.v1.Agents`.
#[derive(Debug)]
pub struct Agents(pub State);

#[tonic::async_trait]
impl Service for Agents {
    async fn list_agents(
        &self,
        request: Request<ListAgentsRequest>,
    ) -> Result<Response<ListAgentsResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let agents = self.0.directory.agents().list(caller.tenant).await.map_err(Error::from)?;

        let facts = AgentFacts::load(&self.0, caller.tenant).await?;
        let show = match rights::reads_only_own(&caller) {
            Some(_) => for_members,
            None => std::convert::identity,
        };
        let agents = agents.into_iter().map(|agent| show(with_state(agent, &facts))).collect();
        Ok(Response::new(ListAgentsResponse { agents }))
    }

    async fn get_agent(
        &self,
        request: Request<GetAgentRequest>,
    ) -> Result<Response<GetAgentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let agent = self.0.directory.agents().get(caller.tenant, &request.agent).await;

        let agent = self.shown(caller.tenant, agent.map_err(Error::from)?).await?;
        Ok(Response::new(GetAgentResponse { agent }))
    }

    async fn list_agent_templates(
        &self,
        request: Request<ListAgentTemplatesRequest>,
    ) -> Result<Response<ListAgentTemplatesResponse>, Status> {
        let (_, ListAgentTemplatesRequest {}) = holdfast_grpc::caller(request)?;
        Ok(Response::new(ListAgentTemplatesResponse { templates: templates::all() }))
    }

    async fn create_agent(
        &self,
        request: Request<CreateAgentRequest>,
    ) -> Result<Response<CreateAgentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let new = new_agent(required("agent", request.agent)?)?;

        check_models(&self.0, caller.tenant, &new, None).await?;

        let agent = self.0.directory.agents().create(caller.tenant, actor(&caller), new).await;

        let agent = agent.map_err(Error::from)?;
        let warnings = tool_warnings(&self.0, &agent.settings).await?;
        let agent = self.shown(caller.tenant, agent).await?;
        Ok(Response::new(CreateAgentResponse { agent, warnings }))
    }

    async fn update_agent(
        &self,
        request: Request<UpdateAgentRequest>,
    ) -> Result<Response<UpdateAgentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = required("agent", request.agent)?;
        let found_by = non_empty(agent.id.clone()).unwrap_or_else(|| agent.name.clone());
        let new = new_agent(agent)?;
        let before = self.0.directory.agents().get(caller.tenant, &found_by).await;
        check_models(&self.0, caller.tenant, &new, Some(&before.map_err(Error::from)?)).await?;

        let by = actor(&caller);
        let agents = self.0.directory.agents();
        let agent = match request.base_version.map(BaseVersion::Definition) {
            Some(base) => agents.update_version(caller.tenant, by, &found_by, (base, new)).await,
            None => agents.update(caller.tenant, by, &found_by, new).await,
        };

        let agent = agent.map_err(Error::from)?;
        let warnings = tool_warnings(&self.0, &agent.settings).await?;
        let agent = self.shown(caller.tenant, agent).await?;
        Ok(Response::new(UpdateAgentResponse { agent, warnings }))
    }

    async fn set_agent_state(
        &self,
        request: Request<SetAgentStateRequest>,
    ) -> Result<Response<SetAgentStateResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let wanted: AgentState = request.state.parse().map_err(Error::Directory)?;

        let by = (caller.tenant, actor(&caller));
        let agent = state::set_state(&self.0, by, &request.agent, wanted).await?;

        let agent = self.shown(caller.tenant, agent).await?;
        Ok(Response::new(SetAgentStateResponse { agent }))
    }

    async fn delete_agent(
        &self,
        request: Request<DeleteAgentRequest>,
    ) -> Result<Response<DeleteAgentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);

        let (directory, tenant) = (&self.0.directory, caller.tenant);
        let agent = directory.agents().get(tenant, &request.agent).await.map_err(Error::from)?;
        let deleted = directory.agents().delete(tenant, actor(&caller), &request.agent).await;

        deleted.map_err(Error::from)?;
        self.0.workspaces.delete_tree(tenant, agent.id).await.map_err(Error::from)?;
        self.0.jobs.delete_heartbeat(tenant, agent.id).await.map_err(Error::from)?;
        Ok(Response::new(DeleteAgentResponse {}))
    }
}

impl Agents {
    /// The agent with its state.
    async fn shown(&self, tenant: TenantId, agent: Agent) -> Result<Option<pb::Agent>, Error> {
        let facts = AgentFacts::load(&self.0, tenant).await?;
        Ok(Some(with_state(agent, &facts)))
    }
}

/// Checks the models that an agent is given now. Those that it has already are not checked: their
/// provider may have been removed, and other fields must still be changeable.
async fn check_models(
    state: &State,
    tenant: TenantId,
    new: &NewAgent,
    before: Option<&Agent>,
) -> Result<(), Error> {
    let had = |name: &str| {
        before.is_some_and(|agent| {
            agent.model.as_deref() == Some(name)
                || agent.settings.fallbacks.iter().any(|fallback| fallback == name)
                || agent.settings.heartbeat.model.as_deref() == Some(name)
        })
    };
    let names =
        new.model.iter().chain(&new.settings.fallbacks).chain(&new.settings.heartbeat.model);
    let names: Vec<&str> = names.map(String::as_str).filter(|name| !had(name)).collect();
    if names.is_empty() {
        return Ok(());
    }
    Ok(state.directory.models().check_names(tenant, names).await?)
}

/// Names the entries of an agent's lists that cover no tool.
async fn tool_warnings(state: &State, settings: &AgentSettings) -> Result<Vec<String>, Error> {
    let own = settings.tools.iter().map(|tools| ("tools".to_owned(), tools));
    let bundles = settings.bundles.iter().map(|(name, tools)| (format!("bundles.{name}"), tools));
    let mut warnings = Vec::new();
    for (at, tools) in own.chain(bundles) {
        warnings.extend(list_warnings(state, &at, tools).await?);
    }
    Ok(warnings)
}

fn with_state(agent: Agent, facts: &AgentFacts) -> pb::Agent {
    pb::Agent { state: facts.state_of(&agent).to_owned(), ..agent_of(agent) }
}

/// Agent as members see it: its name and state, without its settings.
fn for_members(agent: pb::Agent) -> pb::Agent {
    let pb::Agent { id, name, description, is_default, state, .. } = agent;
    pb::Agent { id, name, description, is_default, state, ..pb::Agent::default() }
}

/// Converts an agent, without its state.
fn agent_of(agent: Agent) -> pb::Agent {
    let settings = agent.settings;
    pb::Agent {
        id: agent.id.to_string(),
        name: agent.name.to_string(),
        description: agent.description,
        instructions: agent.instructions,
        model: agent.model.unwrap_or_default(),
        is_default: agent.is_default,
        queue_mode: word_of(&settings.queue_mode),
        dm_scope: word_of(&settings.dm_scope),
        group_scope: word_of(&settings.group_scope),
        debounce_ms: settings.debounce_ms,
        time_zone: settings.time_zone,
        no_tools: settings.tools.as_ref().is_some_and(Vec::is_empty),
        tools: settings.tools.unwrap_or_default(),
        spawns: settings.spawns,
        fallbacks: settings.fallbacks,
        thinking: word_of(&settings.thinking),
        context: Some(context_of(settings.context)),
        bundles: settings
            .bundles
            .into_iter()
            .map(|(name, tools)| pb::Bundle { name, tools })
            .collect(),
        approval_timeout_s: settings.approval_timeout_s.unwrap_or_default(),
        heartbeat: Some(heartbeats::settings_of(settings.heartbeat)),
        kind: word_of(&settings.kind),
        reactions: word_of(&settings.reactions),
        channels: channel_options::to_proto(settings.channels),
        behaviors: settings.behaviors.map(behavior_settings_of),
        hit_points: settings.hit_points.map(economy::settings_to_proto),
        self_improve: settings.self_improve.map(self_improve_of),
        state: String::new(),
        did: agent.id.did(),
        version: agent.definition_version,
        created_at: Some(timestamp(agent.created_at)),
        updated_at: Some(timestamp(agent.updated_at)),
    }
}

/// Converts an agent. Empty and 0 mean the default; an empty list of tools means all tools, unless
/// `no_tools` is set.
fn new_agent(agent: pb::Agent) -> Result<NewAgent, Error> {
    let usual = AgentSettings::default();
    let settings = AgentSettings {
        queue_mode: match agent.queue_mode.as_str() {
            "" => usual.queue_mode,
            word => channel_options::queue_mode("queue_mode", word)?,
        },
        dm_scope: parse_word_or_default(
            "dm_scope",
            &agent.dm_scope,
            "main, per-peer, per-channel-peer or per-account-channel-peer",
        )?,
        group_scope: parse_word_or_default(
            "group_scope",
            &agent.group_scope,
            "group or group-user",
        )?,
        debounce_ms: match agent.debounce_ms {
            0 => usual.debounce_ms,
            given => given,
        },
        time_zone: non_empty(agent.time_zone).unwrap_or(usual.time_zone),
        tools: match (agent.tools.is_empty(), agent.no_tools) {
            (true, true) => Some(Vec::new()),
            (true, false) => None,
            (false, false) => Some(agent.tools),
            (false, true) => {
                return Err(invalid("give `tools` or `no_tools`, and not both".to_owned()));
            }
        },
        spawns: agent.spawns,
        fallbacks: agent.fallbacks,
        thinking: parse_word_or_default("thinking", &agent.thinking, "off, low, medium or high")?,
        context: context(agent.context.unwrap_or_default())?,
        bundles: bundles(agent.bundles)?,
        approval_timeout_s: Some(agent.approval_timeout_s).filter(|given| *given > 0),
        heartbeat: heartbeats::settings(agent.heartbeat)?,
        kind: parse_word_or_default("kind", &agent.kind, "embedded or simple")?,
        reactions: parse_word_or_default(
            "reactions",
            &agent.reactions,
            "off, minimal or extensive",
        )?,
        channels: channel_options::from_proto(agent.channels)?,
        behaviors: agent.behaviors.map(behavior_settings),
        hit_points: agent.hit_points.map(economy::settings_from_proto),
        self_improve: agent.self_improve.map(self_improve),
    };
    Ok(NewAgent {
        name: name(&agent.name)?,
        description: agent.description,
        instructions: agent.instructions,
        model: non_empty(agent.model),
        is_default: agent.is_default,
        settings,
    })
}

fn behavior_settings_of(settings: BehaviorSettings) -> pb::BehaviorSettings {
    let BehaviorSettings { default, max_steps, max_hops, max_seconds } = settings;
    pb::BehaviorSettings { default, max_steps, max_hops, max_seconds }
}

fn behavior_settings(given: pb::BehaviorSettings) -> BehaviorSettings {
    let usual = BehaviorSettings::default();
    let or = |given: u32, usual: u32| if given == 0 { usual } else { given };
    BehaviorSettings {
        default: non_empty(given.default).unwrap_or(usual.default),
        max_steps: or(given.max_steps, usual.max_steps),
        max_hops: or(given.max_hops, usual.max_hops),
        max_seconds: or(given.max_seconds, usual.max_seconds),
    }
}

fn self_improve_of(settings: SelfImproveSettings) -> pb::SelfImproveSettings {
    let SelfImproveSettings { idle_s, max_per_day, max_tokens } = settings;
    pb::SelfImproveSettings { idle_s, max_per_day, max_tokens }
}

fn self_improve(given: pb::SelfImproveSettings) -> SelfImproveSettings {
    let usual = SelfImproveSettings::default();
    let or = |given: u32, usual: u32| if given == 0 { usual } else { given };
    SelfImproveSettings {
        idle_s: or(given.idle_s, usual.idle_s),
        max_per_day: or(given.max_per_day, usual.max_per_day),
        max_tokens: or(given.max_tokens, usual.max_tokens),
    }
}

fn context_of(options: ContextOptions) -> pb::ContextOptions {
    pb::ContextOptions {
        strategy: options.strategy.as_str().to_owned(),
        include_tools: options.include_tools.unwrap_or_default(),
        exclude_tools: options.exclude_tools.unwrap_or_default(),
        include_skills: options.include_skills.unwrap_or_default(),
        exclude_skills: options.exclude_skills.unwrap_or_default(),
        include_memory: options.include_memory,
        include_runtime: options.include_runtime,
        recommend_skills: options.recommend_skills.map(|recommend| pb::RecommendSkills {
            model: recommend.model.unwrap_or_default(),
            weights: recommend.weights.into_iter().flatten().map(u32::from).collect(),
        }),
    }
}

fn recommend_skills(recommend: pb::RecommendSkills) -> Result<RecommendSkills, Error> {
    let parts = recommend.weights.iter().map(|part| u8::try_from(*part).ok());
    let weights = match parts.collect::<Option<Vec<u8>>>().map(<[u8; 4]>::try_from) {
        _ if recommend.weights.is_empty() => None,
        Some(Ok(weights)) => Some(weights),
        Some(Err(_)) | None => {
            return Err(invalid(
                "`context.recommend_skills.weights` are four numbers that add up to 100, as in \
                 40, 30, 20, 10"
                    .to_owned(),
            ));
        }
    };
    Ok(RecommendSkills { model: non_empty(recommend.model), weights })
}

/// Protos cannot tell an empty list from an absent one, so it counts as absent (spec C-56,
/// CTX-007).
fn context(options: pb::ContextOptions) -> Result<ContextOptions, Error> {
    let list = |names: Vec<String>| Some(names).filter(|names| !names.is_empty());
    Ok(ContextOptions {
        strategy: parse_word_or_default(
            "context.strategy",
            &options.strategy,
            "full, lite, custom or none",
        )?,
        include_tools: list(options.include_tools),
        exclude_tools: list(options.exclude_tools),
        include_skills: list(options.include_skills),
        exclude_skills: list(options.exclude_skills),
        include_memory: options.include_memory,
        include_runtime: options.include_runtime,
        recommend_skills: options.recommend_skills.map(recommend_skills).transpose()?,
    })
}

fn bundles(bundles: Vec<pb::Bundle>) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let mut named = BTreeMap::new();
    for bundle in bundles {
        let name = bundle.name.clone();
        if named.insert(bundle.name, bundle.tools).is_some() {
            let shown: String = name.chars().take(80).collect();
            return Err(invalid(format!(
                "the bundle `{shown}` is there twice: name one otherwise"
            )));
        }
    }
    Ok(named)
}

/// Converts a name. A text without a usable character is refused: it would become `main`.
fn name(text: &str) -> Result<AgentName, Error> {
    if text.contains(|c: char| c.is_ascii_alphanumeric()) {
        return Ok(AgentName::new(text));
    }
    let shown: String = text.chars().take(80).collect();
    Err(invalid(format!("`{shown}` makes no agent's name: use letters a-z, digits, `-` and `_`")))
}

#[cfg(test)]
mod tests {
    use holdfast_types::{AgentKind, DmScope, QueueMode, Reactions, Thinking};

    use super::*;

    #[test]
    fn what_is_not_said_is_as_usual() {
        let new = new_agent(pb::Agent { name: "Study Coach".into(), ..Default::default() });

        let new = new.unwrap();
        assert_eq!(new.name.as_str(), "study-coach");
        assert_eq!(new.settings, AgentSettings::default());
        assert_eq!(new.model, None);
    }

    #[test]
    fn what_is_said_is_taken_or_refused_with_what_to_say() {
        let agent = pb::Agent {
            name: "coach".into(),
            queue_mode: "collect".into(),
            dm_scope: "per-peer".into(),
            tools: vec!["web_search".into()],
            kind: "simple".into(),
            reactions: "off".into(),
            thinking: "high".into(),
            ..Default::default()
        };
        let new = new_agent(agent.clone()).unwrap();
        let wrong = new_agent(pb::Agent { group_scope: "all".into(), ..agent.clone() });
        let much = new_agent(pb::Agent { thinking: "much".into(), ..agent });

        assert_eq!(new.settings.queue_mode, QueueMode::Collect);
        assert_eq!(new.settings.dm_scope, DmScope::PerPeer);
        assert_eq!(
            (new.settings.kind, new.settings.reactions),
            (AgentKind::Simple, Reactions::Off)
        );
        assert_eq!(new.settings.thinking, Thinking::High);
        assert_eq!(new.settings.tools, Some(vec!["web_search".to_owned()]));
        let told = wrong.unwrap_err().to_string();
        assert_eq!(told, "`group_scope` is `all`: write group or group-user");
        let told = much.unwrap_err().to_string();
        assert_eq!(told, "`thinking` is `much`: write off, low, medium or high");
    }

    #[test]
    fn what_a_prompt_holds_and_the_bundles_come_back_as_they_were_said() {
        let agent = pb::Agent {
            name: "coach".into(),
            context: Some(pb::ContextOptions {
                strategy: "lite".into(),
                exclude_tools: vec!["exec".into()],
                include_memory: Some(true),
                recommend_skills: Some(pb::RecommendSkills {
                    model: "quick".into(),
                    weights: vec![10, 20, 30, 40],
                }),
                ..Default::default()
            }),
            bundles: vec![pb::Bundle { name: "look".into(), tools: vec!["read".into()] }],
            ..Default::default()
        };

        let new = new_agent(agent.clone()).unwrap();
        let twice = pb::Agent { bundles: [&agent.bundles[..], &agent.bundles].concat(), ..agent };

        assert_eq!(new.settings.context.strategy, holdfast_types::PromptStrategy::Lite);
        assert_eq!(new.settings.context.include_tools, None);
        assert_eq!(
            context(context_of(new.settings.context.clone())).unwrap(),
            new.settings.context
        );
        assert_eq!(new.settings.bundles["look"], ["read"]);
        assert!(new_agent(twice).unwrap_err().to_string().contains("`look` is there twice"));
    }

    #[test]
    fn a_name_without_a_usable_character_does_not_become_main() {
        for text in ["", "语", "--", "_"] {
            assert!(name(text).is_err(), "{text}");
        }
    }
}
