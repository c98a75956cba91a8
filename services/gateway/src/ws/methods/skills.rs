//! `skills.*`: skills of an agent, and those of registries.

use holdfast_proto::gateway::v1::{self as pb, skills_server::Skills as _};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::call::{Call, rpc},
    Method, READ, Reply, method,
};
use crate::control::skills::Skills;
use crate::permissions::rights::ConversationRight;

pub const METHODS: &[Method] = &[
    method!("skills.status", READ, skills, ["sessionKey"]),
    method!("skills.library.list", READ, library, ["sessionKey"]),
    method!("skills.search", READ, search),
];

/// Skills that a search returns at most.
const MAX_RESULTS: u32 = 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AgentParams {
    #[serde(default)]
    agent_id: String,
}

async fn skills(call: Call, params: AgentParams) -> Reply {
    let place = call.place(&params.agent_id, "", ConversationRight::Read).await?;
    let agent = place.agent.name.to_string();
    let request = pb::ListSkillsRequest { agent: agent.clone() };
    let handler = Skills(call.state().clone());
    let listed = rpc!(call, "Skills/ListSkills", handler, list_skills, request)?;
    let rows: Vec<Value> = listed.skills.iter().map(skill).collect();
    Ok(json!({
        "agentId": agent,
        "workspaceDir": format!("/{agent}"),
        "managedSkillsDir": "",
        "skills": rows,
    }))
}

fn skill(skill: &pb::Skill) -> Value {
    let empty = json!({ "bins": [], "anyBins": [], "env": [], "config": [], "os": [] });
    let mut lacking = empty.clone();
    lacking["env"] = json!(skill.lacks);
    json!({
        "name": skill.name,
        "description": skill.description,
        "source": skill.scope,
        "filePath": skill.location,
        "baseDir": skill.location,
        "skillKey": skill.name,
        "bundled": false,
        "always": false,
        "disabled": false,
        "blockedByAllowlist": false,
        "blockedByAgentFilter": false,
        "eligible": skill.lacks.is_empty(),
        "modelVisible": skill.model_invocable,
        "userInvocable": skill.user_invocable,
        "commandVisible": skill.user_invocable,
        "requirements": empty,
        "missing": lacking,
        "configChecks": [],
        "install": [],
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LibraryParams {
    #[serde(default)]
    scope: LibraryScope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LibraryScope {
    Mine,
    Team,
    #[default]
    All,
}

/// Skills that all agents of the tenant share. Nobody has skills for themselves alone.
async fn library(call: Call, params: LibraryParams) -> Reply {
    let request = pb::ListSkillsRequest { agent: String::new() };
    let handler = Skills(call.state().clone());
    let listed = rpc!(call, "Skills/ListSkills", handler, list_skills, request)?;
    let shared = listed.skills.iter().filter(|skill| {
        params.scope != LibraryScope::Mine && matches!(skill.scope.as_str(), "tenant" | "platform")
    });
    let entry = |skill: &pb::Skill| {
        json!({
            "skillId": skill.name,
            "slug": skill.name,
            "name": skill.name,
            "ownerLabel": if skill.scope == "tenant" { "Tenant" } else { "Platform" },
            "description": skill.description,
            "ownerProfileId": null,
            "authorProfileId": null,
            "shared": true,
            "enabled": true,
            "removed": false,
            "revision": if skill.version.is_empty() { "1" } else { &skill.version },
            "createdAt": 0,
            "updatedAt": 0,
            "canEdit": false,
        })
    };
    Ok(json!({
        "entries": shared.map(entry).collect::<Vec<_>>(),
        "profileId": null,
        "defaultSelectionLimit": 0,
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchParams {
    #[serde(default)]
    query: String,
    limit: Option<u32>,
}

/// Searches the registries of the mesh. Without a query there is nothing to rank.
async fn search(call: Call, params: SearchParams) -> Reply {
    if params.query.trim().is_empty() {
        return Ok(json!({ "results": [] }));
    }
    let limit = params.limit.unwrap_or(MAX_RESULTS).clamp(1, MAX_RESULTS);
    let request = pb::FindSkillsRequest { query: params.query, limit };
    let handler = Skills(call.state().clone());
    let found = rpc!(call, "Skills/FindSkills", handler, find_skills, request)?;
    let result = |skill: &pb::FoundSkill| {
        json!({
            "slug": skill.slug,
            "displayName": skill.title,
            "summary": skill.summary,
            "version": skill.version,
            "score": skill.score,
            "registry": skill.registry,
        })
    };
    Ok(json!({
        "results": found.skills.iter().map(result).collect::<Vec<_>>(),
        "failed": found.failed,
    }))
}
