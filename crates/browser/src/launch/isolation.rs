//! Isolation of the browser by Bubblewrap.

use std::path::Path;

use tokio::process::Command;

use crate::Isolation;

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
/// `home` is the folder of its profile, the only one that it can write to.
pub(super) fn command(isolation: Isolation, program: &Path, home: &Path) -> Command {
    match isolation {
        Isolation::None => Command::new(program),
        Isolation::Bubblewrap => {
            let mut bwrap = Command::new("bwrap");
            // The network is shared: the proxy is on it.
            bwrap.args(["--unshare-all", "--share-net", "--die-with-parent", "--new-session"]);
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
            bwrap.arg("--").arg(program);
            bwrap
        }
    }
}

/// Advice for a browser that has not started.
pub(super) const fn advice(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::None => "",
        Isolation::Bubblewrap => {
            " (it runs under `bwrap`; where that cannot work, `runner.browser.isolation` turns it \
             off, and `runner.browser.url` takes a browser of another container)"
        }
    }
}
