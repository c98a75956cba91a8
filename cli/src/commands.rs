//! Commands that call the gateway, with one module for each resource.
//!
//! Each module defines its subcommands, its calls and the display of the answers. Names in JSON
//! output are those of the `.proto` files.

mod agents;
mod chains;
mod channels;
mod connections;
mod events;
mod files;
mod keys;
mod knowledge;
mod llm;
mod mcp;
mod nodes;
mod operations;
mod option_values;
mod packages;
mod people;
mod permissions;
mod plans;
mod resources;
mod routing;
mod runs;
mod schedules;
mod sessions;
mod skills;
mod subagents;
mod tenants;

pub use self::llm::{local_servers, setup};

use clap::Subcommand;

use self::{
    knowledge::{kb, memory},
    llm::{budgets, credentials, models, platform_keys, providers, usage},
    operations::{audit, dead, deliveries, doctor, security, status},
    permissions::{approvals, policy, tools},
    resources::{apply, export},
    runs::{records, todo},
    schedules::{cron, heartbeat, reminders},
};
use crate::{client::Client, error::Error, login, screen::Screen};

#[derive(Debug, Subcommand)]
pub enum Caller {
    /// List sessions and their history, pause and resume them
    #[command(subcommand)]
    Sessions(sessions::Sessions),
    /// Show, change and describe settings of agents and policies, each under a path
    #[command(subcommand)]
    Config(agents::config::Config),
    /// List turns and their steps
    #[command(subcommand)]
    Runs(runs::Runs),
    /// List and change the todos of a session
    #[command(subcommand)]
    Todo(todo::Todos),
    /// List what the agents of a session did
    Worklog(records::Worklog),
    /// Show the steps of a session's behaviours as a tree: model calls, actions, results
    Tasks(records::Tasks),
    /// List the ledger of runs, models and tools, and verify its chain of hashes
    #[command(subcommand)]
    Ledger(records::Ledger),
    /// List pending approvals, allow or deny them
    #[command(subcommand)]
    Approvals(approvals::Approvals),
    /// Create, change and delete agents
    #[command(subcommand)]
    Agents(agents::Agents),
    /// Read and change the files of an agent
    #[command(subcommand)]
    Files(files::Files),
    /// Create workspaces of agents, and bind sessions to them
    #[command(subcommand)]
    Workspaces(files::workspaces::Workspaces),
    /// Find, install and publish skills of agents
    #[command(subcommand)]
    Skills(skills::Skills),
    /// Search, change and erase the memories of agents
    #[command(subcommand)]
    Memory(memory::Memory),
    /// Search and change the knowledge base of agents
    #[command(subcommand)]
    Kb(kb::Kb),
    /// Define behaviours: what agents do in a step, with which tools
    #[command(subcommand)]
    Behaviors(agents::behaviors::Behaviors),
    /// List, approve and take back changes of themselves that agents propose
    #[command(subcommand)]
    Proposals(agents::proposals::Proposals),
    /// Show the hit points of agents, and enable those that have none left
    #[command(subcommand)]
    Hp(agents::economy::Hp),
    /// Show and change what agents may spend, and list payments
    #[command(subcommand)]
    Wallet(agents::economy::Wallet),
    /// Define chains: subagent tasks that run one after another
    #[command(subcommand)]
    Chains(chains::Chains),
    /// Manage jobs that run at given times
    #[command(subcommand)]
    Cron(cron::Cron),
    /// Manage the reminders of users
    #[command(subcommand)]
    Reminders(reminders::Reminders),
    /// Set up providers of models
    #[command(subcommand)]
    Providers(providers::Providers),
    /// Manage several API keys of a provider
    #[command(subcommand)]
    Credentials(credentials::Credentials),
    /// Define models: context window, prices, abilities, aliases
    #[command(subcommand)]
    Models(models::Models),
    /// Limit the tokens and money used per day
    #[command(subcommand)]
    Budgets(budgets::Budgets),
    /// Show and switch heartbeats of agents
    #[command(subcommand)]
    Heartbeat(heartbeat::Heartbeat),
    /// Show tokens and costs of turns, and export usage
    Usage(usage::Usage),
    /// Give agents the tools of MCP servers
    #[command(subcommand)]
    Mcp(mcp::Mcp),
    /// Create and revoke API keys
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Print a link that signs in to the web console once
    Console(keys::console::Console),
    /// Pair devices that connect over WebSocket, and end their tokens
    #[command(subcommand)]
    Devices(keys::devices::Devices),
    /// List the people who signed in, disable and enable them
    #[command(subcommand)]
    People(people::People),
    /// Read the audit log: who changed what
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Follow and list what happens in the tenant
    #[command(subcommand)]
    Events(events::Events),
    /// Show who the gateway takes you for
    Whoami,
    /// Connect Telegram bots and webhooks
    #[command(subcommand)]
    Channels(channels::Channels),
    /// Connect calendars, mail and notes of users
    #[command(subcommand)]
    Connections(connections::Connections),
    /// Let agents use people's own machines
    #[command(subcommand)]
    Nodes(nodes::Nodes),
    /// Choose which agent answers which messages
    #[command(subcommand)]
    Routing(routing::Routing),
    /// Define which tools agents may use
    #[command(subcommand)]
    Policy(policy::Policies),
    /// List tools and explain who may use them
    #[command(subcommand)]
    Tools(tools::Tools),
    /// List and requeue messages that were given up
    #[command(subcommand)]
    Dead(dead::Dead),
    /// List and resend replies on their way to channels
    #[command(subcommand)]
    Deliveries(deliveries::Deliveries),
    /// Define plans: limits that tenants have (for operators of the platform)
    #[command(subcommand)]
    Plans(plans::Plans),
    /// Manage the installation's own keys of providers, which plans allow to tenants (for operators
    /// of the platform)
    #[command(subcommand)]
    PlatformKeys(platform_keys::PlatformKeys),
    /// Manage tenants (for operators of the platform)
    #[command(subcommand)]
    Tenants(tenants::Tenants),
    /// Make the tenant as a file describes it: providers, agents, channels, routing
    Apply(apply::Apply),
    /// Print the tenant as Kubernetes resources for the operator
    Export(export::Export),
    /// Show a summary of the tenant: waiting messages, dead letters, failed deliveries
    Status,
    /// Check what is open or weak in the tenant and the installation
    #[command(subcommand)]
    Security(security::Security),
    /// Find what is wrong: gateway, runners, models and their keys, memory, channels
    Doctor(doctor::DoctorArgs),
}

