//! One object of each kind, of one tenant: targets of the other tenant's requests.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_directory::{
    Actor, Approver, ConsoleRights, ConsoleSessionLimits, DeviceProfile, DeviceUser, LinkOrigin,
    SignIn,
};
use holdfast_proposals::NewProposal;
use holdfast_proto::{
    gateway::v1::{self as pb, AcceptRequest},
    memory::v1 as kept,
};
use holdfast_session::{Cleanup, NewSubagent, SubagentAccess};
use holdfast_types::{
    AccountId, AgentId, AgentName, ApprovalId, DeliveryId, InvitationId, JobId, KeyId, MessageId,
    NodeId, PersonId, ProposalId, ProposalKind, RunId, SessionId, SessionKey, TenantRole,
};
use holdfast_work::{Period, Place, record_period};
use prost::Message;
use secrecy::ExposeSecret as _;
use serde_json::json;
use uuid::Uuid;

use super::{
    raw::call,
    table::{
        SECRETS, account, add_job, add_reminder, alias, apply_todos, binding, connection,
        create_workspace, credential, event_webhook, identity, ingest_article, mcp_server,
        memory_value, model, node, package, put_behavior, put_chain, put_skill, put_skill_env,
        rules, save_memory,
    },
};
use crate::{
    arrivals::accept,
    world::{Tenant, World},
};

/// Content of a file of Anna's agent.
pub const FILE: &[u8] = b"annas plan";

/// Ids, and names that begin with their owner's name.
#[derive(Debug, Clone, Default)]
pub struct Things {
    owner: &'static str,
    pub agent: String,
    pub agent_name: String,
    pub provider: String,
    pub credential: String,
    pub alias: String,
    pub mcp_server: String,
    pub connection: String,
    pub node: String,
    pub node_name: String,
    pub person: String,
    /// Another person, who stays when the first is merged into them.
    pub other_person: String,
    pub device: String,
    pub console_session: String,
    pub invitation: String,
    pub device_request: String,
    pub other_device_request: String,
    pub key: String,
    pub key_name: String,
    pub account: String,
    pub account_name: String,
    pub binding: String,
    pub peer: String,
    pub identity: String,
    pub rule_word: String,
    pub chain: String,
    pub behavior: String,
    pub event_webhook: String,
    pub skill: String,
    pub skill_name: String,
    pub packaged: String,
    pub subagent: String,
    pub user: String,
    pub request_id: String,
    pub session: String,
    pub session_key: String,
    pub message: String,
    pub run: String,
    pub dead_letter: String,
    pub delivery: String,
    pub approval: String,
    pub approval_rule: String,
    pub job: String,
    pub job_id: String,
    pub reminder: String,
    pub memory: String,
    pub article: String,
    pub proposal: String,
    pub agent_proposal: String,
    pub other_agent_proposal: String,
    /// Id of a response of the Responses API.
    pub response: String,
}

impl Things {
    fn named(owner: &'static str) -> Self {
        let name = |of: &str| format!("{owner}-{of}");
        Self {
            owner,
            agent_name: name("coach"),
            provider: name("models"),
            credential: name("second"),
            alias: name("quick"),
            mcp_server: format!("{owner}_tools"),
            connection: name("notes"),
            node_name: name("laptop"),
            key_name: name("key"),
            account_name: name("bot"),
            peer: name("peer"),
            identity: name("friend"),
            rule_word: name("word"),
            chain: name("chain"),
            behavior: name("behavior"),
            event_webhook: name("hook"),
            job: format!("{owner}_job"),
            skill: name("skill"),
            skill_name: name("skill"),
            packaged: name("package"),
            user: name("user"),
            request_id: name("request"),
            ..Self::default()
        }
    }

