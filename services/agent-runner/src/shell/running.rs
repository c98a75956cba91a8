//! A running command and its folder.
//!
//! ## What can go wrong
//!
//! The caller that waits for a command may be cancelled: the session was lost or this process
//! stops. Then the command is killed and its changes are discarded, as nobody could be told of
//! them. The folder is reused only after the command has exited.

use std::time::Duration;

use holdfast_sandbox::{Ended, Limit, Owner, ProcessId, Signal, Unread};
use holdfast_tools::{Kept, Ran, Stands, Written};
use holdfast_workspace::By;
use tokio::time::Instant;

use super::{Shell, folders::Folder, keep::keep};

/// Time for a killed command to exit.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// A running command. Dropping it kills the command.
#[derive(Debug)]
pub(super) struct Running {
    shell: Shell,
    pub(super) owner: Owner,
    pub(super) id: ProcessId,
    pub(super) began: Instant,
    by: By,
    folder: Option<Folder>,
}

impl Running {
    pub(super) fn new(shell: Shell, owner: Owner, id: ProcessId, by: By, folder: Folder) -> Self {
        let began = Instant::now();
        Self { shell, owner, id, began, by, folder: Some(folder) }
    }

    /// Commits the changes of a command that has ended, and releases its folder.
    pub(super) async fn keep(&mut self, ended: Ended) -> Kept {
        let Some(mut folder) = self.folder.take() else { return Kept::default() };
        if ended == Ended::Limit(Limit::Disk) {
            let note = "nothing that it changed was kept: it wrote too much".to_owned();
            return Kept { notes: vec![note], ..Kept::default() };
        }
        keep(&mut folder, &self.by).await
    }

    /// Output since the last call.
    pub(super) fn unread(&self) -> Option<Unread> {
        self.shell.0.processes.unread(self.owner, self.id).ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Without a folder, the command has ended and its changes are saved.
        let Some(folder) = self.folder.take() else { return };
        let (shell, owner, id) = (self.shell.clone(), self.owner, self.id);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let processes = &shell.0.processes;
            drop(processes.signal(owner, id, Signal::Kill));
            drop(processes.wait(owner, id, LAST_BREATH).await);
            processes.forget(owner, id);
            drop(folder);
        });
    }
}

/// Result of a command for the tool.
pub(super) fn ran(
    stands: Stands,
    unread: Option<Unread>,
    took: Duration,
    kept: Option<Kept>,
) -> Ran {
    let written = |chunk: holdfast_sandbox::Chunk| Written {
        text: String::from_utf8_lossy(&chunk.bytes).into_owned(),
        skipped: chunk.skipped,
    };
    let (out, err) = match unread {
        Some(Unread { out, err, .. }) => (written(out), written(err)),
        None => (Written::default(), Written::default()),
    };
    Ran { stands, out, err, took, kept }
}

pub(super) fn stands(ended: Ended) -> Stands {
    match ended {
        Ended::Exited(code) => Stands::Exited(code),
        Ended::Signalled(_) | Ended::TimedOut | Ended::Cancelled | Ended::Limit(_) => {
            Stands::Ended(ended.to_string())
        }
    }
}
