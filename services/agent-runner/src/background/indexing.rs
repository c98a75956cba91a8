//! Indexing of agents' notes for search: `MEMORY.md` and the files in `memory/` (spec MEM-009).
//!
//! The workspace is the source of truth. A change of a note marks the agent's workspace; this loop
//! claims marked workspaces and makes the memory service equal to the files: notes with another
//! hash are indexed, missing ones are removed. There is no local state, so any runner can finish
//! what another began, and repeating it changes nothing. Notes belong to the agent's owner, as the
//! files do.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use holdfast_agent::person::OWNER;
use holdfast_pg::FailureLog;
use holdfast_proto::memory::v1 as pb;
use holdfast_types::{AgentId, Fault as _, Kind, TenantId, TreePath};
use holdfast_workspace::{FileEntry, LONG_TERM_NOTES_FILE, NOTES_FOLDER, is_unchanged_template};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info_span, warn};

use crate::{jitter::jittered, tools::memory::Memory, worker::Worker};

/// Workspaces per search.
const SEARCH_BATCH_SIZE: i64 = 16;

/// Time for which a workspace is claimed: longer than indexing usually takes. After it, another
/// runner continues.
const CLAIM_DURATION: Duration = Duration::from_secs(120);

/// In bytes.
const MAX_NOTE_BYTES: u64 = 4 * 1024 * 1024;

/// Documents per page of a list.
const DOCUMENTS_PER_PAGE: u32 = 500;

/// Indexes marked workspaces until `stop`.
pub(crate) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let Some(memory) = worker.memory.clone() else {
        stop.cancelled().await;
        return;
    };
    let trouble = FailureLog::new("notes are not indexed");
    while stop.run_until_cancelled(sleep(jittered(worker.config.relay))).await.is_some() {
        let marked = match worker.workspaces.agents_to_index(SEARCH_BATCH_SIZE).await {
            Ok(marked) => {
                trouble.on_success();
                marked
            }
            Err(error) => {
                trouble.on_failure(&error);
                continue;
            }
        };
        for (tenant, agent) in marked {
            let span = info_span!("indexing", tenant.id = %tenant, agent.id = %agent);
            let done = index_workspace(&worker, &memory, tenant, agent).instrument(span);
            match stop.run_until_cancelled(done).await {
                None => return,
                Some(Ok(())) => {}
                // The claim expires after a while; then it is tried again.
                Some(Err(error)) => {
                    let error: &dyn std::error::Error = error.as_ref();
                    warn!(error, agent.id = %agent, "an agent's notes are not indexed yet");
                    break;
                }
            }
        }
    }
}

async fn index_workspace(
    worker: &Worker,
    memory: &Memory,
    tenant: TenantId,
    agent: AgentId,
) -> anyhow::Result<()> {
    let Some(upto) = worker.workspaces.claim_index(tenant, agent, CLAIM_DURATION).await? else {
        return Ok(());
    };
    let mut files: Vec<FileEntry> = Vec::new();
    for within in [LONG_TERM_NOTES_FILE, NOTES_FOLDER] {
        let within: TreePath = within.parse()?;
        files.extend(worker.workspaces.list(tenant, agent, None, Some(&within)).await?);
    }
    files.retain(|file| !is_unchanged_template(&file.path, file.hash));
    let there = indexed_notes(memory, tenant, agent).await?;
    let (mut indexed, mut removed) = (0_u32, 0_u32);
    // Removals first: a later failure must not leave deleted notes in the search.
    let paths: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for path in there.keys().filter(|path| !paths.contains(path.as_str())) {
        remove_note(memory, tenant, agent, path).await?;
        removed += 1;
    }
    drop(paths);
    for file in files {
        let hash = file.hash.to_string();
        let known = there.get(file.path.as_str());
        if known == Some(&hash) {
            continue;
        }
        let path = file.path.to_string();
        if index_note(worker, memory, (tenant, agent), file, hash).await? {
            indexed += 1;
        } else if known.is_some() {
            // The old contents are gone: the file may be encrypted by now.
            remove_note(memory, tenant, agent, &path).await?;
            removed += 1;
        }
    }
    memory.on_memory_added(tenant, agent, OWNER);
    worker.workspaces.finish_index(tenant, agent, upto).await?;
    debug!(indexed, removed, "notes are indexed");
    Ok(())
}

async fn remove_note(
    memory: &Memory,
    tenant: TenantId,
    agent: AgentId,
    path: &str,
) -> anyhow::Result<()> {
    let request =
        pb::RemoveDocumentRequest { who: Some(notes_subject(agent)), path: path.to_owned() };
    memory.client.remove_document(tenant, request).await?;
    Ok(())
}

/// The agent's notes in the memory service: hashes by path.
async fn indexed_notes(
    memory: &Memory,
    tenant: TenantId,
    agent: AgentId,
) -> anyhow::Result<HashMap<String, String>> {
    let mut there = HashMap::new();
    let mut after = String::new();
    loop {
        let request = pb::ListDocumentsRequest {
            who: Some(notes_subject(agent)),
            path_prefix: String::new(),
            limit: DOCUMENTS_PER_PAGE,
            after: std::mem::take(&mut after),
        };
        let answer = memory.client.list_documents(tenant, request).await?;
        let own = answer.documents.into_iter();
        // The answer includes documents shared by all users.
        let own = own.filter(|document| document.user == OWNER && !document.agent.is_empty());
        there.extend(own.map(|document| (document.path, document.hash)));
        if answer.next.is_empty() {
            return Ok(there);
        }
        after = answer.next;
    }
}

/// Indexes a note. Returns `false` if it is not text, too large or rejected, so that it does not
/// block the others.
async fn index_note(
    worker: &Worker,
    memory: &Memory,
    (tenant, agent): (TenantId, AgentId),
    listed: FileEntry,
    hash: String,
) -> anyhow::Result<bool> {
    if listed.size > MAX_NOTE_BYTES {
        warn!(
            size = listed.size,
            limit = MAX_NOTE_BYTES,
            "a note is too large to be found by a search"
        );
        return Ok(false);
    }
    // If the note was changed since it was listed, the workspace is marked again.
    let file = worker.workspaces.read(tenant, agent, &listed.path, Some(listed.revision)).await?;
    let file = file.context("a listed note is not in its revision")?;
    let Some(text) = file.text().filter(|text| !text.contains('\0')) else {
        warn!(size = listed.size, "a note is no text, and is not found by a search");
        return Ok(false);
    };
    let request = pb::IndexDocumentRequest {
        who: Some(notes_subject(agent)),
        path: listed.path.to_string(),
        text: text.to_owned(),
        hash,
        group_safe: false,
        dated: None,
        provenance: Some(pb::Provenance {
            kind: pb::SourceKind::File.into(),
            name: "workspace".to_owned(),
            locator: format!("{}, revision {}", listed.path, listed.revision),
            retrieved_at: None,
            outside: file.outside,
        }),
    };
    match memory.client.index_document(tenant, request).await {
        Ok(_) => Ok(true),
        Err(refused) if refused.kind() == Kind::Invalid => {
            let error = &refused as &dyn std::error::Error;
            warn!(error, "a note is refused, and is not found by a search");
            Ok(false)
        }
        Err(refused) => Err(refused.into()),
    }
}

/// Owner of the notes.
fn notes_subject(agent: AgentId) -> pb::Who {
    pb::Who { agent: agent.to_string(), user: OWNER.to_owned(), ..pb::Who::default() }
}
