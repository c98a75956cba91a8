//! Workspace files, as the tools of a turn see them.
//!
//! The conversation decides which files exist, and their paths (spec BST-005, C-07, C-39, decision
//! 0058): a person sees their own files and what is shared; notes made for the owner are invisible in
//! conversations with others, and the files that define the agent can only be changed in its owner's
//! conversation. Tools and scopes use view paths, the workspace tree paths.

use holdfast_agent::file_view::{FileSpace, FileView, PEOPLE_FOLDER, is_instruction};
use holdfast_skills::{SKILLS_FOLDER, Scope as Owner, Skill, SkillLibrary};
use holdfast_tools::{
    Call, File, FileChanges, FileEdit, FileSummary, Files, FilesError, StoredChange,
};
use holdfast_types::{AgentId, Fault as _, Kind, TreePath};
use holdfast_workspace::{
    Base, ChangeAuthor, ContentHash, Diff, Edit, Error, FileEntry, Revision, Workspaces,
};

use crate::tools::tool_context::ToolContext;

/// Lines of a diff in the result of a tool.
const MAX_SHOWN_DIFF_LINES: usize = 200;

/// Files and folders that file tools may access; `None` means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileScope {
    pub(crate) read: Option<Vec<String>>,
    pub(crate) write: Option<Vec<String>>,
}

impl FileScope {
    pub(crate) const fn is_restricted(&self) -> bool {
        self.read.is_some() || self.write.is_some()
    }

    /// Writable files are readable too.
    fn may_read(&self, path: &str) -> bool {
        let is_written = || self.write.as_deref().is_some_and(|roots| is_within(roots, path));
        self.read.as_deref().is_none_or(|roots| is_within(roots, path)) || is_written()
    }

    pub(crate) fn may_write(&self, path: &str) -> bool {
        self.write.as_deref().is_none_or(|roots| is_within(roots, path))
    }
}

fn is_within(roots: &[String], path: &str) -> bool {
    roots.iter().any(|root| {
        let rest = path.strip_prefix(root.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || root.is_empty())
    })
}

fn out_of_bounds(verb: &str, path: &str, roots: Option<&[String]>) -> FilesError {
    let roots = match roots {
        None | Some([]) => "nowhere".to_owned(),
        Some(roots) => roots.join(", "),
    };
    FilesError::Invalid(format!("`{path}` is outside of where you may {verb}: {roots}"))
}

/// File access for the sessions that run here.
#[derive(Debug)]
pub(crate) struct WorkspaceFiles {
    pub(crate) workspaces: Workspaces,
    library: SkillLibrary,
}

impl WorkspaceFiles {
    pub(crate) fn new(library: SkillLibrary) -> Self {
        Self { workspaces: library.trees().clone(), library }
    }

    /// The skill outside the agent's workspace that a path belongs to.
    fn library_skill(call: &Call, path: &TreePath) -> Option<Skill> {
        let mut parts = path.parts();
        let folder = (parts.next() == Some(SKILLS_FOLDER)).then(|| parts.next()).flatten()?;
        let skill_set = &ToolContext::of(call).ok()?.skills;
        let skill = skill_set.find(folder).filter(|skill| skill.name() == folder)?;
        (skill.scope != Owner::Workspace).then(|| skill.clone())
    }

    /// Files of skills outside the agent's workspace that are in a directory.
    async fn list_library_skills(
        &self,
        call: &Call,
        directory: &TreePath,
    ) -> Result<Vec<FileSummary>, FilesError> {
        let skill_set = &ToolContext::of(call)?.skills;
        let mut lines = Vec::new();
        for skill in skill_set.skills().filter(|skill| skill.scope != Owner::Workspace) {
            let files = self.library.files(call.tenant, call.agent, skill).await;
            let files = files.map_err(|error| FilesError::Broken(error.into()))?;
            for file in files.into_iter().filter(|file| file.path.is_within(directory)) {
                lines.push(FileSummary {
                    path: file.path.to_string(),
                    size: file.size,
                    changed: format!("of the {}", skill.scope),
                });
            }
        }
        Ok(lines)
    }

    fn check_read(call: &Call, path: &str) -> Result<(), FilesError> {
        let scope = &ToolContext::of(call)?.scope;
        match scope.may_read(path) {
            true => Ok(()),
            false => Err(out_of_bounds("look", path, scope.read.as_deref())),
        }
    }

    pub(crate) fn check_write(call: &Call, path: &str) -> Result<(), FilesError> {
        let context = ToolContext::of(call)?;
        if !context.scope.may_write(path) {
            return Err(out_of_bounds("write", path, context.scope.write.as_deref()));
        }
        if !context.file_view.may_change(path) {
            return Err(FilesError::Invalid(format!(
                "`{path}` is changed in a conversation with your owner only, and this is none"
            )));
        }
        Ok(())
    }

    /// The workspace that the call works on: its agent's own, or a copy.
    fn workspace_of(call: &Call) -> Result<AgentId, FilesError> {
        Ok(ToolContext::of(call)?.workspace_branch.unwrap_or(call.agent))
    }

