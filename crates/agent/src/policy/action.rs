//! What may be run, reached, read and written (spec POL-016, ACT-006).

use serde::{Deserialize, Serialize};

use super::{
    decision::{Decision, Place, Reason, Rule},
    error::{Error, short},
    path::{covers, normal},
};

/// Whether something may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// No.
    Deny,
    /// Once a person has agreed.
    Ask,
    /// Yes.
    Allow,
}

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is read.
    Read,
    /// It is changed, made or deleted.
    Write,
}

/// Which part of the workspace may be read and written.
///
/// Absent is all, an empty list nothing. An entry covers what it names and all
/// below; `*` stays within a part, `**` crosses them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FsScope {
    /// What may be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<String>>,
    /// What may be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Vec<String>>,
}

impl FsScope {
    /// Everything may be read, nothing written: for behaviours that plan and judge.
    #[must_use]
    pub const fn read_only() -> Self {
        Self { read: None, write: Some(Vec::new()) }
    }

    /// Whether a path may be read or written. One outside the workspace never may.
    #[must_use]
    pub fn allows(&self, access: Access, path: &str) -> bool {
        let list = match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        };
        let Some(path) = normal(path) else { return false };
        list.as_ref().is_none_or(|list| {
            list.iter().filter_map(|scope| normal(scope)).any(|scope| covers(&scope, &path))
        })
    }

    fn check(&self, at: &str) -> Result<(), Error> {
        for (list, field) in [(&self.read, "read"), (&self.write, "write")] {
            let mut paths = list.iter().flatten();
            if let Some(wrong) = paths.find(|path| normal(path).is_none()) {
                return Err(Error::Scope { at: format!("{at}.{field}"), path: short(wrong) });
            }
        }
        Ok(())
    }
}

/// What an agent's actions may do, as a tenant writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Actions {
    /// Whether commands run; they do if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<Permission>,
    /// Whether actions reach the network; they do not if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Permission>,
    /// The files of an agent.
    pub root: FsScope,
    /// The files of its subagents; within those of the agent.
    pub subagent: FsScope,
    /// What an agent's tenant says of all this.
    #[serde(skip)]
    pub(crate) above: Option<Box<Self>>,
}

/// What an action asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionRequest<'a> {
    /// It reaches the network.
    pub network: bool,
    /// What it reads.
    pub reads: Vec<&'a str>,
    /// What it writes.
    pub writes: Vec<&'a str>,
}

impl Actions {
    /// A tenant's with an agent's: both must agree.
    pub(crate) fn with(&self, agent: &Self) -> Result<Self, Error> {
        for (actions, at) in [(self, "tools.actions"), (agent, "agent.tools.actions")] {
            actions.root.check(&format!("{at}.root"))?;
            actions.subagent.check(&format!("{at}.subagent"))?;
        }
        Ok(Self { above: Some(Box::new(self.clone())), ..agent.clone() })
    }

    pub(crate) fn exec(&self) -> Permission {
        self.strictest(|actions| actions.exec).unwrap_or(Permission::Allow)
    }

    pub(crate) fn network(&self) -> Permission {
        self.said_of_network().unwrap_or(Permission::Deny)
    }

    /// What was said of the network, if anything was.
    pub(crate) fn said_of_network(&self) -> Option<Permission> {
        self.strictest(|actions| actions.network)
    }

    fn strictest(&self, of: impl Fn(&Self) -> Option<Permission>) -> Option<Permission> {
        let above = self.above.as_deref().and_then(&of);
        [above, of(self)].into_iter().flatten().min()
    }

    /// The scopes that a session must all keep to.
    pub(crate) fn scopes(&self, is_subagent: bool) -> impl Iterator<Item = &FsScope> {
        [self.above.as_deref(), Some(self)].into_iter().flatten().flat_map(move |actions| {
            [Some(&actions.root), Some(&actions.subagent).filter(|_| is_subagent)]
                .into_iter()
                .flatten()
        })
    }
}

/// What a permission says.
pub(crate) fn permit(permission: Permission, rule: Rule, reason: Reason) -> Decision {
    match permission {
        Permission::Allow => Decision::Allow,
        Permission::Ask => Decision::NeedApproval { reason },
        Permission::Deny => Decision::Deny { layer: Place::Action, rule },
    }
}

/// The stricter of two decisions; the first of equals.
pub(crate) fn stricter(a: Decision, b: Decision) -> Decision {
    match (&a, &b) {
        (Decision::Deny { .. }, _) | (_, Decision::Allow) => a,
        (Decision::NeedApproval { .. }, Decision::NeedApproval { .. }) => a,
        (Decision::Allow | Decision::NeedApproval { .. }, _) => b,
    }
}
