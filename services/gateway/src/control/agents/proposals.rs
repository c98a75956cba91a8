//! The service `Proposals`: changes of themselves that agents ask for.

use holdfast_directory::Agent;
use holdfast_proposals::{Decider, Proposal, ProposalFilter, ProposalState};
use holdfast_proto::gateway::v1::{
    self as pb, ApproveAgentProposalRequest, ApproveAgentProposalResponse, GetAgentProposalRequest,
    GetAgentProposalResponse, ListAgentProposalsRequest, ListAgentProposalsResponse,
    RejectAgentProposalRequest, RejectAgentProposalResponse, RollBackAgentProposalRequest,
    RollBackAgentProposalResponse, proposals_server::Proposals as Service,
};
use holdfast_types::{ProposalId, TenantId};
use tonic::{Request, Response, Status};

use super::State;
use crate::{
    Error, audit,
    control::{AgentNames, actor, non_empty, timestamp, work::page_limit},
};

const DEFAULT_PROPOSALS: u32 = 50;
const MAX_PROPOSALS: u32 = 500;

/// Implements `holdfast.gateway.v1.Proposals`.
#[derive(Debug)]
pub struct Proposals(pub State);

impl Proposals {
    async fn agent(&self, tenant: TenantId, named: &str) -> Result<Option<Agent>, Error> {
        match named {
            "" => Ok(None),
            named => Ok(Some(self.0.directory.agents().get(tenant, named).await?)),
        }
    }

    async fn shown(
        &self,
        tenant: TenantId,
        proposal: Proposal,
    ) -> Result<Option<pb::AgentProposal>, Error> {
        let names = self.0.agent_names(tenant).await?;
        Ok(Some(proposal_of(proposal, &names)))
    }
}

#[tonic::async_trait]
impl Service for Proposals {
    async fn list_agent_proposals(
        &self,
        request: Request<ListAgentProposalsRequest>,
    ) -> Result<Response<ListAgentProposalsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let limit = page_limit(request.limit, DEFAULT_PROPOSALS, MAX_PROPOSALS)?;
        let state = non_empty(request.state).map(|state| state.parse::<ProposalState>());
        let state = state.transpose().map_err(Error::from)?;
        let agent = self.agent(caller.tenant, &request.agent).await?.map(|agent| agent.id);

        let filter = ProposalFilter { agent, state, limit };
        let found = self.0.proposals.list(caller.tenant, filter).await.map_err(Error::from)?;

        let names = self.0.agent_names(caller.tenant).await?;
        let shown = found.into_iter().map(|proposal| pb::AgentProposal {
            content: String::new(),
            diff: String::new(),
            ..proposal_of(proposal, &names)
        });
        Ok(Response::new(ListAgentProposalsResponse { proposals: shown.collect() }))
    }

    async fn get_agent_proposal(
        &self,
        request: Request<GetAgentProposalRequest>,
    ) -> Result<Response<GetAgentProposalResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let id = proposal_id(&request.id)?;

        let found = self.0.proposals.get(caller.tenant, id).await.map_err(Error::from)?;

        let proposal = self.shown(caller.tenant, found).await?;
        Ok(Response::new(GetAgentProposalResponse { proposal }))
    }

    async fn approve_agent_proposal(
        &self,
        request: Request<ApproveAgentProposalRequest>,
    ) -> Result<Response<ApproveAgentProposalResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let (id, by) = (proposal_id(&request.id)?, Decider(actor(&caller)));

        let applied = self.0.proposals.approve(caller.tenant, id, by).await;

        let proposal = self.shown(caller.tenant, applied.map_err(Error::from)?).await?;
        Ok(Response::new(ApproveAgentProposalResponse { proposal }))
    }

    async fn reject_agent_proposal(
        &self,
        request: Request<RejectAgentProposalRequest>,
    ) -> Result<Response<RejectAgentProposalResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let (id, by) = (proposal_id(&request.id)?, Decider(actor(&caller)));

        let rejected = self.0.proposals.reject(caller.tenant, id, (by, &request.reason)).await;

        let proposal = self.shown(caller.tenant, rejected.map_err(Error::from)?).await?;
        Ok(Response::new(RejectAgentProposalResponse { proposal }))
    }

    async fn roll_back_agent_proposal(
        &self,
        request: Request<RollBackAgentProposalRequest>,
    ) -> Result<Response<RollBackAgentProposalResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let (id, by) = (proposal_id(&request.id)?, Decider(actor(&caller)));

        let taken_back = self.0.proposals.roll_back(caller.tenant, id, by).await;

        let proposal = self.shown(caller.tenant, taken_back.map_err(Error::from)?).await?;
        Ok(Response::new(RollBackAgentProposalResponse { proposal }))
    }
}

fn proposal_id(text: &str) -> Result<ProposalId, Error> {
    Ok(text.parse()?)
}

fn proposal_of(proposal: Proposal, names: &AgentNames) -> pb::AgentProposal {
    pb::AgentProposal {
        id: proposal.id.to_string(),
        agent: names.of(proposal.agent),
        session: proposal.session.to_string(),
        kind: proposal.kind.to_string(),
        target: proposal.target,
        goal: proposal.goal,
        risk: proposal.risk,
        benefit: proposal.benefit,
        content: proposal.content,
        diff: proposal.diff,
        base: proposal.base,
        outside: proposal.outside,
        state: proposal.state.to_string(),
        reason: proposal.reason,
        decided_by: proposal.decided_by.unwrap_or_default(),
        decided_at: proposal.decided_at.map(timestamp),
        applied_as: proposal.applied_as.unwrap_or_default(),
        created_at: Some(timestamp(proposal.created_at)),
    }
}
