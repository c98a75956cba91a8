//! `holdfast security check`: what is open or weak in a tenant and an installation.

use std::net::IpAddr;

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    CheckInstallationRequest, CheckSecurityRequest, SecurityFinding,
};
use holdfast_types::Kind;
use serde_json::{Value, json};

use crate::{
    client::Client,
    error::Error,
    screen::{Screen, plain},
};

#[derive(Debug, Subcommand)]
pub enum Security {
    /// Report what is open or weak, most severe first, with the command that mends it
    ///
    /// Checks the tenant with the scope `owner`, and the installation with the scope `platform`.
    /// Fails if something is critical.
    #[command(alias = "audit")]
    Check {
        /// The same as `--output json`
        #[arg(long)]
        json: bool,
    },
}

impl Security {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// If something is critical, or the gateway refuses.
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let Self::Check { json } = self;
        let request = client.request(CheckSecurityRequest {});
        let tenant = client.answer(client.security().check_security(request).await);
        let request = client.request(CheckInstallationRequest {});
        let installation = client.answer(client.security().check_installation(request).await);
        let mut findings: Vec<SecurityFinding> = address(client.url()).into_iter().collect();
        let mut unchecked = Vec::new();
        match (tenant.map(|all| all.findings), installation.map(|all| all.findings)) {
            (Err(refused), Err(_)) => return Err(refused),
            (tenant, installation) => {
                for (what, outcome) in [("tenant", tenant), ("installation", installation)] {
                    match outcome {
                        Ok(found) => findings.extend(found),
                        Err(error) if is_forbidden(&error) => unchecked.push((what, error)),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        findings.sort_by_key(|finding| rank(&finding.severity));

        if json || screen.is_json() {
            let all: Value = findings.iter().map(view).collect();
            screen.print(&format!("{all:#}\n"))?;
        } else {
            screen.print(&findings.iter().map(block).collect::<Vec<_>>().join("\n"))?;
        }
        for (what, error) in unchecked {
            screen.aside(&format!("the {what} was not checked: {error}"))?;
        }
        match findings.iter().filter(|finding| finding.severity == "critical").count() {
            0 if findings.is_empty() => screen.note("nothing is open or weak"),
            0 => Ok(()),
            1 => Err(Error::NoAnswer("one finding is critical".to_owned())),
            number => Err(Error::NoAnswer(format!("{number} findings are critical"))),
        }
    }
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Refused(status) if holdfast_grpc::kind(status) == Kind::Forbidden)
}

/// Position of a severity in the order of findings.
fn rank(severity: &str) -> usize {
    ["critical", "warning"].iter().position(|known| *known == severity).unwrap_or(2)
}

fn view(finding: &SecurityFinding) -> Value {
    json!({
        "id": finding.id,
        "severity": finding.severity,
        "about": finding.about,
        "why": finding.why,
        "command": finding.command,
    })
}

/// Text of a finding: what and why, and the command on a line of its own.
fn block(finding: &SecurityFinding) -> String {
    let SecurityFinding { id, severity, about, why, command } = finding;
    plain(&format!("{severity}: {about} [{id}]\n  {why}\n  {command}\n"))
}

/// Finding of the address by which this command calls the gateway, which the gateway does not know.
fn address(url: &str) -> Option<SecurityFinding> {
    let host = url.strip_prefix("http://")?.split(['/', '?']).next()?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_local = name == "localhost"
        || name.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    (!is_local).then(|| SecurityFinding {
        id: "gateway-address-plain".to_owned(),
        severity: "critical".to_owned(),
        about: "address of the gateway".to_owned(),
        why: format!("{url} sends the API key and all messages without encryption"),
        command: format!("HOLDFAST_URL={}", url.replacen("http://", "https://", 1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_beyond_this_machine_without_encryption_is_critical() {
        for local in ["http://127.0.0.1:18790", "http://localhost:1", "http://[::1]:2", "https://h"]
        {
            assert_eq!(address(local), None, "{local}");
        }
        let finding = address("http://10.0.0.7:1").unwrap();
        assert_eq!((&*finding.severity, rank(&finding.severity)), ("critical", 0));
        assert!(block(&finding).ends_with("\n  HOLDFAST_URL=https://10.0.0.7:1\n"));
    }
}
