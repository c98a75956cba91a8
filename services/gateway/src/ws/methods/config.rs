//! `config.*`: the settings that a tenant may change, as one document.
//!
//! The document has the agents with their models and texts. Everything else that OpenClaw's
//! configuration has belongs to the operator here, or has methods of its own.

use holdfast_proto::gateway::v1::{self as pb, agents_server::Agents as _};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    super::{
        call::{Call, rpc},
        error::MethodError,
        events::{Audience, Event},
    },
    ADMIN, Method, READ, Reply,
    agents::{model_name, shown_model},
    method,
    models::ModelSetup,
    sessions::NoParams,
};
use crate::control::agents::Agents;

pub const METHODS: &[Method] = &[
    method!("config.get", READ, get),
    method!("config.schema", READ, schema),
    method!("config.schema.lookup", READ, lookup),
    method!("config.set", ADMIN, set),
    method!(
        "config.apply",
        ADMIN,
        set,
        ["sessionKey", "deliveryContext", "note", "restartDelayMs"]
    ),
    method!(
        "config.patch",
        ADMIN,
        patch,
        ["sessionKey", "deliveryContext", "note", "restartDelayMs", "replacePaths",]
    ),
];

async fn get(call: Call, NoParams {}: NoParams) -> Reply {
    let setup = ModelSetup::load(&call).await?;
    Ok(snapshot(&document(&agents(&call).await?, &setup.default_model)))
}

async fn agents(call: &Call) -> Result<Vec<pb::Agent>, MethodError> {
    let handler = Agents(call.state().clone());
    let listed = rpc!(call, "Agents/ListAgents", handler, list_agents, pb::ListAgentsRequest {})?;
    Ok(listed.agents)
}

fn document(agents: &[pb::Agent], default_model: &str) -> Value {
    let entry = |agent: &pb::Agent| {
        let mut entry = json!({
            "id": agent.name,
            "name": agent.name,
            "default": agent.is_default,
            "description": agent.description,
            "instructions": agent.instructions,
        });
        if let Some(model) = model_of(agent) {
            entry["model"] = model;
        }
        entry
    };
    let default = agents.iter().find(|agent| agent.is_default).and_then(model_of);
    let default = default.unwrap_or_else(|| json!({ "primary": shown_model(default_model) }));
    let defaults = json!({ "model": default });
    let list: Vec<Value> = agents.iter().map(entry).collect();
    json!({ "agents": { "defaults": defaults, "list": list } })
}

fn model_of(agent: &pb::Agent) -> Option<Value> {
    if agent.model.is_empty() {
        return None;
    }
    let fallbacks: Vec<String> = agent.fallbacks.iter().map(|name| shown_model(name)).collect();
    Some(json!({ "primary": shown_model(&agent.model), "fallbacks": fallbacks }))
}

fn snapshot(document: &Value) -> Value {
    let raw = serde_json::to_string_pretty(document).unwrap_or_default();
    json!({
        "path": "holdfast",
        "exists": true,
        "hash": hash(document),
        "raw": raw,
        "parsed": document,
        "sourceConfig": document,
        "resolved": document,
        "valid": true,
        "config": document,
        "runtimeConfig": document,
        "issues": [],
        "warnings": [],
        "legacyIssues": [],
    })
}

/// SHA-256 of a document, in hex.
pub fn hash(document: &Value) -> String {
    let digest = Sha256::digest(document.to_string().as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json_schema() -> Value {
    let text = |title: &str| json!({ "type": "string", "title": title });
    let model = json!({
        "type": "object",
        "title": "Model",
        "additionalProperties": false,
        "properties": {
            "primary": text("Model, as provider/model"),
            "fallbacks": { "type": "array", "title": "Fallbacks", "items": { "type": "string" } },
        },
    });
    let agent = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["id"],
        "properties": {
            "id": text("Id"),
            "name": text("Name"),
            "default": { "type": "boolean", "title": "Default agent", "readOnly": true },
            "description": text("Description"),
            "instructions": text("Instructions"),
            "model": model,
        },
    });
    let agents = json!({
        "type": "object",
        "title": "Agents",
        "additionalProperties": false,
        "properties": {
            "defaults": {
                "type": "object",
                "title": "Defaults",
                "additionalProperties": false,
                "properties": { "model": model },
            },
            "list": { "type": "array", "title": "Agents", "items": agent },
        },
    });
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": false,
        "properties": { "agents": agents },
    })
}

