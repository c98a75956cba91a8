//! Files of Git repositories that commands may not leave behind: those that make Git run programs.
//!
//! A repository is shared by the sessions that work in it, and hooks or settings of one would run in
//! the commands of another, or of the person who copies it. Objects, branches and tags are kept, and a
//! configuration with settings that name no program, so that `init`, `clone`, `commit`, `branch` and
//! `remote` work. Deletions are always kept.

use holdfast_types::TreePath;
use holdfast_workspace::Edit;

/// Settings that are kept, as `section.key`; `*` stands for the name of a branch or a remote.
const KEPT_SETTINGS: [&str; 26] = [
    "branch.*.description",
    "branch.*.merge",
    "branch.*.rebase",
    "branch.*.remote",
    "branch.autosetuprebase",
    "commit.gpgsign",
    "core.abbrev",
    "core.autocrlf",
    "core.bare",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.quotepath",
    "core.repositoryformatversion",
    "core.symlinks",
    "gc.auto",
    "init.defaultbranch",
    "merge.conflictstyle",
    "pull.rebase",
    "push.default",
    "remote.*.fetch",
    "remote.*.url",
    "user.email",
    "user.name",
];

/// Files that make Git run programs or read other repositories
/// (<https://git-scm.com/docs/gitrepository-layout>).
const REFUSED_FILES: [&str; 6] = [
    "commondir",
    "config.worktree",
    "gitdir",
    "info/attributes",
    "objects/info/alternates",
    "objects/info/http-alternates",
];

/// Folders of hooks, of other repositories, and of addresses in an old format.
const REFUSED_FOLDERS: [&str; 5] = ["branches/", "hooks/", "modules/", "remotes/", "worktrees/"];

/// Folders of operations that are not finished: `git rebase --continue` runs the commands of its list.
const OPERATION_FOLDERS: [&str; 3] = ["rebase-apply/", "rebase-merge/", "sequencer/"];

/// Beginning of the files of a bisection, which older versions of Git evaluate as a script.
const BISECTION_PREFIX: &str = "bisect_";

/// Reason why a change of a repository's file is not kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// `git init` writes examples of hooks, of which the model need not know.
    ExampleHook,
    File(TreePath),
    /// A file that makes its folder a repository, with configuration and hooks beside it.
    BareRepository(TreePath),
    /// Folder, or file, of an operation that is not finished.
    Operation(TreePath),
    /// A file that makes another one the database.
    Link(TreePath),
    Setting(TreePath, String),
}

impl Refusal {
    /// Sentence for the model.
    pub(super) fn note(&self) -> Option<String> {
        match self {
            Self::ExampleHook => None,
            Self::File(path) => Some(format!(
                "`{path}` was not kept: hooks, attributes, submodules and worktrees of a repository \
                 are not, because Git would run programs that they name"
            )),
            Self::BareRepository(path) => Some(format!(
                "`{path}` was not kept: bare repositories are not, because Git would run programs that \
                 their configuration and hooks name; use a repository with a work tree"
            )),
            Self::Operation(path) => Some(format!(
                "`{path}` was not kept: a rebase, a bisection or a series of commits must end in the \
                 command that begins it; where it may stop, end it there with `--abort` or `git bisect \
                 reset`. Now `git checkout --force BRANCH` gives up what stopped"
            )),
            Self::Link(path) => Some(format!(
                "`{path}` was not kept: submodules and worktrees of a repository are not"
            )),
            Self::Setting(path, setting) => Some(format!(
                "`{path}` was not kept: of a repository's configuration only settings that name no \
                 program are, and it has `{setting}`; give it with `git -c` to the command"
            )),
        }
    }
}

/// Returns why a change is not kept; `None` if it is.
pub(super) fn refusal(edit: &Edit) -> Option<Refusal> {
    let Edit::Put { path, content, .. } = edit else { return None };
    if path.makes_bare_repository(content) {
        return Some(Refusal::BareRepository(path.clone()));
    }
    // `git~1` is a database on some systems only: a real one may be below it.
    let mut within = path.within_git_database()?.to_owned();
    loop {
        let refusal = refusal_within(path, &within.to_lowercase(), content);
        if refusal.is_some() {
            return refusal;
        }
        let inner = within.parse::<TreePath>().ok()?;
        within = inner.within_git_database()?.to_owned();
    }
}

