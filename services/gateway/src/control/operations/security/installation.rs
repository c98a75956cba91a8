//! Checks of the installation, from the settings of the gateway that answers.

use std::net::SocketAddr;

use holdfast_bus::ProcessReport;
use holdfast_kit::config;
use holdfast_proto::gateway::v1::SecurityFinding;
use secrecy::ExposeSecret as _;

use super::checks;
use crate::Config;

/// Secrets of the gateway that belong in files.
pub(super) const SECRETS: [&str; 10] = [
    "database.url",
    "mesh.caller_keys",
    "mesh.key",
    "mesh.secret",
    "mesh.secrets_key",
    "nats.url",
    "redis.url",
    "secrets.kek",
    "secrets.pepper",
    "secrets.previous_kek",
];

/// User of the gateway in NATS and Redis, as docs/operating.md has it.
const GATEWAY_USER: &str = "holdfast_gateway";

/// Facts that the checks need besides the settings.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Number of tenants.
    pub tenants: usize,
    /// Runners that report that they do not host tenants that distrust each other.
    pub runners_without_hosting: usize,
    /// Those of [`SECRETS`] that environment variables hold.
    pub secrets_in_environment: Vec<&'static str>,
    /// Pools of runners without a login of their own in the database.
    pub pools_without_login: Vec<String>,
}

/// Number of runners that do not host tenants that distrust each other.
pub(super) fn without_hosting(reports: &[ProcessReport]) -> usize {
    let runners = reports.iter().filter(|report| report.service == "agent-runner");
    runners.filter(|report| report.is_hosted == Some(false)).count()
}

/// Returns the findings of all checks of the installation.
pub(super) fn check(config: &Config, facts: &Facts) -> Vec<SecurityFinding> {
    let mut findings = listeners(config);
    findings.extend(console(config));
    findings.extend(tenants(config, facts));
    findings.extend(services(config));
    findings.extend(facts.secrets_in_environment.iter().map(|secret| {
        let variable = config::variable(secret);
        checks::SECRET_IN_ENVIRONMENT.find(
            *secret,
            format!("{variable} is inherited by child processes and shown in dumps of the process"),
            format!("{variable}_FILE=/run/secrets/FILE"),
        )
    }));
    findings.extend(facts.pools_without_login.iter().map(|pool| {
        checks::RUNNER_POOL_SHARES_LOGIN.find(
            format!("pool {pool}"),
            "whoever takes over one of its runners reaches the rows of all tenants",
            format!(
                "HOLDFAST_DATABASE__URL=postgres://holdfast_runner_pool_{pool}:PASSWORD@HOST/holdfast"
            ),
        )
    }));
    findings
}

/// Listen addresses of the API that other machines can reach.
fn open_listeners(config: &Config) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let gateway = &config.gateway;
    let all = [
        ("gateway.http", Some(gateway.http)),
        ("gateway.grpc", Some(gateway.grpc)),
        ("gateway.websocket.listen", gateway.websocket.listen),
    ];
    let given = all.into_iter().filter_map(|(setting, address)| Some((setting, address?)));
    given.filter(|(_, address)| !address.ip().is_loopback())
}

fn listeners(config: &Config) -> Vec<SecurityFinding> {
    let mut findings = Vec::new();
    let is_behind_tls =
        config.gateway.console.url.as_ref().is_some_and(|url| url.starts_with("https://"));
    if config.tls.certificate.is_none() {
        findings.extend(open_listeners(config).map(|(setting, address)| {
            let finding = checks::LISTENER_WITHOUT_TLS.find(
                setting,
                format!("API keys travel unencrypted to {address}, which other machines can reach"),
                "HOLDFAST_TLS__CERTIFICATE=FILE HOLDFAST_TLS__PRIVATE_KEY=FILE",
            );
            match is_behind_tls {
                true => SecurityFinding { severity: "warning".to_owned(), ..finding },
                false => finding,
            }
        }));
    }
    if config.gateway.has_reflection() && !config.gateway.grpc.ip().is_loopback() {
        findings.push(checks::REFLECTION_OPEN.find(
            "gateway.reflection",
            "callers without a key read which calls there are",
            "HOLDFAST_GATEWAY__REFLECTION=false",
        ));
    }
    if let Some(address) = config.telemetry.metrics_listen
        && !address.ip().is_loopback()
    {
        findings.push(checks::METRICS_OPEN.find(
            "telemetry.metrics_listen",
            format!("whoever reaches {address} reads the load of all tenants together"),
            format!("HOLDFAST_TELEMETRY__METRICS_LISTEN=127.0.0.1:{}", address.port()),
        ));
    }
    if config.gateway.cors_origins.iter().any(|origin| origin == "*") {
        findings.push(checks::CORS_ANY_ORIGIN.find(
            "gateway.cors_origins",
            "any web page calls the HTTP API with the keys that it is given",
            r#"HOLDFAST_GATEWAY__CORS_ORIGINS='["ORIGIN"]'"#,
        ));
    }
    findings
}

