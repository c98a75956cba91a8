//! Execution of commands that the allow-list permits.

use std::{path::PathBuf, sync::Arc, time::Duration};

use holdfast_proto::gateway::v1::{
    NodeAnswer, NodeAsk, NodeHello, NodeNotKnown, NodePong, NodeRan, NodeRecall, NodeRun,
    node_answer::What, node_ask,
};
use holdfast_sandbox::{Backend, Command, Network, Sandbox, WorkPath};
use tracing::info;

use super::{
    allow::CommandAllowList,
    ledger::{CommandLog, CommandRecord, KeyLookup},
};

/// Version of the node protocol.
const PROTOCOL_VERSION: u32 = 1;

/// Maximum duration of a command.
const MAX_COMMAND_DURATION: Duration = Duration::from_mins(10);

/// Maximum wait for a command to end, before its state is reported.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Runs commands on this machine.
#[derive(Debug)]
pub(super) struct Host {
    sandbox: Arc<dyn Sandbox>,
    folder: PathBuf,
    allow: CommandAllowList,
    ledger: CommandLog,
}

impl Host {
    /// Creates a host that runs commands in `folder`.
    pub(super) fn new(sandbox: Arc<dyn Sandbox>, folder: PathBuf, allow: CommandAllowList) -> Self {
        Self { sandbox, folder, allow, ledger: CommandLog::default() }
    }

    /// Returns this machine's introduction to the gateway.
    pub(super) fn hello(&self) -> NodeHello {
        NodeHello {
            protocol: PROTOCOL_VERSION,
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commands: self.allow.patterns(),
        }
    }

    /// Carries out a request and returns the answer.
    pub(super) async fn answer(&self, ask: NodeAsk) -> NodeAnswer {
        let what = match ask.what {
            Some(node_ask::What::Ping(_)) => What::Pong(NodePong {}),
            Some(node_ask::What::Run(run)) => self.run(run).await,
            Some(node_ask::What::Recall(NodeRecall { key, wait_ms })) => {
                match self.ledger.find(&key) {
                    Some(line) => command_state(&line, wait_ms).await,
                    None => What::NotKnown(NodeNotKnown {}),
                }
            }
            None => {
                What::Refused("this machine's program is too old for that: update it".to_owned())
            }
        };
        NodeAnswer { id: ask.id, what: Some(what) }
    }

    async fn run(&self, run: NodeRun) -> What {
        if let Some(why) = self.allow.refusal(&run.script) {
            info!("a command was not let through");
            return What::Refused(why);
        }
        let workdir = match WorkPath::parse(&run.workdir) {
            Ok(workdir) => workdir,
            Err(error) => return What::Refused(error.to_string()),
        };
        match self.ledger.begin(&run.key) {
            KeyLookup::Full => {
                What::Refused("as many commands run here as may: wait for one to end".to_owned())
            }
            KeyLookup::Known(line) => command_state(&line, run.wait_ms).await,
            KeyLookup::New(line) => {
                info!(bytes = run.script.len(), "a command begins");
                match self.sandbox.spawn(self.command(&run, workdir)).await {
                    Ok(process) => {
                        process.close_input();
                        line.started(process);
                    }
                    Err(error) => line.failed(format!("it could not be started: {error}")),
                }
                command_state(&line, run.wait_ms).await
            }
        }
    }

    fn command(&self, run: &NodeRun, workdir: WorkPath) -> Command {
        let mut command = Command::new(run.script.as_str(), &self.folder);
        command.workdir = workdir;
        let timeout = Duration::from_secs(u64::from(run.timeout_seconds.max(1)));
        command.timeout = Some(timeout.min(MAX_COMMAND_DURATION));
        command.network = Network::Host;
        if self.sandbox.backend() == Backend::Plain {
            // The owner's own programs need these settings.
            for name in ["HOME", "PATH", "USER", "LANG"] {
                if let Ok(value) = std::env::var(name) {
                    command.env.insert(name.to_owned(), value);
                }
            }
        }
        command
    }
}

