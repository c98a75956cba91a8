//! What the tools ask of the mesh, and what it answers.
//!
//! Every question carries the call, and with it the tenant: an implementation
//! answers with what that tenant may see, and with nothing else.

use std::{future::Future, sync::Arc};

use holdfast_types::{Act, AgentName, Dials, SessionId, SessionKind, State};

use crate::{
    AgentsList, Call, Message, Registry, SessionStatus as StatusTool, SessionsHistory, SessionsList,
};

/// The mesh, as a tool sees it; the runner's own, or a fake.
///
/// An error is a fault of ours: the turn ends and may be tried again. Times are
/// given as text, ready for the model to read.
pub trait Mesh: Send + Sync + 'static {
    /// How the session of this call stands.
    fn status(&self, call: &Call) -> impl Future<Output = anyhow::Result<SessionStatus>> + Send;

    /// The tenant's agents, by name.
    fn agents(&self, call: &Call) -> impl Future<Output = anyhow::Result<Vec<AgentLine>>> + Send;

    /// The tenant's sessions, the last active first.
    fn sessions(
        &self,
        call: &Call,
        filter: SessionFilter,
    ) -> impl Future<Output = anyhow::Result<Vec<SessionLine>>> + Send;

    /// The newest lines of a session, oldest first; `None` if the tenant has no such session.
    fn history(
        &self,
        call: &Call,
        which: Which,
        limit: u32,
    ) -> impl Future<Output = anyhow::Result<Option<Vec<HistoryLine>>>> + Send;

    /// Enqueues a message, once for the same `call.key`. An act on a message without a name is on
    /// the one that the conversation is about.
    fn send(
        &self,
        call: &Call,
        outgoing: Outgoing,
    ) -> impl Future<Output = anyhow::Result<SendOutcome>> + Send;
}

/// How a session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// Its key.
    pub key: String,
    /// What kind of conversation it is.
    pub kind: SessionKind,
    /// The model that answers in it, as `provider:id`.
    pub model: String,
    /// How it is answered.
    pub dials: Dials,
    /// How many messages it has taken in.
    pub messages: u64,
    /// How many of them wait.
    pub queued: u64,
    /// Tokens that its models have read.
    pub input_tokens: u64,
    /// Tokens that its models have written.
    pub output_tokens: u64,
    /// When it began.
    pub began: String,
    /// What time it is.
    pub now: String,
    /// The channel that it is held on, if it is.
    pub channel: Option<String>,
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLine {
    /// Its name.
    pub name: AgentName,
    /// What it is for, in a line; may be empty.
    pub description: String,
    /// Its model, as `provider:id`.
    pub model: String,
}

/// Which sessions are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionFilter {
    /// At most so many.
    pub limit: u32,
    /// Only of this kind.
    pub kind: Option<SessionKind>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLine {
    /// Its id.
    pub id: SessionId,
    /// Its key.
    pub key: String,
    /// What kind of conversation it is.
    pub kind: SessionKind,
    /// What it does.
    pub state: State,
    /// When something last happened in it.
    pub last_active: String,
}

/// Which session is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The one with this id.
    Id(SessionId),
    /// The one with this key.
    Key(String),
}

/// Something that was said in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryLine {
    /// When.
    pub at: String,
    /// By whom: a name, `agent`, or a tool's.
    pub who: String,
    /// What.
    pub text: String,
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// What it says.
    pub text: String,
    /// What is done besides, or instead.
    pub act: Option<Act>,
    /// Paths of the agent's files that go with it.
    pub attachments: Vec<String>,
    /// The message that it answers.
    pub reply_to: Option<String>,
    /// Where it goes; `None` is the conversation that the session is held in.
    pub to: Option<To>,
}

/// A conversation on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct To {
    /// The kind of channel.
    pub channel: String,
    /// The conversation on the platform.
    pub chat: String,
    /// The topic or thread in it.
    pub thread: Option<String>,
}

/// What became of a message that was to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// It is on its way; it is sent once, however often this call is made.
    Queued,
    /// The session is held on no channel, and no target was given.
    NoChannel,
    /// It may not go there, or there is no such place; why, for the model.
    Refused(String),
}

impl Registry {
    /// The tools that every agent has.
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
    use crate::{Allowed, Output, ToolError};

    /// A mesh with one tenant and one session, that remembers what it sent.
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
        async fn status(&self, call: &Call) -> anyhow::Result<SessionStatus> {
            anyhow::ensure!(call.tenant == self.tenant, "another tenant");
            Ok(SessionStatus {
                key: KEY.into(),
                kind: SessionKind::Main,
                model: "demo:demo".into(),
                dials: Dials::default(),
                messages: 3,
                queued: 1,
                input_tokens: 120,
                output_tokens: 45,
                began: "2026-12-01 14:00 UTC".into(),
                now: "2026-12-01 14:05 UTC".into(),
                channel: self.channel.clone(),
            })
        }

        async fn agents(&self, call: &Call) -> anyhow::Result<Vec<AgentLine>> {
            Ok(if call.tenant == self.tenant {
                let line = |name: &str, description: &str| AgentLine {
                    name: AgentName::new(name),
                    description: description.into(),
                    model: "demo:demo".into(),
                };
                vec![line("coach", "helps\nto learn"), line("main", "")]
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
                state: State::Running,
                last_active: "2026-12-01 14:05 UTC".into(),
            };
            let ours = call.tenant == self.tenant;
            let wanted = filter.kind.is_none_or(|kind| kind == line.kind);
            let most = usize::try_from(filter.limit).unwrap();
            Ok(if ours && wanted { vec![line; most.min(1)] } else { vec![] })
        }

        async fn history(
            &self,
            call: &Call,
            which: Which,
            limit: u32,
        ) -> anyhow::Result<Option<Vec<HistoryLine>>> {
            let known = match which {
                Which::Id(id) => id == call.session,
                Which::Key(key) => key == KEY,
            };
            let line = |who: &str, text: String| HistoryLine {
                at: "2026-12-01 14:00 UTC".into(),
                who: who.into(),
                text,
            };
            let most = usize::try_from(limit).unwrap();
            Ok((known && call.tenant == self.tenant).then(|| {
                let mut lines =
                    vec![line("Ann", "hi\nthere".into()), line("agent", "x".repeat(9_000))];
                lines.split_off(lines.len().saturating_sub(most))
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
            allowed: Allowed::all(),
            cancelled: CancellationToken::new(),
        }
    }

    /// A call, the mesh that answers it, and its tools.
    pub(crate) fn world() -> (Call, Arc<Fake>, Registry) {
        let call = call();
        let mesh = Arc::new(Fake::new(call.tenant));
        (call, Arc::clone(&mesh), Registry::of_mesh(mesh))
    }

    /// What the model reads of a call that was made.
    pub(crate) fn said(answer: Result<Output, ToolError>) -> String {
        match answer {
            Ok(output) => output.for_llm,
            other => panic!("{other:?}"),
        }
    }

    /// What the model is told of a call that could not be made.
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
