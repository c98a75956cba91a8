//! `holdfast doctor`: what is wrong with an installation, seen from a caller, and what to do.

use std::{collections::BTreeSet, time::Duration};

use clap::Args;
use holdfast_proto::gateway::v1::{
    Account, GetCallerRequest, GetMemoryStatusRequest, GetStatusRequest, GetStatusResponse, Job,
    ListAccountsRequest, ListAgentsRequest, ListCredentialsRequest, ListProvidersRequest,
    WaitReason,
};
use holdfast_types::Kind;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    client::Client,
    commands::{
        llm::check::{self, Failure},
        schedules::cron::load_jobs,
    },
    error::Error,
    screen::{Screen, progress},
};

/// Age of the oldest waiting message that is a warning, in milliseconds.
const LONG_WAIT_MS: i64 = 60_000;
/// Wait before runners are asked again.
const RUNNER_DELAY: Duration = Duration::from_millis(500);

/// Maximum number of failed jobs that are named.
const MAX_NAMED_JOBS: usize = 5;

const COLUMNS: [&str; 3] = ["state", "about", "found"];

/// `holdfast doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Also ask the default agent something, in a session that is deleted afterwards: costs a call
    /// of its model
    #[arg(long)]
    ask: bool,

    /// Also call each model that is in use: costs a call of each
    #[arg(long)]
    models: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ok,
    Warning,
    Failure,
    /// The caller may not know.
    Unknown,
}

/// Result of one check; `advice` is empty if there is nothing to do.
#[derive(Debug)]
struct Finding {
    state: State,
    about: &'static str,
    found: String,
    advice: String,
}

impl Finding {
    fn ok(about: &'static str, found: impl Into<String>) -> Self {
        Self { state: State::Ok, about, found: found.into(), advice: String::new() }
    }

    fn bad(
        state: State,
        about: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { state, about, found: found.into(), advice: advice.into() }
    }

    fn of_error(about: &'static str, error: &Error) -> Self {
        let is_refused = matches!(error, Error::Refused(status) if holdfast_grpc::kind(status) == Kind::Forbidden);
        let state = if is_refused { State::Unknown } else { State::Failure };
        Self::bad(state, about, error.to_string(), "")
    }

    fn view(&self) -> Value {
        let state = match self.state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Failure => "failure",
            State::Unknown => "unknown",
        };
        json!({"state": state, "about": self.about, "found": self.found, "advice": self.advice})
    }
}

/// Makes all checks and prints their findings.
///
/// # Errors
///
/// If something fails that an agent needs to answer.
pub async fn run(args: &DoctorArgs, client: &Client, screen: &Screen) -> Result<(), Error> {
    let mut findings = Vec::new();
    match status(client).await {
        Ok(status) => {
            findings.extend(of_status(&status));
            findings.push(caller(client).await);
            findings.extend(models(client).await);
            findings.push(memory(client).await);
            findings.push(channels(client).await);
            findings.push(jobs(client).await);
            if args.models {
                findings.extend(call_models(client).await);
            }
            if args.ask {
                findings.push(ask(client).await);
            }
        }
        Err(error) => findings.push(Finding::of_error("gateway", &error)),
    }
    screen.list(&COLUMNS, findings.iter().map(Finding::view).collect())?;
    if !screen.is_json() {
        for finding in findings.iter().filter(|finding| !finding.advice.is_empty()) {
            screen.note(&format!("{}: {}", finding.about, finding.advice))?;
        }
    }
    match findings.iter().filter(|finding| finding.state == State::Failure).count() {
        0 => Ok(()),
        1 => Err(Error::NoAnswer("one thing fails".to_owned())),
        failures => Err(Error::NoAnswer(format!("{failures} things fail"))),
    }
}

/// The status of the tenant. Runners that are busy, or have just started, may miss the first question.
async fn status(client: &Client) -> Result<GetStatusResponse, Error> {
    for _ in 0..4 {
        let status = client.operations().get_status(client.request(GetStatusRequest {})).await;
        let status = client.answer(status)?;
        if !status.sandboxes.is_empty() || !status.no_commands.is_empty() {
            return Ok(status);
        }
        sleep(RUNNER_DELAY).await;
    }
    client.answer(client.operations().get_status(client.request(GetStatusRequest {})).await)
}

