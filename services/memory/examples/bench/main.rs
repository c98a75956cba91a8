//! Benchmarks of the memory service over gRPC, on a real Postgres: `make bench-memory DATA=<dir>`.
//!
//! ```text
//! bench locomo DIR     conversations in LoCoMo's format (*.json): what is found of the evidence
//! bench scale          250 tenants of 200 units and one of 50,000: the index against the exact scan
//! ```
//!
//! `HOLDFAST_MEMORY__…` configures the embedder; the default is the local one, whose files `make
//! embedder` downloads.

mod host;
mod locomo;
mod mesh;
mod scale;

use std::io::Write as _;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["locomo", dir] => runtime.block_on(locomo::run(dir))?,
        ["scale"] => runtime.block_on(scale::run(250, 200, 50_000))?,
        ["scale", small, each, large] => {
            runtime.block_on(scale::run(small.parse()?, each.parse()?, large.parse()?))?
        }
        _ => anyhow::bail!("say what: `locomo DIR` or `scale [TENANTS EACH LARGE]`"),
    };
    std::io::stdout().write_all(report.as_bytes())?;
    Ok(())
}
