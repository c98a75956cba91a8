//! A conversation returns to the runner that holds its state, and is told when that was lost.

use std::time::{Duration, Instant};

use agent_runner::Config;
use holdfast_directory::NewMcpServer;
use holdfast_testkit::Reply;
use holdfast_types::SessionId;
use serde_json::json;

use crate::{
    idling::get,
    mcp::{make, make_in, put, returned, run},
    world::{Running, World},
};

/// A server that counts its calls, in its memory and in a file of its folder.
const COUNTER: &str = r#"
import json, os, sys
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
            "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        calls += 1
        with open("count", "a") as file:
            file.write("x")
        kept = os.path.getsize("count")
        answer(asked["id"], {"content": [{"type": "text",
            "text": "calls %s kept %s" % (calls, kept)}]})
"#;

const COUNT: (&str, &str) = ("mcp_x_count", "{}");

fn config(world: &World) -> Config {
    let mut config = crate::mcp::config(world);
    config.runner.sandbox.backend = holdfast_sandbox::BackendChoice::Bubblewrap;
    config.runner.sweep = Duration::from_millis(100);
    // Longer than a test waits for an answer, so that a turn that waits for its holder fails.
    config.runner.holder_wait = Duration::from_secs(120);
    // The scripted model answers turns only.
    config.runner.summaries = 0;
    config
}

async fn runner(world: &World) -> anyhow::Result<Running> {
    world.runner_with(config(world), |app| app).await
}

/// A world with a server that is a process.
async fn world(keep: bool) -> anyhow::Result<World> {
    let world = World::start().await?;
    put(&world, with_keep(run("python3", &["-c", COUNTER]), keep)).await?;
    Ok(world)
}

pub fn with_keep(server: NewMcpServer, keep_files: bool) -> NewMcpServer {
    let mut server = server;
    if let holdfast_directory::McpTransport::Stdio { keep, .. } = &mut server.transport {
        *keep = keep_files;
    }
    server
}

/// Starts a background command and the server, and returns the session and the command's id.
async fn begin(world: &World) -> anyhow::Result<(SessionId, String)> {
    let exec = json!({ "command": "sleep 271.5", "background": true }).to_string();
    let sent = make_in(world, "s", &[("exec", &exec), COUNT]).await?;
    let came = returned(world, &sent).await?;
    anyhow::ensure!(came[1].contains("calls 1 kept 1"), "{came:?}");
    let from = came[0].find("prc_").ok_or_else(|| anyhow::anyhow!("no process: {came:?}"))?;
    Ok((sent.session, came[0][from..].chars().take(36).collect()))
}

/// What the model was shown last.
fn shown(world: &World) -> String {
    world.model.requests().last().map(|request| request.body.to_string()).unwrap_or_default()
}

async fn epoch(world: &World, session: SessionId) -> anyhow::Result<i64> {
    let session = session.as_uuid();
    let sql = format!("select epoch from session.session_lease where session_id = '{session}'");
    world.number(&sql).await
}

#[tokio::test]
async fn a_conversation_returns_to_the_runner_that_holds_its_state() -> anyhow::Result<()> {
    let world = world(false).await?;
    let _first = runner(&world).await?;
    let (session, id) = begin(&world).await?;
    let held = "select kind || ' ' || name || ' ' || title from session.held_state order by kind";
    assert_eq!(
        world.texts(held).await?,
        [format!("command {id} sleep 271.5"), "mcp x ".to_owned()]
    );
    let before = epoch(&world, session).await?;
    make(&world, "s", &[COUNT]).await?;
    let each = epoch(&world, session).await? - before;
    let others = [runner(&world).await?, runner(&world).await?];
    for other in &others {
        let is_ready = async || {
            get(other.address, "/readyz").await.is_ok_and(|said| said.starts_with("HTTP/1.0 200"))
        };
        world.until("it is ready", is_ready).await?;
    }

    for turn in 3..8 {
        let came = make(&world, "s", &[COUNT]).await?;
        assert!(came[0].contains(&format!("calls {turn} ")), "turn {turn}: {came:?}");
    }

    // Each turn was claimed once: none was handed over.
    assert_eq!(epoch(&world, session).await? - before, 6 * each);
    assert!(!shown(&world).contains("has lost"), "nothing was lost");
    let status = json!({ "action": "kill", "id": id }).to_string();
    make(&world, "s", &[("process", &status)]).await?;
    assert_eq!(world.texts(held).await?, ["mcp x "], "a command that ended is not held");
    Ok(())
}

