//! Sessions as lines of JSON: `holdfast sessions export` and `holdfast sessions import`.
//!
//! The first line describes the session, each further one is an entry of its journal.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use anyhow::Context as _;
use holdfast_proto::gateway::v1::{
    Entry, ExportSessionRequest, ImportSessionRequest, ImportTarget,
    export_session_response::Part as ExportPart, import_session_request::Part as ImportPart,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    client::Client,
    error::Error,
    screen::Screen,
    view::{entry, timestamp},
};

/// Maximum size of a file, in bytes: 32 MiB of entries, written as JSON.
const MAX_FILE_BYTES: u64 = 128 * 1024 * 1024;

/// Passes each part of a session to `take`, as it comes.
pub async fn stream(
    client: &Client,
    session: String,
    mut take: impl FnMut(ExportPart) -> Result<(), Error>,
) -> Result<(), Error> {
    let request = client.request(ExportSessionRequest { session });
    let mut parts = client.answer(client.sessions().export_session(request).await)?;
    while let Some(part) = parts.message().await.map_err(|status| client.error(status))? {
        part.part.map_or(Ok(()), &mut take)?;
    }
    Ok(())
}

/// Prints a session, a line for each part.
pub async fn export(client: &Client, screen: &Screen, session: String) -> Result<(), Error> {
    stream(client, session, |part| screen.print(&format!("{}\n", line(part)))).await
}

/// A part of a session as JSON.
pub fn line(part: ExportPart) -> Value {
    let (kind, mut line) = match part {
        ExportPart::Session(session) => ("session", super::view(&session)),
        ExportPart::Entry(one) => ("entry", entry(&one)),
    };
    line["type"] = kind.into();
    line
}

/// Imports a file. Everything is read before the first entry is sent, so a line that cannot be read
/// imports nothing.
pub async fn import(
    client: &Client,
    screen: &Screen,
    file: &Path,
    (agent, session): (String, Option<String>),
) -> Result<(), Error> {
    let text = read(file)?;
    let mut entries = Vec::new();
    let mut exported = String::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line).map_err(|error| {
            Error::Usage(format!("line {} of the file is no line of an export: {error}", n + 1))
        })?;
        match line {
            Line::Session { key } => exported = key,
            Line::Entry(line) => entries.push(line.into_entry()),
        }
    }
    // Without its agent: the new session is of the one that is named.
    let name = session.unwrap_or_else(|| match exported.splitn(4, ':').nth(3) {
        Some(name) if exported.contains(":api:") => name.to_owned(),
        _ => exported.clone(),
    });
    if name.is_empty() {
        return Err(Error::Usage(
            "the file does not name its session: name the new one with --session".to_owned(),
        ));
    }
    let target = ImportPart::Target(ImportTarget { agent, session: name });
    let parts = [target].into_iter().chain(entries.into_iter().map(ImportPart::Entry));
    let requests = parts.map(|part| ImportSessionRequest { part: Some(part) });
    let request = client.request(tokio_stream::iter(requests.collect::<Vec<_>>()));
    let done = client.answer(client.sessions().import_session(request).await)?;
    screen.done(
        &format!("imported {} entries as {}", done.entries, done.key),
        &json!({"session": done.session, "key": done.key, "entries": done.entries}),
    )
}

fn read(file: &Path) -> Result<String, Error> {
    let mut source: Box<dyn Read> = if file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        let opened = File::open(file);
        Box::new(opened.with_context(|| format!("cannot open {}", file.display()))?)
    };
    let mut text = String::new();
    source.by_ref().take(MAX_FILE_BYTES).read_to_string(&mut text).context("cannot read")?;
    if source.read(&mut [0])? > 0 {
        return Err(Error::Usage(format!("the file has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

/// Line of an export; further fields are ignored.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Session { key: String },
    Entry(EntryLine),
}

#[derive(Debug, Deserialize)]
struct EntryLine {
    seq: i64,
    #[serde(default)]
    run_id: String,
    kind: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    detail: Value,
    #[serde(default)]
    created_at: Option<Timestamp>,
}

impl EntryLine {
    fn into_entry(self) -> Entry {
        let Self { seq, run_id, kind, text, detail, created_at } = self;
        let detail = if detail.is_null() { String::new() } else { detail.to_string() };
        Entry { seq, run_id, kind, text, detail, created_at: created_at.map(timestamp) }
    }
}