/// The pool whose runners alone work for the tenant.
fn runner_pool(status: &GetStatusResponse) -> Finding {
    let GetStatusResponse { runner_pool: pool, pool_runners, .. } = status;
    match pool_runners {
        0 => Finding::bad(
            State::Failure,
            "runner pool",
            format!("no runner of the pool `{pool}` is alive, so no message is answered"),
            format!(
                "start an agent-runner with `runner.pool = \"{pool}\"`, or give the tenant another \
                 pool: `holdfast tenants update TENANT --no-pool`"
            ),
        ),
        runners => Finding::ok("runner pool", format!("`{pool}`, {runners} alive")),
    }
}

fn of_status(status: &GetStatusResponse) -> Vec<Finding> {
    let own = env!("CARGO_PKG_VERSION");
    let mut findings = vec![if status.version == own {
        Finding::ok("gateway", format!("answers, version {own}"))
    } else {
        let found = format!("has version {}, and this command {own}", status.version);
        Finding::bad(State::Warning, "gateway", found, "use the command of the same version")
    }];
    let with_commands: i64 = status.sandboxes.values().sum();
    let without: i64 = status.no_commands.values().sum();
    findings.push(match with_commands + without {
        0 => Finding::bad(
            State::Failure,
            "runners",
            "none answers, so no message is answered",
            "start an agent-runner, or see its log: it needs the same NATS and `nats.prefix` as the gateway",
        ),
        runners => Finding::ok("runners", format!("{runners} answer")),
    });
    if !status.runner_pool.is_empty() {
        findings.push(runner_pool(status));
    }
    let plain = status.sandboxes.iter().filter(|(sandbox, _)| sandbox.starts_with("plain"));
    let unsafe_runners: i64 = plain.map(|(_, runners)| runners).sum();
    if unsafe_runners > 0 {
        findings.push(Finding::bad(
            State::Warning,
            "commands",
            format!("{unsafe_runners} runners run agents' commands without isolation"),
            "install bubblewrap where they run, or set `runner.sandbox.backend` (docs/sandbox.md)",
        ));
    }
    for (reason, runners) in &status.no_commands {
        let found = format!("{runners} runners have none: {reason}");
        findings.push(Finding::bad(State::Warning, "commands", found, "see docs/sandbox.md"));
    }
    findings.extend(waiting(status));
    if status.dead_letters > 0 {
        findings.push(Finding::bad(
            State::Warning,
            "dead letters",
            format!("{} messages were given up", status.dead_letters),
            "`holdfast dead list` says why, `holdfast dead requeue` tries again",
        ));
    }
    for state in ["unknown", "dead"] {
        let number = status.deliveries.get(state).copied().unwrap_or_default();
        if number > 0 {
            findings.push(Finding::bad(
                State::Warning,
                "deliveries",
                format!("{number} replies are {state}"),
                "`holdfast deliveries list` says why",
            ));
        }
    }
    findings
}

/// Messages that wait, by reason.
fn waiting(status: &GetStatusResponse) -> Vec<Finding> {
    const ABOUT: &str = "waiting messages";
    if status.wait_reasons.is_empty() {
        return vec![match is_long(status.oldest_wait_ms) {
            false => Finding::ok(ABOUT, status.waiting_messages.to_string()),
            // A gateway of an older version gives no reasons.
            true => Finding::bad(
                State::Warning,
                ABOUT,
                format!("{} for {}", status.waiting_messages, seconds(status.oldest_wait_ms)),
                "`holdfast sessions list` shows paused sessions, `holdfast approvals list` questions",
            ),
        }];
    }
    let has_runner = status.sandboxes.values().chain(status.no_commands.values()).sum::<i64>() > 0;
    let finding = |group: &WaitReason| {
        let found = describe_wait(group);
        match wait_advice(group, has_runner) {
            Some(advice) => Finding::bad(State::Warning, ABOUT, found, advice),
            None => Finding::ok(ABOUT, found),
        }
    };
    status.wait_reasons.iter().map(finding).collect()
}

/// A sentence on messages that wait for one reason.
pub fn describe_wait(group: &WaitReason) -> String {
    let WaitReason { object, holder, .. } = group;
    let reason = match group.reason.as_str() {
        "running" => "their turn runs".to_owned(),
        "runner" => "no runner is free".to_owned(),
        "retry" => format!("{object} failed and is tried again"),
        "paused" => format!("{object} is paused"),
        "approval" => format!("{object} waits for an approval"),
        "event" => format!("{object} waits for an answer or an event"),
        "agent_disabled" => format!("the agent {object} is disabled"),
        "agent_rests" => format!("the agent {object} rests until its hit points recover"),
        "workspace_held" => format!("{holder} keeps the workspace {object}"),
        "tenant_cap" => format!("the tenant has {object} sessions at work, which is its limit"),
        "tenant_suspended" => "the tenant is suspended".to_owned(),
        other => other.to_owned(),
    };
    let messages = if group.messages == 1 { "message" } else { "messages" };
    let wait = seconds(group.oldest_wait_ms);
    format!("{} {messages} for {wait}: {reason}", group.messages)
}

