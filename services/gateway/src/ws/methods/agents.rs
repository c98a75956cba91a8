//! `agents.*`: agents and their files.

use holdfast_proto::gateway::v1::{
    self as pb, agents_server::Agents as _, files_server::Files as _,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        call::{Call, rpc},
        error::{ErrorKind, MethodError},
        snapshot::millis,
    },
    ADMIN, Method, READ, Reply, method,
    models::ModelSetup,
    sessions::NoParams,
};
use crate::control::{agents::Agents, files::Files};
use crate::permissions::rights::ConversationRight;

pub const METHODS: &[Method] = &[
    method!("agents.list", READ, list),
    method!("agents.create", ADMIN, create, ["workspace", "emoji", "avatar"]),
    method!("agents.update", ADMIN, update, ["workspace", "emoji", "avatar"]),
    method!("agents.delete", ADMIN, delete, ["deleteFiles"]),
    method!("agents.files.list", READ, list_files),
    method!("agents.files.get", READ, get_file),
    method!("agents.files.set", ADMIN, set_file),
    method!("agent.identity.get", READ, identity),
];

/// Files that make up an agent. Clients show them also if they are missing.
const BOOTSTRAP_FILES: &[&str] =
    &["AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md", "MEMORY.md"];

async fn list(call: Call, NoParams {}: NoParams) -> Reply {
    listed(&call).await
}

/// The tenant's agents, as clients list them.
pub async fn listed(call: &Call) -> Reply {
    let agents = agents(call).await?;
    let default = agents.iter().find(|agent| agent.is_default).or(agents.first());
    let default = default.map(|agent| agent.name.clone()).unwrap_or_default();
    let setup = ModelSetup::load(call).await?;
    let rows: Vec<Value> = agents.iter().map(|agent| row(agent, &setup)).collect();
    Ok(json!({ "defaultId": default, "mainKey": "main", "scope": "per-sender", "agents": rows }))
}

async fn agents(call: &Call) -> Result<Vec<pb::Agent>, MethodError> {
    let handler = Agents(call.state().clone());
    let listed = rpc!(call, "Agents/ListAgents", handler, list_agents, pb::ListAgentsRequest {})?;
    Ok(listed.agents)
}

fn row(agent: &pb::Agent, setup: &ModelSetup) -> Value {
    let mut row = json!({
        "id": agent.name,
        "kind": "agent",
        "name": agent.name,
        "identity": { "name": agent.name },
        "workspace": workspace(&agent.name),
        "createdAt": millis(agent.created_at.as_ref()),
    });
    let model = if agent.model.is_empty() { &setup.default_model } else { &agent.model };
    row["model"] = json!({ "primary": shown_model(model) });
    let fallbacks: Vec<String> = agent.fallbacks.iter().map(|name| shown_model(name)).collect();
    if !fallbacks.is_empty() {
        row["model"]["fallbacks"] = json!(fallbacks);
    }
    row
}

/// Name of a model as clients write it.
pub fn shown_model(name: &str) -> String {
    name.replacen(':', "/", 1)
}

/// Name of a model here.
pub fn model_name(name: &str) -> String {
    if name.contains(':') { name.to_owned() } else { name.replacen('/', ":", 1) }
}

fn workspace(agent: &str) -> String {
    format!("/{agent}")
}

