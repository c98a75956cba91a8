//! Running what is asked, as far as the list lets it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use holdfast_proto::gateway::v1::{
    NodeAnswer, NodeAsk, NodeHello, NodeNotKnown, NodePong, NodeRan, NodeRecall, NodeRun,
    node_answer::What, node_ask,
};
use holdfast_sandbox::{Backend, Command, Network, Sandbox, WorkPath};
use tracing::info;

use super::{
    allow::Allow,
    ledger::{Entry, Ledger, Line},
};

/// The version of the contract that is spoken here.
const PROTOCOL: u32 = 1;

/// The longest that a command may take.
const LONGEST: Duration = Duration::from_mins(10);

/// The longest that anyone waits for one before it is said how it stands.
const MOST_PATIENCE: Duration = Duration::from_secs(30);

/// Runs commands on this machine.
#[derive(Debug)]
pub(super) struct Host {
    sandbox: Arc<dyn Sandbox>,
    folder: PathBuf,
    allow: Allow,
    ledger: Ledger,
}

impl Host {
    /// In a folder, as far as the list lets it.
    pub(super) fn new(sandbox: Arc<dyn Sandbox>, folder: PathBuf, allow: Allow) -> Self {
        Self { sandbox, folder, allow, ledger: Ledger::default() }
    }

    /// What this machine says of itself.
    pub(super) fn hello(&self) -> NodeHello {
        NodeHello {
            protocol: PROTOCOL,
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commands: self.allow.patterns(),
        }
    }

    /// Does what is asked, and answers.
    pub(super) async fn answer(&self, ask: NodeAsk) -> NodeAnswer {
        let what = match ask.what {
            Some(node_ask::What::Ping(_)) => What::Pong(NodePong {}),
            Some(node_ask::What::Run(run)) => self.run(run).await,
            Some(node_ask::What::Recall(NodeRecall { key, wait_ms })) => {
                match self.ledger.find(&key) {
                    Some(line) => stands(&line, wait_ms).await,
                    None => What::NotKnown(NodeNotKnown {}),
                }
            }
            None => What::Refused(
                "this machine's program is too old for that: update it".to_owned(),
            ),
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
            Entry::Full => {
                What::Refused("as many commands run here as may: wait for one to end".to_owned())
            }
            Entry::Known(line) => stands(&line, run.wait_ms).await,
            Entry::New(line) => {
                info!(bytes = run.script.len(), "a command begins");
                match self.sandbox.spawn(self.command(&run, workdir)).await {
                    Ok(process) => {
                        process.close_input();
                        line.started(process);
                    }
                    Err(error) => line.failed(format!("it could not be started: {error}")),
                }
                stands(&line, run.wait_ms).await
            }
        }
    }

    fn command(&self, run: &NodeRun, workdir: WorkPath) -> Command {
        let mut command = Command::new(run.script.as_str(), &self.folder);
        command.workdir = workdir;
        let timeout = Duration::from_secs(u64::from(run.timeout_seconds.max(1)));
        command.timeout = Some(timeout.min(LONGEST));
        command.network = Network::Host;
        if self.sandbox.backend() == Backend::Plain {
            // Its person's own programs, with their settings.
            for name in ["HOME", "PATH", "USER", "LANG"] {
                if let Ok(value) = std::env::var(name) {
                    command.env.insert(name.to_owned(), value);
                }
            }
        }
        command
    }
}

async fn stands(line: &Line, wait_ms: u64) -> What {
    match line.stands(Duration::from_millis(wait_ms).min(MOST_PATIENCE)).await {
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
