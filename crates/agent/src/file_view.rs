//! Files of people: the part of an agent's tree that a conversation sees, and its paths there
//! (decision 0058).
//!
//! | in the tree | the owner sees | another person sees |
//! |---|---|---|
//! | `people/telegram=42/a.txt` | `people/telegram=42/a.txt` | `a.txt`, if they are that person |
//! | `shared/a.txt` | `shared/a.txt` | `shared/a.txt`, read-only |
//! | `skills/…`, bootstrap files | the same, see [`may_load`] | the same, read-only |
//! | `a.txt` | `a.txt` | nothing |
//!
//! The paths of the table's last column are *view paths*; those of the first are *tree paths*. For
//! the owner they are equal.

use std::{borrow::Cow, fmt};

use holdfast_types::{InvalidPath, NameSpace, SessionKind, TreePath};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    bootstrap::{Audience, BootstrapName, may_load},
    person::OWNER,
};

/// Folder with a folder for each person.
pub const PEOPLE_FOLDER: &str = "people";

/// Folder that everybody reads and the owner changes.
pub const SHARED_FOLDER: &str = "shared";

/// Folder of skills, whose headers are in every prompt.
pub const SKILLS_FOLDER: &str = "skills";

/// Folder of the agent's notes about its owner.
pub const NOTES_FOLDER: &str = "memory";

/// Longest name of a person's folder, in bytes; longer ones are cut and get a hash. It leaves room
/// for the paths in it.
const MAX_FOLDER_NAME_BYTES: usize = 100;

/// Bytes of a cut name that stay.
const KEPT_NAME_BYTES: usize = 60;

/// Part of an agent's tree in which a conversation works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSpace {
    /// The whole tree: the agent's owner, and the agent itself.
    Whole,
    /// A folder in [`PEOPLE_FOLDER`]: another person, or a conversation that is nobody's.
    Folder(String),
}

impl FileSpace {
    /// Files of a conversation with this person. A subagent has its requester's instead.
    ///
    /// Jobs and pieces of work of the owner and the agent have the whole tree. A conversation without
    /// a person (a main session in which others write, a request that names no user) has a folder of
    /// its own, and so has a job of somebody who is no person.
    pub(crate) fn of(
        kind: SessionKind,
        key: &str,
        audience: Audience,
        person: Option<&str>,
    ) -> Self {
        let is_work = matches!(kind, SessionKind::Cron | SessionKind::Work);
        if is_work && audience.has_owner_rights() {
            return Self::Whole;
        }
        match person {
            Some(person) => Self::of_person(person),
            None => Self::named(format!("~{}", escaped(&conversation(kind, key)))),
        }
    }

    /// Files of a person, as [`person`](crate::person) names them.
    #[must_use]
    pub fn of_person(person: &str) -> Self {
        match person {
            OWNER => Self::Whole,
            person => Self::named(escaped(person)),
        }
    }

    /// Reads what [`Display`](fmt::Display) wrote.
    #[must_use]
    pub fn parse(stored: &str) -> Option<Self> {
        if stored == OWNER {
            return Some(Self::Whole);
        }
        let path: TreePath = stored.parse().ok()?;
        let is_folder = path.parts().count() == 2 && path.parts().next() == Some(PEOPLE_FOLDER);
        is_folder.then(|| Self::Folder(path.to_string()))
    }

    fn named(mut name: String) -> Self {
        if name.len() > MAX_FOLDER_NAME_BYTES {
            let digest = Sha256::digest(&name);
            // ASCII, so every byte is the end of a character.
            name.truncate(KEPT_NAME_BYTES);
            name.push('~');
            name.extend(digest[..16].iter().map(|byte| format!("{byte:02x}")));
        }
        Self::Folder(format!("{PEOPLE_FOLDER}/{name}"))
    }

    /// Folder of the files; `None` for the whole tree.
    #[must_use]
    pub fn folder(&self) -> Option<&str> {
        match self {
            Self::Whole => None,
            Self::Folder(folder) => Some(folder),
        }
    }
}

impl fmt::Display for FileSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str(OWNER),
            Self::Folder(folder) => f.write_str(folder),
        }
    }
}

