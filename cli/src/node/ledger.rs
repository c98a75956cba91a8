//! Running and ended commands by key. A key is started once.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use holdfast_sandbox::{Process, State, Stream};
use holdfast_types::NodeCommandState;
use tokio::{sync::watch, time::timeout};

/// Maximum number of concurrent commands.
const MAX_RUNNING_COMMANDS: usize = 8;

/// Maximum number of ended commands that are remembered.
const MAX_REMEMBERED_COMMANDS: usize = 100;

#[derive(Debug, Default)]
pub(super) struct CommandLog(Mutex<VecDeque<Arc<CommandRecord>>>);

#[derive(Debug)]
pub(super) struct CommandRecord {
    key: String,
    began: Instant,
    stage: watch::Sender<CommandStage>,
}

/// Progress of a command.
#[derive(Debug, Clone)]
enum CommandStage {
    Starting,
    Started(Arc<dyn Process>, watch::Receiver<Option<Duration>>),
    /// The command could not be started, for this reason.
    Failed(String),
}

/// Result of looking up a key.
pub(super) enum KeyLookup {
    /// The key is new; its command is now starting.
    New(Arc<CommandRecord>),
    /// The key was used before.
    Known(Arc<CommandRecord>),
    /// The maximum number of commands is running.
    Full,
}

impl CommandLog {
    /// Returns the command of a key, and registers a new one if there is none.
    pub(super) fn begin(&self, key: &str) -> KeyLookup {
        let mut lines = self.lock();
        if let Some(known) = lines.iter().find(|line| line.key == key) {
            return KeyLookup::Known(Arc::clone(known));
        }
        let running = lines.iter().filter(|line| !line.is_over()).count();
        if running >= MAX_RUNNING_COMMANDS {
            return KeyLookup::Full;
        }
        let mut excess = (lines.len() - running).saturating_sub(MAX_REMEMBERED_COMMANDS - 1);
        lines.retain(|line| {
            let forget = excess > 0 && line.is_over();
            excess -= usize::from(forget);
            !forget
        });
        let (stage, _) = watch::channel(CommandStage::Starting);
        let line = Arc::new(CommandRecord { key: key.to_owned(), began: Instant::now(), stage });
        lines.push_back(Arc::clone(&line));
        KeyLookup::New(line)
    }

    /// Returns the command of a key, if there is one.
    pub(super) fn find(&self, key: &str) -> Option<Arc<CommandRecord>> {
        self.lock().iter().find(|line| line.key == key).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<CommandRecord>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandRecord {
    /// Records that the command was started.
    pub(super) fn started(&self, process: Box<dyn Process>) {
        let process: Arc<dyn Process> = process.into();
        let (took, taken) = watch::channel(None);
        let (watched, began) = (Arc::clone(&process), self.began);
        // Watched in the background, so that the duration is known whenever it is asked for.
        tokio::spawn(async move {
            watched.ended().await;
            took.send_replace(Some(began.elapsed()));
        });
        self.stage.send_replace(CommandStage::Started(process, taken));
    }

    /// Records that the command could not be started.
    pub(super) fn failed(&self, why: String) {
        self.stage.send_replace(CommandStage::Failed(why));
    }

    fn is_over(&self) -> bool {
        match &*self.stage.borrow() {
            CommandStage::Starting => false,
            CommandStage::Started(process, _) => process.state() != State::Running,
            CommandStage::Failed(_) => true,
        }
    }

    /// Waits for the command to end, up to `patience`, and returns its state; or the reason why it
    /// did not start.
    pub(super) async fn wait_for_state(
        &self,
        patience: Duration,
    ) -> Result<NodeCommandState, String> {
        let mut stage = self.stage.subscribe();
        let is_begun = |stage: &CommandStage| !matches!(stage, CommandStage::Starting);
        // The caller that starts the command holds the sender and reports the result.
        let begun = stage.wait_for(is_begun).await.map(|stage| stage.clone());
        let (process, mut taken) = match begun {
            Ok(CommandStage::Started(process, taken)) => (process, taken),
            Ok(CommandStage::Failed(why)) => return Err(why),
            Ok(CommandStage::Starting) | Err(_) => return Err("it could not be started".to_owned()),
        };
        drop(timeout(patience, taken.wait_for(Option::is_some)).await);
        let took = *taken.borrow();
        let ended = match process.state() {
            State::Running => None,
            State::Ended(ended) => Some(ended.to_string()),
        };
        let (out, err) = (process.read(Stream::Out, 0), process.read(Stream::Err, 0));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let took = took.unwrap_or_else(|| self.began.elapsed());
        let ran = NodeCommandState {
            ended,
            out: text(&out.bytes),
            err: text(&err.bytes),
            skipped: out.skipped.saturating_add(err.skipped),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        Ok(ran.truncated())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_is_new_once() {
        let ledger = CommandLog::default();

        let KeyLookup::New(line) = ledger.begin("a") else { panic!() };
        line.failed("no bash".to_owned());

        assert!(matches!(ledger.begin("a"), KeyLookup::Known(_)));
        let known = ledger.find("a").unwrap();
        assert_eq!(known.wait_for_state(Duration::ZERO).await.unwrap_err(), "no bash");
        assert!(ledger.find("b").is_none());
    }

    #[test]
    fn only_so_many_run_at_once_and_so_many_are_remembered() {
        let ledger = CommandLog::default();
        for number in 0..MAX_RUNNING_COMMANDS {
            assert!(matches!(ledger.begin(&number.to_string()), KeyLookup::New(_)));
        }
        assert!(matches!(ledger.begin("one more"), KeyLookup::Full));

        let ledger = CommandLog::default();
        for number in 0..500 {
            let KeyLookup::New(line) = ledger.begin(&number.to_string()) else {
                panic!("{number}")
            };
            line.failed(String::new());
        }
        assert_eq!(ledger.lock().len(), MAX_REMEMBERED_COMMANDS);
        assert!(ledger.find("0").is_none() && ledger.find("499").is_some());
    }
}
