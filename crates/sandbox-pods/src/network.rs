//! Network of commands in pods: the egress proxy, which is all that their network policy admits.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use holdfast_proxy::{Admission, ConnectRules, Proxy, variables};
use holdfast_sandbox::Error;
use tokio::net::TcpListener;

use crate::error::setting;

/// Maximum number of open connections of a pod; further ones are closed at once.
const MAX_CONNECTIONS_PER_POD: usize = 64;

/// Proxy of the pods of a runner.
#[derive(Debug)]
pub(crate) struct PodNetwork {
    proxy: Proxy,
    /// Address of the proxy as pods see it.
    address: SocketAddr,
}

/// A command that may use the proxy until this is dropped.
#[derive(Debug)]
pub(crate) struct AdmittedCommand {
    admission: Admission,
    /// Address of the proxy as the pod sees it.
    address: SocketAddr,
}

impl PodNetwork {
    /// Starts the proxy.
    ///
    /// # Errors
    ///
    /// If it cannot listen.
    pub(crate) async fn start(listen: SocketAddr, own: Option<IpAddr>) -> Result<Self, Error> {
        let failed =
            |error: io::Error| setting("listen", &format!("`{listen}` cannot be used: {error}"));
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let address = SocketAddr::new(own.unwrap_or(listen.ip()), port);
        let proxy = Proxy::start_with_credentials(listener, MAX_CONNECTIONS_PER_POD);
        Ok(Self { proxy, address })
    }

    pub(crate) fn admit(&self, rules: Arc<dyn ConnectRules>) -> AdmittedCommand {
        AdmittedCommand { admission: self.proxy.admit(rules), address: self.address }
    }
}

impl AdmittedCommand {
    /// Adds the variables by which the command's programs find the proxy.
    pub(crate) fn add_to_env(&self, env: &mut BTreeMap<String, String>) {
        let url = self.admission.url(self.address);
        env.extend(variables(&url).map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proxy::RuleDecision;

    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl ConnectRules for Nowhere {
        fn check(&self, host: String, _: u16) -> RuleDecision {
            Box::pin(async move { Err(host) })
        }
    }

    #[tokio::test]
    async fn each_command_has_a_credential_of_its_own_at_the_runners_address() -> Result<(), Error>
    {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let own: IpAddr = "fd00::7".parse().unwrap();
        let network = PodNetwork::start(listen, Some(own)).await?;
        let url = |command: &AdmittedCommand| {
            let mut env = BTreeMap::from([("https_proxy".to_owned(), "http://x".to_owned())]);
            command.add_to_env(&mut env);
            assert_eq!(env["https_proxy"], env["http_proxy"]);
            env.remove("http_proxy").unwrap()
        };

        let (one, other) = (network.admit(Arc::new(Nowhere)), network.admit(Arc::new(Nowhere)));

        assert_ne!(url(&one), url(&other));
        assert!(url(&one).ends_with(&format!("@[fd00::7]:{}", network.address.port())));
        Ok(())
    }
}
