//! Commands run in a sandbox among the agent's files, once, and what they change is kept.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use agent_runner::Config;
use holdfast_agent::UNKNOWN_OUTCOME;
use holdfast_bus::{Bus, RequestKeys, Subject};
use holdfast_directory::{Actor, NewAgent};
use holdfast_pg::Pools;
use holdfast_sandbox::{BackendChoice, NetworkPolicy};
use holdfast_session::{Acceptance, NewMessage, ToolCallState};
use holdfast_testkit::Reply;
use holdfast_types::{AgentId, AgentName, Entry, SessionKey};
use holdfast_workspace::{ChangeAuthor, Edit, LogFilter, Workspaces};
use serde_json::json;

use crate::world::World;

/// A world whose runners have commands.
pub(crate) fn walled(world: &World) -> Config {
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    config
}

fn files(world: &World) -> anyhow::Result<Workspaces> {
    Ok(Workspaces::new(Pools::lazy(&world.config().database, "test")?))
}

async fn read(world: &World, agent: AgentId, path: &str) -> anyhow::Result<Option<String>> {
    let file = files(world)?.read(world.tenant, agent, &path.parse()?, None).await?;
    Ok(file.and_then(|file| file.text().map(str::to_owned)))
}

/// A message of the owner's.
pub(crate) fn owner(world: &World, text: &str) -> NewMessage {
    NewMessage { key: SessionKey::main(&world.agent.name), ..world.message("s", text) }
}

/// Tool results of a session, in order.
pub(crate) async fn returned(world: &World, sent: &Acceptance) -> anyhow::Result<Vec<String>> {
    let journal = world.journal(sent.session).await?;
    let output = |entry| match entry {
        Entry::Returned { output, .. } => Some(output),
        _ => None,
    };
    Ok(journal.into_iter().filter_map(output).collect())
}

pub(crate) fn exec(command: &str) -> Reply {
    Reply::call("a", "exec", json!({ "command": command }).to_string())
}

/// Runs one command for the owner, and says what the model was told.
async fn run(world: &World, command: &str) -> anyhow::Result<String> {
    world.model.queue([exec(command), Reply::text("done")]);
    let sent = world.send(owner(world, "go")).await?;
    world.text(&sent).await?;
    let mut told = returned(world, &sent).await?;
    told.pop().ok_or_else(|| anyhow::anyhow!("nothing was told"))
}

/// Next action of the model.
pub(crate) enum Step {
    /// Calls something, by what was said so far.
    Calls(fn(&str) -> Reply),
    /// Looks at the process, again and again, until this was said.
    Awaits(&'static str),
}

/// Answers call after call by what was said so far.
pub(crate) fn step_by_step(world: &World, steps: Vec<Step>) {
    let steps = Mutex::new(steps.into_iter().peekable());
    world.model.answer(move |request| {
        let said = request.body.to_string();
        let mut steps = steps.lock().unwrap();
        while steps
            .next_if(|step| matches!(step, Step::Awaits(words) if said.contains(words)))
            .is_some()
        {}
        match steps.peek() {
            Some(Step::Awaits(_)) => {
                process("status", &process_in(&said), &json!({ "wait_ms": 1_000 }))
            }
            Some(Step::Calls(call)) => {
                let reply = call(&said);
                steps.next();
                reply
            }
            None => Reply::text("done"),
        }
    });
}

/// The first process that a text names.
pub(crate) fn process_in(text: &str) -> String {
    let from = text.find("prc_").expect("a process in what was told");
    text[from..].chars().take(36).collect()
}

pub(crate) fn process(action: &str, id: &str, more: &serde_json::Value) -> Reply {
    let mut input = json!({ "action": action, "id": id });
    for (name, value) in more.as_object().into_iter().flatten() {
        input[name] = value.clone();
    }
    Reply::call("p", "process", input.to_string())
}

/// The file of this name, wherever it is below.
fn below(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_name() == name {
                return Some(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                dirs.push(entry.path());
            }
        }
    }
    None
}

pub(crate) fn is_below(dir: &Path, name: &str) -> bool {
    below(dir, name).is_some()
}

/// Takes away the file that a command has made, and waits to see gone.
pub(crate) async fn take_away(world: &World, name: &str) -> anyhow::Result<()> {
    world.until("it runs", async || is_below(world.scratch.path(), name)).await?;
    Ok(fs::remove_file(below(world.scratch.path(), name).unwrap_or_default())?)
}

