//! Rules of the proxy, which its users implement.

use std::{fmt, net::SocketAddr, pin::Pin};

/// Addresses to connect to, or the reason for a refusal, which is shown to the program.
pub type RuleDecision = Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, String>> + Send>>;

/// Rules about the hosts that programs may connect to.
pub trait ConnectRules: fmt::Debug + Send + Sync + 'static {
    /// Resolves a host and decides whether programs may connect to it on this port.
    fn check(&self, host: String, port: u16) -> RuleDecision;
}
