//! Backend without isolation: the command runs as the user of this process. For trusted
//! development.
//!
//! The command has a process group, the limits that a shell can set, and an environment of its own.
//! It sees the whole machine, and a process that leaves the group and its parents outlives it.

use std::{io, os::fd::OwnedFd, process::Stdio, sync::Arc};

use rustix::process::Pid;
use tokio::io::unix::AsyncFd;

use crate::{
    Backend, Command, Error, Limits,
    local::Launcher,
    spawner::{self, SHELL},
    supervise::{self, Containment, RootProcess, SignalTarget, StartedCommand},
};

/// Script that sets the limits, in bash's units, then becomes the shell that runs the command.
///
/// The number of processes is not limited: that limit would count all processes of the user.
const LIMITED_SHELL_SCRIPT: &str = "ulimit -c 0 && ulimit -St \"$1\" && ulimit -f \"$2\" && ulimit -n \"$3\" \
                       && ulimit -d \"$4\" && exec \"$0\" -c \"$5\"";

#[derive(Debug)]
pub(crate) struct Plain;

impl Launcher for Plain {
    fn backend(&self) -> Backend {
        Backend::Plain
    }

    async fn launch(&self, command: Command, limits: Limits) -> Result<StartedCommand, Error> {
        command.check_workdir()?;
        let dir = command.workspace.dir.join(command.workdir.as_relative());

        let mut shell = spawner::command(SHELL, &(0..3));
        shell
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")
            .env("HOME", &command.workspace.dir)
            .env("LANG", "C.UTF-8")
            .env("TMPDIR", "/tmp")
            .envs(&command.env)
            .args(["-c", LIMITED_SHELL_SCRIPT, SHELL])
            .arg(limits.cpu.as_secs().to_string())
            .arg((limits.file_size / 1024).to_string())
            .arg(limits.open_files.to_string())
            .arg((limits.memory / 1024).to_string())
            .arg(&command.script)
            .current_dir(dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let child = spawner::spawn(shell).await.map_err(Error::failed("start bash"))?;
        let (root, leader) = handle(child.id()).map_err(Error::failed("start bash"))?;
        let also = leader.get_ref().try_clone().map_err(Error::failed("start bash"))?;
        let reach = Arc::new(SignalTarget { root, first: RootProcess::Shell(also) });
        let containment = Containment::Group;
        Ok(StartedCommand {
            child,
            leader,
            signal_target: reach,
            containment,
            slice: None,
            _proxy: None,
        })
    }
}

/// Opens a handle to a child that was not waited for yet, so its id cannot have been reused.
fn handle(id: Option<u32>) -> io::Result<(Pid, AsyncFd<OwnedFd>)> {
    let id = id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let pid = id.ok_or_else(|| io::Error::other("it has no number"))?;
    Ok((pid, supervise::open_pidfd(pid)?))
}
