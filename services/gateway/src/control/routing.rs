//! The service `Routing`: bindings, rules, identities, and explanations of the routing.

use holdfast_directory::{Binding, Identity, NewBinding, NewModelRoute, NewRule, RoutingRule};
use holdfast_proto::gateway::v1::{
    self as pb, CreateBindingRequest, CreateBindingResponse, DeleteBindingRequest,
    DeleteBindingResponse, DeleteIdentityRequest, DeleteIdentityResponse, ExplainRequest,
    ExplainResponse, ListBindingsRequest, ListBindingsResponse, ListIdentitiesRequest,
    ListIdentitiesResponse, ListRulesRequest, ListRulesResponse, PutIdentityRequest,
    PutIdentityResponse, PutRulesRequest, PutRulesResponse, routing_server::Routing as Service,
};
use holdfast_types::{ModelRoute, Peer, PeerKind, RouteScope, is_reserved_peer};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{
    AgentNames, State, actor, invalid, non_empty, parse_word, policies::list_warnings, required,
};
use crate::{
    Error, audit,
    permissions::{Permission, require},
    routing::{RoutingInput, route},
};

/// Implements `holdfast.gateway.v1.Routing`.
#[derive(Debug)]
pub struct Routing(pub State);

#[tonic::async_trait]
impl Service for Routing {
    async fn list_bindings(
        &self,
        request: Request<ListBindingsRequest>,
    ) -> Result<Response<ListBindingsResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let bindings =
            self.0.directory.routing().bindings(caller.tenant).await.map_err(Error::from)?;
        let names = self.0.agent_names(caller.tenant).await?;

