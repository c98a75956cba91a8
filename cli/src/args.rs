//! The command line.

use std::env;

use clap::{Parser, Subcommand};

use crate::{
    bootstrap, chat,
    commands::{Caller, setup},
    global::Global,
    login, logs, node, reference, rotation, service, tui, up,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it failed
  2  the command line is wrong
  3  there is no such thing
  4  no key, a wrong key, or one that may not do this
  5  not now: nobody answers, or there is too much to do; the same command may work later

`up` is where to start: it runs everything on this machine, and prints what to try.";

/// Holdfast hosts personal AI assistants: what was accepted is held fast until it is answered.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything on this machine: database, bus, cache, all services
    #[command(visible_alias = "start")]
    Up(up::UpArgs),
    /// Stop what `up` started
    #[command(visible_alias = "stop")]
    Down,
    /// Choose the provider of the models, check its key, and make a model the default
    Setup(setup::SetupArgs),
    /// Talk to an agent
    Chat(chat::ChatArgs),
    /// Talk to agents in a full-screen terminal interface
    Tui(tui::TuiArgs),
    /// Show the logs of the services that `up` started
    Logs(logs::LogArgs),
    /// Sign in at an identity provider
    Login(login::LoginArgs),
    /// Sign out: delete the tokens of `login`
    Logout,
    #[command(flatten)]
    Caller(Caller),
    /// Offer this machine to its owner's agents
    #[command(subcommand)]
    Node(node::Node),
    #[command(flatten)]
    Service(Service),
    /// Bring the database's schema up to date
    Migrate(bootstrap::MigrateArgs),
    /// Give a new installation its secrets, a first tenant, and a key with every scope
    Bootstrap(bootstrap::BootstrapArgs),
    /// Change the keys with which the installation's secrets are encrypted
    #[command(subcommand)]
    Secrets(rotation::Secrets),
    /// Print completions for a shell
    Completions(reference::CompletionArgs),
    /// Write man pages
    Man(reference::ManArgs),
    /// Print docs/cli.md
    #[command(hide = true)]
    Reference,
    /// Print the version
    Version,
    /// Wait so many seconds: for hooks of pods, whose image has no `sleep`
    #[command(hide = true)]
    Wait {
        /// Seconds to wait
        seconds: u64,
    },
}

/// What runs until it is told to stop.
#[derive(Debug, Subcommand)]
pub enum Service {
    /// Run the gateway: the door for callers
    Gateway(service::ServiceArgs),
    /// Run an agent-runner: it takes waiting sessions and answers
    AgentRunner(service::ServiceArgs),
    /// Run the channel-bridge: it speaks to Telegram and others
    ChannelBridge(service::ServiceArgs),
    /// Run the scheduler: it does at their time what agents and people planned
    Scheduler(service::ServiceArgs),
    /// Run the memory: it keeps what agents know, and finds it
    #[command(name = "memory-service")]
    Memory(service::ServiceArgs),
    /// Run the secrets service: it alone has the key of stored secrets, and opens them for others
    #[command(name = "secrets-service")]
    Secrets(service::ServiceArgs),
    /// Run the operator: it applies Kubernetes resources to the gateway
    Operator(service::OperatorArgs),
}

/// The line of a service alone. Building the tree of all commands leaves 0.7 MB of heap behind, a
/// fifth of what a service at rest has of its own, and as much text mapped (docs/benchmarks.md).
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, propagate_version = true, after_help = EXIT_CODES)]
struct ServiceCli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    service: Service,
}

impl Cli {
    /// Reads the process' command line; says what is wrong with it, and ends with 2.
    pub fn of_process() -> Self {
        let first = env::args_os().nth(1);
        if first.is_some_and(|name| name.to_str().is_some_and(Service::has_subcommand)) {
            let ServiceCli { global, service } = ServiceCli::parse();
            return Self { global, command: Command::Service(service) };
        }
        Self::parse()
    }
}

impl Service {
    fn args(&self) -> &service::ServiceArgs {
        match self {
            Self::Gateway(args)
            | Self::AgentRunner(args)
            | Self::ChannelBridge(args)
            | Self::Scheduler(args)
            | Self::Memory(args)
            | Self::Secrets(args) => args,
            Self::Operator(args) => &args.service,
        }
    }
}

