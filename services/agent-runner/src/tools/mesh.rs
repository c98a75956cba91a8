//! The mesh as the tools of a turn see it.
//!
//! Tools act for the participants of the conversation: the owner's conversation sees everything of
//! the tenant, any other sees itself and can write only to itself (spec SES-002).

use std::{collections::HashMap, sync::Arc};

use holdfast_bus::Bus;
use holdfast_directory::Directory;
use holdfast_session::{EntryView, SessionView, Sessions};
use holdfast_tools::{
    AgentLine, Call, History, HistoryLine, HistoryPage, Mesh, MessageTarget, Outgoing, SendOutcome,
    SessionFilter, SessionLine, SessionRef, Status,
};
use holdfast_types::{
    DeliveryId, Entry, Fault as _, Kind, SessionId, SessionKey, SessionKind, Target,
};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::tools::{
    channel_messages::MessageContent, files::WorkspaceFiles, tool_context::ToolContext,
};

/// Sessions that are read for a list, which is ordered by activity and not by creation.
const MAX_SESSIONS_READ: i64 = 500;

/// Entries that are read per line of a history, as some entries yield no line.
const ENTRIES_PER_LINE: u32 = 4;

/// Entries that are read at most for a history.
const MAX_ENTRIES_READ: i64 = 40_000;

/// Shown for an agent without a model of its own.
const DEFAULT_MODEL: &str = "the default";

#[derive(Debug)]
pub(crate) struct SessionTools {
    pub(crate) sessions: Sessions,
    pub(crate) directory: Directory,
    pub(crate) bus: Bus,
    pub(crate) files: Option<Arc<WorkspaceFiles>>,
}

impl SessionTools {
    pub(crate) const fn new(sessions: Sessions, directory: Directory, bus: Bus) -> Self {
        Self { sessions, directory, bus, files: None }
    }

    /// Adds the files that messages may carry.
    pub(crate) fn with_files(self, files: Arc<WorkspaceFiles>) -> Self {
        Self { files: Some(files), ..self }
    }

    /// Whether the call comes from the owner's conversation or from the agent itself.
    pub(crate) fn is_owner_or_agent(call: &Call) -> anyhow::Result<bool> {
        Ok(ToolContext::of(call)?.audience.has_owner_rights())
    }

    /// Resolves the target of a message, or returns why it is not permitted.
    async fn target(
        &self,
        call: &Call,
        to: MessageTarget,
    ) -> anyhow::Result<Result<Target, String>> {
        let place = ToolContext::of(call)?.target.clone();
        let is_here = |place: &&Target| {
            place.channel == to.channel && place.chat == to.chat && place.thread == to.thread
        };
        if let Some(place) = place.as_ref().filter(is_here) {
            return Ok(Ok(Target { reply_to: None, ..place.clone() }));
        }
        if !Self::is_owner_or_agent(call)? {
            return Ok(Err("from this conversation you may write to itself only".to_owned()));
        }
        let accounts = self.directory.accounts().list(call.tenant, Some(&to.channel)).await?;
        let mut enabled = accounts.iter().filter(|account| account.enabled);
        let here = place.filter(|place| place.channel == to.channel).map(|place| place.account);
        let account = match (here, enabled.next(), enabled.next()) {
            (Some(here), _, _) if accounts.iter().any(|account| account.id == here) => here,
            (_, Some(only), None) => only.id,
            (_, None, _) => {
                return Ok(Err(format!("there is no account on `{}`", truncate(&to.channel))));
            }
            (_, Some(_), Some(_)) => {
                return Ok(Err(format!(
                    "there are several accounts on `{}`, and it is not clear which is meant",
                    truncate(&to.channel)
                )));
            }
        };
        let MessageTarget { channel, chat, thread } = to;
        Ok(Ok(Target { channel, account, chat, thread, reply_to: None }))
    }
}