fn console(config: &Config) -> Option<SecurityFinding> {
    let (console, set) = (&config.gateway.console, "HOLDFAST_GATEWAY__CONSOLE__URL=https://HOST");
    let is_open = !config.gateway.http.ip().is_loopback();
    match &console.url {
        None if console.enabled && is_open => Some(checks::CONSOLE_URL_NOT_SET.find(
            "gateway.console.url",
            "sign-in links and redirects of identity providers follow the `Host` of a request",
            set,
        )),
        Some(url)
            if url.starts_with("http://") && holdfast_egress::loopback_address(url).is_none() =>
        {
            let why = format!("people sign in at {url}, and their sessions travel unencrypted");
            Some(checks::CONSOLE_URL_PLAIN.find("gateway.console.url", why, set))
        }
        None | Some(_) => None,
    }
}

fn tenants(config: &Config, facts: &Facts) -> Vec<SecurityFinding> {
    let mut findings = Vec::new();
    if facts.tenants < 2 {
        return findings;
    }
    if facts.runners_without_hosting > 0 {
        findings.push(checks::HOSTED_OFF.find(
            "runner.sandbox.hosted",
            format!(
                "{} runners may run commands of {} tenants with the isolation of one",
                facts.runners_without_hosting, facts.tenants
            ),
            "HOLDFAST_RUNNER__SANDBOX__HOSTED=true",
        ));
    }
    let egress = &config.egress;
    if egress.local_providers == Some(true) || !egress.allow.is_empty() {
        let allowed = egress.allow.iter().map(String::as_str);
        let loopback = egress.local_providers == Some(true);
        let allowed: Vec<&str> = allowed.chain(loopback.then_some("loopback")).collect();
        findings.push(checks::EGRESS_PRIVATE.find(
            "egress",
            format!("the addresses of every tenant may be {}", allowed.join(", ")),
            "HOLDFAST_EGRESS__ALLOW='[]' HOLDFAST_EGRESS__LOCAL_PROVIDERS=false",
        ));
    }
    findings
}

/// Calls between services, and their backends.
fn services(config: &Config) -> Vec<SecurityFinding> {
    let mut findings = Vec::new();
    let is_set = |secret: &secrecy::SecretString| !secret.expose_secret().is_empty();
    let (mesh, nats) = (&config.mesh, &config.nats);
    let is_alone = open_listeners(config).next().is_none();
    if is_set(&mesh.secret) && !is_set(&mesh.caller_keys) && !is_alone {
        findings.push(checks::SERVICES_SHARE_SECRET.find(
            "mesh.caller_keys",
            "the keys of all services follow from `mesh.secret`, which each of them has",
            "HOLDFAST_MESH__CALLER_KEYS_FILE=/run/secrets/FILE",
        ));
    }
    if mesh.accept_version_1 {
        findings.push(checks::MESH_VERSION_1.find(
            "mesh.accept_version_1",
            "calls of services are bound to no method, and may be repeated",
            "HOLDFAST_MESH__ACCEPT_VERSION_1=false",
        ));
    }
    let has_login = nats.url.expose_secret().contains('@')
        || is_set(&nats.nkey)
        || is_set(&nats.credentials)
        || nats.certificate.is_some();
    for (backend, url) in [("nats", &nats.url), ("redis", &config.redis.url)] {
        if let Some(user) = user(url.expose_secret())
            && user != GATEWAY_USER
        {
            findings.push(checks::SERVICES_SHARE_LOGIN.find(
                format!("{backend}.url"),
                format!(
                    "the user `{user}` may have the rights of other services (docs/operating.md)"
                ),
                format!("HOLDFAST_{}__URL_FILE=/run/secrets/FILE", backend.to_uppercase()),
            ));
        }
    }
    let first = nats.url.expose_secret().split(',').next().unwrap_or_default();
    if !has_login && holdfast_egress::loopback_address(first).is_none() {
        findings.push(checks::NATS_WITHOUT_LOGIN.find(
            "nats.url",
            "whoever reaches NATS reads replies of all tenants, and calls their background commands",
            "HOLDFAST_NATS__URL_FILE=/run/secrets/FILE",
        ));
    }
    findings
}

