//! What an operator may choose about the browser.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

/// The table `[runner.browser]`: without `path` and `url` there is no browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The program to start, as `/usr/bin/chromium`; one for each process, when it is first needed.
    pub path: Option<PathBuf>,
    /// One that runs elsewhere, as `http://127.0.0.1:9222`; goes before `path`.
    pub url: Option<String>,
    /// More arguments for the program, as `--no-sandbox` where it must run as root.
    pub args: Vec<String>,
    /// Where the way out of its pages listens; port 0 is any.
    pub listen: SocketAddr,
    /// The address under which a browser that runs elsewhere reaches that; empty is `listen`.
    pub proxy: String,
    /// Conversations that may use it at once.
    pub most: usize,
    /// How long a conversation's window is kept that nothing is done in.
    #[serde(with = "humantime_serde")]
    pub idle: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: None,
            url: None,
            args: Vec::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            proxy: String::new(),
            most: 8,
            idle: Duration::from_secs(300),
        }
    }
}

impl Config {
    /// Whether there is a browser.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.path.is_some() || self.url.is_some()
    }
}
