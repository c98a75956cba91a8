//! Checks of a tenant.

use std::collections::HashMap;

use holdfast_agent::policy::{ApprovalMode, SandboxMode, Settings};
use holdfast_bus::RunnerReport;
use holdfast_directory::{
    Account, Agent, Approver, Device, EventWebhook, Key, McpServer, McpTransport, Person,
    ProviderKind,
};
use holdfast_grpc::Caller;
use holdfast_llm::ModelCard;
use holdfast_proto::gateway::v1::{ExplainToolsRequest, SecurityFinding};
use holdfast_session::ApprovalRule;
use holdfast_types::{AgentId, DmScope, Fault as _, ModelId, PersonId, TenantRole};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    RUNNER_STATUS_TIMEOUT,
    checks::{self, critical},
};
use crate::{
    Error,
    control::{
        AgentNames, MAX_PEOPLE, State,
        policies::{Policies, explain_tools, settings},
    },
};

/// Owners of a tenant above which their number is a finding.
const MAX_OWNERS: usize = 2;
/// Context window below which a model counts as small, in tokens.
const SMALL_CONTEXT_TOKENS: u64 = 65_536;
/// Number of parameters below which a model counts as small, in billions.
const SMALL_PARAMETERS: f64 = 70.0;

/// Scopes that change settings.
const ADMINISTRATIVE_SCOPES: [&str; 3] = ["admin", "owner", "platform"];

/// Makes all checks of the caller's tenant.
///
/// # Errors
///
/// If something of the tenant cannot be read.
pub(super) async fn check(state: &State, caller: &Caller) -> Result<Vec<SecurityFinding>, Error> {
    let (tenant, directory) = (caller.tenant, &state.directory);
    let names = state.agent_names(tenant).await?;
    let keys = directory.keys().list(tenant).await?;
    let (devices, _) = directory.devices().list(tenant).await?;
    let persons = directory.people().list(tenant, None, MAX_PEOPLE).await?;
    let accounts = directory.accounts().list(tenant, None).await?;
    let agents = directory.agents().list(tenant).await?;
    let policy = settings(&directory.policies().get(tenant, None).await?)?;
    let rules = state.sessions.approvals().rules(tenant, None, None).await?;
    let servers = directory.mcp_servers().list(tenant).await?;
    let webhooks = directory.event_webhooks().list(tenant).await?;
    // Without NATS no runner answers, and nothing is known of sandboxes.
    let runners = state.bus.runner_reports(RUNNER_STATUS_TIMEOUT).await.unwrap_or_default();

    let senders: Vec<Senders> = accounts.iter().filter_map(Senders::of).collect();
    let is_open = senders.iter().any(|account| account.is_everybody);
    Ok([
        usable_keys(&keys),
        people(&persons, &keys, &devices),
        channels(&accounts, &senders),
        commands(&policy, &runners, is_open),
        approvals(&policy, &rules, &names),
        shared_sessions(&agents, &senders),
        Box::pin(small_models(state, caller, agents)).await?,
        mcp_servers(&servers, &names),
        event_webhooks(&webhooks),
    ]
    .concat())
}

fn is_usable(key: &Key) -> bool {
    key.revoked_at.is_none() && key.expires_at.is_none_or(|at| at > Timestamp::now())
}

fn usable_keys(keys: &[Key]) -> Vec<SecurityFinding> {
    let mut findings = Vec::new();
    for key in keys.iter().filter(|key| is_usable(key)) {
        let about = format!("API key {} ({})", key.name, key.id);
        let scopes: String = key.scopes.iter().map(|scope| format!(" --scope {scope}")).collect();
        let create = format!("holdfast keys create {}{scopes}", quoted(&key.name));
        let revoke = format!("holdfast keys revoke {}", key.id);
        let is_administrative =
            key.scopes.iter().any(|scope| ADMINISTRATIVE_SCOPES.contains(&scope.as_str()));
        if is_administrative && key.expires_at.is_none() {
            findings.push(checks::KEY_NEVER_EXPIRES.find(
                &about,
                format!("it has the scopes {} until it is revoked", key.scopes.join(", ")),
                format!("{create} --days 90 && {revoke}"),
            ));
        }
        if key.scopes == ["guest"] && key.origins.is_empty() {
            let agent = key.agent.as_ref().map(|agent| format!(" --agent {agent}"));
            findings.push(checks::KEY_PUBLISHED_WITHOUT_ORIGINS.find(
                &about,
                "it is made for publication, and every web page can use it",
                format!("{create}{} --origin ORIGIN && {revoke}", agent.unwrap_or_default()),
            ));
        }
    }
    findings
}

