//! Files in memory, for tests: versioned, by tenant and agent, and strict about bases and keys.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use holdfast_documents::DocumentReader;
use holdfast_types::{AgentId, TenantId};
use sha2::{Digest as _, Sha256};

use super::{File, FileChanges, FileSummary, Files, FilesError, StoredChange};
use crate::{
    Call, Registry,
    mesh::tests::{call, said},
};

type Whose = (TenantId, AgentId);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<(Whose, String), Vec<u8>>,
    made: BTreeMap<(Whose, String), StoredChange>,
    revisions: u32,
    reasons: Vec<String>,
    /// Concurrent write, applied right after the file is read.
    meanwhile: Option<(String, Vec<u8>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<State>);

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a file, as another writer would.
    pub(crate) fn put(&self, call: &Call, path: &str, content: impl Into<Vec<u8>>) {
        self.state().files.insert((whose(call), path.to_owned()), content.into());
    }

    /// Returns the bytes of a file.
    pub(crate) fn bytes(&self, call: &Call, path: &str) -> Option<Vec<u8>> {
        self.state().files.get(&(whose(call), path.to_owned())).cloned()
    }

    /// Returns the contents of a file.
    pub(crate) fn get(&self, call: &Call, path: &str) -> Option<String> {
        self.bytes(call, path).map(|content| String::from_utf8_lossy(&content).into_owned())
    }

    /// Schedules a concurrent write, applied right after the file is read.
    pub(crate) fn meanwhile(&self, path: &str, content: &str) {
        self.state().meanwhile = Some((path.to_owned(), content.as_bytes().to_vec()));
    }

    /// Number of changes, and the reason of the last one.
    pub(crate) fn changes(&self) -> (u32, Option<String>) {
        let state = self.state();
        (state.revisions, state.reasons.last().cloned())
    }
}

fn whose(call: &Call) -> Whose {
    (call.tenant, call.agent)
}

fn hash(content: &[u8]) -> String {
    format!("{:x?}", &Sha256::digest(content)[..8])
}

impl Files for Memory {
    async fn read(&self, call: &Call, path: &str) -> Result<Option<File>, FilesError> {
        let mut state = self.state();
        let place = (whose(call), path.to_owned());
        let content = state.files.get(&place).cloned();
        if let Some((_, theirs)) = state.meanwhile.take_if(|(changed, _)| changed == path) {
            state.files.insert(place, theirs);
        }
        Ok(content.map(|content| File { hash: hash(&content), content }))
    }

    async fn list(&self, call: &Call, directory: &str) -> Result<Vec<FileSummary>, FilesError> {
        let below = |path: &str| {
            directory.is_empty()
                || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
        };
        let state = self.state();
        let ours = state.files.iter().filter(|((owner, _), _)| *owner == whose(call));
        let lines =
            ours.filter(|((_, path), _)| below(path)).map(|((_, path), content)| FileSummary {
                path: path.clone(),
                size: u64::try_from(content.len()).unwrap_or(u64::MAX),
                changed: "2026-12-01 14:00 UTC".into(),
            });
        Ok(lines.collect())
    }

    async fn committed(&self, call: &Call) -> Result<Option<StoredChange>, FilesError> {
        Ok(self.state().made.get(&(whose(call), call.key.clone())).cloned())
    }

    async fn commit(&self, call: &Call, change: FileChanges) -> Result<StoredChange, FilesError> {
        let mut state = self.state();
        if let Some(made) = state.made.get(&(whose(call), call.key.clone())) {
            return Ok(made.clone());
        }
        let mut files = state.files.clone();
        let mut diff = String::new();
        for edit in change.edits {
            let there = files.entry((whose(call), edit.path.clone()));
            let is = match &there {
                Entry::Occupied(there) => Some(hash(there.get())),
                Entry::Vacant(_) => None,
            };
            if is != edit.base {
                return Err(FilesError::Conflict(edit.path));
            }
            let sign = if edit.content.is_some() { '+' } else { '-' };
            diff.push_str(&format!("{sign} {}\n", edit.path));
            match (edit.content, there) {
                (Some(content), there) => drop(there.insert_entry(content)),
                (None, Entry::Occupied(there)) => drop(there.remove()),
                (None, Entry::Vacant(_)) => return Err(FilesError::NotFound(edit.path)),
            }
        }
        state.files = files;
        state.revisions += 1;
        state.reasons.push(change.reason);
        let made = StoredChange { revision: format!("r{}", state.revisions), diff };
        state.made.insert((whose(call), call.key.clone()), made.clone());
        Ok(made)
    }
}

/// Reader of documents that cannot read any.
pub(crate) fn no_documents() -> DocumentReader {
    DocumentReader::new("/nonexistent/reader".into())
}

/// Returns a call, its files, and the tools for them.
pub(crate) fn files() -> (Call, Arc<Memory>, Registry) {
    let files = Arc::new(Memory::default());
    (call(), Arc::clone(&files), Registry::default().with_files(files, no_documents()))
}

/// Copies the call with another key, like the model's next call.
pub(crate) fn next(call: &Call, key: &str) -> Call {
    Call { key: key.to_owned(), ..call.clone() }
}

/// Returns the output of a successful call.
pub(crate) async fn ask(tools: &Registry, call: &Call, name: &str, input: &str) -> String {
    said(tools.call(call.clone(), name, input).await)
}

/// Returns the error of a failed call.
pub(crate) async fn refused(tools: &Registry, call: &Call, name: &str, input: &str) -> String {
    crate::mesh::tests::tell(tools.call(call.clone(), name, input).await)
}

#[tokio::test]
async fn no_agent_meets_the_files_of_another() {
    let (call, files, tools) = files();
    files.put(&call, "a.md", "secret");
    let tenant = Call { tenant: TenantId::generate(), ..call.clone() };
    let agent = Call { agent: AgentId::generate(), ..call.clone() };

    for stranger in [tenant, agent] {
        assert_eq!(ask(&tools, &stranger, "list_files", "{}").await, "There are no files.");
        let told = refused(&tools, &stranger, "read", r#"{"path":"a.md"}"#).await;
        assert!(told.starts_with("there is no file `a.md`"), "{told}");
    }
}
