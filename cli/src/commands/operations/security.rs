//! `holdfast security audit`: settings that expose a tenant to people who should not have access.

use std::net::SocketAddr;

use clap::Subcommand;
use holdfast_kit::config;
use holdfast_proto::gateway::v1::{
    Account, Agent, ExplainToolsRequest, GetStatusRequest, KnownModel, ListAccountsRequest,
    ListAgentsRequest, ListModelsRequest, ListProvidersRequest,
};
use serde_json::{Value, json};

use crate::{
    bootstrap,
    client::Client,
    error::Error,
    screen::Screen,
    service::{self, Service as _},
};

const COLUMNS: [&str; 3] = ["severity", "about", "found"];
/// Context window below which a model counts as small, in tokens.
const SMALL_CONTEXT_TOKENS: u64 = 65_536;
/// Number of parameters below which a model counts as small, in billions.
const SMALL_PARAMETERS: f64 = 70.0;

#[derive(Debug, Subcommand)]
pub enum Security {
    /// Report risky settings: who may write, what agents may then do, where services listen
    Audit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Critical,
    Warning,
}

#[derive(Debug, PartialEq, Eq)]
struct Finding {
    severity: Severity,
    about: String,
    found: String,
    advice: &'static str,
}

fn critical(about: impl Into<String>, found: impl Into<String>, advice: &'static str) -> Finding {
    Finding { severity: Severity::Critical, about: about.into(), found: found.into(), advice }
}

fn warning(about: impl Into<String>, found: impl Into<String>, advice: &'static str) -> Finding {
    Finding { severity: Severity::Warning, about: about.into(), found: found.into(), advice }
}

impl Finding {
    fn view(&self) -> Value {
        let severity = match self.severity {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
        };
        json!({
            "severity": severity,
            "about": self.about,
            "found": self.found,
            "advice": self.advice,
        })
    }
}

impl Security {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// If something is critical, or the gateway refuses.
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let Self::Audit = self;
        let mut findings: Vec<Finding> = of_address(client.url()).into_iter().collect();
        findings.extend(of_listeners(&local_listeners()?));
        let request = client.request(ListAccountsRequest::default());
        let accounts = client.answer(client.channels().list_accounts(request).await)?.accounts;
        let senders: Vec<Senders> = accounts.iter().map(Senders::of).collect();
        findings.extend(senders.iter().filter_map(Senders::finding));
        let request = client.request(ListAgentsRequest {});
        let agents = client.answer(client.agents().list_agents(request).await)?.agents;
        findings.extend(agents.iter().filter_map(|agent| shared_session(agent, &senders)));
        findings.extend(small_models(client, &agents).await?);
        findings.extend(commands(client, &senders).await?);
        findings.sort_by_key(|finding| finding.severity);

        screen.list(&COLUMNS, findings.iter().map(Finding::view).collect())?;
        if !screen.is_json() {
            for finding in &findings {
                screen.note(&format!("{}: {}", finding.about, finding.advice))?;
            }
        }
        match findings.iter().filter(|one| one.severity == Severity::Critical).count() {
            0 => Ok(()),
            1 => Err(Error::NoAnswer("one finding is critical".to_owned())),
            number => Err(Error::NoAnswer(format!("{number} findings are critical"))),
        }
    }
}

/// The address by which this command calls the gateway.
fn of_address(url: &str) -> Option<Finding> {
    let host = url.strip_prefix("http://")?.split(['/', '?']).next()?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_local = name == "localhost"
        || name.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    (!is_local).then(|| {
        critical(
            "the gateway's address",
            format!("{url} sends the API key and all messages without encryption"),
            "use https:// (docs/configuration.md, `[tls]`)",
        )
    })
}

/// Addresses on which this machine's gateway listens, by the settings that are here, and whether it
/// encrypts.
struct Listeners {
    addresses: Vec<(&'static str, SocketAddr)>,
    has_tls: bool,
}

fn local_listeners() -> Result<Listeners, Error> {
    let settings: gateway::Config =
        config::load_from(service::Gateway::TABLE, bootstrap::environment())
            .map_err(anyhow::Error::from)?;
    Ok(Listeners {
        addresses: vec![
            ("gateway.http", settings.gateway.http),
            ("gateway.grpc", settings.gateway.grpc),
        ],
        has_tls: settings.tls.certificate.is_some(),
    })
}

fn of_listeners(listeners: &Listeners) -> Vec<Finding> {
    if listeners.has_tls {
        return Vec::new();
    }
    let open = listeners.addresses.iter().filter(|(_, address)| !address.ip().is_loopback());
    open.map(|(setting, address)| {
        critical(
            *setting,
            format!("{address} can be reached from other machines, without encryption"),
            "listen on 127.0.0.1, or set `tls.certificate` (docs/configuration.md)",
        )
    })
    .collect()
}

/// People who may write to a channel account.
struct Senders {
    account: String,
    is_enabled: bool,
    is_everybody: bool,
    count: usize,
}

impl Senders {
    fn of(account: &Account) -> Self {
        let settings: Value = serde_json::from_str(&account.settings).unwrap_or_default();
        let allow = settings["allow"].as_array().map_or(&[][..], Vec::as_slice);
        Self {
            account: format!("{} {}", account.channel, account.name),
            is_enabled: account.enabled,
            is_everybody: allow.iter().any(|sender| sender == "*"),
            count: allow.len(),
        }
    }

