//! Sandbox built by `bwrap`: what a command sees, and how it is started inside.
//!
//! `bwrap` makes the namespaces and the mounts, then waits at a gate. Meanwhile we learn which
//! process is the namespace's first, set its limits (its children inherit them) and open the gate.
//! Arguments, and with them the environment, go through a file in memory: a command line can be
//! read by everyone on the machine.
//!
//! **What can go wrong.** The workspace is bound by descriptor, never by name: a script could put a
//! symlink there between our check and `bwrap`'s use (CVE-2024-42472).

mod args;
mod proxied;

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use command_fds::{CommandFdExt as _, FdMapping};
use holdfast_proxy::Proxy;
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

use self::{
    args::{Args, HostPaths},
    proxied::ProxiedStart,
};
use crate::{
    Access, Backend, Command, Config, Error, Limits, MOUNT, Network, WorkPath,
    error::from_bwrap,
    local::Launcher,
    root::Root,
    seccomp,
    spawner::{self, SHELL},
    supervise::{Containment, Gate, RootProcess, SignalTarget, StartedCommand, open_pidfd},
    tree,
};

/// Paths at which `bwrap` is looked for.
const BWRAP_PATHS: [&str; 3] = ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"];

/// Time that `bwrap` may take to make its namespaces.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// First descriptor that `bwrap` gets, besides the standard ones.
const FIRST_FD: i32 = 10;

#[derive(Debug)]
pub(crate) struct Bubblewrap {
    program: PathBuf,
    filters: Arc<[Vec<u8>]>,
    system: HostPaths,
    /// Program that listens for the proxy; `None`: the current executable.
    listener_program: Option<PathBuf>,
}

impl Bubblewrap {
    /// Finds `bwrap` and the parts of this machine that a command may see.
    ///
    /// # Errors
    ///
    /// If there is no `bwrap`, or no system call filter for this processor.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let program = match &config.bwrap {
            Some(program) => Some(program.clone()),
            None => BWRAP_PATHS.iter().map(PathBuf::from).find(|place| place.is_file()),
        };
        let program = program.filter(|program| program.is_file()).ok_or(Error::BwrapMissing)?;
        Ok(Self {
            program,
            filters: seccomp::filters()?.into(),
            system: HostPaths::of_this_machine(&config.readable),
            listener_program: config.listener_program.clone(),
        })
    }
}

impl Launcher for Bubblewrap {
    fn backend(&self) -> Backend {
        Backend::Bubblewrap
    }

    async fn launch(&self, command: Command, limits: Limits) -> Result<StartedCommand, Error> {
        let failed = Error::failed("prepare the sandbox");
        let prepared = self.prepare(&command, &limits)?;
        let (info, tell) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let failed = Error::failed("prepare the sandbox");
        let (far, near) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let failed = || Error::failed("prepare the sandbox");
        let gate = Gate { near, far: far.try_clone().map_err(failed())? };

        let mut fds = prepared.fds;
        let mut args = prepared.args;
        args.fd("--info-fd", fds.add(tell));
        args.fd("--block-fd", fds.add(far));
        let args_fd = fds.add(memory_file(&args.into_bytes()).map_err(failed())?);

        let mut bwrap = spawner::command(&self.program, &(FIRST_FD..fds.next));
        bwrap
            .env_clear()
            .arg("--args")
            .arg(args_fd.to_string())
            .args(["--", SHELL, "-c"])
            .args(&prepared.first_script)
            .arg(&command.script)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        bwrap.fd_mappings(fds.mappings).map_err(|e| failed()(io::Error::other(e)))?;
        let started = spawner::spawn(bwrap).await;
        let mut child = started.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::BwrapMissing,
            _ => Error::failed("start `bwrap`")(error),
        })?;

        let first = timeout(START_TIMEOUT, first_process(info)).await;
        let Ok(Some(root)) = first else { return Err(start_error(&mut child).await) };
        let (leader, init) = handles(&child, root).map_err(failed())?;
        set_limits(root, &limits).map_err(failed())?;
        let first = RootProcess::NamespaceInit(init.get_ref().try_clone().map_err(failed())?);
        let reach = Arc::new(SignalTarget { root, first });
        Ok(StartedCommand {
            child,
            leader,
            signal_target: reach,
            containment: Containment::Namespace { init, gate },
            slice: None,
            _proxy: prepared.proxy,
        })
    }
}