/// Name of a conversation that is nobody's, within its agent.
fn conversation(kind: SessionKind, key: &str) -> Cow<'_, str> {
    let mut parts = key.splitn(3, ':');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some("agent"), Some(_), Some(name)) => name,
        _ => key,
    };
    if kind == SessionKind::Cron {
        // The runs of a job belong together.
        return name.rsplit_once(':').map_or(name, |(job, _)| job).into();
    }
    // As for people, a name's branches belong together.
    let split = (kind == SessionKind::Api).then(|| NameSpace::split(name.strip_prefix("api:")?));
    match split.flatten().and_then(|(space, own)| Some((space, own.split_once('/')?.0))) {
        Some((space, whole)) if !whole.is_empty() => format!("api:{}", space.qualify(whole)).into(),
        _ => name.into(),
    }
}

/// Writes a name as one part of a path. Different names differ, and none is `.` or `..`.
///
/// A `:` becomes `=`; any other byte than letters, digits, `_`, `-` and `.` is percent-encoded, and
/// so is a `.` at the beginning.
fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b':' => escaped.push('='),
            b'.' if at > 0 => escaped.push('.'),
            b'_' | b'-' => escaped.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => escaped.push(char::from(byte)),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// The files that a conversation sees and changes, and their paths there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileView {
    kind: SessionKind,
    audience: Audience,
    space: FileSpace,
}

impl FileView {
    #[must_use]
    pub const fn new(kind: SessionKind, audience: Audience, space: FileSpace) -> Self {
        Self { kind, audience, space }
    }

    #[must_use]
    pub const fn audience(&self) -> Audience {
        self.audience
    }

    #[must_use]
    pub const fn space(&self) -> &FileSpace {
        &self.space
    }

    /// Path in the tree of a path that the conversation names.
    ///
    /// # Errors
    ///
    /// If the path in the tree is too long.
    pub fn tree_path(&self, path: &TreePath) -> Result<TreePath, InvalidPath> {
        match &self.space {
            FileSpace::Folder(folder) if !is_common(path.as_str()) => {
                format!("{folder}/{path}").parse()
            }
            FileSpace::Whole | FileSpace::Folder(_) => Ok(path.clone()),
        }
    }

    /// Path under which the conversation sees a file of the tree; `None` if it does not see it.
    #[must_use]
    pub fn view_path(&self, path: &TreePath) -> Option<TreePath> {
        let folder = match &self.space {
            FileSpace::Whole => return self.is_visible(path.as_str()).then(|| path.clone()),
            FileSpace::Folder(folder) => folder,
        };
        if is_common(path.as_str()) {
            return self.is_visible(path.as_str()).then(|| path.clone());
        }
        let own = path.as_str().strip_prefix(folder)?.strip_prefix('/')?;
        // A file that the owner put there under a common name would hide the common one.
        if is_common(own) { None } else { own.parse().ok() }
    }

    /// Whether the conversation may change the file with this view path.
    #[must_use]
    pub fn may_change(&self, path: &str) -> bool {
        match &self.space {
            FileSpace::Whole => {
                !is_instruction(path) || (self.audience == Audience::Owner && self.is_visible(path))
            }
            FileSpace::Folder(_) => !is_common(path),
        }
    }

    /// Whether the session may load the file, if it is one that not all sessions may.
    fn is_visible(&self, path: &str) -> bool {
        match BootstrapName::of(path) {
            Some(name) => may_load(self.kind, self.audience, name),
            None if is_within(path, NOTES_FOLDER) => {
                may_load(self.kind, self.audience, BootstrapName::Memory)
            }
            None => true,
        }
    }
}

/// Whether a file is part of the prompts of later conversations.
#[must_use]
pub fn is_instruction(path: &str) -> bool {
    // The header of a skill is in the prompts of all conversations.
    BootstrapName::of(path).is_some()
        || is_within(path, NOTES_FOLDER)
        || is_within(path, SKILLS_FOLDER)
}

