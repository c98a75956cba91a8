//! Skills: instructions with files that an agent loads on demand.
//!
//! A skill is a folder with a `SKILL.md`: front matter that says what the skill is for, and a text
//! with the instructions. The prompt lists the front matter of all skills; the agent reads a text
//! when it needs it.
//!
//! ```text
//! files ──▶ Manifest ──▶ SkillSet: workspace > tenant > platform ──▶ the prompt's list, /skill-name
//!
//! registries ──▶ Finder: search
//!        └─────▶ install: policy, verdict, archive ──▶ the files and edits of one commit
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `document` | YAML and JSON5 parsers with limits |
//! | `fields` | typed access to a document's fields, with errors that say what to write |
//! | `manifest` | parser of `SKILL.md` |
//! | `requirements` | requirements of a skill that are not met |
//! | `skill_set` | skills of an agent |
//! | `builtin` | skills shipped with the platform |
//! | `registry` | sources of further skills |
//! | `find` | search in the registries |
//! | `archive` | safe extraction of a download |
//! | `install` | checks of an installation, and the files it writes |
//! | `library` | storage of skills in workspaces |
//! | `tools` | tools by which agents find and install skills |
//! | `agent_package` | agents as `*.skill.yaml` files |
//!
//! `install` returns files; `library` writes them in one commit of a tree, with a row for the
//! audit.
//!
//! ## What can go wrong
//!
//! Skills are untrusted. Front matter is parsed within limits (`document`). Archives are unpacked
//! to memory and checked entry by entry (`archive`). Requests to registries pass the tools' guard
//! against private addresses, and a registry is trusted only for its statements about a version
//! (`registry`). A skill without a verdict is not installed unless an administrator allows that
//! (`install`). A bad skill is skipped with its reason and does not affect others (`skill_set`).

mod agent_package;
mod archive;
mod builtin;
mod document;
mod error;
mod fields;
mod find;
mod install;
mod library;
mod manifest;
mod name;
mod origin;
mod registry;
mod requirements;
mod skill_set;
mod tools;

pub use agent_package::{AgentPackage, PackagedAgent, PackagedBehaviors, PackagedRoute};
pub use archive::{Download, Limits};
pub use builtin::{BUILTIN, builtin};
pub use error::{Error, Flaw};
pub use find::{DEFAULT_SEARCH_LIMIT, Finder, MAX_SEARCH_LIMIT, SearchResult};
pub use install::{Force, InstallRequest, Installation, Policy, UnjudgedPolicy, prepare_install};
pub use library::{InstallOrder, SkillFileEntry, SkillLibrary};
pub use manifest::{InstallStep, Manifest, Requirements, ToolDispatch};
pub use name::{InvalidName, SKILLS_FOLDER, SkillName};
pub use origin::Origin;
pub use registry::{
    ClawHub, Config, DirectoryRegistry, Registries, Registry, RegistryConfig, SkillHit,
    SkillVersionMeta, UrlRegistry, Verdict,
};
pub use requirements::{SkillEnvironment, UnmetRequirement};
pub use skill_set::{
    Invocation, Scope, Skill, SkillFile, SkillSet, UnusableSkill, UnusedFile, UnusedReason,
};
pub use tools::{FindSkills, InstallSkill, SkillTarget, WithSkillTools, tool_error};
