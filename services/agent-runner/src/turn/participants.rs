//! Participants of a turn, the policy that applies to them, and the refusal of calls.

use std::sync::Arc;

use holdfast_agent::{
    access::{ConversationAccess, SessionFacts},
    bootstrap::Audience,
    file_view::FileSpace,
    policy::{Decision, DecisionSource, LocalTime, Subject, TurnAuthors},
};
use holdfast_tools::{TOOL_NOT_ALLOWED, ToolError};
use holdfast_types::{Author, DmScope, Entry, SessionKind, ToolCall, is_self_improvement};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;
use tracing::{info, warn};

use crate::{
    agents::snapshots::AgentSnapshot,
    tools::shell::CommandPolicy,
    turn::{limits, state::TurnState, think::is_tool_lookup},
};

impl TurnState<'_> {
    /// Whose the conversation is, and with which rights the turn acts.
    pub(crate) fn access(&self, snapshot: &AgentSnapshot) -> ConversationAccess {
        self.access_for_scope(snapshot.dm_scope)
    }

    /// The same with a given scope of direct messages.
    pub(crate) fn access_for_scope(&self, dm_scope: DmScope) -> ConversationAccess {
        let always = self.policy.turn_authors(authors(self.journal.entries()));
        let session = SessionFacts { kind: self.kind, key: &self.key, dm_scope };
        ConversationAccess::decide(&session, self.participants(), &always)
            .with_files(self.requester_files())
    }

    /// Files of a subagent's requester.
    fn requester_files(&self) -> Option<FileSpace> {
        FileSpace::parse(self.task.as_ref()?.given.files_of.as_deref()?)
    }

    /// Whether the agent looks after itself in this session.
    pub(crate) fn is_self_improvement(&self) -> bool {
        self.kind == SessionKind::Work && is_self_improvement(&self.key)
    }

    /// Authors of this turn's messages.
    pub(crate) fn participants(&self) -> TurnAuthors {
        self.policy.turn_authors(authors(self.journal.turn()))
    }

    /// Author of what this turn causes later: of a job or a reminder that it sets, of an agent that it
    /// wakes. `None` is the mesh's own.
    ///
    /// With the owner's rights, this turn's authors are all owners. Without them, what the turn says
    /// may also be the words of those who wrote before: their author counts where this turn's would
    /// gain the owner's rights later.
    pub(crate) fn author(&self, audience: Audience) -> Option<Author> {
        let now: Vec<&Author> = authors(self.journal.turn()).collect();
        let has_owner = now.is_empty() || self.participants().is_owner();
        let counted = match has_owner && !audience.has_owner_rights() {
            true => authors(self.journal.entries()).collect(),
            false => now,
        };
        common_author(&counted, || self.policy.turn_authors(counted.iter().copied()).roles)
    }
}

/// Loads the current policy of the tenant and the agent.
pub(crate) async fn load_policy(turn: &mut TurnState<'_>) -> Result<(), crate::error::Error> {
    let found = turn.worker.policies.find(&turn.tools, turn.lease.claim.tenant, turn.agent);
    turn.policy = found.await?;
    Ok(())
}

