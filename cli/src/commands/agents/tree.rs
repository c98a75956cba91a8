//! The file tree that an agent is moved with: its files, behaviours, memory and subagents, as the
//! people who wrote OpenDAN laid them out.
//!
//! | in the tree | what it is |
//! |---|---|
//! | `agent.yaml` | settings and instructions, as a resource (docs/operator.md) |
//! | `behaviors/<name>.yaml` | behaviours |
//! | `role.md`, `self.md` | the same files of the agent |
//! | `memory/memory.md` | `MEMORY.md` |
//! | `memory/things.jsonl` | memories, one on each line as JSON |
//! | `memory/…` | notes |
//! | `workshop/skills/…`, `tools`, `sessions`, `workspaces` | the folders of these names |
//! | `workshop/files/…` | files whose own path has another meaning in the tree |
//! | `sub-agents/<name>/…` | the same of another agent |
//! | anything else | the file of this path |

use std::collections::BTreeMap;

use super::super::files::archive::Files;

pub const SETTINGS_FILE: &str = "agent.yaml";
pub const MEMORIES_FILE: &str = "memory/things.jsonl";

/// Names of the database with an agent's memories elsewhere (spec C-55).
pub const DATABASE_FILES: [&str; 2] = ["memory/things.db", "memory/things.sqlite"];

const BEHAVIORS_FOLDER: &str = "behaviors/";
const SUBAGENTS_FOLDER: &str = "sub-agents/";
const WORKSHOP_FOLDER: &str = "workshop/";
const OTHER_FILES_FOLDER: &str = "workshop/files/";
const NOTES_FILE: (&str, &str) = ("MEMORY.md", "memory/memory.md");

/// Folders of an agent's files that are in its workshop.
const WORKSHOP_FOLDERS: [&str; 4] = ["skills/", "tools/", "sessions/", "workspaces/"];

/// An agent's part of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentTree {
    /// The file [`SETTINGS_FILE`].
    pub settings: Option<Vec<u8>>,
    /// Documents by their names.
    pub behaviors: Files,
    /// The file [`MEMORIES_FILE`].
    pub memories: Option<Vec<u8>>,
    /// Under the agent's own paths.
    pub files: Files,
    pub subagents: BTreeMap<String, Self>,
}

impl AgentTree {
    /// Sorts the files of a tree.
    pub fn of(tree: Files) -> Self {
        let mut agent = Self::default();
        let mut subagents: BTreeMap<String, Files> = BTreeMap::new();
        for (path, content) in tree {
            let subagent =
                path.strip_prefix(SUBAGENTS_FOLDER).and_then(|rest| rest.split_once('/'));
            if let Some((name, rest)) = subagent {
                subagents.entry(name.to_owned()).or_default().insert(rest.to_owned(), content);
            } else if path == SETTINGS_FILE {
                agent.settings = Some(content);
            } else if path == MEMORIES_FILE {
                agent.memories = Some(content);
            } else if let Some(name) = behavior_name(&path) {
                agent.behaviors.insert(name.to_owned(), content);
            } else {
                agent.files.insert(own_path(&path).to_owned(), content);
            }
        }
        agent.subagents =
            subagents.into_iter().map(|(name, tree)| (name, Self::of(tree))).collect();
        agent
    }

    /// The files of the tree.
    pub fn into_files(self) -> Files {
        let mut tree = Files::new();
        for (path, content) in self.files {
            tree.insert(tree_path(&path), content);
        }
        for (name, content) in self.behaviors {
            tree.insert(format!("{BEHAVIORS_FOLDER}{name}.yaml"), content);
        }
        tree.extend(self.settings.map(|content| (SETTINGS_FILE.to_owned(), content)));
        tree.extend(self.memories.map(|content| (MEMORIES_FILE.to_owned(), content)));
        for (name, subagent) in self.subagents {
            let files = subagent.into_files().into_iter();
            tree.extend(
                files.map(|(path, content)| (format!("{SUBAGENTS_FOLDER}{name}/{path}"), content)),
            );
        }
        tree
    }
}