    /// Ids and names that do not exist.
    pub fn of_nobody() -> Self {
        let named = Self::named("nobodys");
        Self {
            agent: AgentId::generate().to_string(),
            person: PersonId::generate().to_string(),
            other_person: PersonId::generate().to_string(),
            device: "0".repeat(64),
            console_session: Uuid::now_v7().simple().to_string(),
            invitation: InvitationId::generate().to_string(),
            device_request: Uuid::now_v7().to_string(),
            other_device_request: Uuid::now_v7().to_string(),
            agent_proposal: ProposalId::generate().to_string(),
            other_agent_proposal: ProposalId::generate().to_string(),
            key: KeyId::generate().to_string(),
            node: NodeId::generate().to_string(),
            account: AccountId::generate().to_string(),
            binding: Uuid::now_v7().to_string(),
            session: SessionId::generate().to_string(),
            subagent: SessionId::generate().to_string(),
            session_key: format!("agent:{}:api:{}", named.agent_name, named.user),
            message: MessageId::generate().to_string(),
            run: RunId::generate().to_string(),
            dead_letter: MessageId::generate().to_string(),
            delivery: DeliveryId::generate().to_string(),
            approval: ApprovalId::generate().to_string(),
            approval_rule: Uuid::now_v7().to_string(),
            job_id: JobId::generate().to_string(),
            reminder: "reminder_nobodys_00000000".into(),
            memory: format!("itm_{}", Uuid::now_v7().simple()),
            article: format!("doc_{}", Uuid::now_v7().simple()),
            proposal: format!("itm_{}", Uuid::now_v7().simple()),
            response: format!("resp_{}", Uuid::now_v7().simple()),
            ..named
        }
    }

    /// Creates one object of each kind for Anna, through the APIs.
    pub async fn of_anna(world: &World) -> anyhow::Result<Self> {
        let mut of = Self::named("annas");
        of.own(world).await?;
        of.say(world).await?;
        crate::events::log_events(world).await;
        Ok(of)
    }

    /// A change of the article, as an agent proposes it.
    async fn propose(&self, world: &World) -> anyhow::Result<String> {
        let change = json!({
            "article": self.article, "title": format!("{} on hot tea", self.user), "text": "Tea.",
        });
        let item = kept::NewItem {
            kind: kept::Kind::Event.into(),
            r#type: "kb_proposal".to_owned(),
            content: change.to_string(),
            provenance: Some(kept::Provenance {
                kind: kept::SourceKind::Agent.into(),
                name: self.agent_name.clone(),
                ..kept::Provenance::default()
            }),
            ..kept::NewItem::default()
        };
        let put = kept::PutItemsRequest {
            who: Some(kept::Who { agent: self.agent.clone(), ..kept::Who::default() }),
            items: vec![item],
            ..kept::PutItemsRequest::default()
        };
        let put = world.memory()?.put_items(world.anna.id, put).await?;
        Ok(put.items.into_iter().next().context("no proposal")?.id)
    }

    /// A session of the console that was begun with a link.
    async fn sign_in(&mut self, world: &World) -> anyhow::Result<()> {
        let rights = ConsoleRights {
            holder: Approver::Key(self.key.parse()?),
            scopes: None,
            name: format!("{}-visitor", self.owner),
        };
        let limits = ConsoleSessionLimits {
            idle: Duration::from_secs(3600),
            lifetime: Duration::from_secs(3600),
            unchecked: Duration::from_secs(3600),
        };
        let sessions = world.directory.console_sessions();
        let link = sessions.create_link(world.anna.id, &rights, LinkOrigin::default()).await?;
        let begun = sessions.begin_with_link(link.token.expose_secret(), limits).await?;
        self.console_session = begun.id.simple().to_string();
        let name = format!("{}-guest", self.owner);
        let (people, by) = (world.directory.people(), Actor::Operator);
        let (invited, _) = people.invite(world.anna.id, by, (&name, TenantRole::Member)).await?;
        self.invitation = invited.id.to_string();
        Ok(())
    }

