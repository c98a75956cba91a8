//! Permissions: what each call needs, and which scopes and roles include it. This is the only place
//! where that is decided.
//!
//! API keys have scopes, people have a role. Both are compared with the same table. A person in a
//! session of the console that was begun with a limited link has scopes too: then both decide.

pub mod operator_scopes;
pub mod rights;

use std::{collections::HashMap, sync::LazyLock};

use holdfast_grpc::{Caller, Principal, Scope, Scopes};
use holdfast_types::TenantRole;

use crate::Error;

/// Permission that a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Any API key and any person.
    SignedIn,
    /// Lists the agents as models of the OpenAI-compatible API.
    ListModels,
    /// Begins conversations, and goes on in those.
    Begin,
    /// Talks to agents, in conversations of the caller's own.
    Chat,
    /// Reads settings and conversations.
    Read,
    /// Reads what is the caller's own; with [`Read`](Self::Read) all.
    ReadOwn,
    /// Reads the tool calls that wait for a decision: those of the caller's own conversations, and
    /// with [`Read`](Self::Read) or [`Approve`](Self::Approve) all.
    ReadApprovals,
    /// Changes what is the caller's own; with [`Manage`](Self::Manage) what is anybody's.
    ChangeOwn,
    /// Subscribes to events, without what was said.
    ReadEvents,
    /// Reads limits, usage and events: of the own tenant, and with the scope `platform` of any.
    ReadUsage,
    /// Decides about tool calls.
    Approve,
    /// Runs the tenant's installation: changes agents, channels, schedules, files and memories.
    Manage,
    /// Changes keys, people, policies, providers and budgets; reads the audit log.
    Own,
    /// Operates the installation: tenants.
    Platform,
    /// Acts as a service of the mesh.
    Service,
    /// Is a node.
    Node,
}

impl Permission {
    /// Scopes of an API key of which one is enough. Empty: any key.
    const fn scopes(self) -> &'static [Scope] {
        match self {
            Self::SignedIn => &[],
            Self::ListModels => &[Scope::Guest, Scope::Chat, Scope::Read],
            Self::Begin => &[Scope::Guest, Scope::Chat],
            Self::Chat => &[Scope::Chat],
            Self::Read | Self::ReadOwn => &[Scope::Read],
            Self::ReadApprovals => &[Scope::Read, Scope::Approve],
            Self::ReadEvents => &[Scope::Events, Scope::Read],
            Self::ReadUsage => &[Scope::Read, Scope::Platform],
            Self::Approve => &[Scope::Approve],
            Self::ChangeOwn | Self::Manage => &[Scope::Admin],
            Self::Own => &[Scope::Owner],
            Self::Platform => &[Scope::Platform],
            Self::Service => &[Scope::Service],
            Self::Node => &[Scope::Node],
        }
    }

    /// Whether a key that talks to one agent may have it: its calls name a conversation or an agent.
    const fn is_of_one_agent(self) -> bool {
        matches!(self, Self::SignedIn | Self::ListModels | Self::Begin | Self::Chat)
    }

    /// Scopes of a person's session of which one is enough, if the session is limited. A session for
    /// talking shows its person what is theirs.
    const fn scopes_of_session(self) -> &'static [Scope] {
        match self {
            Self::ReadOwn => &[Scope::Read, Scope::Chat],
            Self::ReadApprovals => &[Scope::Read, Scope::Approve, Scope::Chat],
            Self::ChangeOwn => &[Scope::Chat, Scope::Admin],
            other => other.scopes(),
        }
    }

    /// Roles that include the permission.
    #[must_use]
    pub const fn roles(self) -> &'static [TenantRole] {
        use TenantRole::{Approver, Guest, Member, Operator, Owner, Viewer};
        match self {
            Self::SignedIn | Self::ListModels => &TenantRole::ALL,
            Self::Begin => &[Guest, Member, Approver, Operator, Owner],
            Self::Chat | Self::ChangeOwn => &[Member, Approver, Operator, Owner],
            Self::Read | Self::ReadEvents | Self::ReadUsage => &[Viewer, Operator, Owner],
            Self::ReadOwn | Self::ReadApprovals => &[Viewer, Member, Approver, Operator, Owner],
            Self::Approve => &[Approver, Operator, Owner],
            Self::Manage => &[Operator, Owner],
            Self::Own => &[Owner],
            Self::Platform | Self::Service | Self::Node => &[],
        }
    }
}

