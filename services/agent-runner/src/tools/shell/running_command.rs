//! A running command and its folder.
//!
//! ## What can go wrong
//!
//! The caller that waits for a command may be cancelled: the session was lost or this process
//! stops. Then the command is killed and its changes are discarded, as nobody could be told of
//! them. The folder is reused only after the command has exited.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use holdfast_sandbox::{CommandEnd, Limit, Owner, ProcessId, Signal, UnreadOutput};
use holdfast_tools::{CommandResult, CommandState, StreamOutput, WorkspaceChanges};
use holdfast_workspace::ChangeAuthor;
use tokio::time::Instant;

use super::{Shell, commit::commit_changes, folders::Folder};

/// Time for a killed command to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A running command. Dropping it kills the command.
#[derive(Debug)]
pub(super) struct RunningCommand {
    shell: Shell,
    pub(super) owner: Owner,
    pub(super) id: ProcessId,
    pub(super) began: Instant,
    by: ChangeAuthor,
    folder: Option<Folder>,
    pub(super) traits: CommandTraits,
}

/// Facts about a command that decide what it may do. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct CommandTraits {
    /// The command could read text from outside, or a conversation that wrote to it has. Then its
    /// files are marked, and its changes of the agent's instructions are not kept.
    outside: Arc<AtomicBool>,
    /// The command needed an approval; so does its input.
    pub(super) is_approved: bool,
    /// What the command writes is not kept.
    is_read_only: bool,
}

impl CommandTraits {
    pub(super) fn new(outside: bool, is_approved: bool) -> Self {
        Self { outside: Arc::new(AtomicBool::new(outside)), is_approved, is_read_only: false }
    }

    pub(super) fn read_only(self, is_read_only: bool) -> Self {
        Self { is_read_only, ..self }
    }

    pub(super) fn set_outside(&self) {
        self.outside.store(true, Ordering::SeqCst);
    }

    fn is_outside(&self) -> bool {
        self.outside.load(Ordering::SeqCst)
    }
}

impl RunningCommand {
    pub(super) fn new(
        shell: Shell,
        owner: Owner,
        id: ProcessId,
        by: ChangeAuthor,
        folder: Folder,
        traits: CommandTraits,
    ) -> Self {
        let (began, folder) = (Instant::now(), Some(folder));
        Self { shell, owner, id, began, by, folder, traits }
    }

    /// Commits the changes of a command that has ended, and releases its folder.
    pub(super) async fn commit_changes(&mut self, ended: CommandEnd) -> WorkspaceChanges {
        let Some(mut folder) = self.folder.take() else { return WorkspaceChanges::default() };
        if let CommandEnd::Limit(limit @ (Limit::Disk | Limit::Entries)) = ended {
            folder.clear().await;
            let note =
                format!("nothing that it changed was kept: it was over its limit of {limit}");
            return WorkspaceChanges { notes: vec![note], ..WorkspaceChanges::default() };
        }
        if let CommandEnd::Lost(_) = ended {
            // The folder may have some of its files. The end itself says that none are kept.
            folder.clear().await;
            return WorkspaceChanges::default();
        }
        if self.traits.is_read_only {
            folder.clear().await;
            let note = "files that it changed were not kept: this step only reads files".to_owned();
            return WorkspaceChanges { notes: vec![note], ..WorkspaceChanges::default() };
        }
        let outside = self.traits.is_outside();
        let by = self.by.clone().from_outside(outside);
        commit_changes(&mut folder, &by, !outside).await
    }

    /// Output since the last call.
    pub(super) fn unread(&self) -> Option<UnreadOutput> {
        self.shell.0.processes.unread(self.owner, self.id).ok()
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // Without a folder, the command has ended and its changes are saved.
        let Some(mut folder) = self.folder.take() else { return };
        let (shell, owner, id) = (self.shell.clone(), self.owner, self.id);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let processes = &shell.0.processes;
            drop(processes.signal(owner, id, Signal::Kill));
            drop(processes.wait(owner, id, KILL_TIMEOUT).await);
            processes.forget(owner, id);
            folder.clear().await;
        });
    }
}

/// Result of a command for the tool.
pub(super) fn command_result(
    stands: CommandState,
    unread: Option<UnreadOutput>,
    took: Duration,
    kept: Option<WorkspaceChanges>,
) -> CommandResult {
    let written = |chunk: holdfast_sandbox::OutputChunk| StreamOutput {
        text: String::from_utf8_lossy(&chunk.bytes).into_owned(),
        skipped: chunk.skipped,
    };
    let (out, err) = match unread {
        Some(UnreadOutput { out, err, .. }) => (written(out), written(err)),
        None => (StreamOutput::default(), StreamOutput::default()),
    };
    CommandResult { stands, out, err, took, kept }
}

pub(super) fn end_status(ended: CommandEnd) -> CommandState {
    match ended {
        CommandEnd::Exited(code) => CommandState::Exited(code),
        CommandEnd::Signalled(_)
        | CommandEnd::TimedOut
        | CommandEnd::Cancelled
        | CommandEnd::Limit(_)
        | CommandEnd::Lost(_) => CommandState::Ended(ended.to_string()),
    }
}
