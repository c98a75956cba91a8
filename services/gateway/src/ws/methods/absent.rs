//! Methods whose true answer on a hosted mesh is an empty list.

use serde::Deserialize;
use serde_json::json;

use super::{super::call::Call, Method, READ, Reply, method, sessions::NoParams};
use crate::permissions::operator_scopes::OperatorScope;
use crate::permissions::rights::ConversationRight;

const APPROVALS: Option<OperatorScope> = Some(OperatorScope::Approvals);

pub const METHODS: &[Method] = &[
    method!("openclaw.approval.list", APPROVALS, none),
    method!("plugin.approval.list", APPROVALS, none),
    method!(
        "question.list",
        Some(OperatorScope::Questions),
        no_questions,
        ["sessionKey", "agentId", "status"]
    ),
    method!("plugins.list", READ, no_plugins),
    method!("themes.list", READ, no_themes),
    method!("progressCard.get", READ, no_card, ["agentId"]),
];

/// Approvals of plugins, and of an agent that changes the server.
async fn none(_: Call, NoParams {}: NoParams) -> Reply {
    Ok(json!([]))
}

/// Questions that an agent asks beside its turn.
async fn no_questions(_: Call, NoParams {}: NoParams) -> Reply {
    Ok(json!({ "questions": [] }))
}

async fn no_plugins(_: Call, NoParams {}: NoParams) -> Reply {
    Ok(json!({ "plugins": [], "diagnostics": [], "mutationAllowed": false }))
}

/// Themes that are stored on the server.
async fn no_themes(_: Call, NoParams {}: NoParams) -> Reply {
    Ok(json!({ "themes": [] }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SessionParams {
    session_key: String,
}

/// The card of a session on which its agent notes its progress.
async fn no_card(call: Call, params: SessionParams) -> Reply {
    call.place("", &params.session_key, ConversationRight::Read).await?;
    Ok(json!({ "card": null }))
}
