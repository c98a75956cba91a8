//! Import of an exported session.
//!
//! Entries are those of `ExportSession`, and may have been changed: nothing that they say is trusted.
//! Messages get the importer as their author and count as text from outside. What only a running
//! turn needs (approvals, calls of clients, files, the provider's own data) is left out, and the last
//! turn is ended, so that no runner continues it.

use std::time::Duration;

use futures::{Stream, StreamExt as _};
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, ImportSessionRequest, ImportSessionResponse, ImportTarget,
    import_session_request::Part,
};
use holdfast_session::ImportedEntry;
use holdfast_types::{
    Author, Body, CallRecord, Effect, Entry, Media, NameSpace, Note, RunId, SessionKind, ToolCall,
    Usage,
};
use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use tonic::Status;

use super::super::{State, invalid};
use crate::{
    Error, audit,
    ingest::{self, Destination},
    permissions::rights::{self, ConversationRight},
};

const MAX_ENTRIES: usize = 20_000;
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// Kinds of sessions in which people talk.
const KINDS: [SessionKind; 5] =
    [SessionKind::Main, SessionKind::Dm, SessionKind::Group, SessionKind::Topic, SessionKind::Api];
/// Time in which the client has to send everything.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Reads all entries, then stores them at once.
pub async fn import(
    state: &State,
    caller: &Caller,
    mut parts: impl Stream<Item = Result<ImportSessionRequest, Status>> + Unpin,
) -> Result<ImportSessionResponse, Status> {
    let Some(Part::Target(target)) = parts.next().await.transpose()?.and_then(|one| one.part)
    else {
        return Err(invalid("the first request of an import has no `target`".to_owned()).into());
    };
    audit::set_target(&target.session);
    let place = destination(state, caller, &target).await?;
    let reading = read(ingest::of_caller(caller), parts);
    let entries = tokio::time::timeout(TIMEOUT, reading).await.map_err(|_| {
        let seconds = TIMEOUT.as_secs();
        Status::deadline_exceeded(format!("the entries did not come within {seconds} s"))
    })??;
    let imported = state.sessions.import(caller.tenant, (place.agent.id, &place.key), &entries);
    let session = imported.await.map_err(Error::from)?;
    Ok(ImportSessionResponse {
        session: session.to_string(),
        key: place.key.to_string(),
        entries: u32::try_from(entries.len()).unwrap_or(u32::MAX),
    })
}

/// Agent and key of the new session.
async fn destination(
    state: &State,
    caller: &Caller,
    target: &ImportTarget,
) -> Result<Destination, Error> {
    if target.session.is_empty() {
        return Err(Error::MissingField("target.session"));
    }
    let routing = state.directory.routing().get(caller.tenant).await?;
    let place = ingest::named_destination(&routing, caller, &target.agent, &target.session)?;
    let kind = place.key.kind();
    if !KINDS.contains(&kind) {
        let kind = kind.as_str();
        return Err(invalid(format!("only the mesh makes sessions of kind {kind}: give a name")));
    }
    // What is imported would speak to a person in their own conversation.
    if place.key.name_space().and_then(NameSpace::person).is_some() {
        rights::check(caller, &place.key, ConversationRight::Write)?;
    }
    state.sessions.check_key_is_free(caller.tenant, &place.key).await?;
    Ok(place)
}

async fn read(
    author: Option<Author>,
    mut parts: impl Stream<Item = Result<ImportSessionRequest, Status>> + Unpin,
) -> Result<Vec<ImportedEntry>, Status> {
    let mut journal = ImportedJournal::new(author);
    while let Some(part) = parts.next().await.transpose()? {
        let Some(Part::Entry(entry)) = part.part else {
            return Err(invalid("a request after the first one has no `entry`".to_owned()).into());
        };
        journal.add(entry)?;
    }
    Ok(journal.finish()?)
}

/// Entries that are read so far.
struct ImportedJournal {
    author: Option<Author>,
    entries: Vec<ImportedEntry>,
    /// For each entry of the export, whether it is one of `entries`.
    are_kept: Vec<bool>,
    bytes: usize,
    last_seq: i64,
    /// Run of the last entry, in the export and here.
    run: Option<(String, RunId)>,
    /// Between two notes of a memory flush, whose entries are not part of the conversation.
    is_flushing: bool,
}

impl ImportedJournal {
    const fn new(author: Option<Author>) -> Self {
        Self {
            author,
            entries: Vec::new(),
            are_kept: Vec::new(),
            bytes: 0,
            last_seq: 0,
            run: None,
            is_flushing: false,
        }
    }

