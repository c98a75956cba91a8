//! Copies of agents' Git repositories on this machine.
//!
//! An agent may write anything into its repository, and Git runs programs that the configuration,
//! hooks and attributes of a repository name. So only objects, branches and tags are taken: into a
//! temporary bare repository, from which a new one fetches them, and Git checks each object. The
//! files of the work tree are written as they are in the workspace, and are not checked out.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{Seek as _, Write as _},
    path::Path,
    process::Command,
};

use super::{
    archive::Files,
    local_folder::LocalFolder,
    repository::{has_password, run},
};
use crate::error::Error;

const DATABASE: &str = ".git/";

/// Options of each call of Git. The messages of `fetch.fsck` are faults of old programs that are
/// frequent in published repositories.
const SAFE_OPTIONS: [&str; 10] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "protocol.file.allow=always",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.fsckObjects=true",
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "fetch.fsck.missingSpaceBeforeDate=ignore",
    "fetch.fsck.badTimezone=ignore",
];

/// Options of the new repository, as of the agent's: files of agents are no links and have no
/// permissions.
const COPY_OPTIONS: [(&str, &str); 2] = [("core.symlinks", "false"), ("core.fileMode", "false")];

/// Content of `info/exclude`: files of a new workspace that its repository ignores.
const IGNORED_FILES: &str = "/to_agent.md\n";

/// Branch of a repository whose `HEAD` names a commit.
const DETACHED_BRANCH: &str = "detached-head";

/// Objects, branches and tags of an agent's repository.
#[derive(Debug, Default)]
struct Repository<'a> {
    /// Contents by their paths in the database.
    objects: BTreeMap<&'a str, &'a [u8]>,
    packs: Vec<&'a [u8]>,
    /// Commits by the names of branches and tags, such as `refs/heads/main`.
    refs: BTreeMap<String, String>,
    /// Commits whose parents a shallow clone does not have.
    shallow: Vec<&'a str>,
    /// Current branch.
    branch: String,
}

/// Whether files have a repository at their top.
pub fn is_repository(files: &Files) -> bool {
    files.contains_key(".git/HEAD")
}

/// Makes a repository of an agent's files in a new folder. `origin` is the address of its server.
///
/// # Errors
///
/// If the folder has files already, the repository is damaged, or Git fails.
pub fn copy_repository(
    to: &Path,
    files: &Files,
    origin: Option<&str>,
) -> Result<LocalFolder, Error> {
    LocalFolder::create(to)?;
    let repository = Repository::read(files)?;
    // A copy that fails leaves nothing behind.
    let unfinished = tempfile::tempdir_in(to)?;
    let copy = unfinished.path().join("copy");
    let folder = write_copy(&copy, files, &repository, origin)?;
    for entry in fs::read_dir(&copy)? {
        let entry = entry?;
        fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(folder)
}

fn write_copy(
    to: &Path,
    files: &Files,
    repository: &Repository<'_>,
    origin: Option<&str>,
) -> Result<LocalFolder, Error> {
    let mut folder = LocalFolder::create(to)?;
    let temporary = tempfile::tempdir()?;
    let source = temporary.path().join("source");
    repository.write_bare(&source)?;
    let branch = repository.branch.as_str();
    run(git(None).args(["init", "--quiet", "--template=", "--initial-branch", branch]).arg(to))?;
    for (name, value) in COPY_OPTIONS {
        run(git(Some(to)).args(["config", name, value]))?;
    }
    if !repository.refs.is_empty() {
        let mut fetch = git(Some(to));
        let options = ["--quiet", "--update-head-ok", "--update-shallow", "--no-tags", "--"];
        fetch.arg("fetch").args(options).arg(&source);
        run(fetch.args(["refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*"]))?;
    }
    if repository.refs.contains_key(&format!("refs/heads/{branch}")) {
        run(git(Some(to)).args(["read-tree", "HEAD"]))?;
    }
    if let Some(origin) = origin {
        run(git(Some(to)).args(["remote", "add", "--", "origin", origin]))?;
        let (remote, merge) = (format!("branch.{branch}.remote"), format!("branch.{branch}.merge"));
        run(git(Some(to)).args(["config", &remote, "origin"]))?;
        run(git(Some(to)).args(["config", &merge, &format!("refs/heads/{branch}")]))?;
    }
    fs::create_dir_all(to.join(".git/info"))?;
    fs::write(to.join(".git/info/exclude"), IGNORED_FILES)?;
    for (path, content) in files.iter().filter(|(path, _)| !path.starts_with(DATABASE)) {
        folder.write(path, content)?;
    }
    Ok(folder)
}

/// Returns the address of the server in the configuration of a clone; `None` if there is none that
/// can be used.
///
/// # Errors
///
/// If there is no Git.
pub fn origin_of(config: &[u8]) -> Result<Option<String>, Error> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(config)?;
    let mut read = git(None);
    read.args(["config", "--no-includes", "--file"]).arg(file.path());
    let found = read.args(["--get", "remote.origin.url"]).output()?;
    let address = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    // `transport::address` makes Git run a program of that name.
    let is_address = !address.is_empty()
        && !address.starts_with('-')
        && !address.contains("::")
        && !address.contains(char::is_control)
        && !has_password(&address);
    Ok(Some(address).filter(|_| found.status.success() && is_address))
}

