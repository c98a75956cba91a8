//! Parent side: starts the child process and waits for its answer, with a timeout.

use std::{io, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use holdfast_kit::FairSlots;
use holdfast_types::TenantId;
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};
use tracing::{debug, warn};

use crate::{
    Document, DocumentFormat, Error, PageImage,
    child::{self, Task},
};

/// Maximum number of child processes at once; each may take 1 GiB.
const MAX_CHILDREN: usize = 2;

/// Maximum wait for a free child, and for its answer. Together they stay below the half minute that
/// callers wait.
const CHILD_WAIT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(12);

/// Maximum answer of a child, in bytes: the text, escaped, and what JSON adds for each page; or the
/// images of pages in base64.
const MAX_ANSWER_BYTES: u64 = 32 * 1024 * 1024;

/// Reader of documents, each in a process of its own. Clones share the limit on child processes.
#[derive(Debug, Clone)]
pub struct DocumentReader {
    program: PathBuf,
    /// Child processes, which tenants share fairly.
    slots: Arc<FairSlots<TenantId>>,
}

impl DocumentReader {
    /// `program` must call [`run_document_reader`](crate::run_document_reader) first in its `main`.
    pub fn new(program: PathBuf) -> Self {
        Self { program, slots: FairSlots::new(MAX_CHILDREN) }
    }

    /// Reader that starts the current executable.
    pub fn of_current_exe() -> io::Result<Self> {
        Ok(Self::new(std::env::current_exe()?))
    }

    /// Returns the text of a tenant's document.
    pub async fn read(
        &self,
        tenant: TenantId,
        format: DocumentFormat,
        content: &[u8],
    ) -> Result<Document, Error> {
        self.ask(tenant, Task::Text(format), content).await
    }

    /// Returns the images of the first pages of a tenant's PDF without text, as scanners make it.
    ///
    /// # Errors
    ///
    /// [`Error::ScannedPdf`] if its pages are no JPEG images.
    pub async fn scanned_pages(
        &self,
        tenant: TenantId,
        content: &[u8],
    ) -> Result<Vec<PageImage>, Error> {
        self.ask(tenant, Task::ScannedPages, content).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        tenant: TenantId,
        task: Task,
        content: &[u8],
    ) -> Result<T, Error> {
        let slot = timeout(CHILD_WAIT_TIMEOUT, self.slots.acquire(tenant)).await;
        let Ok(_slot) = slot else { return Err(Error::Busy) };
        let mut child = self.start(task).map_err(|error| {
            warn!(
                error = &error as &dyn std::error::Error,
                "the reader of documents cannot be started"
            );
            Error::NoReader
        })?;
        // On timeout the child is dropped, which kills it.
        let Ok(answered) = timeout(READ_TIMEOUT, answer(&mut child, content)).await else {
            return Err(Error::Heavy);
        };
        let (answer, is_done) = answered.map_err(|error| {
            warn!(
                error = &error as &dyn std::error::Error,
                "the reader of documents does not answer"
            );
            Error::NoReader
        })?;
        if !is_done {
            // The child hit its limits, or the library crashed it.
            debug!("the reader of documents has ended without an answer");
            return Err(Error::Heavy);
        }
        let read: Result<T, Error> = serde_json::from_slice(&answer).map_err(|_| {
            warn!("the program that should read documents answers something else");
            Error::NoReader
        })?;
        read
    }

    fn start(&self, task: Task) -> io::Result<Child> {
        Command::new(&self.program)
            .args([child::CHILD_ARGUMENT, child::task_argument(task)])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
    }
}

/// Writes the document to the child; returns the child's output, and whether it exited successfully.
async fn answer(child: &mut Child, content: &[u8]) -> io::Result<(Vec<u8>, bool)> {
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let tell = async move {
        // A child that exits before it has read everything reports the reason by its exit status.
        let _ = to.write_all(content).await;
        drop(to);
    };
    let mut answer = Vec::new();
    let mut from = from.take(MAX_ANSWER_BYTES);
    let (heard, ()) = tokio::join!(from.read_to_end(&mut answer), tell);
    heard?;
    let is_done = child.wait().await?.success();
    Ok((answer, is_done))
}