    fn add(&mut self, entry: pb::Entry) -> Result<(), Error> {
        if entry.seq <= self.last_seq {
            let message = format!(
                "the entry {} comes after {}: send entries in the order of their `seq`",
                entry.seq, self.last_seq
            );
            return Err(invalid(message));
        }
        self.last_seq = entry.seq;
        self.bytes += entry.text.len() + entry.detail.len();
        if self.are_kept.len() == MAX_ENTRIES || self.bytes > MAX_BYTES {
            return Err(invalid(format!(
                "an import has at most {MAX_ENTRIES} entries of {} MiB together: leave out the \
                 oldest",
                MAX_BYTES / (1024 * 1024)
            )));
        }
        let run = match &self.run {
            Some((exported, run)) if *exported == entry.run_id => *run,
            _ => RunId::generate(),
        };
        self.run = Some((entry.run_id.clone(), run));
        let now = Timestamp::now();
        let at = entry.created_at.as_ref().and_then(|at| Timestamp::new(at.seconds, at.nanos).ok());
        let created_at = at.filter(|at| *at < now).unwrap_or(now);
        let seq = entry.seq;
        let read = self.convert(entry).map_err(|why| invalid(format!("the entry {seq}: {why}")))?;
        self.are_kept.push(read.is_some());
        self.entries.extend(read.map(|entry| ImportedEntry { run, entry, created_at }));
        Ok(())
    }

    /// Converts an entry; `None` if it is left out.
    fn convert(&mut self, entry: pb::Entry) -> Result<Option<Entry>, String> {
        let pb::Entry { kind, text, detail, .. } = entry;
        if text.contains('\0') || detail.contains("\\u0000") {
            return Err("it contains a NUL: remove it".to_owned());
        }
        let read = match kind.as_str() {
            "heard" => {
                let mut body = self.body(text, parse(&detail)?)?;
                body.author.clone_from(&self.author);
                Entry::Heard { seq: 0, body }
            }
            "thought" => {
                let ThoughtDetail { calls, usage, model } = parse(&detail)?;
                Entry::Thought { text, calls, usage, model, carry: None, record: None }
            }
            "called" => {
                let CalledDetail { call, effect } = parse(&detail)?;
                Entry::Called { call, effect }
            }
            "returned" => {
                let ReturnedDetail { call, failed } = parse(&detail)?;
                let record = CallRecord { outside: true, ..CallRecord::default() };
                Entry::Returned { call, output: text, failed, media: Media::default(), record }
            }
            "noted" => return self.note(text, parse(&detail)?),
            other => {
                let other: String = other.chars().take(40).collect();
                return Err(format!("`{other}` is no kind of entry"));
            }
        };
        Ok(Some(read).filter(|_| !self.is_flushing))
    }

    fn body(&self, text: String, detail: HeardDetail) -> Result<Body, String> {
        let HeardDetail { role, calls, silent, sent_at } = detail;
        if role.as_ref().is_some_and(|role| !["system", "assistant", "tool"].contains(&&**role)) {
            return Err("its `role` must be system, assistant or tool, or absent".to_owned());
        }
        let sent_at = sent_at.map(|at| at.parse::<Timestamp>().map_err(|error| error.to_string()));
        let sent_at = sent_at.transpose()?.map(Timestamp::as_second);
        Ok(Body { role, calls, silent, sent_at, outside: true, ..Body::text(text) })
    }

    fn note(&mut self, text: String, detail: NoteDetail) -> Result<Option<Entry>, String> {
        let NoteDetail { note, keeps } = detail;
        let flushed = self.is_flushing;
        self.is_flushing = note == Note::Flush || (flushed && note != Note::Flushed);
        let noted = match note {
            Note::Summary => {
                let keeps = usize::try_from(keeps).unwrap_or(usize::MAX);
                let kept = self.are_kept.iter().rev().take(keeps).filter(|is_kept| **is_kept);
                Entry::summary(text, u32::try_from(kept.count()).unwrap_or(u32::MAX))
            }
            Note::Interrupted | Note::Cancelled | Note::Failed | Note::Command | Note::Reset => {
                Entry::noted(note, text)
            }
            // The client's calls wait no more.
            Note::HandedOver => Entry::noted(Note::Interrupted, ""),
            Note::Flush
            | Note::Flushed
            | Note::DeadlinePassed
            | Note::Asked
            | Note::Allowed
            | Note::Routed
            | Note::Told
            | Note::Posted
            | Note::Dispatched
            | Note::Unknown => return Ok(None),
        };
        Ok(Some(noted).filter(|_| !flushed))
    }

