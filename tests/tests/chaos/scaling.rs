//! Runners are added and removed by the rule of the Helm chart's autoscaler, with their real metrics,
//! while the load rises and falls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::{join_all, try_join_all};
use holdfast_testkit::Backends;
use holdfast_tests::load::{Conversation, Senders, TestChannel};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::node::Node;
use holdfast_tests::script::MessageKind;
use holdfast_tests::turnstile;
use holdfast_types::QueueMode;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::faults::finish;
use crate::report::Report;
use crate::{Form, RUNNER, form};

const MIN_RUNNERS: usize = 2;
const MAX_RUNNERS: usize = 8;

/// `agentRunner.autoscaling.waitingSessions` of the chart.
const WAITING_PER_RUNNER: u64 = 3;

/// How much faster than in a cluster the autoscaler looks and acts: 15 s between two looks, 30 s
/// between two doublings, ten minutes without need before a removal, 2 minutes between two removals.
const SPEED: u32 = 30;
const LOOK: Duration = Duration::from_millis(15_000 / SPEED as u64);
const DOUBLING: Duration = Duration::from_millis(30_000 / SPEED as u64);
const STABLE: Duration = Duration::from_millis(600_000 / SPEED as u64);
const REMOVAL: Duration = Duration::from_millis(120_000 / SPEED as u64);

const PROCESS_TIMEOUT: Duration = Duration::from_secs(30);

/// Conversations at the peak, and when it is quiet.
const CROWD: usize = 48;
const FEW: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runners_are_added_and_removed_by_the_autoscalers_rule_and_no_turn_fails()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_exclusive().await?;
    let plan = MeshConfig {
        runners: MAX_RUNNERS,
        bridges: 1,
        tenants: vec![QueueMode::Followup; 3],
        slots: 2,
        ..MeshConfig::small(RUNNER)
    };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    mesh.fakes.model.latency(Duration::from_millis(700));
    let load = Senders::on(&mesh)?;
    for node in mesh.gateways.iter().chain(&mesh.bridges) {
        node.start().await?;
        node.ready(PROCESS_TIMEOUT).await?;
    }
    let autoscaler = Autoscaler::start(&mesh).await?;
    let high = Duration::from_secs(if form() == Form::Long { 120 } else { 20 });

    let talking = AtomicUsize::new(FEW);
    let enough = CancellationToken::new();
    let crowd = try_join_all((0..CROWD).map(|number| converse(&load, number, &talking, &enough)));
    let day = async {
        sleep(Duration::from_secs(5)).await;
        talking.store(CROWD, Ordering::Relaxed);
        let for_long = async {
            sleep(high).await;
            anyhow::Ok(())
        };
        tokio::try_join!(autoscaler.wait_for(MAX_RUNNERS), for_long)?;
        talking.store(FEW, Ordering::Relaxed);
        autoscaler.wait_for(MIN_RUNNERS).await?;
        enough.cancel();
        anyhow::Ok(())
    };
    let (waits, figures, ()) = tokio::try_join!(crowd, autoscaler.run(&enough), day)?;
    let waits = waits.concat();

    let mut report = Report::of("scaling");
    report.line("answers", waits.len());
    report.line("runners at the beginning, at most, at the end", figures.runners());
    report.line("sessions that waited, at most", figures.most_waiting);
    report.line("time to the most runners, ms", figures.time_to_most.as_millis());
    report.line("runners added, removed", format!("{}, {}", figures.added, figures.removed));
    report.line("longest drain, ms", figures.longest_drain.as_millis());
    let mut sorted = waits;
    sorted.sort_unstable();
    for (name, part) in [("half of the answers within, ms", 2), ("99 % within, ms", 100)] {
        let at = sorted.len() - 1 - sorted.len() / part;
        report.line(name, sorted.get(at).context("no answers")?.as_millis());
    }
    report.show()?;
    ensure!(figures.most == MAX_RUNNERS, "only {} runners were needed", figures.most);
    ensure!(figures.last == MIN_RUNNERS, "{} runners are left", figures.last);
    finish(&mesh, &load).await
}

/// Asks and waits for the answer, again and again, while it is one of those who talk.
async fn converse(
    load: &Senders<'_>,
    number: usize,
    talking: &AtomicUsize,
    enough: &CancellationToken,
) -> anyhow::Result<Vec<Duration>> {
    let conversation = Conversation { tenant: number % 3, number, door: TestChannel::Grpc };
    let mut waits = Vec::new();
    while !enough.is_cancelled() {
        if number >= talking.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(100)).await;
            continue;
        }
        let began = Instant::now();
        let done = load.ask(&conversation, MessageKind::Status).await?;
        ensure!(done.outcome == 1, "a turn ended with {}: {}", done.outcome, done.reason);
        waits.push(began.elapsed());
    }
    Ok(waits)
}

