//! The mesh as the tools of a turn see it.
//!
//! Tools act for the participants of the conversation: the owner's conversation sees everything of
//! the tenant, any other sees itself and can write only to itself (spec SES-002).

use std::{collections::HashMap, sync::Arc};

use holdfast_agent::bootstrap::Audience;
use holdfast_bus::Bus;
use holdfast_directory::Directory;
use holdfast_session::{EntryView, SessionView, Sessions};
use holdfast_tools::{
    AgentLine, Call, HistoryLine, Mesh, MessageTarget, Outgoing, SendOutcome, SessionFilter,
    SessionLine, SessionRef, Status,
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
        let context = ToolContext::of(call)?;
        Ok(match context.kind {
            // Direct messages of others may be routed to the main session.
            SessionKind::Main | SessionKind::Dm => context.audience == Audience::Owner,
            SessionKind::Global
            | SessionKind::Cron
            | SessionKind::Heartbeat
            | SessionKind::Work => true,
            SessionKind::Group | SessionKind::Topic | SessionKind::Subagent | SessionKind::Api => {
                false
            }
        })
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
    async fn status(&self, call: &Call) -> anyhow::Result<Status> {
        let view = self.sessions.views().session(call.tenant, call.session).await?;
        let context = ToolContext::of(call)?;
        let queued = to_count(view.waiting);
        Ok(Status {
            kind: session_kind(&view),
            model: context.model.clone(),
            dials: context.reply_settings,
            messages: to_count(view.turns) + queued,
            queued,
            input_tokens: view.usage.input,
            output_tokens: view.usage.output,
            began: format_time(view.created_at),
            now: format_time(Timestamp::now()),
            channel: context.target.as_ref().map(|place| place.channel.clone()),
            key: view.key,
        })
    }

    async fn agents(&self, call: &Call) -> anyhow::Result<Vec<AgentLine>> {
        let agents = self.directory.agents().list(call.tenant).await?;
        Ok(agents
            .into_iter()
            .map(|agent| AgentLine {
                name: agent.name,
                description: agent.description,
                model: agent.model.unwrap_or_else(|| "the default".to_owned()),
            })
            .collect())
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
        limit: u32,
    ) -> anyhow::Result<Option<Vec<HistoryLine>>> {
        let found = match which {
            SessionRef::Id(id) => Some(id),
            SessionRef::Key(key) => match key.parse::<SessionKey>() {
                Ok(key) => self.sessions.views().find(call.tenant, &key).await?,
                Err(_) => None,
            },
        };
        let Some(session) = found else { return Ok(None) };
        // A session that may not be seen counts as missing.
        if session != call.session && !Self::is_owner_or_agent(call)? {
            return Ok(None);
        }
        self.history_lines(call, session, limit).await
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
    async fn history_lines(
        &self,
        call: &Call,
        session: SessionId,
        limit: u32,
    ) -> anyhow::Result<Option<Vec<HistoryLine>>> {
        let entries = i64::from(limit) * i64::from(ENTRIES_PER_LINE);
        let entries = match self.sessions.views().history(call.tenant, session, entries, None).await
        {
            Ok(entries) => entries,
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut tools = HashMap::new();
        let mut lines: Vec<HistoryLine> =
            entries.into_iter().filter_map(|entry| history_line(entry, &mut tools)).collect();
        let surplus = lines.len().saturating_sub(limit as usize);
        lines.drain(..surplus);
        Ok(Some(lines))
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
            (body.sender.map_or_else(|| "user".to_owned(), name), body.text)
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
