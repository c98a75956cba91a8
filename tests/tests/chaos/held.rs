//! State that a runner holds: a conversation with a background command and an MCP server returns to
//! its runner, and is told what was lost when the runner is killed or stopped.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use holdfast_proto::gateway::v1 as pb;
use holdfast_proto::gateway::v1::mcp_servers_client::McpServersClient;
use holdfast_testkit::{Backends, Reply, Request};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::{GrpcClient, REPLY_TIMEOUT};
use holdfast_tests::turnstile;
use serde_json::{Value, json};

use crate::RUNNER;

/// A server that counts its calls in memory.
const COUNTER: &str = r#"
import json, sys
def answer(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
calls = 0
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if method == "initialize":
        answer(asked["id"], {"protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "counter", "version": "1"}})
    elif method == "tools/list":
        answer(asked["id"], {"tools": [{"name": "count", "description": "Count.",
            "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]})
    elif method == "tools/call":
        calls += 1
        answer(asked["id"], {"content": [{"type": "text", "text": "call %s of this" % calls}]})
"#;

/// Starts what it is asked to, counts, and answers with the results of its calls, after a note of a
/// loss that it is shown for the first time.
fn model(request: &Request) -> Reply {
    // The end of a command, which is told to each conversation that has one.
    if request.last_user_text().starts_with("[event process]") {
        return Reply::text("noted");
    }
    let results = request.tool_results();
    if let Some((_, result)) = results.last() {
        let is_answer = |message: &Value| {
            message["role"] == "assistant" && message["tool_calls"].as_array().is_none()
        };
        let newest = request.messages().iter().rposition(is_answer);
        let newest = &request.messages()[newest.unwrap_or_default()..];
        let is_told = newest.iter().any(|message| message.to_string().contains("has lost"));
        return Reply::text(format!("{}{result}", if is_told { "lost; " } else { "" }));
    }
    match request.last_user_text().contains("start") {
        true => {
            let input = json!({ "command": "sleep 283.5", "background": true });
            Reply::call("a", "exec", input.to_string())
        }
        false => Reply::call("b", "mcp_counter_count", "{}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_state_returns_to_its_runner_and_is_told_when_that_is_killed_or_stopped()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    // A runner that stands still for a lease loses what it holds.
    let lease = Duration::from_secs(12);
    let plan = MeshConfig { runners: 2, bridges: 0, lease, ..MeshConfig::small(RUNNER) };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    mesh.fakes.model.answer(model);
    let [one, other] = &mesh.runners[..] else { anyhow::bail!("not two runners") };
    let scratch = tempfile::tempdir()?;
    let dir = scratch.path().display().to_string();
    let variables = [
        ("HOLDFAST_RUNNER__SANDBOX__BACKEND", "bubblewrap"),
        ("HOLDFAST_RUNNER__SCRATCH__DIR", dir.as_str()),
    ];
    one.start_with(&variables).await?;
    mesh.gateways[0].start().await?;
    one.ready(REPLY_TIMEOUT).await?;
    mesh.gateways[0].ready(REPLY_TIMEOUT).await?;
    let program = GrpcClient::of(&mesh, 0)?;
    let server = pb::McpServer {
        name: "counter".to_owned(),
        transport: "stdio".to_owned(),
        command: "python3".to_owned(),
        args: vec!["-c".to_owned(), COUNTER.to_owned()],
        enabled: true,
        // What commands print is text from outside, after which other tools of servers are asked about.
        harmless: true,
        ..pb::McpServer::default()
    };
    let put = pb::PutMcpServerRequest { server: Some(server), ..Default::default() };
    McpServersClient::new(program.channel.clone()).put_mcp_server(program.request(put)?).await?;

    let began = program.ask("s", "start").await?;
    ensure!(began.starts_with("running in the background as prc_"), "{began}");
    let count = async |text: &str| program.ask("s", text).await;
    let first = count("count").await?;
    ensure!(first.contains("call 1 of this"), "{first}");
    other.start_with(&variables).await?;
    other.ready(REPLY_TIMEOUT).await?;
    for number in 2..7 {
        // Others, which any runner answers.
        program.ask(&format!("other {number}"), "start").await?;
        let answer = count("count").await?;
        ensure!(answer.contains(&format!("call {number} of this")), "{answer}");
        ensure!(!answer.contains("lost"), "{answer}");
    }

    one.kill().await?;
    let killed = Instant::now();
    let answer = count("count").await.context("after the kill")?;
    ensure!(answer.starts_with("lost; ") && answer.contains("call 1 of this"), "{answer}");
    // The runner's record expires after a lease; then there is a turn to run.
    let limit = plan.lease + Duration::from_secs(25);
    ensure!(killed.elapsed() < limit, "{:?}", killed.elapsed());
    let answer = count("count").await?;
    ensure!(answer.contains("call 2 of this") && !answer.contains("lost"), "{answer}");

    one.start_with(&variables).await?;
    one.ready(REPLY_TIMEOUT).await?;
    other.stop(REPLY_TIMEOUT).await?;
    let answer = count("count").await.context("after the stop")?;
    ensure!(answer.starts_with("lost; ") && answer.contains("call 1 of this"), "{answer}");
    let reasons = "select string_agg(distinct reason, ' ' order by reason) from session.held_state
                   where lost_at is not null and kind = 'command'";
    // Its own command died with its runner, those of the other conversations were stopped.
    ensure!(mesh.text(reasons).await? == "died stopped", "{}", mesh.text(reasons).await?);
    Ok(())
}