/// Name of the behaviour in a file of the tree.
fn behavior_name(path: &str) -> Option<&str> {
    let name = path.strip_prefix(BEHAVIORS_FOLDER)?;
    let name = [".yaml", ".yml", ".json"].iter().find_map(|end| name.strip_suffix(end))?;
    Some(name).filter(|name| !name.contains('/'))
}

/// Path among the agent's files of a file of the tree.
fn own_path(path: &str) -> &str {
    if path == NOTES_FILE.1 {
        return NOTES_FILE.0;
    }
    if let Some(other) = path.strip_prefix(OTHER_FILES_FOLDER) {
        return other;
    }
    match path.strip_prefix(WORKSHOP_FOLDER) {
        Some(inner) if WORKSHOP_FOLDERS.iter().any(|folder| inner.starts_with(folder)) => inner,
        Some(_) | None => path,
    }
}

/// Path in the tree of a file of the agent.
fn tree_path(path: &str) -> String {
    if path == NOTES_FILE.0 {
        return NOTES_FILE.1.to_owned();
    }
    if WORKSHOP_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return format!("{WORKSHOP_FOLDER}{path}");
    }
    let has_other_meaning = [SETTINGS_FILE, MEMORIES_FILE, NOTES_FILE.1].contains(&path)
        || behavior_name(path).is_some()
        || path.starts_with(SUBAGENTS_FOLDER)
        || own_path(path) != path;
    if has_other_meaning { format!("{OTHER_FILES_FOLDER}{path}") } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::files::archive::{read_archive, write_archive},
        *,
    };

    fn files(paths: &[&str]) -> Files {
        paths.iter().map(|path| ((*path).to_owned(), path.as_bytes().to_vec())).collect()
    }

    #[test]
    fn files_go_to_their_places_and_come_back_from_them() {
        for (own, tree) in [
            ("role.md", "role.md"),
            ("self.md", "self.md"),
            ("AGENTS.md", "AGENTS.md"),
            ("MEMORY.md", "memory/memory.md"),
            ("memory/2026-11-25.md", "memory/2026-11-25.md"),
            ("memory/things.db", "memory/things.db"),
            ("skills/dig/SKILL.md", "workshop/skills/dig/SKILL.md"),
            ("workspaces/garden/.git/HEAD", "workshop/workspaces/garden/.git/HEAD"),
            ("people/api=anna/a.md", "people/api=anna/a.md"),
            // Their paths mean something else in the tree.
            ("memory/memory.md", "workshop/files/memory/memory.md"),
            ("memory/things.jsonl", "workshop/files/memory/things.jsonl"),
            ("agent.yaml", "workshop/files/agent.yaml"),
            ("behaviors/do.yaml", "workshop/files/behaviors/do.yaml"),
            ("sub-agents/a/role.md", "workshop/files/sub-agents/a/role.md"),
            ("workshop/skills/a", "workshop/files/workshop/skills/a"),
            ("workshop/files/a", "workshop/files/workshop/files/a"),
            ("workshop/notes.md", "workshop/notes.md"),
            ("behaviors/notes.md", "behaviors/notes.md"),
        ] {
            assert_eq!(tree_path(own), tree);
            assert_eq!(AgentTree::of(files(&[tree])).files.into_keys().collect::<Vec<_>>(), [own]);
        }
    }

    #[test]
    fn an_agent_with_subagents_is_the_same_after_an_archive() {
        let helper = AgentTree {
            files: files(&["role.md", "skills/a/SKILL.md"]),
            behaviors: files(&["do"]),
            ..AgentTree::default()
        };
        let agent = AgentTree {
            settings: Some(b"kind: Agent\n".to_vec()),
            memories: Some(b"{}\n".to_vec()),
            behaviors: files(&["plan", "do"]),
            files: files(&["MEMORY.md", "memory/things.jsonl", "sub-agents/helper/agent.yaml"]),
            subagents: [("helper".to_owned(), helper)].into(),
        };

        let archive = write_archive(&agent.clone().into_files()).unwrap();

        assert_eq!(AgentTree::of(read_archive(&archive).unwrap()), agent);
    }
}
