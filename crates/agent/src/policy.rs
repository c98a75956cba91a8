//! Tool policy: the tools that a turn may use, and the calls that need an approval.
//!
//! Nine layers are asked in order (spec POL-005, C-04). Within a layer a denial wins; from layer to
//! layer the set only shrinks; each removal is recorded with the entry that caused it, so that it
//! can be explained.
//!
//! | module | contents |
//! |---|---|
//! | `name` | canonical tool names and aliases |
//! | `group`, `profile` | words that stand for many tools |
//! | `glob`, `entry`, `set`, `catalog` | the tools that an entry covers |
//! | `settings`, `defaults` | a tenant's settings, and the defaults |
//! | `layer`, `bound_policy`, `compiled_policy` | the policy compiled from the settings |
//! | `people` | roles of the author, and ownership |
//! | `subject`, `view`, `visibility` | the tools left for one turn |
//! | `sandbox_mode` | whether its commands need a sandbox |
//! | `decision`, `explain` | decisions and their explanation |
//! | `approval`, `exec`, `shell` | calls that need an approval |
//! | `action`, `path` | permissions to read, write, run and use the network |
//!
//! A policy is asked twice: when tools are added to a request, and again for each call, since a
//! model may name tools that were not in the request (POL-014).

mod action;
mod approval;
mod bound_policy;
mod catalog;
mod compiled_policy;
mod decision;
mod defaults;
mod entry;
mod error;
mod exec;
mod explain;
mod glob;
mod group;
mod layer;
mod name;
mod path;
mod people;
mod profile;
mod sandbox_mode;
mod set;
mod settings;
mod shell;
mod subject;
#[cfg(test)]
mod tests;
mod view;
mod visibility;

pub use action::{Access, Actions, FsScope, Permission, hosts::HostLists};
pub use approval::{ApprovalMode, Approvals, written_paths};
pub use catalog::{Catalog, Origin, Tool};
pub use compiled_policy::CompiledPolicy;
pub use decision::{Decision, DecisionSource, Reason, Rule, TurnList};
pub use defaults::{Defaults, GROUP_DENY, ProviderDenial, SANDBOX_DENY, SUBAGENT_DENY};
pub use error::{Error, Warning};
pub use exec::{Ask, ExecReason, ExecRule, ExecSettings, ExecVerdict, Security, exec_approval};
pub use explain::Explanation;
pub use group::{GROUPS, Group};
pub use layer::Layer;
pub use name::{COMPANIONS, NATIVE, canonical};
pub use people::{GUEST, OWNER, TurnAuthors, are_owners, person_of_author};
pub use profile::Profile;
pub use sandbox_mode::SandboxMode;
pub use settings::{ChatRule, Policy, Settings};
pub use subject::{LocalTime, Subject, Weekday};
pub use view::View;
pub use visibility::{Hours, VisibilityFilter};