async fn command_state(line: &CommandRecord, wait_ms: u64) -> What {
    match line.wait_for_state(Duration::from_millis(wait_ms).min(MAX_WAIT)).await {
        Ok(ran) => What::Ran(NodeRan {
            ended: ran.ended.unwrap_or_default(),
            out: ran.out,
            err: ran.err,
            skipped: ran.skipped,
            took_ms: ran.took_ms,
        }),
        Err(why) => What::Refused(why),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::node::{IsolationMode, config};

    fn ask(script: &str, key: &str) -> NodeAsk {
        let run = NodeRun {
            key: key.to_owned(),
            script: script.to_owned(),
            workdir: String::new(),
            timeout_seconds: 60,
            wait_ms: 5_000,
        };
        NodeAsk { id: 7, what: Some(node_ask::What::Run(run)) }
    }

    async fn host(folder: &std::path::Path, patterns: &[&str]) -> anyhow::Result<Host> {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let allow = CommandAllowList::new(&patterns, patterns.is_empty())?;
        let sandbox = holdfast_sandbox::open(&config(IsolationMode::None)).await?;
        Ok(Host::new(sandbox, folder.canonicalize()?, allow))
    }

    fn ran(answer: NodeAnswer) -> anyhow::Result<NodeRan> {
        match answer.what {
            Some(What::Ran(ran)) => Ok(ran),
            other => anyhow::bail!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_key_that_comes_again_is_answered_and_not_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path(), &[]).await.unwrap();

        let first = ran(host.answer(ask("echo x >> ran; echo a; echo b >&2", "k")).await).unwrap();
        let again = ran(host.answer(ask("echo x >> ran; echo a; echo b >&2", "k")).await).unwrap();

        assert_eq!((first.out.as_str(), first.err.as_str()), ("a\n", "b\n"));
        assert_eq!(first.ended, "exited with code 0");
        assert_eq!(again, first);
        let ran = std::fs::read_to_string(folder.path().join("ran")).unwrap();
        assert_eq!(ran.lines().count(), 1);
        let recall = NodeRecall { key: "other".to_owned(), wait_ms: 0 };
        let recall = NodeAsk { id: 8, what: Some(node_ask::What::Recall(recall)) };
        let unknown = host.answer(recall).await;
        assert_eq!((unknown.id, unknown.what), (8, Some(What::NotKnown(NodeNotKnown {}))));
    }

    #[tokio::test]
    async fn a_command_outside_the_folder_or_the_list_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path(), &["pwd"]).await.unwrap();
        let mut outside = ask("pwd", "a");
        if let Some(node_ask::What::Run(run)) = &mut outside.what {
            run.workdir = "../..".to_owned();
        }

        let outside = host.answer(outside).await.what;
        let other = host.answer(ask("ls", "b")).await.what;

        assert!(matches!(outside, Some(What::Refused(_))), "{outside:?}");
        assert!(matches!(other, Some(What::Refused(_))), "{other:?}");
    }

    #[tokio::test]
    async fn a_flood_is_cut_to_its_newest() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path(), &[]).await.unwrap();

        let flood = "head -c 200000 /dev/zero | tr '\\0' x; echo end";
        let ran = ran(host.answer(ask(flood, "k")).await).unwrap();

        assert!(ran.out.ends_with("xend\n"), "{}", ran.out.len());
        assert!(ran.out.len() <= holdfast_types::MAX_NODE_OUTPUT_BYTES);
        assert_eq!(ran.skipped, 200_004 - u64::try_from(ran.out.len()).unwrap());
    }

    #[test]
    fn commands_end_with_the_program_that_ran_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let host = host(&path, &[]).await.unwrap();
            let mut slow = ask("touch begun; sleep 2; touch late", "k");
            if let Some(node_ask::What::Run(run)) = &mut slow.what {
                run.wait_ms = 500;
            }
            let ran = ran(host.answer(slow).await).unwrap();
            assert_eq!(ran.ended, "");
        });

        runtime.shutdown_background();

        thread::sleep(Duration::from_secs(3));
        assert!(path.join("begun").exists() && !path.join("late").exists());
    }
}
