//! Overhead of a command: the sandbox, and the files of its scratch folder.

use std::{process::Stdio, time::Duration};

use holdfast_sandbox::{BackendChoice, Command, CommandEnd, Config};
use holdfast_types::{AgentId, TenantId};
use holdfast_workspace::{Base, ChangeAuthor, ContentCache, Edit, Scratch, Workspaces};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Pace, mesh::Mesh, report::Line, stats::Samples};

const FILES: usize = 1_000;
const FILE_BYTES: usize = 1_000;

/// Room for all of it.
const CACHE_BYTES: u64 = 64 << 20;

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let mut lines = isolation(pace).await?;
    lines.extend(files(mesh, pace).await?);
    Ok(lines)
}

async fn isolation(pace: Pace) -> anyhow::Result<Vec<Line>> {
    let dir = tempfile::tempdir()?;
    let config = Config { backend: BackendChoice::Bubblewrap, ..Config::default() };
    let sandbox = match holdfast_sandbox::open(&config).await {
        Ok(sandbox) => sandbox,
        Err(error) => {
            let line = Line::count("commands in the sandbox", 0);
            return Ok(vec![line.note(format!("not measured: {error}"))]);
        }
    };
    let count = pace.count(100, 10);
    let (mut plain, mut walled) = (Vec::new(), Vec::new());
    // In turns, so that whatever else the machine does meets both.
    for _ in 0..count {
        let begun = Instant::now();
        let mut command = tokio::process::Command::new("bash");
        command.args(["-c", "true"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let output = command.output().await?;
        plain.push(begun.elapsed());
        anyhow::ensure!(output.status.success(), "`true` failed");

        let begun = Instant::now();
        let outcome = sandbox.run(Command::new("true", dir.path()), CancellationToken::new());
        let outcome = outcome.await?;
        walled.push(begun.elapsed());
        anyhow::ensure!(outcome.ended == CommandEnd::Exited(0), "`true` {}", outcome.ended);
    }
    let (plain, walled): (Samples, Samples) =
        (plain.into_iter().collect(), walled.into_iter().collect());
    let over = walled.median().saturating_sub(plain.median());
    Ok(vec![
        Line::millis("`true` started plainly, p50", plain.median()),
        Line::millis("`true` in the sandbox, p50", walled.median())
            .note(format!("p99 {:.1} ms", walled.permille(990).as_secs_f64() * 1000.0)),
        Line::millis("cost of the sandbox, p50", over).at_most(15.0),
    ])
}

async fn files(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let (_database, pools) = mesh.empty_database().await?;
    let workspaces = Workspaces::new(pools);
    let (tenant, agent) = (TenantId::generate(), AgentId::generate());
    let by = ChangeAuthor::new("bench", "files");
    let put = |nth: usize, byte: u8| {
        let path = format!("d{}/f{nth}", nth % 20).parse()?;
        let mut content = vec![byte; FILE_BYTES];
        content.extend(nth.to_string().into_bytes());
        anyhow::Ok(Edit::Put { path, content, base: Base::Any })
    };
    let edits = (0..FILES).map(|nth| put(nth, b'a')).collect::<Result<Vec<_>, _>>()?;
    workspaces.commit(tenant, agent, &by, edits).await?;

    let dir = tempfile::tempdir()?;
    let open = async |name: &str| {
        let cache = ContentCache::open(dir.path().join("cache"), CACHE_BYTES)?;
        Scratch::open(workspaces.clone(), cache, dir.path().join(name), tenant, agent).await
    };
    let first = time(async || {
        open("first").await?.bring(None).await?;
        Ok(())
    })
    .await?;
    let from_cache = time(async || {
        open("second").await?.bring(None).await?;
        Ok(())
    })
    .await?;
    let (mut same, mut one) = (Vec::new(), Vec::new());
    for nth in 0..pace.count(50, 5) {
        same.push(
            time(async || {
                let brought = open("first").await?.bring(None).await?;
                anyhow::ensure!(brought.written == 0, "unchanged files were written");
                Ok(())
            })
            .await?,
        );
        change(&workspaces, tenant, agent, put(nth, b'b')?).await?;
        one.push(
            time(async || {
                let brought = open("first").await?.bring(None).await?;
                anyhow::ensure!(brought.written == 1, "{} files were written", brought.written);
                Ok(())
            })
            .await?,
        );
    }
    let (same, one): (Samples, Samples) = (same.into_iter().collect(), one.into_iter().collect());
    Ok(vec![
        Line::millis("1,000 files, the first time", first),
        Line::millis("1,000 files, in another folder", from_cache).note("from the cache"),
        Line::millis("1,000 files, unchanged, p50", same.median()).at_most(20.0),
        Line::millis("1,000 files, one of them changed, p50", one.median()),
    ])
}

async fn change(
    workspaces: &Workspaces,
    tenant: TenantId,
    agent: AgentId,
    edit: Edit,
) -> anyhow::Result<()> {
    workspaces.commit(tenant, agent, &ChangeAuthor::new("bench", "a file"), vec![edit]).await?;
    Ok(())
}

async fn time(what: impl AsyncFn() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    what().await?;
    Ok(begun.elapsed())
}
