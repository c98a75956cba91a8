//! Starts the process that reads, and waits for it no longer than it may take.

use std::{io, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    sync::Semaphore,
    time::timeout,
};
use tracing::{debug, warn};

use crate::{Document, Error, child};

/// How many are read at once: each may take a gigabyte.
const AT_ONCE: usize = 2;

/// How long one waits for its turn, and how long it is then read: callers wait for half a minute.
const TURN: Duration = Duration::from_secs(5);
const READING: Duration = Duration::from_secs(12);

/// The largest answer: the text, escaped, and what is said about each page.
const LARGEST: u64 = 32 * 1024 * 1024;

/// Reads PDFs, each in a process of its own.
#[derive(Debug, Clone)]
pub struct Reader {
    program: PathBuf,
    turns: Arc<Semaphore>,
}

impl Reader {
    /// One that starts a program which calls [`as_child`](crate::as_child) first.
    pub fn new(program: PathBuf) -> Self {
        Self { program, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// One that starts the program that runs.
    ///
    /// # Errors
    ///
    /// If the system does not say where that is.
    pub fn of_this_program() -> io::Result<Self> {
        Ok(Self::new(std::env::current_exe()?))
    }

    /// What a PDF says.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or not now.
    pub async fn read(&self, content: &[u8]) -> Result<Document, Error> {
        let turn = timeout(TURN, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(Error::Busy) };
        let mut child = self.start().map_err(|error| {
            warn!(error = &error as &dyn std::error::Error, "the reader of PDFs cannot be started");
            Error::NoReader
        })?;
        // A child that is dropped is ended.
        let Ok(answered) = timeout(READING, answer(&mut child, content)).await else {
            return Err(Error::Heavy);
        };
        let (answer, is_done) = answered.map_err(|error| {
            warn!(error = &error as &dyn std::error::Error, "the reader of PDFs does not answer");
            Error::NoReader
        })?;
        if !is_done {
            // Its limits ended it, or what the library did.
            debug!("the reader of PDFs has ended without an answer");
            return Err(Error::Heavy);
        }
        let read: Result<Document, Error> = serde_json::from_slice(&answer).map_err(|_| {
            warn!("the program that should read PDFs answers something else");
            Error::NoReader
        })?;
        read
    }

    fn start(&self) -> io::Result<Child> {
        Command::new(&self.program)
            .arg(child::WORD)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
    }
}

/// What the child says, and whether it ended well.
async fn answer(child: &mut Child, content: &[u8]) -> io::Result<(Vec<u8>, bool)> {
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let tell = async move {
        // One that ends before it has read everything says by its end why.
        let _ = to.write_all(content).await;
        drop(to);
    };
    let mut answer = Vec::new();
    let mut from = from.take(LARGEST);
    let (heard, ()) = tokio::join!(from.read_to_end(&mut answer), tell);
    heard?;
    let is_done = child.wait().await?.success();
    Ok((answer, is_done))
}
