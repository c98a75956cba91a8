//! Settings of the browser.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

/// Table `[runner.browser]`. Without `path` and `url` there is no browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Program to start, such as `/usr/bin/chromium`. Each process starts its own, on first use.
    pub path: Option<PathBuf>,
    /// URL of a browser that runs elsewhere, such as `http://127.0.0.1:9222`. Overrides `path`.
    pub url: Option<String>,
    /// Isolation of the program.
    pub isolation: Isolation,
    /// Additional arguments for the program, such as `--no-sandbox` where it must run as root.
    pub args: Vec<String>,
    /// Listen address of the proxy that pages of a browser elsewhere, or without isolation, use; port
    /// 0 is any free port.
    pub listen: SocketAddr,
    /// URL at which a browser elsewhere reaches the proxy; empty means `listen`.
    pub proxy: String,
    /// Maximum number of conversations with an open window.
    pub most: usize,
    /// Idle time after which a window is closed.
    #[serde(with = "humantime_serde")]
    pub idle: Duration,
    /// Program that listens in the browser's namespace
    /// ([`run_listener`](holdfast_proxy::run_listener)); the current executable if it is `None`.
    #[serde(skip)]
    pub listener_program: Option<PathBuf>,
}

/// Isolation of a browser that this process starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Bubblewrap: the browser sees its profile, programs, libraries and fonts only, and reaches the
    /// network only through the proxy.
    Bubblewrap,
    /// None: a page that breaks out of the browser can read and reach what this process can. Only
    /// where Bubblewrap cannot run.
    None,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: None,
            url: None,
            isolation: Isolation::Bubblewrap,
            args: Vec::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            proxy: String::new(),
            most: 8,
            idle: Duration::from_secs(300),
            listener_program: None,
        }
    }
}

impl Config {
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.path.is_some() || self.url.is_some()
    }
}
