//! The testkit's fake model as a process of its own, so that what it costs is not counted with
//! what is measured.
//!
//! It prints its base URL as the first line of stdout and runs until it is killed.

use std::{io::Write as _, time::Duration};

use anyhow::Context as _;
use clap::Parser;
use holdfast_testkit::{FakeModel, Reply};

/// A model that answers after a while, and may call a tool first
#[derive(Debug, Parser)]
struct Args {
    /// How many milliseconds pass before each answer begins
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,

    /// A tool that it calls once, without arguments, for each message
    #[arg(long)]
    tool: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let model = FakeModel::start().await?;
    model.forget_requests();
    model.latency(Duration::from_millis(args.latency_ms));
    if let Some(tool) = args.tool {
        model.answer(move |request| match request.tool_results().as_slice() {
            [] => Reply::call(format!("call_{}", request.messages().len()), tool.as_str(), "{}"),
            [(_, result), ..] => Reply::text(format!("The tool said {} bytes.", result.len())),
        });
    }

    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", model.url()).context("cannot tell where the model is")?;
    stdout.flush()?;
    std::future::pending().await
}
