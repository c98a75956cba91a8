//! Lists of a tenant: tools, nodes, its log.

use holdfast_proto::gateway::v1::{
    self as pb, nodes_server::Nodes as _, policies_server::Policies as _,
    sessions_server::Sessions as _,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        call::{Call, rpc},
        connection::now_ms,
        error::MethodError,
        snapshot::millis,
    },
    Method, READ, Reply, method,
};
use crate::permissions::rights::ConversationRight;
use crate::{
    control::{policies::Policies, sessions::Handler as Sessions},
    nodes::Nodes,
    permissions::operator_scopes::OperatorScope,
};

pub const METHODS: &[Method] = &[
    method!("tools.catalog", READ, tools, ["includePlugins"]),
    method!("tools.effective", READ, effective_tools),
    method!("node.list", READ, nodes, ["refresh"]),
    method!("node.describe", READ, node),
    method!("node.pair.list", Some(OperatorScope::Pairing), paired_nodes),
    method!("logs.tail", READ, logs),
];

/// Lines of one answer, unless the client asks for others; and the most.
const DEFAULT_LINES: u32 = 100;
const MAX_LINES: u32 = 200;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AgentParams {
    #[serde(default)]
    agent_id: String,
}

async fn decisions(
    call: &Call,
    agent: String,
    session: String,
) -> Result<pb::ExplainToolsResponse, MethodError> {
    let request = pb::ExplainToolsRequest { agent, session, ..Default::default() };
    let handler = Policies(call.state().clone());
    rpc!(call, "Policies/ExplainTools", handler, explain_tools, request)
}

async fn tools(call: Call, params: AgentParams) -> Reply {
    let explained = decisions(&call, params.agent_id, String::new()).await?;
    let tools: Vec<Value> = explained
        .decisions
        .iter()
        .map(|tool| {
            json!({
                "id": tool.tool,
                "label": tool.tool,
                "description": tool.summary,
                "source": "core",
                "defaultProfiles": if tool.decision == "deny" { json!([]) } else { json!(["full"]) },
            })
        })
        .collect();
    Ok(json!({
        "agentId": explained.agent,
        "profiles": [{ "id": "full", "label": "Full" }],
        "groups": [{ "id": "core", "label": "Tools", "source": "core", "tools": tools }],
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct EffectiveParams {
    #[serde(default)]
    agent_id: String,
    #[serde(default)]
    session_key: String,
}

async fn effective_tools(call: Call, params: EffectiveParams) -> Reply {
    let place = call.place(&params.agent_id, &params.session_key, ConversationRight::Read).await?;
    let agent = place.agent.name.to_string();
    let explained = decisions(&call, agent, String::new()).await?;
    let allowed = explained.decisions.iter().filter(|tool| tool.decision != "deny");
    let tools: Vec<Value> = allowed
        .map(|tool| {
            json!({
                "id": tool.tool,
                "label": tool.tool,
                "description": tool.summary,
                "rawDescription": tool.summary,
                "source": "core",
            })
        })
        .collect();
    Ok(json!({
        "agentId": explained.agent,
        "profile": "full",
        "groups": [{ "id": "core", "label": "Tools", "source": "core", "tools": tools }],
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoFields {}

async fn nodes(call: Call, NoFields {}: NoFields) -> Reply {
    Ok(json!({ "ts": now_ms(), "nodes": known_nodes(&call).await? }))
}

/// Nodes are created with their tokens, so none waits to be paired.
async fn paired_nodes(call: Call, NoFields {}: NoFields) -> Reply {
    Ok(json!({ "pending": [], "paired": known_nodes(&call).await? }))
}

async fn known_nodes(call: &Call) -> Result<Vec<Value>, MethodError> {
    let handler = Nodes::new(call.state().clone());
    let listed = rpc!(call, "Nodes/ListNodes", handler, list_nodes, pb::ListNodesRequest {})?;
    Ok(listed.nodes.iter().filter(|node| node.revoked_at.is_none()).map(node_row).collect())
}

fn node_row(node: &pb::Node) -> Value {
    json!({
        "nodeId": node.id,
        "displayName": node.name,
        "platform": node.platform,
        "version": node.version,
        "caps": [],
        "commands": node.commands,
        "paired": true,
        "connected": node.connected,
        "createdAtMs": millis(node.created_at.as_ref()),
        "approvedAtMs": millis(node.created_at.as_ref()),
        "lastSeenAtMs": millis(node.last_seen_at.as_ref()),
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NodeParams {
    node_id: String,
}

async fn node(call: Call, params: NodeParams) -> Reply {
    let handler = Nodes::new(call.state().clone());
    let request = pb::GetNodeRequest { node: params.node_id };
    let found = rpc!(call, "Nodes/GetNode", handler, get_node, request)?;
    let mut row = node_row(&found.node.unwrap_or_default());
    row["ts"] = now_ms().into();
    Ok(row)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LogsParams {
    /// Time after which lines are wanted, in Unix milliseconds.
    cursor: Option<i64>,
    limit: Option<u32>,
    max_bytes: Option<usize>,
}

/// The tenant's log: one line for each turn that has ended. It has no text of messages.
async fn logs(call: Call, params: LogsParams) -> Reply {
    let limit = params.limit.unwrap_or(DEFAULT_LINES).clamp(1, MAX_LINES);
    let request = pb::ListRunsRequest { limit, ..Default::default() };
    let handler = Sessions(call.state().clone());
    let listed = rpc!(call, "Sessions/ListRuns", handler, list_runs, request)?;
    let after = params.cursor.unwrap_or(0);
    let mut runs: Vec<&pb::Run> = listed
        .runs
        .iter()
        .filter(|run| run.finished_at.is_some() && millis(run.finished_at.as_ref()) > after)
        .collect();
    runs.sort_by_key(|run| millis(run.finished_at.as_ref()));
    let cursor = runs.last().map_or(after, |run| millis(run.finished_at.as_ref()));
    let mut lines: Vec<String> = runs.into_iter().map(line).collect();
    let most = params.max_bytes.unwrap_or(250_000);
    let mut size: usize = lines.iter().map(String::len).sum();
    let mut is_truncated = false;
    while size > most && !lines.is_empty() {
        size -= lines.remove(0).len();
        is_truncated = true;
    }
    Ok(json!({
        "file": "holdfast",
        "cursor": cursor,
        "size": size,
        "lines": lines,
        "truncated": is_truncated,
        "reset": false,
    }))
}

fn line(run: &pb::Run) -> String {
    let at =
        run.finished_at.as_ref().and_then(|at| jiff::Timestamp::new(at.seconds, at.nanos).ok());
    let is_failed = matches!(run.outcome(), pb::Outcome::Failed | pb::Outcome::Dead);
    let level = if is_failed { "ERROR" } else { "INFO" };
    let message = format!(
        "run {} {} agent={} session={} model={} steps={}",
        run.id, run.status, run.agent, run.session_id, run.model, run.steps
    );
    let time = at.unwrap_or_default().to_string();
    json!({
        "0": json!({ "subsystem": "runs" }).to_string(),
        "1": message,
        "time": time,
        "_meta": { "logLevelName": level, "date": time, "name": "{\"subsystem\":\"runs\"}" },
    })
    .to_string()
}
