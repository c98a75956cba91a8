//! MCP servers that run as processes: only in the sandbox, each in a folder of its own, which is
//! empty or has the files that are kept for it, and limited in number.

use std::{fs, io, os::unix::fs::DirBuilderExt as _, path::PathBuf, sync::Arc, time::Duration};

use holdfast_egress::Guard;
use holdfast_mcp::Error;
use holdfast_sandbox::{
    Command, CommandEnd, LocalSandbox, Network, NetworkPolicy, PipedProcess, Process, State,
    Stream, open,
};
use holdfast_tools::{AllowedHosts, GuardedHosts, clean};
use holdfast_types::AgentId;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::OnceCell,
    time::timeout,
};
use tracing::warn;
use uuid::Uuid;

use super::{
    kept_folder::{KeptFolder, KeptFolders},
    link::ServerFailure,
    slots::TenantSlot,
};

/// Limit on the shown part of a server's standard error, in characters.
const MAX_STDERR_CHARS: usize = 500;

/// Time for a process to exit after its input was closed or it failed to start.
const EXIT_TIMEOUT: Duration = Duration::from_millis(300);

/// Time for a process to exit after it was asked to; it is killed 2 s after that request.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Sandbox of the servers, created when the first one starts.
#[derive(Debug)]
pub(super) struct ServerSandbox {
    config: holdfast_sandbox::Config,
    sandbox: OnceCell<Arc<dyn LocalSandbox>>,
    kept_folders: KeptFolders,
    /// Hosts that servers may reach.
    hosts: GuardedHosts,
}

/// A server to start.
pub(super) struct ServerCommand<'s> {
    pub(super) name: &'s str,
    pub(super) program: &'s str,
    pub(super) args: &'s [String],
    pub(super) env: &'s [(String, SecretString)],
    pub(super) network: bool,
    /// Agent among whose files its folder is kept.
    pub(super) keep_for: Option<AgentId>,
}

/// A server's process. Dropping it kills the process and all its children.
#[derive(Debug)]
pub(super) struct ServerProcess {
    process: Box<dyn Process>,
    kept: Option<KeptFolder>,
    _folder: TempFolder,
    _slot: TenantSlot,
}

/// A process with its input and output.
pub(super) type StartedServer =
    (ServerProcess, Box<dyn AsyncWrite + Send + Unpin>, Box<dyn AsyncRead + Send + Unpin>);

impl ServerSandbox {
    /// `guard` decides which addresses servers reach through the egress proxy.
    pub(super) fn new(
        config: holdfast_sandbox::Config,
        kept_folders: KeptFolders,
        guard: Guard,
    ) -> Self {
        let hosts = GuardedHosts::new(guard, AllowedHosts::default());
        Self { config, sandbox: OnceCell::new(), kept_folders, hosts }
    }

    /// Starts a server in the sandbox, which must work; an installation that hosts tenants requires
    /// real isolation.
    pub(super) async fn start(
        &self,
        server: &ServerCommand<'_>,
        room: TenantSlot,
    ) -> Result<StartedServer, ServerFailure> {
        let sandbox = self.sandbox.get_or_try_init(|| open(&self.config)).await;
        let sandbox = sandbox.map_err(ServerFailure::new)?;
        let folder = TempFolder::new().map_err(|source| {
            let what = "make a folder for an mcp server";
            ServerFailure::new(holdfast_sandbox::Error::Failed { what, source })
        })?;
        let kept = match server.keep_for {
            Some(agent) => {
                let kept = self.kept_folders.open(&folder.0, room.tenant, agent, server.name).await;
                Some(kept.map_err(|error| {
                    ServerFailure::new(format!("its kept folder cannot be read: {error}"))
                })?)
            }
            None => None,
        };
        let dir = kept.as_ref().map_or(folder.0.as_path(), KeptFolder::tree);
        let mut command = Command::new(script(server.program, server.args), dir);
        let open = |(name, value): &(String, SecretString)| {
            (name.clone(), value.expose_secret().to_owned())
        };
        command.env = server.env.iter().map(open).collect();
        command.timeout = Some(self.config.longest);
        command.tenant = Some(room.tenant);
        command.network = match (server.network, self.config.network) {
            (false, _) => Network::Off,
            (true, NetworkPolicy::Proxy) => Network::Proxy(Arc::new(self.hosts.clone())),
            (true, NetworkPolicy::Off | NetworkPolicy::Host) => Network::Host,
        };
        let started = sandbox.spawn_piped(command).await.map_err(ServerFailure::new)?;
        let PipedProcess { process, stdin, stdout } = started;
        Ok((ServerProcess { process, kept, _folder: folder, _slot: room }, stdin, stdout))
    }
}

impl ServerProcess {
    /// Stores what the server has changed in its folder, if that is kept. Returns the reason if
    /// that was not possible.
    pub(super) async fn store_folder(&self) -> Result<(), String> {
        match &self.kept {
            Some(kept) => kept.store().await,
            None => Ok(()),
        }
    }

    /// Waits for the process to exit, then stops it. Its input is closed by now, which most servers
    /// take as the end.
    pub(super) async fn end(self) {
        if timeout(EXIT_TIMEOUT, self.process.ended()).await.is_err() {
            self.process.stop();
            // Dropping the process kills the rest.
            let _over = timeout(STOP_TIMEOUT, self.process.ended()).await;
        }
        // The reason is logged; nobody waits for it.
        drop(self.store_folder().await);
    }

    /// Reason of the failure, from the exit status and the output.
    pub(super) async fn failure(&self, error: &Error) -> ServerFailure {
        let ended = timeout(EXIT_TIMEOUT, self.process.ended()).await;
        let why = match (ended, self.process.state()) {
            (Ok(ended), _) | (Err(_), State::Ended(ended)) => exit_reason(ended),
            (Err(_), State::Running) => error.to_string(),
        };
        let wrote = self.process.read(Stream::Err, 0).bytes;
        let wrote = clean(String::from_utf8_lossy(&wrote).trim());
        let skip = wrote.chars().count().saturating_sub(MAX_STDERR_CHARS);
        let wrote: String = wrote.chars().skip(skip).collect();
        ServerFailure { reason: why, server_output: Some(wrote).filter(|wrote| !wrote.is_empty()) }
    }
}

fn exit_reason(ended: CommandEnd) -> String {
    match ended {
        CommandEnd::Exited(127) => {
            "its command is not there, or does not run in the sandbox (exit code 127)".to_owned()
        }
        ended => format!("its process ended: {ended}"),
    }
}

/// Script that becomes the program, with quoted arguments.
fn script(program: &str, args: &[String]) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let words = std::iter::once(program).chain(args.iter().map(String::as_str));
    format!("exec {}", words.map(quoted).collect::<Vec<_>>().join(" "))
}

/// Temporary folder of a process, deleted on drop.
#[derive(Debug)]
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("holdfast-mcp-{}", Uuid::now_v7().simple()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            warn!(%error, "the folder of an mcp server was not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_runs_one_program_whatever_its_arguments_hold() {
        let args = ["-y".to_owned(), "it's $(id); `x`".to_owned(), String::new()];

        assert_eq!(script("npx", &args), r"exec 'npx' '-y' 'it'\''s $(id); `x`' ''");
    }
}