/// Agent of this name or id.
async fn agent(call: &Call, agent: String) -> Result<pb::Agent, MethodError> {
    let handler = Agents(call.state().clone());
    let shown: String = agent.chars().take(80).collect();
    let request = pb::GetAgentRequest { agent };
    let found = rpc!(call, "Agents/GetAgent", handler, get_agent, request);
    let details = json!({ "code": "UNKNOWN_AGENT_ID", "agentId": shown });
    let found = found.map_err(|error| match error.kind {
        ErrorKind::Invalid => error.with_details(details),
        _ => error,
    })?;
    found.agent.ok_or_else(|| MethodError::invalid(format!("unknown agent id: {shown}")))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CreateParams {
    name: String,
    model: Option<String>,
}

async fn create(call: Call, params: CreateParams) -> Reply {
    let model = params.model.map(|model| model_name(&model)).unwrap_or_default();
    let agent = pb::Agent { name: params.name, model, ..Default::default() };
    let handler = Agents(call.state().clone());
    let request = pb::CreateAgentRequest { agent: Some(agent) };
    let created = rpc!(call, "Agents/CreateAgent", handler, create_agent, request)?;
    let agent = created.agent.unwrap_or_default();
    Ok(json!({
        "ok": true,
        "agentId": agent.name,
        "name": agent.name,
        "workspace": workspace(&agent.name),
        "model": shown_model(&agent.model),
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct UpdateParams {
    agent_id: String,
    name: Option<String>,
    #[serde(default, deserialize_with = "some")]
    model: Option<Option<String>>,
}

/// A field that may be absent, null, or a value.
fn some<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

async fn update(call: Call, params: UpdateParams) -> Reply {
    let mut changed = agent(&call, params.agent_id).await?;
    if let Some(name) = params.name {
        changed.name = name;
    }
    if let Some(model) = params.model {
        changed.model = model.map(|model| model_name(&model)).unwrap_or_default();
    }
    let handler = Agents(call.state().clone());
    let request = pb::UpdateAgentRequest { agent: Some(changed), base_version: None };
    let updated = rpc!(call, "Agents/UpdateAgent", handler, update_agent, request)?;
    Ok(json!({ "ok": true, "agentId": updated.agent.unwrap_or_default().name }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AgentParams {
    agent_id: String,
}

async fn delete(call: Call, params: AgentParams) -> Reply {
    let found = agent(&call, params.agent_id).await?;
    let handler = Agents(call.state().clone());
    let request = pb::DeleteAgentRequest { agent: found.name.clone() };
    rpc!(call, "Agents/DeleteAgent", handler, delete_agent, request)?;
    Ok(json!({ "ok": true, "agentId": found.name, "removedBindings": 0 }))
}

async fn list_files(call: Call, params: AgentParams) -> Reply {
    let agent = agent(&call, params.agent_id).await?.name;
    let request = pb::ListFilesRequest { agent: agent.clone(), ..Default::default() };
    let handler = Files(call.state().clone());
    let listed = rpc!(call, "Files/ListFiles", handler, list_files, request)?;
    let mut files: Vec<Value> = BOOTSTRAP_FILES
        .iter()
        .map(|name| match listed.files.iter().find(|file| file.path == *name) {
            Some(file) => file_row(file),
            None => missing(name),
        })
        .collect();
    let others = listed.files.iter().filter(|file| {
        !BOOTSTRAP_FILES.contains(&file.path.as_str()) && file.path.ends_with(".md")
    });
    files.extend(others.map(file_row));
    Ok(json!({ "agentId": agent, "workspace": workspace(&agent), "files": files }))
}

fn file_row(file: &pb::File) -> Value {
    json!({
        "name": file.path,
        "path": file.path,
        "missing": false,
        "size": file.size,
        "updatedAtMs": millis(file.changed_at.as_ref()),
    })
}

fn missing(name: &str) -> Value {
    json!({ "name": name, "path": name, "missing": true })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FileParams {
    agent_id: String,
    name: String,
}

async fn get_file(call: Call, params: FileParams) -> Reply {
    let agent = agent(&call, params.agent_id).await?.name;
    let request = pb::ReadFileRequest {
        agent: agent.clone(),
        path: params.name.clone(),
        ..Default::default()
    };
    let handler = Files(call.state().clone());
    let read = rpc!(call, "Files/ReadFile", handler, read_file, request);
    let file = match read {
        Ok(file) => json!({
            "name": params.name,
            "path": params.name,
            "missing": false,
            "size": file.content.len(),
            "content": String::from_utf8_lossy(&file.content),
        }),
        Err(error) if error.kind == ErrorKind::Invalid && is_known(&params.name) => {
            missing(&params.name)
        }
        Err(error) => return Err(error),
    };
    Ok(json!({ "agentId": agent, "workspace": workspace(&agent), "file": file }))
}

fn is_known(name: &str) -> bool {
    BOOTSTRAP_FILES.contains(&name)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SetFileParams {
    agent_id: String,
    name: String,
    content: String,
}

async fn set_file(call: Call, params: SetFileParams) -> Reply {
    let agent = agent(&call, params.agent_id).await?.name;
    let size = params.content.len();
    let request = pb::WriteFileRequest {
        agent: agent.clone(),
        path: params.name.clone(),
        content: params.content.into_bytes(),
        ..Default::default()
    };
    let handler = Files(call.state().clone());
    rpc!(call, "Files/WriteFile", handler, write_file, request)?;
    let file = json!({ "name": params.name, "path": params.name, "missing": false, "size": size });
    Ok(json!({ "ok": true, "agentId": agent, "workspace": workspace(&agent), "file": file }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct IdentityParams {
    #[serde(default)]
    agent_id: String,
    #[serde(default)]
    session_key: String,
}

async fn identity(call: Call, params: IdentityParams) -> Reply {
    let place = call.place(&params.agent_id, &params.session_key, ConversationRight::Read).await?;
    let name = place.agent.name.to_string();
    Ok(json!({ "agentId": name, "name": name, "nameSource": "config", "avatarStatus": "none" }))
}
