//! Changes of articles that agents proposed, and the decisions about them.

use holdfast_grpc::Caller;
use holdfast_proto::{
    gateway::v1::{self as pb, ListProposalsRequest, ListProposalsResponse},
    memory::v1 as kept,
};
use holdfast_types::TenantId;

use super::super::{
    super::{AgentNames, State},
    agent_name, full_access, source_of, with_timeout,
};
use crate::Error;

impl State {
    /// Lists a tenant's proposals, without their texts.
    pub(super) async fn proposals(
        &self,
        tenant: TenantId,
        request: ListProposalsRequest,
    ) -> Result<ListProposalsResponse, Error> {
        let ListProposalsRequest { decided, limit, after } = request;
        let asked = kept::ProposalsRequest { who: Some(full_access()), decided, limit, after };

        let listed = with_timeout(self.memory()?.kb_proposals(tenant, asked)).await?;

        let agents = self.agent_names(tenant).await?;
        let proposals = listed.proposals.into_iter().map(|one| proposal_of(one, &agents)).collect();
        Ok(ListProposalsResponse { proposals, next: listed.next })
    }

    pub(super) async fn proposal(
        &self,
        tenant: TenantId,
        id: String,
    ) -> Result<pb::Proposal, Error> {
        let asked = kept::GetProposalRequest { who: Some(full_access()), id };

        let proposal = with_timeout(self.memory()?.kb_proposal(tenant, asked)).await?;

        Ok(proposal_of(proposal, &self.agent_names(tenant).await?))
    }

    /// Accepts or declines a proposal, in the caller's name.
    pub(super) async fn decide(
        &self,
        caller: &Caller,
        id: String,
        (verdict, reason): (kept::Verdict, String),
    ) -> Result<pb::Proposal, Error> {
        let decide = kept::DecideRequest {
            who: Some(full_access()),
            id,
            verdict: verdict.into(),
            by: caller.name.clone(),
            reason,
        };

        let proposal = with_timeout(self.memory()?.kb_decide(caller.tenant, decide)).await?;

        Ok(proposal_of(proposal, &self.agent_names(caller.tenant).await?))
    }
}

fn proposal_of(proposal: kept::Proposal, agents: &AgentNames) -> pb::Proposal {
    let state = match proposal.verdict() {
        kept::Verdict::Unspecified => "open",
        kept::Verdict::Accepted => "accepted",
        kept::Verdict::Declined => "declined",
    };
    pb::Proposal {
        agent: agent_name(&proposal.agent, agents),
        source: proposal.provenance.map(source_of),
        state: state.to_owned(),
        id: proposal.id,
        article: proposal.article,
        version: proposal.version,
        title: proposal.title,
        text: proposal.text,
        user: proposal.user,
        session: proposal.session,
        created_at: proposal.created_at,
        decided_by: proposal.decided_by,
        reason: proposal.reason,
        decided_at: proposal.decided_at,
        made: proposal.made,
    }
}
