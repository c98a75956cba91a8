//! The service `Approvals`: requests for approval, decisions and rules.

use holdfast_bus::{Control, ControlKind};
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, ForgetApprovalRuleRequest, ForgetApprovalRuleResponse, GetApprovalRequest,
    GetApprovalResponse, ListApprovalRulesRequest, ListApprovalRulesResponse, ListApprovalsRequest,
    ListApprovalsResponse, ResolveApprovalRequest, ResolveApprovalResponse,
    approvals_server::Approvals as Service,
};
use holdfast_session::{
    Approval, ApprovalFilter, ApprovalRule, DecisionResult, ListCursor, NewDecision,
};
use holdfast_types::{ApprovalDecision, ApprovalState, PersonId, SessionId};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{AgentNames, State, invalid, non_empty, page_size, sessions::paging, timestamp};
use crate::{
    Error, audit,
    permissions::{
        self, Permission,
        rights::{self, ConversationRight},
    },
};

const DEFAULT_PAGE_SIZE: u32 = 50;
const MAX_PAGE_SIZE: u32 = 200;
const APPROVAL_STATE_WORDS: &str = "pending, allowed_once, allowed_always, denied or expired";

/// Implements `holdfast.gateway.v1.Approvals`.
#[derive(Debug)]
pub struct Approvals(pub State);

#[tonic::async_trait]
impl Service for Approvals {
    async fn list_approvals(
        &self,
        request: Request<ListApprovalsRequest>,
    ) -> Result<Response<ListApprovalsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
        let filter = ApprovalFilter {
            state: non_empty(request.state).map(|word| state(&word)).transpose()?,
            session: non_empty(request.session_id)
                .map(|id| id.parse::<SessionId>())
                .transpose()
                .map_err(Error::from)?,
            person: person_to_read(&caller, request.person)?,
            limit: most + 1,
            after: paging::parse_list_token(request.page_token)?,
        };
        if let Some(session) = filter.session {
            self.0.sessions.views().session(caller.tenant, session).await.map_err(Error::from)?;
            self.check_reads(&caller, session).await?;
        }

        let found =
            self.0.sessions.approvals().list(caller.tenant, filter).await.map_err(Error::from)?;
        let names = self.0.agent_names(caller.tenant).await?;

        let (page, more) = paging::split_page(found, most);
        let last = page.last().filter(|_| more);
        let last = last.map(|last| ListCursor { at: last.asked_at, id: last.id.as_uuid() });
        let next_page_token = last.map(paging::list_token).unwrap_or_default();
        let approvals = page.into_iter().map(|one| approval(one, &names)).collect();
        Ok(Response::new(ListApprovalsResponse { approvals, next_page_token }))
    }

    async fn get_approval(
        &self,
        request: Request<GetApprovalRequest>,
    ) -> Result<Response<GetApprovalResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let found = self.0.sessions.approvals().get(caller.tenant, &request.approval).await;
        let found = found.map_err(Error::from)?;
        self.check_reads(&caller, found.session).await?;
        let names = self.0.agent_names(caller.tenant).await?;

        Ok(Response::new(GetApprovalResponse { approval: Some(approval(found, &names)) }))
    }

    async fn resolve_approval(
        &self,
        request: Request<ResolveApprovalRequest>,
    ) -> Result<Response<ResolveApprovalResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.approval);
        let verdict = match request.decision() {
            pb::Decision::AllowOnce => ApprovalDecision::Once,
            pb::Decision::AllowAlways => ApprovalDecision::Always,
            pb::Decision::Deny => ApprovalDecision::Deny,
            pb::Decision::Unspecified => return Err(Error::MissingField("decision").into()),
        };
        let found = self.0.sessions.approvals().get(caller.tenant, &request.approval).await;
        let id = found.map_err(Error::from)?.id;
        let by = caller.id();
        let reason = reason(request.reason, verdict)?;
        let decision = NewDecision { verdict, by: &by, reason: reason.as_deref() };

        let resolved = self.0.sessions.approvals().resolve(caller.tenant, id, decision).await;

        let resolved = resolved.map_err(Error::from)?;
        self.notify_runners(&resolved);
        let names = self.0.agent_names(caller.tenant).await?;
        Ok(Response::new(ResolveApprovalResponse {
            duplicate: resolved.duplicate,
            approval: Some(approval(resolved.approval, &names)),
        }))
    }

    async fn list_approval_rules(
        &self,
        request: Request<ListApprovalRulesRequest>,
    ) -> Result<Response<ListApprovalRulesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = match non_empty(request.agent) {
            Some(agent) => {
                let agent = self.0.directory.agents().get(caller.tenant, &agent).await;
                Some(agent.map_err(Error::from)?.id)
            }
            None => None,
        };

        let found = self.0.sessions.approvals().rules(caller.tenant, agent, None).await;
        let names = self.0.agent_names(caller.tenant).await?;

        let rules = found.map_err(Error::from)?;
        let rules = rules.into_iter().map(|one| rule(one, &names)).collect();
        Ok(Response::new(ListApprovalRulesResponse { rules }))
    }

    async fn forget_approval_rule(
        &self,
        request: Request<ForgetApprovalRuleRequest>,
    ) -> Result<Response<ForgetApprovalRuleResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let id = Uuid::try_parse(&request.id).map_err(|_| {
            invalid("`id` is not a rule's id: `holdfast approvals rules` lists them".to_owned())
        })?;

        let gone = self.0.sessions.approvals().delete_rule(caller.tenant, id).await;

        gone.map_err(Error::from)?;
        Ok(Response::new(ForgetApprovalRuleResponse {}))
    }
}