    pub(crate) async fn diff(
        &self,
        call: &Call,
        committed: &holdfast_workspace::CommitOutcome,
    ) -> Result<StoredChange, FilesError> {
        let to = committed.revision;
        let from = Revision::from((to.number() - 1).max(0));
        let diff = match committed.changed {
            0 => String::new(),
            _ => {
                let diff = self
                    .workspaces
                    .diff(call.tenant, Self::workspace_of(call)?, from, to, None)
                    .await;
                let view = &ToolContext::of(call)?.file_view;
                first_lines(&visible_diff(view, diff.map_err(to_files_error)?).0.to_string())
            }
        };
        Ok(StoredChange { revision: to.to_string(), diff })
    }
}

impl Files for WorkspaceFiles {
    async fn read(&self, call: &Call, path: &str) -> Result<Option<File>, FilesError> {
        Self::check_read(call, path)?;
        let path = parse_path(path)?;
        let view = &ToolContext::of(call)?.file_view;
        let sees_all_files = *view.space() == FileSpace::Whole;
        let Some(in_tree) = visible_tree_path(view, &path)? else { return Ok(None) };
        let workspace = Self::workspace_of(call)?;
        let found = self.workspaces.read(call.tenant, workspace, &in_tree, None).await;
        let mut found = found.map_err(to_files_error)?;
        if found.is_none()
            && let Some(skill) = Self::library_skill(call, &path)
        {
            let lent = self.library.read(call.tenant, &skill, &path).await;
            found = lent.map_err(|error| FilesError::Broken(error.into()))?;
        }
        // The owner reads what other people wrote.
        let is_of_others = sees_all_files && is_of_person(&in_tree);
        if found.as_ref().is_some_and(|file| file.outside || is_of_others) {
            ToolContext::of(call)?.note_outside_text();
        }
        Ok(found.map(|file| File { hash: file.hash.to_string(), content: file.content }))
    }

    async fn list(&self, call: &Call, directory: &str) -> Result<Vec<FileSummary>, FilesError> {
        let within = match directory {
            "" => None,
            directory => Some(parse_path(directory)?),
        };
        let ToolContext { file_view: view, scope, .. } = ToolContext::of(call)?;
        let in_tree = within.as_ref().map(|path| tree_path(view, path)).transpose()?;
        let listed = self
            .workspaces
            .list(call.tenant, Self::workspace_of(call)?, None, in_tree.as_ref())
            .await;
        let seen = listed.map_err(to_files_error)?.into_iter().filter_map(|file| {
            let path = view.view_path(&file.path).filter(|path| scope.may_read(path.as_str()))?;
            Some(FileEntry { path, ..file })
        });
        let mut lines: Vec<FileSummary> = seen
            .map(|file| FileSummary {
                path: file.path.to_string(),
                size: file.size,
                changed: file.changed_at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
            })
            .collect();
        if let Some(directory) = within.filter(is_of_skills) {
            let lent = self.list_library_skills(call, &directory).await?.into_iter();
            lines.extend(lent.filter(|line| scope.may_read(&line.path)));
        }
        // A person's own files and the common ones stand apart in the tree.
        lines.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(lines)
    }

    async fn committed(&self, call: &Call) -> Result<Option<StoredChange>, FilesError> {
        let found =
            self.workspaces.outcome_by_key(call.tenant, Self::workspace_of(call)?, &call.key).await;
        match found.map_err(to_files_error)? {
            Some(committed) => Ok(Some(self.diff(call, &committed).await?)),
            None => Ok(None),
        }
    }

    async fn commit(&self, call: &Call, change: FileChanges) -> Result<StoredChange, FilesError> {
        let FileChanges { edits, reason } = change;
        for edit in &edits {
            Self::check_write(call, &edit.path)?;
        }
        if edits.iter().any(|edit| is_instruction(&edit.path)) {
            ToolContext::of(call)?.invalidate_snapshot();
        }
        let view = &ToolContext::of(call)?.file_view;
        let edits = edits.into_iter().map(|one| edit(view, one));
        let edits = edits.collect::<Result<Vec<Edit>, FilesError>>()?;
        let by = ChangeAuthor {
            run: Some(call.run),
            ..ChangeAuthor::new(call.agent_name.as_str(), &reason)
        };
        let by = by.with_key(&call.key).in_step(ToolContext::of(call)?.change_step(call));
        let by = by.from_outside(writes_outside_text(call, &edits)?);
        let committed =
            self.workspaces.commit(call.tenant, Self::workspace_of(call)?, &by, edits).await;
        let committed = committed.map_err(|error| match error {
            Error::Clash { path, .. } => {
                FilesError::Conflict(view.view_path(&path).unwrap_or(path).to_string())
            }
            error => to_files_error(error),
        });
        self.diff(call, &committed?).await
    }
}

