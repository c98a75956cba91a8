//! Rules of the egress proxy for pages and commands: those of `web_fetch`.

use holdfast_egress::Guard;
use holdfast_proxy::{ConnectRules, RuleDecision};

use crate::AllowedHosts;

/// Hosts that a caller may reach, at the addresses that the guard allows.
#[derive(Debug, Clone)]
pub struct GuardedHosts {
    guard: Guard,
    hosts: AllowedHosts,
}

impl GuardedHosts {
    #[must_use]
    pub const fn new(guard: Guard, hosts: AllowedHosts) -> Self {
        Self { guard, hosts }
    }
}

impl ConnectRules for GuardedHosts {
    fn check(&self, host: String, port: u16) -> RuleDecision {
        let Self { guard, hosts } = self.clone();
        Box::pin(async move {
            hosts.check_host(&host)?;
            guard.addresses(&host, port).await.map_err(|refused| refused.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_the_list_of_hosts_and_the_addresses_are_checked() -> anyhow::Result<()> {
        let guard = Guard::with_system_resolver(["127.0.0.1:80".to_owned()])?;
        let hosts = AllowedHosts::matching(|host| host != "1.1.1.1");
        let rules = GuardedHosts::new(guard, hosts);
        let check = async |host: &str, port| rules.check(host.to_owned(), port).await;

        assert!(check("8.8.8.8", 443).await.is_ok());
        assert!(check("127.0.0.1", 80).await.is_ok(), "it is in the operator's list");
        for (host, port, reason) in [
            ("127.0.0.1", 81, "public internet"),
            ("169.254.169.254", 80, "public internet"),
            ("1.1.1.1", 443, "the policy allows"),
        ] {
            let refused = check(host, port).await.unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        Ok(())
    }
}