    /// A paired device, and two that ask to be.
    async fn pair_devices(&mut self, world: &World) -> anyhow::Result<()> {
        let profile = |n: u8| DeviceProfile {
            id: format!("{n:02x}").repeat(32),
            public_key: [n; 32],
            name: format!("{}-device", self.owner),
            platform: "linux".into(),
            family: String::new(),
            client_id: "cli".into(),
            client_mode: "cli".into(),
        };
        let (devices, tenant) = (world.directory.devices(), world.anna.id);
        let scopes = ["operator.read".to_owned()];
        let by = Approver::Key(self.key.parse()?);
        let user = DeviceUser { id: self.key.clone(), person: None };
        self.device = devices.pair(tenant, (by, &user), profile(0xa1), &scopes).await?.profile.id;
        let wanted = (&scopes[..], &user);
        let asked = devices.ask(tenant, profile(0xa2), wanted).await?.context("no request")?;
        let other = devices.ask(tenant, profile(0xa3), wanted).await?.context("no request")?;
        (self.device_request, self.other_device_request) =
            (asked.0.id.to_string(), other.0.id.to_string());
        Ok(())
    }

    async fn own(&mut self, world: &World) -> anyhow::Result<()> {
        let friend = SignIn {
            tenant: "anna".into(),
            issuer: "https://id.example.com".into(),
            subject: format!("{}-subject", self.owner),
            name: format!("{}-friend", self.owner),
            role: TenantRole::Member,
        };
        self.person = world.directory.people().sign_in(&friend).await?.person.to_string();
        let other = SignIn { subject: format!("{}-2", friend.subject), ..friend };
        self.other_person = world.directory.people().sign_in(&other).await?.person.to_string();
        let who = &world.anna;
        let agent = pb::Agent { name: self.agent_name.clone(), ..Default::default() };
        let create = pb::CreateAgentRequest { agent: Some(agent) };
        let made: pb::CreateAgentResponse = ask(world, who, "Agents/CreateAgent", create).await?;
        self.agent = made.agent.context("no agent")?.id;
        let (name, kind) = (self.provider.clone(), "openai".into());
        let provider = pb::Provider { name, kind, ..Default::default() };
        let put = pb::PutProviderRequest {
            provider: Some(provider),
            api_key: "sk-anna".into(),
            ..Default::default()
        };
        let _: pb::PutProviderResponse = ask(world, who, "Providers/PutProvider", put).await?;
        let put = credential(self);
        let _: pb::PutCredentialResponse =
            ask(world, who, "Credentials/PutCredential", put).await?;
        let _: pb::PutModelResponse = ask(world, who, "Models/PutModel", model(self)).await?;
        let _: pb::PutAliasResponse = ask(world, who, "Models/PutAlias", alias(self)).await?;
        let agent = self.agent_name.clone();
        let set = pb::SetBudgetRequest { agent, tokens: 1_000_000_000, ..Default::default() };
        let _: pb::SetBudgetResponse = ask(world, who, "Budgets/SetBudget", set).await?;
        let put = mcp_server(self, None);
        let _: pb::PutMcpServerResponse = ask(world, who, "McpServers/PutMcpServer", put).await?;
        anyhow::ensure!(world.remembers(), "there is no memory service");
        let save = save_memory(self);
        let saved: pb::SaveMemoryResponse = ask(world, who, "Memories/SaveMemory", save).await?;
        self.memory = saved.id;
        let set = memory_value(self);
        let _: pb::SetMemoryValueResponse = ask(world, who, "Memories/SetMemoryValue", set).await?;
        let add = ingest_article(self);
        let added: pb::IngestArticleResponse =
            ask(world, who, "Knowledge/IngestArticle", add).await?;
        self.article = added.article.context("no article")?.id;
        self.proposal = self.propose(world).await?;
        let put = connection(self, &self.agent);
        let _: pb::PutConnectionResponse =
            ask(world, who, "Connections/PutConnection", put).await?;
        let made: pb::CreateNodeResponse = ask(world, who, "Nodes/CreateNode", node(self)).await?;
        self.node = made.node.context("no node")?.id;
        let (name, scopes) = (self.key_name.clone(), vec!["read".into()]);
        let create = pb::CreateKeyRequest {
            name,
            scopes,
            lifetime_seconds: 0,
            person: String::new(),
            ..Default::default()
        };
        let made: pb::CreateKeyResponse = ask(world, who, "Keys/CreateKey", create).await?;
        self.key = made.key.context("no key")?.id;
        self.pair_devices(world).await?;
        self.sign_in(world).await?;
        let account = Some(account(self, String::new()));
        let create = pb::CreateAccountRequest { account, secrets: SECRETS.into() };
        let made: pb::CreateAccountResponse =
            ask(world, who, "Channels/CreateAccount", create).await?;
        self.account = made.account.context("no account")?.id;
        let create = pb::CreateBindingRequest { binding: Some(binding(self, &self.agent_name)) };
        let made: pb::CreateBindingResponse =
            ask(world, who, "Routing/CreateBinding", create).await?;
        self.binding = made.binding.context("no binding")?.id;
        let create = pb::CreateEventWebhookRequest {
            webhook: Some(event_webhook(&self.event_webhook)),
            from_earliest: true,
        };
        let _: pb::CreateEventWebhookResponse =
            ask(world, who, "EventWebhooks/CreateEventWebhook", create).await?;
        let put = put_chain(&self.chain);
        let _: pb::PutChainResponse = ask(world, who, "Chains/PutChain", put).await?;
        let put = put_behavior(&self.behavior);
        let _: pb::PutBehaviorResponse = ask(world, who, "Behaviors/PutBehavior", put).await?;
        let made: pb::AddJobResponse = ask(world, who, "Schedules/AddJob", add_job(self)).await?;
        self.job_id = made.job.context("no job")?.long_id;
        let made: pb::AddReminderResponse =
            ask(world, who, "Schedules/AddReminder", add_reminder(self)).await?;
        self.reminder = made.reminder.context("no reminder")?.id;
        let put = put_skill(&self.skill);
        let _: pb::PutSkillResponse = ask(world, who, "Skills/PutSkill", put).await?;
        let put = put_skill_env(&self.skill);
        let _: pb::PutSkillEnvResponse = ask(world, who, "Skills/PutSkillEnv", put).await?;
        let registries = vec!["shelf".to_owned(), "annas-shelf".to_owned()];
        let policy = pb::SkillPolicy { registries, ..Default::default() };
        let put = pb::PutSkillPolicyRequest { policy: Some(policy) };
        let _: pb::PutSkillPolicyResponse = ask(world, who, "Skills/PutSkillPolicy", put).await?;
        let put = rules(self, &self.agent_name);
        let _: pb::PutRulesResponse = ask(world, who, "Routing/PutRules", put).await?;
        let made: pb::ImportAgentResponse =
            ask(world, who, "Packages/ImportAgent", package(&self.packaged)).await?;
        anyhow::ensure!(made.rule_waits, "the package's rule is on");
        let _: pb::PutIdentityResponse =
            ask(world, who, "Routing/PutIdentity", identity(self)).await?;
        // The gateway caches a tenant's routing for a second.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        Ok(())
    }