#[tokio::test]
async fn another_conversation_of_the_agent_goes_where_its_server_runs() -> anyhow::Result<()> {
    let world = world(false).await?;
    let _first = runner(&world).await?;
    begin(&world).await?;
    let _second = runner(&world).await?;

    for turn in 2..8 {
        let came = make(&world, &format!("other {turn}"), &[COUNT]).await?;
        assert!(came[0].contains(&format!("calls {turn} ")), "turn {turn}: {came:?}");
    }

    Ok(())
}

#[tokio::test]
async fn the_next_turn_is_told_what_died_with_its_runner_and_why() -> anyhow::Result<()> {
    let world = world(true).await?;
    let mut config = config(&world);
    config.runner.lease = Duration::from_secs(3);
    let first = world.runner_with(config.clone(), |app| app).await?;
    let (_, id) = begin(&world).await?;
    let second = world.runner_with(config, |app| app).await?;

    first.kill();
    let status = json!({ "action": "status", "id": id }).to_string();
    let came = make(&world, "s", &[("process", &status), COUNT]).await?;

    let told = format!(
        "has lost the background command `sleep 271.5` ({id}); the process of the MCP server `x`: \
         the process that held it ended, or answers no more"
    );
    assert!(shown(&world).contains(&told), "{}", shown(&world));
    assert!(came[0].starts_with("lost: the background command `sleep 271.5`"), "{came:?}");
    assert!(came[1].contains("calls 1 kept 2"), "the folder is kept, the process is new: {came:?}");
    let kept = world.file("mcp/x/count").await?;
    assert_eq!(kept.as_deref(), Some("xx"));
    // It is told once.
    make(&world, "s", &[COUNT]).await?;
    assert_eq!(shown(&world).matches("has lost").count(), 1);
    second.stop().await
}

#[tokio::test]
async fn the_next_turn_is_told_what_ended_when_its_runner_was_stopped() -> anyhow::Result<()> {
    let world = world(false).await?;
    let mut config = config(&world);
    // The record of the runner says that it stopped, long before it would expire: that is later
    // than the test waits for an answer.
    config.runner.lease = Duration::from_secs(120);
    let first = world.runner_with(config.clone(), |app| app).await?;
    begin(&world).await?;
    let _second = world.runner_with(config, |app| app).await?;
    world.model.answer(|request| match request.body.to_string().contains("has lost") {
        true => Reply::text("told"),
        false => Reply::text("not told"),
    });

    first.stop().await?;
    let answer = world.ask("s", "hello").await?;

    assert_eq!(answer, "told");
    let stopped = "the process that held it was stopped, as for an upgrade";
    let asked = world.model.requests().iter().any(|asked| asked.body.to_string().contains(stopped));
    assert!(asked, "the reason is told");
    Ok(())
}

#[tokio::test]
async fn a_conversation_leaves_a_runner_that_is_busy_for_too_long() -> anyhow::Result<()> {
    let world = world(false).await?;
    let mut config = config(&world);
    config.runner.slots = 1;
    config.runner.holder_wait = Duration::from_millis(1_500);
    let _first = world.runner_with(config.clone(), |app| app).await?;
    let (_, id) = begin(&world).await?;
    world.model.queue([Reply::hang(Duration::from_secs(120))]);
    world.say("other", "wait").await?;
    world
        .until("it waits", async || {
            world.model.requests().iter().any(|asked| asked.last_user_text().contains("wait"))
        })
        .await?;
    let _second = world.runner_with(config, |app| app).await?;

    let began = Instant::now();
    let status = json!({ "action": "status", "id": id }).to_string();
    let came = make(&world, "s", &[("process", &status), COUNT]).await?;

    assert!(began.elapsed() >= Duration::from_millis(1_500), "{:?}", began.elapsed());
    // The runner lives, so its command is reached; the server is not.
    assert!(came[0].starts_with("running"), "{came:?}");
    assert!(came[1].contains("calls 1 "), "{came:?}");
    let told = "has lost the process of the MCP server `x`: the process that holds it was busy";
    assert!(shown(&world).contains(told), "{}", shown(&world));
    Ok(())
}
