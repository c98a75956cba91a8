//! A newcomer's first minute, with the built binary and real backends: up, a first answer, some
//! commands, down. Each test has its own directory, database, subject prefix and key prefix.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers too"
)]

mod changing;
mod channels;
mod console;
mod doctor;
mod documents;
mod export;
mod identities;
mod installation;
mod keys;
mod keys_stay;
mod logs;
mod moving;
mod openai;
mod people;
mod reference;
mod registry;
mod routing;
mod screen;
mod setup;
mod subagents;
mod templates;
mod terminal;
mod transfer;
mod tui;

use std::{
    process::{Child, Stdio},
    time::Duration,
};

use holdfast_testkit::{FakeModel, Reply};
use serde_json::{Value, json};

use crate::installation::{CommandOutput, Installation, eventually, is_alive, signal};

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_gets_a_first_answer_and_a_look_around() -> anyhow::Result<()> {
    let installation = Installation::new().await?;

    let up =
        installation.run(&["up", "--split", "--runners", "2", "--detach", "--port-base", "0"]).ok();
    let state = installation.state();
    for shown in [&state["gateway"]["http"], &state["gateway"]["grpc"], &state["key"]] {
        assert!(up.out.contains(shown.as_str().unwrap()), "{shown} is missing in\n{}", up.out);
    }
    assert_eq!(state["runners"].as_array().map(Vec::len), Some(2));

    let chat = installation.run(&["chat", "hello"]).ok();
    assert!(chat.out.contains("demonstration"), "{}", chat.out);
    assert!(chat.err.contains("[session_status]"), "{}", chat.err);

    let sessions = installation.json(&["sessions", "list"]);
    assert_eq!(sessions[0]["key"], "agent:main:main");
    let id = sessions[0]["id"].as_str().unwrap();
    installation.run(&["sessions", "update", id, "--tag", "tea", "--tag", "garden"]).ok();
    let tagged = installation.json(&["sessions", "list", "--tag", "garden"]);
    assert_eq!(tagged[0]["tags"], json!(["tea", "garden"]));
    assert_eq!(installation.json(&["sessions", "list", "--tag", "teapot"]), json!([]));
    let history = installation.run(&["sessions", "history", id]).ok();
    assert!(history.out.contains("hello"), "{}", history.out);
    let runs = installation.json(&["runs", "list"]);
    assert_eq!(runs[0]["outcome"], "completed");
    let run = installation.json(&["runs", "show", runs[0]["id"].as_str().unwrap()]);
    assert!(run["entries"].as_array().is_some_and(|entries| !entries.is_empty()), "{run}");
    let calls = installation.json(&["runs", "calls", runs[0]["id"].as_str().unwrap()]);
    assert_eq!(calls, installation.json(&["runs", "calls", "--session", id]));
    let calls = calls.as_array().unwrap();
    let status = calls.iter().find(|call| call["tool"] == "session_status").unwrap();
    assert_eq!(status["state"], "completed");
    assert_eq!(installation.json(&["status"])["tenant"], "dev");
    assert_eq!(installation.json(&["agents", "list"])[0]["name"], "main");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_service_comes_back_and_down_ends_everything() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    installation.run(&["up", "--split", "--detach", "--port-base", "0"]).ok();

    let again = installation.run(&["up"]).ok();
    assert!(again.err.contains("already running"), "{}", again.err);
    assert!(!again.err.contains("has no effect"), "{}", again.err);
    let other = installation.run(&["up", "--runners", "3"]).ok();
    assert!(other.err.contains("--runners has no effect"), "{}", other.err);

    let killed = installation.pid("agent-runner-1").unwrap();
    signal("KILL", killed);
    let reborn = eventually("a new runner", || {
        installation.pid("agent-runner-1").filter(|pid| *pid != killed)
    });
    assert!(installation.run(&["chat", "hello"]).ok().out.contains("demonstration"));

    let processes: Vec<u32> = ["gateway-1", "channel-bridge-1", "scheduler-1", "up"]
        .iter()
        .map(|name| installation.pid(name).unwrap())
        .chain([reborn])
        .collect();
    assert_eq!(installation.run(&["down"]).ok().out, "stopped\n");
    assert!(!processes.iter().any(|pid| is_alive(*pid)), "{processes:?}");
    assert_eq!(installation.pid("agent-runner-1"), None);
    assert_eq!(installation.run(&["down"]).ok().out, "nothing was running\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn services_whose_up_was_killed_do_not_stay_behind() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    installation.run(&["up", "--split", "--detach", "--port-base", "0"]).ok();
    let services: Vec<u32> = ["gateway-1", "agent-runner-1", "channel-bridge-1", "scheduler-1"]
        .iter()
        .map(|name| installation.pid(name).unwrap())
        .collect();

    signal("KILL", installation.pid("up").unwrap());

    eventually("the end of the services", || {
        (!services.iter().any(|pid| is_alive(*pid))).then_some(())
    });
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    assert!(installation.run(&["chat", "hello"]).ok().out.contains("demonstration"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_does_it_all_keeps_its_key_and_drains_on_a_signal() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    let mut first = foreground(&installation);
    let key = installation.state()["key"].clone();
    let said = talk(&installation, "hello\n\nand again\nquit\nnever said\n");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("demonstration"), "{}", said.out);
    for word in ["exit", "/exit", "/quit"] {
        let left = talk(&installation, &format!("{word}\nnever said\n"));
        assert_eq!((left.code, left.out.as_str()), (Some(0), ""), "{word}: {}", left.err);
    }

    signal("TERM", first.id());
    assert!(first.wait()?.success());
    assert!(!installation.dir.join("state.json").exists());

    let mut second = foreground(&installation);
    assert_eq!(installation.state()["key"], key);
    let sessions = installation.json(&["sessions", "list"]);
    assert_eq!(sessions[0]["turns"], 2, "{sessions}");
    signal("INT", second.id());
    assert!(second.wait()?.success());
    Ok(())
}

fn foreground(installation: &Installation) -> Child {
    let mut up = installation.command(&["up", "--port-base", "0"]);
    let up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("state.json", || installation.dir.join("state.json").exists().then_some(()));
    up
}

/// A conversation without a terminal.
fn talk(installation: &Installation, lines: &str) -> CommandOutput {
    pipe(installation, &["chat"], lines)
}

fn pipe(installation: &Installation, line: &[&str], lines: &str) -> CommandOutput {
    use std::io::Write as _;

    let mut chat = installation
        .command(line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    chat.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    CommandOutput::new(chat.wait_with_output().unwrap(), line)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_decided_by_piped_input_and_without_input_nothing_hangs()
-> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let write = r#"{"path": "role.md", "content": "Be a pirate.\nAlways."}"#;
    model.answer(move |request| match request.tool_results().as_slice() {
        [] => Reply::call("a", "write", write),
        [(_, result), ..] => Reply::text(format!("so: {result}")),
    });

    // Only the owner's conversation with an agent changes what defines it.
    for agent in ["one", "two", "three"] {
        installation.run(&["agents", "create", agent]).ok();
    }

    let allowed = pipe(&installation, &["chat", "go", "--agent", "one"], "y\n").ok();
    let denied = pipe(&installation, &["chat", "go", "--agent", "two"], "n\n").ok();
    let nobody = installation.run(&["chat", "go", "--agent", "three"]).exits_with(1);

    assert!(allowed.err.contains("    | Be a pirate.\n    | Always.\n"), "{}", allowed.err);
    assert!(!allowed.out.contains("denied"), "{}", allowed.out);
    assert!(denied.out.contains("a person denied this call"), "{}", denied.out);
    assert!(nobody.err.contains("`holdfast approvals allow "), "{}", nobody.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn up_brings_back_a_database_that_has_ended() -> anyhow::Result<()> {
    let mut installation = Installation::new().await?;
    installation.vars.retain(|(name, _)| !name.starts_with("HOLDFAST_DATABASE__"));
    let backends = installation.dir.join("backends");
    std::fs::create_dir_all(&backends)?;
    // The packages are read only, so those of the tests' backends serve here too.
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../.holdfast/test/pkg");
    if let Ok(packages) = std::fs::canonicalize(packages) {
        std::os::unix::fs::symlink(packages, backends.join("pkg"))?;
    }
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    let state: Value =
        serde_json::from_str(&std::fs::read_to_string(backends.join("state.json"))?)?;
    let postgres = u32::try_from(state["postgres"]["pid"].as_u64().unwrap())?;

    signal("INT", postgres);
    eventually("the end of Postgres", || (!is_alive(postgres)).then_some(()));
    let lost = installation.run(&["agents", "list"]);
    assert!(lost.err.contains("Postgres"), "{lost:?}");
    let again = installation.run(&["up"]).ok();

    assert!(again.err.contains("already running"), "{}", again.err);
    assert!(installation.run(&["chat", "hello"]).ok().out.contains("demonstration"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_says_so_and_exits_with_the_code_that_help_promises() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    let early = installation.run(&["chat", "hello"]).exits_with(4);
    assert!(early.err.contains("HOLDFAST_API_KEY"), "{}", early.err);
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();

    installation.run(&["chat", "hello", "--agent", "nobody"]).exits_with(3);
    installation.run(&["sessions", "show", "ses_00000000000000000000000000000001"]).exits_with(3);
    installation.run(&["chat", "hello", "--key", "hf_1_2"]).exits_with(4);
    installation.run(&["frobnicate"]).exits_with(2);
    let lost =
        installation.run(&["chat", "hello", "--gateway", "http://127.0.0.1:1", "--key", "hf_1_2"]);
    let lost = lost.exits_with(5);
    assert!(lost.err.contains("`make up`"), "{}", lost.err);
    let told =
        installation.run(&["chat", "x", "--key", "hf_1_2", "--output", "json"]).exits_with(4);
    let told: Value = serde_json::from_str(&told.err)?;
    assert_eq!(told["error"], "unauthenticated");

    let secret =
        installation.json(&["keys", "create", "reader", "--scope", "read"])["secret"].clone();
    let reader = secret.as_str().unwrap();
    installation.run(&["sessions", "list", "--key", reader]).ok();
    installation.run(&["chat", "hello", "--key", reader]).exits_with(4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn up_fails_at_once_where_the_database_cannot_be_migrated() -> anyhow::Result<()> {
    let mut installation = Installation::new().await?;
    installation.vars.retain(|(name, _)| *name != "HOLDFAST_DATABASE__ADMIN_URL");

    let refused = installation.run(&["up", "--detach", "--port-base", "0"]).exits_with(1);

    assert!(refused.err.contains("HOLDFAST_DATABASE__ADMIN_URL"), "{}", refused.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tools_explain_says_is_what_the_model_is_offered() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    model.answer(|_| Reply::text("done"));
    let installation = Installation::with_model(&model).await?;
    let policy = r#"{"deny": ["edit", "nonsense"],
        "by_provider": {"fake": {"deny": ["web_*"]}},
        "visibility": [{"tools": ["group:sessions"], "roles": ["owner"]}]}"#;
    installation.wait_for_tools();
    let put = installation.run(&["policy", "put", policy, "--base", "0"]).ok();
    assert!(put.err.contains("`nonsense` in `tools.deny` covers no tool"), "{}", put.err);
    let stale = installation.run(&["policy", "put", "{}", "--base", "0"]);
    assert!(stale.code != Some(0) && stale.err.contains("read it again"), "{stale:?}");
    assert_eq!(installation.json(&["policy", "get"])["version"], 1);
    let keys = installation.json(&["keys", "create", "app", "--scope", "chat"]);
    let app = keys["secret"].as_str().unwrap();
    // A runner caches an agent for a second.
    std::thread::sleep(Duration::from_millis(1_100));

    let mut offers = Vec::new();
    for (line, kind) in [
        (&["chat", "hello"][..], "main"),
        (&["chat", "hello", "--session", "guest", "--key", app], "api"),
    ] {
        installation.run(line).ok();
        let requests = model.requests();
        let mut offered: Vec<String> =
            requests.last().unwrap().tool_names().into_iter().map(str::to_owned).collect();
        offered.sort_unstable();
        let sessions = installation.json(&["sessions", "list", "--kind", kind]);
        let id = sessions[0]["id"].as_str().unwrap();
        let explained = installation.json(&["tools", "explain", "--session", id]);
        let tools = explained["tools"].as_array().unwrap();
        let usable: Vec<&str> = tools
            .iter()
            .filter(|tool| tool["decision"] != "deny")
            .filter_map(|tool| tool["tool"].as_str())
            .collect();
        assert_eq!(usable, offered, "{explained:#}");
        assert!(tools.len() > usable.len(), "{explained:#}");
        offers.push(offered);
    }

    assert!(offers[0].contains(&"sessions_list".to_owned()), "{offers:?}");
    assert!(!offers[1].contains(&"sessions_list".to_owned()), "{offers:?}");
    let told = installation.run(&["tools", "explain", "--kind", "group", "sessions_spawn"]).ok();
    assert!(told.out.starts_with("sessions_spawn: deny by layer 7 (chat)"), "{}", told.out);
    let told = installation.run(&["tools", "explain", "web_fetch"]).ok();
    assert!(told.out.starts_with("web_fetch: deny by layer 4 (global_provider)"), "{}", told.out);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_sets_values_of_memory_and_takes_an_agents_tools_away() -> anyhow::Result<()> {
    let (installation, model) = (Installation::new().await?, FakeModel::start().await?);
    model.answer(|_| Reply::text("done"));
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    let url = model.url();
    let provider = ["providers", "put", "fake", "--base-url", &url, "--api-key", "k"];
    installation.run(&[&provider[..], &["--model", "fake:one"]].concat()).ok();

    let of = ["--user", "api:anna"];
    let set = |value: &str, more: &[&str]| {
        let line = [&["memory", "set", "home/city", value][..], &of, more].concat();
        installation.run(&line).ok();
    };
    set(r#""Bergen""#, &[]);
    set(r#""Oslo""#, &["--importance", "0.5", "--tag", "place"]);
    let get = [&["memory", "get", "home/city"][..], &of].concat();
    let found = installation.json(&get);
    assert_eq!((found["value"].as_str(), found["importance"].as_f64()), (Some("Oslo"), Some(0.5)));
    assert_eq!(found["tags"][0], "place");
    let listed = installation.json(&["memory", "list", "--key-prefix", "home/"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    set("null", &[]);
    installation.run(&get).exits_with(3);
    installation.run(&["memory", "set", "home/city", "Oslo"]).exits_with(2);

    installation.wait_for_tools();
    let changed = installation.run(&["agents", "update", "main", "--tools", "web,nonsense"]).ok();
    assert!(changed.err.contains("`nonsense` in `tools` covers no tool"), "{}", changed.err);
    installation.run(&["agents", "update", "main", "--tools", "none"]).ok();
    assert_eq!(installation.json(&["agents", "show", "main"])["no_tools"], true);
    // A runner caches an agent for a second.
    std::thread::sleep(Duration::from_millis(1_100));
    installation.run(&["chat", "hello"]).ok();
    assert!(model.requests().last().unwrap().tool_names().is_empty());
    Ok(())
}
