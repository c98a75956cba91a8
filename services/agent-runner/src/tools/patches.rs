//! Patches of subagents: a subagent's copy of the workspace, and merging its changes (spec
//! SUB-021).
//!
//! Only the conversation that started the subagent can merge, and it can see and change only the
//! files that it can see and change anyway.

use holdfast_agent::{
    bootstrap::Audience,
    file_view::{FileSpace, FileView, is_instruction},
    policy::Decision,
    subagent::patch_note,
};
use holdfast_session::Subagent;
use holdfast_tools::{Approval, Call, SessionRef, StoredChange, SubagentChanges, SubjectText};
use holdfast_types::{AgentId, Fault as _, InvalidPath, Kind, SessionKind, TenantId, TreePath};
use holdfast_workspace::{
    BranchState, ChangeAuthor, Diff, Error, File, FileChange, Patch, Workspaces,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::tools::{
    files::{WorkspaceFiles, to_files_error, visible_diff, visible_tree_path},
    mesh::SessionTools,
    shell::{self, CommandPolicy},
    tool_context::ToolContext,
};

/// Files that the summary of an approval for a merge names.
const MAX_FILES_IN_SUMMARY: usize = 5;

/// A subagent of the conversation and its copy of the workspace.
struct SubagentCopy {
    subagent: Subagent,
    branch: AgentId,
}

impl SubagentChanges for SessionTools {
    async fn show(
        &self,
        call: &Call,
        which: SessionRef,
        within: Option<String>,
    ) -> anyhow::Result<Result<String, String>> {
        let (store, copy) = match self.find_copy(call, which).await? {
            Ok(found) => found,
            Err(reason) => return Ok(Err(reason)),
        };
        let view = &ToolContext::of(call)?.file_view;
        let within = within.map(|path| tree_path(view, &path)).transpose();
        let within = match within {
            Ok(within) => within,
            Err(error) => return Ok(Err(error)),
        };
        let within = within.as_ref();
        let patch = store.workspaces.patch(call.tenant, call.agent, copy.branch, within).await;
        let mut patch = match split_errors(patch)? {
            Ok(patch) => patch,
            Err(reason) => return Ok(Err(reason)),
        };
        let (diff, hidden) = visible_diff(view, patch.diff);
        patch.diff = diff;
        let mut said = patch_summary(&patch, copy.subagent.outcome.is_none());
        if hidden > 0 {
            said.push_str(&format!("; {hidden} more are not for this conversation"));
        }
        Ok(Ok(format!("{said}\n{}", patch.diff)))
    }

    async fn read(
        &self,
        call: &Call,
        which: SessionRef,
        path: String,
    ) -> anyhow::Result<Result<String, String>> {
        let (store, copy) = match self.find_copy(call, which).await? {
            Ok(found) => found,
            Err(reason) => return Ok(Err(reason)),
        };
        let path: TreePath = match path.parse() {
            Ok(path) => path,
            Err(error) => return Ok(Err(holdfast_types::InvalidPath::to_string(&error))),
        };
        let missing = || Ok(Err(format!("there is no `{path}` in the copy")));
        let view = &ToolContext::of(call)?.file_view;
        let Some(in_tree) = visible_tree_path(view, &path).map_err(anyhow::Error::from)? else {
            return missing();
        };
        let found = store.workspaces.read(call.tenant, copy.branch, &in_tree, None).await?;
        match found.as_ref().map(|file| file.text()) {
            None => missing(),
            Some(None) => Ok(Err(format!("`{path}` is not text"))),
            Some(Some(text)) => Ok(Ok(text.to_owned())),
        }
    }

    async fn approval(
        &self,
        call: &Call,
        which: SessionRef,
        except: Vec<String>,
    ) -> anyhow::Result<Approval> {
        // The call itself reports why it cannot be merged.
        let Ok((store, copy)) = self.find_copy(call, which).await? else {
            return Ok(Approval::Never);
        };
        let patched = store.workspaces.patched_files(call.tenant, call.agent, copy.branch).await;
        let Ok(mut files) = split_errors(patched)? else { return Ok(Approval::Never) };
        let ToolContext { file_view: view, command_policy, .. } = ToolContext::of(call)?;
        // A file that the conversation does not see is refused by the merge.
        files.retain_mut(|file| match view.view_path(&file.path) {
            Some(path) => {
                file.path = path;
                !except.iter().any(|path| path == file.path.as_str())
            }
            None => false,
        });
        let asked = match protected_files(command_policy, &files) {
            Ok(asked) => asked,
            Err(denied) => return Ok(denied),
        };
        if asked.is_empty() {
            return Ok(Approval::Never);
        }
        let paths = asked.iter().filter_map(|file| view.tree_path(&file.path).ok());
        let paths: Vec<TreePath> = paths.collect();
        let contents = store.workspaces.read_many(call.tenant, copy.branch, &paths).await?;
        let is_hidden = |file: &File| file.text().is_none();
        if let Some((path, _)) = contents.iter().find(|(_, file)| is_hidden(file)) {
            let path = view.view_path(path).unwrap_or_else(|| path.clone());
            return Ok(Approval::Deny(format!(
                "not merged: a person decides about `{path}`, and it is no text that they could \
                 read; leave it out with `except`"
            )));
        }
        let subject = SubjectText::default()
            .with("session", &copy.subagent.session.to_string())
            .with("patch", &format!("SHA-256 {}", patch_digest(&files)));
        let subject = asked.iter().fold(subject, |subject, file| {
            let in_tree = view.tree_path(&file.path).ok();
            let content = in_tree.and_then(|path| contents.get(&path));
            shell::with_file(subject, file.path.as_str(), content)
        });
        let summary = merge_summary(&copy.subagent.label, &asked);
        Ok(Approval::Ask { subject: subject.into(), summary, pattern: None })
    }

    async fn merge(
        &self,
        call: &Call,
        which: SessionRef,
        except: Vec<String>,
    ) -> anyhow::Result<Result<StoredChange, String>> {
        let (store, copy) = match self.find_copy(call, which).await? {
            Ok(found) => found,
            Err(reason) => return Ok(Err(reason)),
        };
        if copy.subagent.outcome.is_none() {
            return Ok(Err(
                "it is still at work: you will be told when it has ended; merge then".to_owned()
            ));
        }
        let view = &ToolContext::of(call)?.file_view;
        let except = except.iter().map(|path| tree_path(view, path));
        let except = match except.collect::<Result<Vec<TreePath>, String>>() {
            Ok(except) => except,
            Err(error) => return Ok(Err(error)),
        };
        let reason = format!("merge of {}: {}", copy.subagent.session, copy.subagent.label);
        let by = ChangeAuthor {
            run: Some(call.run),
            ..ChangeAuthor::new(call.agent_name.as_str(), &reason)
        };
        // What a subagent wrote counts as text from outside, as its messages do.
        let by = by.with_key(&call.key).from_outside(true);
        let refuse = |path: &TreePath| {
            let Some(path) = view.view_path(path) else {
                return Some("it changed files that are not for this conversation".to_owned());
            };
            WorkspaceFiles::check_write(call, path.as_str()).err().map(|error| error.to_string())
        };
        let workspaces = &store.workspaces;
        let (tenant, agent) = (call.tenant, call.agent);
        let merged = workspaces.merge(tenant, agent, copy.branch, &by, &except, refuse).await;
        let merged = merged.map_err(|error| with_view_paths(view, error));
        let merged = match split_errors(merged)? {
            Ok(merged) => merged,
            Err(reason) => return Ok(Err(reason)),
        };
        // Files of the prompt may have changed.
        ToolContext::of(call)?.invalidate_snapshot();
        Ok(Ok(store.diff(call, &merged).await?))
    }

    async fn discard(&self, call: &Call, which: SessionRef) -> anyhow::Result<Result<(), String>> {
        let (store, copy) = match self.find_copy(call, which).await? {
            Ok(found) => found,
            Err(reason) => return Ok(Err(reason)),
        };
        split_errors(store.workspaces.discard_branch(call.tenant, call.agent, copy.branch).await)
    }
}

impl SessionTools {
    /// Copies the workspace for a subagent. Idempotent for the same call.
    pub(crate) async fn create_copy(
        &self,
        call: &Call,
        label: &str,
    ) -> anyhow::Result<Result<AgentId, String>> {
        let Some(store) = &self.files else {
            return Ok(Err("there are no files here to make a copy of".to_owned()));
        };
        let branch = copy_id(&call.key);
        let by = ChangeAuthor::new(call.agent_name.as_str(), &format!("copied for: {label}"));
        let by = ChangeAuthor { run: Some(call.run), ..by };
        let made = store.workspaces.branch(call.tenant, call.agent, branch, &by).await;
        Ok(split_errors(made)?.map(|()| branch))
    }

    /// Finds the copy of one of this conversation's subagents.
    async fn find_copy(
        &self,
        call: &Call,
        which: SessionRef,
    ) -> anyhow::Result<Result<(&WorkspaceFiles, SubagentCopy), String>> {
        let Some(found) = self.find_own_subagent(call, which).await? else {
            return Ok(Err("this conversation has no such subagent".to_owned()));
        };
        let Some((store, branch)) = self.files.as_deref().zip(found.given.branch) else {
            return Ok(Err(
                "it works on your own files, not on a copy: nothing is to be merged".to_owned()
            ));
        };
        Ok(Ok((store, SubagentCopy { subagent: found, branch })))
    }
}

/// Path in the tree of a path that the model named, or the reason why it is invalid.
fn tree_path(view: &FileView, path: &str) -> Result<TreePath, String> {
    let path: TreePath = path.parse().map_err(|error: InvalidPath| error.to_string())?;
    view.tree_path(&path).map_err(|error| error.to_string())
}

/// An error of a merge, with the paths that the conversation sees.
fn with_view_paths(view: &FileView, error: Error) -> Error {
    match error {
        Error::Conflicts { paths, more } => {
            let paths = paths.into_iter().filter_map(|path| view.view_path(&path)).collect();
            Error::Conflicts { paths, more }
        }
        error => error,
    }
}

/// Files of a merge that need an approval: the policy decides as for writing them. Without a policy
/// they do.
fn protected_files<'a>(
    command_policy: &CommandPolicy,
    files: &'a [FileChange],
) -> Result<Vec<&'a FileChange>, Approval> {
    let mut asked = Vec::new();
    for file in files {
        let path = file.path.as_str();
        match command_policy.decide("write", &json!({ "path": path })) {
            // A subagent's text is text from outside.
            Decision::Allow if is_instruction(path) => asked.push(file),
            Decision::Allow => {}
            Decision::NeedApproval { .. } => asked.push(file),
            Decision::Deny { .. } => {
                return Err(Approval::Deny(format!(
                    "not merged: you may not write `{path}` here; leave it out with `except`"
                )));
            }
        }
    }
    Ok(asked)
}

