//! Each service logs in to NATS as a user that may do what the service does, and nothing else.

use std::{collections::BTreeSet, time::Duration};

use async_nats::{ConnectOptions, Event, ServerAddr};
use holdfast_bus::{Bus, ProcessReport, Subject};
use holdfast_testkit::{generated::check_stolen_parts, nats::Namespace};
use holdfast_types::{SessionId, TenantId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::world::{World, config, connected, ensure_streams, publish, soon};

/// A subject of each kind. Those that begin with `_` or `$` have no prefix; `EVENTS` is the stream.
const SUBJECTS: [&str; 28] = [
    "wake.run",
    "wake.schedule",
    "wake.events",
    "wake.access",
    "wake.deliver.telegram",
    "ctl.1",
    "node.1.2",
    "job.1.2",
    "dlt.1.2",
    "dlt.1.*",
    "dlt.>",
    "evt.1.heartbeat.2",
    "evt.1.session.2",
    "ask.processes",
    "ask.runners",
    "ask.model",
    "ask.prompt.large",
    "ask.mcp",
    "_INBOX.holdfast-gateway.1",
    "_INBOX.holdfast-runner.1",
    "_INBOX.holdfast-scheduler.1",
    "_INBOX.>",
    "$JS.API.STREAM.INFO.EVENTS",
    "$JS.API.STREAM.CREATE.EVENTS",
    "$JS.API.STREAM.UPDATE.EVENTS",
    "$JS.API.STREAM.DELETE.EVENTS",
    "$JS.API.STREAM.PURGE.EVENTS",
    "$JS.API.CONSUMER.CREATE.EVENTS",
];

/// The denial of this subject is the last: NATS checks what a connection does in order.
const LAST: &str = "nobody.may";

fn full(subject: &str, prefix: &str) -> String {
    match subject.starts_with(['_', '$']) {
        true => subject.replace("EVENTS", &format!("{prefix}_EVENTS")),
        false => format!("{prefix}.{subject}"),
    }
}

/// Subjects of [`SUBJECTS`] to which a service may publish, and to which it may subscribe.
async fn permitted(namespace: &Namespace, service: &str) -> [BTreeSet<&'static str>; 2] {
    let server: ServerAddr = namespace.service_url(service).parse().unwrap();
    let (user, password) = (server.username().unwrap(), server.password().unwrap());
    let (events, mut denials) = mpsc::unbounded_channel();
    let client = ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned())
        .event_callback(move |event| {
            if let Event::ServerError(error) = event {
                let _ = events.send(error.to_string());
            }
            std::future::ready(())
        })
        .connect(server.clone())
        .await
        .unwrap();
    let mut denied = async || {
        let mut subjects = BTreeSet::new();
        loop {
            let error = soon(denials.recv()).await.unwrap();
            let subject = error.split('"').nth(1).unwrap().to_owned();
            if subject == LAST {
                return subjects;
            }
            subjects.insert(subject);
        }
    };
    let without = |denied: BTreeSet<String>| {
        let all = SUBJECTS.into_iter();
        all.filter(|subject| !denied.contains(&full(subject, namespace.prefix()))).collect()
    };

    for subject in SUBJECTS.into_iter().filter(|subject| !subject.contains(['*', '>'])) {
        client.publish(full(subject, namespace.prefix()), "".into()).await.unwrap();
    }
    client.publish(LAST, "".into()).await.unwrap();
    let publish = without(denied().await);
    let mut subscriptions = Vec::new();
    for subject in SUBJECTS {
        subscriptions.push(client.subscribe(full(subject, namespace.prefix())).await.unwrap());
    }
    subscriptions.push(client.subscribe(LAST).await.unwrap());
    [publish, without(denied().await)]
}

async fn assert_permitted(service: &str, publish: &[&str], subscribe: &[&str]) {
    let namespace = Namespace::create().await.unwrap();
    let patterns = SUBJECTS.into_iter().filter(|subject| subject.contains(['*', '>']));

    let [may_publish, may_subscribe] = permitted(&namespace, service).await;

    // Nobody can publish to a pattern, so none was tried.
    let expected = publish.iter().copied().chain(patterns).collect();
    assert_eq!(may_publish, expected, "`{service}` publishes");
    assert_eq!(may_subscribe, subscribe.iter().copied().collect(), "`{service}` subscribes");
}

