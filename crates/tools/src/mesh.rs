//! Access of the tools to sessions, agents and channels.
//!
//! Every request carries the call, and with it the tenant: an implementation returns only objects
//! that this tenant may see.

mod agents_list;
mod message;
pub(crate) mod session_status;
mod sessions_history;
mod sessions_list;

use std::{future::Future, sync::Arc};

use holdfast_types::{AgentName, ChannelAction, Directives, SessionId, SessionKind, SessionState};

use self::session_status::SessionStatus as StatusTool;
pub use self::{
    agents_list::AgentsList,
    message::{Message, sent_text_target},
    sessions_history::SessionsHistory,
    sessions_list::SessionsList,
};
use crate::{Call, Registry, ToolError};

/// Access to sessions, agents and channels, for the tools; implemented by agent-runner and by a
/// fake.
///
/// An error is an internal failure: the turn ends and may be retried. Times are text for the model.
pub trait Mesh: Send + Sync + 'static {
    /// Returns the state of a session, or of the call's own; `None` if the tenant has no such
    /// session.
    fn status(
        &self,
        call: &Call,
        which: Option<SessionRef>,
    ) -> impl Future<Output = anyhow::Result<Option<SessionStatus>>> + Send;

    /// Lists the tenant's agents, by name.
    fn agents(&self, call: &Call) -> impl Future<Output = anyhow::Result<Vec<AgentLine>>> + Send;

    /// Lists the tenant's sessions, most recently active first.
    fn sessions(
        &self,
        call: &Call,
        filter: SessionFilter,
    ) -> impl Future<Output = anyhow::Result<Vec<SessionLine>>> + Send;

    /// Returns lines of a session; `None` if the tenant has no such session.
    fn history(
        &self,
        call: &Call,
        which: SessionRef,
        page: HistoryPage,
    ) -> impl Future<Output = anyhow::Result<Option<History>>> + Send;

    /// Enqueues a message, once for the same `call.key`. An act with an empty message id applies to
    /// the message that the turn answers.
    fn send(
        &self,
        call: &Call,
        outgoing: Outgoing,
    ) -> impl Future<Output = anyhow::Result<SendOutcome>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    pub key: String,
    pub kind: SessionKind,
    pub state: SessionState,
    pub agent: AgentName,
    /// Model of the session, as `provider:id`.
    pub model: String,
    /// Settings of the session, such as thinking and verbosity.
    pub dials: Directives,
    /// Number of messages accepted so far.
    pub messages: u64,
    /// Number of messages that wait.
    pub queued: u64,
    /// Input tokens of all model calls.
    pub input_tokens: u64,
    /// Output tokens of all model calls.
    pub output_tokens: u64,
    /// Time of the session's start.
    pub began: String,
    /// Current time, as text for the model.
    pub now: String,
    /// Channel of the conversation, if it is on one.
    pub channel: Option<String>,
}

/// Agent, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLine {
    pub name: AgentName,
    /// Purpose, on one line; may be empty.
    pub description: String,
    /// Model of the agent, as `provider:id`.
    pub model: String,
    /// Why the agent cannot answer now; `None` if it can.
    pub inactive: Option<String>,
}

/// Filter for a list of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionFilter {
    pub limit: u32,
    pub kind: Option<SessionKind>,
    pub state: Option<SessionState>,
}

/// Session, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLine {
    pub id: SessionId,
    pub key: String,
    pub kind: SessionKind,
    pub state: SessionState,
    /// Time of the last activity.
    pub last_active: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRef {
    Id(SessionId),
    Key(String),
}

impl SessionRef {
    /// Parses an id or a key, as a model gives it.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        text.parse().map_or_else(|_| Self::Key(text.to_owned()), Self::Id)
    }
}

/// Part of a history, counted from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryPage {
    pub limit: u32,
    /// Number of newer lines to leave out.
    pub offset: u32,
}

/// Part of a session's history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Oldest first.
    pub lines: Vec<HistoryLine>,
    /// Whether there are older lines.
    pub has_more: bool,
}

