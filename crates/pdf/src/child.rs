//! Child process that reads one PDF: its resource limits, input and output.

use std::{
    ffi::OsStr,
    io::{self, Read as _, Write as _},
    process::ExitCode,
};

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::{Document, Error, pages};

/// Command-line argument that makes a program act as the child.
pub(crate) const CHILD_ARGUMENT: &str = "read-pdf";

/// Limits of the child: address space in bytes, processor time in seconds.
const MAX_MEMORY_BYTES: u64 = 1024 * 1024 * 1024;
pub(crate) const MAX_CPU_SECONDS: u64 = 10;

/// Reads a PDF from stdin and answers on stdout, if the program was started as the child; otherwise
/// returns `None`. Call it first in `main`, before threads or other work begin.
#[must_use]
pub fn read_pdf() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let is_asked = arguments.next().as_deref() == Some(OsStr::new(CHILD_ARGUMENT));
    if !is_asked || arguments.next().is_some() {
        return None;
    }
    // If a limit cannot be set, nothing is read.
    let done = set_limits().and_then(|()| serve());
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn set_limits() -> io::Result<()> {
    let limits = [
        (Resource::As, MAX_MEMORY_BYTES),
        (Resource::Cpu, MAX_CPU_SECONDS),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        // Enough for stdin, stdout and stderr only.
        (Resource::Nofile, 3),
    ];
    for (resource, most) in limits {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

fn serve() -> io::Result<()> {
    // The answer reports unreadable pages; panic messages on stderr add nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let mut content = Vec::new();
    io::stdin().lock().read_to_end(&mut content)?;
    let answer: Result<Document, Error> = pages::read(&content);
    let answer = serde_json::to_vec(&answer)?;
    let mut out = io::stdout().lock();
    out.write_all(&answer)?;
    out.flush()
}
