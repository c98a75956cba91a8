//! Skills: what an agent may read up on when it needs it.
//!
//! A skill is a folder with a `SKILL.md`: a head that says what it is for, and a text that says
//! how it is done. An agent is told the heads of all its skills and reads a text when it fits.
//!
//! ```text
//! files ──▶ Manifest ──▶ Shelf: workspace > tenant > platform ──▶ the prompt's list, /skill-name
//!
//! registries ──▶ Finder: what is there for this?
//!        └─────▶ install: policy, verdict, archive ──▶ the files and edits of one commit
//! ```
//!
//! | module | question |
//! |---|---|
//! | `document` | what does a YAML or JSON5 text say, within its limits? |
//! | `fields` | what is in a field, and what should be written there? |
//! | `manifest` | what does a `SKILL.md` say? |
//! | `needs` | what does a skill need that is not there? |
//! | `shelf` | which skills does an agent have? |
//! | `builtin` | which does everybody have? |
//! | `registry` | where do others come from? |
//! | `find` | which of those fit a question? |
//! | `archive` | what is in a download, if it is safe? |
//! | `install` | may it be installed, and what is written then? |
//! | `library` | where are they kept, and how does one change? |
//! | `tools` | what does an agent do with them itself? |
//! | `agent_package` | what does a `*.skill.yaml` make? |
//!
//! What an installation comes to is given back as files; `library` makes of them one commit of a
//! tree, with its row for the audit.
//!
//! ## What can go wrong
//!
//! All of it was written by strangers: heads are read within budgets (`document`), archives are
//! unpacked to memory and looked at entry by entry (`archive`), registries are asked through the
//! guard of the tools and believed only what they say of a version (`registry`), and what nobody
//! has judged is not installed unless an administrator said so (`install`). One bad skill is left
//! out with its reason, and takes no other with it (`shelf`).

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
mod needs;
mod origin;
mod registry;
mod shelf;
mod tools;

pub use agent_package::{AgentPackage, PackagedAgent, PackagedRoute};
pub use archive::{Download, Limits};
pub use builtin::{BUILTIN, builtin};
pub use error::{Error, Flaw};
pub use find::{DEFAULT_FOUND, Finder, Found, MOST_FOUND};
pub use install::{Force, Installation, Policy, Unjudged, Wanted, install};
pub use library::{FOLDER, KeptFile, Library, Order};
pub use manifest::{Dispatch, InstallStep, Manifest, Requirements};
pub use name::{InvalidName, SkillName};
pub use needs::{Lack, Surroundings};
pub use origin::Origin;
pub use registry::{
    AtUrl, ClawHub, Config, Directory, Hit, Meta, Registries, Registry, RegistryConfig, Verdict,
};
pub use shelf::{Invocation, Scope, Shelf, Skill, SkillFile, Skipped, Unusable, Why};
pub use tools::{FindSkills, Home, InstallSkill, SkillTools, tell};
