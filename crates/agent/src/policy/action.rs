//! Permissions to run commands, use the network, and read and write files (spec POL-016, ACT-006).

pub(super) mod hosts;

use serde::{Deserialize, Serialize};

use self::hosts::{HostLists, check_hosts};
use super::{
    decision::{Decision, DecisionSource, Reason, Rule},
    error::{Error, short},
    path::{covers, normalised},
};

/// In ascending order of permissiveness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    Deny,
    Ask,
    Allow,
}

/// Kind of access to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Includes creation and deletion.
    Write,
}

/// Parts of the workspace that may be read and written.
///
/// Absent is all, an empty list nothing. An entry covers a path and everything below it; `*`
/// matches within a path component, `**` across components.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FsScope {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Vec<String>>,
}

impl FsScope {
    /// Whether a path may be read or written. Paths outside the workspace never may.
    #[must_use]
    pub fn allows(&self, access: Access, path: &str) -> bool {
        let list = match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        };
        let Some(path) = normalised(path) else { return false };
        list.as_ref().is_none_or(|list| {
            list.iter().filter_map(|scope| normalised(scope)).any(|scope| covers(&scope, &path))
        })
    }

    fn check(&self, at: &str) -> Result<(), Error> {
        for (list, field) in [(&self.read, "read"), (&self.write, "write")] {
            let mut paths = list.iter().flatten();
            if let Some(wrong) = paths.find(|path| normalised(path).is_none()) {
                return Err(Error::Scope { at: format!("{at}.{field}"), path: short(wrong) });
            }
        }
        Ok(())
    }
}

/// Permissions of an agent's actions, as a tenant writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Actions {
    /// Commands; allowed if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<Permission>,
    /// Commands that use the network; each needs an approval if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Permission>,
    /// Hosts that the web tools may reach, as `example.com` or `*.example.com`; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<String>>,
    pub root: FsScope,
    /// Files of its subagents, within those of the agent.
    pub subagent: FsScope,
    /// Permissions of the agent's tenant, which apply too.
    #[serde(skip)]
    pub(crate) above: Option<Box<Self>>,
}

impl Actions {
    /// Combines a tenant's and an agent's permissions: both must agree.
    pub(crate) fn with(&self, agent: &Self) -> Result<Self, Error> {
        for (actions, at) in [(self, "tools.actions"), (agent, "agent.tools.actions")] {
            actions.root.check(&format!("{at}.root"))?;
            actions.subagent.check(&format!("{at}.subagent"))?;
            let hosts = actions.egress.as_deref().unwrap_or_default();
            check_hosts(hosts, &format!("{at}.egress"))?;
        }
        Ok(Self { above: Some(Box::new(self.clone())), ..agent.clone() })
    }

    pub(crate) fn exec(&self) -> Permission {
        self.strictest(|actions| actions.exec).unwrap_or(Permission::Allow)
    }

    /// Returns the network permission; `None` if neither set one.
    pub(crate) fn network(&self) -> Option<Permission> {
        self.strictest(|actions| actions.network)
    }

    /// Returns the lists of hosts that the web tools may reach; `None` if neither set one.
    pub(crate) fn hosts(&self) -> Option<HostLists> {
        let above = self.above.as_deref().and_then(|actions| actions.egress.as_ref());
        HostLists::of([above, self.egress.as_ref()])
    }

    fn strictest(&self, of: impl Fn(&Self) -> Option<Permission>) -> Option<Permission> {
        let above = self.above.as_deref().and_then(&of);
        [above, of(self)].into_iter().flatten().min()
    }

    /// Returns the scopes that all apply to a session.
    pub(crate) fn scopes(&self, is_subagent: bool) -> impl Iterator<Item = &FsScope> {
        [self.above.as_deref(), Some(self)].into_iter().flatten().flat_map(move |actions| {
            [Some(&actions.root), Some(&actions.subagent).filter(|_| is_subagent)]
                .into_iter()
                .flatten()
        })
    }
}

/// Converts a permission to a decision.
pub(crate) fn permit(permission: Permission, rule: Rule, reason: Reason) -> Decision {
    match permission {
        Permission::Allow => Decision::Allow,
        Permission::Ask => Decision::NeedApproval { reason },
        Permission::Deny => Decision::Deny { layer: DecisionSource::Action, rule },
    }
}

/// Returns the stricter of two decisions; the first of equals.
pub(crate) fn stricter(a: Decision, b: Decision) -> Decision {
    match (&a, &b) {
        (Decision::Deny { .. }, _) | (_, Decision::Allow) => a,
        (Decision::NeedApproval { .. }, Decision::NeedApproval { .. }) => a,
        (Decision::Allow | Decision::NeedApproval { .. }, _) => b,
    }
}