    async fn say(&mut self, world: &World) -> anyhow::Result<()> {
        let who = &world.anna;
        let said = |text: &str| pb::SendRequest {
            request_id: format!("{}-{text}", self.request_id),
            text: format!("{text} annas words"),
            agent: self.agent_name.clone(),
            session: self.user.clone(),
            ..pb::SendRequest::default()
        };
        let sent = world.send(who, said("say")).await?;
        world.follow(who, &sent.message_id).await?;
        let dead = world.send(who, said("die")).await?;
        world.follow(who, &dead.message_id).await?;
        let same = pb::SendRequest {
            request_id: self.request_id.clone(),
            session: self.user.clone(),
            text: "history".into(),
            ..Default::default()
        };
        let same = world.send(who, same).await?;
        world.follow(who, &same.message_id).await?;
        let file = pb::WriteFileRequest {
            agent: self.agent.clone(),
            path: "annas-plan.md".into(),
            content: FILE.into(),
            ..Default::default()
        };
        let _: pb::WriteFileResponse = ask(world, who, "Files/WriteFile", file).await?;
        self.deliver(world).await?;
        let asks = world.send(who, said("ask")).await?;
        self.approve(world).await?;
        world.follow(who, &asks.message_id).await?;

        let get = pb::GetSessionRequest { session: sent.session_id.clone() };
        let got: pb::GetSessionResponse = ask(world, who, "Sessions/GetSession", get).await?;
        self.session_key = got.session.context("no session")?.key;
        self.session = sent.session_id;
        self.message = sent.message_id;
        let body = json!({"model": "holdfast", "input": "annas words"});
        let response = world.post(who, "/v1/responses").json(&body).send().await?;
        let response: serde_json::Value = response.json().await?;
        self.response = response["id"].as_str().context("no response")?.to_owned();
        self.dead_letter = dead.message_id;
        let session = self.session.clone();
        let list = pb::ListRunsRequest { session, ..Default::default() };
        let runs: pb::ListRunsResponse = ask(world, who, "Sessions/ListRuns", list).await?;
        self.run = runs.runs.first().context("no run")?.id.clone();
        let list = pb::ListDeliveriesRequest::default();
        let sent: pb::ListDeliveriesResponse =
            ask(world, who, "Operations/ListDeliveries", list).await?;
        self.delivery = sent.deliveries.first().context("no delivery")?.id.clone();
        self.work(world).await?;
        self.spawn(world).await
    }

