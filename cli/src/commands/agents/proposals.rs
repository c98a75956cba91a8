//! `holdfast proposals`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    AgentProposal, ApproveAgentProposalRequest, GetAgentProposalRequest, ListAgentProposalsRequest,
    RejectAgentProposalRequest, RollBackAgentProposalRequest,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 7] = ["id", "agent", "kind", "target", "state", "goal", "created_at"];

#[derive(Debug, Subcommand)]
pub enum Proposals {
    /// List proposals, newest first
    List {
        /// Only those of this agent, by name or id
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
        /// Only those in this state
        #[arg(long, default_value = "", hide_default_value = true,
              value_parser = ["proposed", "approved", "rejected", "applied", "rolled_back", "failed"])]
        state: String,
        /// Maximum number of proposals to list, at most 500
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show a proposal with its reasons and its difference
    Show {
        /// Id of the proposal
        id: String,
    },
    /// Approve a proposal, and apply it as a new version
    Approve {
        /// Id of the proposal
        id: String,
    },
    /// Reject a proposal
    Reject {
        /// Id of the proposal
        id: String,
        /// Why, for the agent
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Take an applied proposal back, as a new version
    Rollback {
        /// Id of the proposal
        id: String,
    },
}

impl Proposals {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let proposals = || client.proposals();
        let found = match self {
            Self::List { agent, state, limit } => {
                let request = client.request(ListAgentProposalsRequest { agent, state, limit });
                let listed = client.answer(proposals().list_agent_proposals(request).await)?;
                return screen.list(&COLUMNS, listed.proposals.iter().map(view).collect());
            }
            Self::Show { id } => {
                let request = client.request(GetAgentProposalRequest { id });
                let found = client.answer(proposals().get_agent_proposal(request).await)?.proposal;
                let found = found.unwrap_or_default();
                screen.one(&COLUMNS, &view(&found))?;
                for (name, text) in
                    [("risk", &found.risk), ("benefit", &found.benefit), ("reason", &found.reason)]
                {
                    if !text.is_empty() {
                        screen.note(&format!("{name}: {text}"))?;
                    }
                }
                return screen.note(&found.diff);
            }
            Self::Approve { id } => {
                let request = client.request(ApproveAgentProposalRequest { id });
                client.answer(proposals().approve_agent_proposal(request).await)?.proposal
            }
            Self::Reject { id, reason } => {
                let request = client.request(RejectAgentProposalRequest { id, reason });
                client.answer(proposals().reject_agent_proposal(request).await)?.proposal
            }
            Self::Rollback { id } => {
                let request = client.request(RollBackAgentProposalRequest { id });
                client.answer(proposals().roll_back_agent_proposal(request).await)?.proposal
            }
        };
        screen.one(&COLUMNS, &view(&found.unwrap_or_default()))
    }
}

fn view(proposal: &AgentProposal) -> Value {
    json!({
        "id": proposal.id,
        "agent": proposal.agent,
        "session": proposal.session,
        "kind": proposal.kind,
        "target": proposal.target,
        "goal": proposal.goal,
        "risk": proposal.risk,
        "benefit": proposal.benefit,
        "content": proposal.content,
        "diff": proposal.diff,
        "base": proposal.base,
        "outside": proposal.outside,
        "state": proposal.state,
        "reason": proposal.reason,
        "decided_by": proposal.decided_by,
        "decided_at": time(proposal.decided_at.as_ref()),
        "applied_as": proposal.applied_as,
        "created_at": time(proposal.created_at.as_ref()),
    })
}
