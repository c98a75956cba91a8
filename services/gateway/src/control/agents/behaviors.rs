//! The service `Behaviors`: behaviours as documents, in layers, and what they make of an input.

mod render;
mod trial;

use std::{collections::BTreeMap, sync::Arc};

use holdfast_agent::behavior::{
    BUILT_IN, Behavior, BehaviorSet, ToolFilter, parse_result, spelling_warnings,
};
use holdfast_directory::{Agent, BehaviorLayer, StoredBehavior};
use holdfast_proto::gateway::v1::{
    self as pb, DeleteBehaviorRequest, DeleteBehaviorResponse, GetBehaviorRequest,
    GetBehaviorResponse, ListBehaviorVersionsRequest, ListBehaviorVersionsResponse,
    ListBehaviorsRequest, ListBehaviorsResponse, ParseBehaviorAnswerRequest,
    ParseBehaviorAnswerResponse, PutBehaviorRequest, PutBehaviorResponse, RenderBehaviorRequest,
    RenderBehaviorResponse, TryBehaviorRequest, TryBehaviorResponse, ValidateBehaviorRequest,
    ValidateBehaviorResponse, behaviors_server::Behaviors as Service,
};
use holdfast_types::{AgentId, BehaviorName, TenantId};
use tonic::{Request, Response, Status};

use super::{State, list_warnings};
use crate::{
    Error, audit,
    control::{actor, invalid, non_empty, timestamp, word_of},
};

/// Implements `holdfast.gateway.v1.Behaviors`.
#[derive(Debug)]
pub struct Behaviors(pub State);

/// Document in a layer, and what this version reads in it.
struct ShownBehavior {
    layer: &'static str,
    stored: Option<StoredBehavior>,
    name: String,
    source: String,
}

impl ShownBehavior {
    fn built_in(name: &str, source: &str) -> Self {
        let (name, source) = (name.to_owned(), source.to_owned());
        Self { layer: "built-in", stored: None, name, source }
    }

    fn stored(stored: StoredBehavior) -> Self {
        let layer = match stored.layer {
            BehaviorLayer::Tenant => "tenant",
            BehaviorLayer::Agent => "agent",
        };
        let (name, source) = (stored.name.clone(), stored.source.clone());
        Self { layer, stored: Some(stored), name, source }
    }

    fn to_proto(&self) -> pb::Behavior {
        let mut shown = match Behavior::parse(&self.source, &self.name) {
            Ok(behavior) => described(&behavior),
            Err(error) => pb::Behavior { error: error.to_string(), ..Default::default() },
        };
        shown.name.clone_from(&self.name);
        self.layer.clone_into(&mut shown.layer);
        shown.source.clone_from(&self.source);
        shown.is_current = self.stored.as_ref().is_none_or(|stored| stored.is_current);
        if let Some(stored) = &self.stored {
            shown.version = stored.version;
            shown.created_at = Some(timestamp(stored.created_at));
        }
        shown
    }
}

/// The fields that are read from a document.
fn described(behavior: &Behavior) -> pb::Behavior {
    pb::Behavior {
        name: behavior.name.clone(),
        description: behavior.description.clone(),
        role: word_of(&behavior.role),
        output_protocol: behavior.protocol.as_str().to_owned(),
        step_limit: behavior.step_limit,
        fallback: behavior.fallback.clone().unwrap_or_default(),
        files: word_of(&behavior.files),
        ..Default::default()
    }
}

impl Behaviors {
    /// The named agent; `None` for an empty name, which means the layer of the tenant.
    async fn agent(&self, tenant: TenantId, agent: &str) -> Result<Option<Agent>, Error> {
        match agent {
            "" => Ok(None),
            agent => Ok(Some(self.0.directory.agents().get(tenant, agent).await?)),
        }
    }

    async fn layer(&self, tenant: TenantId, agent: &str) -> Result<Option<AgentId>, Error> {
        Ok(self.agent(tenant, agent).await?.map(|agent| agent.id))
    }

    /// Returns the behaviours in effect, by name.
    async fn in_effect(
        &self,
        tenant: TenantId,
        agent: Option<AgentId>,
    ) -> Result<BTreeMap<String, ShownBehavior>, Error> {
        let built_in = BUILT_IN.iter().map(|(name, source)| ShownBehavior::built_in(name, source));
        let stored = self.0.directory.behaviors().list(tenant, agent).await?;
        // The agent's layer comes last.
        let all = built_in.chain(stored.into_iter().map(ShownBehavior::stored));
        Ok(all.map(|behavior| (behavior.name.clone(), behavior)).collect())
    }

