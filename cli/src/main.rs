//! The `holdfast` binary: every service as a subcommand, `up` for all of them, and the commands
//! that talk to a gateway.
//!
//! | module | contents |
//! |---|---|
//! | [`args`], [`global`] | the command line; options of every command |
//! | [`up`], [`down`] | all services on this machine |
//! | [`service`] | one service, as a cluster runs it |
//! | [`bootstrap`] | setup of a new installation |
//! | [`rotation`] | change of the keys of an installation |
//! | [`chat`], [`tui`], [`commands`], [`view`] | commands that call a gateway over gRPC; JSON forms of answers |
//! | [`client`] | the gateway of a command, and the key that belongs to it |
//! | [`login`], [`tokens`] | signing in at an identity provider; its tokens |
//! | [`node`] | a person's own machine, offered to their agents |
//! | [`state_dir`], [`secret`], [`backends`], [`ports`] | files of `up` under `.holdfast/` |
//! | [`logs`] | logs of the services of `up` |
//! | [`mod@reference`] | completions, man pages, docs/cli.md |
//! | [`screen`], [`error`] | output for people and scripts; exit codes |

mod args;
mod backends;
mod bootstrap;
mod chat;
mod client;
mod commands;
mod down;
mod error;
mod global;
mod login;
mod logs;
mod node;
mod ports;
mod reference;
mod rotation;
mod screen;
mod secret;
mod service;
mod signal;
mod state_dir;
mod tokens;
mod tui;
mod up;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory as _;
use serde_json::json;

use crate::{
    args::{Cli, Command, Service},
    client::Client,
    commands::setup,
    error::Error,
    screen::Screen,
    state_dir::StateDir,
};

fn main() -> ExitCode {
    if let Some(read) = memory::run_document_reader() {
        return read;
    }
    if let Some(listened) = holdfast_proxy::run_listener() {
        return listened;
    }
    let cli = Cli::of_process();
    let screen = Screen::new(cli.global.output, cli.global.color);
    let outcome = runtime(&cli.command).and_then(|runtime| {
        let outcome = runtime.block_on(Box::pin(run(cli, &screen)));
        // A thread that reads stdin must not keep the process alive.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            screen.fail(&error);
            error.exit_code()
        }
    }
}

async fn run(cli: Cli, screen: &Screen) -> Result<(), Error> {
    let Cli { global, command } = cli;
    match command {
        Command::Up(args) => up::run(args, StateDir::new(global.dir_or_here())?, screen).await,
        Command::Down => {
            let home = StateDir::new(global.dir_or_found())?;
            let work = Box::pin(down::run(&home, screen));
            screen.watch("waiting for the services to end", work).await
        }
        Command::Service(service) => Box::pin(serve(service, screen)).await,
        Command::Migrate(args) => bootstrap::migrate(&args, screen).await,
        Command::Bootstrap(args) => {
            bootstrap::run(args, &StateDir::new(global.dir_or_here())?, screen).await
        }
        Command::Logs(args) => {
            logs::run(args, &StateDir::new(global.dir_or_found())?, screen).await
        }
        Command::Completions(args) => reference::completions(&args, Cli::command(), screen),
        Command::Man(args) => reference::man(&args, Cli::command(), screen),
        Command::Reference => screen.print(&reference::markdown(Cli::command())),
        Command::Version => {
            let version = env!("CARGO_PKG_VERSION");
            screen.done(&format!("holdfast {version}"), &json!({"version": version}))
        }
        Command::Setup(args) => {
            let client = Client::new(&global).await?;
            let work = Box::pin(setup::run(args, &client, screen));
            screen.watch("waiting for the gateway", work).await
        }
        Command::Tui(args) => tui::run(args, Client::new(&global).await?, screen).await,
        Command::Secrets(command) => command.run(screen).await,
        Command::Wait { seconds } => {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(())
        }
        Command::Chat(args) => {
            let client = Client::new(&global).await?;
            let chat = Box::pin(chat::run(args, &client, screen));
            screen.watch("waiting for the gateway", chat).await
        }
        Command::Login(args) => login::login(args, &global, screen).await,
        Command::Logout => login::logout(&global, screen).await,
        Command::Node(node) => node::run(node, &global, screen).await,
        Command::Caller(command) => {
            let client = Client::new(&global).await?;
            let work = Box::pin(command.run(&client, screen));
            screen.watch("waiting for the gateway", work).await
        }
    }
}

async fn serve(service: Service, screen: &Screen) -> Result<(), Error> {
    match service {
        Service::Gateway(args) => Box::pin(service::run::<service::Gateway>(&args, screen)).await,
        Service::AgentRunner(args) => {
            Box::pin(service::run::<service::AgentRunner>(&args, screen)).await
        }
        Service::ChannelBridge(args) => service::run::<service::ChannelBridge>(&args, screen).await,
        Service::Scheduler(args) => service::run::<service::Scheduler>(&args, screen).await,
        Service::Memory(args) => service::run::<service::Memory>(&args, screen).await,
        Service::Secrets(args) => service::run::<service::Secrets>(&args, screen).await,
        Service::Operator(args) if args.print_crds => service::print_crds(screen),
        Service::Operator(args) => service::run::<service::Operator>(&args.service, screen).await,
    }
}

/// Creates a runtime. Services get the threads that they request; other commands need one.
fn runtime(command: &Command) -> Result<tokio::runtime::Runtime, Error> {
    let mut builder = match command.workers() {
        Some(workers) => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(workers);
            builder
        }
        None => tokio::runtime::Builder::new_current_thread(),
    };
    Ok(builder.enable_all().build()?)
}