/// Whether a person with this role may do what the scope of a key permits.
#[must_use]
pub fn includes_scope(role: TenantRole, scope: Scope) -> bool {
    let permission = match scope {
        Scope::Guest => Permission::Begin,
        Scope::Chat => Permission::Chat,
        Scope::Read => Permission::Read,
        Scope::Events => Permission::ReadEvents,
        Scope::Approve => Permission::Approve,
        Scope::Admin => Permission::Manage,
        Scope::Owner | Scope::Platform | Scope::Service | Scope::Node => Permission::Own,
    };
    permission.roles().contains(&role)
}

/// Checks that the caller has a permission.
///
/// # Errors
///
/// [`Error::Scope`] or [`Error::Role`], with what is missing.
pub fn require(caller: &Caller, permission: Permission) -> Result<(), Error> {
    let scopes = permission.scopes();
    if let Principal::Person { role, .. } = caller.principal {
        let of_session = permission.scopes_of_session();
        let is_limited = caller.scopes != Scopes::EMPTY && !of_session.is_empty();
        let roles = permission.roles();
        let operates = scopes.contains(&Scope::Platform) && caller.scopes.has(Scope::Platform);
        return if operates {
            // A person who operates the installation.
            Ok(())
        } else if roles.is_empty() {
            Err(Error::NoRole { needs: one_of(scopes) })
        } else if !roles.contains(&role) {
            let needs = roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join("` or `");
            Err(Error::Role { needs, has: role })
        } else if is_limited && !of_session.iter().any(|scope| caller.scopes.has(*scope)) {
            Err(Error::Scope { needs: one_of(of_session), has: caller.scopes })
        } else {
            Ok(())
        };
    }
    if let Some(agent) = &caller.agent
        && !permission.is_of_one_agent()
    {
        return Err(Error::AgentOfKey(agent.to_string()));
    }
    let is_key = matches!(caller.principal, Principal::Key(_));
    // A person's key shows its person what is theirs.
    let enough = if caller.person.is_some() { permission.scopes_of_session() } else { scopes };
    let has = enough.iter().any(|scope| caller.scopes.has(*scope));
    if has || (is_key && scopes.is_empty()) {
        Ok(())
    } else if permission == Permission::Node {
        Err(Error::NotNode)
    } else {
        Err(Error::Scope { needs: one_of(scopes), has: caller.scopes })
    }
}

fn one_of(scopes: &[Scope]) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join("` or `")
}

/// Row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// `Service/Method` of `holdfast.gateway.v1`, or the path of an HTTP route.
    pub method: &'static str,
    pub permission: Permission,
    /// Whether calls are recorded in the audit log.
    pub is_change: bool,
}

impl Rule {
    /// Checks that the caller has the permission.
    ///
    /// # Errors
    ///
    /// As [`require`].
    pub fn permits(&self, caller: &Caller) -> Result<(), Error> {
        require(caller, self.permission)
    }
}

const PACKAGE: &str = "/holdfast.gateway.v1.";

/// Rule of a gRPC path; `None` if there is no such method.
#[must_use]
pub fn of_grpc(path: &str) -> Option<&'static Rule> {
    of_method(path.strip_prefix(PACKAGE)?)
}

/// Rule of a `Service/Method`; `None` if there is no such method.
#[must_use]
pub fn of_method(method: &str) -> Option<&'static Rule> {
    static RULES: LazyLock<HashMap<&str, &Rule>> =
        LazyLock::new(|| GRPC.iter().map(|rule| (rule.method, rule)).collect());
    RULES.get(method).copied()
}

/// Rule of an HTTP route; `None` if it has none, and must be refused.
#[must_use]
pub fn of_http(route: &str) -> Option<&'static Rule> {
    HTTP.iter().find(|rule| rule.method == route)
}

const fn call(method: &'static str, permission: Permission) -> Rule {
    Rule { method, permission, is_change: false }
}

/// An administrative change, which the audit log records.
const fn change(method: &'static str, permission: Permission) -> Rule {
    Rule { method, permission, is_change: true }
}

use Permission as P;