    fn finding(&self) -> Option<Finding> {
        (self.is_enabled && self.is_everybody).then(|| {
            warning(
                &self.account,
                "everybody may write to its agents",
                "name the senders in `allow`, if it is not a public assistant (docs/channels.md)",
            )
        })
    }
}

/// Finds an agent whose direct messages of several people are one conversation.
fn shared_session(agent: &Agent, senders: &[Senders]) -> Option<Finding> {
    if agent.dm_scope != "main" {
        return None;
    }
    let enabled = || senders.iter().filter(|account| account.is_enabled);
    let several = enabled().map(|account| account.count).sum::<usize>() > 1;
    (several || enabled().any(|account| account.is_everybody)).then(|| {
        warning(
            format!("agent {}", agent.name),
            "the direct messages of several people are one conversation, and each sees the others'",
            "`holdfast agents update NAME --dm-scope per-channel-peer`",
        )
    })
}

/// Finds agents that read the web with a model that instructions in a page easily mislead.
async fn small_models(client: &Client, agents: &[Agent]) -> Result<Vec<Finding>, Error> {
    let request = client.request(ListModelsRequest { own: false });
    let models = client.answer(client.models().list_models(request).await)?.models;
    let request = client.request(ListProvidersRequest {});
    let providers = client.answer(client.providers().list_providers(request).await)?.providers;
    let default = providers.into_iter().map(|one| one.default_model).find(|one| !one.is_empty());
    let mut findings = Vec::new();
    for agent in agents {
        let own = Some(agent.model.clone()).filter(|model| !model.is_empty());
        let Some(model) = own.or_else(|| default.clone()) else { continue };
        if !is_small(&model, &models) {
            continue;
        }
        let request = ExplainToolsRequest { agent: agent.name.clone(), ..Default::default() };
        let explained = client.policies().explain_tools(client.request(request)).await;
        let decisions = client.answer(explained)?.decisions;
        let web = decisions.iter().filter(|one| {
            one.decision != "deny" && (one.tool.starts_with("web_") || one.tool == "browser")
        });
        let web: Vec<&str> = web.map(|one| one.tool.as_str()).collect();
        if !web.is_empty() {
            findings.push(warning(
                format!("agent {}", agent.name),
                format!("the small model {model} reads the web: {}", web.join(", ")),
                "give it a larger model, or no web tools: `holdfast agents update NAME --tools …`",
            ));
        }
    }
    Ok(findings)
}

/// Whether a model is small, by its context or the size in its name.
fn is_small(model: &str, known: &[KnownModel]) -> bool {
    let card =
        known.iter().find(|one| one.model == model || one.aliases.iter().any(|a| a == model));
    let context = card
        .and_then(|one| serde_json::from_str::<Value>(&one.card).ok()?.get("context")?.as_u64());
    let id = model.to_lowercase();
    let words = || id.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let has_small_size = words()
        .filter_map(|word| word.strip_suffix('b')?.parse::<f64>().ok())
        .any(|billions| billions < SMALL_PARAMETERS);
    let has_small_name = words().any(|word| matches!(word, "mini" | "nano" | "lite" | "tiny"));
    has_small_size || has_small_name || context.is_some_and(|tokens| tokens < SMALL_CONTEXT_TOKENS)
}

/// Finds runners that run commands without isolation. That is critical if strangers may write.
async fn commands(client: &Client, senders: &[Senders]) -> Result<Option<Finding>, Error> {
    let request = client.request(GetStatusRequest {});
    let status = client.answer(client.operations().get_status(request).await)?;
    let plain = status.sandboxes.iter().filter(|(name, _)| name.starts_with("plain"));
    let plain: i64 = plain.map(|(_, runners)| runners).sum();
    if plain == 0 {
        return Ok(None);
    }
    const ADVICE: &str = "install bubblewrap where runners run (docs/sandbox.md)";
    let found = format!("{plain} runners run agents' commands without isolation");
    let is_open = senders.iter().any(|account| account.is_enabled && account.is_everybody);
    Ok(Some(if is_open {
        critical("commands", format!("{found}, and everybody may write"), ADVICE)
    } else {
        warning("commands", found, ADVICE)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_beyond_this_machine_without_encryption_is_critical() {
        for local in ["http://127.0.0.1:18790", "http://localhost:1", "http://[::1]:2", "https://h"]
        {
            assert_eq!(of_address(local), None, "{local}");
        }
        assert_eq!(of_address("http://10.0.0.7:1").unwrap().severity, Severity::Critical);

        let listeners = |has_tls| Listeners {
            addresses: vec![
                ("gateway.http", "192.0.2.1:18789".parse().unwrap()),
                ("gateway.grpc", "127.0.0.1:18790".parse().unwrap()),
            ],
            has_tls,
        };
        assert_eq!(of_listeners(&listeners(true)), []);
        let found = of_listeners(&listeners(false));
        assert_eq!((found.len(), found[0].severity), (1, Severity::Critical));
    }

    #[test]
    fn a_model_is_small_by_its_size_or_its_context() {
        let card = |model: &str, context: u64| KnownModel {
            model: model.to_owned(),
            card: json!({"context": context}).to_string(),
            aliases: vec!["quick".to_owned()],
            is_own: false,
        };
        let known = [card("ollama:qwen3", 40_960), card("openai:gpt-5", 400_000)];

        for (model, expected) in [
            ("ollama:qwen3", true),
            ("quick", true),
            ("openai:gpt-5", false),
            ("openai:gpt-5-mini", true),
            ("vllm:llama-3-8b", true),
            ("vllm:llama-3.1-405b", false),
            ("other:unknown", false),
        ] {
            assert_eq!(is_small(model, &known), expected, "{model}");
        }
    }
}