/// Whether a process with this in its command line runs.
pub(crate) fn is_running(words: &str) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| String::from_utf8_lossy(&line).replace('\0', " ").contains(words))
}

#[tokio::test]
async fn a_command_runs_and_what_it_changes_is_kept_with_its_author_its_run_and_its_reason()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    assert!(!is_below(world.scratch.path(), "lock"), "nothing is laid out before a command");

    let told = run(&world, "mkdir -p sub && echo hello > sub/a.txt; echo out; exit 3").await?;
    let errors = run(&world, "echo oh no >&2").await?;

    assert!(told.starts_with("failed: exited with code 3 after "), "{told}");
    assert!(told.contains("\nout\nChanged files, as revision "), "{told}");
    assert!(told.ends_with(":\n+ sub/a.txt\n"), "{told}");
    assert!(errors.starts_with("completed: exited with code 0"), "{errors}");
    assert!(errors.ends_with("\nSTDERR:\noh no\n"), "{errors}");
    assert_eq!(read(&world, world.agent.id, "sub/a.txt").await?.as_deref(), Some("hello\n"));
    let filter = LogFilter { path: None, before: None, limit: 1 };
    let log = files(&world)?.log(world.tenant, world.agent.id, &filter).await?;
    assert_eq!(log[0].author, world.agent.name.as_str());
    assert!(log[0].run.is_some());
    assert!(log[0].reason.starts_with("exec: mkdir -p sub && echo hello"), "{}", log[0].reason);
    assert_eq!(log[0].files[0].path.as_str(), "sub/a.txt");
    Ok(())
}

#[tokio::test]
async fn commands_and_file_tools_see_what_the_others_did() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    world.model.queue([
        Reply::call("a", "write", r#"{"path":"n.txt","content":"one\n"}"#),
        Reply::call("b", "exec", r#"{"command":"cat n.txt && echo two >> n.txt"}"#),
        Reply::call("c", "read", r#"{"path":"n.txt"}"#),
        Reply::call("d", "delete_file", r#"{"path":"n.txt"}"#),
        Reply::call("e", "bash", r#"{"command":"ls n.txt; ls -a"}"#),
        Reply::text("done"),
    ]);

    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?;
    assert!(told[1].contains("\none\n") && told[1].ends_with("~ n.txt\n"), "{told:?}");
    assert!(told[2].contains("two"), "{told:?}");
    assert!(told[4].contains("No such file") && told[4].contains("SOUL.md"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_command_sees_no_environment_and_no_place_of_the_mesh() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = walled(&world);
    config.runner.sandbox.guard.restrict_to_workspace = false;
    let _runner = world.runner_with(config, |app| app).await?;
    // Cargo tells every test where it is.
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());

    let input = json!({
        "command": format!("env | sort; pwd; ls {}", world.scratch.path().display()),
        "env": { "MINE": "1" },
    });
    world.model.queue([Reply::call("a", "exec", input.to_string()), Reply::text("done")]);
    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?.remove(0);
    for there in ["MINE=1\n", "HOLDFAST_AGENT=main\n", "\n/workspace\n", "No such file"] {
        assert!(told.contains(there), "{there}: {told}");
    }
    for not_there in ["CARGO", "DATABASE", "postgres", "SECRET"] {
        assert!(!told.contains(not_there), "{not_there}: {told}");
    }
    Ok(())
}

#[tokio::test]
async fn a_command_with_the_network_reaches_what_the_policy_lists() -> anyhow::Result<()> {
    let world = World::start().await?;
    let server = TcpListener::bind("127.0.0.1:0")?;
    let address = server.local_addr()?;
    let serving = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = server.accept()?;
        let _request = stream.read(&mut [0; 1024])?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nwelcome")
    });
    let mut config = walled(&world);
    config.runner.sandbox.network = NetworkPolicy::Proxy;
    config.runner.sandbox.listener_program = Some(env!("CARGO_BIN_EXE_agent-runner-child").into());
    config.runner.sandbox.guard.enable_deny_patterns = false;
    config.runner.sandbox.guard.restrict_to_workspace = false;
    config.runner.web.allow = vec![address.to_string()];
    let _runner = world.runner_with(config, |app| app).await?;
    let policy = json!({ "actions": { "network": "allow", "egress": ["127.0.0.1"] } });
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &policy).await?;

    let script = format!(
        "at=${{http_proxy#http://}}\n\
         for url in http://{address}/ http://1.1.1.1/; do\n\
         exec 3<>/dev/tcp/${{at%:*}}/${{at#*:}}\n\
         printf 'GET %s HTTP/1.1\\r\\n\\r\\n' $url >&3; tail -n 1 <&3; echo\n\
         done"
    );
    let input = json!({ "command": script, "network": true }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("done")]);
    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?.remove(0);
    assert!(told.contains("welcome\n"), "{told}");
    assert!(told.contains("`1.1.1.1` is not among the hosts that the policy allows"), "{told}");
    assert!(serving.join().is_ok_and(|served| served.is_ok()));
    Ok(())
}

#[tokio::test]
async fn what_the_guard_refuses_does_not_run() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;

    let told = run(&world, "touch x; sudo ls").await?;
    assert_eq!(told, "Command blocked by safety guard (dangerous pattern detected)");
    let told = run(&world, "touch x; cat ../y").await?;
    assert_eq!(told, "Command blocked by safety guard (path traversal detected)");
    let input = json!({ "command": "touch x", "network": true }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("done")]);
    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;
    let told = returned(&world, &sent).await?.pop().unwrap_or_default();
    assert!(told.starts_with("commands have no network in this installation"), "{told}");

    assert_eq!(read(&world, world.agent.id, "x").await?, None);
    assert!(!is_below(world.scratch.path(), "lock"), "no folder was needed");
    Ok(())
}