/// Whether a view path has the same meaning for everybody. Only the owner changes such files.
fn is_common(path: &str) -> bool {
    let first = path.split_once('/').map_or(path, |(first, _)| first);
    matches!(first, SHARED_FOLDER | SKILLS_FOLDER | NOTES_FOLDER)
        || BootstrapName::of(first).is_some()
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OTHERS: Audience = Audience::Others;

    fn path(text: &str) -> TreePath {
        text.parse().unwrap()
    }

    fn view_of(person: &str) -> FileView {
        FileView::new(SessionKind::Dm, OTHERS, FileSpace::of_person(person))
    }

    fn folder(kind: SessionKind, key: &str, audience: Audience) -> String {
        let person = crate::person::of_session(kind, key, audience);
        FileSpace::of(kind, key, audience, person.as_deref()).to_string()
    }

    #[test]
    fn each_person_has_a_folder_and_the_owner_has_them_all() {
        for (kind, key, audience, expected) in [
            (SessionKind::Main, "agent:main:main", Audience::Owner, "owner"),
            (SessionKind::Heartbeat, "agent:main:heartbeat", Audience::Owner, "owner"),
            (SessionKind::Dm, "agent:main:dm:telegram:7", Audience::Owner, "owner"),
            (SessionKind::Cron, "agent:main:cron:a:b", Audience::Agent, "owner"),
            (SessionKind::Cron, "agent:main:cron:a:b", OTHERS, "people/~cron=a"),
            (SessionKind::Work, "agent:main:work:a", Audience::Agent, "owner"),
            (SessionKind::Work, "agent:main:work:self-improve", Audience::Owner, "owner"),
            (SessionKind::Work, "agent:main:work:a", OTHERS, "people/~work=a"),
            (SessionKind::Dm, "agent:main:dm:telegram:42", OTHERS, "people/telegram=42"),
            (SessionKind::Dm, "agent:main:dm:hook:shop:1", OTHERS, "people/hook=shop=1"),
            (SessionKind::Api, "agent:main:api:anna", OTHERS, "people/api=anna"),
            (SessionKind::Api, "agent:main:api:anna/branch-1", OTHERS, "people/api=anna"),
            (SessionKind::Api, "agent:main:api:owner", OTHERS, "people/api=owner"),
            (SessionKind::Api, "agent:main:api:once-1", OTHERS, "people/~api=once-1"),
            (SessionKind::Api, "agent:main:api:once-1/branch-2", OTHERS, "people/~api=once-1"),
            (SessionKind::Group, "agent:main:group:x:-1:user:4", OTHERS, "people/group=x=-1"),
            (SessionKind::Topic, "agent:main:topic:x:-1:9", OTHERS, "people/group=x=-1"),
            (SessionKind::Main, "agent:main:main", OTHERS, "people/~main"),
            (SessionKind::Global, "global", OTHERS, "people/~global"),
            (SessionKind::Subagent, "agent:main:subagent:x", OTHERS, "people/~subagent=x"),
        ] {
            assert_eq!(folder(kind, key, audience), expected, "{key}");
        }
    }

    #[test]
    fn a_person_sees_their_own_files_and_those_that_are_shared() {
        let anna = view_of("api:anna");
        for (tree, seen) in [
            ("people/api=anna/notes/a.md", Some("notes/a.md")),
            ("people/api=anna/media/1.png", Some("media/1.png")),
            ("people/api=bob/notes/a.md", None),
            ("people/api=anna2/a.md", None),
            ("people/api=anna", None),
            ("people/api=anna/shared/a.md", None),
            ("people/api=anna/SOUL.md", None),
            ("notes/a.md", None),
            ("media/1.png", None),
            ("shared/a.md", Some("shared/a.md")),
            ("shared2/a.md", None),
            ("skills/x/SKILL.md", Some("skills/x/SKILL.md")),
            ("SOUL.md", Some("SOUL.md")),
            ("MEMORY.md", None),
            ("memory/2026-12-01.md", None),
        ] {
            assert_eq!(anna.view_path(&path(tree)), seen.map(path), "{tree}");
        }
    }

    #[test]
    fn a_person_changes_their_own_files_and_no_others() {
        let anna = view_of("api:anna");
        for (seen, tree, may) in [
            ("a.md", "people/api=anna/a.md", true),
            ("people/api=bob/a.md", "people/api=anna/people/api=bob/a.md", true),
            ("skillset/a.md", "people/api=anna/skillset/a.md", true),
            ("shared/a.md", "shared/a.md", false),
            ("shared", "shared", false),
            ("skills/x/SKILL.md", "skills/x/SKILL.md", false),
            ("SOUL.md", "SOUL.md", false),
            ("SOUL.md/a", "SOUL.md/a", false),
            ("memory/a.md", "memory/a.md", false),
        ] {
            assert_eq!(anna.tree_path(&path(seen)).unwrap(), path(tree), "{seen}");
            assert_eq!(anna.may_change(seen), may, "{seen}");
        }
        assert!(anna.tree_path(&path(&["a"; 250].join("/"))).is_err(), "too long in the tree");
    }

    #[test]
    fn the_owner_sees_and_changes_the_files_of_all_under_their_real_paths() {
        let owner = FileView::new(SessionKind::Main, Audience::Owner, FileSpace::Whole);
        for one in ["people/api=anna/a.md", "a.md", "shared/a", "skills/x", "MEMORY.md", "memory"] {
            assert_eq!(owner.view_path(&path(one)), Some(path(one)), "{one}");
            assert_eq!(owner.tree_path(&path(one)).unwrap(), path(one), "{one}");
            assert!(owner.may_change(one), "{one}");
        }
    }

    #[test]
    fn a_job_and_an_owners_subagent_have_the_files_and_not_the_notes() {
        for (kind, audience) in
            [(SessionKind::Cron, Audience::Agent), (SessionKind::Subagent, OTHERS)]
        {
            let view = FileView::new(kind, audience, FileSpace::Whole);
            for (one, sees, changes) in [
                ("plan.md", true, true),
                ("people/api=anna/a.md", true, true),
                ("AGENTS.md", true, false),
                ("skills/x/SKILL.md", true, false),
                ("SOUL.md", false, false),
                ("memory/2026-12-01.md", false, false),
            ] {
                assert_eq!(view.view_path(&path(one)).is_some(), sees, "{one}");
                assert_eq!(view.may_change(one), changes, "{one}");
            }
        }
    }

    #[test]
    fn what_is_stored_is_read_again_and_nothing_else() {
        for space in [FileSpace::Whole, FileSpace::of_person("telegram:42")] {
            assert_eq!(FileSpace::parse(&space.to_string()), Some(space));
        }
        for wrong in ["", "people", "people/a/b", "shared/a", "people/..", "telegram:42"] {
            assert_eq!(FileSpace::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_persons_name_never_leads_to_another_folder(
            one in "(\\PC|[./:=%~\\\\]){1,120}", other in "(\\PC|[./:=%~\\\\]){1,120}",
        ) {
            let folder_of = |name: &str| FileSpace::of_person(name).to_string();
            prop_assume!(one != OWNER && other != OWNER);

            let (one_, other_) = (folder_of(&one), folder_of(&other));
            prop_assert_eq!(one == other, one_ == other_);
            let parts: Vec<&str> = one_.split('/').collect();
            prop_assert_eq!(parts.len(), 2);
            prop_assert_eq!(parts[0], PEOPLE_FOLDER);
            prop_assert!(!matches!(parts[1], "" | "." | ".."));
            prop_assert!(parts[1].len() <= MAX_FOLDER_NAME_BYTES);
            // A conversation that is nobody's has a `~` at the beginning.
            prop_assert!(!parts[1].starts_with('~'));
        }

        #[test]
        fn a_path_leads_to_the_own_folder_or_to_a_common_file_and_back(
            parts in prop::collection::vec("[a-z.=~%]{1,8}|shared|people|api=bob|SOUL.md", 1..5),
        ) {
            let Ok(seen) = parts.join("/").parse::<TreePath>() else { return Ok(()) };
            let anna = view_of("api:anna");

            let tree = anna.tree_path(&seen).unwrap();

            let own = path("people/api=anna");
            prop_assert!(tree == seen && is_common(seen.as_str()) || tree.is_within(&own));
            prop_assert_eq!(anna.view_path(&tree), Some(seen.clone()));
            if anna.may_change(seen.as_str()) {
                prop_assert!(tree.is_within(&own));
            }
            prop_assert_eq!(view_of("api:bob").view_path(&tree).is_some(), is_common(seen.as_str()));
        }
    }
}
