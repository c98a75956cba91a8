//! Wake-ups, deltas and signals to a runner.

use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_bus::{
    Config, Control, ControlKind, Delta, DeltaBody, Error, McpProbe, McpProbeResult, McpProbeTool,
    Subject,
};
use holdfast_kit::{telemetry, trace};
use holdfast_types::{RunId, RunnerId, SessionId, TenantId};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use tracing::info_span;

use crate::world::{World, soon};

fn text(n: u32) -> Delta {
    let body = DeltaBody::Text { text: format!("word {n} ") };
    Delta { run: RunId::generate(), epoch: 1, step: 0, n, body }
}

#[tokio::test]
async fn a_token_wakes_one_runner_of_all() {
    let world = World::new().await;
    let other = world.elsewhere().await;
    let (mut one, mut two) =
        (world.bus.run_wakes("").await.unwrap(), other.run_wakes("").await.unwrap());
    let mut all = world.bus.subscribe(&Subject::wake_run()).await.unwrap();
    world.bus.flush().await;
    other.flush().await;
    tokio::time::sleep(Duration::from_millis(50)).await;

    for _ in 0..10 {
        world.bus.wake_run(0);
    }
    for _ in 0..10 {
        assert_eq!(soon(all.next()).await.unwrap().subject, "wake.run");
    }

    let mut woken = async || tokio::select! { _ = one.next() => (), _ = two.next() => () };
    for _ in 0..10 {
        soon(woken()).await;
    }
    assert!(tokio::time::timeout(Duration::from_millis(200), woken()).await.is_err());
}