impl Caller {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// If the gateway refuses or does not answer.
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Sessions(command) => command.run(client, screen).await,
            Self::Config(command) => command.run(client, screen).await,
            Self::Runs(command) => command.run(client, screen).await,
            Self::Todo(command) => command.run(client, screen).await,
            Self::Worklog(command) => command.run(client, screen).await,
            Self::Tasks(command) => command.run(client, screen).await,
            Self::Ledger(command) => command.run(client, screen).await,
            Self::Approvals(command) => command.run(client, screen).await,
            Self::Agents(command) => command.run(client, screen).await,
            Self::Files(command) => command.run(client, screen).await,
            Self::Workspaces(command) => command.run(client, screen).await,
            Self::Skills(command) => command.run(client, screen).await,
            Self::Memory(command) => command.run(client, screen).await,
            Self::Kb(command) => command.run(client, screen).await,
            Self::Behaviors(command) => command.run(client, screen).await,
            Self::Proposals(command) => command.run(client, screen).await,
            Self::Hp(command) => command.run(client, screen).await,
            Self::Wallet(command) => command.run(client, screen).await,
            Self::Chains(command) => command.run(client, screen).await,
            Self::Cron(command) => command.run(client, screen).await,
            Self::Reminders(command) => command.run(client, screen).await,
            Self::Providers(command) => command.run(client, screen).await,
            Self::Credentials(command) => command.run(client, screen).await,
            Self::Models(command) => command.run(client, screen).await,
            Self::Budgets(command) => command.run(client, screen).await,
            Self::Heartbeat(command) => command.run(client, screen).await,
            Self::Usage(command) => command.run(client, screen).await,
            Self::Mcp(command) => command.run(client, screen).await,
            Self::Console(command) => command.run(client, screen).await,
            Self::Devices(command) => command.run(client, screen).await,
            Self::Keys(command) => command.run(client, screen).await,
            Self::People(command) => command.run(client, screen).await,
            Self::Audit(command) => command.run(client, screen).await,
            Self::Events(command) => command.run(client, screen).await,
            Self::Whoami => login::whoami(client, screen).await,
            Self::Channels(command) => command.run(client, screen).await,
            Self::Connections(command) => command.run(client, screen).await,
            Self::Nodes(command) => command.run(client, screen).await,
            Self::Routing(command) => command.run(client, screen).await,
            Self::Policy(command) => command.run(client, screen).await,
            Self::Tools(command) => command.run(client, screen).await,
            Self::Dead(command) => command.run(client, screen).await,
            Self::Deliveries(command) => command.run(client, screen).await,
            Self::Plans(command) => command.run(client, screen).await,
            Self::PlatformKeys(command) => command.run(client, screen).await,
            Self::Tenants(command) => command.run(client, screen).await,
            Self::Apply(command) => command.run(client, screen).await,
            Self::Export(command) => command.run(client, screen).await,
            Self::Status => status::run(client, screen).await,
            Self::Security(command) => command.run(client, screen).await,
            Self::Doctor(args) => doctor::run(&args, client, screen).await,
        }
    }
}
