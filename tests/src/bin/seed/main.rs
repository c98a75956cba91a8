//! Fills a tenant with what people, agents and programs leave behind in a month, for tests of the
//! console.
//!
//! | module | what |
//! |---|---|
//! | [`content`] | texts in English and Chinese, drawn from a number |
//! | [`settings`] | agents, schedules, memories and so on, made through the API |
//! | [`conversations`] | conversations with their turns, tool calls and failures |
//! | [`tables`] | rows of conversations, written in batches |
//! | [`records`] | worklogs, tasks, the ledger, and runs of jobs |
//!
//! The same number makes the same contents; times are counted back from now. Conversations, of which
//! there are too many for the API, are written to the database.

mod content;
mod conversations;
mod records;
mod settings;
mod tables;

use std::{io::Write as _, time::Instant};

use anyhow::Context as _;
use clap::Parser;
use rand::{SeedableRng as _, rngs::StdRng};
use sqlx::{Connection as _, PgConnection};

use crate::{conversations::Conversations, settings::Api, tables::Tables};

/// Fills the tenant of a key
#[derive(Debug, Parser)]
struct Args {
    /// URL of the gateway's gRPC port
    #[arg(long)]
    grpc: String,

    /// Key of the tenant, with every scope but `platform`
    #[arg(long)]
    key: String,

    /// URL of the database, with a login that owns the schema
    #[arg(long)]
    database: String,

    /// URL of the fake model, without `/v1`: tells it to make calls that wait for an approval
    #[arg(long)]
    model: Option<String>,

    /// Number that the contents are drawn from
    #[arg(long, default_value_t = 1)]
    number: u64,

    /// A twentieth of it, for daily tests
    #[arg(long)]
    small: bool,
}

/// How much is made.
#[derive(Debug, Clone, Copy)]
pub struct Amounts {
    pub agents: usize,
    pub conversations: usize,
    /// Turns of the longest conversation, each with two entries.
    pub long_turns: usize,
    pub approvals: usize,
    pub dead_letters: usize,
    pub failed_deliveries: usize,
    pub jobs: usize,
    pub memories: usize,
    pub articles: usize,
    pub skills: usize,
    pub todo_lists: usize,
}

impl Amounts {
    const FULL: Self = Self {
        agents: 50,
        conversations: 5_000,
        long_turns: 50_000,
        approvals: 12,
        dead_letters: 40,
        failed_deliveries: 60,
        jobs: 40,
        memories: 200,
        articles: 40,
        skills: 15,
        todo_lists: 20,
    };
    const SMALL: Self = Self {
        agents: 8,
        conversations: 250,
        long_turns: 1_000,
        approvals: 4,
        dead_letters: 5,
        failed_deliveries: 8,
        jobs: 8,
        memories: 20,
        articles: 6,
        skills: 4,
        todo_lists: 4,
    };
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let amounts = if args.small { Amounts::SMALL } else { Amounts::FULL };
    let mut random = StdRng::seed_from_u64(args.number);
    let begun = Instant::now();

    let api = Api::connect(&args.grpc, &args.key)?;
    let tenant = api.tenant().await?;
    let agents = api.make_agents(&amounts).await?;
    let accounts = api.make_accounts().await?;
    say(begun, "agents and channels")?;
    let mut database =
        PgConnection::connect(&args.database).await.context("cannot reach the database")?;
    let mut tables = Tables::new(&mut database, tenant);
    let made = Conversations::new(&agents, &accounts, &mut random).write(&mut tables, &amounts);
    let made = made.await?;
    say(begun, "conversations")?;
    let jobs = api.make_settings(&agents, &amounts, &mut random).await?;
    say(begun, "schedules, memories, articles, skills and budgets")?;
    let lists = made.sessions.get(..amounts.todo_lists).context("too few conversations")?;
    api.make_todos(lists, &mut random).await?;
    records::write(&mut database, tenant, lists, &jobs).await?;
    if let Some(model) = &args.model {
        api.ask_for_approvals(model, &agents, amounts.approvals).await?;
    }
    say(begun, "all of it")?;
    writeln!(std::io::stdout(), "{}", serde_json::json!({"long_session": made.long_session}))?;
    Ok(())
}

/// Tells whoever waits.
fn say(begun: Instant, what: &str) -> std::io::Result<()> {
    writeln!(std::io::stderr(), "{:6.1} s: {what}", begun.elapsed().as_secs_f64())
}