/// What a HorizontalPodAutoscaler does with the chart's rules
/// (<https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/>).
struct Autoscaler<'a> {
    runners: Vec<&'a Node>,
    running: AtomicUsize,
}

#[derive(Debug, Default)]
struct Figures {
    first: usize,
    most: usize,
    last: usize,
    added: usize,
    removed: usize,
    most_waiting: u64,
    time_to_most: Duration,
    longest_drain: Duration,
}

impl Figures {
    fn runners(&self) -> String {
        format!("{}, {}, {}", self.first, self.most, self.last)
    }
}

impl<'a> Autoscaler<'a> {
    /// Starts the first runner.
    async fn start(mesh: &'a Mesh) -> anyhow::Result<Self> {
        let runners: Vec<&Node> = mesh.runners.iter().map(|runner| &**runner).collect();
        let autoscaler = Self { runners, running: AtomicUsize::new(0) };
        autoscaler.add(1).await?;
        Ok(autoscaler)
    }

    async fn run(&self, enough: &CancellationToken) -> anyhow::Result<Figures> {
        let running = || self.running.load(Ordering::Relaxed);
        let mut figures = Figures { first: running(), most: running(), ..Figures::default() };
        let mut wanted_lately = VecDeque::new();
        let (began, mut doubled, mut removed) = (Instant::now(), None, None);
        let may = |last: Option<Instant>, pause| last.is_none_or(|last| last.elapsed() >= pause);
        while !enough.is_cancelled() {
            let waiting = self.waiting().await;
            figures.most_waiting = figures.most_waiting.max(waiting);
            let wanted = usize::try_from(waiting.div_ceil(WAITING_PER_RUNNER))?;
            let wanted = wanted.clamp(MIN_RUNNERS, MAX_RUNNERS);
            wanted_lately.push_back((Instant::now(), wanted));
            while wanted_lately.front().is_some_and(|(at, _)| at.elapsed() > STABLE) {
                wanted_lately.pop_front();
            }
            let most_lately = wanted_lately.iter().map(|(_, wanted)| *wanted).max();
            let now = running();
            if wanted > now && may(doubled, DOUBLING) {
                let more = wanted.min(2 * now) - now;
                self.add(more).await?;
                figures.added += more;
                doubled = Some(Instant::now());
                if running() > figures.most {
                    (figures.most, figures.time_to_most) = (running(), began.elapsed());
                }
            } else if most_lately.is_some_and(|most| most < now) && may(removed, REMOVAL) {
                figures.longest_drain = figures.longest_drain.max(self.remove().await?);
                figures.removed += 1;
                removed = Some(Instant::now());
            }
            sleep(LOOK).await;
        }
        figures.last = running();
        Ok(figures)
    }

    /// `max(holdfast_runner_waiting_sessions)`.
    async fn waiting(&self) -> u64 {
        let running = &self.runners[..self.running.load(Ordering::Relaxed)];
        let told = running.iter().map(|runner| runner.number("holdfast_runner_waiting_sessions"));
        join_all(told).await.into_iter().flatten().max().unwrap_or_default()
    }

    async fn add(&self, more: usize) -> anyhow::Result<()> {
        let now = self.running.load(Ordering::Relaxed);
        let added = &self.runners[now..now + more];
        // In a cluster every 15 s.
        let gauges = format!("{}ms", LOOK.as_millis());
        let settings = [("HOLDFAST_RUNNER__GAUGES", gauges.as_str())];
        try_join_all(added.iter().map(|runner| runner.start_with(&settings))).await?;
        try_join_all(added.iter().map(|runner| runner.ready(PROCESS_TIMEOUT))).await?;
        self.running.store(now + more, Ordering::Relaxed);
        Ok(())
    }

    async fn remove(&self) -> anyhow::Result<Duration> {
        let last = self.running.load(Ordering::Relaxed) - 1;
        self.running.store(last, Ordering::Relaxed);
        self.runners[last].stop(PROCESS_TIMEOUT).await
    }

    async fn wait_for(&self, runners: usize) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.running.load(Ordering::Relaxed) != runners {
            ensure!(began.elapsed() < Duration::from_secs(120), "there are not {runners} runners");
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}
