//! Child process that reads one document: its resource limits, input and output.

use std::{
    ffi::OsStr,
    io::{self, Read as _, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

use rustix::process::{Resource, Rlimit, setrlimit};

use serde::Serialize;

use crate::{
    Document, DocumentFormat, DocumentKind, Error, FileFormat, UnreadableKind, archive, compound,
    mail, pdf, plain, rtf,
};

/// Command-line argument that makes a program act as the child; the task follows.
pub(crate) const CHILD_ARGUMENT: &str = "read-document";

/// Limits of the child: address space in bytes, processor time in seconds.
const MAX_MEMORY_BYTES: u64 = 1024 * 1024 * 1024;
pub(crate) const MAX_CPU_SECONDS: u64 = 10;

/// Maximum depth of files in mails that are attached to mails.
const MAX_ATTACHMENT_DEPTH: usize = 3;

/// Task of the child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Text of a document.
    Text(DocumentFormat),
    /// Images of the first pages of a scanned PDF.
    ScannedPages,
}

/// Tasks, as they are named to the child.
const TASK_ARGUMENTS: [(&str, Task); 6] = [
    ("pdf", Task::Text(DocumentFormat::Pdf)),
    ("archive", Task::Text(DocumentFormat::Archive)),
    ("compound", Task::Text(DocumentFormat::Compound)),
    ("rtf", Task::Text(DocumentFormat::Rtf)),
    ("mail", Task::Text(DocumentFormat::Mail)),
    ("scanned-pages", Task::ScannedPages),
];

pub(crate) fn task_argument(task: Task) -> &'static str {
    let argument = TASK_ARGUMENTS.iter().find(|(_, named)| *named == task);
    argument.map_or("", |(argument, _)| argument)
}

/// Reads a document from stdin and answers on stdout, if the program was started as the child;
/// otherwise returns `None`. Call it first in `main`, before threads or other work begin.
#[must_use]
pub fn run_document_reader() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(CHILD_ARGUMENT)) {
        return None;
    }
    let argument = arguments.next()?;
    let (_, task) = TASK_ARGUMENTS.iter().find(|(named, _)| argument == *named)?;
    if arguments.next().is_some() {
        return None;
    }
    // If a limit cannot be set, nothing is read.
    let done = set_limits().and_then(|()| serve(*task));
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

fn serve(task: Task) -> io::Result<()> {
    // The answer reports what cannot be read; panic messages on stderr add nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let mut content = Vec::new();
    io::stdin().lock().read_to_end(&mut content)?;
    match task {
        Task::Text(format) => answer(&read_document(format, &content, 0)),
        Task::ScannedPages => {
            let pages = catch_unwind(|| pdf::scanned_pages(&content));
            answer(&pages.unwrap_or(Err(Error::BrokenPdf)))
        }
    }
}

fn answer(answer: &impl Serialize) -> io::Result<()> {
    let answer = serde_json::to_vec(answer)?;
    let mut out = io::stdout().lock();
    out.write_all(&answer)?;
    out.flush()
}

/// Reads a document, which may be attached to a mail. Called in the child only: libraries may panic,
/// or take much time and memory.
fn read_document(format: DocumentFormat, content: &[u8], depth: usize) -> Result<Document, Error> {
    let attachments = |content: &[u8], name: &str| read_attachment(content, name, depth + 1);
    let read = catch_unwind(AssertUnwindSafe(|| match format {
        DocumentFormat::Pdf => pdf::read(content),
        DocumentFormat::Archive => archive::read(content),
        DocumentFormat::Compound => compound::read(content, &attachments),
        DocumentFormat::Rtf => rtf::read(content),
        DocumentFormat::Mail => mail::read(content, &attachments),
    }));
    let document = read.unwrap_or(Err(match format {
        DocumentFormat::Pdf => Error::BrokenPdf,
        DocumentFormat::Archive | DocumentFormat::Compound => Error::Damaged(DocumentKind::Office),
        DocumentFormat::Rtf => Error::Damaged(DocumentKind::Rtf),
        DocumentFormat::Mail => Error::Damaged(DocumentKind::Mail),
    }))?;
    match document.text.trim().is_empty() {
        true => Err(Error::NoText(document.kind)),
        false => Ok(document),
    }
}

/// Text of a file that is attached to a mail.
fn read_attachment(content: &[u8], name: &str, depth: usize) -> Result<String, Error> {
    match FileFormat::detect(content, "", name) {
        FileFormat::Text => plain::text(content, None),
        FileFormat::Html => plain::page(content, None),
        FileFormat::Document(_) if depth > MAX_ATTACHMENT_DEPTH => {
            Err(Error::Unreadable(UnreadableKind::DeepAttachment))
        }
        FileFormat::Document(format) => {
            read_document(format, content, depth).map(|document| document.text)
        }
        FileFormat::Unreadable(kind) => Err(Error::Unreadable(kind)),
    }
}