impl Approvals {
    /// Checks the right to read the requests of a conversation: whoever decides about them reads all.
    async fn check_reads(&self, caller: &Caller, session: SessionId) -> Result<(), Error> {
        match person_who_reads(caller)? {
            Some(_) => {
                let right = ConversationRight::Read;
                rights::check_session(&self.0.sessions, caller, session, right).await
            }
            None => Ok(()),
        }
    }

    /// Notifies the runners, or the runner of the running turn.
    fn notify_runners(&self, resolved: &DecisionResult) {
        if resolved.wake {
            self.0.bus.wake_run(0);
        }
        if let Some(running) = resolved.running {
            let session = resolved.approval.session;
            let control = Control { session, kind: ControlKind::Input, epoch: running.epoch };
            self.0.bus.control(running.owner, &control);
        }
    }
}

/// Person whose conversations' requests alone a caller reads; `None` if they read all.
fn person_who_reads(caller: &Caller) -> Result<Option<PersonId>, Error> {
    let reads_all = |permission| permissions::require(caller, permission).is_ok();
    if reads_all(Permission::Read) || reads_all(Permission::Approve) {
        return Ok(None);
    }
    match caller.person {
        Some(person) => Ok(Some(person)),
        None => permissions::require(caller, Permission::Read).map(|()| None),
    }
}

/// Person whose conversations' requests are listed: the one that the request names, if the caller may read
/// them.
fn person_to_read(caller: &Caller, named: String) -> Result<Option<PersonId>, Error> {
    let own = person_who_reads(caller)?;
    let Some(named) = non_empty(named) else { return Ok(own) };
    let person: PersonId = named.parse()?;
    match own {
        Some(own) if own != person => Err(Error::OtherPerson(named)),
        Some(_) | None => Ok(Some(person)),
    }
}

/// Checks the reason of a decision; `None` if it is empty.
fn reason(given: String, verdict: ApprovalDecision) -> Result<Option<String>, Error> {
    let Some(reason) = non_empty(given) else { return Ok(None) };
    if verdict != ApprovalDecision::Deny {
        return Err(invalid("`reason` is for denials only: leave it out".to_owned()));
    }
    if reason.contains('\0') {
        return Err(Error::NulCharacter("reason"));
    }
    let (length, most) = (reason.chars().count(), NewDecision::MAX_REASON_CHARS);
    if length > most {
        return Err(invalid(format!("`reason` has {length} characters, and {most} are the most")));
    }
    Ok(Some(reason))
}

fn state(word: &str) -> Result<ApprovalState, Error> {
    ApprovalState::parse(word).ok_or_else(|| Error::UnknownValue {
        field: "state",
        given: word.chars().take(80).collect(),
        wanted: APPROVAL_STATE_WORDS,
    })
}

fn approval(one: Approval, names: &AgentNames) -> pb::Approval {
    pb::Approval {
        id: one.id.to_string(),
        slug: one.id.slug(),
        session_id: one.session.to_string(),
        agent: names.of(one.agent),
        run_id: one.run.to_string(),
        tool: one.tool,
        summary: one.summary,
        subject: one.subject,
        pattern: one.pattern.unwrap_or_default(),
        state: one.state.as_str().to_owned(),
        decided_by: one.decided_by.unwrap_or_default(),
        reason: one.reason.unwrap_or_default(),
        asked_at: Some(timestamp(one.asked_at)),
        expires_at: Some(timestamp(one.expires_at)),
        decided_at: one.decided_at.map(timestamp),
    }
}

fn rule(one: ApprovalRule, names: &AgentNames) -> pb::ApprovalRule {
    pb::ApprovalRule {
        id: one.id.to_string(),
        agent: names.of(one.agent),
        tool: one.tool,
        pattern: one.pattern.unwrap_or_default(),
        summary: one.summary,
        created_by: one.created_by.unwrap_or_default(),
        created_at: Some(timestamp(one.created_at)),
        last_used_at: one.last_used_at.map(timestamp),
        last_used: one.last_used.unwrap_or_default(),
    }
}