    /// Returns the compiled behaviours in effect; a document that cannot be read is left out.
    async fn compiled(
        &self,
        tenant: TenantId,
        agent: Option<&Agent>,
    ) -> Result<BehaviorSet, Error> {
        let settings = agent.and_then(|agent| agent.settings.behaviors.as_ref());
        let mut set = BehaviorSet::built_in(settings.map(|settings| settings.default.as_str()));
        for behavior in self.0.directory.behaviors().list(tenant, agent.map(|one| one.id)).await? {
            if let Ok(behavior) = Behavior::parse(&behavior.source, &behavior.name) {
                set.add(Arc::new(behavior));
            }
        }
        Ok(set)
    }

    /// Returns the given document as a behaviour, else the one in effect of this name.
    async fn behavior(
        &self,
        tenant: TenantId,
        agent: Option<&Agent>,
        (name, source): (&BehaviorName, &str),
    ) -> Result<Behavior, Error> {
        if !source.is_empty() {
            return parse(source, name.base());
        }
        let set = self.compiled(tenant, agent).await?;
        let missing = || holdfast_directory::Error::NotFound {
            what: "behavior",
            name: name.base().to_owned(),
        };
        Ok(set.find(name).cloned().ok_or_else(missing)?)
    }

    /// What works in a behaviour and was probably meant otherwise.
    async fn warnings(
        &self,
        tenant: TenantId,
        agent: Option<&Agent>,
        (behavior, source): (&Behavior, &str),
    ) -> Result<Vec<String>, Error> {
        let mut warnings = spelling_warnings(source);
        if let ToolFilter::List(tools) = &behavior.toolbox.tools {
            warnings.extend(list_warnings(&self.0, "toolbox.tools", tools).await?);
        }
        let loaded = &behavior.toolbox.loaded_tools;
        warnings.extend(list_warnings(&self.0, "toolbox.loaded_tools", loaded).await?);
        let set = self.compiled(tenant, agent).await?;
        if let Some(fallback) = &behavior.fallback
            && !fallback.parse::<BehaviorName>().is_ok_and(|name| {
                name.base().eq_ignore_ascii_case(&behavior.name) || set.find(&name).is_some()
            })
        {
            warnings.push(format!("`fallback`: there is no behavior `{fallback}` yet"));
        }
        let models = behavior.models.preferred.iter().chain(&behavior.models.fallbacks);
        for model in models {
            let checked = self.0.directory.models().check_names(tenant, [model.as_str()]).await;
            if let Err(error) = checked {
                warnings.push(format!("`llm`: {error}"));
            }
        }
        Ok(warnings)
    }
}

#[tonic::async_trait]
impl Service for Behaviors {
    async fn list_behaviors(
        &self,
        request: Request<ListBehaviorsRequest>,
    ) -> Result<Response<ListBehaviorsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.layer(caller.tenant, &request.agent).await?;

        let behaviors = self.in_effect(caller.tenant, agent).await?;