        let bindings = bindings.into_iter().map(|binding| binding_of(binding, &names)).collect();
        Ok(Response::new(ListBindingsResponse { bindings }))
    }

    async fn create_binding(
        &self,
        request: Request<CreateBindingRequest>,
    ) -> Result<Response<CreateBindingResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let new = new_binding(required("binding", request.binding)?)?;

        let made =
            self.0.directory.routing().create_binding(caller.tenant, actor(&caller), new).await;

        let binding = made.map_err(Error::from)?;
        let names = self.0.agent_names(caller.tenant).await?;
        let binding = Some(binding_of(binding, &names));
        Ok(Response::new(CreateBindingResponse { binding }))
    }

    async fn delete_binding(
        &self,
        request: Request<DeleteBindingRequest>,
    ) -> Result<Response<DeleteBindingResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let id = Uuid::try_parse(&request.id).map_err(|_| Error::UnknownValue {
            field: "id",
            given: request.id.chars().take(80).collect(),
            wanted: "a binding's id, as `ListBindings` shows it",
        })?;

        let deleted =
            self.0.directory.routing().delete_binding(caller.tenant, actor(&caller), id).await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteBindingResponse {}))
    }

    async fn list_rules(
        &self,
        request: Request<ListRulesRequest>,
    ) -> Result<Response<ListRulesResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let (rules, version) =
            self.0.directory.routing().versioned_rules(caller.tenant).await.map_err(Error::from)?;
        let names = self.0.agent_names(caller.tenant).await?;

        let rules = rules.into_iter().map(|rule| rule_of(rule, &names)).collect();
        Ok(Response::new(ListRulesResponse { rules, version }))
    }

    async fn put_rules(
        &self,
        request: Request<PutRulesRequest>,
    ) -> Result<Response<PutRulesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let rules = request.rules.into_iter().map(new_rule).collect::<Result<Vec<_>, _>>()?;
        let mut warnings = Vec::new();
        for (number, rule) in rules.iter().enumerate() {
            let (at, tools) = (format!("rules[{number}].tools"), rule.tools.as_deref());
            warnings.extend(list_warnings(&self.0, &at, tools.unwrap_or_default()).await?);
        }

        let base = non_empty(request.base);
        let routing = self.0.directory.routing();
        let put = routing.put_rules(caller.tenant, actor(&caller), rules, base.as_deref()).await;

        put.map_err(Error::from)?;
        Ok(Response::new(PutRulesResponse { warnings }))
    }

    async fn list_identities(
        &self,
        request: Request<ListIdentitiesRequest>,
    ) -> Result<Response<ListIdentitiesResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let identities =
            self.0.directory.routing().identities(caller.tenant).await.map_err(Error::from)?;

        let identity =
            |Identity { channel, peer, canonical }| pb::Identity { channel, peer, canonical };
        let identities = identities.into_iter().map(identity).collect();
        Ok(Response::new(ListIdentitiesResponse { identities }))
    }

    async fn put_identity(
        &self,
        request: Request<PutIdentityRequest>,
    ) -> Result<Response<PutIdentityResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let pb::Identity { channel, peer, canonical } = required("identity", request.identity)?;
        let identity = Identity { channel, peer, canonical };
        // A link gives the account the rights of the person that it names.
        if is_reserved_peer(&identity.canonical) {
            require(&caller, Permission::Own)?;
        }

        let put =
            self.0.directory.routing().put_identity(caller.tenant, actor(&caller), identity).await;

        put.map_err(Error::from)?;
        Ok(Response::new(PutIdentityResponse {}))
    }

    async fn delete_identity(
        &self,
        request: Request<DeleteIdentityRequest>,
    ) -> Result<Response<DeleteIdentityResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let DeleteIdentityRequest { channel, peer } = request;

        let directory = &self.0.directory;
        let deleted = directory
            .routing()
            .delete_identity(caller.tenant, actor(&caller), &channel, &peer)
            .await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteIdentityResponse {}))
    }

    async fn explain(
        &self,
        request: Request<ExplainRequest>,
    ) -> Result<Response<ExplainResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let inbound = RoutingInput::try_from(request)?;

        let routing = self.0.directory.routing().get(caller.tenant).await.map_err(Error::from)?;
        let routed = route(&routing, &inbound).map_err(Error::from)?;
        let names = self.0.agent_names(caller.tenant).await?;

        Ok(Response::new(ExplainResponse {
            agent: routed.agent.name.to_string(),
            session_key: routed.key.to_string(),
            main_session_key: routed.main_key.to_string(),
            matched_by: routed.matched_by.to_string(),
            by_model: routed.by_model.map(|route| route_of(route, &names)),
            also: routed.also.iter().map(|(agent, _)| agent.name.to_string()).collect(),
        }))
    }
}

fn new_binding(binding: pb::Binding) -> Result<NewBinding, Error> {
    Ok(NewBinding {
        peer: peer("peer_kind", &binding.peer_kind, binding.peer_id)?,
        channel: binding.channel,
        account: binding.account,
        guild: non_empty(binding.guild),
        team: non_empty(binding.team),
        by_model: binding.by_model.map(new_route).transpose()?,
        agent: binding.agent,
        also: binding.also,
    })
}

fn new_rule(rule: pb::Rule) -> Result<NewRule, Error> {
    // A non-empty list counts, whatever the flag says.
    let given = rule.tools_given || !rule.tools.is_empty();
    Ok(NewRule {
        by_model: rule.by_model.map(new_route).transpose()?,
        channel: non_empty(rule.channel),
        user_id: non_empty(rule.user_id),
        pattern: non_empty(rule.pattern),
        agent: rule.agent,
        tools: given.then_some(rule.tools),
        disabled: rule.disabled,
    })
}

fn new_route(route: pb::ModelRoute) -> Result<NewModelRoute, Error> {
    let each = match route.each.trim() {
        "" | "message" => RouteScope::Message,
        "session" => RouteScope::Session,
        other => {
            return Err(Error::UnknownValue {
                field: "by_model.each",
                given: other.chars().take(80).collect(),
                wanted: "message or session",
            });
        }
    };
    Ok(NewModelRoute { among: route.among, each, model: non_empty(route.model) })
}