fn people(people: &[Person], keys: &[Key], devices: &[Device]) -> Vec<SecurityFinding> {
    let is_disabled = |person: &&Person| person.disabled_at.is_some();
    let disabled: HashMap<PersonId, &str> =
        people.iter().filter(is_disabled).map(|one| (one.id, one.name.as_str())).collect();
    let name_of = |person: PersonId| disabled.get(&person);
    let find = |about: String, person: &str, command: String| {
        let why = format!("{person} is disabled, and it works again when {person} is enabled");
        checks::ACCESS_OF_DISABLED_PERSON.find(about, why, command)
    };
    let mut findings = Vec::new();
    for key in keys.iter().filter(|key| is_usable(key)) {
        if let Some(person) = key.person.and_then(name_of) {
            let command = format!("holdfast keys revoke {}", key.id);
            findings.push(find(format!("API key {} ({})", key.name, key.id), person, command));
        }
    }
    for device in devices.iter().filter(|device| device.revoked_at.is_none()) {
        let approver = match device.approver {
            Approver::Person(person) => Some(person),
            Approver::Key(_) => None,
        };
        let asked_by = device.asked_by.as_ref().and_then(|user| user.person);
        if let Some(person) = [asked_by, approver].into_iter().flatten().find_map(name_of) {
            let id = &device.profile.id;
            let about = format!("device {} ({id})", device.profile.name);
            findings.push(find(about, person, format!("holdfast devices remove {id}")));
        }
    }
    findings.extend(many_owners(people));
    findings
}

fn many_owners(people: &[Person]) -> Option<SecurityFinding> {
    let is_owner = |person: &&Person| {
        person.role == TenantRole::Owner
            && person.disabled_at.is_none()
            && person.merged_into.is_none()
    };
    let owners: Vec<&Person> = people.iter().filter(is_owner).collect();
    if owners.len() <= MAX_OWNERS {
        return None;
    }
    // Whoever was not seen for longest needs the role least. A provider sets the role of its people.
    let last = owners.iter().min_by_key(|owner| (owner.is_of_provider(), owner.seen_at))?;
    let command = match last.is_of_provider() {
        true => format!("holdfast people disable {}", last.id),
        false => format!("holdfast people update {} --role operator", last.id),
    };
    let names: Vec<&str> = owners.iter().map(|owner| owner.name.as_str()).collect();
    let why = format!("{} may change keys, people and policies", names.join(", "));
    Some(checks::OWNERS_MANY.find(format!("{} owners", owners.len()), why, command))
}

/// People who may write to an enabled channel account.
struct Senders {
    id: String,
    about: String,
    is_everybody: bool,
    count: usize,
}

impl Senders {
    /// Returns `None` for an account that is disabled.
    fn of(account: &Account) -> Option<Self> {
        let allow = account.settings["allow"].as_array().map_or(&[][..], Vec::as_slice);
        account.enabled.then(|| Self {
            id: account.id.to_string(),
            about: format!("channel account {} {}", account.channel, account.name),
            is_everybody: has_everybody(allow),
            count: allow.len(),
        })
    }
}

fn has_everybody(allow: &[Value]) -> bool {
    allow.iter().any(|entry| entry.as_str().is_some_and(|entry| entry.trim() == "*"))
}

fn channels(accounts: &[Account], senders: &[Senders]) -> Vec<SecurityFinding> {
    let open = senders.iter().filter(|account| account.is_everybody).map(|account| {
        checks::CHANNEL_OPEN.find(
            &account.about,
            "everybody may write to its agents",
            format!("holdfast channels update {} --allow SENDERS", account.id),
        )
    });
    let mut findings: Vec<SecurityFinding> = open.collect();
    for account in accounts.iter().filter(|account| account.enabled) {
        let about = format!("channel account {} {}", account.channel, account.name);
        let command = format!("holdfast channels update {} --settings @settings.json", account.id);
        let groups = account.settings["groups"]["allow"].as_array();
        if groups.is_some_and(|allow| has_everybody(allow)) {
            let why = "all members of any group that it is added to may write (`groups.allow`)";
            findings.push(checks::CHANNEL_OPEN_GROUPS.find(&about, why, &command));
        }
        let authentication = account.settings["authentication"].as_str().unwrap_or("required");
        if account.channel == "email" && authentication != "required" {
            let why = format!(
                "mails whose senders are forged reach its agents: `authentication` is \
                 `{authentication}`"
            );
            findings.push(checks::MAIL_UNAUTHENTICATED.find(&about, why, &command));
        }
    }
    findings
}