#[tokio::test]
async fn a_gateway_reads_replies_and_creates_no_stream() {
    let publish = [
        "wake.run",
        "wake.schedule",
        "wake.events",
        "wake.access",
        "wake.deliver.telegram",
        "ctl.1",
        "node.1.2",
        "ask.processes",
        "ask.runners",
        "ask.model",
        "ask.prompt.large",
        "ask.mcp",
        "_INBOX.holdfast-gateway.1",
        "_INBOX.holdfast-runner.1",
    ];
    let subscribe = [
        "wake.events",
        "wake.access",
        "node.1.2",
        "dlt.1.2",
        "dlt.1.*",
        "dlt.>",
        "ask.processes",
        "_INBOX.holdfast-gateway.1",
    ];
    assert_permitted("gateway", &publish, &subscribe).await;
}

#[tokio::test]
async fn a_runner_answers_questions_and_deletes_no_stream() {
    let publish = [
        "wake.run",
        "wake.schedule",
        "wake.events",
        "wake.access",
        "wake.deliver.telegram",
        "ctl.1",
        "node.1.2",
        "job.1.2",
        "dlt.1.2",
        "evt.1.heartbeat.2",
        "evt.1.session.2",
        "_INBOX.holdfast-gateway.1",
        "_INBOX.holdfast-runner.1",
        "$JS.API.STREAM.INFO.EVENTS",
        "$JS.API.STREAM.CREATE.EVENTS",
        "$JS.API.STREAM.UPDATE.EVENTS",
    ];
    let subscribe = [
        "wake.run",
        "ctl.1",
        "job.1.2",
        "ask.processes",
        "ask.runners",
        "ask.model",
        "ask.prompt.large",
        "ask.mcp",
        "_INBOX.holdfast-runner.1",
    ];
    assert_permitted("agent-runner", &publish, &subscribe).await;
}

#[tokio::test]
async fn a_scheduler_reads_no_replies_asks_nobody_and_creates_no_stream() {
    let publish = [
        "wake.run",
        "wake.schedule",
        "wake.events",
        "wake.access",
        "ctl.1",
        "evt.1.heartbeat.2",
        "$JS.API.STREAM.INFO.EVENTS",
    ];
    let subscribe = ["wake.schedule", "ask.processes", "_INBOX.holdfast-scheduler.1"];
    assert_permitted("scheduler", &publish, &subscribe).await;
}

#[tokio::test]
async fn a_bridge_publishes_nothing() {
    let subscribe = ["wake.deliver.telegram", "dlt.1.2", "dlt.1.*", "dlt.>", "ask.processes"];
    assert_permitted("channel-bridge", &[], &subscribe).await;
}

/// Rows of the table in `docs/stolen-parts.md`: each has some of [`SUBJECTS`].
const GROUPS: [(&str, &[&str]); 14] = [
    (
        "wake-ups of processes (`wake.>`): hints that lead to a read of the database",
        &["wake.run", "wake.schedule", "wake.events", "wake.deliver.telegram"],
    ),
    ("`wake.access`: open connections check their rights again", &["wake.access"]),
    ("signals to runners (`ctl.>`): hints", &["ctl.1"]),
    ("requests to nodes (`node.>`), whose commands are signed", &["node.1.2"]),
    ("requests to background commands (`job.>`), signed", &["job.1.2"]),
    (
        "requests to models, prompts and MCP servers (`ask.>`), signed",
        &["ask.model", "ask.prompt.large", "ask.mcp"],
    ),
    ("reports of processes (`ask.processes`, `ask.runners`)", &["ask.processes", "ask.runners"]),
    ("deltas of replies, of all tenants (`dlt.>`)", &["dlt.1.2", "dlt.1.*", "dlt.>"]),
    ("events of conversations, of all tenants (`evt.>`)", &["evt.1.session.2"]),
    ("events of heartbeats", &["evt.1.heartbeat.2"]),
    (
        "answers to gateways and runners (`_INBOX.>`)",
        &["_INBOX.holdfast-gateway.1", "_INBOX.holdfast-runner.1"],
    ),
    ("all other answers", &["_INBOX.holdfast-scheduler.1", "_INBOX.>"]),
    (
        "make and change the stream of events",
        &[
            "$JS.API.STREAM.INFO.EVENTS",
            "$JS.API.STREAM.CREATE.EVENTS",
            "$JS.API.STREAM.UPDATE.EVENTS",
        ],
    ),
    (
        "delete, empty or read the stream of events",
        &[
            "$JS.API.STREAM.DELETE.EVENTS",
            "$JS.API.STREAM.PURGE.EVENTS",
            "$JS.API.CONSUMER.CREATE.EVENTS",
        ],
    ),
];