async fn schema(_: Call, NoParams {}: NoParams) -> Reply {
    Ok(json!({
        "schema": json_schema(),
        "uiHints": { "agents": { "label": "Agents", "order": 1 } },
        "version": env!("CARGO_PKG_VERSION"),
        "generatedAt": "1970-01-01T00:00:00Z",
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LookupParams {
    path: String,
}

async fn lookup(_: Call, params: LookupParams) -> Reply {
    let schema = json_schema();
    let mut found = &schema;
    for part in params.path.split('.').filter(|part| !part.is_empty()) {
        found = match part.parse::<usize>() {
            Ok(_) => &found["items"],
            Err(_) => &found["properties"][part],
        };
    }
    if found.is_null() {
        return Err(MethodError::invalid("config schema path not found"));
    }
    Ok(json!({ "path": params.path, "schema": found, "children": [] }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawParams {
    /// The document, or what changes of it, as JSON.
    raw: String,
    base_hash: Option<String>,
}

async fn set(call: Call, params: RawParams) -> Reply {
    let (known, document) = current(&call).await?;
    check_hash(&document, params.base_hash.as_deref())?;
    apply(&call, (&known, &document), parse(&params.raw)?).await
}

async fn patch(call: Call, params: RawParams) -> Reply {
    let (known, document) = current(&call).await?;
    check_hash(&document, params.base_hash.as_deref())?;
    let mut wanted = document.clone();
    merge(&mut wanted, parse(&params.raw)?);
    apply(&call, (&known, &document), wanted).await
}

/// The agents, and the document as it is now.
async fn current(call: &Call) -> Result<(Vec<pb::Agent>, Value), MethodError> {
    let known = agents(call).await?;
    let setup = ModelSetup::load(call).await?;
    let document = document(&known, &setup.default_model);
    Ok((known, document))
}

fn parse(raw: &str) -> Result<Value, MethodError> {
    serde_json::from_str(raw)
        .map_err(|error| MethodError::invalid(format!("invalid config: raw: not JSON: {error}")))
}

fn check_hash(document: &Value, base: Option<&str>) -> Result<(), MethodError> {
    match base {
        Some(base) if base != hash(document) => {
            Err(MethodError::invalid("config changed since last load; re-run config.get and retry"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Applies a JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let Value::Object(target) = target {
        for (field, value) in patch {
            if value.is_null() {
                target.remove(&field);
            } else {
                merge(target.entry(field).or_insert(Value::Null), value);
            }
        }
    }
}

/// The document, as it may be written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    agents: AgentsSection,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentsSection {
    #[serde(default)]
    defaults: Map<String, Value>,
    #[serde(default)]
    list: Vec<AgentEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentEntry {
    id: String,
    name: Option<String>,
    #[serde(rename = "default")]
    _default: Option<bool>,
    description: Option<String>,
    instructions: Option<String>,
    model: Option<Model>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Model {
    Name(String),
    Choice { primary: Option<String>, fallbacks: Option<Vec<String>> },
}

impl Model {
    fn apply(&self, agent: &mut pb::Agent) {
        match self {
            Self::Name(name) => agent.model = model_name(name),
            Self::Choice { primary, fallbacks } => {
                if let Some(primary) = primary {
                    agent.model = model_name(primary);
                }
                if let Some(fallbacks) = fallbacks {
                    agent.fallbacks = fallbacks.iter().map(|name| model_name(name)).collect();
                }
            }
        }
    }
}

async fn apply(call: &Call, (known, before): (&[pb::Agent], &Value), wanted: Value) -> Reply {
    let wanted: Document = serde_path_to_error::deserialize(wanted)
        .map_err(|error| MethodError::invalid(format!("invalid config: {error}")))?;
    let missing =
        known.iter().find(|agent| !wanted.agents.list.iter().any(|entry| is_of(entry, agent)));
    if let Some(agent) = missing {
        return Err(MethodError::invalid(format!(
            "invalid config: agents.list: `{}` is missing; agents are deleted with `agents.delete`",
            agent.name
        )));
    }
    let is_new = |model: &&Value| **model != before["agents"]["defaults"]["model"];
    let default_model = wanted.agents.defaults.get("model").filter(is_new).map(|model| {
        serde_json::from_value::<Model>(model.clone()).map_err(|_| {
            MethodError::invalid("invalid config: agents.defaults.model: must be a name of a model")
        })
    });
    let default_model = default_model.transpose()?;
    for entry in &wanted.agents.list {
        let before = known.iter().find(|agent| is_of(entry, agent));
        let mut agent = before
            .cloned()
            .unwrap_or_else(|| pb::Agent { name: entry.id.clone(), ..Default::default() });
        let was = before.and_then(model_of);
        if let Some(model) = &entry.model {
            model.apply(&mut agent);
        }
        // A default that was changed, and not with its agent, is the default agent's model.
        if agent.is_default
            && model_of(&agent) == was
            && let Some(model) = &default_model
        {
            model.apply(&mut agent);
        }
        for (field, value) in [
            (&mut agent.name, &entry.name),
            (&mut agent.description, &entry.description),
            (&mut agent.instructions, &entry.instructions),
        ] {
            if let Some(value) = value {
                field.clone_from(value);
            }
        }
        write(call, before, agent).await?;
    }
    let payload = json!({ "section": "agents" });
    call.hub.publish(&Event::new(("", "config.changed"), &payload, Audience::Readers));
    let (_, changed) = current(call).await?;
    let mut reply = snapshot(&changed);
    reply["ok"] = true.into();
    Ok(reply)
}

fn is_of(entry: &AgentEntry, agent: &pb::Agent) -> bool {
    entry.id == agent.name || entry.id == agent.id
}

async fn write(
    call: &Call,
    before: Option<&pb::Agent>,
    agent: pb::Agent,
) -> Result<(), MethodError> {
    if before == Some(&agent) {
        return Ok(());
    }
    let handler = Agents(call.state().clone());
    let is_new = before.is_none();
    let agent = Some(agent);
    if is_new {
        let request = pb::CreateAgentRequest { agent };
        rpc!(call, "Agents/CreateAgent", handler, create_agent, request)?;
    } else {
        let request = pb::UpdateAgentRequest { agent, base_version: None };
        rpc!(call, "Agents/UpdateAgent", handler, update_agent, request)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_changes_what_it_names() {
        let mut document = json!({"agents": {"list": [{"id": "a"}], "defaults": {"x": 1, "y": 2}}});

        merge(&mut document, json!({"agents": {"defaults": {"x": null, "y": 3}}}));

        assert_eq!(document, json!({"agents": {"list": [{"id": "a"}], "defaults": {"y": 3}}}));
    }

    #[test]
    fn what_is_no_setting_of_a_tenant_is_refused_by_name() {
        let error =
            serde_path_to_error::deserialize::<_, Document>(json!({"gateway": {"port": 1}}));
        assert!(error.unwrap_err().to_string().contains("unknown field `gateway`"));
    }
}