/// What to do about messages that wait; `None` if they are processed by themselves.
fn wait_advice(group: &WaitReason, has_runner: bool) -> Option<String> {
    let WaitReason { object, holder, .. } = group;
    let advice = match group.reason.as_str() {
        "paused" => format!("`holdfast sessions resume {object}`"),
        "approval" => "`holdfast approvals list` shows it, `holdfast approvals allow ID` or `deny ID` decides".to_owned(),
        "agent_disabled" => format!("`holdfast agents enable {object}`"),
        "agent_rests" => format!("`holdfast hp show {object}` says for how long, `holdfast hp enable {object}` restores them"),
        "workspace_held" => format!(
            "finish or cancel the todos of that session (`holdfast todo ls {holder}`), or unbind it: `holdfast workspaces bind {holder}`"
        ),
        "tenant_cap" => "an operator raises it with `holdfast tenants update TENANT --cap NUMBER`; the other reasons say what keeps its places".to_owned(),
        "tenant_suspended" => "an operator ends that with `holdfast tenants resume TENANT`".to_owned(),
        "runner" if !has_runner => "start an agent-runner".to_owned(),
        _ if !is_long(group.oldest_wait_ms) => return None,
        "runner" => "start more runners, or see why turns take long: `holdfast runs list`".to_owned(),
        "retry" => format!("`holdfast runs list --session {object}` and the runner's log say why it fails"),
        "event" => format!("`holdfast sessions show {object}` says for what"),
        _ => return None,
    };
    Some(advice)
}

const fn is_long(wait_ms: i64) -> bool {
    wait_ms > LONG_WAIT_MS
}

fn seconds(millis: i64) -> String {
    format!("{} s", millis / 1_000)
}

async fn caller(client: &Client) -> Finding {
    let caller = client.people().get_caller(client.request(GetCallerRequest {})).await;
    match client.answer(caller) {
        Ok(who) if who.role.is_empty() => Finding::ok(
            "credential",
            format!("a key of the tenant {} for {}", who.tenant, who.scopes.join(", ")),
        ),
        Ok(who) => Finding::ok("credential", format!("{} of the tenant {}", who.role, who.tenant)),
        Err(error) => Finding::of_error("credential", &error),
    }
}

/// Providers of models, their keys, and agents without a model.
async fn models(client: &Client) -> Vec<Finding> {
    const SET_UP: &str = "`holdfast setup` sets one up (docs/models.md)";
    let listed = client.providers().list_providers(client.request(ListProvidersRequest {})).await;
    let providers = match client.answer(listed) {
        Ok(listed) => listed.providers,
        Err(error) => return vec![Finding::of_error("models", &error)],
    };
    let default = providers.iter().map(|one| &one.default_model).find(|model| !model.is_empty());
    let mut findings = Vec::new();
    let agents = client.agents().list_agents(client.request(ListAgentsRequest {})).await;
    let without: Vec<String> = match client.answer(agents) {
        Ok(listed) => listed.agents,
        Err(_) => Vec::new(),
    }
    .into_iter()
    .filter(|agent| agent.model.is_empty())
    .map(|agent| agent.name)
    .collect();
    findings.push(match default {
        _ if providers.is_empty() => {
            Finding::bad(State::Failure, "models", "there is no provider", SET_UP)
        }
        Some(default) => {
            Finding::ok("models", format!("{} providers, default {default}", providers.len()))
        }
        None if without.is_empty() => {
            Finding::ok("models", format!("{} providers", providers.len()))
        }
        None => Finding::bad(
            State::Failure,
            "models",
            format!("no default, and none of its own has: {}", without.join(", ")),
            "`holdfast providers put NAME --model MODEL` makes one the default",
        ),
    });
    let request = client.request(ListCredentialsRequest {});
    let credentials = match client.answer(client.credentials().list_credentials(request).await) {
        Ok(listed) => listed.credentials,
        Err(_) => return findings,
    };
    for one in credentials.iter().filter(|one| one.state != "ready") {
        let reasons = one.failures.join(", ");
        findings.push(Finding::bad(
            State::Warning,
            "keys of models",
            format!("{} of {} is {} {reasons}", one.name, one.provider, one.state),
            "docs/models.md#errors says what each reason means; `holdfast credentials enable` tries again",
        ));
    }
    findings
}

