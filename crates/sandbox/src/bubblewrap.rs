//! Walls built by `bwrap`: what a command sees, and how it is started behind them.
//!
//! `bwrap` makes the namespaces and the mounts, then waits at a gate. Meanwhile we learn
//! which process is the namespace's first, set its limits (all that it starts inherit them)
//! and let it go. Arguments, and with them the environment, go through a file in memory:
//! a command line can be read by everyone on the machine.
//!
//! **What can go wrong.** Directories of the workspace are bound by descriptor, never by
//! name: a script could put a symlink there between our look and `bwrap`'s
//! (CVE-2024-42472).

mod args;

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::{
    fs::{MemfdFlags, SeekFrom, memfd_create, seek},
    io::write,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Resource, Rlimit, getrlimit, prlimit},
};
use serde::Deserialize;
use tokio::{
    io::AsyncReadExt as _, io::unix::AsyncFd, net::unix::pipe, process::Child, time::timeout,
};

use self::args::{Args, System};
use crate::{
    Access, Backend, Command, Config, Error, Limits, Root,
    error::from_builder,
    local::{Launch, check_workdir},
    seccomp,
    spawner::{self, SHELL},
    supervise::{First, Gate, Hold, Launched, Reach, handle},
    tree,
};

/// Where `bwrap` is looked for.
const PLACES: [&str; 3] = ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"];

/// How long `bwrap` may take to make its namespaces.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first descriptor that `bwrap` gets, besides the standard ones.
const FIRST_FD: i32 = 10;

/// Walls built by `bwrap`.
#[derive(Debug)]
pub(crate) struct Bubblewrap {
    program: PathBuf,
    filters: Arc<[Vec<u8>]>,
    system: System,
}

impl Bubblewrap {
    /// Finds the program, and what of this machine a command may see.
    ///
    /// # Errors
    ///
    /// If there is no `bwrap`, or this processor is unknown.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let program = match &config.bwrap {
            Some(program) => Some(program.clone()),
            None => PLACES.iter().map(PathBuf::from).find(|place| place.is_file()),
        };
        let program = program.filter(|program| program.is_file()).ok_or(Error::Missing)?;
        Ok(Self {
            program,
            filters: seccomp::filters()?.into(),
            system: System::of_this_machine(&config.readable),
        })
    }
}

impl Launch for Bubblewrap {
    fn backend(&self) -> Backend {
        Backend::Bubblewrap
    }

    async fn launch(&self, command: Command, limits: Limits) -> Result<Launched, Error> {
        let failed = Error::failed("prepare the sandbox");
        let prepared = prepare(&command, &limits, &self.system, &self.filters)?;
        let (info, tell) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let failed = Error::failed("prepare the sandbox");
        let (far, near) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let failed = || Error::failed("prepare the sandbox");
        let gate = Gate { near, far: far.try_clone().map_err(failed())? };

        let mut fds = prepared.fds;
        let mut args = prepared.args;
        args.fd("--info-fd", fds.add(tell));
        args.fd("--block-fd", fds.add(far));
        let args_fd = fds.add(file_of(&args.into_bytes()).map_err(failed())?);

        let mut bwrap = spawner::command(&self.program, &(FIRST_FD..fds.next));
        bwrap
            .env_clear()
            .arg("--args")
            .arg(args_fd.to_string())
            .args(["--", SHELL, "-c"])
            .arg(&command.script)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        bwrap.fd_mappings(fds.mappings).map_err(|e| failed()(io::Error::other(e)))?;
        let started = spawner::spawn(bwrap).await;
        let mut child = started.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Missing,
            _ => Error::failed("start `bwrap`")(error),
        })?;

        let first = timeout(PATIENCE, first_process(info)).await;
        let Ok(Some(root)) = first else { return Err(why_it_failed(&mut child).await) };
        let (leader, init) = handles(&child, root).map_err(failed())?;
        set_limits(root, &limits).map_err(failed())?;
        let first = First::Theirs(init.get_ref().try_clone().map_err(failed())?);
        let reach = Arc::new(Reach { root, first });
        Ok(Launched { child, leader, reach, hold: Hold::Namespace { init, gate } })
    }
}

/// What is handed to `bwrap`.
struct Prepared {
    args: Args,
    fds: Fds,
}

/// Descriptors, and the numbers under which `bwrap` gets them.
struct Fds {
    mappings: Vec<FdMapping>,
    next: i32,
}

impl Fds {
    fn add(&mut self, fd: impl Into<OwnedFd>) -> i32 {
        let child_fd = self.next;
        self.next += 1;
        self.mappings.push(FdMapping { parent_fd: fd.into(), child_fd });
        child_fd
    }
}