/// Arguments and descriptors for one `bwrap`.
struct BwrapInvocation {
    args: Args,
    fds: Fds,
    /// Script that runs the command's script, which is an argument of it, and its name; empty if
    /// the command's script runs directly.
    first_script: Vec<String>,
    proxy: Option<Proxy>,
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

impl Bubblewrap {
    fn prepare(&self, command: &Command, limits: &Limits) -> Result<BwrapInvocation, Error> {
        let failed = || Error::failed("prepare the sandbox");
        let mut fds = Fds { mappings: Vec::new(), next: FIRST_FD };
        let mut args = Args::default();
        let start = match &command.network {
            Network::Proxy(rules) => {
                let program = self.listener_program.as_deref();
                let start = ProxiedStart::new(&command.env, Arc::clone(rules), program);
                Some(start.map_err(failed())?)
            }
            Network::Off | Network::Host => None,
        };

        args.isolation();
        match &start {
            // The first script sets the command's own.
            Some(_) => args.environment(&BTreeMap::new()),
            None => args.environment(&command.env),
        }
        args.system(&self.system, &command.network);
        for (text, at) in args::FILES {
            let fd = fds.add(memory_file(text.as_bytes()).map_err(failed())?);
            args.fd_at("--ro-bind-data", fd, Path::new(at));
        }
        args.own_file_systems(limits.tmp);
        args.configured(&self.system);
        let (first_script, proxy) = match start {
            Some(start) => {
                args.listener(&start.channel.program);
                let channel = fds.add(start.channel.socket);
                let variables = fds.add(memory_file(&start.variables).map_err(failed())?);
                let script = proxied::first_script(channel, variables);
                (vec![script, SHELL.to_owned()], Some(start.proxy))
            }
            None => (Vec::new(), None),
        };

        let root = Root::open(&command.workspace.dir)?;
        // The directory that the command starts in must exist within the workspace.
        root.open_dir(&command.workdir)?;
        let bind = match command.workspace.access {
            Access::Read => "--ro-bind-fd",
            Access::Write => "--bind-fd",
        };
        let dir: OwnedFd = root.open_dir(&WorkPath::top())?.into_std_file().into();
        args.fd_at(bind, fds.add(dir), Path::new(MOUNT));
        args.seal(&command.workdir);

        for filter in &*self.filters {
            args.fd("--add-seccomp-fd", fds.add(memory_file(filter).map_err(failed())?));
        }
        Ok(BwrapInvocation { args, fds, first_script, proxy })
    }
}

/// Creates a file in memory that holds these bytes, positioned at its beginning.
fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create("sandbox", MemfdFlags::CLOEXEC)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = write(&file, rest)?;
        rest = &rest[written..];
    }
    seek(&file, SeekFrom::Start(0))?;
    Ok(file)
}

/// The part of `bwrap --info-fd`'s output that we need.
#[derive(Deserialize)]
struct Info {
    #[serde(rename = "child-pid")]
    child_pid: i32,
}

/// Returns the id of the namespace's first process, or `None` if `bwrap` reports none.
async fn first_process(info: OwnedFd) -> Option<Pid> {
    let mut told = Vec::new();
    let mut info = pipe::Receiver::from_owned_fd(info).ok()?;
    info.read_to_end(&mut told).await.ok()?;
    let info: Info = serde_json::from_slice(&told).ok()?;
    Pid::from_raw(info.child_pid)
}

/// Opens handles to `bwrap` and to the namespace's first process.
fn handles(child: &Child, root: Pid) -> io::Result<(AsyncFd<OwnedFd>, AsyncFd<OwnedFd>)> {
    let gone = || io::Error::other("`bwrap` ended while it was started");
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let bwrap = id.and_then(Pid::from_raw).ok_or_else(gone)?;
    let leader = open_pidfd(bwrap)?;
    let init = open_pidfd(root)?;
    // Still a child of `bwrap` after the handle was opened: so its id was not reused.
    if tree::is_child(bwrap, root) { Ok((leader, init)) } else { Err(gone()) }
}

/// Limits the first process. Its descendants inherit the limits and cannot raise them.
fn set_limits(root: Pid, limits: &Limits) -> io::Result<()> {
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Data, limits.memory),
        (Resource::Fsize, limits.file_size),
        (Resource::Memlock, 1 << 20),
        (Resource::Msgqueue, 1 << 20),
        (Resource::Nofile, limits.open_files.into()),
        // Counted within the command's own user namespace, and never for the host's root.
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
    // If memory runs out, the kernel kills a command before the mesh. Raising the score needs no
    // right.
    let _not_fatal = std::fs::write(format!("/proc/{root}/oom_score_adj"), "800");
    Ok(())
}

/// Error that explains why `bwrap` failed, from its standard error.
async fn start_error(child: &mut Child) -> Error {
    let _ended_already = child.start_kill();
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _partial = stderr.take(4096).read_to_end(&mut said).await;
    }
    from_bwrap(&String::from_utf8_lossy(&said))
}
