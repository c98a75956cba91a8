//! MCP tools: found on demand, subject to the policy like other tools, and reported when they are
//! unavailable.

mod needs_packages;
pub mod server;

use std::time::Duration;

use agent_runner::Config;
use anyhow::Context as _;
use holdfast_bus::McpProbe;
use holdfast_directory::{Actor, McpTransport, NewMcpServer};
use holdfast_session::{Acceptance, Approval, ApprovalFilter, NewMessage};
use holdfast_testkit::{Reply, model::ToolCall};
use holdfast_types::{ApprovalDecision, ApprovalState, Entry};
use serde_json::json;
use tokio::time::Instant;

use self::server::Server;
use crate::{
    approvals::{say_of, waiting},
    shell::is_running,
    world::{LONG, World, place},
};

/// A server of the agent's tenant, for all its agents.
pub fn at(url: &str) -> NewMcpServer {
    NewMcpServer {
        name: "x".to_owned(),
        transport: McpTransport::Http { url: url.to_owned() },
        secrets: Some([("x-key".to_owned(), "s3cret".into())].into()),
        agents: Vec::new(),
        enabled: true,
        harmless: true,
    }
}

/// A server that is a process.
pub fn run(command: &str, args: &[&str]) -> NewMcpServer {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    let transport =
        McpTransport::Stdio { command: command.to_owned(), args, network: false, keep: false };
    NewMcpServer { transport, secrets: None, ..at("") }
}

pub async fn put(world: &World, new: NewMcpServer) -> anyhow::Result<()> {
    world.directory.mcp_servers().put(world.tenant, Actor::Operator, new).await?;
    Ok(())
}