impl Command {
    /// How many threads it wants; `None` if it only makes calls.
    pub fn workers(&self) -> Option<usize> {
        match self {
            Self::Up(args) => Some(args.workers.into()),
            Self::Service(service) => Some(service.args().workers.into()),
            Self::Down
            | Self::Chat(_)
            | Self::Login(_)
            | Self::Logout
            | Self::Caller(_)
            | Self::Node(_)
            | Self::Migrate(_)
            | Self::Bootstrap(_)
            | Self::Secrets(_)
            | Self::Setup(_)
            | Self::Logs(_)
            | Self::Tui(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Reference
            | Self::Version
            | Self::Wait { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::CommandFactory as _;

    use super::*;
    use crate::screen::Format;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("holdfast").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_is_for() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "`{}` has no help", command.get_name());
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let name = argument.get_id();
                assert!(!help.is_empty(), "`{}` of `{}` has no help", name, command.get_name());
                assert!(!help.ends_with('.'), "`{help}` ends with a full stop");
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn the_page_of_all_commands_is_what_the_command_line_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();

        assert!(
            page == reference::markdown(Cli::command()),
            "docs/cli.md is out of date: `cargo run -q -p holdfast -- reference > docs/cli.md`"
        );
    }

    #[test]
    fn no_subcommand_has_an_argument_that_hides_a_global_one() {
        fn check(command: &clap::Command, path: &str, globals: &[&clap::Arg]) {
            for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
                for global in globals {
                    let longs = global.get_long_and_visible_aliases().unwrap_or_default();
                    let own = argument.get_long_and_visible_aliases().unwrap_or_default();
                    assert!(
                        argument.get_id() != global.get_id()
                            && !own.iter().any(|long| longs.contains(long))
                            && (argument.get_short().is_none()
                                || argument.get_short() != global.get_short()),
                        "`{path}`: `{}` hides the global `{}`",
                        argument.get_id(),
                        global.get_id()
                    );
                }
            }
            for child in command.get_subcommands() {
                check(child, &format!("{path} {}", child.get_name()), globals);
            }
        }
        let command = Cli::command();
        let globals: Vec<_> =
            command.get_arguments().filter(|argument| argument.is_global_set()).collect();
        assert!(globals.len() >= 4, "the global arguments were not found");
        check(&command, "holdfast", &globals);
    }

    #[test]
    fn the_address_of_an_mcp_server_is_not_the_gateway_s() {
        let line = "mcp add x --url https://elsewhere/mcp --gateway http://127.0.0.1:18790";
        let cli = parse(line).unwrap();

        assert_eq!(cli.global.gateway.as_deref(), Some("http://127.0.0.1:18790"));
        assert_eq!(parse("mcp add x --url https://elsewhere/mcp").unwrap().global.gateway, None);
    }

    #[test]
    fn what_every_command_takes_may_stand_after_it() {
        let cli =
            parse("sessions list --output json --gateway http://h:1 --key k --dir d").unwrap();

        assert_eq!(cli.global.output, Format::Json);
        assert_eq!(cli.global.gateway.as_deref(), Some("http://h:1"));
        assert_eq!(cli.global.dir_or_here(), PathBuf::from("d"));
    }

    #[test]
    fn a_wrong_command_line_exits_with_2() {
        for line in [
            "",
            "sing",
            "up --runners 0",
            "up --runners many",
            "sessions show",
            "status --output xml",
            "agents update",
            "keys create ci --scope root",
            "mcp add x",
            "node run",
            "node run --token-file t --allow ls --allow-all",
            "mcp add x --url https://host/mcp -- npx",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn the_design_s_commands_are_all_there() {
        for line in [
            "up --split --runners 3 --detach",
            "down",
            "gateway --print-config",
            "agent-runner",
            "channel-bridge",
            "scheduler",
            "memory-service",
            "operator --print-crds",
            "export acme --platform-key hf_1_2",
            "migrate",
            "chat",
            "chat hello --agent main --session s",
            "tenants create acme",
            "agents list",
            "providers put openai --model gpt-5",
            "connections add cal caldav --set url=https://h/ --for telegram:42",
            "keys create ci --scope chat",
            "login --issuer https://id.example.com --client-id holdfast",
            "login --issuer https://id.example.com --client-id holdfast --device",
            "logout",
            "whoami",
            "people disable per_1",
            "audit list --action key. --since 2026-01-31T00:00:00Z --output json",
            "audit export --outcome permission_denied",
            "mcp add x --url https://host/mcp --header a:b --agent coach",
            "mcp add x --env A=b --network -- npx -y server --flag",
            "mcp add x --keep -- server",
            "mcp probe x",
            "channels list",
            "devices list",
            "devices requests --output json",
            "devices approve 0195e0a0-0000-7000-8000-000000000000",
            "devices rotate ab12 --scope operator.read --scope operator.write",
            "nodes create laptop --for telegram:42",
            "nodes status laptop",
            "node run --token-file t --allow 'git*' --allow ls --sandbox none",
            "sessions history ses_1",
            "sessions list --search tea",
            "sessions update ses_1 --label Tea --pinned true",
            "runs show run_1",
            "runs calls run_1",
            "runs calls --session agent:main:main",
            "dead requeue msg_1",
            "deliveries list --state unknown",
            "routing explain --channel telegram",
            "skills list --agent main",
            "skills install gifgrep --registry clawhub --agent main --at 1.2.3 --force",
            "skills install gifgrep --archive https://host/x.zip",
            "skills policy --registries shelf,url --unjudged no",
            "skills env set water-plants GARDEN_KEY",
            "skills env set water-plants GARDEN_KEY --value @key.txt",
            "skills env rm water-plants GARDEN_KEY",
            "agents export travel - --author Ada",
            "agents import travel.skill.yaml",
            "agents approve travel",
            "status",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
    }

    #[test]
    fn a_services_own_line_is_read_as_by_the_whole_tree() {
        for name in [
            "gateway",
            "agent-runner",
            "channel-bridge",
            "scheduler",
            "memory-service",
            "secrets-service",
            "operator",
        ] {
            assert!(Service::has_subcommand(name), "{name}");
            let line = ["holdfast", name, "--workers", "3", "--print-config", "--output", "json"];

            let alone = ServiceCli::try_parse_from(line).unwrap();
            let whole = Cli::try_parse_from(line).unwrap();

            assert_eq!(
                format!("{:?}", Command::Service(alone.service)),
                format!("{:?}", whole.command)
            );
            assert_eq!(format!("{:?}", alone.global), format!("{:?}", whole.global));
        }
        assert!(!Service::has_subcommand("chat"));
    }

    #[test]
    fn only_services_get_threads() {
        assert_eq!(parse("status").unwrap().command.workers(), None);
        assert_eq!(parse("gateway").unwrap().command.workers(), Some(2));
        assert_eq!(parse("up --workers 4").unwrap().command.workers(), Some(4));
    }
}
