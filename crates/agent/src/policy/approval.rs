//! Approvals: the calls that a person must approve.

use std::collections::BTreeMap;

use holdfast_types::TreePath;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    action::{Access, Permission, hosts::HostLists, permit, stricter},
    bound_policy::Binder,
    decision::{Decision, DecisionSource, Reason, Rule},
    error::{Error, short},
    exec::{ExecVerdict, exec_approval, with_variables},
    name::principal_of,
    path::{covers, normalised},
    view::View,
};

/// Condition under which a tool call needs an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalMode {
    Never,
    /// Calls that touch something protected: a protected path, a command on a node, money.
    Protected,
    Always,
}

/// Approval settings, as a tenant writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Approvals {
    /// By tool, group or pattern; the strictest of several matches counts. A tenant's mode replaces
    /// the default, an agent's can only be stricter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, ApprovalMode>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<String>,
}

/// Files that define an agent. Changes to them need an approval, as changes of Git's databases do, which
/// may name programs to run.
const PROTECTED_PATHS: [&str; 4] = ["self.md", "role.md", "behaviors", ".git"];

/// Files that say what an agent is and what it may do. A person approves each change of them, whatever
/// the policy says.
const DEFINING_FILES: [&str; 2] = ["self.md", "role.md"];

/// Sections of self.md of which the same does not hold: a policy may leave them to the agent.
const FREE_SECTIONS: [&str; 5] =
    ["identity", "objectives", "preferences", "capabilities", "commitments"];

/// Default approval modes.
const DEFAULT_APPROVAL_MODES: [(&str, ApprovalMode); 7] = [
    ("write", ApprovalMode::Protected),
    ("edit", ApprovalMode::Protected),
    ("apply_patch", ApprovalMode::Protected),
    // Commands on a person's own machine.
    ("nodes", ApprovalMode::Protected),
    ("email", ApprovalMode::Always),
    // Payments.
    ("wallet", ApprovalMode::Protected),
    // What the agent says of itself.
    ("self", ApprovalMode::Protected),
];

/// Read-only operations on nodes.
const NODE_READS: [&str; 4] = ["discover", "list", "status", "ping"];

/// Approval modes of one agent, bound to the catalogue.
#[derive(Debug)]
pub(crate) struct BoundApprovals {
    modes: Vec<ApprovalMode>,
    protected: Vec<String>,
}

impl BoundApprovals {
    pub(crate) fn new(
        binder: &mut Binder<'_>,
        tenant: &Approvals,
        agent: &Approvals,
    ) -> Result<Self, Error> {
        let shipped: Vec<(&str, ApprovalMode)> = DEFAULT_APPROVAL_MODES.to_vec();
        let of = |approvals: &Approvals| -> Vec<(String, ApprovalMode)> {
            approvals.tools.iter().map(|(entry, mode)| (entry.clone(), *mode)).collect()
        };
        let shipped = strictest(binder, &shipped, "approvals")?;
        let tenants = strictest(binder, &of(tenant), "tools.approvals")?;
        let agents = strictest(binder, &of(agent), "agent.tools.approvals")?;
        let mut modes = Vec::with_capacity(binder.catalog.len());
        for at in 0..binder.catalog.len() {
            let get = |list: &[Option<ApprovalMode>]| list.get(at).copied().flatten();
            let base = get(&tenants).or_else(|| get(&shipped)).unwrap_or(ApprovalMode::Never);
            modes.push(get(&agents).map_or(base, |own| own.max(base)));
        }
        let mut protected: Vec<String> = PROTECTED_PATHS.map(str::to_owned).to_vec();
        for (approvals, at) in [(tenant, "tools.approvals"), (agent, "agent.tools.approvals")] {
            for path in &approvals.protected {
                let wrong = || Error::Scope { at: format!("{at}.protected"), path: short(path) };
                protected.push(normalised(path).ok_or_else(wrong)?.to_lowercase());
            }
        }
        Ok(Self { modes, protected })
    }

    fn mode(&self, at: usize) -> ApprovalMode {
        self.modes.get(at).copied().unwrap_or(ApprovalMode::Never)
    }

    /// Returns the decision for a tool before its input is known.
    pub(crate) fn of_tool(&self, at: usize) -> Decision {
        match self.mode(at) {
            ApprovalMode::Always => Decision::NeedApproval { reason: Reason::Always },
            ApprovalMode::Never | ApprovalMode::Protected => Decision::Allow,
        }
    }

    /// Whether a path is protected, in any case.
    fn protects(&self, path: &str) -> bool {
        let Some(path) = normalised(path) else { return true };
        let is_of_git = path
            .parse::<TreePath>()
            .is_ok_and(|path| path.within_git_database().is_some() || path.is_bare_head());
        let path = path.to_lowercase();
        // Deleting a parent folder deletes a protected path too.
        is_of_git || self.protected.iter().any(|scope| covers(scope, &path) || covers(&path, scope))
    }
}