#[tokio::test]
async fn without_a_sandbox_only_conversations_in_mode_off_run_commands() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Plain;
    let _runner = world.runner_with(config, |app| app).await?;
    world.model.answer(|request| match request.body.to_string().contains("not run") {
        true => Reply::text("done"),
        false => exec("touch x"),
    });

    let refused = world.say("s", "go").await?;
    world.text(&refused).await?;
    let asked = world.send(owner(&world, "go")).await?;

    let told = returned(&world, &refused).await?;
    let reason = "not run: commands of this conversation need a sandbox";
    assert!(told[0].starts_with(reason), "{told:?}");
    world
        .until("the owner is asked", async || {
            world.kinds(asked.session).await.is_ok_and(|kinds| kinds.contains(&"noted"))
        })
        .await?;
    assert_eq!(read(&world, world.agent.id, "x").await?, None);
    Ok(())
}

#[tokio::test]
async fn each_call_is_in_the_ledger_with_its_state_times_failure_and_details() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    let wait = "touch begun; while [ -e begun ]; do sleep 0.05; done";
    world.model.queue([
        exec("echo x > x; exit 3"),
        Reply::call("a", "read", r#"{"path":"nowhere.md"}"#),
        exec(wait),
        Reply::text("done"),
    ]);

    let sent = world.send(owner(&world, "go")).await?;
    world.until("it runs", async || is_below(world.scratch.path(), "begun")).await?;
    let run = sent.message.into();
    let during =
        world.sessions.views().tool_calls(world.tenant, sent.session, Some(run), 10).await?;
    take_away(&world, "begun").await?;
    world.text(&sent).await?;
    let after = world.sessions.views().tool_calls(world.tenant, sent.session, None, 1).await?;
    let of_run = world.sessions.views().session_of_run(world.tenant, run).await?;
    world.sessions.delete(world.tenant, sent.session).await?;
    let deleted = world.sessions.views().tool_calls(world.tenant, sent.session, None, 10).await;

    let [failing, missing, running] = during.as_slice() else { panic!("{during:?}") };
    assert_eq!((failing.tool.as_str(), failing.state), ("exec", ToolCallState::Completed));
    let details = failing.details.as_ref().unwrap();
    assert_eq!((&details["exit_code"], &details["files_changed"]), (&json!(3), &json!(["x"])));
    assert!(failing.requested_at <= failing.started_at.unwrap(), "{failing:?}");
    assert!(failing.started_at <= failing.ended_at, "{failing:?}");
    assert_eq!((missing.id.as_str(), missing.state), ("a", ToolCallState::Failed));
    assert!(missing.error.as_ref().is_some_and(|error| !error.is_empty()), "{missing:?}");
    assert_eq!((running.state, running.ended_at), (ToolCallState::Running, None));
    assert_eq!((after.len(), after[0].state), (1, ToolCallState::Completed));
    assert!(after[0].ended_at.is_some(), "{after:?}");
    assert_eq!(of_run, sent.session);
    assert!(deleted.is_err(), "{deleted:?}");
    Ok(())
}