    /// A todo, an entry of the ledger, and proposals.
    async fn work(&mut self, world: &World) -> anyhow::Result<()> {
        let apply = apply_todos(&self.session);
        let applied: pb::ApplyTodosResponse =
            ask(world, &world.anna, "Work/ApplyTodos", apply).await?;
        anyhow::ensure!(applied.results.iter().all(|result| result.applied), "{applied:?}");
        // The default agent's, and that of an agent of her own.
        for agent in ["", &self.agent_name] {
            let create = create_workspace(agent, "annas-workspace");
            let _: pb::CreateWorkspaceResponse =
                ask(world, &world.anna, "Workspaces/CreateWorkspace", create).await?;
        }
        let place = Place {
            behavior: format!("{}-behavior", self.owner),
            ..Place::outside(self.session.parse()?, self.agent.parse()?)
        };
        let mut tx = world.pools.tenant(world.anna.id).await?;
        record_period(&mut tx, &place, &Period::default()).await?;
        tx.commit().await?;
        for (id, name) in
            [(&mut self.agent_proposal, "greet"), (&mut self.other_agent_proposal, "look")]
        {
            let new = NewProposal {
                key: name.into(),
                place: place.clone(),
                kind: ProposalKind::Behavior,
                target: name.into(),
                content: format!("process_rule: annas {name}"),
                goal: "annas goal".into(),
                risk: "none".into(),
                benefit: "annas benefit".into(),
                outside: false,
            };
            *id = world.proposals().propose(world.anna.id, &new).await?.id.to_string();
        }
        Ok(())
    }

    /// A subagent that has ended.
    async fn spawn(&mut self, world: &World) -> anyhow::Result<()> {
        let new = NewSubagent {
            parent: self.session.parse()?,
            key: SessionKey::subagent(&AgentName::new(&self.agent_name), "annas")?,
            agent: self.agent.parse()?,
            label: "annas subagent".into(),
            task: "annas task".into(),
            outside: false,
            model: None,
            thinking: None,
            cleanup: Cleanup::Keep,
            max_duration: Duration::from_secs(600),
            max_steps: None,
            max_tokens: None,
            most: 8,
            given: SubagentAccess::default(),
            await_timeout: None,
            place: None,
            trace: None,
        };
        let (session, task) = world.sessions.subagents().spawn(world.anna.id, new).await?;
        world.follow(&world.anna, &task.message.to_string()).await?;
        world.sessions.subagents().settle(world.anna.id, session).await?;
        self.subagent = session.to_string();
        Ok(())
    }

