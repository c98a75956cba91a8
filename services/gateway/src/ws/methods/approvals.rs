//! `exec.approval.*`, `approval.*`: tool calls that wait for a person's decision.

use holdfast_proto::gateway::v1::{self as pb, approvals_server::Approvals as _};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        call::{Call, rpc},
        connection::now_ms,
        error::{ErrorKind, MethodError},
        events::{Audience, Event},
        keys,
        snapshot::millis,
    },
    Method, Reply, method,
    sessions::NoParams,
};
use crate::{control::approvals::Approvals, permissions::operator_scopes::OperatorScope};

const APPROVALS: Option<OperatorScope> = Some(OperatorScope::Approvals);

pub const METHODS: &[Method] = &[
    method!("exec.approval.list", APPROVALS, list),
    method!("exec.approval.get", APPROVALS, get),
    method!("exec.approval.resolve", APPROVALS, resolve, ["reviewer", "grantExpiresInDays"]),
    method!("exec.approvals.list", APPROVALS, list),
    method!("exec.approvals.get", super::ADMIN, file),
    method!("approval.get", APPROVALS, snapshot),
    method!(
        "approval.resolve",
        APPROVALS,
        resolve_snapshot,
        ["kind", "reviewer", "grantExpiresInDays"]
    ),
    method!("approval.history", APPROVALS, history, ["cursor", "kind", "statuses", "status"]),
    method!("exec.approval.grants.list", APPROVALS, grants, ["agentId", "limit", "cursor"]),
    method!("exec.approval.grants.revoke", APPROVALS, revoke),
];

const MAX_APPROVALS: u32 = 200;

async fn listed(call: &Call, state: &str) -> Result<Vec<pb::Approval>, MethodError> {
    let state = state.to_owned();
    let request = pb::ListApprovalsRequest { state, limit: MAX_APPROVALS, ..Default::default() };
    let handler = Approvals(call.state().clone());
    Ok(rpc!(call, "Approvals/ListApprovals", handler, list_approvals, request)?.approvals)
}

async fn list(call: Call, NoParams {}: NoParams) -> Reply {
    let mut rows = Vec::new();
    for approval in listed(&call, "pending").await? {
        rows.push(pending(&call, &approval).await);
    }
    Ok(rows.into())
}

/// A pending approval, as clients show it.
async fn pending(call: &Call, approval: &pb::Approval) -> Value {
    json!({
        "id": approval.id,
        "request": {
            "command": approval.subject,
            "commandPreview": approval.summary,
            "agentId": approval.agent,
            "sessionKey": session_key(call, &approval.session_id).await,
            "ask": "always",
            "security": "allowlist",
            "host": "sandbox",
            "allowedDecisions": ["allow-once", "allow-always", "deny"],
        },
        "createdAtMs": millis(approval.asked_at.as_ref()),
        "expiresAtMs": millis(approval.expires_at.as_ref()),
    })
}