#[tokio::test]
async fn where_tenants_are_hosted_the_check_of_paths_cannot_be_switched_off() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let mut config = walled(&world);
    config.runner.sandbox.hosted = true;
    config.runner.sandbox.guard.restrict_to_workspace = false;

    let refused = world.runner_with(config, |app| app).await.err();

    let message = refused.map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(message.contains("`runner.sandbox.guard.restrict_to_workspace`"), "{message}");
    Ok(())
}

#[tokio::test]
async fn a_command_whose_time_is_up_ends_with_all_that_it_started() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    let command = "echo kept > k; sleep 71.25 & trap '' TERM; sleep 71.25";
    let input = json!({ "command": command, "timeout": 5, "yield_ms": 60_000 }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("done")]);

    let begun = Instant::now();
    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?.remove(0);
    assert!(told.starts_with("failed: its time was up after "), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(!is_running("sleep 71.25"));
    assert_eq!(read(&world, world.agent.id, "k").await?.as_deref(), Some("kept\n"));
    Ok(())
}

#[tokio::test]
async fn a_flood_of_output_is_cut_in_its_middle() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;

    let told = run(&world, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end").await?;

    assert!(told.contains("bytes before this are forgotten"), "{}", &told[..200]);
    assert!(told.contains("bytes left out") && told.ends_with("xxx\nend\n"));
    assert!(told.len() < 34_000, "{}", told.len());
    Ok(())
}

#[tokio::test]
async fn a_process_is_looked_after_and_what_it_leaves_is_kept() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    step_by_step(
        &world,
        vec![
            Step::Calls(|_| {
                let command = "while read l; do echo \"got $l\"; echo $l >> log; done; echo bye";
                let input = json!({ "command": command, "background": true });
                Reply::call("a", "exec", input.to_string())
            }),
            Step::Calls(|said| process("stdin", &process_in(said), &json!({ "text": "one\n" }))),
            Step::Calls(|_| Reply::call("l", "process", r#"{"action":"list"}"#)),
            Step::Awaits("got one"),
            Step::Calls(|said| process("stdin", &process_in(said), &json!({ "close": true }))),
            Step::Calls(|said| process("status", &process_in(said), &json!({ "wait_ms": 30_000 }))),
        ],
    );

    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?;
    assert!(told[0].starts_with("running in the background as prc_"), "{told:?}");
    assert!(told[2].contains(" running, started "), "{told:?}");
    assert!(told[2].contains(" s ago: while read l;"), "{told:?}");
    let [.., saw, _, ended] = told.as_slice() else { panic!("{told:?}") };
    assert!(saw.starts_with("running") && saw.ends_with("\ngot one\n"), "{told:?}");
    assert!(ended.starts_with("completed: exited with code 0"), "{told:?}");
    assert!(ended.contains("\nbye\nChanged files") && ended.ends_with("+ log\n"), "{told:?}");
    assert_eq!(read(&world, world.agent.id, "log").await?.as_deref(), Some("one\n"));
    Ok(())
}

#[tokio::test]
async fn a_process_takes_signals_and_is_ended() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    step_by_step(
        &world,
        vec![
            Step::Calls(|_| {
                let command = "trap 'echo tick-tock' USR1; echo now-it-''listens; while :; do sleep 0.05; done";
                let input = json!({ "command": command, "background": true });
                Reply::call("a", "exec", input.to_string())
            }),
            Step::Awaits("now-it-listens"),
            Step::Calls(|said| process("signal", &process_in(said), &json!({ "signal": "usr1" }))),
            Step::Awaits("\\ntick-tock"),
            Step::Calls(|said| process("kill", &process_in(said), &json!({}))),
            Step::Calls(|_| process("status", "prc_0190a1b2c3d47e8f90a1b2c3d4e5f607", &json!({}))),
        ],
    );

    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?;
    let [.., ticked, ended, other] = told.as_slice() else { panic!("{told:?}") };
    assert!(ticked.contains("\ntick-tock"), "{told:?}");
    assert!(ended.starts_with("failed: "), "{told:?}");
    assert!(other.starts_with("lost: `prc_0190a1b2c3d47e8f90a1b2c3d4e5f607`"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_command_that_takes_long_goes_on_behind_and_its_session_is_told_of_its_end()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    let command = "touch b; while [ -e b ]; do sleep 0.1; done; echo x > late";
    let input = json!({ "command": command, "yield_ms": 100 }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("started")]);

    let sent = world.send(owner(&world, "go")).await?;
    assert_eq!(world.text(&sent).await?, "started");
    take_away(&world, "b").await?;
    world.until("the session was told", async || world.model.count() == 3).await?;

    let told = world.model.requests()[2].last_user_text();
    assert!(told.contains("has ended (prc_"), "{told}");
    assert!(told.contains(&format!("`{command}`): exited with code 0")), "{told}");
    assert!(told.contains("changed 1 files"), "{told}");
    assert_eq!(read(&world, world.agent.id, "late").await?.as_deref(), Some("x\n"));
    Ok(())
}

#[tokio::test]
async fn a_command_that_its_runner_did_not_survive_is_not_run_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = walled(&world);
    config.runner.lease = Duration::from_secs(2);
    config.runner.sweep = Duration::from_millis(100);
    world.model.queue([exec("echo x > begun; sleep 72.25"), Reply::text("who knows")]);
    let first = world.runner_with(config.clone(), |app| app).await?;

    let sent = world.send(owner(&world, "go")).await?;
    world.until("it runs", async || is_below(world.scratch.path(), "begun")).await?;
    first.kill();
    let _second = world.runner_with(config, |app| app).await?;
    assert_eq!(world.text(&sent).await?, "who knows");

    assert_eq!(returned(&world, &sent).await?, [UNKNOWN_OUTCOME]);
    let kinds = world.kinds(sent.session).await?;
    assert_eq!(kinds, ["heard", "thought", "called", "returned", "thought"]);
    assert!(!is_running("sleep 72.25"));
    let told = run(&world, "ls begun").await?;
    assert!(told.contains("No such file"), "half of what it did is not kept: {told}");
    Ok(())
}