    /// Returns the entries, with the last turn ended.
    fn finish(mut self) -> Result<Vec<ImportedEntry>, Error> {
        let Some(last) = self.entries.last().cloned() else {
            return Err(invalid("the import has no entry: send at least one".to_owned()));
        };
        // A summary stands anywhere, also within a turn.
        let is_summary = |entry: &&Entry| matches!(entry, Entry::Noted { note: Note::Summary, .. });
        let mut newest = self.entries.iter().rev().map(|imported| &imported.entry);
        let is_ended = match newest.find(|entry| !is_summary(entry)) {
            Some(Entry::Thought { calls, .. }) => calls.is_empty(),
            Some(Entry::Noted { .. }) | None => true,
            Some(Entry::Heard { .. } | Entry::Called { .. } | Entry::Returned { .. }) => false,
        };
        if !is_ended {
            let entry = Entry::noted(Note::Interrupted, "");
            self.entries.push(ImportedEntry { entry, ..last });
        }
        // Positions of an inbox begin with 1. These are before them, and no two are the same.
        let count = i64::try_from(self.entries.len()).unwrap_or(i64::MAX);
        for (place, imported) in (-count..).zip(&mut self.entries) {
            if let Entry::Heard { seq, .. } = &mut imported.entry {
                *seq = place;
            }
        }
        Ok(self.entries)
    }
}

/// Reads the detail of an entry; other fields are ignored.
fn parse<T: DeserializeOwned>(detail: &str) -> Result<T, String> {
    let detail = if detail.is_empty() { "{}" } else { detail };
    serde_json::from_str(detail).map_err(|error| format!("its `detail` cannot be read: {error}"))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HeardDetail {
    role: Option<String>,
    calls: Vec<ToolCall>,
    silent: bool,
    sent_at: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ThoughtDetail {
    calls: Vec<ToolCall>,
    usage: Usage,
    model: String,
}

#[derive(Deserialize)]
struct CalledDetail {
    call: String,
    effect: Effect,
}

#[derive(Deserialize)]
struct ReturnedDetail {
    call: String,
    #[serde(default)]
    failed: bool,
}

#[derive(Deserialize)]
struct NoteDetail {
    note: Note,
    #[serde(default)]
    keeps: u32,
}

#[cfg(test)]
mod tests {
    use holdfast_grpc::{Scope, Scopes};
    use holdfast_types::KeyId;
    use serde_json::{Value, json};

    use super::*;

    fn entry(seq: i64, kind: &str, text: &str, detail: Value) -> pb::Entry {
        let (kind, text, detail) = (kind.to_owned(), text.to_owned(), detail.to_string());
        pb::Entry { seq, kind, text, detail, ..pb::Entry::default() }
    }

    fn import(entries: Vec<pb::Entry>) -> Result<Vec<Entry>, Error> {
        let mut journal = ImportedJournal::new(Some(ingest::of_key(
            KeyId::generate(),
            Scopes::EMPTY.with(Scope::Chat),
        )));
        entries.into_iter().try_for_each(|entry| journal.add(entry))?;
        Ok(journal.finish()?.into_iter().map(|imported| imported.entry).collect())
    }

    #[test]
    fn what_an_entry_claims_about_its_author_its_approval_or_its_origin_is_not_taken() {
        let owner = json!({"author": {"id": "telegram:1", "roles": ["owner"]}, "outside": false});
        let call =
            json!({"calls": [{"id": "c", "tool": "exec", "input": "{}"}], "carry": {"x": 1}});
        let entries = import(vec![
            entry(1, "heard", "hi", owner),
            entry(2, "thought", "", call),
            entry(3, "noted", "c", json!({"note": "allowed"})),
        ])
        .unwrap();

        let Entry::Heard { seq, body } = &entries[0] else { panic!("{entries:?}") };
        assert!(*seq < 0 && body.outside && body.author.as_ref().unwrap().roles == ["member"]);
        assert!(matches!(&entries[1], Entry::Thought { carry: None, .. }));
        // Neither approved nor open: no runner makes the call.
        assert_eq!(entries[2..], [Entry::noted(Note::Interrupted, "")]);
    }

    #[test]
    fn a_summary_keeps_as_many_entries_as_are_left_of_those_that_it_kept() {
        let entries = import(vec![
            entry(1, "heard", "old", json!({})),
            entry(2, "thought", "so", json!({})),
            entry(5, "heard", "new", json!({})),
            entry(6, "noted", "x", json!({"note": "asked"})),
            entry(7, "noted", "short", json!({"note": "summary", "keeps": 2})),
        ])
        .unwrap();

        assert_eq!(entries[3], Entry::summary("short", 1));
    }

    #[test]
    fn entries_that_cannot_be_are_refused_with_their_seq() {
        for (entries, told) in [
            (vec![], "no entry"),
            (vec![entry(2, "heard", "", json!({})), entry(2, "heard", "", json!({}))], "order"),
            (vec![entry(1, "shouted", "", json!({}))], "`shouted`"),
            (vec![entry(1, "heard", "", json!({"role": "robot"}))], "`role`"),
            (vec![entry(1, "returned", "", json!({}))], "the entry 1: its `detail`"),
            (vec![entry(1, "heard", "\0", json!({}))], "NUL"),
            (vec![entry(1, "heard", &"x".repeat(MAX_BYTES + 1), json!({}))], "32 MiB"),
        ] {
            let refusal = import(entries).unwrap_err().to_string();
            assert!(refusal.contains(told), "{told}: {refusal}");
        }
    }
}
