//! Background processes of sessions.
//!
//! Processes end with their session, and all of them end with this runner. After that, a stored
//! record of one can only say that it is lost.

use std::{
    collections::HashMap,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_types::{SessionId, TenantId};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::{Command, CommandEnd, Error, OutputChunk, Process, Sandbox, Signal, State, Stream};

/// Number of ended processes that are remembered per session.
const MAX_ENDED_PROCESSES: usize = 32;

/// Owner of a process. Other sessions and other tenants do not see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    pub tenant: TenantId,
    pub session: SessionId,
}

/// Id of a process within its session: `prc_` and a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId(Uuid);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "prc_{}", self.0.simple())
    }
}

impl FromStr for ProcessId {
    type Err = Error;

    /// Text that is not an id matches no process.
    fn from_str(text: &str) -> Result<Self, Error> {
        let uuid = text.strip_prefix("prc_").and_then(|uuid| Uuid::try_parse(uuid).ok());
        uuid.map(Self).ok_or(Error::NoSuchProcess)
    }
}

/// Process, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEntry {
    pub id: ProcessId,
    pub state: State,
    /// Time since the process was started.
    pub age: Duration,
}

/// Output of a process since it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadOutput {
    pub out: OutputChunk,
    pub err: OutputChunk,
    /// State before this was read: if it had ended, the output is complete.
    pub state: State,
}

/// Background processes of all sessions of this runner.
#[derive(Debug)]
pub struct Processes {
    sandbox: Arc<dyn Sandbox>,
    most: usize,
    sessions: Mutex<HashMap<Owner, Session>>,
}

/// Processes of a session, oldest first.
#[derive(Debug, Default)]
struct Session {
    processes: Vec<Arc<TrackedProcess>>,
    /// Number of processes that are being started.
    starting: usize,
}

#[derive(Debug)]
struct TrackedProcess {
    id: ProcessId,
    process: Box<dyn Process>,
    began: Instant,
    /// Byte numbers up to which standard output and standard error were read.
    read: Mutex<(u64, u64)>,
}

impl Session {
    fn running(&self) -> usize {
        let running = self.processes.iter().filter(|known| known.process.state() == State::Running);
        running.count() + self.starting
    }

    fn forget_oldest(&mut self) {
        let is_over = |known: &Arc<TrackedProcess>| known.process.state() != State::Running;
        let ended = self.processes.iter().filter(|known| is_over(known)).count();
        let mut excess = ended.saturating_sub(MAX_ENDED_PROCESSES);
        self.processes.retain(|known| {
            let forget = excess > 0 && is_over(known);
            excess -= usize::from(forget);
            !forget
        });
    }
}

/// Reservation of one process of a session, released on drop.
struct SpawnReservation<'a> {
    processes: &'a Processes,
    owner: Owner,
}

impl Drop for SpawnReservation<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.processes.sessions().get_mut(&self.owner) {
            session.starting = session.starting.saturating_sub(1);
        }
    }
}

impl Processes {
    /// Starts with no processes; a session may have `most` running at a time.
    #[must_use]
    pub fn new(sandbox: Arc<dyn Sandbox>, most: usize) -> Self {
        Self { sandbox, most, sessions: Mutex::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Owner, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, owner: Owner, id: ProcessId) -> Result<Arc<TrackedProcess>, Error> {
        let sessions = self.sessions();
        let known = sessions.get(&owner).and_then(|it| it.processes.iter().find(|it| it.id == id));
        known.cloned().ok_or(Error::NoSuchProcess)
    }

    /// Starts a process.
    ///
    /// # Errors
    ///
    /// If the session has reached its limit, or [`Sandbox::spawn`] fails.
    pub async fn spawn(&self, owner: Owner, command: Command) -> Result<ProcessId, Error> {
        let place = self.reserve(owner)?;
        let command = Command { tenant: Some(owner.tenant), ..command };
        let process = self.sandbox.spawn(command).await?;
        let id = ProcessId(Uuid::now_v7());
        let known = TrackedProcess { id, process, began: Instant::now(), read: Mutex::default() };
        // Between these two steps the process counts twice, so a spawn may be refused but the limit
        // is never exceeded. If the owner left meanwhile, the process is dropped, which kills it.
        match self.sessions().get_mut(&owner) {
            Some(session) => session.processes.push(Arc::new(known)),
            None => return Err(Error::NoSuchProcess),
        }
        drop(place);
        Ok(id)
    }

    fn reserve(&self, owner: Owner) -> Result<SpawnReservation<'_>, Error> {
        let mut sessions = self.sessions();
        let session = sessions.entry(owner).or_default();
        if session.running() >= self.most {
            return Err(Error::TooManyProcesses { most: self.most });
        }
        session.forget_oldest();
        session.starting += 1;
        Ok(SpawnReservation { processes: self, owner })
    }

