//! Tests of the nine policy layers.

use std::sync::Arc;

use holdfast_types::SessionKind;
use serde_json::{Value, json};

use super::{
    Catalog, CompiledPolicy, Decision, Defaults, NATIVE, Origin, Settings, Subject, Tool, View,
};

mod calls;
mod layers;
mod properties;
mod variants;
mod visibility;

/// The 24, some companions, and the tools of some servers.
fn catalog() -> Arc<Catalog> {
    let beside =
        ["append_file", "delete_file", "list_files", "git", "email", "todo", "wallet", "self"];
    let mut tools: Vec<Tool> = NATIVE.iter().copied().chain(beside).map(Tool::native).collect();
    for (name, origin) in [
        ("jira_search", Origin::Mcp("jira".into())),
        ("jira_create", Origin::Mcp("jira".into())),
        ("telegram_poll", Origin::Mcp("telegram".into())),
        ("telegram_sticker", Origin::Mcp("telegram".into())),
        ("slack_huddle", Origin::Mcp("slack".into())),
        ("slack_workflow", Origin::Mcp("slack".into())),
        ("wecom_approval", Origin::Mcp("wecom".into())),
        ("wecom_meeting", Origin::Mcp("wecom".into())),
        ("mcp_github_issues", Origin::Mcp("github".into())),
        ("mcp_weather_今天", Origin::Mcp("weather".into())),
    ] {
        tools.push(Tool { name: name.into(), origin });
    }
    Arc::new(Catalog::new(tools).0)
}

fn settings(json: Value) -> Settings {
    Settings::parse(&json.to_string()).unwrap()
}

fn compiled(tenant: Value, agent: Value) -> CompiledPolicy {
    let (tenant, agent) = (settings(tenant), settings(agent));
    CompiledPolicy::new(catalog(), &Defaults::shipped(), &tenant, &agent).unwrap()
}

/// A tenant's policy and nothing else.
fn policy(tenant: Value) -> CompiledPolicy {
    compiled(tenant, json!({}))
}

fn main() -> Subject {
    Subject { is_owner: true, ..Subject::new(SessionKind::Main) }
}

/// A direct message, whose commands are isolated.
fn dm() -> Subject {
    Subject::new(SessionKind::Dm)
}

fn is_allowed(view: &View<'_>, tool: &str) -> bool {
    matches!(view.decide(tool), Decision::Allow | Decision::NeedApproval { .. })
}

/// Returns the layer and the rule that deny a tool, or `allow`.
fn told(view: &View<'_>, tool: &str) -> String {
    let explanation = view.explain(tool);
    match explanation.number {
        Some(number) => format!("{number}: {}", explanation.reason),
        None => format!("{}: {}", explanation.decision, explanation.reason),
    }
}

#[test]
fn the_catalogue_that_these_tests_stand_on_lost_no_tool() {
    assert_eq!(catalog().len(), 42);
}