/// Policy for this turn's commands.
pub(crate) fn command_policy(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> CommandPolicy {
    CommandPolicy::new(Arc::clone(&turn.policy), policy_subject(turn, snapshot))
        .with_elevated(turn.effective_elevated())
}

/// Facts about this turn that the policy may depend on.
pub(crate) fn policy_subject(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> Subject {
    let ConversationAccess { is_owner, authors, .. } = turn.access(snapshot);
    let mut messages = turn.journal.tool_limits();
    messages.extend(limits::tool_limits(turn, snapshot));
    let target = turn.conversation_target();
    let place = target.as_ref();
    Subject {
        is_owner,
        roles: authors.roles,
        user: authors.user,
        channel: place.map(|place| place.channel.clone()),
        chat: place.map(|place| place.chat.clone()),
        model: Some(snapshot.model_id.clone()),
        tools: snapshot.tools.clone(),
        bundle: turn.given_tools().cloned(),
        messages,
        now: local_time(Timestamp::now(), &snapshot.zone),
        ..Subject::new(turn.kind)
    }
}

/// Decision of the policy about a call: its tool and its input.
pub(crate) fn decide(turn: &TurnState<'_>, snapshot: &AgentSnapshot, call: &ToolCall) -> Decision {
    let input = serde_json::from_str(&call.input).unwrap_or(Value::Null);
    turn.policy.view(&policy_subject(turn, snapshot)).decide_call(&call.tool, &input)
}

/// Refuses and records a call that the policy denies: the model may name a tool that it was not
/// offered (spec POL-014).
pub(crate) async fn check_policy(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
) -> Result<(), ToolError> {
    // The registry reports unknown names.
    let Some(tool) = turn.tools.canonical_name(&call.tool).filter(|tool| !is_tool_lookup(tool))
    else {
        return Ok(());
    };
    let (layer, rule) = match decide(turn, snapshot, call) {
        // Approvals are requested before calls are made.
        Decision::Allow | Decision::NeedApproval { .. } => return Ok(()),
        Decision::Deny { layer, rule } => (layer, rule),
    };
    metrics::counter!(
        "holdfast_runner_policy_denied_total",
        "layer" => layer.as_str(),
        "tool" => turn.tools.metric_label(&call.tool),
    )
    .increment(1);
    info!(gen_ai.tool.name = tool, layer = layer.as_str(), "a call was refused by the policy");
    let why = format!("{tool}: {}: {rule}", layer.as_str());
    let (claim, directory) = (&turn.lease.claim, &turn.worker.directory);
    let recorded =
        directory.policies().record_refusal(claim.tenant, snapshot.agent, turn.run, &why).await;
    if let Err(error) = recorded {
        // The journal has the refusal, too.
        warn!(error = &error as &dyn std::error::Error, "a refusal is not in the audit log");
    }
    Err(ToolError::Tell(match layer {
        DecisionSource::Action | DecisionSource::Exec => {
            format!("this call is refused: {rule}")
        }
        // Other reasons are not for the participants to know.
        DecisionSource::Layer(_) | DecisionSource::Visibility | DecisionSource::Catalog => {
            TOOL_NOT_ALLOWED.to_owned()
        }
    }))
}

/// Authors of messages that ask for something; not of quotes, and not the mesh itself.
pub(crate) fn authors<'a>(
    entries: impl IntoIterator<Item = &'a Entry>,
) -> impl Iterator<Item = &'a Author> {
    entries.into_iter().filter_map(|entry| match entry {
        Entry::Heard { body, .. } if !body.silent => body.author.as_ref(),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    })
}

/// Returns one author with the rights that all of these have: the author, if it is one, with the roles
/// that all messages have. `common_roles` are those of several, by the policy.
fn common_author(
    authors: &[&Author],
    common_roles: impl FnOnce() -> Vec<String>,
) -> Option<Author> {
    let (first, others) = authors.split_first()?;
    if others.iter().any(|other| other.id != first.id) {
        return Some(Author::several(common_roles()));
    }
    let roles = first.roles.iter();
    let roles = roles.filter(|role| others.iter().all(|other| other.roles.contains(role)));
    Some(Author { id: first.id.clone(), roles: roles.cloned().collect() })
}

/// Time in the agent's time zone.
fn local_time(at: Timestamp, zone: &TimeZone) -> Option<LocalTime> {
    let there = at.to_zoned(zone.clone());
    LocalTime::of(there.weekday().to_monday_zero_offset(), there.hour(), there.minute())
}

#[cfg(test)]
mod tests {
    use holdfast_agent::policy::Weekday;
    use holdfast_types::Body;

    use super::*;

    #[test]
    fn the_time_is_that_of_the_agents_clock() {
        let at: Timestamp = "2026-01-04T23:30:00Z".parse().unwrap();
        let zone = TimeZone::get("Europe/Oslo").unwrap();

        let moment = |weekday, minute| Some(LocalTime { weekday, minute });
        assert_eq!(local_time(at, &TimeZone::UTC), moment(Weekday::Sun, 1_410));
        assert_eq!(local_time(at, &zone), moment(Weekday::Mon, 30));
    }

    #[test]
    fn several_authors_become_one_with_the_rights_of_all() {
        let author = |id: &str, roles: &[&str]| Author {
            id: id.to_owned(),
            roles: roles.iter().map(|&role| role.to_owned()).collect(),
        };
        let (owner, member) = (author("a:1", &["member", "owner"]), author("a:1", &["member"]));
        let other = author("a:2", &["member"]);
        let common = |authors: &[&Author]| common_author(authors, || vec!["member".to_owned()]);

        assert_eq!(common(&[]), None);
        assert_eq!(common(&[&owner, &owner]), Some(owner.clone()));
        assert_eq!(common(&[&owner, &member]), Some(member.clone()));
        assert_eq!(common(&[&owner, &other]), Some(Author::several(vec!["member".to_owned()])));
    }

    #[test]
    fn whoever_is_only_quoted_does_not_speak() {
        let heard = |id: Option<&str>, silent| {
            let author = id.map(|id| Author { id: id.to_owned(), roles: Vec::new() });
            Entry::Heard { seq: 1, body: Body { author, silent, ..Body::text("x") } }
        };
        let entries = [heard(Some("a:1"), false), heard(Some("a:2"), true), heard(None, false)];

        let ids: Vec<&str> = authors(&entries).map(|author| author.id.as_str()).collect();

        assert_eq!(ids, ["a:1"]);
    }
}
