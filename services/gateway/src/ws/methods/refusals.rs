//! Methods of OpenClaw's protocol that have no meaning on a hosted mesh, and why.
//!
//! Clients may call them though `features.methods` does not name them. The error tells a person what
//! to do instead.

use super::super::{
    connection::Protocol,
    error::{ErrorKind, MethodError},
};

/// Names of methods or of their families, and why they are not served. Of several that fit, the first
/// counts.
const REFUSED_FAMILIES: &[(&str, &str)] = &[
    ("update", "the server is updated by whoever runs the mesh"),
    ("gateway.restart", "the server is restarted by whoever runs the mesh"),
    ("gateway.suspend", "the server is stopped by whoever runs the mesh"),
    ("wizard", "a mesh is set up with `holdfast` and its documentation"),
    ("openclaw", "a mesh has no agent that changes the server itself"),
    ("migrations", "memories are managed with `holdfast memory`"),
    ("doctor", "`holdfast doctor` checks a mesh"),
    ("diagnostics", "the metrics and traces of the mesh are for whoever runs it"),
    ("system.info", "the machines of a mesh are not shown to its tenants"),
    ("system-event", "an agent is told something with `wake`"),
    ("plugins", "a mesh has no plugins: tools come from MCP servers (`holdfast mcp`)"),
    ("plugin", "a mesh has no plugins: tools come from MCP servers (`holdfast mcp`)"),
    ("hooks", "events go to webhooks (`holdfast events webhooks`)"),
    ("claws", "a mesh has no packages of plugins"),
    ("crabbox", "a mesh has no plugins"),
    ("logbook", "a mesh has no plugins"),
    ("codex", "a mesh has no plugins"),
    ("wiki", "articles are read with `holdfast kb`"),
    ("mcp", "MCP servers are managed with `holdfast mcp`"),
    ("skills", "skills are installed and removed with `holdfast skills`"),
    ("memory", "memories are searched with `holdfast memory search`"),
    ("models", "models and their keys are managed with `holdfast models` and `holdfast providers`"),
    ("secrets", "credentials are managed with `holdfast providers` and `holdfast connections`"),
    ("audit", "the audit log is read with `holdfast audit list`"),
    ("users", "people sign in at an identity provider, and are managed with `holdfast people`"),
    ("channels", "channel accounts are managed with `holdfast channels`"),
    ("web", "channel accounts are managed with `holdfast channels`"),
    ("send", "agents write on channels: ask one with `agent`"),
    ("message", "agents write on channels: ask one with `agent`"),
    ("conversations", "agents write on channels: ask one with `agent`"),
    ("push", "there are no push messages to browsers"),
    ("mentions", "people cannot be mentioned"),
    ("talk", "speech goes over channels, in voice messages"),
    ("tts", "speech goes over channels, in voice messages"),
    ("voicewake", "speech goes over channels, in voice messages"),
    ("transcripts", "meetings are not recorded"),
    ("themes", "themes are the client's own"),
    ("ui", "the server does not control a client's windows"),
    ("controlUi", "links are not previewed"),
    ("board", "sessions have a canvas in place of boards (`holdfast sessions canvas`)"),
    ("canvas", "a session's canvas is read with `holdfast sessions canvas`"),
    ("artifacts", "files are read with `agents.files.get`"),
    ("assistant", "files are read with `agents.files.get`"),
    ("agents.workspace", "files are read with `agents.files.get`"),
    ("sessions.files", "files are read with `agents.files.get`"),
    ("sessions.diff", "files are compared with `holdfast files diff`"),
    ("sessions.companion", "sessions have no side chat"),
    ("sessions.observer", "sessions have no observer"),
    ("sessions.branches", "a session has one line of messages"),
    ("sessions.rewind", "a session has one line of messages"),
    ("sessions.fork", "a session has one line of messages"),
    ("sessions.groups", "sessions have labels and pins, and no groups"),
    ("sessions.github", "sessions have no repository"),
    ("sessions.catalog", "sessions of other programs are not shown"),
    ("sessions.goal", "sessions have no goals"),
    ("sessions.dispatch", "runners take sessions by themselves"),
    ("sessions.move", "runners take sessions by themselves"),
    ("sessions.reclaim", "runners take sessions by themselves"),
    ("sessions.recover", "runners take sessions by themselves"),
    ("sessions.storage", "the retention of sessions is set by whoever runs the mesh"),
    ("sessions.cleanup", "the retention of sessions is set by whoever runs the mesh"),
    ("session", "sessions belong to the tenant, and are shared by its people"),
    ("progressCard", "progress is told in events of the turn"),
    ("taskSuggestions", "agents suggest no tasks"),
    ("question", "agents ask in their turn"),
    ("environments", "commands run in the sandbox of the runner"),
    ("projects", "agents have one workspace each"),
    ("worktrees", "agents have one workspace each"),
    ("fs", "files are read with `agents.files.get`"),
    ("portal", "commands run in the sandbox of the runner"),
    ("terminal", "there are no terminals on the server"),
    ("desktop", "there are no desktops on the server"),
    ("browser", "the browser belongs to the agent's sandbox"),
    ("computer", "there are no desktops on the server"),
    ("worker", "runners are part of the mesh"),
    ("attach", "other programs use an API key"),
    ("nativeHook", "other programs use an API key"),
    ("exec.approvals", "what always allows calls is changed with `exec.approval.grants.revoke`"),
    ("exec.approval", "agents ask for approvals"),
    ("node", "nodes are managed with `holdfast nodes`, and used by agents"),
    ("device", "devices ask to be paired when they connect"),
    ("tools", "tools are called by agents"),
    ("webSearch", "search providers are managed with `holdfast providers`"),
    ("set-heartbeats", "heartbeats are set with `holdfast heartbeat`"),
    ("config", "a tenant's settings are those of `config.get`"),
];

/// Error for a method that is not in the table of methods.
pub fn of_method(protocol: Protocol, method: &str) -> MethodError {
    let is_of = |family: &str| {
        let rest = method.strip_prefix(family);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let reason = REFUSED_FAMILIES.iter().find(|(family, _)| is_of(family)).map(|(_, why)| why);
    match (protocol, reason) {
        (Protocol::OpenClaw(_), Some(why)) => {
            let method: String = method.chars().take(80).collect();
            let message = format!("`{method}` is not part of a hosted mesh: {why}");
            MethodError::new(ErrorKind::Unavailable, message)
        }
        (Protocol::OpenClaw(_) | Protocol::LurkBot, _) => MethodError::unknown_method(method),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_means_nothing_here_is_told_apart_from_one_that_nobody_knows() {
        let openclaw = |method: &str| of_method(Protocol::OpenClaw(4), method);

        let update = openclaw("update.status");
        assert_eq!(update.openclaw()["code"], "UNAVAILABLE");
        assert_eq!(update.openclaw().get("retryable"), None);
        assert!(update.message.starts_with("`update.status` is not part of a hosted mesh: "));
        assert!(openclaw("sessions.files.get").message.contains("`agents.files.get`"));
        assert_eq!(openclaw("updates").kind, ErrorKind::UnknownMethod);
        assert_eq!(openclaw("sessions.nothing").kind, ErrorKind::UnknownMethod);
        assert_eq!(of_method(Protocol::LurkBot, "update.run").kind, ErrorKind::UnknownMethod);
    }
}