fn prepare(
    command: &Command,
    limits: &Limits,
    system: &System,
    filters: &[Vec<u8>],
) -> Result<Prepared, Error> {
    let failed = || Error::failed("prepare the sandbox");
    let mut fds = Fds { mappings: Vec::new(), next: FIRST_FD };
    let mut args = Args::default();

    args.walls();
    args.environment(&command.env);
    args.system(system, command.network);
    for (text, at) in args::FILES {
        let fd = fds.add(file_of(text.as_bytes()).map_err(failed())?);
        args.fd_at("--ro-bind-data", fd, Path::new(at));
    }
    args.own_file_systems(limits.tmp);

    let root = Root::open(&command.workspace.dir)?;
    check_workdir(&root, command)?;
    for (flag, at) in mounts(&command.workspace.access) {
        let dir: OwnedFd = root.open_dir(&at)?.into_std_file().into();
        args.fd_at(flag, fds.add(dir), &at.mounted());
    }
    args.seal(&command.workdir);

    for filter in filters {
        args.fd("--add-seccomp-fd", fds.add(file_of(filter).map_err(failed())?));
    }
    Ok(Prepared { args, fds })
}

/// What of the workspace is mounted, and how: outer directories first, since inner ones go on top.
fn mounts(access: &Access) -> Vec<(&'static str, crate::WorkPath)> {
    const READ: &str = "--ro-bind-fd";
    const WRITE: &str = "--bind-fd";
    let scope = match access {
        Access::Read => return vec![(READ, crate::WorkPath::top())],
        Access::Write => return vec![(WRITE, crate::WorkPath::top())],
        Access::Scoped(scope) => scope,
    };
    // What may be written may be read: a mount for reading on top would take that away.
    let is_written = |dir: &&crate::WorkPath| !scope.write.iter().any(|write| dir.is_within(write));
    let read = scope.read.iter().filter(is_written).map(|dir| (READ, dir.clone()));
    let mut mounts: Vec<_> =
        read.chain(scope.write.iter().map(|dir| (WRITE, dir.clone()))).collect();
    mounts.sort_by(|(_, a), (_, b)| a.cmp(b));
    mounts.dedup();
    mounts
}

/// A file in memory that holds these bytes, to be read from its beginning.
fn file_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create("sandbox", MemfdFlags::CLOEXEC)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = write(&file, rest)?;
        rest = &rest[written..];
    }
    seek(&file, SeekFrom::Start(0))?;
    Ok(file)
}

/// What `bwrap --info-fd` writes, as far as we need it.
#[derive(Deserialize)]
struct Info {
    #[serde(rename = "child-pid")]
    child_pid: i32,
}

/// The number of the namespace's first process, or nothing if there was none.
async fn first_process(info: OwnedFd) -> Option<Pid> {
    let mut told = Vec::new();
    let mut info = pipe::Receiver::from_owned_fd(info).ok()?;
    info.read_to_end(&mut told).await.ok()?;
    let info: Info = serde_json::from_slice(&told).ok()?;
    Pid::from_raw(info.child_pid)
}

/// Handles to `bwrap` and to the namespace's first process.
fn handles(child: &Child, root: Pid) -> io::Result<(AsyncFd<OwnedFd>, AsyncFd<OwnedFd>)> {
    let gone = || io::Error::other("`bwrap` ended while it was started");
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let bwrap = id.and_then(Pid::from_raw).ok_or_else(gone)?;
    let leader = handle(bwrap)?;
    let init = handle(root)?;
    // If it is its child now, after the handle was opened, the handle is to no other.
    if tree::is_child(bwrap, root) { Ok((leader, init)) } else { Err(gone()) }
}

/// Limits the first process; what it starts inherits them, and cannot raise them.
fn set_limits(root: Pid, limits: &Limits) -> io::Result<()> {
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Data, limits.memory),
        (Resource::Fsize, limits.file_size),
        (Resource::Memlock, 1 << 20),
        (Resource::Msgqueue, 1 << 20),
        (Resource::Nofile, limits.open_files.into()),
        // Counted in the command's own user namespace. Never counted for the host's root.
        (Resource::Nproc, limits.processes.into()),
        (Resource::Sigpending, 1024),
    ] {
        let allowed = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let most = Some(most.min(allowed));
        prlimit(Some(root), resource, Rlimit { current: most, maximum: most })?;
    }
    // First a signal that says why, a second later one that cannot be ignored.
    let seconds = limits.cpu.as_secs();
    let cpu = Rlimit { current: Some(seconds), maximum: Some(seconds.saturating_add(1)) };
    prlimit(Some(root), Resource::Cpu, cpu)?;
    // If the machine runs out of memory, rather a command than the mesh. Raising it needs no right.
    let _not_fatal = std::fs::write(format!("/proc/{root}/oom_score_adj"), "800");
    Ok(())
}

/// What `bwrap` said before it gave up.
async fn why_it_failed(child: &mut Child) -> Error {
    let _ended_already = child.start_kill();
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _partial = stderr.take(4096).read_to_end(&mut said).await;
    }
    from_builder(&String::from_utf8_lossy(&said))
}