async fn session_key(call: &Call, session: &str) -> Option<String> {
    let view = call.state().sessions.views().session(call.tenant(), session.parse().ok()?).await;
    Some(keys::shown(&view.ok()?.key))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdParams {
    id: String,
}

async fn find(call: &Call, approval: String) -> Result<pb::Approval, MethodError> {
    let request = pb::GetApprovalRequest { approval };
    let handler = Approvals(call.state().clone());
    let found = rpc!(call, "Approvals/GetApproval", handler, get_approval, request);
    let found = found.map_err(not_found)?;
    found.approval.ok_or_else(|| not_found(MethodError::invalid("there is no such approval")))
}

fn not_found(error: MethodError) -> MethodError {
    match error.kind {
        ErrorKind::Invalid => MethodError { kind: ErrorKind::ApprovalNotFound, ..error },
        _ => error,
    }
}

async fn get(call: Call, params: IdParams) -> Reply {
    let approval = find(&call, params.id).await?;
    let mut shown = pending(&call, &approval).await;
    shown["commandText"] = approval.subject.as_str().into();
    shown["commandPreview"] = approval.summary.as_str().into();
    shown["status"] = status(&approval).into();
    Ok(shown)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResolveParams {
    id: String,
    decision: String,
    #[serde(default)]
    reason: String,
}

async fn decide(
    call: &Call,
    params: ResolveParams,
) -> Result<pb::ResolveApprovalResponse, MethodError> {
    let decision = match params.decision.as_str() {
        "allow-once" | "allow" => pb::Decision::AllowOnce,
        "allow-always" => pb::Decision::AllowAlways,
        "deny" => pb::Decision::Deny,
        _ => {
            return Err(MethodError::invalid(
                "invalid params: decision: must be `allow-once`, `allow-always` or `deny`",
            ));
        }
    };
    let request = pb::ResolveApprovalRequest {
        approval: params.id,
        decision: decision.into(),
        reason: params.reason,
    };
    let handler = Approvals(call.state().clone());
    let resolved = rpc!(call, "Approvals/ResolveApproval", handler, resolve_approval, request);
    let resolved = resolved.map_err(not_found)?;
    let approval = resolved.approval.clone().unwrap_or_default();
    let payload = json!({
        "id": approval.id,
        "decision": params.decision,
        "resolvedBy": approval.decided_by,
        "ts": now_ms(),
    });
    let names = ("exec.approval.resolved", "agent.approval_resolved");
    call.hub.publish(&Event::new(names, &payload, Audience::Approvers));
    Ok(resolved)
}

async fn resolve(call: Call, params: ResolveParams) -> Reply {
    decide(&call, params).await?;
    Ok(json!({ "ok": true }))
}

async fn resolve_snapshot(call: Call, params: ResolveParams) -> Reply {
    let resolved = decide(&call, params).await?;
    let approval = resolved.approval.unwrap_or_default();
    Ok(json!({
        "applied": !resolved.duplicate,
        "approval": snapshot_of(&call, &approval).await,
    }))
}

async fn snapshot(call: Call, params: IdParams) -> Reply {
    let approval = find(&call, params.id).await?;
    Ok(json!({ "approval": snapshot_of(&call, &approval).await }))
}

fn status(approval: &pb::Approval) -> &'static str {
    match approval.state.as_str() {
        "pending" => "pending",
        "allowed_once" | "allowed_always" => "allowed",
        "denied" => "denied",
        _ => "expired",
    }
}

async fn snapshot_of(call: &Call, approval: &pb::Approval) -> Value {
    let mut shown = json!({
        "id": approval.id,
        "status": status(approval),
        "urlPath": format!("/approvals/{}", approval.id),
        "createdAtMs": millis(approval.asked_at.as_ref()),
        "expiresAtMs": millis(approval.expires_at.as_ref()),
        "presentation": {
            "kind": "exec",
            "commandText": approval.subject,
            "commandPreview": approval.summary,
            "allowedDecisions": ["allow-once", "allow-always", "deny"],
            "agentId": approval.agent,
            "sessionKey": session_key(call, &approval.session_id).await,
        },
    });
    if approval.decided_at.is_some() {
        shown["resolvedAtMs"] = millis(approval.decided_at.as_ref()).into();
        shown["decision"] = match approval.state.as_str() {
            "allowed_once" => "allow-once",
            "allowed_always" => "allow-always",
            _ => "deny",
        }
        .into();
        shown["reason"] = "user".into();
    }
    shown
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryParams {
    limit: Option<usize>,
}

async fn history(call: Call, params: HistoryParams) -> Reply {
    let mut shown = Vec::new();
    let decided = listed(&call, "").await?;
    let decided = decided.iter().filter(|approval| approval.state != "pending");
    for approval in decided.take(params.limit.unwrap_or(50)) {
        shown.push(snapshot_of(&call, approval).await);
    }
    Ok(json!({ "approvals": shown }))
}

async fn grants(call: Call, NoParams {}: NoParams) -> Reply {
    let handler = Approvals(call.state().clone());
    let request = pb::ListApprovalRulesRequest::default();
    let listed = rpc!(call, "Approvals/ListApprovalRules", handler, list_approval_rules, request)?;
    let grant = |rule: &pb::ApprovalRule| {
        json!({
            "id": rule.id,
            "agentId": rule.agent,
            "pattern": if rule.pattern.is_empty() { &rule.summary } else { &rule.pattern },
            "tool": rule.tool,
            "createdAtMs": millis(rule.created_at.as_ref()),
        })
    };
    Ok(json!({ "grants": listed.rules.iter().map(grant).collect::<Vec<_>>() }))
}

/// What always allows calls, in the form of OpenClaw's file of approvals.
async fn file(call: Call, NoParams {}: NoParams) -> Reply {
    let handler = Approvals(call.state().clone());
    let request = pb::ListApprovalRulesRequest::default();
    let listed = rpc!(call, "Approvals/ListApprovalRules", handler, list_approval_rules, request)?;
    let mut agents = json!({});
    for rule in &listed.rules {
        let pattern = if rule.pattern.is_empty() { &rule.summary } else { &rule.pattern };
        let entry = json!({ "id": rule.id, "pattern": pattern, "source": "allow-always" });
        match &mut agents[rule.agent.as_str()]["allowlist"] {
            Value::Array(entries) => entries.push(entry),
            missing => *missing = json!([entry]),
        }
    }
    let file = json!({ "version": 1, "defaults": {}, "agents": agents });
    let hash = super::config::hash(&file);
    Ok(json!({ "path": "holdfast", "exists": true, "hash": hash, "file": file }))
}

async fn revoke(call: Call, params: IdParams) -> Reply {
    let handler = Approvals(call.state().clone());
    let request = pb::ForgetApprovalRuleRequest { id: params.id };
    rpc!(call, "Approvals/ForgetApprovalRule", handler, forget_approval_rule, request)?;
    Ok(json!({ "ok": true, "revoked": true }))
}
