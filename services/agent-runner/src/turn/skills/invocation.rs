//! Skills that users invoke by name (spec UIC-005, SKL-013), and that models read (CTX-012).

use std::sync::Arc;

use holdfast_agent::prompt;
use holdfast_skills::{SKILLS_FOLDER, SkillName, SkillSet};
use holdfast_tools::file_path;
use holdfast_types::{Body, Entry, ToolCall, ToolSpec};
use serde::Deserialize;
use tracing::warn;

use crate::{
    agents::snapshots::AgentSnapshot,
    turn::{
        calls,
        state::{TurnState, count_thoughts},
    },
};

/// Tool that reads skills.
const READ_TOOL: &str = "read";

/// A skill that a user invoked by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvokedSkill {
    name: String,
    location: String,
}

impl InvokedSkill {
    pub(crate) fn for_prompt(&self) -> prompt::CalledSkill<'_> {
        prompt::CalledSkill { name: &self.name, location: &self.location }
    }
}

/// Determines the skill that the newest message invokes. If it cannot be used, returns an
/// answer that says why; then no model is asked.
pub(crate) fn find_invoked_skill(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Option<Entry> {
    let said = turn.journal.turn().iter().rev().find_map(|entry| match entry {
        Entry::Heard { body, .. } if is_from_person(body) => Some(body.text.as_str()),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    let (called, unusable) = match said.map(|said| snapshot.skills.skill_set.parse_invocation(said))
    {
        None | Some(Ok(None)) => (None, None),
        Some(Ok(Some(found))) => {
            let (name, location) = (found.skill.name().to_owned(), &found.skill.location);
            (Some(InvokedSkill { name, location: location.clone() }), None)
        }
        Some(Err(unusable)) => (None, Some(unusable.to_string())),
    };
    turn.invoked_skill = called;
    let text = unusable.filter(|_| count_thoughts(turn.journal.turn()) == 0)?;
    Some(super::dispatch::fixed_answer(text))
}

/// Skills for the prompt: those that the agent's options permit, if the model can read them.
pub(crate) fn prompt_skills<'a>(
    snapshot: &'a AgentSnapshot,
    (tools, more): (&[ToolSpec], &[String]),
) -> Vec<prompt::Skill<'a>> {
    let can_read =
        tools.iter().any(|tool| tool.name == READ_TOOL) || more.iter().any(|t| t == READ_TOOL);
    if !can_read {
        return Vec::new();
    }
    listed_skills(snapshot)
}

/// Whether the list of skills in the prompt has text from outside.
pub(crate) fn lists_outside_text(snapshot: &AgentSnapshot) -> bool {
    let mut outside = snapshot.skills.outside_paths().peekable();
    if outside.peek().is_none() {
        return false;
    }
    let listed = listed_skills(snapshot);
    outside.any(|path| listed.iter().any(|skill| skill.location == path))
}

/// Skills that the agent's options permit.
fn listed_skills(snapshot: &AgentSnapshot) -> Vec<prompt::Skill<'_>> {
    let options = &snapshot.context;
    let lists = |list: &[String], name: &str| list.iter().any(|listed| listed == name);
    let mut skills = snapshot.skills.skill_set.for_prompt(&[]);
    skills.retain(|skill| {
        options.include_skills.as_deref().is_none_or(|list| lists(list, skill.name))
            && !options.exclude_skills.as_deref().is_some_and(|list| lists(list, skill.name))
    });
    skills
}

/// Records that a call read a skill.
pub(crate) async fn record_skill_read(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
) {
    if turn.tools.canonical_name(&call.tool) != Some(READ_TOOL) || turn.is_flushing() {
        return;
    }
    let Some(name) = read_skill(&call.input, &snapshot.skills.skill_set) else { return };
    let claim = &turn.lease.claim;
    let noted = turn
        .worker
        .workspaces
        .record_skill_use(
            claim.tenant,
            snapshot.agent,
            &name,
            claim.session,
            &calls::call_key(turn, call),
        )
        .await;
    if let Err(error) = noted {
        // A missing record must not fail the turn.
        warn!(error = &error as &dyn std::error::Error, "a skill's use was not noted");
    }
}

/// Whether a person wrote the message for themselves.
pub(super) fn is_from_person(body: &Body) -> bool {
    !body.silent && body.event.is_none() && body.role.is_none()
}

/// Name of the skill whose `SKILL.md` the input of the tool `read` names.
fn read_skill(input: &str, skill_set: &Arc<SkillSet>) -> Option<String> {
    #[derive(Deserialize)]
    struct Input {
        path: String,
    }
    let Input { path } = serde_json::from_str(input).ok()?;
    let path = file_path(&path).ok()?;
    let parts: Vec<&str> = path.split('/').collect();
    let [SKILLS_FOLDER, folder, "SKILL.md"] = parts.as_slice() else { return None };
    // A skill that was just installed is not on the shelf yet.
    let name: SkillName = folder.parse().ok()?;
    Some(skill_set.find(folder).map_or_else(|| name.to_string(), |skill| skill.name().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_a_skill_is_told_from_other_reads() {
        let skill_set = Arc::new(SkillSet::default());
        let read = |path: &str| {
            let input = serde_json::json!({ "path": path, "lines": 5 }).to_string();
            read_skill(&input, &skill_set)
        };

        assert_eq!(read("skills/plan-a-trip/SKILL.md").as_deref(), Some("plan-a-trip"));
        assert_eq!(read("./skills/x/SKILL.md").as_deref(), Some("x"));
        for other in ["skills/x/more/SKILL.md", "skills/SKILL.md", "a/x/SKILL.md", "skills/x/y.md"]
        {
            assert_eq!(read(other), None, "{other}");
        }
        assert_eq!(read_skill("no json", &skill_set), None);
    }
}