/// The settings of a runner that may reach servers on this machine.
pub fn config(world: &World) -> Config {
    let mut config = world.config();
    config.runner.mcp.allow = vec!["127.0.0.1".to_owned()];
    config.runner.mcp.connect_timeout = Duration::from_secs(20);
    config.runner.mcp.retry = Duration::from_millis(50);
    config
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

/// Has the model make these calls one after the other, and returns what each came to.
pub async fn make(
    world: &World,
    session: &str,
    calls: &[(&str, &str)],
) -> anyhow::Result<Vec<String>> {
    let sent = make_in(world, session, calls).await?;
    returned(world, &sent).await
}

pub async fn make_in(
    world: &World,
    session: &str,
    calls: &[(&str, &str)],
) -> anyhow::Result<Acceptance> {
    let replies = calls.iter().enumerate().map(|(at, (name, arguments))| {
        let ToolCall { id, name, arguments } = call(&format!("c{at}"), name, arguments);
        Reply::call(id, name, arguments)
    });
    world.model.queue(replies.chain([Reply::text("done")]));
    let sent = world.say(session, "go").await?;
    let text = tokio::select! {
        text = world.text(&sent) => text?,
        failed = allow_server_calls(world) => return Err(failed),
    };
    anyhow::ensure!(text == "done", "the model was not asked to the end");
    Ok(sent)
}

/// Allows each call of a server's tool that is asked about: an answer of a server marks its
/// conversation, and tools that act are asked about then.
async fn allow_server_calls(world: &World) -> anyhow::Error {
    let pending = ApprovalFilter {
        state: Some(ApprovalState::Pending),
        session: None,
        person: None,
        limit: 50,
        after: None,
    };
    loop {
        let asked = match world.sessions.approvals().list(world.tenant, pending).await {
            Ok(asked) => asked,
            Err(error) => return error.into(),
        };
        for approval in asked.iter().filter(|approval| approval.tool.starts_with("mcp_")) {
            if let Err(error) = say_of(world, approval, ApprovalDecision::Always).await {
                return error;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Has the model make this call until what it comes to is as wanted.
async fn make_until(
    world: &World,
    call: (&str, &str),
    is_so: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        // Long conversations are summarised, by a model.
        let session = uuid::Uuid::now_v7().to_string();
        let came = make(world, &session, &[call]).await?;
        if is_so(&came[0]) {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < LONG, "not within {LONG:?}: {}", came[0]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Tool results of the session's newest turn.
pub async fn returned(world: &World, sent: &Acceptance) -> anyhow::Result<Vec<String>> {
    let journal = world.journal(sent.session).await?;
    let newest = journal.iter().rposition(|entry| matches!(entry, Entry::Heard { .. }));
    let newest = journal.into_iter().skip(newest.unwrap_or_default());
    Ok(newest
        .filter_map(|entry| match entry {
            Entry::Returned { output, .. } => Some(output),
            _ => None,
        })
        .collect())
}

#[tokio::test]
async fn a_server_s_tool_is_found_described_and_called_and_its_answer_is_marked()
-> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let _runner = world.runner_with(config(&world), |app| app).await?;

    let came = make(
        &world,
        "s",
        &[
            ("tool_search", r#"{"query":"repeat loudly"}"#),
            ("tool_describe", r#"{"name":"mcp_x_echo"}"#),
            ("mcp_x_echo", r#"{"text":"hello"}"#),
        ],
    )
    .await?;

    assert_eq!(came[0], "- mcp_x_echo: [MCP server x] Repeat loudly.\n");
    assert!(came[1].contains(r#""text":{"type":"string"}"#), "{}", came[1]);
    assert!(came[2].contains("comes from the MCP server `x`"), "{}", came[2]);
    assert!(came[2].contains("\nhello! (key s3cret)\n"), "{}", came[2]);
    // A tool is in the request only after it was looked up.
    let requests = world.model.requests();
    let shown = requests.iter().map(|request| request.tool_names().contains(&"mcp_x_echo"));
    assert_eq!(shown.collect::<Vec<_>>(), [false, false, true, true]);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn a_server_s_text_for_the_user_is_sent_and_its_file_is_kept() -> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let _runner = world.runner_with(config(&world), |app| app).await?;
    world.model.queue([Reply::call("a", "mcp_x_report", "{}"), Reply::text("done")]);

    let message = NewMessage { target: Some(place("7")), ..world.message("s", "a report, please") };
    let sent = world.send(message).await?;
    world.text(&sent).await?;

    let told = world.texts("select body from session.deliveries order by out_seq").await?;
    assert_eq!(told, ["[MCP server x] The report is ready.", "done"]);
    let returned = returned(&world, &sent).await?.remove(0);
    assert!(!returned.contains("is ready"), "{returned}");
    let (_, path) = returned.split_once("[kept as `").expect("a path");
    let (path, _) = path.split_once('`').expect("a path");
    assert!(path.ends_with(".odt"), "{path}");
    let path = format!("people/api=s/{path}").parse()?;
    let kept = world.workspaces.read(world.tenant, world.agent.id, &path, None).await?;
    assert_eq!(kept.map(|file| file.content).as_deref(), Some(&b"all is well"[..]));
    Ok(())
}

#[tokio::test]
async fn a_turn_that_asks_for_no_such_tool_reaches_no_server() -> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let _runner = world.runner_with(config(&world), |app| app).await?;

    assert_eq!(world.ask("s", "hello").await?, "echo: hello");
    make(&world, "s", &[("session_status", "{}")]).await?;
    assert_eq!(server.requests(), 0);

    make(&world, "s", &[("mcp_x_echo", r#"{"text":"a"}"#)]).await?;
    assert!(server.requests() > 0);
    Ok(())
}

#[tokio::test]
async fn what_a_tool_says_that_it_does_decides_how_it_is_recorded() -> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let _runner = world.runner_with(config(&world), |app| app).await?;

    let sent =
        make_in(&world, "s", &[("mcp_x_echo", r#"{"text":"a"}"#), ("mcp_x_buy", "{}")]).await?;

    let journal = world.journal(sent.session).await?;
    let begun: Vec<&str> = journal
        .iter()
        .filter_map(|entry| match entry {
            Entry::Called { call, .. } => Some(call.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(begun, ["c1"], "only what acts is recorded as begun");
    assert!(returned(&world, &sent).await?[1].contains("bought"));
    Ok(())
}

/// A turn that calls a tool of the server after its answer was read; `None` if nobody is asked.
async fn call_after_answer(
    world: &World,
    session: &str,
    tool: &str,
) -> anyhow::Result<Option<Approval>> {
    let echo = Reply::call("e", "mcp_x_echo", r#"{"text":"read"}"#);
    world.model.queue([echo, Reply::call("x", tool, r#"{"text":"X"}"#), Reply::text("done")]);
    let sent = world.say(session, "go").await?;
    tokio::select! {
        text = world.text(&sent) => text.map(|_| None),
        asked = waiting(world, 1) => Ok(asked?.into_iter().next()),
    }
}

#[tokio::test]
async fn after_its_answer_a_tool_is_asked_about_once_unless_it_is_declared_harmless()
-> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let _runner = world.runner_with(config(&world), |app| app).await?;

    let harmless = call_after_answer(&world, "a", "mcp_x_echo").await?;
    let acts = call_after_answer(&world, "b", "mcp_x_buy").await?;
    let acts = acts.context("nobody is asked about a tool that acts")?;
    say_of(&world, &acts, ApprovalDecision::Always).await?;
    world.until("it is made", async || server_calls(&world).await.is_ok_and(|n| n == 1)).await?;
    let again = call_after_answer(&world, "c", "mcp_x_buy").await?;

    assert!(harmless.is_none(), "{harmless:?}");
    assert!(acts.subject.contains("\ntext: X"), "{}", acts.subject);
    let pattern = "calls of mcp_x_buy of the MCP server x";
    assert_eq!(acts.pattern.as_deref(), Some(pattern));
    assert!(again.is_none(), "{again:?}");
    Ok(())
}

#[tokio::test]
async fn a_server_s_word_that_a_tool_only_reads_is_not_enough() -> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, NewMcpServer { harmless: false, ..at(&server.url()) }).await?;
    let _runner = world.runner_with(config(&world), |app| app).await?;

    let asked = call_after_answer(&world, "a", "mcp_x_echo").await?;

    let asked = asked.context("nobody is asked")?;
    assert_eq!(asked.tool, "mcp_x_echo");
    say_of(&world, &asked, ApprovalDecision::Deny).await
}

/// Number of results of the tool that acts.
async fn server_calls(world: &World) -> anyhow::Result<i64> {
    world.number("select count(*) from session.entries where body::text like '%bought%'").await
}

#[tokio::test]
async fn a_server_s_tools_obey_the_policy_when_they_are_offered_and_when_they_are_called()
-> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let _runner = world.runner_with(config(&world), |app| app).await?;
    let tools = async |tools: &[&str]| {
        let tools = tools.iter().map(|&tool| tool.to_owned()).collect();
        world.change_agent(|agent| agent.settings.tools = Some(tools)).await?;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        anyhow::Ok(())
    };
    let wanted = &[("mcp_x_echo", r#"{"text":"a"}"#), ("mcp_x_buy", "{}")][..];

    tools(&["session_status"]).await?;
    let none = make(&world, "a", wanted).await?;
    tools(&["group:mcp:x"]).await?;
    let all = make(&world, "b", wanted).await?;
    tools(&["mcp_x_buy"]).await?;
    let one = make(&world, "c", wanted).await?;

    let refused = "this tool is not one of yours; use those that you were given";
    assert_eq!(none, [refused, refused]);
    assert!(all[0].contains("a! (key") && all[1].contains("bought"), "{all:?}");
    assert_eq!(one[0], refused);
    assert!(one[1].contains("bought"), "{one:?}");
    // Tools that are named for an agent are shown from the start.
    let last = world.model.requests().last().unwrap().clone();
    assert_eq!(last.tool_names(), ["mcp_x_buy"]);
    Ok(())
}

#[tokio::test]
async fn an_agent_that_may_not_use_a_server_does_not_see_it() -> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    let other = holdfast_directory::NewAgent {
        name: holdfast_types::AgentName::new("other"),
        ..holdfast_directory::NewAgent::default()
    };
    world.directory.agents().create(world.tenant, Actor::Operator, other).await?;
    put(&world, NewMcpServer { agents: vec!["other".to_owned()], ..at(&server.url()) }).await?;
    let _runner = world.runner_with(config(&world), |app| app).await?;

    let came = make(&world, "s", &[("mcp_x_echo", "{}"), ("tool_search", r#"{"query":"loudly"}"#)]);
    let came = came.await?;

    assert!(came[0].starts_with("there is no tool `mcp_x_echo`"), "{}", came[0]);
    assert!(!came[1].contains("mcp_x"), "{}", came[1]);
    assert_eq!(server.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_down_is_told_of_and_what_it_offered_stays() -> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let mut config = config(&world);
    config.runner.mcp.refresh = Duration::from_millis(1);
    let _runner = world.runner_with(config, |app| app).await?;
    make(&world, "s", &[("mcp_x_echo", r#"{"text":"a"}"#)]).await?;

    server.stop().await;
    let wanted = &[("mcp_x_echo", r#"{"text":"a"}"#), ("tool_search", r#"{"query":"loudly"}"#)];
    let down = make(&world, "s", wanted).await?;
    server.start_again().await?;
    let back =
        make_until(&world, ("mcp_x_echo", r#"{"text":"b"}"#), |came| came.contains("b! (key"));
    back.await?;

    assert!(down[0].contains("the MCP server `x`"), "{}", down[0]);
    assert!(down[0].contains("cannot be reached") || down[0].contains("ended"), "{}", down[0]);
    assert!(down[1].contains("mcp_x_echo") && down[1].contains("Not to be had now"), "{}", down[1]);
    Ok(())
}

#[tokio::test]
async fn a_server_that_never_answered_is_told_of_by_its_name() -> anyhow::Result<()> {
    let world = World::start().await?;
    put(&world, at("http://127.0.0.1:9/mcp")).await?;
    let _runner = world.runner_with(config(&world), |app| app).await?;

    let came = make(&world, "s", &[("mcp_x_echo", "{}"), ("mcp_y_echo", "{}")]).await?;

    assert!(came[0].starts_with("the MCP server `x`: it cannot be reached"), "{}", came[0]);
    assert!(came[1].starts_with("there is no tool `mcp_y_echo`"), "{}", came[1]);
    Ok(())
}

#[tokio::test]
async fn a_server_on_a_private_address_is_not_reached_unless_the_operator_lists_it()
-> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let mut config = config(&world);
    config.runner.mcp.allow.clear();
    let _runner = world.runner_with(config, |app| app).await?;

    let came = make(&world, "s", &[("mcp_x_echo", "{}")]).await?;

    assert!(came[0].contains("not on the public internet"), "{}", came[0]);
    assert_eq!(server.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn a_slow_call_is_given_up_in_time_and_cancelled() -> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let mut config = config(&world);
    config.runner.tool_timeout = Duration::from_secs(10);
    let _runner = world.runner_with(config, |app| app).await?;
    make(&world, "s", &[("tool_search", r#"{"query":"loudly"}"#)]).await?;

    let came = make(&world, "s", &[("mcp_x_hang", "{}")]).await?;

    // The tool may have acted: its outcome is unknown.
    assert_eq!(came[0], holdfast_agent::UNKNOWN_OUTCOME);
    world.until("the server sees that nobody waits", async || server.hung_up() == 1).await?;
    Ok(())
}

#[tokio::test]
async fn what_a_server_offers_is_asked_again_after_a_while_and_a_changed_record_at_once()
-> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let mut config = config(&world);
    config.runner.mcp.refresh = Duration::from_millis(300);
    let _runner = world.runner_with(config, |app| app).await?;
    let search = ("tool_search", r#"{"query":"loudly newest"}"#);

    let before = make(&world, "s", &[search]).await?;
    server.offer("newest");
    make_until(&world, search, |came| came.contains("mcp_x_newest")).await?;
    put(&world, NewMcpServer { enabled: false, ..at(&server.url()) }).await?;
    make_until(&world, search, |came| !came.contains("mcp_x_")).await?;

    assert!(!before[0].contains("mcp_x_newest"), "{}", before[0]);
    Ok(())
}

#[tokio::test]
async fn a_probe_says_what_agents_would_see_or_why_they_see_nothing() -> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    let countries = vec!["x".repeat(98); 20 * 1024 / 100];
    server.offer_with_schema("large", json!({ "properties": { "c": { "enum": countries } } }));
    server.offer("echo");
    put(&world, at(&server.url())).await?;
    let missing = NewMcpServer { name: "gone".to_owned(), ..run("/no/such/server", &[]) };
    put(&world, missing).await?;
    let mut config = config(&world);
    config.runner.sandbox.backend = holdfast_sandbox::BackendChoice::Auto;
    let _runner = world.runner_with(config, |app| app).await?;
    let probe = async |server: &str| {
        let probe = McpProbe { tenant: world.tenant, server: server.to_owned() };
        let begun = Instant::now();
        loop {
            // The runner may not listen yet.
            match world.bus.probe_mcp("", &probe, LONG).await {
                Ok(probed) => return anyhow::Ok(probed),
                Err(error) if begun.elapsed() > LONG => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };

    let found = probe("x").await?;
    let gone = probe("gone").await?;
    let unknown = probe("unknown").await?;

    let names: Vec<&str> = found.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["mcp_x_buy", "mcp_x_echo", "mcp_x_hang", "mcp_x_report"]);
    let omitted: Vec<(&str, &str)> =
        found.omitted.iter().map(|tool| (tool.name.as_str(), tool.reason.as_str())).collect();
    let [("large", large), ("echo", duplicate)] = omitted[..] else { panic!("{omitted:?}") };
    assert!(large.contains("20") && large.contains("16384 are the most"), "{large}");
    assert_eq!(duplicate, "the server lists another tool of this name");
    let why = gone.error.unwrap();
    assert!(why.contains("exit code 127") && why.contains("No such file"), "{why}");
    assert_eq!(unknown.error.as_deref(), Some("it is not enabled, or was deleted"));
    Ok(())
}

#[tokio::test]
async fn connections_of_one_tenant_leave_room_for_those_of_another() -> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    put(&world, at(&server.url())).await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    world.directory.mcp_servers().put(other.id, Actor::Operator, at(&server.url())).await?;
    let mut config = config(&world);
    (config.runner.mcp.connections, config.runner.mcp.connections_per_tenant) = (2, 1);
    let _runner = world.runner_with(config, |app| app).await?;
    make(&world, "s", &[("mcp_x_echo", r#"{"text":"hello"}"#)]).await?;
    put(&world, NewMcpServer { name: "y".to_owned(), ..at(&server.url()) }).await?;
    let probe = async |tenant, server: &str| {
        let probe = McpProbe { tenant, server: server.to_owned() };
        world.bus.probe_mcp("", &probe, LONG).await
    };

    let ours = probe(world.tenant, "y").await?;
    let theirs = probe(other.id, "x").await?;

    let why = ours.error.unwrap_or_default();
    assert!(why.contains("1 connections to servers are open for this tenant"), "{why}");
    assert_eq!((theirs.tools.len(), theirs.error), (4, None));
    Ok(())
}

/// A server of a few lines. Its process shows what it is given, and makes a file in its folder,
/// named by its argument.
const SMALL: &str = r#"
import json, os, sys
def answer(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
def look():
    open(sys.argv[1], "w").close()
    try:
        import socket
        socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 1)
        network = "network"
    except OSError:
        network = "no network"
    files = "outside" if os.path.exists(os.environ["OUTSIDE"]) else "inside"
    return "%s, %s, %s, %s" % (network, files, os.environ.get("HOLDFAST_DATABASE__URL"), os.getpid())
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if method == "initialize":
        answer(asked["id"], {"protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "small", "version": "1"}})
    elif method == "tools/list":
        answer(asked["id"], {"tools": [{"name": "look", "description": "Look around.",
            "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]})
    elif method == "tools/call":
        answer(asked["id"], {"content": [{"type": "text", "text": look()}]})
"#;

#[tokio::test]
async fn a_server_that_is_a_process_runs_in_the_sandbox_once_and_goes_when_nobody_uses_it()
-> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    let outside = std::env::current_dir()?.display().to_string();
    let port = server.port().to_string();
    let env = [("PORT".to_owned(), port.into()), ("OUTSIDE".to_owned(), outside.into())];
    // Tells its process and its folder from those of other tests.
    let mark = uuid::Uuid::now_v7().to_string();
    let small = run("python3", &["-c", SMALL, &mark]);
    put(&world, NewMcpServer { secrets: Some(env.into()), ..small }).await?;
    let mut config = config(&world);
    config.runner.sandbox.backend = holdfast_sandbox::BackendChoice::Bubblewrap;
    config.runner.sandbox.hosted = true;
    config.runner.mcp.idle = Duration::from_secs(2);
    let runner = world.runner_with(config, |app| app).await?;
    let has_folder = || {
        let mut entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
        entries.any(|entry| entry.path().join(&mark).exists())
    };

    let looked = make(&world, "s", &[("mcp_x_look", "{}"), ("mcp_x_look", "{}")]).await?;
    world.until("the process is gone", async || !is_running(&mark) && !has_folder()).await?;
    let again = make(&world, "s", &[("mcp_x_look", "{}")]).await?;
    runner.stop().await?;

    assert!(looked[0].contains("\nno network, inside, None, "), "{}", looked[0]);
    let said = |text: &str| text.lines().find(|line| line.starts_with("no net")).map(str::to_owned);
    assert_eq!(said(&looked[0]), said(&looked[1]), "it is the same process");
    assert!(again[0].contains("no network, inside"), "{}", again[0]);
    Ok(())
}

#[tokio::test]
async fn where_tenants_are_hosted_no_process_runs_without_a_sandbox() -> anyhow::Result<()> {
    let world = World::start().await?;
    put(&world, run("python3", &["-c", SMALL])).await?;
    let mut config = config(&world);
    config.runner.sandbox.backend = holdfast_sandbox::BackendChoice::Bubblewrap;
    config.runner.sandbox.hosted = true;
    config.runner.sandbox.bwrap = Some("/no/such/bwrap".into());
    let _runner = world.runner_with(config, |app| app).await?;

    let came = make(&world, "s", &[("mcp_x_look", "{}")]).await?;

    assert_eq!(came[0], "the MCP server `x`: there is no `bwrap`: install the package bubblewrap");
    Ok(())
}
