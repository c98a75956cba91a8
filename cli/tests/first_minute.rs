//! A newcomer's first minute, with the built binary and real backends: up, a first answer, some
//! commands, down. Each test has its own directory, database, subject prefix and key prefix.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers too"
)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use holdfast_testkit::{Backends, Database, FakeModel, Reply, nats, redis};
use serde_json::Value;

const HOLDFAST: &str = env!("CARGO_BIN_EXE_holdfast");
const LIMIT: Duration = Duration::from_secs(60);

/// A directory for `up`; everything that runs there ends when this is dropped.
struct Place {
    dir: PathBuf,
    vars: Vec<(&'static str, String)>,
    _database: Database,
    _nats: nats::Namespace,
    _redis: redis::Namespace,
}

impl Place {
    async fn new() -> anyhow::Result<Self> {
        let backends = Backends::get().await?;
        let database = Database::create().await?;
        let (nats, redis) = (nats::Namespace::create().await?, redis::Namespace::create().await?);
        let vars = vec![
            ("HOLDFAST_DATABASE__URL", database.url()),
            ("HOLDFAST_DATABASE__ADMIN_URL", database.admin_url()),
            ("HOLDFAST_NATS__URL", backends.nats_url.clone()),
            ("HOLDFAST_NATS__PREFIX", nats.prefix().to_owned()),
            ("HOLDFAST_REDIS__URL", backends.redis_url.clone()),
            ("HOLDFAST_REDIS__PREFIX", redis.prefix().to_owned()),
        ];
        let name = format!("holdfast-first-minute-{}", uuid::Uuid::now_v7().simple());
        let dir = env::temp_dir().join(name);
        Ok(Self { dir, vars, _database: database, _nats: nats, _redis: redis })
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(HOLDFAST);
        command.args(line).arg("--dir").arg(&self.dir).stdin(Stdio::null());
        // Settings of other installations in the tests' environment must not apply here.
        for (name, _) in env::vars().filter(|(name, _)| name.starts_with("HOLDFAST_")) {
            command.env_remove(name);
        }
        command.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
        command.envs(self.vars.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run(&self, line: &[&str]) -> Said {
        Said::of(self.command(line).output().unwrap(), line)
    }

    fn json(&self, line: &[&str]) -> Value {
        let said = self.run(&[line, &["--output", "json"]].concat()).ok();
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {}", said.out))
    }

    fn state(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.dir.join("state.json")).unwrap()).unwrap()
    }