/// User in the address of a backend; `None` if it has no login.
fn user(url: &str) -> Option<&str> {
    let (login, _) = url.split_once("://")?.1.split_once('@')?;
    // Redis' name for whoever names nobody.
    Some(login.split(':').next().filter(|user| !user.is_empty()).unwrap_or("default"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(config: &Config, facts: &Facts) -> Vec<String> {
        check(config, facts).into_iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn an_installation_of_one_machine_has_no_findings() {
        assert_eq!(ids(&Config::default(), &Facts::default()), Vec::<String>::new());
    }

    #[test]
    fn each_weak_setting_of_an_installation_is_found() {
        let mut config = Config::default();
        config.gateway.http = "192.0.2.1:18789".parse().unwrap();
        config.gateway.reflection = Some(true);
        config.gateway.grpc = "192.0.2.1:18790".parse().unwrap();
        config.gateway.cors_origins.push("*".to_owned());
        config.telemetry.metrics_listen = Some("192.0.2.1:9000".parse().unwrap());
        config.mesh.secret = "0123456789abcdef".into();
        config.mesh.accept_version_1 = true;
        config.nats.url = "nats://nats.example:4222".into();
        config.redis.url = "redis://:password@redis.example:6379".into();
        config.egress.allow.push("10.0.0.7:11434".to_owned());
        let facts = Facts {
            tenants: 2,
            runners_without_hosting: 1,
            secrets_in_environment: vec!["secrets.kek"],
            pools_without_login: vec!["acme".to_owned()],
        };

        let found = ids(&config, &facts);

        assert_eq!(
            found,
            [
                "listener-without-tls",
                "listener-without-tls",
                "reflection-open",
                "metrics-open",
                "cors-any-origin",
                "console-url-not-set",
                "hosted-off",
                "egress-private",
                "services-share-secret",
                "mesh-version-1",
                "services-share-login",
                "nats-without-login",
                "secret-in-environment",
                "runner-pool-shares-login",
            ]
        );
    }

    #[test]
    fn a_listener_without_tls_is_critical_unless_a_proxy_ends_tls() {
        let mut config = Config::default();
        config.gateway.http = "192.0.2.1:18789".parse().unwrap();
        let severity = |config: &Config| check(config, &Facts::default())[0].severity.clone();
        assert_eq!(severity(&config), "critical");

        config.gateway.console.url = Some("https://holdfast.example.com".to_owned());
        assert_eq!(severity(&config), "warning");

        config.gateway.console.url = Some("http://holdfast.example.com".to_owned());
        let found = ids(&config, &Facts::default());
        assert_eq!(found, ["listener-without-tls", "console-url-plain"]);
        config.tls.certificate = Some("/tls.crt".into());
        config.gateway.console.url = None;
        assert_eq!(ids(&config, &Facts::default()), ["console-url-not-set"]);
    }

    #[test]
    fn a_login_of_the_gateway_alone_is_no_finding() {
        let mut config = Config::default();
        config.nats.url = "nats://holdfast_gateway:pass@nats.example:4222".into();
        config.redis.url = "redis://holdfast_gateway:pass@redis.example:6379".into();
        assert_eq!(ids(&config, &Facts::default()), Vec::<String>::new());

        config.nats.url = "nats://everybody:pass@nats.example:4222".into();
        assert_eq!(ids(&config, &Facts::default()), ["services-share-login"]);
    }

    #[test]
    fn only_runners_that_say_so_are_without_hosting() {
        let report = |service: &str, is_hosted| ProcessReport {
            service: service.to_owned(),
            is_hosted,
            ..ProcessReport::default()
        };
        let reports = [
            report("agent-runner", Some(false)),
            report("agent-runner", Some(true)),
            report("agent-runner", None),
            report("gateway", None),
        ];

        assert_eq!(without_hosting(&reports), 1);
    }
}
