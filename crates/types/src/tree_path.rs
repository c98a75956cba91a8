//! Paths of workspace files.
//!
//! Paths come from models, people and archives, and become names on a disk. Those that could leave
//! a folder, hide a file or mean something else on another system are refused here.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 512;
/// Maximum length between two slashes, in bytes: the limit of file systems.
const MAX_PART_BYTES: usize = 255;
/// Maximum length of a bad path in an error, in characters.
const MAX_SHOWN_CHARS: usize = 80;

/// Relative path of a file or folder, separated by `/`, as in `memory/2026-11-22.md`.
///
/// A path has 1 to 512 bytes; each part has 1 to 255, is not `.` or `..`, and has no backslash and
/// no control character. Paths are compared byte by byte: upper and lower case differ, and so do
/// two encodings of `é`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(String);

/// A text that is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a path of a file: {problem}")]
pub struct InvalidPath {
    given: String,
    problem: &'static str,
}

impl TreePath {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last part, the file name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_folder, name)| name)
    }

    /// Returns the parent folder; `None` at the root.
    #[must_use]
    pub fn folder(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(folder, _name)| Self(folder.to_owned()))
    }

    /// Returns the parent folders, outermost first.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _slash)| &self.0[..at])
    }

    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Returns the path within the outermost folder that Git takes for its database; empty for the
    /// database itself, `None` outside of one.
    pub fn within_git_database(&self) -> Option<&str> {
        let mut rest = self.0.as_str();
        loop {
            let (part, inner) = rest.split_once('/').unwrap_or((rest, ""));
            if is_git_name(part) {
                return Some(inner);
            }
            if inner.is_empty() {
                return None;
            }
            rest = inner;
        }
    }

    /// Whether Git takes a file of this name, outside of a database, for the `HEAD` of a bare repository.
    #[must_use]
    pub fn is_bare_head(&self) -> bool {
        self.within_git_database().is_none() && visible_name(self.name()) == "head"
    }

    /// Whether a file with this content makes its folder a bare repository, whose configuration and hooks
    /// Git would follow in it and below it
    /// (<https://git-scm.com/docs/gitrepository-layout#Documentation/gitrepository-layout.txt-HEAD>).
    #[must_use]
    pub fn makes_bare_repository(&self, content: &[u8]) -> bool {
        let is_hash = content.len() >= 40 && content.iter().take(40).all(u8::is_ascii_hexdigit);
        self.is_bare_head() && (content.starts_with(b"ref:") || is_hash)
    }

    /// Whether the path is `folder` or inside it at any depth.
    #[must_use]
    pub fn is_within(&self, folder: &Self) -> bool {
        self.0.strip_prefix(&folder.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Whether a part of a path is `.git` on some file system.
fn is_git_name(part: &str) -> bool {
    let name = visible_name(part);
    name == ".git" || name == "git~1"
}

/// A part of a path as some file system reads it. The spellings are those that Git refuses in trees with
/// `core.protectHFS` and `core.protectNTFS`: upper case, letters that HFS+ ignores, trailing dots and
/// spaces, and streams of NTFS
/// (<https://git-scm.com/docs/git-config#Documentation/git-config.txt-coreprotectHFS>).
fn visible_name(part: &str) -> String {
    let visible = part.chars().filter(|letter| {
        !matches!(
            letter,
            '\u{200c}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{206a}'..='\u{206f}'
                | '\u{feff}'
        )
    });
    let name: String = visible.map(|letter| letter.to_ascii_lowercase()).collect();
    name.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']).to_owned()
}

fn problem(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("it is empty: write one such as `notes/today.md`");
    }
    if path.len() > MAX_PATH_BYTES {
        return Some("it has more than 512 bytes: take a shorter one");
    }
    if path.starts_with('/') {
        return Some("it begins with `/`: write it from the tree's root, as in `notes/today.md`");
    }
    if path.contains('\\') {
        return Some("it has a backslash: part folders with `/`");
    }
    if path.chars().any(char::is_control) {
        return Some("it has a control character: leave that out");
    }
    path.split('/').find_map(|part| match part {
        "" => Some("it ends with `/` or has two in a row: write one between two names"),
        "." | ".." => Some("it has `.` or `..` in it: write the whole path from the tree's root"),
        part if part.len() > MAX_PART_BYTES => {
            Some("one of its names has more than 255 bytes: take a shorter one")
        }
        _ => None,
    })
}

impl FromStr for TreePath {
    type Err = InvalidPath;

    fn from_str(path: &str) -> Result<Self, InvalidPath> {
        match problem(path) {
            None => Ok(Self(path.to_owned())),
            // The error's text must not contain control sequences.
            Some(problem) => Err(InvalidPath {
                given: path
                    .chars()
                    .take(MAX_SHOWN_CHARS)
                    .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
                    .collect(),
                problem,
            }),
        }
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for TreePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TreePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> TreePath {
        text.parse().unwrap()
    }

    #[test]
    fn usual_and_foreign_names_are_taken_as_they_are() {
        for good in ["SOUL.md", "a/b/c", ".hidden", "..a/b..", "日记/今天.md", "with space", "…"]
        {
            assert_eq!(path(good).as_str(), good);
        }
        assert_eq!(path(&"x".repeat(255)).name().len(), 255);
        assert!(format!("{}/{}", "x".repeat(255), "y".repeat(255)).parse::<TreePath>().is_ok());
        let longest = ["x".repeat(255), "y".repeat(255), "z".to_owned()].join("/");
        assert!(longest[..512].parse::<TreePath>().is_err(), "it ends with a slash");
    }

    #[test]
    fn what_could_leave_the_tree_or_fool_a_reader_is_refused_with_what_to_do() {
        for (bad, told) in [
            ("", "it is empty"),
            ("/etc/passwd", "begins with `/`"),
            ("../x", "`.` or `..`"),
            ("a/../b", "`.` or `..`"),
            ("./a", "`.` or `..`"),
            ("a//b", "two in a row"),
            ("a/", "ends with `/`"),
            ("a\\b", "backslash"),
            ("a\0b", "control character"),
            ("a\nb", "control character"),
            ("a\u{7f}", "control character"),
            (&"x".repeat(256), "255 bytes"),
            (&"x/".repeat(300), "512 bytes"),
        ] {
            let error = bad.parse::<TreePath>().unwrap_err().to_string();

            assert!(error.contains(told), "{error}");
            assert!(error.len() < 400 && !error.contains(char::is_control));
        }
    }

    #[test]
    fn a_path_knows_its_folders_and_who_is_within() {
        let deep = path("a/b/c.md");

        assert_eq!(deep.folders().collect::<Vec<_>>(), ["a", "a/b"]);
        assert_eq!((deep.name(), deep.folder()), ("c.md", Some(path("a/b"))));
        assert_eq!((path("c").name(), path("c").folder()), ("c", None));
        assert!(deep.is_within(&path("a")) && deep.is_within(&deep));
        assert!(!path("ab/c").is_within(&path("a")));
    }

    #[test]
    fn the_database_of_git_is_recognized_in_every_spelling() {
        for (text, within) in [
            (".git", Some("")),
            (".git/config", Some("config")),
            ("a/.GIT/hooks/post-checkout", Some("hooks/post-checkout")),
            ("a/.git/modules/b/.git/config", Some("modules/b/.git/config")),
            ("GIT~1/config", Some("config")),
            (".g\u{200c}it/config", Some("config")),
            ("\u{feff}.git/config", Some("config")),
            (".git. ./config", Some("config")),
            (".git::$INDEX_ALLOCATION/config", Some("config")),
            (".gitignore", None),
            (".gitattributes", None),
            ("a/git/config", None),
            ("a.git/config", None),
            ("..git", None),
        ] {
            assert_eq!(path(text).within_git_database(), within, "{text}");
        }
    }

    #[test]
    fn a_file_that_makes_a_bare_repository_is_recognized() {
        let hash = "0123456789abcdef0123456789abcdef01234567\n";
        for (text, content, is_bare) in [
            ("HEAD", "ref: refs/heads/main\n", true),
            ("a/HEAD", hash, true),
            ("a.git/head", "ref: refs/heads/main\n", true),
            ("a/HEAD. ", "ref: refs/heads/main\n", true),
            ("a/HE\u{200d}AD", "ref: refs/heads/main\n", true),
            ("docs/HEAD", "how HTTP answers HEAD", false),
            ("a/.git/HEAD", "ref: refs/heads/main\n", false),
            ("a/HEAD/b", "ref: refs/heads/main\n", false),
            ("a/HEAD.md", "ref: refs/heads/main\n", false),
        ] {
            assert_eq!(path(text).makes_bare_repository(content.as_bytes()), is_bare, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_is_never_absolute_and_never_goes_up(text in ".{0,40}|[./a\\\\]{0,12}") {
            if let Ok(path) = text.parse::<TreePath>() {
                prop_assert_eq!(path.as_str(), text.as_str());
                let goes_on = std::path::Path::new(path.as_str())
                    .components()
                    .all(|part| matches!(part, std::path::Component::Normal(_)));
                prop_assert!(goes_on);
                let json = serde_json::to_string(&path).unwrap();
                prop_assert_eq!(serde_json::from_str::<TreePath>(&json).unwrap(), path);
            }
        }
    }
}