/// `publish` and `subscribe` for a right to all subjects of a group, in brackets if to some.
fn cell(subjects: &[&str], rights: &[BTreeSet<&str>; 2]) -> String {
    // Nobody can publish to a pattern.
    let is_name = |subject: &&&str| !subject.contains(['*', '>']);
    let names: Vec<&str> = subjects.iter().filter(is_name).copied().collect();
    let [publish, subscribe] = rights;
    let tried = [("publish", publish, names), ("subscribe", subscribe, subjects.to_vec())];
    let words = tried.into_iter().filter_map(|(word, permitted, subjects)| {
        match subjects.iter().filter(|subject| permitted.contains(*subject)).count() {
            0 => None,
            count if count == subjects.len() => Some(word.to_owned()),
            _ => Some(format!("({word})")),
        }
    });
    let words = words.collect::<Vec<_>>().join(", ");
    if words.is_empty() { "—".to_owned() } else { words }
}

#[tokio::test]
async fn the_page_says_what_each_login_publishes_and_subscribes_to() {
    const LOGINS: [&str; 4] = ["gateway", "agent-runner", "scheduler", "channel-bridge"];
    let grouped: BTreeSet<&str> =
        GROUPS.iter().flat_map(|(_, subjects)| *subjects).copied().collect();
    assert_eq!(grouped, SUBJECTS.into(), "each subject needs a row of the page");

    let mut rows: Vec<Vec<String>> =
        GROUPS.iter().map(|(name, _)| vec![(*name).to_owned()]).collect();
    for service in LOGINS {
        let namespace = Namespace::create().await.unwrap();
        let rights = permitted(&namespace, service).await;
        for (row, (_, subjects)) in rows.iter_mut().zip(GROUPS) {
            row.push(cell(subjects, &rights));
        }
    }

    let head: Vec<&str> = ["subjects"].into_iter().chain(LOGINS).collect();
    check_stolen_parts("nats", &head, &rows).unwrap();
}

async fn bus_of(world: &World, service: &str, name: &str) -> Bus {
    let namespace = &world.namespace;
    let config = config(namespace.service_url(service), namespace.prefix());
    let bus = Bus::connect(&config, name).await.unwrap();
    connected(&bus).await;
    bus
}

#[tokio::test]
async fn each_service_reports_to_the_gateway_that_asks() {
    let world = World::new().await;
    let stop = CancellationToken::new();
    let services = [
        ("gateway", "holdfast-gateway"),
        ("agent-runner", "holdfast-runner"),
        ("scheduler", "holdfast-scheduler"),
        ("channel-bridge", "holdfast-bridge"),
    ];
    for (service, name) in services {
        let (bus, stop) = (bus_of(&world, service, name).await, stop.clone());
        let report = ProcessReport { service: service.to_owned(), ..ProcessReport::default() };
        tokio::spawn(async move { ProcessReport::serve(&bus, || report.clone(), stop).await });
    }
    let gateway = bus_of(&world, "gateway", "holdfast-gateway").await;

    let mut reporting = BTreeSet::new();
    soon(async {
        while reporting.len() < services.len() {
            let reports = ProcessReport::of_all(&gateway, Duration::from_secs(1)).await.unwrap();
            reporting.extend(reports.into_iter().map(|report| report.service));
        }
    })
    .await;

    assert_eq!(reporting, services.map(|(service, _)| service.to_owned()).into());
    stop.cancel();
}

#[tokio::test]
async fn a_runner_creates_the_stream_to_which_a_scheduler_publishes() {
    let world = World::new().await;
    let runner = bus_of(&world, "agent-runner", "holdfast-runner").await;
    let scheduler = bus_of(&world, "scheduler", "holdfast-scheduler").await;
    let (tenant, session) = (TenantId::generate(), SessionId::generate());
    let heartbeat = Subject::event(tenant, "heartbeat", session);

    assert!(scheduler.publish_event(&heartbeat, "1", "{}".into()).await.is_err());
    ensure_streams(&runner).await;

    publish(&runner, &Subject::session_events(tenant, session), "2", "{}").await;
    publish(&scheduler, &heartbeat, "3", "{}").await;
    let other = Subject::session_events(tenant, session);
    assert!(scheduler.publish_event(&other, "4", "{}".into()).await.is_err());
}