/// Digest of all changes of a merge: a merge with other changes needs its own approval.
fn patch_digest(files: &[FileChange]) -> String {
    let mut patch = Sha256::new();
    for file in files {
        patch.update((file.path.as_str().len() as u64).to_be_bytes());
        patch.update(file.path.as_str());
        match file.after {
            Some(after) => patch.update(after.hash.as_bytes()),
            None => patch.update([0]),
        }
    }
    patch.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn merge_summary(label: &str, asked: &[&FileChange]) -> String {
    let names = asked.iter().take(MAX_FILES_IN_SUMMARY).map(|file| file.path.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    let more = asked.len().saturating_sub(MAX_FILES_IN_SUMMARY);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("merge what \"{label}\" changed in {names}{more}")
}

/// Note for the requester about its subagent's changes; `None` if the subagent worked without a
/// copy or the copy is gone.
pub(crate) async fn patch_note_for(
    workspaces: &Workspaces,
    tenant: TenantId,
    agent: AgentId,
    ended: &Subagent,
) -> Result<Option<String>, Error> {
    let Some(branch) = ended.given.branch else { return Ok(None) };
    let patch = match workspaces.patch(tenant, agent, branch, None).await {
        Ok(patch) => patch,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Of the requester's files, the subagent saw those that the requester sees.
    let space = ended.given.files_of.as_deref().and_then(FileSpace::parse);
    let diff = match space {
        Some(space) => {
            let view = FileView::new(SessionKind::Subagent, Audience::Others, space);
            visible_diff(&view, patch.diff).0
        }
        None => Diff { files: Vec::new(), more: patch.diff.files.len() + patch.diff.more },
    };
    let changed = diff.files.len() + diff.more;
    Ok(Some(patch_note(&ended.session.to_string(), changed, &diff.to_string())))
}

/// State of a patch, in one line.
fn patch_summary(patch: &Patch, is_at_work: bool) -> String {
    let files = patch.diff.files.len() + patch.diff.more;
    let what = match patch.state {
        BranchState::Open if is_at_work => "still at work",
        BranchState::Open => "not merged yet",
        BranchState::Merged => "merged",
        BranchState::Discarded => "discarded",
        BranchState::Gone => "gone",
    };
    format!("{what}; {files} files changed since revision {}", patch.base)
}

/// Separates errors that the model can solve from internal ones.
fn split_errors<T>(done: Result<T, Error>) -> anyhow::Result<Result<T, String>> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(error) => match error.kind() {
            Kind::Invalid | Kind::NotFound | Kind::Conflict | Kind::Exhausted => {
                Ok(Err(error.to_string()))
            }
            Kind::Unauthenticated | Kind::Forbidden | Kind::Unavailable | Kind::Internal => {
                Err(to_files_error(error).into())
            }
        },
    }
}

/// Id of the copy, derived from the call's key.
fn copy_id(call: &str) -> AgentId {
    let digest = Sha256::digest(format!("branch:{call}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    // RFC 9562, 5.8: a custom format.
    uuid::Builder::from_custom_bytes(bytes).into_uuid().into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_agent::policy::{self, Catalog, CompiledPolicy, Defaults, Subject};
    use holdfast_types::SessionKind;

    use super::*;

    #[test]
    fn the_same_call_makes_the_same_copy() {
        assert_eq!(copy_id("a:b:0:c"), copy_id("a:b:0:c"));
        assert_ne!(copy_id("a:b:0:c"), copy_id("a:b:1:c"));
        assert_eq!(copy_id("a").as_uuid().get_version_num(), 8);
    }

    #[test]
    fn a_merge_that_changes_instructions_needs_a_person() {
        let (catalog, _) = Catalog::new([policy::Tool::native("write")]);
        let settings = policy::Settings::default();
        let compiled =
            CompiledPolicy::new(Arc::new(catalog), &Defaults::default(), &settings, &settings);
        let owner = Subject { is_owner: true, ..Subject::new(SessionKind::Main) };
        let command_policy = CommandPolicy::new(Arc::new(compiled.unwrap()), owner);
        let files = ["AGENTS.md", "notes.txt", "skills/tea/SKILL.md", "self.md"]
            .map(|path| FileChange { path: path.parse().unwrap(), before: None, after: None });

        let asked = protected_files(&command_policy, &files).unwrap();

        let paths: Vec<&str> = asked.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["AGENTS.md", "skills/tea/SKILL.md", "self.md"]);
    }
}
