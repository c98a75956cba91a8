//! Follows one turn and tells its events: `chat` and `agent` in OpenClaw's protocol, `agent.*` in
//! LurkBot's.

use std::{sync::Arc, time::Duration};

use holdfast_session::{PendingApproval, TurnOutcome};
use holdfast_types::{RunId, SessionId, TenantId, Usage};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::{
    Service,
    connection::now_ms,
    events::{Audience, Event},
    hub::TenantHub,
    keys,
};
use crate::{
    Error,
    follow::{EventKind, FollowedMessage, TurnResult},
};

/// Interval of the parts of a text. What arrives in between is joined.
const TEXT_INTERVAL: Duration = Duration::from_millis(100);

/// A turn and how clients know it.
#[derive(Debug, Clone)]
pub struct StartedRun {
    /// Id in events: the client's own for a turn that it began.
    pub id: String,
    pub turn: RunId,
    /// Key of the session, in the form in which clients know it.
    pub key: String,
    pub session: SessionId,
    pub agent: String,
    /// Connection that began it.
    pub starter: Option<Uuid>,
}

impl StartedRun {
    /// A turn that no connection of this process began.
    pub async fn foreign(
        service: &Service,
        tenant: TenantId,
        session: SessionId,
        run: RunId,
    ) -> Result<Self, Error> {
        let view = service.state.sessions.views().session(tenant, session).await?;
        let agent = service.state.agent_names(tenant).await?.of(view.agent);
        let key = keys::shown(&view.key);
        Ok(Self { id: run.to_string(), turn: run, key, session, agent, starter: None })
    }
}

impl StartedRun {
    fn audience(&self, is_tool_stream: bool) -> Audience {
        Audience::Session { key: self.key.clone(), starter: self.starter, is_tool_stream }
    }

    /// Adds what each event `chat` of the turn has.
    fn add_ids(&self, payload: &mut Value, seq: u64) {
        payload["runId"] = self.id.as_str().into();
        payload["sessionKey"] = self.key.as_str().into();
        payload["agentId"] = self.agent.as_str().into();
        payload["seq"] = seq.into();
    }
}

/// Text of a running turn's step so far, for connections that come later.
#[derive(Debug)]
pub struct RunText {
    run: StartedRun,
    seq: u64,
    text: String,
}

impl RunText {
    pub const fn new(run: StartedRun) -> Self {
        Self { run, seq: 0, text: String::new() }
    }

    pub fn replace(&mut self, seq: u64, text: &str) {
        self.seq = seq;
        self.text.clear();
        self.text.push_str(text);
    }

    pub fn session_key(&self) -> &str {
        &self.run.key
    }

    /// Event that replaces whatever the client has of the text.
    pub fn event(&self) -> Event {
        let mut payload = json!({
            "state": "delta",
            "deltaText": self.text,
            "replace": true,
            "message": assistant_message(&self.text, None),
        });
        self.run.add_ids(&mut payload, self.seq);
        let audience = self.run.audience(false);
        Event::new(("chat", "agent.partial_reply"), &payload, audience).droppable()
    }
}

/// Tells the events of a turn until it ends.
pub async fn follow(
    service: &Service,
    hub: &Arc<TenantHub>,
    run: StartedRun,
    mut followed: FollowedMessage,
) {
    let mut teller = Teller::new(run, hub);
    loop {
        let pending = teller.flush_at;
        let event = tokio::select! {
            () = hub.ended.cancelled() => return,
            event = followed.next() => event,
            () = flush_time(pending), if pending.is_some() => {
                teller.flush();
                continue;
            }
        };
        match event {
            Some(Ok(event)) => teller.process(event.kind),
            Some(Err(error)) => return teller.fail(&error.to_string()),
            None => break,
        }
    }
    teller.session_changed(service).await;
}

async fn flush_time(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

struct Teller<'a> {
    run: StartedRun,
    hub: &'a TenantHub,
    chat_seq: u64,
    agent_seq: u64,
    is_started: bool,
    /// Text of the current step.
    text: String,
    /// Bytes of it that were told.
    told: usize,
    thinking: String,
    /// Whether the next part replaces what was told before.
    is_replaced: bool,
    flush_at: Option<Instant>,
    tools: Vec<(String, String)>,
    began_at: i64,
}

impl<'a> Teller<'a> {
    fn new(run: StartedRun, hub: &'a TenantHub) -> Self {
        Self {
            run,
            hub,
            chat_seq: 0,
            agent_seq: 0,
            is_started: false,
            text: String::new(),
            told: 0,
            thinking: String::new(),
            is_replaced: false,
            flush_at: None,
            tools: Vec::new(),
            began_at: now_ms(),
        }
    }

