//! `holdfast node run`: offers this machine to its owner's agents.
//!
//! The node connects to a gateway and runs the commands that its own allow-list permits. The list
//! exists only on this machine, and no caller can change it.
//!
//! | file | contents |
//! |---|---|
//! | `node/link.rs` | the connection: kept, restored, answered on |
//! | `node/host.rs` | execution of commands, once per key |
//! | `node/ledger.rs` | running and ended commands |
//! | `node/allow.rs` | the allow-list |
//! | `node/command_key.rs` | the key with which the installation signs commands |

mod allow;
mod command_key;
mod host;
mod ledger;
mod link;
#[cfg(test)]
mod tests;

use std::{fs, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use holdfast_kit::{shutdown, telemetry};
use holdfast_sandbox::{Backend, BackendChoice, Config, Limits, NetworkPolicy};
use holdfast_types::MAX_NODE_OUTPUT_BYTES;

use self::{allow::CommandAllowList, command_key::CommandKeyFile, host::Host, link::Link};
use crate::{
    client::{self, Target},
    error::Error,
    global::Global,
    screen::Screen,
};

#[derive(Debug, Subcommand)]
pub enum Node {
    /// Connect this machine, and run commands of its owner's agents that the allow-list permits
    Run(RunArgs),
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// File with the token that `holdfast nodes create` showed
    #[arg(long, value_name = "FILE")]
    pub token_file: PathBuf,

    /// Allow commands of this pattern, for example `git log *`; may be repeated. A pattern of one
    /// word allows the program with any arguments
    #[arg(long, value_name = "PATTERN")]
    pub allow: Vec<String>,

    /// Allow every command, whatever it does
    #[arg(long, conflicts_with = "allow")]
    pub allow_all: bool,

    /// Folder in which commands start and to which they are confined [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,

    /// Isolation of commands: `auto` is bubblewrap where it works, else none
    #[arg(long, value_enum, default_value_t = IsolationMode::Auto)]
    pub sandbox: IsolationMode,
}

/// Isolation of commands that a node runs
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IsolationMode {
    /// Use bubblewrap where it works, else no isolation
    Auto,
    /// Require bubblewrap; without it the node does not start
    Bubblewrap,
    /// No isolation: commands can do whatever you can
    None,
}

/// Serves until a signal.
///
/// # Errors
///
/// If the node may not connect, or commands cannot be run here.
pub async fn run(node: Node, global: &Global, screen: &Screen) -> Result<(), Error> {
    let Node::Run(args) = node;
    let url = Target::of_node(global)?.url;
    let token = token(&args)?;
    let _flushed_on_drop = telemetry::init("node", &telemetry::Config::default())?;
    let host = Arc::new(host(&args, screen).await?);
    let stop = shutdown::on_signal()?;
    let channel = client::channel(global, &url, link::CONNECT_TIMEOUT)?;
    Link::new(channel, &url, &token, host)?.stay_connected(&stop).await
}

fn token(args: &RunArgs) -> Result<String, Error> {
    let path = args.token_file.display();
    let token = fs::read_to_string(&args.token_file)
        .map_err(|error| Error::Usage(format!("cannot read `{path}`: {error}")))?;
    let token = token.trim().to_owned();
    if token.starts_with("hfn_") {
        return Ok(token);
    }
    Err(Error::Usage(format!(
        "`{path}` holds no node's token: write what `holdfast nodes create` showed into it"
    )))
}

/// Creates the host of commands, and tells the person how far commands are isolated.
async fn host(args: &RunArgs, screen: &Screen) -> Result<Host, Error> {
    let allow = CommandAllowList::new(&args.allow, args.allow_all)?;
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => std::env::current_dir()?,
    };
    let wrong = |error| Error::Usage(format!("cannot use `{}`: {error}", folder.display()));
    let folder = folder.canonicalize().map_err(wrong)?;
    let sandbox = holdfast_sandbox::open(&config(args.sandbox)).await;
    let sandbox = sandbox.context("commands cannot be run here")?;
    screen.note(&match sandbox.backend() == Backend::Plain {
        false => format!(
            "Commands see `{}` and the machine's programs, and have the network.",
            folder.display()
        ),
        true => format!(
            "Nothing keeps commands in: they start in `{}` and can do what you can.",
            folder.display()
        ),
    })?;
    screen.note(&allow.to_string())?;
    let mut key_file = args.token_file.clone().into_os_string();
    key_file.push(".command-key");
    Ok(Host::new(sandbox, folder, allow, CommandKeyFile::new(key_file.into())))
}

fn config(mode: IsolationMode) -> Config {
    let backend = match mode {
        IsolationMode::Auto => BackendChoice::Auto,
        IsolationMode::Bubblewrap => BackendChoice::Bubblewrap,
        IsolationMode::None => BackendChoice::Plain,
    };
    let limits = Limits { output: MAX_NODE_OUTPUT_BYTES, ..Limits::default() };
    let network = NetworkPolicy::Host;
    // A node runs in its user's session, and all its commands are one tenant's.
    Config { backend, network, limits, tenant: None, ..Config::default() }
}
