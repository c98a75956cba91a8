//! Behaviours with the tenant's key: messages, streams, files, commands, jobs.

use std::{rc::Rc, sync::Arc, time::Duration};

use anyhow::ensure;
use futures::future::join_all;
use holdfast_proto::gateway::v1::{ReadFileRequest, WriteFileRequest, files_client::FilesClient};
use holdfast_tests::{
    clockwork::insert_jobs,
    websocket::{Socket, Wants},
};
use jiff::Timestamp;
use serde_json::json;
use sqlx::PgConnection;
use tokio::time::interval;

use super::behavior::{Counts, Target};
use crate::{
    client::{Client, unique_session},
    models::Model,
};

/// Sessions of the flood.
const SESSIONS: usize = 200;
/// Half of the time in which the tenant's bucket of calls fills up.
const BURST_INTERVAL: Duration = Duration::from_secs(5);

/// Text just below the limit of 256 KiB.
const HUGE_PROMPT_WORDS: usize = 52_000;

/// Answers of 100 kB that nobody reads.
const LONG_ANSWER: &str = "HOSTILE-LONG-ANSWER";
const LONG_ANSWER_WORDS: usize = 20_000;
const LONG_ANSWER_PIECES: usize = 400;

const FILE_BYTES: usize = 900_000;
const FILES: usize = 8;

/// Text on which the model runs [`COMMAND`].
const RUN_COMMAND: &str = "HOSTILE-COMMAND";
/// Uses four processors for a second, and writes and reads 16 MB.
const COMMAND: &str = "for n in 1 2 3 4; do timeout 1 sh -c 'while :; do :; done' & done; \
    dd if=/dev/zero of=big bs=1M count=16 2>/dev/null; cat big big >/dev/null; rm big; wait";

/// Jobs of one second, and the time between two such seconds.
const JOBS_AT_ONCE: usize = 1_000;
const JOB_INTERVAL: Duration = Duration::from_secs(10);

/// Sends as many messages at once as the tenant's bucket of calls holds, to many sessions whose model takes
/// 3 s: twice the tenant's rate, in bursts.
pub async fn flood_messages(target: Arc<Target>, counts: Rc<Counts>) -> anyhow::Result<()> {
    let client = Client::new(target.grpc, &target.key)?;
    let (client, name) = (&client, unique_session("flood"));
    let send = |nth: usize| {
        let session = format!("{name}-{}", nth % SESSIONS);
        async move { client.send(nth, Model::VerySlow, &session).await }
    };
    let mut clock = interval(BURST_INTERVAL);
    loop {
        clock.tick().await;
        for sent in join_all((0..target.burst).map(&send)).await {
            counts.add(sent.is_ok());
        }
    }
}

/// One message of 254 KiB in each second.
pub async fn send_huge_prompts(target: Arc<Target>, counts: Rc<Counts>) -> anyhow::Result<()> {
    let client = Client::new(target.grpc, &target.key)?;
    let (name, text) = (unique_session("huge"), "word ".repeat(HUGE_PROMPT_WORDS));
    let call = async |nth: usize| {
        let session = format!("{name}-{}", nth % SESSIONS);
        client.send_text(nth, Model::VerySlow, &session, &text).await
    };
    counts.repeat((1.0, 0), call).await;
    Ok(())
}

/// Two streams with long answers in each second, which are not read; up to 40 stay open, each on a
/// connection of its own.
pub async fn leave_streams_unread(target: Arc<Target>, counts: Rc<Counts>) -> anyhow::Result<()> {
    let text = "word ".repeat(LONG_ANSWER_WORDS);
    let reply = json!({ "text": text, "pieces": LONG_ANSWER_PIECES });
    add_rule(&target, LONG_ANSWER, json!([reply])).await?;
    let name = unique_session("unread");
    let call = async |nth: usize| {
        let client = Client::new(target.grpc, &target.key)?;
        let session = format!("{name}-{nth}");
        let stream = client.stream(Model::Instant, &session, LONG_ANSWER).await?;
        Ok((client, stream))
    };
    counts.repeat((2.0, 40), call).await;
    Ok(())
}

/// Writes two files of 900 kB in each second, and reads them.
pub async fn rewrite_large_files(target: Arc<Target>, counts: Rc<Counts>) -> anyhow::Result<()> {
    let client = Client::new(target.grpc, &target.key)?;
    let call = async |nth: usize| {
        let mut files = FilesClient::new(client.channel(nth));
        let (agent, path) = (Model::Instant.name(), format!("shared/hostile-{}.txt", nth % FILES));
        let digit = char::from_digit(u32::try_from(nth % 10)?, 10).unwrap_or('0');
        let write = WriteFileRequest {
            agent: agent.to_owned(),
            path: path.clone(),
            content: digit.to_string().repeat(FILE_BYTES).into_bytes(),
            ..WriteFileRequest::default()
        };
        files.write_file(client.request(write)).await?;
        let read = ReadFileRequest { agent: agent.to_owned(), path, ..ReadFileRequest::default() };
        files.read_file(client.request(read)).await?;
        Ok(())
    };
    counts.repeat((2.0, 0), call).await;
    Ok(())
}

/// One message in two seconds that has the agent run a command. Without a sandbox the agent is refused
/// the command.
pub async fn run_commands(target: Arc<Target>, counts: Rc<Counts>) -> anyhow::Result<()> {
    let call = json!({ "tool": "exec", "input": { "command": COMMAND } });
    let replies = json!([{ "text": "Let me run it.", "calls": [call] }, { "text": "It ran." }]);
    add_rule(&target, RUN_COMMAND, replies).await?;
    let client = Client::new(target.grpc, &target.key)?;
    let name = unique_session("commands");
    let call = async |nth: usize| {
        let session = format!("{name}-{}", nth % FILES);
        client.send_text(nth, Model::Instant, &session, RUN_COMMAND).await
    };
    counts.repeat((0.5, 0), call).await;
    Ok(())
}

/// A thousand jobs that are due in the same instant, every 10 s. They are inserted past the gateway, which
/// would take a minute for them.
pub async fn add_simultaneous_jobs(
    mut admin: PgConnection,
    target: Arc<Target>,
    counts: Rc<Counts>,
) -> anyhow::Result<()> {
    let mut clock = interval(JOB_INTERVAL);
    loop {
        clock.tick().await;
        let due = Timestamp::from_second(Timestamp::now().as_second() + 3)?;
        insert_jobs(&mut admin, &[(target.tenant, target.agent)], &vec![due; JOBS_AT_ONCE]).await?;
        for _ in 0..JOBS_AT_ONCE {
            counts.add(true);
        }
    }
}

/// Five WebSocket connections in each second that want all events of the tenant and read none; up to
/// 200 stay open.
pub async fn leave_websockets_unread(
    target: Arc<Target>,
    counts: Rc<Counts>,
) -> anyhow::Result<()> {
    let call = async |nth: usize| Socket::open(target.http, &target.key, nth, Wants::All).await;
    counts.repeat((5.0, 200), call).await;
    Ok(())
}

/// Tells the fake model what to answer to messages with this text.
async fn add_rule(target: &Target, when: &str, replies: serde_json::Value) -> anyhow::Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let rule = json!({ "when": when, "replies": replies });
    let status = http.post(&target.script_url).json(&rule).send().await?.status();
    ensure!(status.is_success(), "the fake model answered {status}");
    Ok(())
}