    fn process(&mut self, event: EventKind) {
        match event {
            EventKind::StepStarted { .. } => {
                self.flush();
                self.start();
                self.is_replaced |= self.told > 0;
                (self.text, self.told) = (String::new(), 0);
                self.thinking.clear();
            }
            EventKind::Text(text) => {
                self.start();
                self.text.push_str(&text);
                self.flush_at.get_or_insert_with(|| Instant::now() + TEXT_INTERVAL);
                if self.told == 0 {
                    self.flush();
                }
            }
            EventKind::Thinking(text) => {
                self.start();
                self.thinking.push_str(&text);
                let data = json!({ "text": self.thinking, "delta": text });
                self.agent(("thinking", "agent.reasoning_stream"), data, false);
            }
            EventKind::ToolStarted { call, tool } => self.tool_started(call, tool),
            EventKind::ToolEnded { call, failed } => self.tool_ended(&call, failed),
            EventKind::Approval(awaited) => self.approval(&awaited),
            EventKind::Canvas(surfaces) => {
                self.agent(("canvas", "agent.canvas"), json!({ "surfaces": surfaces }), false);
            }
            EventKind::Progress(progress) => {
                self.start();
                let data = json!({
                    "behavior": progress.behavior,
                    "step": progress.step,
                    "todo": progress.todo,
                    "todosDone": progress.todos_done,
                    "todos": progress.todos,
                    "costMicros": progress.cost_micros,
                });
                self.agent(("step", "agent.step"), data, false);
            }
            EventKind::Done(result) => self.done(result),
        }
    }

    fn start(&mut self) {
        if !self.is_started {
            self.is_started = true;
            let data = json!({ "phase": "start", "startedAt": self.began_at });
            self.agent(("lifecycle", "agent.assistant_start"), data, false);
        }
    }

    /// Tells the text that was not told yet.
    fn flush(&mut self) {
        self.flush_at = None;
        let delta = self.text.get(self.told..).unwrap_or_default();
        if delta.is_empty() {
            return;
        }
        let mut payload = json!({
            "state": "delta",
            "deltaText": delta,
            "message": assistant_message(&self.text, None),
        });
        if std::mem::take(&mut self.is_replaced) {
            payload["replace"] = true.into();
        }
        let data = json!({ "text": self.text.as_str(), "delta": delta });
        self.told = self.text.len();
        self.chat("agent.partial_reply", payload, true);
        self.hub.keep_text(&self.run, self.chat_seq, &self.text);
        self.agent(("assistant", ""), data, false);
    }

    fn tool_started(&mut self, call: String, tool: String) {
        self.flush();
        self.start();
        let data = json!({ "phase": "start", "name": tool, "toolCallId": call, "args": {} });
        self.tools.push((call, tool));
        self.agent(("tool", "agent.tool_start"), data, true);
    }

    fn tool_ended(&mut self, call: &str, failed: bool) {
        let known = self.tools.iter().position(|(known, _)| known == call);
        let tool = known.map(|at| self.tools.swap_remove(at).1).unwrap_or_default();
        let data =
            json!({ "phase": "result", "name": tool, "toolCallId": call, "isError": failed });
        self.agent(("tool", "agent.tool_result"), data, true);
    }

    fn approval(&self, awaited: &PendingApproval) {
        let payload = pending_approval(awaited, &self.run);
        let names = ("exec.approval.requested", "agent.approval_requested");
        self.hub.publish(&Event::new(names, &payload, Audience::Approvers));
    }

    fn done(&mut self, result: TurnResult) {
        self.start();
        self.flush();
        self.hub.drop_text(self.run.turn);
        let TurnResult { outcome, text, reason, usage, model, .. } = result;
        let ended = json!({ "startedAt": self.began_at, "endedAt": now_ms() });
        let reason = reason.unwrap_or_default();
        match outcome {
            TurnOutcome::Completed => {
                self.lifecycle("end", ended, Value::Null);
                let mut payload = json!({ "state": "final", "stopReason": "stop" });
                if !text.trim().is_empty() {
                    payload["message"] = assistant_message(&text, Some((usage, &model)));
                }
                payload["usage"] = usage_of(usage);
                self.chat("agent.block_reply", payload, false);
            }
            TurnOutcome::Cancelled | TurnOutcome::Interrupted => {
                self.lifecycle("end", ended, json!({ "aborted": true }));
                let mut payload = json!({ "state": "aborted", "stopReason": outcome.as_str() });
                if !self.text.is_empty() {
                    payload["message"] = assistant_message(&self.text, None);
                }
                self.chat("agent.aborted", payload, false);
            }
            TurnOutcome::Failed | TurnOutcome::Dead => {
                self.lifecycle("error", ended, json!({ "error": reason }));
                let payload = json!({
                    "state": "error",
                    "errorMessage": reason,
                    "errorKind": "unknown",
                });
                self.chat("agent.error", payload, false);
            }
        }
    }