impl<'a> Repository<'a> {
    /// # Errors
    ///
    /// If its format is not the usual one, so that a part of it would be missing.
    fn read(files: &'a Files) -> Result<Self, Error> {
        let mut repository = Self::default();
        let (mut head, mut loose) = ("", BTreeMap::new());
        for (path, content) in files {
            let Some(path) = path.strip_prefix(DATABASE) else { continue };
            let text = std::str::from_utf8(content).unwrap_or_default().trim();
            if is_object(path) {
                repository.objects.insert(path, content);
            } else if path.starts_with("objects/pack/") && path.ends_with(".pack") {
                repository.packs.push(content);
            } else if path == "packed-refs" {
                let lines = text.lines().filter_map(|line| line.split_once(' '));
                repository.refs.extend(lines.map(|(id, name)| (name.to_owned(), id.to_owned())));
            } else if path == "shallow" {
                repository.shallow = text.lines().filter(|id| is_object_id(id)).collect();
            } else if path.starts_with("reftable/") || is_sha256_object(path) {
                return Err(Error::Usage(
                    "the repository has a format that is not copied: only SHA-1 with refs in files is"
                        .to_owned(),
                ));
            } else if path == "HEAD" {
                head = text;
            } else if path.starts_with("refs/") {
                loose.insert(path.to_owned(), text.to_owned());
            }
        }
        repository.refs.extend(loose);
        repository.refs.retain(|name, id| is_ref(name) && is_object_id(id));
        let branch = head.strip_prefix("ref: refs/heads/").map(str::trim);
        repository.branch = match branch {
            Some(branch) if is_ref(&format!("refs/heads/{branch}")) => branch.to_owned(),
            Some(branch) => {
                let branch = crate::screen::plain(branch);
                return Err(Error::Usage(format!(
                    "`{branch}` is no name of a branch: check out another"
                )));
            }
            None => DETACHED_BRANCH.to_owned(),
        };
        if is_object_id(head) {
            repository.refs.insert(format!("refs/heads/{DETACHED_BRANCH}"), head.to_owned());
        }
        Ok(repository)
    }

    /// Writes a bare repository without configuration of the agent.
    fn write_bare(&self, to: &Path) -> Result<(), Error> {
        run(git(None).args(["init", "--quiet", "--bare", "--template="]).arg(to))?;
        for (path, content) in &self.objects {
            let path = to.join(path);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(path, content)?;
        }
        for pack in &self.packs {
            run(git(Some(to)).args(["unpack-objects", "-q"]).stdin(input(pack)?))?;
        }
        if !self.shallow.is_empty() {
            fs::write(to.join("shallow"), self.shallow.join("\n") + "\n")?;
        }
        let refs = self.refs.iter().map(|(name, id)| format!("create {name} {id}\n"));
        let refs: String = refs.collect();
        run(git(Some(to)).args(["update-ref", "--stdin"]).stdin(input(refs.as_bytes())?))
    }
}

/// Git without the settings of this machine's people and of the environment.
fn git(folder: Option<&Path>) -> Command {
    let mut git = Command::new("git");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
        git.env_remove(name);
    }
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for option in SAFE_OPTIONS {
        git.args(["-c", option]);
    }
    if let Some(folder) = folder {
        git.arg("-C").arg(folder);
    }
    git
}

fn input(content: &[u8]) -> Result<fs::File, Error> {
    let mut file = tempfile::tempfile()?;
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// Whether a path in the database is that of an object in a file of its own.
fn is_object(path: &str) -> bool {
    id_of_object(path).is_some_and(|id| is_object_id(&id))
}

fn is_sha256_object(path: &str) -> bool {
    id_of_object(path).is_some_and(|id| id.len() == 64 && id.bytes().all(is_hex_digit))
}

fn id_of_object(path: &str) -> Option<String> {
    let (first, rest) = path.strip_prefix("objects/")?.split_once('/')?;
    (first.len() == 2).then(|| format!("{first}{rest}"))
}

fn is_object_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(is_hex_digit)
}

