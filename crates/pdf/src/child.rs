//! The process that reads: its limits, what it is given, what it answers.

use std::{
    ffi::OsStr,
    io::{self, Read as _, Write as _},
    process::ExitCode,
};

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::{Document, Error, pages};

/// The word that has a program read.
pub(crate) const WORD: &str = "read-pdf";

/// What a reader may take: memory in bytes, seconds of processor time.
const MEMORY: u64 = 1024 * 1024 * 1024;
pub(crate) const SECONDS: u64 = 10;

/// Reads a PDF from stdin and answers on stdout, if this program was started for that; `None` if it
/// was not. To be called first in `main`: nothing else must have begun.
#[must_use]
pub fn as_child() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let is_asked = arguments.next().as_deref() == Some(OsStr::new(WORD));
    if !is_asked || arguments.next().is_some() {
        return None;
    }
    // Without limits nothing is read.
    let done = limited().and_then(|()| serve());
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn limited() -> io::Result<()> {
    let limits = [
        (Resource::As, MEMORY),
        (Resource::Cpu, SECONDS),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        // stdin, stdout, stderr.
        (Resource::Nofile, 3),
    ];
    for (resource, most) in limits {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

fn serve() -> io::Result<()> {
    // A page that cannot be read is told in the answer.
    std::panic::set_hook(Box::new(|_| {}));
    let mut content = Vec::new();
    io::stdin().lock().read_to_end(&mut content)?;
    let answer: Result<Document, Error> = pages::read(&content);
    let answer = serde_json::to_vec(&answer)?;
    let mut out = io::stdout().lock();
    out.write_all(&answer)?;
    out.flush()
}