/// Returns the strictest mode of each tool in a list.
fn strictest<T: AsRef<str>>(
    binder: &mut Binder<'_>,
    list: &[(T, ApprovalMode)],
    at: &str,
) -> Result<Vec<Option<ApprovalMode>>, Error> {
    let mut modes = vec![None; binder.catalog.len()];
    for (entry, mode) in list {
        let covered = binder.bind_deny(&[entry.as_ref()], at)?;
        for tool in covered.set.iter() {
            if let Some(known) = modes.get_mut(tool) {
                *known = Some(known.map_or(*mode, |known: ApprovalMode| known.max(*mode)));
            }
        }
    }
    Ok(modes)
}

impl View<'_> {
    /// Network permission of commands; `None` if neither the tenant nor the agent set one.
    #[must_use]
    pub fn network(&self) -> Option<Permission> {
        self.compiled.actions.network()
    }

    /// Hosts that the web tools may reach; `None` if neither the tenant nor the agent set a list.
    #[must_use]
    pub fn hosts(&self) -> Option<HostLists> {
        self.compiled.actions.hosts()
    }

    /// Whether this session may read or write a path.
    #[must_use]
    pub fn in_scope(&self, access: Access, path: &str) -> Decision {
        let mut scopes = self.compiled.actions.scopes(self.is_subagent);
        // Without scopes the path must still be inside the workspace.
        if normalised(path).is_some() && scopes.all(|scope| scope.allows(access, path)) {
            return Decision::Allow;
        }
        let access = match access {
            Access::Read => "read",
            Access::Write => "write",
        };
        Decision::Deny { layer: DecisionSource::Action, rule: Rule::OutOfScope { access } }
    }

    /// Decides a call by its input; `decision` is the decision for the tool.
    pub(crate) fn decide_input(&self, tool: &str, input: &Value, decision: Decision) -> Decision {
        match tool {
            "exec" => stricter(self.command(input), decision),
            "read" | "list_files" | "send_file" => {
                let paths = paths(tool, input);
                let judged = paths.iter().map(|path| self.in_scope(Access::Read, path));
                judged.fold(decision, stricter)
            }
            "write" | "edit" | "apply_patch" | "append_file" | "delete_file" => {
                stricter(self.change(tool, input), decision)
            }
            "nodes" => stricter(self.node(input), decision),
            "wallet" => stricter(self.payment(input), decision),
            "self" => stricter(self.self_change(input), decision),
            tool if tool == "process" || principal_of(tool) == Some("exec") => {
                let exec = self.compiled.actions.exec();
                stricter(permit(exec, Rule::NoExec, Reason::Exec), decision)
            }
            _ => decision,
        }
    }

    fn command(&self, input: &Value) -> Decision {
        let compiled = self.compiled;
        let permitted = permit(compiled.actions.exec(), Rule::NoExec, Reason::Exec);
        let (security, ask) = compiled.exec.effective();
        let command = input.get("command").and_then(Value::as_str).unwrap_or_default();
        let mut verdict = exec_approval(command, &compiled.exec.allowlist, security, ask);
        let variables = input.get("env").is_some_and(|env| match env {
            Value::Null => false,
            Value::Object(variables) => !variables.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => true,
        });
        if variables {
            verdict = with_variables(verdict, ask);
        }
        let judged = match verdict {
            ExecVerdict::Allowed { .. } => Decision::Allow,
            ExecVerdict::Denied { reason } => {
                Decision::Deny { layer: DecisionSource::Exec, rule: Rule::Command(reason) }
            }
            ExecVerdict::Ask { reason } => {
                Decision::NeedApproval { reason: Reason::Command(reason) }
            }
        };
        stricter(permitted, judged)
    }

    fn change(&self, tool: &str, input: &Value) -> Decision {
        let paths = paths(tool, input);
        let judged = paths.iter().map(|path| self.in_scope(Access::Write, path));
        let decision = judged.fold(Decision::Allow, stricter);
        let is_asked = self.mode(tool) >= ApprovalMode::Protected;
        // A call without a path may write anywhere.
        let touches =
            paths.is_empty() || paths.iter().any(|path| self.compiled.gates.protects(path));
        if (is_asked && touches) || paths.iter().any(|path| defines(path)) {
            stricter(decision, Decision::NeedApproval { reason: Reason::Protected })
        } else {
            decision
        }
    }

    fn node(&self, input: &Value) -> Decision {
        let field = |name: &str| input.get(name).and_then(Value::as_str);
        let reads = |name: &str| field(name).is_none_or(|op| NODE_READS.contains(&op));
        let is_named = field("action").is_some() || field("op").is_some();
        if self.mode("nodes") < ApprovalMode::Protected
            || (is_named && reads("action") && reads("op"))
        {
            return Decision::Allow;
        }
        Decision::NeedApproval { reason: Reason::Protected }
    }

    fn payment(&self, input: &Value) -> Decision {
        let shows = input.get("action").and_then(Value::as_str) == Some("show");
        if self.mode("wallet") < ApprovalMode::Protected || shows {
            return Decision::Allow;
        }
        Decision::NeedApproval { reason: Reason::Payment }
    }

    fn self_change(&self, input: &Value) -> Decision {
        let field = |name: &str| input.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_free = FREE_SECTIONS.contains(&field("section"));
        // A person is asked about `apply` by the tool itself, with the whole proposal.
        let is_kept = matches!(field("action"), "show" | "propose" | "read" | "proposals");
        if is_kept || (is_free && self.mode("self") < ApprovalMode::Protected) {
            return Decision::Allow;
        }
        Decision::NeedApproval { reason: Reason::Protected }
    }

    fn mode(&self, tool: &str) -> ApprovalMode {
        let place = self.compiled.catalog.position(tool);
        place.map_or(ApprovalMode::Never, |at| self.compiled.gates.mode(at))
    }
}