async fn memory(client: &Client) -> Finding {
    let request = client.request(GetMemoryStatusRequest::default());
    match client.answer(client.memories().get_memory_status(request).await) {
        Ok(status) if status.model.starts_with("hashed") => Finding::bad(
            State::Warning,
            "memory",
            "finds by shared words only, not by meaning",
            "set `memory.embedding`, or fetch the local model with `make embedder` (docs/memory.md)",
        ),
        Ok(status) => Finding::ok("memory", format!("searches with {}", status.model)),
        Err(error) => Finding::of_error("memory", &error),
    }
}

async fn channels(client: &Client) -> Finding {
    let request = client.request(ListAccountsRequest::default());
    match client.answer(client.channels().list_accounts(request).await) {
        Ok(listed) => {
            let enabled = listed.accounts.iter().filter(|account| account.enabled).count();
            // The gateway masks secrets that older versions stored in settings.
            let is_masked = |account: &&Account| {
                account.settings.contains("://***@") || account.settings.contains(" ***\"")
            };
            let masked = listed.accounts.iter().filter(is_masked);
            let masked: Vec<String> =
                masked.map(|account| format!("{}/{}", account.channel, account.name)).collect();
            if masked.is_empty() {
                return Finding::ok("channels", format!("{enabled} accounts enabled"));
            }
            Finding::bad(
                State::Warning,
                "channels",
                format!("secrets in the settings of {}", masked.join(", ")),
                "settings are not secret: set them with `holdfast channels update` again, without the \
                 part that is shown as `***`, and put it into the secrets (docs/channels.md)",
            )
        }
        Err(error) => Finding::of_error("channels", &error),
    }
}

/// Jobs whose last run failed.
async fn jobs(client: &Client) -> Finding {
    let jobs = match load_jobs(client, "", "all").await {
        Ok(jobs) => jobs,
        Err(error) => return Finding::of_error("jobs", &error),
    };
    let failed: Vec<&Job> = jobs.iter().filter(|job| job.last_status == "error").collect();
    if failed.is_empty() {
        return Finding::ok("jobs", format!("{}, and none failed in its last run", jobs.len()));
    }
    let is_defect = failed.iter().any(|job| job.last_error.starts_with("database_"));
    let shown = failed.iter().take(MAX_NAMED_JOBS);
    let mut named: Vec<String> =
        shown.map(|job| format!("{} {} ({})", job.id, job.name, job.last_error)).collect();
    if failed.len() > MAX_NAMED_JOBS {
        named.push(format!("{} more", failed.len() - MAX_NAMED_JOBS));
    }
    Finding::bad(
        if is_defect { State::Failure } else { State::Warning },
        "jobs",
        format!(
            "{} of {} failed in their last run: {}",
            failed.len(),
            jobs.len(),
            named.join(", ")
        ),
        "docs/scheduler.md#how-a-firing-ends says what each reason means; `holdfast cron runs ID` \
         lists a job's runs",
    )
}

/// Holds a short conversation with the default agent.
async fn ask(client: &Client) -> Finding {
    asked("an answer", check::ask(client, "", None).await, "")
}

/// Asks each model that agents use, and each provider's default.
async fn call_models(client: &Client) -> Vec<Finding> {
    let listed = client.providers().list_providers(client.request(ListProvidersRequest {})).await;
    let Ok(listed) = client.answer(listed) else { return Vec::new() };
    let agents = client.agents().list_agents(client.request(ListAgentsRequest {})).await;
    let agents = client.answer(agents).map(|listed| listed.agents).unwrap_or_default();
    let defaults = listed.providers.into_iter().map(|provider| provider.default_model);
    let own = agents.into_iter().flat_map(|agent| {
        let fallbacks = agent.fallbacks.into_iter();
        std::iter::once(agent.model).chain(fallbacks)
    });
    let models: BTreeSet<String> = defaults.chain(own).filter(|model| !model.is_empty()).collect();
    let mut findings = Vec::new();
    for model in models {
        progress::begin(format!("asking {model}"));
        findings.push(asked("model", check::ask(client, "", Some(&model)).await, &model));
    }
    findings
}

fn asked(about: &'static str, asked: Result<Duration, Failure>, model: &str) -> Finding {
    let name = if model.is_empty() { String::new() } else { format!("{model}: ") };
    match asked {
        Ok(time) => Finding::ok(about, format!("{name}answers after {} ms", time.as_millis())),
        Err(failure) => {
            let found = format!("{name}{} {}", failure.reason, failure.message.trim());
            Finding::bad(State::Failure, about, found, failure.advice())
        }
    }
}