    /// A call that is allowed from now on.
    async fn approve(&mut self, world: &World) -> anyhow::Result<()> {
        let who = &world.anna;
        while self.approval.is_empty() {
            let list = pb::ListApprovalsRequest::default();
            let found: pb::ListApprovalsResponse =
                ask(world, who, "Approvals/ListApprovals", list).await?;
            self.approval = found.approvals.first().map(|one| one.id.clone()).unwrap_or_default();
        }
        let decision = pb::Decision::AllowAlways.into();
        let resolve = pb::ResolveApprovalRequest {
            approval: self.approval.clone(),
            decision,
            ..Default::default()
        };
        let _: pb::ResolveApprovalResponse =
            ask(world, who, "Approvals/ResolveApproval", resolve).await?;
        let list = pb::ListApprovalRulesRequest::default();
        let rules: pb::ListApprovalRulesResponse =
            ask(world, who, "Approvals/ListApprovalRules", list).await?;
        self.approval_rule = rules.rules.first().context("no rule")?.id.clone();
        Ok(())
    }

    /// Delivery that waits for its bridge.
    async fn deliver(&self, world: &World) -> anyhow::Result<()> {
        let arrival = AcceptRequest {
            account_id: self.account.clone(),
            channel: "telegram".into(),
            account: self.account_name.clone(),
            idempotency_key: self.request_id.clone(),
            peer_kind: "direct".into(),
            peer_id: self.peer.clone(),
            sender_id: self.peer.clone(),
            text: "annas question".into(),
            reply_chat: self.peer.clone(),
            ..AcceptRequest::default()
        };
        let taken = accept(world, world.anna.id, arrival).await?;
        world.follow(&world.anna, &taken.message_id).await?;
        Ok(())
    }

    /// The response of `OpenAI`'s API that the message is.
    pub fn previous_response(&self) -> String {
        self.message.replacen("msg_", "resp_", 1)
    }

    /// Error message without ids and names.
    pub fn masked(&self, told: &str) -> String {
        let told = told.replace(&self.previous_response(), "<id>");
        let told = self.ids().iter().fold(told, |told, id| told.replace(id, "<id>"));
        told.replace(self.owner, "<name>")
    }

    /// Asserts that neither ids nor names are shown.
    pub fn assert_absent(&self, where_: &str, shown: &str) {
        self.assert_others(where_, shown);
        assert!(!shown.contains("anna"), "{where_}: {shown}");
    }

    /// Asserts that nothing of the owner is shown; another tenant may use the same names.
    pub fn assert_others(&self, where_: &str, shown: &str) {
        for id in self.ids() {
            assert!(!shown.contains(id), "{where_} shows {id}: {shown}");
        }
    }

    fn ids(&self) -> [&str; 27] {
        [
            &self.agent,
            &self.person,
            &self.device,
            &self.console_session,
            &self.invitation,
            &self.device_request,
            &self.other_device_request,
            &self.agent_proposal,
            &self.other_agent_proposal,
            &self.node,
            &self.key,
            &self.account,
            &self.binding,
            &self.session,
            &self.subagent,
            &self.message,
            &self.run,
            &self.dead_letter,
            &self.delivery,
            &self.approval,
            &self.approval_rule,
            &self.job_id,
            &self.reminder,
            &self.memory,
            &self.article,
            &self.proposal,
            &self.response,
        ]
    }
}

/// Splits encoded messages into words and the bytes between them.
pub fn shown(answers: &[Vec<u8>]) -> String {
    answers.iter().map(|answer| String::from_utf8_lossy(answer).into_owned()).collect()
}

async fn ask<A: Message + Default>(
    world: &World,
    who: &Tenant,
    method: &str,
    request: impl Message,
) -> anyhow::Result<A> {
    let answers = call(world, who, method, request.encode_to_vec()).await?;
    Ok(A::decode(answers.concat().as_slice())?)
}
