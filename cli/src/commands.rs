//! What a caller does beside talking: one module for each kind of thing.
//!
//! Each has its subcommands, how they are called, and how the answer is shown; the names in JSON
//! are those of the `.proto` files.

mod agents;
mod approvals;
mod channels;
mod dead;
mod deliveries;
mod files;
mod given;
mod keys;
mod providers;
mod routing;
mod runs;
mod sessions;
mod status;
mod tenants;
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
    /// Say where models are
    #[command(subcommand)]
    Providers(providers::Providers),
    /// Make and revoke API keys
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Connect to Telegram and others
    #[command(subcommand)]
    Channels(channels::Channels),
    /// Say which messages go to which agent
    #[command(subcommand)]
    Routing(routing::Routing),
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
            Self::Providers(command) => command.run(client, screen).await,
            Self::Keys(command) => command.run(client, screen).await,
            Self::Channels(command) => command.run(client, screen).await,
            Self::Routing(command) => command.run(client, screen).await,
            Self::Dead(command) => command.run(client, screen).await,
            Self::Deliveries(command) => command.run(client, screen).await,
            Self::Tenants(command) => command.run(client, screen).await,
            Self::Status => status::run(client, screen).await,
        }
    }
}
