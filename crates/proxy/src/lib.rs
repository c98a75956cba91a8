//! Egress proxy: the only way to the network for programs that are not trusted.
//!
//! Chromium and agents' commands run in network namespaces with a loopback interface only, or in
//! pods whose network policy admits the proxy only (decision 0131).
//!
//! | module | contents |
//! |---|---|
//! | `rules` | what decides where the proxy connects |
//! | `server` | the HTTP proxy, which connects only where its rules allow |
//! | `namespace` | a listener of the proxy in another network namespace |
//! | `admission` | credentials of programs that share a listener |

mod admission;
mod namespace;
mod rules;
mod server;

pub use admission::Admission;
pub use namespace::{ListenerChannel, NAMESPACE_URL, run_listener};
pub use rules::{ConnectRules, RuleDecision};
pub use server::Proxy;

/// Variables by which programs find a proxy.
#[must_use]
pub fn variables(url: &str) -> [(&'static str, &str); 7] {
    const NOT_PROXIED: &str = "localhost,127.0.0.1,::1";
    [
        ("http_proxy", url),
        ("https_proxy", url),
        ("no_proxy", NOT_PROXIED),
        ("HTTP_PROXY", url),
        ("HTTPS_PROXY", url),
        ("NO_PROXY", NOT_PROXIED),
        // Node.js ignores the variables otherwise.
        ("NODE_USE_ENV_PROXY", "1"),
    ]
}