    fn fail(mut self, why: &str) {
        self.hub.drop_text(self.run.turn);
        self.lifecycle("error", json!({ "startedAt": self.began_at }), json!({ "error": why }));
        let payload = json!({ "state": "error", "errorMessage": why, "errorKind": "unknown" });
        self.chat("agent.error", payload, false);
    }

    fn lifecycle(&mut self, phase: &str, mut data: Value, more: Value) {
        data["phase"] = phase.into();
        if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
            data.extend(more);
        }
        self.agent(("lifecycle", "agent.lifecycle"), data, false);
    }

    fn chat(&mut self, lurkbot: &'static str, mut payload: Value, is_droppable: bool) {
        self.chat_seq += 1;
        self.run.add_ids(&mut payload, self.chat_seq);
        let event = Event::new(("chat", lurkbot), &payload, self.audience(false));
        self.hub.publish(&if is_droppable { event.droppable() } else { event });
    }

    fn agent(&mut self, (stream, lurkbot): (&str, &'static str), data: Value, is_tool: bool) {
        self.agent_seq += 1;
        let payload = json!({
            "runId": self.run.id,
            "sessionKey": self.run.key,
            "agentId": self.run.agent,
            "seq": self.agent_seq,
            "stream": stream,
            "ts": now_ms(),
            "data": data,
        });
        let event = Event::new(("agent", lurkbot), &payload, self.audience(is_tool));
        let is_text = matches!(stream, "assistant" | "thinking");
        self.hub.publish(&if is_text { event.droppable() } else { event });
    }

    fn audience(&self, is_tool_stream: bool) -> Audience {
        self.run.audience(is_tool_stream)
    }

    /// Tells that the session of an ended turn has changed.
    async fn session_changed(&self, service: &Service) {
        if !self.hub.members().is_list_watched() {
            return;
        }
        let views = service.state.sessions.views();
        // A session that was deleted meanwhile has been told as such.
        let Ok(view) = views.session(self.hub.tenant, self.run.session).await else { return };
        let payload = json!({
            "sessionKey": self.run.key,
            "agentId": self.run.agent,
            "runId": self.run.id,
            "phase": "end",
            "reason": "run",
            "ts": now_ms(),
            "updatedAt": view.updated_at.as_millisecond(),
            "inputTokens": view.usage.input,
            "outputTokens": view.usage.output,
            "totalTokens": view.usage.input + view.usage.output,
        });
        let names = ("sessions.changed", "session.changed");
        self.hub.publish(&Event::new(names, &payload, Audience::SessionList));
    }
}

/// A pending approval, as events and lists show it.
pub fn pending_approval(awaited: &PendingApproval, run: &StartedRun) -> Value {
    let now = now_ms();
    let left = i64::try_from(awaited.left_ms).unwrap_or(i64::MAX);
    json!({
        "id": awaited.approval.to_string(),
        "request": {
            "command": awaited.subject,
            "commandPreview": awaited.summary,
            "agentId": run.agent,
            "sessionKey": run.key,
            "ask": "always",
            "security": "allowlist",
            "host": "sandbox",
            "allowedDecisions": ["allow-once", "allow-always", "deny"],
        },
        "createdAtMs": now,
        "expiresAtMs": now.saturating_add(left),
    })
}

/// A message of the assistant, as histories and events show it.
pub fn assistant_message(text: &str, result: Option<(Usage, &str)>) -> Value {
    let mut message = json!({
        "role": "assistant",
        "content": [{ "type": "text", "text": text }],
        "timestamp": now_ms(),
    });
    if let Some((usage, model)) = result {
        message["usage"] = usage_of(usage);
        let (provider, model) = model.split_once(':').unwrap_or(("", model));
        message["provider"] = provider.into();
        message["model"] = model.into();
        message["stopReason"] = "stop".into();
    }
    message
}

pub fn usage_of(usage: Usage) -> Value {
    json!({
        "input": usage.input.saturating_sub(usage.cached + usage.written + usage.written_long),
        "output": usage.output,
        "cacheRead": usage.cached,
        "cacheWrite": usage.written + usage.written_long,
        "totalTokens": usage.input + usage.output,
    })
}