fn route_of(route: ModelRoute, names: &AgentNames) -> pb::ModelRoute {
    pb::ModelRoute {
        among: route.among.into_iter().map(|agent| names.of(agent)).collect(),
        each: route.each.as_str().to_owned(),
        model: route.model.unwrap_or_default(),
    }
}

impl TryFrom<ExplainRequest> for RoutingInput {
    type Error = Error;

    fn try_from(request: ExplainRequest) -> Result<Self, Error> {
        let direct = || Peer { kind: PeerKind::Direct, id: String::new() };
        let parent = peer("parent_peer_kind", &request.parent_peer_kind, request.parent_peer_id)?;
        Ok(Self {
            channel: request.channel,
            account: request.account,
            peer: peer("peer_kind", &request.peer_kind, request.peer_id)?.unwrap_or_else(direct),
            parent,
            thread: non_empty(request.thread),
            guild: non_empty(request.guild),
            team: non_empty(request.team),
            sender: non_empty(request.sender_id),
            text: request.text,
        })
    }
}

/// Converts a peer; its kind and its id must be given together.
fn peer(field: &'static str, kind: &str, id: String) -> Result<Option<Peer>, Error> {
    match (kind.trim().to_lowercase().as_str(), id.is_empty()) {
        ("", true) => Ok(None),
        ("", false) => Err(Error::MissingField(field)),
        (kind, false) => {
            let kind = parse_word(field, kind, "direct, group or channel")?;
            Ok(Some(Peer { kind, id }))
        }
        (_, true) => Err(invalid(format!("`{field}` is given, and no id with it"))),
    }
}

fn binding_of(binding: Binding, names: &AgentNames) -> pb::Binding {
    let (peer_kind, peer_id) = match binding.peer {
        Some(peer) => (peer.kind.as_str().to_owned(), peer.id),
        None => (String::new(), String::new()),
    };
    pb::Binding {
        id: binding.id.to_string(),
        channel: binding.channel,
        account: binding.account,
        peer_kind,
        peer_id,
        guild: binding.guild.unwrap_or_default(),
        team: binding.team.unwrap_or_default(),
        agent: names.of(binding.agent),
        by_model: binding.by_model.map(|route| route_of(route, names)),
        also: binding.also.into_iter().map(|agent| names.of(agent)).collect(),
    }
}

fn rule_of(rule: RoutingRule, names: &AgentNames) -> pb::Rule {
    pb::Rule {
        channel: rule.channel.unwrap_or_default(),
        user_id: rule.user_id.unwrap_or_default(),
        pattern: rule.pattern.map(|pattern| pattern.as_str().to_owned()).unwrap_or_default(),
        agent: names.of(rule.agent),
        tools_given: rule.tools.is_some(),
        tools: rule.tools.unwrap_or_default(),
        by_model: rule.by_model.map(|route| route_of(route, names)),
        disabled: rule.disabled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_kind_and_an_id_or_neither() {
        let id = || "7".to_owned();

        assert_eq!(peer("peer_kind", "", String::new()).unwrap(), None);
        let group = Peer { kind: PeerKind::Group, id: id() };
        assert_eq!(peer("peer_kind", " Group", id()).unwrap(), Some(group));
        assert!(peer("peer_kind", "", id()).is_err());
        assert!(peer("peer_kind", "direct", String::new()).is_err());
        assert!(peer("peer_kind", "dm", id()).is_err());
    }

    #[test]
    fn a_rule_says_whether_it_has_tools() {
        let rule = |tools: &[&str], tools_given| {
            let tools = tools.iter().map(|&tool| tool.to_owned()).collect();
            new_rule(pb::Rule { tools, tools_given, ..Default::default() }).unwrap().tools
        };

        assert_eq!(rule(&[], false), None);
        assert_eq!(rule(&[], true), Some(Vec::new()));
        assert_eq!(rule(&["x"], true), Some(vec!["x".to_owned()]));
        assert_eq!(rule(&["x"], false), Some(vec!["x".to_owned()]));
    }
}
