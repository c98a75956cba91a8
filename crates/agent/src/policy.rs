//! Which tools a turn may use, which calls a person must approve, and why.
//!
//! Nine layers are asked in their order (spec POL-005, C-04). Within a layer a
//! denial wins; from layer to layer the set only shrinks; and each removal is
//! remembered with the entry that made it, so that it can be explained.
//!
//! | module | question |
//! |---|---|
//! | `name` | what are the tools called, whoever calls them? |
//! | `group`, `profile` | which words stand for many tools? |
//! | `glob`, `entry`, `set`, `catalog` | which tools does a written entry cover? |
//! | `settings`, `defaults` | what does a tenant write, and what holds if nothing is written? |
//! | `layer`, `sieve`, `compiled` | what is made of it once, when it is loaded? |
//! | `people` | who speaks, and whose assistant is it? |
//! | `subject`, `view`, `visibility` | what is left for this turn? |
//! | `decision`, `explain` | what is said of a tool, and why? |
//! | `approval`, `exec`, `shell`, `fingerprint` | who must be asked before a call? |
//! | `action`, `path` | what may be read, written and reached? |
//!
//! A policy is asked twice: when tools are offered, and again when a call
//! arrives, since a model may name what it was not offered (POL-014).

mod action;
mod approval;
mod catalog;
mod compiled;
mod decision;
mod defaults;
mod entry;
mod error;
mod exec;
mod explain;
mod fingerprint;
mod glob;
mod group;
mod layer;
mod name;
mod path;
mod people;
mod profile;
mod set;
mod settings;
mod shell;
mod sieve;
mod subject;
#[cfg(test)]
mod tests;
mod view;
mod visibility;

pub use action::{Access, ActionRequest, Actions, FsScope, Permission};
pub use approval::{ApprovalMode, Approvals};
pub use catalog::{Catalog, Origin, Tool};
pub use compiled::Compiled;
pub use decision::{Decision, List, Place, Reason, Rule};
pub use defaults::{Defaults, GROUP_DENY, ProviderDenial, SANDBOX_DENY, SUBAGENT_DENY};
pub use error::{Error, Warning};
pub use exec::{Ask, ExecReason, ExecRule, ExecSettings, ExecVerdict, Security, exec_approval};
pub use explain::Explanation;
pub use fingerprint::Fingerprint;
pub use group::{GROUPS, Group};
pub use layer::{FIXED_RULES, Layer};
pub use name::{ALIASES, Alias, COMPANIONS, Family, NATIVE, canonical, shown};
pub use people::{Who, are_owners, audience};
pub use profile::Profile;
pub use settings::{ChatRule, Policy, Settings};
pub use subject::{Hosting, LocalTime, SandboxMode, Subject, Weekday};
pub use view::View;
pub use visibility::{Filter, Hours};
