//! Background processes, each a session's, and gone with it.
//!
//! They are this runner's: after it ends none of them is left, and whoever keeps a record of
//! one says that it is lost.

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

use crate::{Chunk, Command, Ended, Error, Process, Sandbox, Signal, State, Stream};

/// How many processes of a session that have ended are remembered.
const REMEMBERED: usize = 32;

/// Whose a process is. Another session does not see it, another tenant's neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The tenant.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
}

/// Names a process within its session: `prc_` and a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId(Uuid);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "prc_{}", self.0.simple())
    }
}

impl FromStr for ProcessId {
    type Err = Error;

    /// What is no id names no process.
    fn from_str(text: &str) -> Result<Self, Error> {
        let uuid = text.strip_prefix("prc_").and_then(|uuid| Uuid::try_parse(uuid).ok());
        uuid.map(Self).ok_or(Error::NoSuchProcess)
    }
}

/// A process, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub id: ProcessId,
    /// How it stands.
    pub state: State,
    /// How long ago it was started.
    pub age: Duration,
}

/// What a process wrote since it was last asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// To its standard output.
    pub out: Chunk,
    /// To its standard error.
    pub err: Chunk,
    /// How it stood before this was read: if it had ended, this is all.
    pub state: State,
}

/// The background processes of all sessions in this process.
#[derive(Debug)]
pub struct Processes {
    sandbox: Arc<dyn Sandbox>,
    most: usize,
    sessions: Mutex<HashMap<Owner, Session>>,
}

/// A session's processes, oldest first.
#[derive(Debug, Default)]
struct Session {
    known: Vec<Arc<Known>>,
    /// How many are being started.
    starting: usize,
}

#[derive(Debug)]
struct Known {
    id: ProcessId,
    process: Box<dyn Process>,
    began: Instant,
    /// Up to where each stream was read.
    read: Mutex<(u64, u64)>,
}

impl Session {
    fn running(&self) -> usize {
        let running = self.known.iter().filter(|known| known.process.state() == State::Running);
        running.count() + self.starting
    }

    fn forget_oldest(&mut self) {
        let is_over = |known: &Arc<Known>| known.process.state() != State::Running;
        let ended = self.known.iter().filter(|known| is_over(known)).count();
        let mut excess = ended.saturating_sub(REMEMBERED);
        self.known.retain(|known| {
            let forget = excess > 0 && is_over(known);
            excess -= usize::from(forget);
            !forget
        });
    }
}

/// A place among a session's processes, given back if nothing came of it.
struct Place<'a> {
    processes: &'a Processes,
    owner: Owner,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.processes.sessions().get_mut(&self.owner) {
            session.starting = session.starting.saturating_sub(1);
        }
    }
}

impl Processes {
    /// Starts with none; a session may have `most` running at a time.
    #[must_use]
    pub fn new(sandbox: Arc<dyn Sandbox>, most: usize) -> Self {
        Self { sandbox, most, sessions: Mutex::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Owner, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, owner: Owner, id: ProcessId) -> Result<Arc<Known>, Error> {
        let sessions = self.sessions();
        let known = sessions.get(&owner).and_then(|it| it.known.iter().find(|it| it.id == id));
        known.cloned().ok_or(Error::NoSuchProcess)
    }

    /// Starts a process.
    ///
    /// # Errors
    ///
    /// If the session has as many as it may, or [`Sandbox::spawn`] fails.
    pub async fn spawn(&self, owner: Owner, command: Command) -> Result<ProcessId, Error> {
        let place = self.place(owner)?;
        let process = self.sandbox.spawn(command).await?;
        let id = ProcessId(Uuid::now_v7());
        let known = Known { id, process, began: Instant::now(), read: Mutex::default() };
        // Between these two it is counted twice, which refuses rather than exceeds. If its
        // owner left meanwhile it is dropped, which kills it.
        match self.sessions().get_mut(&owner) {
            Some(session) => session.known.push(Arc::new(known)),
            None => return Err(Error::NoSuchProcess),
        }
        drop(place);
        Ok(id)
    }

    fn place(&self, owner: Owner) -> Result<Place<'_>, Error> {
        let mut sessions = self.sessions();
        let session = sessions.entry(owner).or_default();
        if session.running() >= self.most {
            return Err(Error::TooManyProcesses { most: self.most });
        }
        session.forget_oldest();
        session.starting += 1;
        Ok(Place { processes: self, owner })
    }

    /// The session's processes, oldest first; those that ended long ago are forgotten.
    #[must_use]
    pub fn list(&self, owner: Owner) -> Vec<Listed> {
        let sessions = self.sessions();
        let known = sessions.get(&owner).map_or(&[][..], |session| &session.known);
        let listed = |known: &Arc<Known>| Listed {
            id: known.id,
            state: known.process.state(),
            age: known.began.elapsed(),
        };
        known.iter().map(listed).collect()
    }

    /// How a process stands once it has ended, or after this time.
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
        Ok(ended.map_or(State::Running, |ended: Ended| State::Ended(ended)))
    }

    /// What a process wrote since this was last called.
    ///
    /// # Errors
    ///
    /// If the session has no such process.
    pub fn unread(&self, owner: Owner, id: ProcessId) -> Result<Unread, Error> {
        let known = self.find(owner, id)?;
        let state = known.process.state();
        let mut read = known.read.lock().unwrap_or_else(PoisonError::into_inner);
        let out = known.process.read(Stream::Out, read.0);
        let err = known.process.read(Stream::Err, read.1);
        *read = (out.next, err.next);
        Ok(Unread { out, err, state })
    }

    /// Writes to a process' input.
    ///
    /// # Errors
    ///
    /// If the session has no such process, or it takes no input any more.
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

    /// Sends a signal to a process and all that it started.
    ///
    /// # Errors
    ///
    /// If the session has no such process.
    pub fn signal(&self, owner: Owner, id: ProcessId, signal: Signal) -> Result<(), Error> {
        self.find(owner, id)?.process.signal(signal);
        Ok(())
    }

    /// Ends a process, by asking and then by killing, and says how it ended.
    ///
    /// # Errors
    ///
    /// If the session has no such process.
    pub async fn stop(&self, owner: Owner, id: ProcessId) -> Result<Ended, Error> {
        let known = self.find(owner, id)?;
        known.process.stop();
        Ok(known.process.ended().await)
    }

    /// Forgets a process, and kills it if it runs.
    pub fn forget(&self, owner: Owner, id: ProcessId) {
        let mut sessions = self.sessions();
        let Some(session) = sessions.get_mut(&owner) else { return };
        let at = session.known.iter().position(|known| known.id == id);
        let known = at.map(|at| session.known.remove(at));
        if session.known.is_empty() && session.starting == 0 {
            sessions.remove(&owner);
        }
        drop(sessions);
        if let Some(known) = known {
            // Someone may be waiting for it still, and hold it.
            known.process.signal(Signal::Kill);
        }
    }

    /// Kills and forgets all that a session has; for when it ends, or leaves this runner.
    pub fn end_all(&self, owner: Owner) {
        let ended = self.sessions().remove(&owner);
        for known in ended.into_iter().flat_map(|session| session.known) {
            // Someone may be waiting for it still, and hold it.
            known.process.signal(Signal::Kill);
        }
    }
}