impl Mesh for SessionTools {
    async fn status(
        &self,
        call: &Call,
        which: Option<SessionRef>,
    ) -> anyhow::Result<Option<Status>> {
        let session = match which {
            None => call.session,
            Some(which) => match self.visible_session(call, which).await? {
                Some(session) => session,
                None => return Ok(None),
            },
        };
        let view = match self.sessions.views().session(call.tenant, session).await {
            Ok(view) => view,
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let context = ToolContext::of(call)?;
        let (agent, model, dials, channel) = if session == call.session {
            let channel = context.target.as_ref().map(|place| place.channel.clone());
            (call.agent_name.clone(), context.model.clone(), context.reply_settings, channel)
        } else {
            let settings = self.sessions.settings().get(call.tenant, session).await?;
            let agent = self.directory.agents().by_id(call.tenant, view.agent).await?;
            let model = settings.model.clone().or(agent.model);
            let channel = view.last_target.as_ref().map(|place| place.channel.clone());
            let model = model.unwrap_or_else(|| DEFAULT_MODEL.to_owned());
            (agent.name, model, settings.directives(), channel)
        };
        let queued = to_count(view.waiting);
        Ok(Some(Status {
            kind: session_kind(&view),
            state: view.state,
            agent,
            model,
            dials,
            messages: to_count(view.turns) + queued,
            queued,
            input_tokens: view.usage.input,
            output_tokens: view.usage.output,
            began: format_time(view.created_at),
            now: format_time(Timestamp::now()),
            channel,
            key: view.key,
        }))
    }

    async fn agents(&self, call: &Call) -> anyhow::Result<Vec<AgentLine>> {
        let agents = self.directory.agents().list(call.tenant).await?;
        let mut lines = Vec::with_capacity(agents.len());
        for agent in agents {
            let inactive = match self.directory.models().of_agent(call.tenant, &agent).await {
                Ok(_) => None,
                Err(error) if error.kind().is_transient() => return Err(error.into()),
                Err(error) => Some(error.to_string()),
            };
            lines.push(AgentLine {
                name: agent.name,
                description: agent.description,
                model: agent.model.unwrap_or_else(|| DEFAULT_MODEL.to_owned()),
                inactive,
            });
        }
        Ok(lines)
    }

    async fn sessions(
        &self,
        call: &Call,
        filter: SessionFilter,
    ) -> anyhow::Result<Vec<SessionLine>> {
        let mut views = if Self::is_owner_or_agent(call)? {
            let wanted = holdfast_session::SessionFilter {
                kind: filter.kind,
                limit: MAX_SESSIONS_READ,
                ..Default::default()
            };
            self.sessions.views().sessions(call.tenant, wanted).await?
        } else {
            let own = self.sessions.views().session(call.tenant, call.session).await?;
            vec![own]
                .into_iter()
                .filter(|view| filter.kind.is_none_or(|is| is == session_kind(view)))
                .collect()
        };
        views.retain(|view| filter.state.is_none_or(|state| state == view.state));
        views.sort_by_key(|view| std::cmp::Reverse(view.updated_at));
        views.truncate(filter.limit as usize);
        Ok(views
            .into_iter()
            .map(|view| SessionLine {
                id: view.id,
                kind: session_kind(&view),
                state: view.state,
                last_active: format_time(view.updated_at),
                key: view.key,
            })
            .collect())
    }

    async fn history(
        &self,
        call: &Call,
        which: SessionRef,
        page: HistoryPage,
    ) -> anyhow::Result<Option<History>> {
        match self.visible_session(call, which).await? {
            Some(session) => self.history_page(call, session, page).await,
            None => Ok(None),
        }
    }

    async fn send(&self, call: &Call, outgoing: Outgoing) -> anyhow::Result<SendOutcome> {
        let target = match outgoing.to.clone() {
            None => match ToolContext::of(call)?.target.clone() {
                Some(place) => Target { reply_to: None, ..place },
                None => return Ok(SendOutcome::NoChannel),
            },
            Some(to) => match self.target(call, to).await? {
                Ok(target) => target,
                Err(reason) => return Ok(SendOutcome::Refused(reason)),
            },
        };
        let Outgoing { text, act, attachments, reply_to, .. } = outgoing;
        let target = Target { reply_to, ..target };
        let what = MessageContent { text, act, attachments };
        match self.deliveries(call, target, what).await? {
            Ok(deliveries) => {
                // Stored with the call's result, in one transaction.
                ToolContext::of(call)?.enqueue(deliveries);
                Ok(SendOutcome::Queued)
            }
            Err(reason) => Ok(SendOutcome::Refused(reason)),
        }
    }
}

impl SessionTools {
    /// Finds a session by its id or key. `None` if there is none that the conversation may see.
    async fn visible_session(
        &self,
        call: &Call,
        which: SessionRef,
    ) -> anyhow::Result<Option<SessionId>> {
        let found = match which {
            SessionRef::Id(id) => Some(id),
            SessionRef::Key(key) => match key.parse::<SessionKey>() {
                Ok(key) => self.sessions.views().find(call.tenant, &key).await?,
                Err(_) => None,
            },
        };
        let is_owner = Self::is_owner_or_agent(call)?;
        Ok(found.filter(|session| *session == call.session || is_owner))
    }