#[tokio::test]
async fn a_session_of_another_agent_sees_neither_files_nor_processes() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    let new = NewAgent { name: AgentName::new("other"), ..NewAgent::default() };
    let other = world.directory.agents().create(world.tenant, Actor::Operator, new).await?;
    let input =
        json!({ "command": "echo s3cret > mine; sleep 76.25", "yield_ms": 300 }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("started")]);
    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;
    let theirs = process_in(&returned(&world, &sent).await?[0]);

    world.model.queue([
        exec("ls; cat mine"),
        process("status", &theirs, &json!({})),
        process("kill", &theirs, &json!({})),
        Reply::call("l", "process", r#"{"action":"list"}"#),
        Reply::text("done"),
    ]);
    let key = SessionKey::main(&other.name);
    let message = NewMessage { key, agent: other.id, ..world.message("s", "go") };
    let sent = world.send(message).await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?;
    assert!(told[0].contains("No such file") && !told[0].contains("s3cret"), "{told:?}");
    assert!(told[1].starts_with("lost: ") && told[2].starts_with("lost: "), "{told:?}");
    assert_eq!(told[3], "There are no background processes here.");
    Ok(())
}

#[tokio::test]
async fn what_is_the_owners_alone_is_not_there_for_others() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    run(&world, "mkdir -p memory; echo s3cret > memory/note.md").await?;
    let command = "ls; cat memory/note.md; mkdir -p memory; echo x > memory/b.md; echo x > SOUL.md";
    world.model.queue([exec(command), Reply::text("done")]);

    let sent = world.say("stranger", "go").await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?.remove(0);
    assert!(told.contains("SOUL.md\n") && !told.contains("s3cret"), "{told}");
    assert!(told.contains("`SOUL.md` was not kept: it is changed in a conversation"), "{told}");
    assert!(told.contains("`memory/b.md` was not kept"), "{told}");
    assert_eq!(read(&world, world.agent.id, "memory/b.md").await?, None);
    assert_ne!(read(&world, world.agent.id, "SOUL.md").await?.as_deref(), Some("x\n"));
    let told = run(&world, "cat memory/note.md").await?;
    assert!(told.contains("s3cret"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_subagent_whose_files_are_bounded_has_no_commands() -> anyhow::Result<()> {
    const TASK: &str = "do your part";
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    world.model.answer(|asked| {
        let is_part = asked.last_user_text() == TASK;
        match (is_part, asked.tool_results().as_slice()) {
            (true, []) => exec("echo free > SOUL.md; cat SOUL.md"),
            (false, []) => {
                let spawn = json!({ "task": TASK, "read": ["docs"], "wait": true });
                Reply::call("s", "sessions_spawn", spawn.to_string())
            }
            (_, results) => Reply::text(results[0].1.clone()),
        }
    });

    let told = world.ask("s", "go").await?;

    assert!(told.contains("not one of yours"), "{told}");
    assert!(!told.contains("free"), "{told}");
    Ok(())
}

#[tokio::test]
async fn what_another_changed_meanwhile_stays_and_nothing_is_lost() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    run(&world, "echo one > f; echo one > g").await?;
    let command = "touch b; while [ -e b ]; do sleep 0.1; done; echo mine > f; echo mine > g";
    let input = json!({ "command": command, "yield_ms": 60_000 }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("done")]);

    let sent = world.send(owner(&world, "go")).await?;
    world.until("it runs", async || is_below(world.scratch.path(), "b")).await?;
    let put = Edit::Put {
        path: "f".parse()?,
        content: b"theirs\n".to_vec(),
        base: holdfast_workspace::Base::Any,
    };
    let by = ChangeAuthor::new("ann", "a test");
    files(&world)?.commit(world.tenant, world.agent.id, &by, vec![put]).await?;
    take_away(&world, "b").await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?.pop().unwrap_or_default();
    assert!(told.contains("Note: `f` was changed meanwhile by ann"), "{told}");
    assert_eq!(read(&world, world.agent.id, "f").await?.as_deref(), Some("theirs\n"));
    assert_eq!(read(&world, world.agent.id, "g").await?.as_deref(), Some("mine\n"));
    let beside = told.split('`').find(|part| part.starts_with("f.conflict-")).unwrap_or_default();
    assert_eq!(read(&world, world.agent.id, beside).await?.as_deref(), Some("mine\n"), "{told}");
    let seen = run(&world, "cat f").await?;
    assert!(seen.contains("theirs"), "{seen}");
    Ok(())
}