fn commands(policy: &Settings, runners: &[RunnerReport], is_open: bool) -> Vec<SecurityFinding> {
    let mut findings = Vec::new();
    let modes = policy.chats.iter().map(|rule| rule.sandbox_mode);
    if modes.chain([policy.sandbox_mode]).any(|mode| mode == Some(SandboxMode::Off)) {
        findings.push(checks::SANDBOX_OFF.find(
            "tool policy of the tenant",
            "where a runner has no sandbox, commands run without one (`sandbox_mode` is `off`)",
            PUT_POLICY,
        ));
    }
    let is_plain = |report: &&RunnerReport| report.sandbox.starts_with("plain");
    let plain = runners.iter().filter(is_plain).count();
    if plain > 0 {
        findings.push(checks::COMMANDS_WITHOUT_ISOLATION.find(
            "commands",
            format!("{plain} runners run agents' commands without isolation (docs/sandbox.md)"),
            "apt-get install bubblewrap",
        ));
    }
    if is_open { findings.into_iter().map(critical).collect() } else { findings }
}

const PUT_POLICY: &str = "holdfast policy put @policy.json";

fn approvals(
    policy: &Settings,
    rules: &[ApprovalRule],
    names: &AgentNames,
) -> Vec<SecurityFinding> {
    let mut findings = Vec::new();
    let is_never = |(_, mode): &(&String, &ApprovalMode)| **mode == ApprovalMode::Never;
    let never = policy.approvals.tools.iter().filter(is_never).map(|(tool, _)| tool.as_str());
    let never: Vec<&str> = never.collect();
    if !never.is_empty() {
        findings.push(checks::APPROVALS_NEVER.find(
            "tool policy of the tenant",
            format!("nobody is asked before {} act (`approvals.tools`)", never.join(", ")),
            PUT_POLICY,
        ));
    }
    for rule in rules {
        let Some(pattern) = rule.pattern.as_deref().filter(|pattern| is_broad(pattern)) else {
            continue;
        };
        findings.push(checks::APPROVAL_RULE_BROAD.find(
            format!("approval rule of the agent {}", names.of(rule.agent)),
            format!("`{pattern}` allows `{}` more than one exact command", rule.tool),
            format!("holdfast approvals forget {}", rule.id),
        ));
    }
    findings
}

/// Whether a pattern of commands allows more than one: a program with any arguments, or a wildcard.
fn is_broad(pattern: &str) -> bool {
    pattern.split_whitespace().nth(1).is_none() || pattern.contains(['*', '?'])
}

fn shared_sessions(agents: &[Agent], senders: &[Senders]) -> Vec<SecurityFinding> {
    let count: usize = senders.iter().map(|account| account.count).sum();
    if count < 2 && !senders.iter().any(|account| account.is_everybody) {
        return Vec::new();
    }
    let shared = agents.iter().filter(|agent| agent.settings.dm_scope == DmScope::Main);
    let find = |agent: &Agent| {
        checks::DIRECT_MESSAGES_SHARED.find(
            format!("agent {}", agent.name),
            "the direct messages of several people are one conversation, and each sees the others'",
            format!("holdfast agents update {} --dm-scope per-channel-peer", agent.name),
        )
    };
    shared.map(find).collect()
}

/// Finds agents that read the web with a model that instructions in a page easily mislead.
async fn small_models(
    state: &State,
    caller: &Caller,
    agents: Vec<Agent>,
) -> Result<Vec<SecurityFinding>, Error> {
    let cards: HashMap<AgentId, ModelCard> =
        state.directory.models().of_agents(caller.tenant).await?;
    let policies = Policies(state.clone());
    let mut findings = Vec::new();
    for agent in agents {
        let model = match state.directory.models().of_agent(caller.tenant, &agent).await {
            // The demonstration model follows no instructions.
            Ok(choice) if choice.kind == ProviderKind::Demo => continue,
            Ok(choice) => choice.model,
            Err(error) if error.kind().is_transient() => return Err(error.into()),
            // An agent whose model cannot be used reads nothing.
            Err(_) => continue,
        };
        if !is_small(&model, cards.get(&agent.id)) {
            continue;
        }
        let request =
            ExplainToolsRequest { agent: agent.name.to_string(), ..ExplainToolsRequest::default() };
        let decisions = explain_tools(&policies, caller, request).await?.decisions;
        let web = decisions.iter().filter(|one| {
            one.decision != "deny" && (one.tool.starts_with("web_") || one.tool == "browser")
        });
        let web: Vec<&str> = web.map(|one| one.tool.as_str()).collect();
        if !web.is_empty() {
            findings.push(checks::AGENT_SMALL_MODEL_READS_WEB.find(
                format!("agent {}", agent.name),
                format!("the small model {model} reads the web: {}", web.join(", ")),
                format!("holdfast agents update {} --model MODEL", agent.name),
            ));
        }
    }
    Ok(findings)
}

/// Whether a model is small, by its context or the size in its name.
fn is_small(model: &ModelId, card: Option<&ModelCard>) -> bool {
    let id = model.to_string().to_lowercase();
    let words = || id.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let has_small_size = words()
        .filter_map(|word| word.strip_suffix('b')?.parse::<f64>().ok())
        .any(|billions| billions < SMALL_PARAMETERS);
    let has_small_name = words().any(|word| matches!(word, "mini" | "nano" | "lite" | "tiny"));
    has_small_size || has_small_name || card.is_some_and(|card| card.context < SMALL_CONTEXT_TOKENS)
}