/// Whether what a call writes may have text from outside. Once a conversation has read such text, a
/// person sees and approves each change of instructions, except in a memory flush.
///
/// A call that itself reads such text, as a patch does, was not shown to a person with it: it changes
/// no instruction.
fn writes_outside_text(call: &Call, edits: &[Edit]) -> Result<bool, FilesError> {
    let context = ToolContext::of(call)?;
    let has_instruction = edits.iter().any(|edit| is_instruction(edit.path().as_str()));
    if !context.has_read_outside_text {
        let reads_it = context.has_noted_outside_text();
        return match reads_it && has_instruction && !context.is_flushing {
            true => Err(FilesError::Invalid(
                "this takes text from outside into the agent's instructions: read the file first, \
                 then write the change, and a person decides about it"
                    .to_owned(),
            )),
            false => Ok(reads_it),
        };
    }
    Ok(context.is_flushing || !has_instruction)
}

/// Whether a file is in the folder of one of the people.
pub(crate) fn is_of_person(path: &TreePath) -> bool {
    path.parts().next() == Some(PEOPLE_FOLDER)
}

/// Whether a path is in the folder of skills, whose headers are in every prompt.
fn is_skill(path: &str) -> bool {
    path.strip_prefix(SKILLS_FOLDER).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_of_skills(path: &TreePath) -> bool {
    is_skill(path.as_str())
}

/// Path in the tree of a file that the conversation sees; `None` if it does not see it.
pub(crate) fn visible_tree_path(
    view: &FileView,
    path: &TreePath,
) -> Result<Option<TreePath>, FilesError> {
    let in_tree = tree_path(view, path)?;
    Ok(view.view_path(&in_tree).is_some().then_some(in_tree))
}

/// The beginning of a diff, as far as a model is shown it.
fn first_lines(diff: &str) -> String {
    let Some((end, _)) = diff.match_indices('\n').nth(MAX_SHOWN_DIFF_LINES - 1) else {
        return diff.to_owned();
    };
    let (shown, hidden) = diff.split_at(end + 1);
    match hidden.lines().count() {
        0 => shown.to_owned(),
        lines => format!("{shown}[{lines} more lines of the diff are not shown]\n"),
    }
}

/// The part of a diff that the conversation sees, under its paths, and the number of other files.
pub(crate) fn visible_diff(view: &FileView, mut diff: Diff) -> (Diff, usize) {
    let all = diff.files.len();
    diff.files.retain_mut(|one| match view.view_path(&one.file.path) {
        Some(path) => {
            one.file.path = path;
            true
        }
        None => false,
    });
    let hidden = all - diff.files.len();
    (diff, hidden)
}

fn edit(view: &FileView, edit: FileEdit) -> Result<Edit, FilesError> {
    let FileEdit { path, base, content } = edit;
    let path = tree_path(view, &parse_path(&path)?)?;
    let base = match base {
        Some(hash) => Base::Hash(hash.parse::<ContentHash>().map_err(to_files_error)?),
        None => Base::Absent,
    };
    Ok(match content {
        Some(content) => Edit::Put { path, content, base },
        None => Edit::Delete { path, base },
    })
}

fn parse_path(path: &str) -> Result<TreePath, FilesError> {
    path.parse()
        .map_err(|error: holdfast_types::InvalidPath| FilesError::Invalid(error.to_string()))
}

fn tree_path(view: &FileView, path: &TreePath) -> Result<TreePath, FilesError> {
    view.tree_path(path).map_err(|error| FilesError::Invalid(error.to_string()))
}

pub(crate) fn to_files_error(error: Error) -> FilesError {
    match &error {
        Error::Clash { path, .. } => FilesError::Conflict(path.to_string()),
        _ => match error.kind() {
            Kind::Exhausted => FilesError::Limit(error.to_string()),
            Kind::Invalid | Kind::NotFound | Kind::Conflict => {
                FilesError::Invalid(error.to_string())
            }
            Kind::Unauthenticated | Kind::Forbidden | Kind::Unavailable | Kind::Internal => {
                FilesError::Broken(error.into())
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_holds_folders_and_what_is_in_them_and_nothing_that_begins_alike() {
        let scope = FileScope {
            read: Some(vec!["docs".into(), "notes/a.txt".into()]),
            write: Some(vec!["out/".into()]),
        };
        for (path, read, write) in [
            ("docs", true, false),
            ("docs/a/b.md", true, false),
            ("docs2/a.md", false, false),
            ("notes/a.txt", true, false),
            ("notes/b.txt", false, false),
            ("out/x", true, true),
            ("outer/x", false, false),
        ] {
            assert_eq!((scope.may_read(path), scope.may_write(path)), (read, write), "{path}");
        }
        assert!(!scope.may_write("x") && FileScope::default().may_write("x"));
        assert!(!FileScope { write: Some(Vec::new()), ..FileScope::default() }.may_write("x"));
        assert!(is_within(&[String::new()], "x"));
    }

    #[test]
    fn a_model_is_shown_the_first_lines_of_a_diff_and_the_number_of_the_others() {
        let whole = "+a\n".repeat(MAX_SHOWN_DIFF_LINES);
        assert_eq!(first_lines(&whole), whole);
        assert_eq!(first_lines("+a"), "+a");

        let longer = format!("{whole}+b\n+c");

        let told = "[2 more lines of the diff are not shown]\n";
        assert_eq!(first_lines(&longer), format!("{whole}{told}"));
    }
}