#[tokio::test]
async fn a_runner_that_stops_ends_what_runs_behind_and_keeps_what_it_did() -> anyhow::Result<()> {
    let world = World::start().await?;
    let runner = world.runner_with(walled(&world), |app| app).await?;
    let command = "trap 'echo bye > bye; exit 0' TERM; touch begun; while :; do sleep 0.05; done";
    let input = json!({ "command": command, "background": true }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("started")]);
    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;
    world.until("it runs", async || is_below(world.scratch.path(), "begun")).await?;

    runner.stop().await?;

    assert_eq!(read(&world, world.agent.id, "bye").await?.as_deref(), Some("bye\n"));
    assert_eq!(world.sessions.views().session(world.tenant, sent.session).await?.waiting, 1);
    Ok(())
}

#[tokio::test]
async fn what_runs_behind_a_session_ends_once_that_is_deleted() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = walled(&world);
    config.runner.scratch.idle = Duration::from_millis(200);
    let _runner = world.runner_with(config, |app| app).await?;
    let input = json!({ "command": "sleep 75.25", "background": true }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("started")]);
    let sent = world.send(world.message("s", "go")).await?;
    world.text(&sent).await?;
    world.until("it runs", async || is_running("sleep 75.25")).await?;
    // As long as its session is there it is left alone, however often somebody looks.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(is_running("sleep 75.25"));

    world.sessions.delete(world.tenant, sent.session).await?;

    world.until("it has ended", async || !is_running("sleep 75.25")).await
}

#[tokio::test]
async fn a_runner_that_stops_while_a_turn_waits_for_a_command_keeps_what_it_did()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let runner = world.runner_with(walled(&world), |app| app).await?;
    let command = "trap 'echo bye > bye; exit 0' TERM; touch begun; while :; do sleep 0.05; done";
    let input = json!({ "command": command, "yield_ms": 60_000 }).to_string();
    world.model.queue([Reply::call("a", "exec", input)]);
    let sent = world.send(owner(&world, "go")).await?;
    world.until("it runs", async || is_below(world.scratch.path(), "begun")).await?;

    let begun = Instant::now();
    runner.stop().await?;

    // The command itself is waited for up to a minute.
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
    assert_eq!(read(&world, world.agent.id, "bye").await?.as_deref(), Some("bye\n"));
    assert!(returned(&world, &sent).await?[0].starts_with("running in the background as prc_"));
    Ok(())
}

