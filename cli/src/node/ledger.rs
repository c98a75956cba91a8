//! Running and ended commands by key. A key is started once.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use holdfast_sandbox::{Process, State, Stream};
use holdfast_types::NodeRan;
use tokio::{sync::watch, time::timeout};

/// Maximum number of concurrent commands.
const MOST_RUNNING: usize = 8;

/// Maximum number of ended commands that are remembered.
const MOST_REMEMBERED: usize = 100;

#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<VecDeque<Arc<Line>>>);

#[derive(Debug)]
pub(super) struct Line {
    key: String,
    began: Instant,
    stage: watch::Sender<Stage>,
}

/// Progress of a command.
#[derive(Debug, Clone)]
enum Stage {
    Starting,
    Started(Arc<dyn Process>, watch::Receiver<Option<Duration>>),
    /// The command could not be started, for this reason.
    Failed(String),
}

/// Result of looking up a key.
pub(super) enum Entry {
    /// The key is new; its command is now starting.
    New(Arc<Line>),
    /// The key was used before.
    Known(Arc<Line>),
    /// The maximum number of commands is running.
    Full,
}

impl Ledger {
    /// Returns the command of a key, and registers a new one if there is none.
    pub(super) fn begin(&self, key: &str) -> Entry {
        let mut lines = self.lock();
        if let Some(known) = lines.iter().find(|line| line.key == key) {
            return Entry::Known(Arc::clone(known));
        }
        let running = lines.iter().filter(|line| !line.is_over()).count();
        if running >= MOST_RUNNING {
            return Entry::Full;
        }
        let mut excess = (lines.len() - running).saturating_sub(MOST_REMEMBERED - 1);
        lines.retain(|line| {
            let forget = excess > 0 && line.is_over();
            excess -= usize::from(forget);
            !forget
        });
        let (stage, _) = watch::channel(Stage::Starting);
        let line = Arc::new(Line { key: key.to_owned(), began: Instant::now(), stage });
        lines.push_back(Arc::clone(&line));
        Entry::New(line)
    }

    /// Returns the command of a key, if there is one.
    pub(super) fn find(&self, key: &str) -> Option<Arc<Line>> {
        self.lock().iter().find(|line| line.key == key).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
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
        self.stage.send_replace(Stage::Started(process, taken));
    }

    /// Records that the command could not be started.
    pub(super) fn failed(&self, why: String) {
        self.stage.send_replace(Stage::Failed(why));
    }

    fn is_over(&self) -> bool {
        match &*self.stage.borrow() {
            Stage::Starting => false,
            Stage::Started(process, _) => process.state() != State::Running,
            Stage::Failed(_) => true,
        }
    }

    /// Waits for the command to end, up to `patience`, and returns its state; or the reason why it
    /// did not start.
    pub(super) async fn stands(&self, patience: Duration) -> Result<NodeRan, String> {
        let mut stage = self.stage.subscribe();
        let is_begun = |stage: &Stage| !matches!(stage, Stage::Starting);
        // The caller that starts the command holds the sender and reports the result.
        let begun = stage.wait_for(is_begun).await.map(|stage| stage.clone());
        let (process, mut taken) = match begun {
            Ok(Stage::Started(process, taken)) => (process, taken),
            Ok(Stage::Failed(why)) => return Err(why),
            Ok(Stage::Starting) | Err(_) => return Err("it could not be started".to_owned()),
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
        let ran = NodeRan {
            ended,
            out: text(&out.bytes),
            err: text(&err.bytes),
            skipped: out.skipped.saturating_add(err.skipped),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        Ok(ran.cut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_is_new_once() {
        let ledger = Ledger::default();

        let Entry::New(line) = ledger.begin("a") else { panic!() };
        line.failed("no bash".to_owned());

        assert!(matches!(ledger.begin("a"), Entry::Known(_)));
        let known = ledger.find("a").unwrap();
        assert_eq!(known.stands(Duration::ZERO).await.unwrap_err(), "no bash");
        assert!(ledger.find("b").is_none());
    }

    #[test]
    fn only_so_many_run_at_once_and_so_many_are_remembered() {
        let ledger = Ledger::default();
        for number in 0..MOST_RUNNING {
            assert!(matches!(ledger.begin(&number.to_string()), Entry::New(_)));
        }
        assert!(matches!(ledger.begin("one more"), Entry::Full));

        let ledger = Ledger::default();
        for number in 0..500 {
            let Entry::New(line) = ledger.begin(&number.to_string()) else { panic!("{number}") };
            line.failed(String::new());
        }
        assert_eq!(ledger.lock().len(), MOST_REMEMBERED);
        assert!(ledger.find("0").is_none() && ledger.find("499").is_some());
    }
}