/// Line of a session's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryLine {
    pub at: String,
    /// Author: a person's name, `agent`, or a tool's name.
    pub who: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub text: String,
    /// Action besides the text, or instead of it.
    pub act: Option<ChannelAction>,
    /// Paths of attached files of the agent.
    pub attachments: Vec<String>,
    pub reply_to: Option<String>,
    /// Target; `None` means the session's own conversation.
    pub to: Option<MessageTarget>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageTarget {
    pub channel: String,
    /// Conversation's id on the platform.
    pub chat: String,
    /// Topic or thread within it.
    pub thread: Option<String>,
}

/// Result of enqueuing a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// The message is stored, and is sent once even if the call is repeated.
    Queued,
    /// The session is on no channel, and no target was given.
    NoChannel,
    /// The target does not exist or is not permitted; with the reason for the model.
    Refused(String),
}

/// Error for a session that does not exist or may not be seen.
fn unknown_session(named: &str) -> ToolError {
    let named: String = named.chars().take(80).collect();
    ToolError::Tell(format!("there is no session `{named}`; `sessions_list` shows those there are"))
}

impl Registry {
    /// Registry of the tools that every agent has.
    #[must_use]
    pub fn of_mesh<M: Mesh>(mesh: Arc<M>) -> Self {
        Self::default()
            .with(StatusTool(Arc::clone(&mesh)))
            .with(AgentsList(Arc::clone(&mesh)))
            .with(SessionsList(Arc::clone(&mesh)))
            .with(SessionsHistory(Arc::clone(&mesh)))
            .with(Message(mesh))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Mutex, PoisonError},
    };

    use holdfast_types::{AgentId, Effect, RunId, TenantId};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{AllowedHosts, AllowedTools, HostContext, Output};

    /// Fake with one tenant and one session. Remembers sent messages.
    #[derive(Debug)]
    pub(crate) struct Fake {
        pub(crate) tenant: TenantId,
        pub(crate) channel: Option<String>,
        pub(crate) sent: Mutex<BTreeMap<String, Outgoing>>,
    }

    impl Fake {
        pub(crate) fn new(tenant: TenantId) -> Self {
            Self { tenant, channel: Some("telegram".into()), sent: Mutex::default() }
        }
    }

    pub(crate) const KEY: &str = "agent:coach:main";

    impl Mesh for Fake {
        async fn status(
            &self,
            call: &Call,
            which: Option<SessionRef>,
        ) -> anyhow::Result<Option<SessionStatus>> {
            anyhow::ensure!(call.tenant == self.tenant, "another tenant");
            let is_known = which.is_none_or(|which| match which {
                SessionRef::Id(id) => id == call.session,
                SessionRef::Key(key) => key == KEY,
            });
            Ok(is_known.then(|| SessionStatus {
                key: KEY.into(),
                kind: SessionKind::Main,
                state: SessionState::Running,
                agent: AgentName::new("coach"),
                model: "demo:demo".into(),
                dials: Directives::default(),
                messages: 3,
                queued: 1,
                input_tokens: 120,
                output_tokens: 45,
                began: "2026-12-01 14:00 UTC".into(),
                now: "2026-12-01 14:05 UTC".into(),
                channel: self.channel.clone(),
            }))
        }

        async fn agents(&self, call: &Call) -> anyhow::Result<Vec<AgentLine>> {
            Ok(if call.tenant == self.tenant {
                let line = |name: &str, description: &str, inactive: Option<&str>| AgentLine {
                    name: AgentName::new(name),
                    description: description.into(),
                    model: "demo:demo".into(),
                    inactive: inactive.map(str::to_owned),
                };
                vec![
                    line("coach", "helps\nto learn", None),
                    line("idle", "", Some("it has no model")),
                    line("main", "", None),
                ]
            } else {
                vec![]
            })
        }

        async fn sessions(
            &self,
            call: &Call,
            filter: SessionFilter,
        ) -> anyhow::Result<Vec<SessionLine>> {
            let line = SessionLine {
                id: call.session,
                key: KEY.into(),
                kind: SessionKind::Main,
                state: SessionState::Running,
                last_active: "2026-12-01 14:05 UTC".into(),
            };
            let ours = call.tenant == self.tenant;
            let wanted = filter.kind.is_none_or(|kind| kind == line.kind)
                && filter.state.is_none_or(|state| state == line.state);
            let most = usize::try_from(filter.limit).unwrap();
            Ok(if ours && wanted { vec![line; most.min(1)] } else { vec![] })
        }

        async fn history(
            &self,
            call: &Call,
            which: SessionRef,
            page: HistoryPage,
        ) -> anyhow::Result<Option<History>> {
            let known = match which {
                SessionRef::Id(id) => id == call.session,
                SessionRef::Key(key) => key == KEY,
            };
            let line = |who: &str, text: String| HistoryLine {
                at: "2026-12-01 14:00 UTC".into(),
                who: who.into(),
                text,
            };
            let [limit, offset] = [page.limit, page.offset].map(|n| usize::try_from(n).unwrap());
            Ok((known && call.tenant == self.tenant).then(|| {
                let mut lines =
                    vec![line("Ann", "hi\nthere".into()), line("agent", "x".repeat(9_000))];
                lines.truncate(lines.len().saturating_sub(offset));
                let surplus = lines.len().saturating_sub(limit);
                History { lines: lines.split_off(surplus), has_more: surplus > 0 }
            }))
        }

        async fn send(&self, call: &Call, outgoing: Outgoing) -> anyhow::Result<SendOutcome> {
            if outgoing.to.is_none() && self.channel.is_none() {
                return Ok(SendOutcome::NoChannel);
            }
            if outgoing.to.as_ref().is_some_and(|to| to.channel != "telegram") {
                return Ok(SendOutcome::Refused("there is no such channel here".into()));
            }
            let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.entry(call.key.clone()).or_insert(outgoing);
            Ok(SendOutcome::Queued)
        }
    }

    pub(crate) fn call() -> Call {
        Call {
            tenant: TenantId::generate(),
            agent: AgentId::generate(),
            agent_name: AgentName::new("coach"),
            session: SessionId::generate(),
            run: RunId::generate(),
            key: "session:1:1:a".into(),
            allowed: AllowedTools::matching(|_| true),
            hosts: AllowedHosts::default(),
            cancelled: CancellationToken::new(),
            host: HostContext::default(),
        }
    }

    /// Returns a call, a fake, and the tools that use it.
    pub(crate) fn world() -> (Call, Arc<Fake>, Registry) {
        let call = call();
        let mesh = Arc::new(Fake::new(call.tenant));
        (call, Arc::clone(&mesh), Registry::of_mesh(mesh))
    }

    /// Returns the model's text of a successful call.
    pub(crate) fn said(answer: Result<Output, ToolError>) -> String {
        match answer {
            Ok(output) => output.for_llm,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the model's text of a refused call.
    pub(crate) fn tell(answer: Result<Output, ToolError>) -> String {
        match answer {
            Err(ToolError::Tell(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_tool_has_a_description_and_fits_what_providers_take() {
        let (_, _, tools) = world();

        let specs = tools.specs();

        let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(
            names,
            ["agents_list", "message", "session_status", "sessions_history", "sessions_list"]
        );
        for spec in specs {
            assert!(spec.description.len() > 20, "{}", spec.name);
            assert_eq!(spec.input["type"], "object", "{}", spec.name);
            assert!(spec.input["properties"].is_object(), "{}", spec.name);
            assert_eq!(spec.input["additionalProperties"], false, "{}", spec.name);
        }
    }

    #[test]
    fn only_sending_changes_anything() {
        let (_, _, tools) = world();

        for (name, effect) in [
            ("session_status", Effect::Reads),
            ("agents_list", Effect::Reads),
            ("sessions_list", Effect::Reads),
            ("sessions_history", Effect::Reads),
            ("message", Effect::Writes),
        ] {
            assert_eq!(tools.effect(name), effect, "{name}");
        }
    }

    #[tokio::test]
    async fn another_tenant_learns_nothing() {
        let (call, _, tools) = world();
        let stranger = Call { tenant: TenantId::generate(), ..call };

        let ask = |name, input| tools.call(stranger.clone(), name, input);

        assert_eq!(said(ask("agents_list", "{}").await), "There are no agents.");
        assert_eq!(said(ask("sessions_list", "{}").await), "There are no such sessions.");
        let input = format!(r#"{{"session":"{KEY}"}}"#);
        assert_eq!(
            tell(ask("sessions_history", &input).await),
            "there is no session `agent:coach:main`; `sessions_list` shows those there are"
        );
    }
}