const HTTP: &[Rule] = &[
    call("/chat", P::Begin),
    call("/v1/chat/completions", P::Begin),
    call("/v1/messages", P::Begin),
    call("/v1/messages/count_tokens", P::Begin),
    call("/v1/responses", P::Begin),
    call("/v1/responses/{response}", P::Begin),
    call("/v1/responses/{response}/cancel", P::Begin),
    call("/v1/responses/{response}/input_items", P::Begin),
    call("/v1/conversations", P::Chat),
    call("/v1/conversations/{conversation}", P::Chat),
    call("/v1/conversations/{conversation}/items", P::Chat),
    call("/v1/embeddings", P::Chat),
    call("/v1/audio/transcriptions", P::Chat),
    call("/v1/audio/speech", P::Chat),
    call("/v1/models", P::ListModels),
    call("/v1/models/{*model}", P::ListModels),
    // Each tool has the rule of the method that it calls.
    call("/mcp", P::SignedIn),
];

const GRPC: &[Rule] = &[
    call("Agents/ListAgents", P::ReadOwn),
    call("Agents/GetAgent", P::Read),
    change("Agents/CreateAgent", P::Manage),
    change("Agents/UpdateAgent", P::Manage),
    change("Agents/SetAgentState", P::Manage),
    change("Agents/DeleteAgent", P::Manage),
    call("Agents/ListAgentTemplates", P::Read),
    call("Approvals/ListApprovals", P::ReadApprovals),
    call("Approvals/GetApproval", P::ReadApprovals),
    change("Approvals/ResolveApproval", P::Approve),
    call("Approvals/ListApprovalRules", P::Read),
    change("Approvals/ForgetApprovalRule", P::Manage),
    call("Audit/ListAuditEvents", P::Own),
    call("Behaviors/ListBehaviors", P::Read),
    call("Behaviors/GetBehavior", P::Read),
    change("Behaviors/PutBehavior", P::Manage),
    change("Behaviors/DeleteBehavior", P::Manage),
    call("Behaviors/ListBehaviorVersions", P::Read),
    call("Behaviors/ValidateBehavior", P::Read),
    call("Behaviors/RenderBehavior", P::Read),
    call("Behaviors/ParseBehaviorAnswer", P::Read),
    call("Behaviors/TryBehavior", P::Manage),
    call("Budgets/ListBudgets", P::Read),
    change("Budgets/SetBudget", P::Own),
    change("Budgets/UnsetBudget", P::Own),
    call("Budgets/GetUsage", P::Read),
    call("Chains/ListChains", P::Read),
    call("Chains/GetChain", P::Read),
    change("Chains/PutChain", P::Manage),
    change("Chains/DeleteChain", P::Manage),
    call("Channels/ListAccounts", P::Read),
    call("Channels/ListChannelKinds", P::Read),
    change("Channels/CheckAccount", P::Manage),
    change("Channels/CreateAccount", P::Manage),
    change("Channels/UpdateAccount", P::Manage),
    change("Channels/DeleteAccount", P::Manage),
    change("Channels/SendText", P::Manage),
    change("Console/CreateSignInLink", P::SignedIn),
    call("Console/ListConsoleSessions", P::Own),
    change("Console/EndConsoleSession", P::Own),
    change("Console/InvitePerson", P::Manage),
    call("Console/ListInvitations", P::Manage),
    change("Console/RevokeInvitation", P::Manage),
    call("Connections/ListConnections", P::Manage),
    change("Connections/PutConnection", P::Manage),
    change("Connections/DeleteConnection", P::Manage),
    call("Credentials/ListCredentials", P::Own),
    change("Credentials/PutCredential", P::Own),
    change("Credentials/DeleteCredential", P::Own),
    change("Credentials/OrderCredentials", P::Own),
    change("Credentials/EnableCredential", P::Own),
    call("Devices/ListDevices", P::Manage),
    change("Devices/ApproveDevice", P::Manage),
    change("Devices/RejectDevice", P::Manage),
    change("Devices/RemoveDevice", P::Manage),
    change("Devices/RotateDeviceToken", P::Manage),
    change("Devices/RevokeDeviceToken", P::Manage),
    call("Economy/GetHitPoints", P::Read),
    change("Economy/EnableAgent", P::Manage),
    call("Economy/GetWallet", P::Read),
    change("Economy/SetWalletLimits", P::Own),
    change("Economy/FundWallet", P::Own),
    call("Economy/ListPayments", P::Read),
    call("Proposals/ListAgentProposals", P::Read),
    call("Proposals/GetAgentProposal", P::Read),
    change("Proposals/ApproveAgentProposal", P::Manage),
    change("Proposals/RejectAgentProposal", P::Manage),
    change("Proposals/RollBackAgentProposal", P::Manage),
    call("EventWebhooks/ListEventWebhooks", P::Manage),
    change("EventWebhooks/CreateEventWebhook", P::Manage),
    change("EventWebhooks/UpdateEventWebhook", P::Manage),
    change("EventWebhooks/DeleteEventWebhook", P::Manage),
    change("EventWebhooks/RotateEventWebhookSecret", P::Manage),
    call("EventWebhooks/ListEventDeadLetters", P::Manage),
    change("EventWebhooks/ReplayEvents", P::Manage),
    call("Events/Subscribe", P::ReadEvents),
    call("Files/ListFiles", P::ReadOwn),
    call("Files/ReadFile", P::ReadOwn),
    call("Files/ReadAttachment", P::ReadOwn),
    change("Files/WriteFile", P::ChangeOwn),
    change("Files/DeleteFile", P::ChangeOwn),
    call("Files/GetFileLog", P::Read),
    call("Files/DiffFiles", P::Read),
    change("Files/RestoreFiles", P::Manage),
    call("Files/ExportFiles", P::Read),
    change("Files/ImportFiles", P::Manage),
    call("Heartbeats/GetHeartbeat", P::Read),
    call("Heartbeats/ListHeartbeatEvents", P::Read),
    call("Heartbeats/RunHeartbeat", P::Manage),
    change("Heartbeats/SetHeartbeat", P::Manage),
    call("Ingest/Accept", P::Service),
    call("Keys/ListKeys", P::Own),
    change("Keys/CreateKey", P::Own),
    change("Keys/RevokeKey", P::Own),
    call("Knowledge/SearchArticles", P::Read),
    change("Knowledge/IngestArticle", P::Manage),
    call("Knowledge/GetArticle", P::Read),
    change("Knowledge/UpdateArticle", P::Manage),
    call("Knowledge/ListArticles", P::Read),
    call("Knowledge/ListArticleVersions", P::Read),
    change("Knowledge/RemoveArticle", P::Manage),
    call("Knowledge/ListProposals", P::Read),
    call("Knowledge/GetProposal", P::Read),
    change("Knowledge/AcceptProposal", P::Manage),
    change("Knowledge/DeclineProposal", P::Manage),
    call("McpServers/ListMcpServers", P::Manage),
    change("McpServers/PutMcpServer", P::Manage),
    change("McpServers/DeleteMcpServer", P::Manage),
    call("McpServers/ProbeMcpServer", P::Manage),
    call("Memories/ListMemories", P::ReadOwn),
    call("Memories/SearchMemories", P::ReadOwn),
    change("Memories/SaveMemory", P::ChangeOwn),
    change("Memories/SetMemoryValue", P::ChangeOwn),
    call("Memories/GetMemoryValue", P::ReadOwn),
    change("Memories/ForgetMemory", P::ChangeOwn),
    change("Memories/EraseMemories", P::Own),
    call("Memories/ListErasures", P::Read),
    call("Memories/GetMemoryStatus", P::Read),
    call("Messages/Send", P::Begin),
    call("Messages/Stream", P::Begin),
    call("Messages/Follow", P::Begin),
    call("Messages/Cancel", P::Begin),
    call("Mesh/GetMesh", P::Platform),
    call("Models/ListModels", P::Read),
    call("Models/CheckModels", P::Manage),
    change("Models/PutModel", P::Manage),
    change("Models/DeleteModel", P::Manage),
    change("Models/PutAlias", P::Manage),
    change("Models/DeleteAlias", P::Manage),
    call("Nodes/ListNodes", P::Read),
    call("Nodes/GetNode", P::Read),
    change("Nodes/CreateNode", P::Manage),
    change("Nodes/RevokeNode", P::Manage),
    call("Nodes/Attach", P::Node),
    call("Operations/GetStatus", P::Read),
    call("Operations/ListDeadLetters", P::Read),
    call("Operations/GetDeadLetter", P::Read),
    change("Operations/RequeueDeadLetter", P::Manage),
    call("Operations/ListDeliveries", P::Read),
    call("Operations/GetInboxCounts", P::Read),
    change("Operations/ResendDelivery", P::Manage),
    call("Packages/ExportAgent", P::Read),
    change("Packages/ImportAgent", P::Manage),
    change("Packages/ApproveAgent", P::Manage),
    call("People/GetCaller", P::SignedIn),
    call("People/ListPeople", P::Own),
    change("People/SetPersonState", P::Own),
    // Others' only for owners.
    change("People/UpdatePerson", P::Chat),
    call("People/GetPerson", P::SignedIn),
    change("People/CreateLinkCode", P::Chat),
    change("People/LinkProgramUser", P::Own),
    change("People/MergePeople", P::Own),
    change("People/SplitPerson", P::Chat),
    change("People/ErasePerson", P::Own),
    change("People/AssignConversations", P::Own),
    call("Plans/ListPlans", P::Platform),
    call("Plans/GetPlan", P::Platform),
    change("Plans/PutPlan", P::Platform),
    change("Plans/DeletePlan", P::Platform),
    call("PlatformKeys/ListPlatformKeys", P::Platform),
    change("PlatformKeys/PutPlatformKey", P::Platform),
    change("PlatformKeys/DeletePlatformKey", P::Platform),
    call("Policies/GetPolicy", P::Read),
    change("Policies/PutPolicy", P::Own),
    call("Policies/CheckPolicy", P::Read),
    call("Policies/ExplainTools", P::Read),
    call("Providers/ListProviders", P::Own),
    change("Providers/PutProvider", P::Own),
    change("Providers/DeleteProvider", P::Own),
    call("Routing/ListBindings", P::Read),
    change("Routing/CreateBinding", P::Manage),
    change("Routing/DeleteBinding", P::Manage),
    call("Routing/ListRules", P::Read),
    change("Routing/PutRules", P::Manage),
    call("Routing/ListIdentities", P::Read),
    change("Routing/PutIdentity", P::Manage),
    change("Routing/DeleteIdentity", P::Manage),
    call("Routing/Explain", P::Read),
    call("Runs/GetRunTrace", P::Read),
    call("Runs/RenderPrompt", P::Read),
    call("Runs/ListActivity", P::Read),
    call("Runs/WatchActivity", P::Read),
    call("Schedules/GetScheduleStatus", P::Read),
    call("Schedules/ListJobs", P::Read),
    call("Schedules/GetJob", P::Read),
    change("Schedules/AddJob", P::Manage),
    change("Schedules/UpdateJob", P::Manage),
    change("Schedules/DeleteJob", P::Manage),
    change("Schedules/PauseJob", P::Manage),
    change("Schedules/ResumeJob", P::Manage),
    call("Schedules/RunJob", P::Manage),
    call("Schedules/ListJobRuns", P::Read),
    change("Schedules/BackfillJob", P::Manage),
    call("Schedules/ListNextTimes", P::Read),
    call("Schedules/ListCalendar", P::Read),
    call("Schedules/WakeAgent", P::Manage),
    call("Schedules/ListReminders", P::ReadOwn),
    call("Schedules/AddReminder", P::Chat),
    call("Schedules/CancelReminder", P::Chat),
    call("Security/CheckSecurity", P::Own),
    call("Security/CheckInstallation", P::Platform),
    call("Sessions/ListSessions", P::ReadOwn),
    call("Sessions/GetSession", P::ReadOwn),
    call("Sessions/UpdateSession", P::Chat),
    call("Sessions/GetHistory", P::ReadOwn),
    call("Sessions/ExportSession", P::ReadOwn),
    change("Sessions/ImportSession", P::Manage),
    call("Sessions/PauseSession", P::Chat),
    call("Sessions/ResumeSession", P::Chat),
    change("Sessions/DeleteSession", P::Chat),
    call("Sessions/ListRuns", P::ReadOwn),
    call("Sessions/SearchMessages", P::ReadOwn),
    call("Sessions/BranchSession", P::Chat),
    call("Sessions/ListBranches", P::ReadOwn),
    call("Sessions/GetCanvas", P::ReadOwn),
    call("Sessions/GetRun", P::ReadOwn),
    call("Sessions/ListToolCalls", P::ReadOwn),
    change("Sessions/RollBackStep", P::Manage),
    call("Settings/GetSettings", P::Read),
    call("Settings/DescribeSettings", P::Read),
    change("Settings/SetSetting", P::Manage),
    call("Skills/ListSkills", P::Read),
    call("Skills/GetSkill", P::Read),
    change("Skills/PutSkill", P::Manage),
    change("Skills/RemoveSkill", P::Manage),
    call("Skills/FindSkills", P::Read),
    change("Skills/InstallSkill", P::Manage),
    call("Skills/ListSkillChanges", P::Read),
    call("Skills/GetSkillPolicy", P::Read),
    change("Skills/PutSkillPolicy", P::Manage),
    call("Skills/ListSkillEnv", P::Manage),
    change("Skills/PutSkillEnv", P::Manage),
    change("Skills/RemoveSkillEnv", P::Manage),
    call("Subagents/ListSubagents", P::Read),
    call("Subagents/StopSubagent", P::Chat),
    call("Subagents/SendToSubagent", P::Chat),
    call("Tenants/ListTenants", P::Platform),
    call("Tenants/GetTenant", P::Platform),
    change("Tenants/CreateTenant", P::Platform),
    change("Tenants/CreateTenantKey", P::Platform),
    change("Tenants/UpdateTenant", P::Platform),
    change("Tenants/DeleteTenant", P::Platform),
    call("UsageReports/GetTenantUsage", P::ReadUsage),
    call("UsageReports/ExportUsage", P::ReadUsage),
    call("UsageReports/ListTenantEvents", P::ReadUsage),
    call("Work/ListTodos", P::Read),
    call("Work/GetTodo", P::Read),
    call("Work/GetTodoView", P::Read),
    call("Work/ApplyTodos", P::Chat),
    call("Work/ListWorklog", P::Read),
    call("Work/GetTaskTree", P::Read),
    call("Work/ListLedger", P::Own),
    call("Work/VerifyLedger", P::Own),
    call("Workspaces/ListWorkspaces", P::Read),
    change("Workspaces/CreateWorkspace", P::Manage),
    change("Workspaces/BindWorkspace", P::Manage),
    change("Workspaces/ArchiveWorkspace", P::Manage),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdfast_types::{KeyId, PersonId, TenantId};

    use super::*;

    fn caller(principal: Principal, scopes: Scopes) -> Caller {
        let (tenant, name) = (TenantId::generate(), String::new());
        Caller { tenant, principal, person: None, agent: None, via: None, scopes, name }
    }

    #[test]
    fn a_method_has_one_rule() {
        let methods: BTreeSet<_> = GRPC.iter().map(|rule| rule.method).collect();

        assert_eq!(methods.len(), GRPC.len());
    }

    #[test]
    fn a_person_with_scopes_may_do_what_both_role_and_scopes_include() {
        let principal = |role| Principal::Person { id: PersonId::generate(), role };
        let limited = |role| caller(principal(role), Scopes::EMPTY.with(Scope::Read));
        let owner = limited(TenantRole::Owner);

        require(&owner, Permission::Read).unwrap();
        require(&owner, Permission::SignedIn).unwrap();
        for refused in [Permission::Chat, Permission::Approve, Permission::Own] {
            assert!(matches!(require(&owner, refused), Err(Error::Scope { .. })), "{refused:?}");
        }
        let scopes = Scopes::EMPTY.with(Scope::Read).with(Scope::Admin);
        let viewer = caller(principal(TenantRole::Viewer), scopes);
        assert!(matches!(require(&viewer, Permission::Manage), Err(Error::Role { .. })));
    }

    #[test]
    fn what_is_missing_is_named() {
        let scopes = Scopes::EMPTY.with(Scope::Chat);
        let key = caller(Principal::Key(KeyId::generate()), scopes);
        let role = TenantRole::Member;
        let person = caller(Principal::Person { id: PersonId::generate(), role }, Scopes::EMPTY);

        let told = |who: &Caller, what| require(who, what).unwrap_err().to_string();

        require(&key, Permission::Chat).unwrap();
        require(&person, Permission::Chat).unwrap();
        require(&key, Permission::ListModels).unwrap();
        assert!(told(&key, Permission::Own).contains("the scope `owner`, and the key has `chat`"));
        assert!(
            told(&person, Permission::Manage)
                .contains("the role `operator` or `owner`, and yours is `member`")
        );
        assert!(told(&person, Permission::Platform).contains("API key with the scope `platform`"));
        assert!(told(&person, Permission::Node).contains("no role"));
    }
}