/// Whether a change of a path changes a file that defines the agent.
fn defines(path: &str) -> bool {
    let Some(path) = normalised(path) else { return true };
    let path = path.to_lowercase();
    DEFINING_FILES.iter().any(|file| *file == path || covers(&path, file))
}

/// Returns the normalised paths that a call writes or deletes; `None` if the tool writes no files.
/// A path outside the workspace is left as it is written.
#[must_use]
pub fn written_paths(tool: &str, input: &Value) -> Option<Vec<String>> {
    if !matches!(tool, "write" | "edit" | "apply_patch" | "append_file" | "delete_file") {
        return None;
    }
    let paths = paths(tool, input);
    Some(paths.into_iter().map(|path| normalised(&path).unwrap_or(path)).collect())
}

/// Returns the paths in a call's input.
fn paths(tool: &str, input: &Value) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for field in ["path", "file_path", "file", "filename", "destination"] {
        found.extend(input.get(field).and_then(Value::as_str).map(str::to_owned));
    }
    if let Some(list) = input.get("paths").and_then(Value::as_array) {
        found.extend(list.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    if tool == "apply_patch" {
        for field in ["patch", "input", "diff"] {
            if let Some(patch) = input.get(field).and_then(Value::as_str) {
                found.extend(patched_files(patch));
            }
        }
    }
    found
}

/// Returns the files in a patch: unified diff, or `*** Update File` format.
///
/// Everything that the tool `apply_patch` reads as the name of a file is among them, and some more:
/// the formats are not told apart here. The tool's tests compare both.
fn patched_files(patch: &str) -> Vec<String> {
    // Models write these with and without a space after the colon.
    const ENVELOPE_HEADERS: [&str; 4] =
        ["*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:"];
    const DIFF_HEADERS: [&str; 5] =
        ["+++ ", "rename from ", "rename to ", "copy from ", "copy to "];
    let mut found = Vec::new();
    let mut lines = patch.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some((old, new)) =
            line.strip_prefix("diff --git ").and_then(|names| names.split_once(" b/"))
        {
            found.extend(header_path(old, true).into_iter().chain(header_path(new, false)));
        }
        if let Some(name) = ENVELOPE_HEADERS.iter().find_map(|header| line.strip_prefix(header)) {
            // The format has no quotes and no dates.
            found.push(name.trim().to_owned());
        }
        // Elsewhere, `--- ` is a removed line that begins with `-- `.
        if let Some(new) = lines.peek().and_then(|next| next.strip_prefix("+++ "))
            && let Some(old) = line.strip_prefix("--- ")
        {
            found.extend(diff_paths(old, new));
            found.extend(header_path(old, true));
        }
        if let Some(name) = DIFF_HEADERS.iter().find_map(|header| line.strip_prefix(header)) {
            found.extend(header_path(name, line.starts_with("+++ ")));
        }
    }
    found
}

/// Returns the paths of a diff's two headers where they differ from [`header_path`]: a name in
/// quotes or with one at its end, and a folder `a` or `b` in a diff without git's prefixes.
fn diff_paths(old: &str, new: &str) -> Vec<String> {
    let name = |header: &str| header.split('\t').next().unwrap_or_default().trim().to_owned();
    let (old, new) = (name(old), name(new));
    let is_git = |name: &str, prefix: &str| name == "/dev/null" || name.starts_with(prefix);
    let names = [&old, &new].into_iter().filter(|name| *name != "/dev/null");
    if is_git(&old, "a/") && is_git(&new, "b/") {
        let bare = names.map(|name| name[2..].to_owned());
        return bare.filter(|name| name.contains('"')).collect();
    }
    names.cloned().collect()
}

/// Returns the path of a header. In a diff the prefixes `a/` and `b/` are not folders.
fn header_path(header: &str, is_diff: bool) -> Option<String> {
    // A date may follow after a tab.
    let name = header.split('\t').next().unwrap_or(header).trim().trim_matches('"');
    if name == "/dev/null" || name.is_empty() {
        return None;
    }
    let bare = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/"));
    Some(bare.filter(|_| is_diff).unwrap_or(name).to_owned())
}
