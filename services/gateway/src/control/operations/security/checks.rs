//! List of the checks. `docs/security.md` has the same list as its checklist.

use holdfast_proto::gateway::v1::SecurityFinding;

/// One check.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Name, which does not change.
    pub id: &'static str,
    /// Severity of its findings: `critical`, `warning` or `notice`.
    pub severity: &'static str,
    /// Condition for a finding, for the checklist.
    #[cfg(test)]
    condition: &'static str,
}

impl Check {
    /// Returns a finding of the check.
    pub fn find(
        &self,
        about: impl Into<String>,
        why: impl Into<String>,
        command: impl Into<String>,
    ) -> SecurityFinding {
        SecurityFinding {
            id: self.id.to_owned(),
            severity: self.severity.to_owned(),
            about: about.into(),
            why: why.into(),
            command: command.into(),
        }
    }
}

/// Returns the finding as a critical one.
pub fn critical(finding: SecurityFinding) -> SecurityFinding {
    SecurityFinding { severity: "critical".to_owned(), ..finding }
}

macro_rules! checks {
    ($all:ident: $($name:ident = $id:literal, $severity:literal, $condition:literal;)*) => {
        $(pub const $name: Check =
            Check { id: $id, severity: $severity, #[cfg(test)] condition: $condition };)*
        #[cfg(test)]
        const $all: &[Check] = &[$($name),*];
    };
}

checks! { OF_A_TENANT:
    ACCESS_OF_DISABLED_PERSON = "access-of-disabled-person", "notice",
        "A person is disabled, and has keys or devices, which work again when the person is enabled.";
    AGENT_SMALL_MODEL_READS_WEB = "agent-small-model-reads-web", "warning",
        "An agent with a small model has tools that read the web: instructions in a page mislead it easily.";
    APPROVALS_NEVER = "approvals-never", "warning",
        "The tenant's policy lets tools act without an approval (`approvals.tools` with `never`).";
    APPROVAL_RULE_BROAD = "approval-rule-broad", "warning",
        "An \"always\" rule allows more than one exact command.";
    CHANNEL_OPEN = "channel-open", "warning",
        "Everybody may write to a channel account (`allow` has `*`).";
    CHANNEL_OPEN_GROUPS = "channel-open-groups", "notice",
        "A channel account answers in any group that it is added to (`groups.allow` has `*`).";
    COMMANDS_WITHOUT_ISOLATION = "commands-without-isolation", "warning",
        "Runners run commands without isolation. Critical if everybody may write to a channel account.";
    DIRECT_MESSAGES_SHARED = "direct-messages-shared", "warning",
        "An agent with the DM scope `main`, and several people who may write: each sees what the others wrote.";
    KEY_NEVER_EXPIRES = "key-never-expires", "warning",
        "An API key with the scope `admin`, `owner` or `platform` has no expiry.";
    KEY_PUBLISHED_WITHOUT_ORIGINS = "key-published-without-origins", "warning",
        "A key for publication (scope `guest` alone) has no origins: any page can use it.";
    MAIL_UNAUTHENTICATED = "mail-unauthenticated", "warning",
        "An e-mail account takes mails whose senders nobody verified (`authentication` is not `required`).";
    MCP_SERVER_HARMLESS = "mcp-server-harmless", "notice",
        "Read-only tools of an MCP server are called without an approval after text from outside was read.";
    MCP_SERVER_OVER_HTTP = "mcp-server-over-http", "warning",
        "An MCP server on another machine is called without encryption.";
    OWNERS_MANY = "owners-many", "notice",
        "More than two people have the role `owner`, which includes keys, people and policies.";
    SANDBOX_OFF = "sandbox-off", "warning",
        "The tenant's policy sets the sandbox mode `off`. Critical if everybody may write to a channel account.";
    WEBHOOK_OVER_HTTP = "webhook-over-http", "warning",
        "A webhook gets events without encryption.";
}

checks! { OF_THE_INSTALLATION:
    CONSOLE_URL_NOT_SET = "console-url-not-set", "warning",
        "The console can be reached from other machines, and `gateway.console.url` is not set: sign-in links follow the host of the request.";
    CONSOLE_URL_PLAIN = "console-url-plain", "critical",
        "`gateway.console.url` is an `http://` address of another machine: sign-ins travel unencrypted.";
    CORS_ANY_ORIGIN = "cors-any-origin", "notice",
        "Any web page may call the HTTP API (`gateway.cors_origins` has `*`).";
    EGRESS_PRIVATE = "egress-private", "notice",
        "Several tenants may reach addresses that are not public (`egress.allow`, `egress.local_providers`).";
    HOSTED_OFF = "hosted-off", "critical",
        "Runners without `runner.sandbox.hosted`, and more than one tenant.";
    LISTENER_WITHOUT_TLS = "listener-without-tls", "critical",
        "A listener of the gateway can be reached from other machines, without TLS. A warning if `gateway.console.url` is `https://`, so that a proxy ends TLS.";
    MESH_VERSION_1 = "mesh-version-1", "warning",
        "Calls of services of the version before are accepted, which can be repeated (`mesh.accept_version_1`).";
    METRICS_OPEN = "metrics-open", "notice",
        "`telemetry.metrics_listen` can be reached from other machines.";
    NATS_WITHOUT_LOGIN = "nats-without-login", "critical",
        "NATS on another machine is used without a login: whoever reaches it reads replies of all tenants.";
    REFLECTION_OPEN = "reflection-open", "notice",
        "gRPC reflection answers callers on other machines without a key.";
    RUNNER_POOL_SHARES_LOGIN = "runner-pool-shares-login", "notice",
        "A pool of runners has no login of its own in the database: its runners reach the rows of all tenants.";
    SECRET_IN_ENVIRONMENT = "secret-in-environment", "warning",
        "A secret of the gateway is in an environment variable, which child processes and crash reports show.";
    SERVICES_SHARE_LOGIN = "services-share-login", "warning",
        "The gateway's user of NATS or Redis is not `holdfast_gateway`: services that share a login have each other's rights there.";
    SERVICES_SHARE_SECRET = "services-share-secret", "warning",
        "Services sign calls with keys of one `mesh.secret` (no `mesh.caller_keys`): whoever has it can call as any service.";
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Write as _, path::Path};

    use holdfast_testkit::generated::check_part;

    use super::*;

    /// Environment variable with which the checklist is rewritten.
    const VARIABLE: &str = "HOLDFAST_WRITE_SECURITY";

    // The command line finds it: the gateway does not know by which address it is called.
    checks! { OF_THE_COMMAND_LINE:
        GATEWAY_ADDRESS_PLAIN = "gateway-address-plain", "critical",
            "The command line calls a gateway on another machine by `http://`.";
    }

    #[test]
    fn the_checklist_has_every_check() {
        let parts = [
            ("Of a tenant", OF_A_TENANT),
            ("Of the installation", OF_THE_INSTALLATION),
            ("Of the command line", OF_THE_COMMAND_LINE),
        ];
        let mut text = String::new();
        for (title, checks) in parts {
            writeln!(text, "{title}:\n\n| id | severity | found if |\n|---|---|---|").unwrap();
            for Check { id, severity, condition } in checks {
                writeln!(text, "| `{id}` | {severity} | {condition} |").unwrap();
            }
            text.push('\n');
        }

        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
        check_part(&page, "checklist", &text, VARIABLE).unwrap();
        let ids: Vec<&str> = parts.iter().flat_map(|(_, all)| *all).map(|one| one.id).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    }
}