#[tokio::test]
async fn what_a_slow_listener_cannot_hold_is_dropped_and_counted() {
    holdfast_kit::metrics::install().unwrap();
    let world = World::with(|config| Config { subscription_capacity: 8, ..config }).await;
    let (tenant, session) = (TenantId::generate(), SessionId::generate());
    let mut deltas = world.bus.subscribe_deltas(tenant, session).await.unwrap();
    let mut wakes = world.bus.subscribe(&Subject::wake_run()).await.unwrap();
    world.bus.flush().await;

    for n in 0..100 {
        world.bus.publish_delta(tenant, session, &text(n));
    }
    // NATS delivers in order: when this comes, the deltas have come.
    world.bus.wake_run(0);
    soon(wakes.next()).await.unwrap();
    let mut got = Vec::new();
    while let Ok(delta) = tokio::time::timeout(Duration::from_millis(200), deltas.next()).await {
        got.push(delta.unwrap().n);
    }

    assert_eq!(got, (0..8).collect::<Vec<u32>>());
    let metrics = holdfast_kit::metrics::render();
    assert!(metrics.contains(r#"holdfast_bus_dropped_total{kind="received"}"#), "{metrics}");
}

#[tokio::test]
async fn a_delayed_token_comes_later() {
    let world = World::new().await;
    let mut wakes = world.bus.run_wakes("").await.unwrap();
    let began = Instant::now();

    world.bus.wake_run(150);

    soon(wakes.next()).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(150));
}

#[tokio::test]
async fn a_channels_token_wakes_no_other_channel() {
    let world = World::new().await;
    let mut slack = world.bus.deliver_wakes("slack").await.unwrap();
    let mut telegram = world.bus.deliver_wakes("telegram").await.unwrap();

    world.bus.wake_deliver("telegram");
    world.bus.wake_deliver("slack");

    assert_eq!(soon(slack.next()).await.unwrap().subject, "wake.deliver.slack");
    assert_eq!(soon(telegram.next()).await.unwrap().subject, "wake.deliver.telegram");
}

#[tokio::test]
async fn deltas_arrive_in_order_and_only_where_they_belong() {
    let world = World::new().await;
    let (tenant, session) = (TenantId::generate(), SessionId::generate());
    let mut heard = world.bus.subscribe_deltas(tenant, session).await.unwrap();
    world.bus.publish(&Subject::deltas(tenant, session), Bytes::from_static(b"from the future"));

    world.bus.publish_delta(tenant, SessionId::generate(), &text(100));
    world.bus.publish_delta(TenantId::generate(), session, &text(200));
    let sent: Vec<Delta> = (0..2000).map(text).collect();
    for (n, delta) in sent.iter().enumerate() {
        world.bus.publish_delta(tenant, session, delta);
        if n % 500 == 0 {
            world.bus.flush().await;
        }
    }

    for delta in sent {
        assert_eq!(soon(heard.next()).await, Some(delta));
    }
}

#[tokio::test]
async fn a_runner_hears_what_is_meant_for_it() {
    let world = World::new().await;
    let (runner, other) = (RunnerId::generate(), RunnerId::generate());
    let mut heard = world.bus.controls(runner).await.unwrap();
    let control =
        |epoch| Control { session: SessionId::generate(), kind: ControlKind::Cancel, epoch };
    let (theirs, ours) = (control(1), control(2));

    world.bus.control(other, &theirs);
    world.bus.control(runner, &ours);

    assert_eq!(soon(heard.next()).await, Some(ours));
}

#[tokio::test]
async fn two_installations_do_not_hear_each_other() {
    let (ours, theirs) = (World::new().await, World::new().await);
    let mut heard = ours.bus.run_wakes("").await.unwrap();

    theirs.bus.wake_run(0);
    theirs.bus.flush().await;

    let wait = tokio::time::timeout(Duration::from_millis(200), heard.next()).await;
    assert!(wait.is_err());
}

#[derive(Debug)]
struct Nowhere;

impl SpanExporter for Nowhere {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

/// The only test here that starts telemetry, which can be started only once per process.
#[tokio::test]
async fn a_message_carries_the_trace_it_belongs_to() {
    let config = telemetry::Config::default();
    let _guard = telemetry::init_with_exporter("test", &config, Nowhere).unwrap();
    let world = World::new().await;
    let mut wakes = world.bus.run_wakes("").await.unwrap();

    let sent = info_span!("sender").in_scope(|| {
        world.bus.wake_run(0);
        trace::current()
    });

    assert!(sent.is_some());
    assert_eq!(soon(wakes.next()).await.unwrap().trace, sent);
}

#[tokio::test]
async fn a_question_about_a_server_is_answered_by_one_runner_and_not_silently_by_none() {
    let world = World::new().await;
    let asker = world.elsewhere().await;
    let probe = McpProbe { tenant: TenantId::generate(), server: "x".into() };
    let nobody = asker.probe_mcp("", &probe, Duration::from_secs(2)).await;
    let mut probes = world.bus.mcp_probes("").await.unwrap();
    let mut others = world.bus.mcp_probes("").await.unwrap();
    let tool = McpProbeTool { name: "mcp_x_echo".into(), ..McpProbeTool::default() };
    let found = McpProbeResult { tools: vec![tool], ..McpProbeResult::default() };

    let answer = async {
        let asked = tokio::select! {
            asked = probes.next::<McpProbe>() => asked.unwrap(),
            asked = others.next::<McpProbe>() => asked.unwrap(),
        };
        let (said, asker) = asked;
        asker.answer(&found).await;
        said
    };
    let ask = async {
        loop {
            // The server may not have processed the subscription yet.
            match asker.probe_mcp("", &probe, Duration::from_secs(5)).await {
                Err(Error::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                answered => break answered,
            }
        }
    };
    let (answered, said) = soon(async { tokio::join!(ask, answer) }).await;

    assert!(matches!(nobody, Err(Error::Unavailable(_))), "{nobody:?}");
    assert_eq!((answered.unwrap(), said), (found, probe));
}

#[tokio::test]
async fn a_question_is_answered_by_whoever_knows_and_by_nobody_at_once() {
    let world = World::new().await;
    let other = world.elsewhere().await;
    let (tenant, session) = (TenantId::generate(), SessionId::generate());
    let subject = Subject::jobs(tenant, session);
    let (long, began) = (Duration::from_secs(20), Instant::now());
    let nobody: Vec<u32> = world.bus.ask(&subject, &"how many?", long, 1).await.unwrap();
    assert!(nobody.is_empty() && began.elapsed() < long / 2, "{:?}", began.elapsed());

    let mut questions = other.questions(&subject).await.unwrap();
    other.flush().await;
    tokio::spawn(async move {
        while let Some((question, asker)) = questions.next::<String>().await {
            asker.answer(&question.len()).await;
        }
    });
    let answers = soon(async {
        loop {
            // The server may not have processed the subscription yet.
            let answers: Vec<u32> = world.bus.ask(&subject, &"how many?", long, 1).await.unwrap();
            if !answers.is_empty() {
                break answers;
            }
        }
    });
    assert_eq!(answers.await, [9]);

    let elsewhere = Subject::jobs(TenantId::generate(), session);
    let stranger: Vec<u32> = world.bus.ask(&elsewhere, &"how many?", long, 1).await.unwrap();
    assert!(stranger.is_empty());
}