fn refusal_within(path: &TreePath, within: &str, content: &[u8]) -> Option<Refusal> {
    if within.is_empty() {
        return Some(Refusal::Link(path.clone()));
    }
    if within.starts_with("hooks/") && within.ends_with(".sample") {
        return Some(Refusal::ExampleHook);
    }
    if within == "config" {
        let setting = refused_setting(content)?;
        return Some(Refusal::Setting(path.clone(), setting));
    }
    if let Some(folder) = OPERATION_FOLDERS.iter().find(|folder| within.starts_with(**folder)) {
        // An operation has many files, and the model is told of one thing.
        let name = folder.trim_end_matches('/');
        let folder = path.folders().find(|folder| folder.to_lowercase().ends_with(name));
        let folder = folder.and_then(|folder| folder.parse().ok());
        return Some(Refusal::Operation(folder.unwrap_or_else(|| path.clone())));
    }
    if within.starts_with(BISECTION_PREFIX) {
        return Some(Refusal::Operation(path.clone()));
    }
    let is_refused = REFUSED_FILES.contains(&within)
        || REFUSED_FOLDERS.iter().any(|folder| within.starts_with(folder));
    if is_refused {
        return Some(Refusal::File(path.clone()));
    }
    // A repository within the database.
    let has_own_head = ["logs/", "refs/"].iter().any(|folder| within.starts_with(folder));
    let is_nested_head = within.ends_with("/head") && !has_own_head;
    is_nested_head.then(|| Refusal::BareRepository(path.clone()))
}

/// Returns a setting that is not kept, or a line that is not understood
/// (<https://git-scm.com/docs/git-config#_syntax>).
fn refused_setting(config: &[u8]) -> Option<String> {
    let Ok(config) = std::str::from_utf8(config) else {
        return Some("a text that is not UTF-8".to_owned());
    };
    let mut section = String::new();
    for line in config.lines() {
        let mut rest = line.trim();
        if let Some(header) = rest.strip_prefix('[') {
            let Some((name, after)) = section_name(header) else { return Some(shown(line)) };
            (section, rest) = (name, after.trim());
        }
        if rest.is_empty() || rest.starts_with(['#', ';']) {
            continue;
        }
        let key = rest.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        let setting = format!("{section}.{key}");
        // A value that goes on in the next line could hide another setting from this reader.
        if rest.ends_with('\\') || !KEPT_SETTINGS.contains(&setting.as_str()) {
            return Some(shown(&setting));
        }
    }
    None
}

/// Returns the section of a header without its first bracket, and what is after it.
fn section_name(header: &str) -> Option<(String, &str)> {
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if let Some((name, rest)) = header.split_once(']').filter(|(name, _)| is_word(name)) {
        return Some((name.to_ascii_lowercase(), rest));
    }
    let (name, quoted) = header.split_once(" \"")?;
    let (subsection, rest) = quoted.split_once("\"]")?;
    let is_plain = !subsection.contains(['"', '\\']);
    (is_word(name) && is_plain).then(|| (format!("{}.*", name.to_ascii_lowercase()), rest))
}

fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use holdfast_workspace::Base;

    use super::*;

    fn put(path: &str, text: &str) -> Edit {
        let content = text.as_bytes().to_vec();
        Edit::Put { path: path.parse().unwrap(), content, base: Base::Absent }
    }

    #[test]
    fn a_repository_can_be_made_cloned_and_worked_in() {
        let config = "[core]\n\trepositoryformatversion = 0\n\tfilemode = false\n\tbare = false\n\
                      [gc]\n\tauto = 0\n[user]\n\tname = \"main\"\n[remote \"origin\"]\n\
                      \turl = https://example.com/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                      [branch \"feature/x\"] # of the agent\n\tremote = origin\n\tmerge = refs/heads/x\n";
        for (path, text) in [
            ("a/.git/config", config),
            ("a/.git/HEAD", "ref: refs/heads/main\n"),
            ("a/.git/index", "DIRC"),
            ("a/.git/objects/ab/cdef", ""),
            ("a/.git/refs/heads/main", ""),
            ("a/.git/logs/HEAD", ""),
            ("a/.git/refs/remotes/origin/HEAD", "ref: refs/remotes/origin/main\n"),
            ("a/.git/info/exclude", "/x\n"),
            ("a/.gitattributes", "* filter=x\n"),
            ("hooks/pre-commit", "#!/bin/sh\n"),
            ("a/.git/MERGE_HEAD", ""),
            ("a/.git/CHERRY_PICK_HEAD", ""),
            ("docs/HEAD", "how HTTP answers HEAD"),
        ] {
            assert_eq!(refusal(&put(path, text)), None, "{path}");
        }
        let deleted = Edit::Delete { path: ".git/hooks/a".parse().unwrap(), base: Base::Any };
        assert_eq!(refusal(&deleted), None);
        assert_eq!(refusal(&put("a/.git/hooks/pre-commit.sample", "")), Some(Refusal::ExampleHook));
    }

    #[test]
    fn what_makes_git_run_a_program_is_not_kept() {
        for path in [
            "a/.git/hooks/pre-commit",
            "a/.GIT/hooks/pre-commit",
            "a/.git/Hooks/pre-commit",
            "git~1/hooks/pre-commit",
            "git~1/a/.git/hooks/pre-commit",
            ".git/info/attributes",
            ".git/objects/info/alternates",
            ".git/modules/b/config",
            ".git/worktrees/b/gitdir",
            ".git/config.worktree",
            ".git/commondir",
            ".git/rebase-merge/git-rebase-todo",
            ".git/rebase-apply/next",
            ".git/sequencer/todo",
            ".git/BISECT_START",
            "git~1/a/.git/rebase-merge/git-rebase-todo",
            "b/.git",
        ] {
            assert!(
                refusal(&put(path, "x")).is_some_and(|refused| refused.note().is_some()),
                "{path}"
            );
        }
    }

    #[test]
    fn files_of_one_operation_are_refused_as_one() {
        for path in ["a/.git/rebase-merge/done", "a/.git/rebase-merge/x/y"] {
            let refused = refusal(&put(path, "x"));
            let folder = "a/.git/rebase-merge".parse().unwrap();
            assert_eq!(refused, Some(Refusal::Operation(folder)), "{path}");
        }
        let refused = refusal(&put(".GIT/Sequencer/todo", "x"));
        assert_eq!(refused, Some(Refusal::Operation(".GIT/Sequencer".parse().unwrap())));
    }

    #[test]
    fn no_folder_becomes_a_bare_repository() {
        for path in ["HEAD", "a/HEAD", "a.git/head", "a/.git/b/HEAD"] {
            let refused = refusal(&put(path, "ref: refs/heads/main\n"));
            assert_eq!(refused, Some(Refusal::BareRepository(path.parse().unwrap())), "{path}");
        }
    }

    #[test]
    fn a_setting_that_names_a_program_is_named() {
        for (config, setting) in [
            ("[core]\n\tfsmonitor = id\n", "core.fsmonitor"),
            ("[CORE] FSMonitor = id\n", "core.fsmonitor"),
            ("[core]\n\tbare = false \\\n\tfsmonitor = id\n", "core.bare"),
            ("[credential]\nhelper = !id\n", "credential.helper"),
            ("[url \"https://evil/\"]\ninsteadOf = https://a/\n", "url.*.insteadof"),
            ("[include]\npath = x\n", "include.path"),
            ("[remote \"a\"]\nuploadpack = id\n", "remote.*.uploadpack"),
            ("[alias]\nlog = !id\n", "alias.log"),
            ("[core \"x\\\"]\n[y\"]\nfsmonitor = id\n", "[core \"x\\\"]"),
            ("[core.x]\na = b\n", "[core.x]"),
            ("fsmonitor = id\n", ".fsmonitor"),
            ("\u{feff}[core]\nfsmonitor = id\n", ".\u{feff}[core]"),
        ] {
            assert_eq!(refused_setting(config.as_bytes()).as_deref(), Some(setting), "{config:?}");
        }
    }
}