    fn pid(&self, process: &str) -> Option<u32> {
        let path = self.dir.join("run").join(format!("{process}.pid"));
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.command(&["down"]).output());
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// Output of a command.
#[derive(Debug)]
struct Said {
    line: String,
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn of(output: Output, line: &[&str]) -> Self {
        Self {
            line: line.join(" "),
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn ok(self) -> Self {
        self.exits_with(0)
    }

    fn exits_with(self, code: i32) -> Self {
        let Self { line, out, err, .. } = &self;
        assert_eq!(self.code, Some(code), "`{line}` said\n{out}\n{err}");
        self
    }
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_alive(pid: u32) -> bool {
    // A zombie has no command line.
    fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"))
        .is_ok_and(|line| !line.is_empty())
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(sent.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_gets_a_first_answer_and_a_look_around() -> anyhow::Result<()> {
    let place = Place::new().await?;

    let up = place.run(&["up", "--split", "--runners", "2", "--detach", "--port-base", "0"]).ok();
    let state = place.state();
    for shown in [&state["gateway"]["http"], &state["gateway"]["grpc"], &state["key"]] {
        assert!(up.out.contains(shown.as_str().unwrap()), "{shown} is missing in\n{}", up.out);
    }
    assert_eq!(state["runners"].as_array().map(Vec::len), Some(2));

    let chat = place.run(&["chat", "hello"]).ok();
    assert!(chat.out.contains("demonstration"), "{}", chat.out);
    assert!(chat.err.contains("[session_status]"), "{}", chat.err);

    let sessions = place.json(&["sessions", "list"]);
    assert_eq!(sessions[0]["key"], "agent:main:main");
    let id = sessions[0]["id"].as_str().unwrap();
    let history = place.run(&["sessions", "history", id]).ok();
    assert!(history.out.contains("hello"), "{}", history.out);
    let runs = place.json(&["runs", "list"]);
    assert_eq!(runs[0]["outcome"], "completed");
    let run = place.json(&["runs", "show", runs[0]["id"].as_str().unwrap()]);
    assert!(run["entries"].as_array().is_some_and(|entries| !entries.is_empty()), "{run}");
    assert_eq!(place.json(&["status"])["tenant"], "dev");
    assert_eq!(place.json(&["agents", "list"])[0]["name"], "main");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_service_comes_back_and_down_ends_everything() -> anyhow::Result<()> {
    let place = Place::new().await?;
    place.run(&["up", "--split", "--detach", "--port-base", "0"]).ok();

    let again = place.run(&["up"]).ok();
    assert!(again.err.contains("already running"), "{}", again.err);

    let killed = place.pid("agent-runner-1").unwrap();
    signal("KILL", killed);
    let reborn =
        eventually("a new runner", || place.pid("agent-runner-1").filter(|pid| *pid != killed));
    assert!(place.run(&["chat", "hello"]).ok().out.contains("demonstration"));

    let processes: Vec<u32> = ["gateway-1", "channel-bridge-1", "scheduler-1", "up"]
        .iter()
        .map(|name| place.pid(name).unwrap())
        .chain([reborn])
        .collect();
    assert_eq!(place.run(&["down"]).ok().out, "stopped\n");
    assert!(!processes.iter().any(|pid| is_alive(*pid)), "{processes:?}");
    assert_eq!(place.pid("agent-runner-1"), None);
    assert_eq!(place.run(&["down"]).ok().out, "nothing was running\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn services_whose_up_was_killed_do_not_stay_behind() -> anyhow::Result<()> {
    let place = Place::new().await?;
    place.run(&["up", "--split", "--detach", "--port-base", "0"]).ok();
    let services: Vec<u32> = ["gateway-1", "agent-runner-1", "channel-bridge-1", "scheduler-1"]
        .iter()
        .map(|name| place.pid(name).unwrap())
        .collect();

    signal("KILL", place.pid("up").unwrap());

    eventually("the end of the services", || {
        (!services.iter().any(|pid| is_alive(*pid))).then_some(())
    });
    place.run(&["up", "--detach", "--port-base", "0"]).ok();
    assert!(place.run(&["chat", "hello"]).ok().out.contains("demonstration"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_does_it_all_keeps_its_key_and_drains_on_a_signal() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let mut first = foreground(&place);
    let key = place.state()["key"].clone();
    let said = talk(&place, "hello\n\nand again\nquit\nnever said\n");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("demonstration"), "{}", said.out);
    for word in ["exit", "/exit", "/quit"] {
        let left = talk(&place, &format!("{word}\nnever said\n"));
        assert_eq!((left.code, left.out.as_str()), (Some(0), ""), "{word}: {}", left.err);
    }

    signal("TERM", first.id());
    assert!(first.wait()?.success());
    assert!(!place.dir.join("state.json").exists());

    let mut second = foreground(&place);
    assert_eq!(place.state()["key"], key);
    let sessions = place.json(&["sessions", "list"]);
    assert_eq!(sessions[0]["turns"], 2, "{sessions}");
    signal("INT", second.id());
    assert!(second.wait()?.success());
    Ok(())
}

fn foreground(place: &Place) -> Child {
    let mut up = place.command(&["up", "--port-base", "0"]);
    let up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("state.json", || place.dir.join("state.json").exists().then_some(()));
    up
}

/// A conversation without a terminal.
fn talk(place: &Place, lines: &str) -> Said {
    use std::io::Write as _;

    let mut chat = place
        .command(&["chat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    chat.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    Said::of(chat.wait_with_output().unwrap(), &["chat"])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_says_so_and_exits_with_the_code_that_help_promises() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let early = place.run(&["chat", "hello"]).exits_with(4);
    assert!(early.err.contains("HOLDFAST_API_KEY"), "{}", early.err);
    place.run(&["up", "--detach", "--port-base", "0"]).ok();

    place.run(&["chat", "hello", "--agent", "nobody"]).exits_with(3);
    place.run(&["sessions", "show", "ses_00000000000000000000000000000001"]).exits_with(3);
    place.run(&["chat", "hello", "--key", "hf_1_2"]).exits_with(4);
    place.run(&["frobnicate"]).exits_with(2);
    let lost = place.run(&["chat", "hello", "--gateway", "http://127.0.0.1:1"]).exits_with(5);
    assert!(lost.err.contains("`make up`"), "{}", lost.err);
    let told = place.run(&["chat", "x", "--key", "hf_1_2", "--output", "json"]).exits_with(4);
    let told: Value = serde_json::from_str(&told.err)?;
    assert_eq!(told["error"], "unauthenticated");

    let secret = place.json(&["keys", "create", "reader", "--scope", "read"])["secret"].clone();
    let reader = secret.as_str().unwrap();
    place.run(&["sessions", "list", "--key", reader]).ok();
    place.run(&["chat", "hello", "--key", reader]).exits_with(4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn up_fails_at_once_where_the_database_cannot_be_migrated() -> anyhow::Result<()> {
    let mut place = Place::new().await?;
    place.vars.retain(|(name, _)| *name != "HOLDFAST_DATABASE__ADMIN_URL");

    let refused = place.run(&["up", "--detach", "--port-base", "0"]).exits_with(1);

    assert!(refused.err.contains("HOLDFAST_DATABASE__ADMIN_URL"), "{}", refused.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tools_explain_says_is_what_the_model_is_offered() -> anyhow::Result<()> {
    let (place, model) = (Place::new().await?, FakeModel::start().await?);
    model.answer(|_| Reply::text("done"));
    place.run(&["up", "--detach", "--port-base", "0"]).ok();
    let url = model.url();
    let provider = ["providers", "put", "fake", "--base-url", &url, "--api-key", "k"];
    place.run(&[&provider[..], &["--model", "fake:one"]].concat()).ok();
    place.run(&["agents", "update", "main", "--tools", "*"]).ok();
    let policy = r#"{"deny": ["edit", "nonsense"],
        "by_provider": {"fake": {"deny": ["web_*"]}},
        "visibility": [{"tools": ["group:sessions"], "roles": ["owner"]}]}"#;
    let put = place.run(&["policy", "put", policy, "--base", "0"]).ok();
    assert!(put.err.contains("`nonsense` in `tools.deny` covers no tool"), "{}", put.err);
    let stale = place.run(&["policy", "put", "{}", "--base", "0"]);
    assert!(stale.code != Some(0) && stale.err.contains("read it again"), "{stale:?}");
    assert_eq!(place.json(&["policy", "get"])["version"], 1);
    let keys = place.json(&["keys", "create", "app", "--scope", "chat"]);
    let app = keys["secret"].as_str().unwrap();
    // A runner caches an agent for a second.
    std::thread::sleep(Duration::from_millis(1_100));

    let mut offers = Vec::new();
    for (line, kind) in [
        (&["chat", "hello"][..], "main"),
        (&["chat", "hello", "--session", "guest", "--key", app], "api"),
    ] {
        place.run(line).ok();
        let requests = model.requests();
        let mut offered: Vec<String> =
            requests.last().unwrap().tool_names().into_iter().map(str::to_owned).collect();
        offered.sort_unstable();
        let sessions = place.json(&["sessions", "list", "--kind", kind]);
        let id = sessions[0]["id"].as_str().unwrap();
        let explained = place.json(&["tools", "explain", "--session", id]);
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
    let told = place.run(&["tools", "explain", "--kind", "group", "sessions_spawn"]).ok();
    assert!(told.out.starts_with("sessions_spawn: deny by layer 7 (chat)"), "{}", told.out);
    let told = place.run(&["tools", "explain", "web_fetch"]).ok();
    assert!(told.out.starts_with("web_fetch: deny by layer 4 (global_provider)"), "{}", told.out);
    Ok(())
}