fn mcp_servers(servers: &[McpServer], names: &AgentNames) -> Vec<SecurityFinding> {
    let mut findings = Vec::new();
    for server in servers.iter().filter(|server| server.enabled) {
        let about = format!("MCP server {}", server.name);
        if server.harmless {
            findings.push(checks::MCP_SERVER_HARMLESS.find(
                &about,
                "its read-only tools are called without an approval after text from outside, and \
                 it learns what they are asked",
                put_again(server, names),
            ));
        }
        if let McpTransport::Http { url } = &server.transport
            && is_plain(url)
        {
            findings.push(checks::MCP_SERVER_OVER_HTTP.find(
                &about,
                format!("calls of its tools, with its headers, go to {url} without encryption"),
                format!("holdfast mcp add {} --url {}", server.name, quoted(&with_tls(url))),
            ));
        }
    }
    findings
}

/// Command that sets a server up as it is, but not as harmless.
fn put_again(server: &McpServer, names: &AgentNames) -> String {
    let agents = server.agents.iter().flatten().map(|agent| names.of(*agent));
    let agents: String = agents.map(|agent| format!(" --agent {agent}")).collect();
    let transport = match &server.transport {
        McpTransport::Http { url } => format!(" --url {}", quoted(url)),
        McpTransport::Stdio { command, args, network, keep } => {
            let network = if *network { " --network" } else { "" };
            let keep = if *keep { " --keep" } else { "" };
            let words: Vec<String> =
                [command].into_iter().chain(args).map(|word| quoted(word)).collect();
            format!("{network}{keep} -- {}", words.join(" "))
        }
    };
    format!("holdfast mcp add {} --replace --keep-secrets{agents}{transport}", server.name)
}

fn event_webhooks(webhooks: &[EventWebhook]) -> Vec<SecurityFinding> {
    let plain =
        webhooks.iter().filter(|webhook| webhook.is_active && is_plain(&webhook.settings.url));
    let find = |webhook: &EventWebhook| {
        let (name, url) = (&webhook.settings.name, &webhook.settings.url);
        let what = match webhook.settings.include_content {
            true => "events with the texts of messages",
            false => "events",
        };
        checks::WEBHOOK_OVER_HTTP.find(
            format!("webhook {name}"),
            format!("{what} go to {url} without encryption"),
            format!("holdfast events webhooks update {name} --url {}", quoted(&with_tls(url))),
        )
    };
    plain.map(find).collect()
}

/// Whether requests to an address leave the machine without encryption.
fn is_plain(url: &str) -> bool {
    url.starts_with("http://") && holdfast_egress::loopback_address(url).is_none()
}

fn with_tls(url: &str) -> String {
    url.replacen("http://", "https://", 1)
}

/// Word of a shell command.
fn quoted(word: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_./:@=+,%".contains(c);
    match !word.is_empty() && word.chars().all(is_safe) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_model_is_small_by_its_size_or_its_context() {
        let card = |context| Some(ModelCard { context, ..ModelCard::default() });
        for (model, card, expected) in [
            ("ollama:qwen3", card(40_960), true),
            ("openai:gpt-5", card(400_000), false),
            ("openai:gpt-5-mini", card(400_000), true),
            ("vllm:llama-3-8b", None, true),
            ("vllm:llama-3.1-405b", None, false),
            ("other:unknown", None, false),
        ] {
            let id: ModelId = model.parse().unwrap();
            assert_eq!(is_small(&id, card.as_ref()), expected, "{model}");
        }
    }

    #[test]
    fn commands_without_isolation_are_critical_where_everybody_may_write() {
        let off: Settings = serde_json::from_value(json!({"sandbox_mode": "off"})).unwrap();
        let plain = [RunnerReport { sandbox: "plain".to_owned(), ..RunnerReport::default() }];

        let closed = commands(&off, &plain, false);
        let open = commands(&off, &plain, true);

        assert_eq!(closed.len(), 2);
        assert!(closed.iter().all(|finding| finding.severity == "warning"), "{closed:?}");
        assert!(open.iter().all(|finding| finding.severity == "critical"), "{open:?}");
        assert!(commands(&Settings::default(), &[], true).is_empty());
    }

    #[test]
    fn a_pattern_is_broad_unless_it_is_one_command() {
        for (pattern, expected) in
            [("git log -p", false), ("make *", true), ("bash", true), ("ls fil?", true)]
        {
            assert_eq!(is_broad(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn words_of_commands_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("https://a.example/x", "https://a.example/x"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
