//! Each slot of each job comes once (I12), whatever becomes of the schedulers and of their clocks.
//!
//! Counted from the inboxes: for each slot that the jobs had there must be one message, and for
//! each message a slot.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use holdfast_tests::clockwork::SchedulerMesh;
use holdfast_tests::{dice, turnstile};
use rand::RngExt as _;
use tokio::time::{Instant, sleep};

use crate::report::Report;
use crate::{Form, form};

const START_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_slot_comes_once_though_a_scheduler_is_killed_each_second() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    // The long form's rate is one that debug builds on a slow machine keep up with: what is
    // recorded faster than it can be delivered between two deaths only piles up.
    let (jobs, seconds, burst, least) = match form() {
        Form::Short => (60, 15, 300, 300),
        Form::Long => (240, 220, 2_500, 50_000),
    };
    let mut clockwork = SchedulerMesh::prepare(3, 4).await?;
    start(&clockwork).await?;
    let answering = clockwork.answer();
    clockwork.add_each_second(jobs).await?;
    // In the midst of it many are due in one instant.
    clockwork.add_at_once(burst, Duration::from_secs(seconds / 2)).await?;

    let begun = Instant::now();
    let (mut kills, mut draws) = (0, dice::stream("kill"));
    while begun.elapsed() < Duration::from_secs(seconds) || kills <= 5 {
        sleep(Duration::from_millis(draws.random_range(700..1_300))).await;
        let unlucky = draws.random_range(0..clockwork.replicas.len());
        kills += u32::from(clockwork.replicas[unlucky].crash().await?);
    }
    let account = clockwork.finish(Duration::from_secs(120)).await;
    ensure!(!answering.is_finished(), "nobody answers any more");
    let account = account?;

    let mut report = Report::of("slots");
    report.line("schedulers killed with -9", kills);
    report.line("slots that were due", account.due);
    report.line("missed", account.missed);
    report.line("doubled", account.doubled);
    report.line("messages of no slot", account.strange);
    report.line("handed out again", account.handed_again);
    for wrong in &account.wrong {
        report.line("wrong", wrong);
    }
    report.show()?;
    account.balance()?;
    ensure!(account.due >= least, "only {} slots were due, of {least} at least", account.due);
    Ok(())
}

/// A test that `tests/tools.py` leaves out where faketime is missing.
mod needs_faketime {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_scheduler_whose_clock_jumps_does_no_harm() -> anyhow::Result<()> {
        let mut report = Report::of("clocks");
        let library =
            faketime().context("install faketime (Debian: `apt-get install faketime`)")?;
        let _turn = turnstile::lock_shared().await?;
        let dir = tempfile::tempdir()?;
        let wall = dir.path().join("wall");
        std::fs::write(&wall, "-2d")?;
        let mut clockwork = SchedulerMesh::prepare(2, 2).await?;
        let (honest, lying) = (clockwork.replicas[0].clone(), clockwork.replicas[1].clone());
        let answering = clockwork.answer();
        honest.start().await?;
        let library = library.to_string_lossy().into_owned();
        let file = wall.to_string_lossy().into_owned();
        lying
            .start_with(&[
                ("LD_PRELOAD", library.as_str()),
                ("FAKETIME_TIMESTAMP_FILE", file.as_str()),
                ("FAKETIME_NO_CACHE", "1"),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
                ("HOLDFAST_TELEMETRY__LOG", "info"),
            ])
            .await?;
        lying.ready(START_TIMEOUT).await?;
        honest.ready(START_TIMEOUT).await?;
        let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
        let said = lying.output().await;
        ensure!(
            said.contains("serving") && !said.contains(&today),
            "its clock is right, so that nothing is shown:\n{said}"
        );

        clockwork.add_each_second(40).await?;
        clockwork.add_at_once(200, Duration::from_secs(6)).await?;
        // Hours ahead, days back; and in the midst it is alone.
        for (second, wrong) in
            ["+3h", "-2d", "+90s", "-1s", "+400d", "+0"].iter().cycle().take(18).enumerate()
        {
            std::fs::write(&wall, wrong)?;
            match second {
                6 => honest.kill().await?,
                13 => honest.start().await?,
                _ => {}
            }
            sleep(Duration::from_millis(700)).await;
        }
        let account = clockwork.finish(Duration::from_secs(60)).await;
        ensure!(!answering.is_finished(), "nobody answers any more");
        let account = account?;
        // By the database's clock, which is the only one that counts.
        let early = "select count(*) from schedule.firings where created_at < slot_at";
        let early = clockwork.number(early).await?;
        let late = "
            select (extract(epoch from max(created_at - slot_at)) * 1000)::bigint from schedule.firings";
        let late = clockwork.number(late).await?;

        report.line("slots that were due", account.due);
        report.line("missed", account.missed);
        report.line("doubled", account.doubled);
        report.line("before their time", early);
        report.line("the latest, ms", late);
        report.show()?;
        account.balance()?;
        ensure!(early == 0, "{early} came before their time");
        ensure!(late < 60_000, "one was recorded {late} ms late");
        Ok(())
    }
}

async fn start(clockwork: &SchedulerMesh) -> anyhow::Result<()> {
    try_join_all(clockwork.replicas.iter().map(|node| node.start())).await?;
    try_join_all(clockwork.replicas.iter().map(|node| node.ready(START_TIMEOUT))).await?;
    Ok(())
}

/// The library that tells a process another time, for programs with several threads.
fn faketime() -> Option<PathBuf> {
    let roots = ["/usr/lib", "/usr/lib64", "/usr/local/lib"];
    let folders = roots.iter().flat_map(|root| {
        let below = std::fs::read_dir(root).into_iter().flatten().flatten();
        below.map(|entry| entry.path()).chain([PathBuf::from(root)])
    });
    folders
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.exists())
}
