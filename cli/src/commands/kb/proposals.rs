//! `holdfast kb proposals`, `accept` and `decline`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    AcceptProposalRequest, DeclineProposalRequest, GetProposalRequest, ListProposalsRequest,
    Proposal,
};
use serde_json::{Value, json};

use crate::{
    client::Client,
    commands::{memory::source, view::time},
    error::Error,
    screen::Screen,
};

const COLUMNS: [&str; 8] =
    ["id", "state", "article", "version", "title", "agent", "user", "created_at"];

#[derive(Debug, Subcommand)]
pub enum Proposed {
    /// List changes that agents propose, newest first; or show one with its text
    Proposals {
        /// The one to show, as `itm_…`
        id: Option<String>,
        /// Those that were decided, too
        #[arg(long)]
        decided: bool,
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Go on after this, the `next` of the list before
        #[arg(long, default_value = "", hide_default_value = true)]
        after: String,
    },
    /// Make a change that was proposed
    Accept {
        /// The proposal, as `itm_…`
        id: String,
        /// Why, for whoever asks later
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Leave the article as it is
    Decline {
        /// The proposal, as `itm_…`
        id: String,
        /// Why, for whoever asks later
        #[arg(long)]
        reason: String,
    },
}

impl Proposed {
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
