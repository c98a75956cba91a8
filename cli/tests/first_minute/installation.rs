//! An installation of a test: a directory for `holdfast up`, and namespaces on the backends.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use holdfast_testkit::{Backends, Database, FakeModel, nats, redis};
use serde_json::Value;

pub const HOLDFAST: &str = env!("CARGO_BIN_EXE_holdfast");
const LIMIT: Duration = Duration::from_secs(60);

/// A directory for `up`; everything that runs there ends when this is dropped.
pub struct Installation {
    /// Folder in which commands find `dir` by themselves.
    pub root: PathBuf,
    /// `.holdfast` of this installation.
    pub dir: PathBuf,
    pub vars: Vec<(&'static str, String)>,
    _database: Database,
    _nats: nats::Namespace,
    _redis: redis::Namespace,
}

impl Installation {
    pub async fn new() -> anyhow::Result<Self> {
        let backends = Backends::get().await?;
        let database = Database::create().await?;
        let (nats, redis) = (nats::Namespace::create().await?, redis::Namespace::create().await?);
        let vars = vec![
            ("HOLDFAST_DATABASE__URL", database.url()),
            ("HOLDFAST_DATABASE__ADMIN_URL", database.admin_url()),
            // The database may stand still with the machine. No test waits for this limit.
            ("HOLDFAST_DATABASE__ACQUIRE_TIMEOUT", "20s".to_owned()),
            ("HOLDFAST_NATS__URL", backends.nats_url.clone()),
            // Models of tests are on this machine.
            ("HOLDFAST_EGRESS__ALLOW", r#"["127.0.0.1"]"#.to_owned()),
            ("HOLDFAST_NATS__PREFIX", nats.prefix().to_owned()),
            ("HOLDFAST_REDIS__URL", backends.redis_url.clone()),
            ("HOLDFAST_REDIS__PREFIX", redis.prefix().to_owned()),
        ];
        let name = format!("holdfast-first-minute-{}", uuid::Uuid::now_v7().simple());
        let root = env::temp_dir().join(name);
        let dir = root.join(".holdfast");
        Ok(Self { root, dir, vars, _database: database, _nats: nats, _redis: redis })
    }

    /// Starts an installation whose agents use this model and all tools.
    pub async fn with_model(model: &FakeModel) -> anyhow::Result<Self> {
        let installation = Self::new().await?;
        installation.start_with_model(model);
        Ok(installation)
    }

    pub fn start_with_model(&self, model: &FakeModel) {
        self.run(&["up", "--detach", "--port-base", "0"]).ok();
        let provider = ["providers", "put", "fake", "--base-url", &model.url(), "--api-key", "k"];
        self.run(&[&provider[..], &["--model", "fake:one"]].concat()).ok();
        self.run(&["agents", "update", "main", "--tools", "*"]).ok();
    }

    pub fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(HOLDFAST);
        command.args(line).arg("--dir").arg(&self.dir);
        self.isolate(&mut command);
        command
    }

    /// Removes settings of other installations from the environment, and sets those of this one.
    pub fn isolate(&self, command: &mut Command) {
        command.stdin(Stdio::null());
        for (name, _) in env::vars().filter(|(name, _)| name.starts_with("HOLDFAST_")) {
            command.env_remove(name);
        }
        command.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
        command.env_remove("TELEGRAM_BOT_TOKEN").env_remove("DISCORD_BOT_TOKEN");
        command.envs(self.vars.iter().map(|(name, value)| (name, value)));
    }

    pub fn run(&self, line: &[&str]) -> CommandOutput {
        CommandOutput::new(self.command(line).output().unwrap(), line)
    }

    /// Waits until a runner has announced its tools, which it does after it is ready.
    pub fn wait_for_tools(&self) {
        eventually("the tools", || {
            let told = self.run(&["tools", "explain", "web_fetch"]);
            (told.code == Some(0)).then_some(())
        });
    }

    pub fn json(&self, line: &[&str]) -> Value {
        self.run(&[line, &["--output", "json"]].concat()).ok().json()
    }

    pub fn state(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.dir.join("state.json")).unwrap()).unwrap()
    }

    pub fn pid(&self, process: &str) -> Option<u32> {
        let path = self.dir.join("run").join(format!("{process}.pid"));
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        drop(self.command(&["down"]).output());
        drop(fs::remove_dir_all(&self.root));
    }
}

/// Output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub line: String,
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    pub fn new(output: Output, line: &[&str]) -> Self {
        Self {
            line: line.join(" "),
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn ok(self) -> Self {
        self.exits_with(0)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    pub fn exits_with(self, code: i32) -> Self {
        let Self { line, out, err, .. } = &self;
        assert_eq!(self.code, Some(code), "`{line}` said\n{out}\n{err}");
        self
    }
}

pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within_limit(look).unwrap_or_else(|| panic!("{what}: not within {LIMIT:?}"))
}

/// Looks until there is something; returns `None` if there is nothing for too long.
pub fn within_limit<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        let found = look();
        if found.is_some() || started.elapsed() >= LIMIT {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn is_alive(pid: u32) -> bool {
    // A zombie has no command line.
    fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"))
        .is_ok_and(|line| !line.is_empty())
}

pub fn signal(name: &str, pid: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(sent.success());
}