        let behaviors = behaviors.values().map(ShownBehavior::to_proto).collect();
        Ok(Response::new(ListBehaviorsResponse { behaviors }))
    }

    async fn get_behavior(
        &self,
        request: Request<GetBehaviorRequest>,
    ) -> Result<Response<GetBehaviorResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.layer(caller.tenant, &request.agent).await?;
        let name = base(&request.name)?;

        let found = match request.version {
            0 => self.in_effect(caller.tenant, agent).await?.remove(&name),
            version => {
                let behaviors = self.0.directory.behaviors();
                let found = behaviors.find(caller.tenant, agent, &name, Some(version)).await;
                found.map_err(Error::from)?.map(ShownBehavior::stored)
            }
        };

        let found = found.ok_or_else(|| not_found(&name))?;
        Ok(Response::new(GetBehaviorResponse { behavior: Some(found.to_proto()) }))
    }

    async fn put_behavior(
        &self,
        request: Request<PutBehaviorRequest>,
    ) -> Result<Response<PutBehaviorResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let behavior = parse_named(&request.source, &request.name, &request.default_name)?;
        let checked = (&behavior, request.source.as_str());
        let warnings = self.warnings(caller.tenant, agent.as_ref(), checked).await?;

        let place = (agent.map(|agent| agent.id), behavior.name.as_str());
        let (by, based_on) = (actor(&caller), request.base_version);
        let behaviors = self.0.directory.behaviors();
        let stored = behaviors.put(caller.tenant, by, place, based_on, &request.source).await;

        let shown = ShownBehavior::stored(stored.map_err(Error::from)?);
        Ok(Response::new(PutBehaviorResponse { behavior: Some(shown.to_proto()), warnings }))
    }

    async fn delete_behavior(
        &self,
        request: Request<DeleteBehaviorRequest>,
    ) -> Result<Response<DeleteBehaviorResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        let agent = self.layer(caller.tenant, &request.agent).await?;

        let (by, place) = (actor(&caller), (agent, request.name.as_str()));
        let deleted = self.0.directory.behaviors().delete(caller.tenant, by, place).await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteBehaviorResponse {}))
    }

    async fn list_behavior_versions(
        &self,
        request: Request<ListBehaviorVersionsRequest>,
    ) -> Result<Response<ListBehaviorVersionsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.layer(caller.tenant, &request.agent).await?;

        let behaviors = self.0.directory.behaviors();
        let versions = behaviors.versions(caller.tenant, agent, &request.name).await;

        let versions = versions.map_err(Error::from)?;
        if versions.is_empty() {
            return Err(not_found(&request.name).into());
        }
        let versions = versions.into_iter().map(|one| ShownBehavior::stored(one).to_proto());
        Ok(Response::new(ListBehaviorVersionsResponse { versions: versions.collect() }))
    }

    async fn validate_behavior(
        &self,
        request: Request<ValidateBehaviorRequest>,
    ) -> Result<Response<ValidateBehaviorResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let behavior = parse_named(&request.source, &request.name, &request.default_name)?;

        let checked = (&behavior, request.source.as_str());
        let warnings = self.warnings(caller.tenant, agent.as_ref(), checked).await?;

        let behavior = pb::Behavior { source: request.source, ..described(&behavior) };
        Ok(Response::new(ValidateBehaviorResponse { behavior: Some(behavior), warnings }))
    }

    async fn render_behavior(
        &self,
        request: Request<RenderBehaviorRequest>,
    ) -> Result<Response<RenderBehaviorResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let name = parse_name(&request.name, &request.source)?;
        let wanted = (&name, request.source.as_str());
        let behavior = self.behavior(caller.tenant, agent.as_ref(), wanted).await?;

        let rendered = render::render(&self.0, caller.tenant, agent, (&name, &behavior), &request);

        Ok(Response::new(rendered.await?))
    }

    async fn parse_behavior_answer(
        &self,
        request: Request<ParseBehaviorAnswerRequest>,
    ) -> Result<Response<ParseBehaviorAnswerResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let name = parse_name(&request.name, &request.source)?;
        let wanted = (&name, request.source.as_str());
        let behavior = self.behavior(caller.tenant, agent.as_ref(), wanted).await?;

        let parsed = parse_result(behavior.protocol, &request.answer);

        Ok(Response::new(match parsed {
            Ok(result) => ParseBehaviorAnswerResponse {
                // A result can always be serialized as JSON.
                result: serde_json::to_string(&result).unwrap_or_default(),
                error: String::new(),
            },
            Err(error) => {
                ParseBehaviorAnswerResponse { result: String::new(), error: error.to_string() }
            }
        }))
    }

    async fn try_behavior(
        &self,
        request: Request<TryBehaviorRequest>,
    ) -> Result<Response<TryBehaviorResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let name = parse_name(&request.name, &request.source)?;
        let wanted = (&name, request.source.as_str());
        let mut behavior = self.behavior(caller.tenant, agent.as_ref(), wanted).await?;
        let mut set = self.compiled(caller.tenant, agent.as_ref()).await?;
        // A document is used for the name under which it is tried.
        behavior.name = name.base().to_ascii_lowercase();
        set.add(Arc::new(behavior));

        let trial = trial::Trial::new(&self.0, (&caller, agent), set, request);

        Ok(Response::new(trial.await?.run(name).await?))
    }
}

fn not_found(name: &str) -> Error {
    let name = name.chars().take(80).collect();
    holdfast_directory::Error::NotFound { what: "behavior", name }.into()
}

/// Parses a document.
fn parse(source: &str, name: &str) -> Result<Behavior, Error> {
    Behavior::parse(source, name)
        .map_err(|error| invalid(format!("the behavior cannot be used: {error}")))
}

/// Parses a document whose name must be the given one, if there is one.
fn parse_named(source: &str, name: &str, default_name: &str) -> Result<Behavior, Error> {
    let behavior = parse(source, if name.is_empty() { default_name } else { name })?;
    match non_empty(name.to_owned()) {
        Some(name) if name != behavior.name => Err(invalid(format!(
            "the document is called `{}`, and not `{}`: change one of the names",
            behavior.name,
            name.chars().take(80).collect::<String>()
        ))),
        Some(_) | None => Ok(behavior),
    }
}

/// Parses a name with its parameters. A document may stand alone.
fn parse_name(name: &str, source: &str) -> Result<BehaviorName, Error> {
    let name = match (name.is_empty(), source.is_empty()) {
        (true, false) => &parse(source, "unnamed")?.name,
        (true, true) => return Err(Error::MissingField("name")),
        (false, _) => name,
    };
    name.parse().map_err(|error| invalid(format!("`name`: {error}")))
}

/// Name without parameters, in lower case.
fn base(name: &str) -> Result<String, Error> {
    Ok(parse_name(name, "")?.base().to_ascii_lowercase())
}
