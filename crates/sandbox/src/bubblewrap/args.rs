//! Arguments that `bwrap` reads; see bwrap(1).

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use holdfast_proxy::ListenerChannel;

use crate::{MOUNT, Network, WorkPath};

/// User id of the command within its namespace. On the host it is the user that runs this process.
const USER_ID: &str = "1000";

/// Size of `/dev/shm`, in bytes.
const SHARED_MEMORY_BYTES: u64 = 16 << 20;

/// Files with the same contents for every command.
pub(super) const FILES: [(&str, &str); 4] = [
    (
        "root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:1000:1000:agent:/tmp/home:/bin/bash\n",
        "/etc/passwd",
    ),
    ("root:x:0:\nagent:x:1000:\n", "/etc/group"),
    ("127.0.0.1 localhost sandbox\n::1 localhost sandbox\n", "/etc/hosts"),
    ("passwd: files\ngroup: files\nhosts: files dns\n", "/etc/nsswitch.conf"),
];

/// Files of `/etc` without which programs do not start.
const ETC_FILES: [&str; 7] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/mime.types",
    "/etc/protocols",
    "/etc/services",
];

/// Files of `/etc` that the network needs. Private keys, in neighbouring folders, are not among
/// them.
const ETC_NETWORK_FILES: [&str; 6] = [
    "/etc/gai.conf",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// Files of `/proc` that reveal the machine, or its other users.
const MASKED_PROC_FILES: [&str; 9] = [
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
];

/// Links and directories beside `/usr` that hold programs and libraries.
const BESIDE_USR: [&str; 6] = ["/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"];

/// Parts of this machine that a command may see.
#[derive(Debug)]
pub(super) struct HostPaths {
    links: Vec<(PathBuf, PathBuf)>,
    readable: Vec<PathBuf>,
    /// Folders that the operator configured, which may be below `/tmp`.
    configured: Vec<PathBuf>,
    masked: Vec<PathBuf>,
}

impl HostPaths {
    /// Looks at this machine once; these parts do not change while it runs.
    pub(super) fn of_this_machine(also: &[PathBuf]) -> Self {
        let mut links = Vec::new();
        let mut readable = vec![PathBuf::from("/usr")];
        for path in BESIDE_USR.map(PathBuf::from) {
            match fs::read_link(&path) {
                Ok(target) => links.push((target, path)),
                Err(_) if path.is_dir() => readable.push(path),
                Err(_) => {}
            }
        }
        let masked =
            MASKED_PROC_FILES.map(PathBuf::from).into_iter().filter(|path| path.exists()).collect();
        Self { links, readable, configured: also.to_vec(), masked }
    }
}

/// Arguments, each ended by NUL: as `bwrap --args` reads them.
#[derive(Debug, Default)]
pub(super) struct Args(Vec<u8>);

impl Args {
    fn add<const N: usize>(&mut self, args: [&dyn AsRef<OsStr>; N]) {
        for arg in args {
            self.0.extend_from_slice(arg.as_ref().as_bytes());
            self.0.push(0);
        }
    }

    /// Adds an option that takes a descriptor.
    pub(super) fn fd(&mut self, option: &str, fd: i32) {
        self.add([&option, &fd.to_string()]);
    }

    /// Adds an option that takes a descriptor and a path.
    pub(super) fn fd_at(&mut self, option: &str, fd: i32, at: &Path) {
        self.add([&option, &fd.to_string(), &at]);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Adds the namespaces, and drops all privileges.
    pub(super) fn isolation(&mut self) {
        for option in [
            "--unshare-user",
            "--disable-userns",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
            "--die-with-parent",
            "--new-session",
        ] {
            self.add([&option]);
        }
        self.add([&"--uid", &USER_ID, &"--gid", &USER_ID]);
        self.add([&"--cap-drop", &"ALL"]);
        self.add([&"--hostname", &"sandbox"]);
    }

    /// Adds variables: ours, then the command's own, which may replace them.
    pub(super) fn environment(&mut self, own: &BTreeMap<String, String>) {
        self.add([&"--clearenv"]);
        for (name, value) in [
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"),
            ("HOME", "/tmp/home"),
            ("USER", "agent"),
            ("LOGNAME", "agent"),
            ("LANG", "C.UTF-8"),
            ("TMPDIR", "/tmp"),
        ] {
            self.add([&"--setenv", &name, &value]);
        }
        for (name, value) in own {
            self.add([&"--setenv", name, value]);
        }
    }

    /// Adds programs and libraries, read-only.
    pub(super) fn system(&mut self, system: &HostPaths, network: &Network) {
        for path in &system.readable {
            self.add([&"--ro-bind", path, path]);
        }
        for (target, link) in &system.links {
            self.add([&"--symlink", target, link]);
        }
        for path in ETC_FILES {
            self.add([&"--ro-bind-try", &path, &path]);
        }
        if !matches!(network, Network::Host) {
            self.add([&"--unshare-net"]);
        }
        if !matches!(network, Network::Off) {
            for path in ETC_NETWORK_FILES {
                self.add([&"--ro-bind-try", &path, &path]);
            }
        }
        self.add([&"--proc", &"/proc"]);
        for path in &system.masked {
            self.add([&"--ro-bind", &"/dev/null", path]);
        }
        self.add([&"--dev", &"/dev"]);
    }

    /// Adds file systems that are the command's own and are deleted with it. Their contents use
    /// memory.
    pub(super) fn own_file_systems(&mut self, tmp: u64) {
        self.add([&"--size", &SHARED_MEMORY_BYTES.to_string(), &"--tmpfs", &"/dev/shm"]);
        self.add([&"--size", &tmp.to_string(), &"--tmpfs", &"/tmp"]);
        self.add([&"--dir", &"/tmp/home"]);
        self.add([&"--dir", &"/run"]);
        self.add([&"--dir", &"/var"]);
        self.add([&"--symlink", &"/tmp", &"/var/tmp"]);
        self.add([&"--dir", &MOUNT]);
    }

    /// Adds the program that listens for the proxy.
    pub(super) fn listener(&mut self, program: &Path) {
        self.add([&"--ro-bind", &program, &ListenerChannel::PROGRAM]);
    }

    /// Adds the folders that the operator configured, read-only; call after the file systems that
    /// would hide them.
    pub(super) fn configured(&mut self, system: &HostPaths) {
        for path in &system.configured {
            self.add([&"--ro-bind", path, path]);
        }
    }

    /// Makes the mount points' file systems read-only and sets the working directory; call after
    /// all mounts.
    ///
    /// File systems that `bwrap` mounts for itself have no size limit: while writable, a command
    /// could fill the memory through them.
    pub(super) fn seal(&mut self, workdir: &WorkPath) {
        for path in ["/dev", "/proc", "/"] {
            self.add([&"--remount-ro", &path]);
        }
        self.add([&"--chdir", &workdir.path_in_sandbox()]);
    }
}
