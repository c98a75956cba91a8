//! Execution of commands that the allow-list permits.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use holdfast_grpc::{InvalidNodeCommand, NodeCommandKeys, NodeIdentity, now_ms};
use holdfast_proto::gateway::v1::{
    NodeAnswer, NodeAsk, NodeCommand, NodeHello, NodeNotKnown, NodePong, NodeRan, NodeRecall,
    NodeRun, NodeWelcome, node_answer::What, node_ask,
};
use holdfast_sandbox::{Backend, Command, Network, Sandbox, WorkPath};
use tonic::Status;
use tracing::{info, warn};

use super::{
    allow::CommandAllowList,
    command_key::CommandKeyFile,
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
    key_file: CommandKeyFile,
    started_at_ms: u64,
    /// Who this node is; `None` before it has connected.
    identity: Mutex<Option<NodeIdentity>>,
    /// Expiry and key of each accepted command, until it expires.
    seen: Mutex<BTreeSet<(u64, String)>>,
}

impl Host {
    /// Creates a host that runs commands in `folder`.
    pub(super) fn new(
        sandbox: Arc<dyn Sandbox>,
        folder: PathBuf,
        allow: CommandAllowList,
        key_file: CommandKeyFile,
    ) -> Self {
        Self {
            sandbox,
            folder,
            allow,
            ledger: CommandLog::default(),
            key_file,
            started_at_ms: now_ms(),
            identity: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// Accepts a gateway's welcome, after which commands can be verified.
    ///
    /// # Errors
    ///
    /// If the gateway tells another key for commands than before.
    pub(super) fn accept_welcome(&self, welcome: NodeWelcome) -> Result<(), Status> {
        let NodeWelcome { id: node, tenant_id: tenant, command_key, .. } = welcome;
        if command_key.is_empty() {
            warn!("the gateway has no key for commands: none will run here");
            return Ok(());
        }
        let keys = NodeCommandKeys::parse(&command_key).ok_or_else(|| {
            Status::permission_denied("the gateway tells no key for commands: update this program")
        })?;
        let command_keys = self.key_file.check(&keys, &tenant, &node)?;
        let started_at_ms = self.started_at_ms;
        let identity = NodeIdentity { tenant, node, command_keys, started_at_ms };
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
        Ok(())
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

    /// Returns the command that a runner signed for this node.
    fn verify(&self, run: NodeRun) -> Result<NodeCommand, InvalidNodeCommand> {
        let identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone();
        identity.ok_or(InvalidNodeCommand::Unsigned)?.verify(run.signed)
    }

    /// Whether a command is new. One that was received before is not run again, even when the
    /// record of it is gone.
    fn is_new(&self, command: &NodeCommand) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now_ms();
        while seen.first().is_some_and(|(expires_at_ms, _)| *expires_at_ms <= now) {
            seen.pop_first();
        }
        seen.insert((command.expires_at_ms, command.key.clone()))
    }

    async fn run(&self, run: NodeRun) -> What {
        let wait_ms = run.wait_ms;
        let run = match self.verify(run) {
            Ok(command) => command,
            Err(error) => {
                warn!(%error, "a command is refused");
                return What::Refused(error.to_string());
            }
        };
        if !self.is_new(&run) && self.ledger.find(&run.key).is_none() {
            return What::Refused(InvalidNodeCommand::Replayed.to_string());
        }
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
            KeyLookup::Known(line) => command_state(&line, wait_ms).await,
            KeyLookup::New(line) => {
                info!(bytes = run.script.len(), "a command begins");
                match self.sandbox.spawn(self.command(&run, workdir)).await {
                    Ok(process) => {
                        process.close_input();
                        line.started(process);
                    }
                    Err(error) => line.failed(format!("it could not be started: {error}")),
                }
                command_state(&line, wait_ms).await
            }
        }
    }

    fn command(&self, run: &NodeCommand, workdir: WorkPath) -> Command {
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

    use holdfast_grpc::NodeCommandSigner;

    use super::*;
    use crate::node::{IsolationMode, config};

    fn mesh() -> holdfast_kit::config::Mesh {
        let secret = "the secret of a mesh of tests".into();
        holdfast_kit::config::Mesh { secret, ..holdfast_kit::config::Mesh::default() }
    }

    fn ask(script: &str, key: &str) -> NodeAsk {
        ask_in("", script, key, 5_000)
    }

    /// A command as a runner of the installation sends it.
    fn ask_in(workdir: &str, script: &str, key: &str, wait_ms: u64) -> NodeAsk {
        let signer = NodeCommandSigner::new(&mesh()).unwrap().unwrap();
        let signed = signer.sign(NodeCommand {
            tenant_id: "ten_1".to_owned(),
            node_id: "nod_1".to_owned(),
            key: key.to_owned(),
            script: script.to_owned(),
            workdir: workdir.to_owned(),
            timeout_seconds: 60,
            ..NodeCommand::default()
        });
        let run = NodeRun { signed: Some(signed), wait_ms, ..NodeRun::default() };
        NodeAsk { id: 7, what: Some(node_ask::What::Run(run)) }
    }

    fn welcome() -> NodeWelcome {
        NodeWelcome {
            id: "nod_1".to_owned(),
            name: "laptop".to_owned(),
            tenant_id: "ten_1".to_owned(),
            command_key: holdfast_grpc::node_public_key(&mesh()).unwrap(),
        }
    }

    async fn host(folder: &std::path::Path, patterns: &[&str]) -> anyhow::Result<Host> {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let allow = CommandAllowList::new(&patterns, patterns.is_empty())?;
        let sandbox = holdfast_sandbox::open(&config(IsolationMode::None)).await?;
        let key_file = CommandKeyFile::new(folder.join("key"));
        let host = Host::new(sandbox, folder.canonicalize()?, allow, key_file);
        host.accept_welcome(welcome())?;
        Ok(host)
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
    async fn a_command_that_no_runner_signed_or_that_comes_again_does_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path(), &[]).await.unwrap();
        let mut unsigned = ask("echo x >> ran", "a");
        let mut changed = ask("echo x >> ran", "b");
        if let Some(node_ask::What::Run(run)) = &mut unsigned.what {
            *run = NodeRun { script: "echo x >> ran".to_owned(), ..NodeRun::default() };
        }
        if let Some(node_ask::What::Run(run)) = &mut changed.what {
            let signed = run.signed.as_mut().unwrap();
            let at = signed.command.windows(3).position(|bytes| bytes == b"ran").unwrap();
            signed.command[at] = b'R';
        }
        let once = ask("echo x >> ran", "c");
        ran(host.answer(once.clone()).await).unwrap();
        // Other commands displace the record of the first.
        for other in 0..100 {
            ran(host.answer(ask("true", &format!("other {other}"))).await).unwrap();
        }

        for (refused, why) in
            [(unsigned, "not signed"), (changed, "did not send it"), (once, "received before")]
        {
            let answer = host.answer(refused).await.what;
            assert!(
                matches!(&answer, Some(What::Refused(told)) if told.contains(why)),
                "{answer:?}"
            );
        }
        let ran = std::fs::read_to_string(folder.path().join("ran")).unwrap();
        assert_eq!(ran.lines().count(), 1);
    }

    #[tokio::test]
    async fn a_node_stays_connected_and_runs_commands_while_the_runners_key_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path(), &[]).await.unwrap();
        let next = || holdfast_kit::config::Mesh {
            node_key: "the next key of the runners".into(),
            ..holdfast_kit::config::Mesh::default()
        };
        let command = |mesh: &holdfast_kit::config::Mesh, key: &str| {
            let signer = NodeCommandSigner::new(mesh).unwrap().unwrap();
            let signed = signer.sign(NodeCommand {
                tenant_id: "ten_1".to_owned(),
                node_id: "nod_1".to_owned(),
                key: key.to_owned(),
                script: "true".to_owned(),
                timeout_seconds: 60,
                ..NodeCommand::default()
            });
            let run = NodeRun { signed: Some(signed), wait_ms: 5_000, ..NodeRun::default() };
            NodeAsk { id: 7, what: Some(node_ask::What::Run(run)) }
        };
        let told = |mesh: &holdfast_kit::config::Mesh| NodeWelcome {
            command_key: holdfast_grpc::node_public_key(mesh).unwrap(),
            ..welcome()
        };
        let previous_node_key = mesh().secret;
        let rotating = holdfast_kit::config::Mesh { previous_node_key, ..next() };

