//! `holdfast kb proposals`, `accept` and `decline`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    AcceptProposalRequest, DeclineProposalRequest, GetProposalRequest, ListProposalsRequest,
    Proposal,
};
use serde_json::{Value, json};

use super::super::memory::source;
use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 8] =
    ["id", "state", "article", "version", "title", "agent", "user", "created_at"];

#[derive(Debug, Subcommand)]
pub enum ProposalCommand {
    /// List changes proposed by agents, newest first; or show one with its text
    Proposals {
        /// Id of the proposal to show, `itm_…`
        id: Option<String>,
        /// Include proposals that are already decided
        #[arg(long)]
        decided: bool,
        /// Maximum number of proposals to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Continue after this, the `next` of the previous list
        #[arg(long, default_value = "", hide_default_value = true)]
        after: String,
    },
    /// Accept a proposal and change the article
    Accept {
        /// Id of the proposal, `itm_…`
        id: String,
        /// Reason of the decision, for the record
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Decline a proposal; the article stays unchanged
    Decline {
        /// Id of the proposal, `itm_…`
        id: String,
        /// Reason of the decision, for the record
        #[arg(long)]
        reason: String,
    },
}

impl ProposalCommand {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Proposals { id: Some(id), .. } => {
                let request = client.request(GetProposalRequest { id });
                let got = client.answer(client.knowledge().get_proposal(request).await)?;
                let proposal = got.proposal.unwrap_or_default();
                let mut view = view(&proposal);
                view["text"] = json!(proposal.text);
                screen.one(&COLUMNS, &view)
            }
            Self::Proposals { id: None, decided, limit, after } => {
                let request = client.request(ListProposalsRequest { decided, limit, after });
                let listed = client.answer(client.knowledge().list_proposals(request).await)?;
                screen.list(&COLUMNS, listed.proposals.iter().map(view).collect())?;
                match listed.next.is_empty() || screen.is_json() {
                    true => Ok(()),
                    false => screen.note(&format!("more: --after {}", listed.next)),
                }
            }
            Self::Accept { id, reason } => {
                let request = client.request(AcceptProposalRequest { id, reason });
                let decided = client.answer(client.knowledge().accept_proposal(request).await)?;
                screen.one(&COLUMNS, &view(&decided.proposal.unwrap_or_default()))
            }
            Self::Decline { id, reason } => {
                let request = client.request(DeclineProposalRequest { id, reason });
                let decided = client.answer(client.knowledge().decline_proposal(request).await)?;
                screen.one(&COLUMNS, &view(&decided.proposal.unwrap_or_default()))
            }
        }
    }
}

fn view(proposal: &Proposal) -> Value {
    json!({
        "id": proposal.id,
        "state": proposal.state,
        "article": proposal.article,
        "version": proposal.version,
        "title": proposal.title,
        "agent": proposal.agent,
        "user": proposal.user,
        "session": proposal.session,
        "source": source(proposal.source.as_ref()),
        "created_at": time(proposal.created_at.as_ref()),
        "decided_by": proposal.decided_by,
        "reason": proposal.reason,
        "decided_at": time(proposal.decided_at.as_ref()),
        "made": proposal.made,
    })
}
