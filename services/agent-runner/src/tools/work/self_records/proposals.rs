//! Proposals as the tool `self` sees them. They are made and applied where the agent may change the
//! files that define it: in its owner's conversations, and in sessions of its own.

use anyhow::Context as _;
use holdfast_directory::Actor;
use holdfast_proposals::{
    Decider, Error, NewProposal, Proposal, ProposalFilter, ProposalState, Proposals,
};
use holdfast_session::Sessions;
use holdfast_tools::{Approval, Call, NewSelfProposal, SelfProposals, SubjectText};
use holdfast_types::{Fault as _, Kind, ProposalId, ProposalKind};

use crate::tools::{tool_context::ToolContext, work::todos};

/// Proposals that the agent is shown.
const SHOWN_PROPOSALS: u32 = 20;

/// File that a conversation may change if it may propose changes of the agent.
const DEFINING_FILE: &str = "self.md";

#[derive(Debug)]
pub(crate) struct AgentProposals {
    pub(crate) proposals: Proposals,
    pub(crate) sessions: Sessions,
}

impl SelfProposals for AgentProposals {
    async fn read(
        &self,
        call: &Call,
        kind: ProposalKind,
        name: &str,
    ) -> anyhow::Result<Result<String, String>> {
        if let Err(refused) = check_place(call)? {
            return Ok(Err(refused));
        }
        let found = self.proposals.current((call.tenant, call.agent), kind, name).await;
        Ok(split(found)?.and_then(|text| match text.is_empty() {
            true => Err(format!("there is no {kind} `{name}` yet")),
            false => Ok(text),
        }))
    }

    async fn propose(
        &self,
        call: &Call,
        proposal: NewSelfProposal,
    ) -> anyhow::Result<Result<String, String>> {
        if let Err(refused) = check_place(call)? {
            return Ok(Err(refused));
        }
        let list = self.sessions.root_of(call.tenant, call.session).await?;
        let NewSelfProposal { kind, name, content, goal, risk, benefit } = proposal;
        let new = NewProposal {
            key: call.key.clone(),
            place: todos::place(call, list)?,
            kind,
            target: name,
            content,
            goal,
            risk,
            benefit,
            outside: ToolContext::of(call)?.has_read_outside_text,
        };
        let made = self.proposals.propose(call.tenant, &new).await;
        Ok(split(made)?.map(|made| {
            format!(
                "Proposed as {}. It changes nothing until a person has decided about it.\n{}",
                made.id, made.diff
            )
        }))
    }

    async fn list(&self, call: &Call) -> anyhow::Result<String> {
        let filter =
            ProposalFilter { agent: Some(call.agent), state: None, limit: SHOWN_PROPOSALS };
        let found = self.proposals.list(call.tenant, filter).await?;
        if found.iter().any(|one| one.outside) {
            ToolContext::of(call)?.note_outside_text();
        }
        let lines = found.iter().map(|one| {
            let reason =
                if one.reason.is_empty() { String::new() } else { format!(" ({})", one.reason) };
            format!("{} {}{reason}: {} {}: {}", one.id, one.state, one.kind, one.target, one.goal)
        });
        let lines: Vec<String> = lines.collect();
        Ok(if lines.is_empty() { "There are no proposals.".to_owned() } else { lines.join("\n") })
    }

    async fn approval(&self, call: &Call, proposal: &str) -> anyhow::Result<Approval> {
        // The call itself tells what is wrong.
        let Ok(found) = self.own(call, proposal).await? else { return Ok(Approval::Never) };
        if found.state != ProposalState::Proposed || check_place(call)?.is_err() {
            return Ok(Approval::Never);
        }
        let subject = SubjectText::default()
            .with("proposal", &found.id.to_string())
            .with("changes", &format!("{} {}", found.kind, found.target))
            .with("goal", &found.goal)
            .with("risk", &found.risk)
            .with("benefit", &found.benefit)
            .with("text from outside", if found.outside { "was read before" } else { "none" })
            .with("diff", &found.diff)
            .with("new text", &found.content);
        let summary = format!("apply the proposal for {} {}", found.kind, found.target);
        Ok(Approval::Ask { subject: subject.into(), summary, pattern: None })
    }

    async fn apply(&self, call: &Call, proposal: &str) -> anyhow::Result<Result<String, String>> {
        if let Err(refused) = check_place(call)? {
            return Ok(Err(refused));
        }
        let found = match self.own(call, proposal).await? {
            Ok(found) => found,
            Err(told) => return Ok(Err(told)),
        };
        let by = Decider(Actor::Agent(call.agent));
        let applied = self.proposals.approve(call.tenant, found.id, by).await;
        Ok(split(applied)?.map(|applied| {
            let version = applied.applied_as.unwrap_or_default();
            format!("Applied {} {} as version {version}.", applied.kind, applied.target)
        }))
    }
}

impl AgentProposals {
    /// A proposal of the agent itself. The inner error is for the model.
    async fn own(&self, call: &Call, proposal: &str) -> anyhow::Result<Result<Proposal, String>> {
        let missing =
            || format!("there is no proposal `{}`", proposal.chars().take(80).collect::<String>());
        let Ok(id) = proposal.parse::<ProposalId>() else { return Ok(Err(missing())) };
        let found = split(self.proposals.get(call.tenant, id).await)?;
        Ok(found.and_then(|found| match found.agent == call.agent {
            true => Ok(found),
            false => Err(missing()),
        }))
    }
}

/// Refuses a conversation that may not change what defines the agent.
fn check_place(call: &Call) -> anyhow::Result<Result<(), String>> {
    Ok(match ToolContext::of(call)?.file_view.may_change(DEFINING_FILE) {
        true => Ok(()),
        false => {
            Err("proposals are made and applied in a conversation with your owner only, and this \
                      is none"
                .to_owned())
        }
    })
}

/// Separates what the model is told from internal failures.
fn split<T>(result: Result<T, Error>) -> anyhow::Result<Result<T, String>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) => match error.kind() {
            Kind::Invalid | Kind::NotFound | Kind::Conflict | Kind::Exhausted | Kind::Forbidden => {
                Ok(Err(error.to_string()))
            }
            Kind::Unauthenticated | Kind::Unavailable | Kind::Internal => {
                Err(error).context("proposals")
            }
        },
    }
}
