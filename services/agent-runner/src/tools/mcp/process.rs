//! MCP servers that run as processes: only in the sandbox, each in an empty folder of its own, and
//! limited in number.

use std::{fs, io, os::unix::fs::DirBuilderExt as _, path::PathBuf, sync::Arc, time::Duration};

use holdfast_mcp::Error;
use holdfast_sandbox::{
    Command, CommandEnd, LocalSandbox, Network, PipedProcess, Process, State, Stream, open,
};
use holdfast_tools::clean;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::OnceCell,
    time::timeout,
};
use tracing::warn;
use uuid::Uuid;

use super::{link::ServerFailure, slots::TenantSlot};

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
}

/// A server's process. Dropping it kills the process and all its children.
#[derive(Debug)]
pub(super) struct ServerProcess {
    process: Box<dyn Process>,
    _folder: TempFolder,
    _slot: TenantSlot,
}

/// A process with its input and output.
pub(super) type StartedServer =
    (ServerProcess, Box<dyn AsyncWrite + Send + Unpin>, Box<dyn AsyncRead + Send + Unpin>);

impl ServerSandbox {
    pub(super) fn new(config: holdfast_sandbox::Config) -> Self {
        Self { config, sandbox: OnceCell::new() }
    }

    /// Starts a server in the sandbox, which must work; an installation that hosts tenants requires
    /// real isolation.
    pub(super) async fn start(
        &self,
        program: &str,
        args: &[String],
        env: &[(String, SecretString)],
        network: bool,
        room: TenantSlot,
    ) -> Result<StartedServer, holdfast_sandbox::Error> {
        let sandbox = self.sandbox.get_or_try_init(|| open(&self.config)).await?;
        let folder = TempFolder::new().map_err(|source| holdfast_sandbox::Error::Failed {
            what: "make a folder for an mcp server",
            source,
        })?;
        let mut command = Command::new(script(program, args), &folder.0);
        let open = |(name, value): &(String, SecretString)| {
            (name.clone(), value.expose_secret().to_owned())
        };
        command.env = env.iter().map(open).collect();
        command.timeout = Some(self.config.longest);
        command.tenant = Some(room.tenant);
        command.network = if network { Network::Host } else { Network::Off };
        let PipedProcess { process, stdin, stdout } = sandbox.spawn_piped(command).await?;
        Ok((ServerProcess { process, _folder: folder, _slot: room }, stdin, stdout))
    }
}

impl ServerProcess {
    /// Waits for the process to exit, then stops it. Its input is closed by now, which most servers
    /// take as the end.
    pub(super) async fn end(self) {
        if timeout(EXIT_TIMEOUT, self.process.ended()).await.is_err() {
            self.process.stop();
            // Dropping the process kills the rest.
            let _over = timeout(STOP_TIMEOUT, self.process.ended()).await;
        }
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