        host.accept_welcome(told(&rotating)).unwrap();
        ran(host.answer(command(&mesh(), "of a runner with the old key")).await).unwrap();
        ran(host.answer(command(&next(), "of a runner with the new key")).await).unwrap();
        host.accept_welcome(told(&next())).unwrap();

        ran(host.answer(command(&next(), "after it")).await).unwrap();
        let refused = host.answer(command(&mesh(), "of a stolen old key")).await.what;
        assert!(matches!(refused, Some(What::Refused(_))), "{refused:?}");
        assert!(host.accept_welcome(welcome()).is_err());
    }

    #[tokio::test]
    async fn a_gateway_that_tells_another_key_later_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path(), &[]).await.unwrap();

        for other in [
            NodeWelcome { command_key: vec![7; 32], ..welcome() },
            NodeWelcome { id: "nod_2".to_owned(), ..welcome() },
            NodeWelcome { tenant_id: "ten_2".to_owned(), ..welcome() },
        ] {
            let refused = host.accept_welcome(other).unwrap_err();
            assert!(refused.message().contains("another key for commands"), "{refused}");
        }
        host.accept_welcome(welcome()).unwrap();
        ran(host.answer(ask("true", "k")).await).unwrap();
    }

    #[tokio::test]
    async fn a_command_outside_the_folder_or_the_list_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path(), &["pwd"]).await.unwrap();
        let outside = host.answer(ask_in("../..", "pwd", "a", 5_000)).await.what;
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
            let slow = ask_in("", "touch begun; sleep 2; touch late", "k", 500);
            let ran = ran(host.answer(slow).await).unwrap();
            assert_eq!(ran.ended, "");
        });

        runtime.shutdown_background();

        thread::sleep(Duration::from_secs(3));
        assert!(path.join("begun").exists() && !path.join("late").exists());
    }
}
