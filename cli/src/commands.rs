//! What a caller does beside talking: one module for each kind of thing.
//!
//! Each has its subcommands, how they are called, and how the answer is shown; the names in JSON
//! are those of the `.proto` files.

mod agents;
mod approvals;
mod budgets;
mod chains;
mod channels;
mod connections;
mod credentials;
mod cron;
mod dead;
mod deliveries;
mod files;
mod given;
mod heartbeat;
mod kb;
mod keys;
mod mcp;
mod memory;
mod models;
mod nodes;
mod packages;
mod policy;
mod providers;
mod reminders;
mod routing;
mod runs;
mod sessions;
mod skills;
mod status;
mod subagents;
mod tenants;
mod tools;
mod usage;
pub mod view;

use clap::Subcommand;

use crate::{client::Client, error::Error, screen::Screen};

#[derive(Debug, Subcommand)]
pub enum Caller {
    /// Look at conversations, hold them, let them go on
    #[command(subcommand)]
    Sessions(sessions::Sessions),
    /// Look at turns and what was done in them
    #[command(subcommand)]
    Runs(runs::Runs),
    /// Calls that wait for your word: allow them, or deny them
    #[command(subcommand)]
    Approvals(approvals::Approvals),
    /// Make and change agents
    #[command(subcommand)]
    Agents(agents::Agents),
    /// Look at and change what agents know and are: their files
    #[command(subcommand)]
    Files(files::Files),
    /// Give agents skills: find, install, publish
    #[command(subcommand)]
    Skills(skills::Skills),
    /// Look at what agents remember of people, and change or erase it
    #[command(subcommand)]
    Memory(memory::Memory),
    /// Look at and change what agents know: the knowledge base
    #[command(subcommand)]
    Kb(kb::Kb),
    /// Write down who does what after whom
    #[command(subcommand)]
    Chains(chains::Chains),
    /// Jobs that run at their times
    #[command(subcommand)]
    Cron(cron::Cron),
    /// Reminders of users
    #[command(subcommand)]
    Reminders(reminders::Reminders),
    /// Say where models are
    #[command(subcommand)]
    Providers(providers::Providers),
    /// Keep several keys of a provider
    #[command(subcommand)]
    Credentials(credentials::Credentials),
    /// Say what models are: windows, prices, abilities, other names
    #[command(subcommand)]
    Models(models::Models),
    /// Say what may be used in a day
    #[command(subcommand)]
    Budgets(budgets::Budgets),
    /// See and switch agents' looking by themselves
    #[command(subcommand)]
    Heartbeat(heartbeat::Heartbeat),
    /// What turns took and cost
    Usage(usage::Usage),
    /// Give agents the tools of MCP servers
    #[command(subcommand)]
    Mcp(mcp::Mcp),
    /// Make and revoke API keys
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Connect to Telegram and others
    #[command(subcommand)]
    Channels(channels::Channels),
    /// Give agents calendars, mail and notes of people
    #[command(subcommand)]
    Connections(connections::Connections),
    /// Let agents use people's own machines
    #[command(subcommand)]
    Nodes(nodes::Nodes),
    /// Say which messages go to which agent
    #[command(subcommand)]
    Routing(routing::Routing),
    /// Say which tools may be used
    #[command(subcommand)]
    Policy(policy::Policies),
    /// See which tools there are, who may use them, and why
    #[command(subcommand)]
    Tools(tools::Tools),
    /// Messages that were given up
    #[command(subcommand)]
    Dead(dead::Dead),
    /// Replies on their way to channels
    #[command(subcommand)]
    Deliveries(deliveries::Deliveries),
    /// Make and change tenants, for whoever runs the platform
    #[command(subcommand)]
    Tenants(tenants::Tenants),
    /// How the tenant is: what waits, what died, what could not be delivered
    Status,
}

impl Caller {
    /// Does it.
    ///
    /// # Errors
    ///
    /// If the gateway refuses or does not answer.
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Sessions(command) => command.run(client, screen).await,
            Self::Runs(command) => command.run(client, screen).await,
            Self::Approvals(command) => command.run(client, screen).await,
            Self::Agents(command) => command.run(client, screen).await,
            Self::Files(command) => command.run(client, screen).await,
            Self::Skills(command) => command.run(client, screen).await,
            Self::Memory(command) => command.run(client, screen).await,
            Self::Kb(command) => command.run(client, screen).await,
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
            Self::Keys(command) => command.run(client, screen).await,
            Self::Channels(command) => command.run(client, screen).await,
            Self::Connections(command) => command.run(client, screen).await,
            Self::Nodes(command) => command.run(client, screen).await,
            Self::Routing(command) => command.run(client, screen).await,
            Self::Policy(command) => command.run(client, screen).await,
            Self::Tools(command) => command.run(client, screen).await,
            Self::Dead(command) => command.run(client, screen).await,
            Self::Deliveries(command) => command.run(client, screen).await,
            Self::Tenants(command) => command.run(client, screen).await,
            Self::Status => status::run(client, screen).await,
        }
    }
}
