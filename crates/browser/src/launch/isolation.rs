//! Isolation of the browser by Bubblewrap.

use std::path::Path;

use holdfast_proxy::ListenerChannel;
use tokio::process::Command;

/// Descriptor of the channel on which the listener of the proxy is sent.
pub(super) const LISTENER_FD: i32 = 5;

/// Programs, libraries and fonts, as far as they exist. None of them is writable, and none holds
/// data of this installation.
const READABLE: [&str; 14] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/alternatives",
    "/etc/chromium",
    "/etc/chromium.d",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki",
    "/etc/ssl",
];

/// Returns a command of the browser at the absolute path `program`, to which its arguments are added.
/// `home` is the folder of its profile, the only one that it can write to. With a channel it is
/// isolated.
pub(super) fn command(channel: Option<&ListenerChannel>, program: &Path, home: &Path) -> Command {
    match channel {
        None => Command::new(program),
        Some(channel) => {
            let mut bwrap = Command::new("bwrap");
            bwrap.args(["--unshare-all", "--die-with-parent", "--new-session"]);
            for path in READABLE {
                bwrap.args(["--ro-bind-try", path, path]);
            }
            bwrap.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
            // A browser that is not installed as a package has its files beside it. A folder that
            // may hold other things, such as a home, is not shown.
            if let Some(folder) = program.parent()
                && !READABLE.iter().any(|path| program.starts_with(path))
                && folder.join("icudtl.dat").exists()
            {
                bwrap.arg("--ro-bind").args([folder, folder]);
            }
            bwrap.arg("--bind").args([home, home]).arg("--chdir").arg(home);
            bwrap.arg("--ro-bind").arg(&channel.program).arg(ListenerChannel::PROGRAM);
            let listen = ListenerChannel::shell_command(LISTENER_FD);
            bwrap.args(["--", "/bin/sh", "-c"]).arg(listen + "exec \"$0\" \"$@\"").arg(program);
            bwrap
        }
    }
}

/// Advice for an isolated browser that has not started.
pub(super) const ADVICE: &str = " (it runs under `bwrap`; where that cannot work, `runner.browser.isolation` turns it off, and \
     `runner.browser.url` takes a browser of another container)";