    /// Lists the session's processes, oldest first. Ended ones beyond the limit are forgotten.
    #[must_use]
    pub fn list(&self, owner: Owner) -> Vec<ProcessEntry> {
        let sessions = self.sessions();
        let known = sessions.get(&owner).map_or(&[][..], |session| &session.processes);
        let listed = |known: &Arc<TrackedProcess>| ProcessEntry {
            id: known.id,
            state: known.process.state(),
            age: known.began.elapsed(),
        };
        known.iter().map(listed).collect()
    }

    /// Waits until a process has ended, but at most for `patience`; returns its state.
    ///
    /// # Errors
    ///
    /// If the session has no such process.
    pub async fn wait(
        &self,
        owner: Owner,
        id: ProcessId,
        patience: Duration,
    ) -> Result<State, Error> {
        let known = self.find(owner, id)?;
        let ended = timeout(patience, known.process.ended()).await;
        Ok(ended.map_or(State::Running, |ended: CommandEnd| State::Ended(ended)))
    }

    /// Returns the output of a process since the last call.
    ///
    /// # Errors
    ///
    /// If the session has no such process.
    pub fn unread(&self, owner: Owner, id: ProcessId) -> Result<UnreadOutput, Error> {
        let known = self.find(owner, id)?;
        let state = known.process.state();
        let mut read = known.read.lock().unwrap_or_else(PoisonError::into_inner);
        let out = known.process.read(Stream::Out, read.0);
        let err = known.process.read(Stream::Err, read.1);
        *read = (out.next, err.next);
        Ok(UnreadOutput { out, err, state })
    }

    /// Writes to a process' input.
    ///
    /// # Errors
    ///
    /// If the session has no such process, or the process takes no input any more.
    pub async fn write(&self, owner: Owner, id: ProcessId, bytes: Vec<u8>) -> Result<(), Error> {
        self.find(owner, id)?.process.write(bytes).await
    }

    /// Closes a process' input.
    ///
    /// # Errors
    ///
    /// If the session has no such process.
    pub fn close_input(&self, owner: Owner, id: ProcessId) -> Result<(), Error> {
        self.find(owner, id)?.process.close_input();
        Ok(())
    }

    /// Sends a signal to a process and its descendants.
    ///
    /// # Errors
    ///
    /// If the session has no such process.
    pub fn signal(&self, owner: Owner, id: ProcessId, signal: Signal) -> Result<(), Error> {
        self.find(owner, id)?.process.signal(signal);
        Ok(())
    }

    /// Asks a process to end, kills it if it does not, and returns how it ended.
    ///
    /// # Errors
    ///
    /// If the session has no such process.
    pub async fn stop(&self, owner: Owner, id: ProcessId) -> Result<CommandEnd, Error> {
        let known = self.find(owner, id)?;
        known.process.stop();
        Ok(known.process.ended().await)
    }

    /// Forgets a process, and kills it if it runs.
    pub fn forget(&self, owner: Owner, id: ProcessId) {
        let mut sessions = self.sessions();
        let Some(session) = sessions.get_mut(&owner) else { return };
        let at = session.processes.iter().position(|known| known.id == id);
        let known = at.map(|at| session.processes.remove(at));
        if session.processes.is_empty() && session.starting == 0 {
            sessions.remove(&owner);
        }
        drop(sessions);
        if let Some(known) = known {
            // A waiting call may still hold the process, so dropping it is not enough.
            known.process.signal(Signal::Kill);
        }
    }
}