#[tokio::test]
async fn a_tenant_has_so_many_commands_at_once_and_no_more() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = walled(&world);
    config.runner.scratch.commands_per_tenant = 1;
    let _runner = world.runner_with(config, |app| app).await?;
    let input = json!({ "command": "sleep 74.25", "background": true }).to_string();
    world.model.queue([Reply::call("a", "exec", input), exec("ls"), Reply::text("done")]);

    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?;
    assert!(told[1].starts_with("not run: `1` commands of this tenant run here"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn background_commands_leave_half_of_a_tenants_commands_to_others() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = walled(&world);
    (config.runner.scratch.commands, config.runner.scratch.commands_per_tenant) = (16, 4);
    let _runner = world.runner_with(config, |app| app).await?;
    let background = |id: &str| {
        let input = json!({ "command": "sleep 74.5", "background": true }).to_string();
        Reply::call(id, "exec", input)
    };
    // Long enough for the first half of the command on a busy machine.
    let slow = json!({ "command": "echo x > made; sleep 74.75", "yield_ms": 10_000 }).to_string();
    world.model.queue([
        background("a"),
        background("b"),
        background("c"),
        exec("echo free"),
        Reply::call("e", "exec", slow),
        Reply::text("done"),
    ]);

    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?;
    assert!(told[1].starts_with("running in the background"), "{told:?}");
    assert!(told[2].starts_with("not run: 2 background commands of this tenant"), "{told:?}");
    assert!(told[2].contains("end one with `process`"), "{told:?}");
    assert!(told[3].contains("free"), "{told:?}");
    assert!(told[4].contains("stopped: 2 background commands of this tenant"), "{told:?}");
    assert_eq!(read(&world, world.agent.id, "made").await?.as_deref(), Some("x\n"));
    assert!(!is_running("sleep 74.75"));
    Ok(())
}

#[tokio::test]
async fn folders_that_nobody_uses_are_removed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = walled(&world);
    config.runner.scratch.idle = Duration::from_millis(200);
    let _runner = world.runner_with(config, |app| app).await?;

    run(&world, "echo x > here").await?;
    let gone = async || !is_below(world.scratch.path(), "tree");
    world.until("the folder is gone", gone).await?;

    let told = run(&world, "cat here").await?;
    assert!(told.contains("\nx\n"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_tenant_keeps_a_limited_number_of_folders() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = walled(&world);
    config.runner.scratch.folders_per_tenant = 2;
    let _runner = world.runner_with(config, |app| app).await?;
    let folders = || {
        let runner = fs::read_dir(world.scratch.path().join("0")).into_iter().flatten().flatten();
        runner.filter(|entry| entry.path().join("used").exists()).count()
    };

    for n in 0..4 {
        world.model.queue([exec(&format!("echo {n} > file{n}")), Reply::text("done")]);
        let sent = world.say(&format!("s{n}"), "go").await?;
        world.text(&sent).await?;
    }

    assert_eq!(folders(), 2);
    // Nothing is lost: the folder is made again from the workspace.
    world.model.queue([exec("cat file0"), Reply::text("done")]);
    let sent = world.say("s0", "go").await?;
    world.text(&sent).await?;
    let told = returned(&world, &sent).await?;
    assert!(told[1].contains("0\n"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn where_no_commands_run_none_are_offered() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    config.runner.sandbox.bwrap = Some(PathBuf::from("/nowhere/bwrap"));
    let _runner = world.runner_with(config, |app| app).await?;

    let told = run(&world, "ls").await?;

    assert!(told.starts_with("there is no tool `exec`"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_process_is_found_by_the_runner_that_its_session_has_moved_to() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = walled(&world);
    config.runner.slots = 1;
    config.runner.holder_wait = Duration::from_millis(300);
    let _first = world.runner_with(config.clone(), |app| app).await?;
    let command = "while read l; do echo \"got $l\"; echo $l > log; done; echo bye";
    let input = json!({ "command": command, "background": true }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("started")]);
    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;
    let theirs = process_in(&returned(&world, &sent).await?[0]);
    // The first runner has no slot left for what comes.
    let busy = json!({ "command": "touch busy; sleep 73.25", "yield_ms": 60_000 }).to_string();
    world.model.queue([Reply::call("b", "exec", busy)]);
    world.say("elsewhere", "go").await?;
    world.until("it is busy", async || is_below(world.scratch.path(), "busy")).await?;

    let _second = world.runner_with(config, |app| app).await?;
    let list = Reply::call("l", "process", r#"{"action":"list"}"#);
    world.model.queue([
        list,
        process("stdin", &theirs, &json!({ "text": "one\n", "close": true })),
        process("status", &theirs, &json!({ "wait_ms": 30_000 })),
        Reply::text("done"),
    ]);
    let sent = world.send(owner(&world, "look")).await?;
    world.text(&sent).await?;

    let told = returned(&world, &sent).await?.split_off(1);
    assert!(told[0].starts_with(&format!("{theirs} running, started ")), "{told:?}");
    assert_eq!(told[1], "It has read that.");
    assert!(told[2].starts_with("completed: exited with code 0"), "{told:?}");
    assert!(told[2].contains("\ngot one\nbye\n") && told[2].ends_with("+ log\n"), "{told:?}");
    assert_eq!(read(&world, world.agent.id, "log").await?.as_deref(), Some("one\n"));
    Ok(())
}

#[tokio::test]
async fn a_login_to_nats_is_not_enough_to_write_to_a_process() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    let command = "while read l; do echo $l >> log; done";
    let input = json!({ "command": command, "background": true }).to_string();
    world.model.queue([Reply::call("a", "exec", input), Reply::text("started")]);
    let sent = world.send(owner(&world, "go")).await?;
    world.text(&sent).await?;
    let id = process_in(&returned(&world, &sent).await?[0]);
    let subject = Subject::jobs(world.tenant, sent.session);
    let ask = async |bus: &Bus, question: &serde_json::Value| {
        let answers = bus.ask::<serde_json::Value>(&subject, question, Duration::from_secs(1), 1);
        answers.await.ok().and_then(|mut answers| answers.pop())
    };
    let write = |text: &str, is_last: bool| {
        let input = json!({ "text": text, "is_last": is_last });
        json!({ "do": { "id": id, "wish": { "write": input } } })
    };
    let stranger = Bus::connect(&world.config().nats, "test").await?;
    RequestKeys::new([[7; 32]]).install(&stranger);
    world.until("the stranger is connected", async || stranger.is_connected()).await?;
    let listed = world.until_some("it is listed", async || ask(&world.bus, &json!("list")).await);
    let listed = listed.await?.to_string();

    let refused = ask(&stranger, &write("forged\n", false)).await;
    let written = ask(&world.bus, &write("one\n", true)).await;

    assert!(listed.contains(&id), "{listed}");
    assert_eq!(refused, None);
    assert!(written.is_some());
    let log = async || read(&world, world.agent.id, "log").await.ok().flatten();
    assert_eq!(world.until_some("the process has ended", log).await?, "one\n");
    Ok(())
}

#[tokio::test]
async fn nul_in_outputs_files_and_answers_ends_no_turn_and_repeats_no_call() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    world.model.queue([
        Reply::call("a", "exec", r#"{"command":"printf 'one\\0two\\0' | tee nul.txt"}"#),
        Reply::call("b", "exec", r#"{"command":"find . -name nul.txt -print0"}"#),
        Reply::call("c", "read", r#"{"path":"nul.txt"}"#),
        Reply::call("d\0", "exec", r#"{"command":"echo a\u0000b"}"#),
        Reply::call("e", "read", r#"{"path":"a\u0000b"}"#),
        Reply::text("that \0 was it"),
    ]);

    let sent = world.send(owner(&world, "go")).await?;

    assert_eq!(world.text(&sent).await?, "that \u{fffd} was it");
    assert_eq!(world.model.count(), 6);
    assert_eq!(world.model.violations(), Vec::<String>::new());
    let told = returned(&world, &sent).await?;
    assert!(told[0].contains("one\u{fffd}two\u{fffd}"), "{told:?}");
    assert!(told[1].contains("./nul.txt\u{fffd}"), "{told:?}");
    assert_eq!(told.len(), 5);
    assert_eq!(
        world.number("select count(*) from session.runs where outcome = 'completed'").await?,
        1
    );
    Ok(())
}