    async fn history_page(
        &self,
        call: &Call,
        session: SessionId,
        page: HistoryPage,
    ) -> anyhow::Result<Option<History>> {
        let wanted = page.offset as usize + page.limit as usize;
        let mut to_read = i64::from(page.offset + page.limit) * i64::from(ENTRIES_PER_LINE);
        loop {
            let read = self.sessions.views().history(call.tenant, session, to_read, None).await;
            let entries = match read {
                Ok(entries) => entries,
                Err(error) if error.kind() == Kind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let is_all = i64::try_from(entries.len())? < to_read || to_read >= MAX_ENTRIES_READ;
            let mut tools = HashMap::new();
            let mut lines: Vec<HistoryLine> =
                entries.into_iter().filter_map(|entry| history_line(entry, &mut tools)).collect();
            if lines.len() > wanted || is_all {
                lines.truncate(lines.len().saturating_sub(page.offset as usize));
                let surplus = lines.len().saturating_sub(page.limit as usize);
                lines.drain(..surplus);
                return Ok(Some(History { lines, has_more: surplus > 0 }));
            }
            to_read = (to_read * 4).min(MAX_ENTRIES_READ);
        }
    }
}

/// Line of a history; `None` for entries that people do not see either.
fn history_line(view: EntryView, tools: &mut HashMap<String, String>) -> Option<HistoryLine> {
    let (who, text) = match view.entry {
        Entry::Heard { body, .. } => {
            let name = |sender: holdfast_types::Sender| match sender.name {
                name if name.trim().is_empty() => sender.id,
                name => name,
            };
            let said = body.text_and_speech().into_owned();
            (body.sender.map_or_else(|| "user".to_owned(), name), said)
        }
        Entry::Thought { text, calls, .. } => {
            tools.extend(calls.into_iter().map(|call| (call.id, call.tool)));
            ("agent".to_owned(), text)
        }
        Entry::Returned { call, output, .. } => {
            (tools.get(&call).cloned().unwrap_or_else(|| "a tool".to_owned()), output)
        }
        Entry::Called { .. } | Entry::Noted { .. } => return None,
    };
    let shown = !text.trim().is_empty();
    shown.then(|| HistoryLine { at: format_time(view.created_at), who, text })
}

/// Id of a message that a call sends, derived from the call's key so that a retry gives the same
/// id.
pub(crate) fn delivery_id(key: &str) -> DeliveryId {
    let digest = Sha256::digest(key.as_bytes());
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    DeliveryId::from(
        uuid::Builder::from_bytes(bytes).with_version(uuid::Version::Custom).into_uuid(),
    )
}

fn session_kind(view: &SessionView) -> SessionKind {
    view.key.parse().map_or(SessionKind::Main, |key: SessionKey| key.kind())
}

fn to_count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn format_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(64)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_sends_has_the_same_id_whenever_it_is_made() {
        assert_eq!(delivery_id("ses:run:0:a"), delivery_id("ses:run:0:a"));
        assert_ne!(delivery_id("ses:run:0:a"), delivery_id("ses:run:1:a"));
    }

    #[test]
    fn times_are_read_by_people() {
        assert_eq!(format_time(Timestamp::UNIX_EPOCH), "1970-01-01 00:00 UTC");
    }
}
