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
//! | [`chat`], [`commands`], [`view`] | commands that call a gateway over gRPC; JSON forms of answers |
//! | [`login`], [`tokens`] | signing in at an identity provider; its tokens |
//! | [`node`] | a person's own machine, offered to their agents |
//! | [`state_dir`], [`secret`], [`backends`], [`ports`] | files of `up` under `.holdfast/` |
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
mod node;
mod ports;
mod rotation;
mod screen;
mod secret;
mod service;
mod signal;
mod state_dir;
mod tokens;
mod up;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use crate::{
    args::{Cli, Command, Service},
    client::Client,
    error::Error,
    screen::Screen,
    state_dir::StateDir,
};

fn main() -> ExitCode {
    if let Some(read) = memory::read_pdf() {
        return read;
    }
    let cli = Cli::of_process();
    let screen = Screen::new(cli.global.output);
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
        Command::Down => down::run(&StateDir::new(global.dir_or_found())?, screen).await,
        Command::Service(service) => serve(service, screen).await,
        Command::Migrate(args) => bootstrap::migrate(&args, screen).await,
        Command::Bootstrap(args) => {
            bootstrap::run(args, &StateDir::new(global.dir_or_here())?, screen).await
        }
        Command::Secrets(command) => command.run(screen).await,
        Command::Wait { seconds } => {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(())
        }
        Command::Chat(args) => chat::run(args, &Client::new(&global).await?, screen).await,
        Command::Login(args) => login::login(args, &global, screen).await,
        Command::Logout => login::logout(&global, screen).await,
        Command::Node(node) => node::run(node, &global, screen).await,
        Command::Caller(command) => command.run(&Client::new(&global).await?, screen).await,
    }
}

async fn serve(service: Service, screen: &Screen) -> Result<(), Error> {
    match service {
        Service::Gateway(args) => service::run::<service::Gateway>(&args, screen).await,
        Service::AgentRunner(args) => {
            Box::pin(service::run::<service::AgentRunner>(&args, screen)).await
        }
        Service::ChannelBridge(args) => service::run::<service::ChannelBridge>(&args, screen).await,
        Service::Scheduler(args) => service::run::<service::Scheduler>(&args, screen).await,
        Service::Memory(args) => service::run::<service::Memory>(&args, screen).await,
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