const fn is_hex_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Whether a text is the name of a branch or a tag
/// (<https://git-scm.com/docs/git-check-ref-format>).
fn is_ref(name: &str) -> bool {
    let short = name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/tags/"));
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && !part.ends_with('.')
            && !part.to_ascii_lowercase().ends_with(".lock")
            && !part.contains("..")
            && !part.contains("@{")
            && !part.chars().any(|c| c.is_control() || " ~^:?*[\\".contains(c))
            && part != "@"
    };
    short.is_some_and(|short| short != "HEAD" && short.split('/').all(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs Git as a person does, with its settings for this repository only.
    fn person(folder: &Path, line: &[&str]) -> String {
        let mut git = Command::new("git");
        for (name, _) in
            env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_"))
        {
            git.env_remove(name);
        }
        git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        let done = git
            .args(["-c", "user.name=anna", "-c", "user.email=anna@example.com", "-C"])
            .arg(folder)
            .args(line)
            .output()
            .unwrap();
        assert!(done.status.success(), "{line:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    fn files_of(root: &Path) -> Files {
        fn add(files: &mut Files, root: &Path, folder: &Path) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    add(files, root, &path);
                } else {
                    let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                    files.insert(name, fs::read(&path).unwrap());
                }
            }
        }
        let mut files = Files::new();
        add(&mut files, root, root);
        files
    }

    /// Files with which Git does not work.
    const BREAKS_GIT: [&str; 3] =
        [".git/commondir", ".git/objects/info/alternates", ".git/refs/heads/loop"];

    /// Files of a repository with two commits, a tag and a change that is not committed.
    fn repository(dir: &Path) -> Files {
        let agent = dir.join("agent");
        fs::create_dir(&agent).unwrap();
        person(&agent, &["init", "--quiet", "--template=", "--initial-branch=trunk"]);
        fs::write(agent.join("a.txt"), "one\n").unwrap();
        person(&agent, &["add", "--all"]);
        person(&agent, &["commit", "--quiet", "--message", "first"]);
        person(&agent, &["tag", "v1"]);
        person(&agent, &["gc", "--quiet"]);
        fs::write(agent.join("a.txt"), "two\n").unwrap();
        person(&agent, &["commit", "--quiet", "--all", "--message", "second"]);
        fs::write(agent.join("a.txt"), "three\n").unwrap();
        files_of(&agent)
    }

    #[test]
    fn a_copy_has_the_commits_the_files_and_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("copy");

        let origin = "https://example.com/tool.git";
        copy_repository(&to, &repository(dir.path()), Some(origin)).unwrap();

        assert_eq!(person(&to, &["log", "--format=%s"]), "second\nfirst\n");
        assert_eq!(person(&to, &["tag"]), "v1\n");
        assert_eq!(person(&to, &["status", "--short"]), " M a.txt\n");
        assert_eq!(person(&to, &["remote", "get-url", "--push", "origin"]), format!("{origin}\n"));
        person(&to, &["fsck", "--strict"]);
    }

    #[test]
    fn a_copy_of_a_hostile_repository_runs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (proof, to) = (dir.path().join("proof"), dir.path().join("copy"));
        let mut files = repository(dir.path());
        let run = format!("touch {}; false", proof.display());
        let config = format!(
            "[core]\n\tfsmonitor = {run:?}\n\tpager = {run:?}\n\tsshCommand = {run:?}\n\
             \thooksPath = .hooks\n[credential]\n\thelper = {hashed:?}\n\
             [url \"https://evil.example/\"]\n\tinsteadOf = https://example.com/\n\
             [diff]\n\texternal = {run:?}\n[filter \"run\"]\n\tclean = {run:?}\n\tsmudge = {run:?}\n\
             [alias]\n\tlog = {hashed:?}\n[remote \"origin\"]\n\turl = https://evil.example/x\n",
            hashed = format!("!{run}"),
        );
        let hook = format!("#!/bin/sh\n{run}\n");
        for (path, content) in [
            (".git/config", config.as_str()),
            (".git/config.worktree", &config),
            (".git/hooks/post-checkout", &hook),
            (".git/hooks/post-index-change", &hook),
            (".git/info/attributes", "* filter=run\n"),
            (".git/objects/info/alternates", "/etc\n"),
            (".git/commondir", "/tmp\n"),
            (".git/refs/heads/a b", "evil"),
            (".git/refs/heads/loop", "ref: refs/heads/loop\n"),
            (".hooks/post-index-change", &hook),
            (".gitattributes", "* filter=run\n"),
            ("sub/.GIT/config", &config),
            ("sub/GIT~1/config", &config),
            ("bare/HEAD", "ref: refs/heads/main\n"),
            ("bare/config", &config),
            ("bare/objects/x", ""),
            ("bare/refs/x", ""),
        ] {
            files.insert(path.to_owned(), content.as_bytes().to_vec());
        }

        // Written as they are, the files do run a program.
        let unsafe_copy = dir.path().join("unsafe");
        for path in files.keys().filter(|path| !BREAKS_GIT.contains(&path.as_str())) {
            let local = unsafe_copy.join(path);
            fs::create_dir_all(local.parent().unwrap()).unwrap();
            fs::write(local, &files[path]).unwrap();
        }
        person(&unsafe_copy, &["status"]);
        fs::remove_file(&proof).unwrap();

        copy_repository(&to, &files, Some("https://example.com/tool.git")).unwrap();

        for folder in [to.clone(), to.join("bare")] {
            person(&folder, &["status"]);
            person(&folder, &["log", "-p", "--all"]);
        }
        person(&to, &["diff"]);
        person(&to, &["checkout", "--quiet", "--force", "HEAD~1"]);
        person(&to, &["checkout", "--quiet", "trunk"]);
        assert!(!proof.exists());
        let remote = person(&to, &["remote", "get-url", "origin"]);
        assert_eq!(remote, "https://example.com/tool.git\n");
        for path in [".git/hooks", ".git/info/attributes", ".git/objects/info/alternates"] {
            assert!(!to.join(path).exists(), "{path}");
        }
        let config = fs::read_to_string(to.join(".git/config")).unwrap();
        assert!(!config.contains("evil") && !config.contains("touch"), "{config}");
    }

    #[test]
    fn a_shallow_clone_is_copied_as_one() {
        let dir = tempfile::tempdir().unwrap();
        repository(dir.path());
        let (agent, clone) = (dir.path().join("agent"), dir.path().join("clone"));
        let source = format!("file://{}", agent.display());
        person(
            dir.path(),
            &["clone", "--quiet", "--depth=1", &source, &clone.display().to_string()],
        );
        let to = dir.path().join("copy");

        copy_repository(&to, &files_of(&clone), None).unwrap();

        assert_eq!(person(&to, &["log", "--format=%s"]), "second\n");
        person(&to, &["fsck"]);
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("copy");
        let good = repository(dir.path());
        let object = format!(".git/objects/ab/{}", "c".repeat(38));
        for (path, content) in [
            (object.as_str(), "damaged"),
            (".git/refs/heads/trunk", "0123456789012345678901234567890123456789"),
            (".git/HEAD", "ref: refs/heads/a b"),
            (".git/reftable/tables.list", "x"),
        ] {
            let mut files = good.clone();
            files.insert(path.to_owned(), content.as_bytes().to_vec());
            if copy_repository(&to, &files, None).is_err() {
                assert_eq!(fs::read_dir(&to).unwrap().count(), 0, "{path}");
            } else {
                assert_eq!(path, object, "a copy was made with this file");
                fs::remove_dir_all(&to).unwrap();
            }
        }

        copy_repository(&to, &good, None).unwrap();
        person(&to, &["fsck", "--strict"]);
    }

    #[test]
    fn a_name_of_a_ref_is_one_of_a_branch_or_a_tag() {
        for name in [
            "refs/heads/main",
            "refs/heads/feature/ä-1",
            "refs/heads/fix/🐛",
            "refs/heads/it's;$x{1}",
            "refs/tags/v1.0",
        ] {
            assert!(is_ref(name), "{name}");
        }
        for name in [
            "refs/remotes/origin/main",
            "refs/heads/../../config",
            "refs/heads/a b",
            "refs/heads/-x",
            "refs/heads/a.lock",
            "refs/heads/",
            "refs/heads/@",
            "refs/heads/a~1",
            "refs/heads/a@{1}",
            "refs/heads/a\nb",
            "refs/heads/HEAD",
            "HEAD",
        ] {
            assert!(!is_ref(name), "{name}");
        }
    }

    #[test]
    fn the_server_is_an_address_without_a_password_or_a_program() {
        let of = |url: &str| origin_of(format!("[remote \"origin\"]\n\turl = {url}\n").as_bytes());

        let address = "https://example.com/tool.git";
        assert_eq!(of(address).unwrap().as_deref(), Some(address));
        for url in ["ext::sh -c id", "--upload-pack=id", "https://anna:secret@example.com/a"] {
            assert_eq!(of(url).unwrap(), None, "{url}");
        }
        assert_eq!(origin_of(b"[core]\n").unwrap(), None);
    }
}
