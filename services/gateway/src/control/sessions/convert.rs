//! Conversion of sessions, entries and runs to protos.

use holdfast_proto::gateway::v1 as pb;
use holdfast_session::{
    EntryView, OpenRun, RunView, SessionView, Surface, ToolCallView, TurnOutcome, WaitingRun,
};
use holdfast_types::{Body, Entry, Note, Usage};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{AgentNames, timestamp};

/// Maximum length of a summary in a list, in characters.
const MAX_LISTED_SUMMARY_CHARS: usize = 160;

/// Converts a session; its state depends on `now`.
pub fn session(view: SessionView, names: &AgentNames, now: Timestamp) -> pb::Session {
    pb::Session {
        id: view.id.to_string(),
        agent: names.of(view.agent),
        state: view.shown_state(now).as_str().to_owned(),
        key: view.key,
        kind: view.kind,
        parent_id: view.parent.map(|parent| parent.to_string()).unwrap_or_default(),
        label: view.given_label.unwrap_or(view.label),
        tags: view.tags,
        pinned: view.pinned,
        workspace: view.workspace.unwrap_or_default(),
        branch_of: view.branch.map(|(of, _)| of.to_string()).unwrap_or_default(),
        branch_seq: view.branch.map(|(_, seq)| seq).unwrap_or_default(),
        summary: view.summary,
        waiting: view.waiting,
        approvals: view.approvals,
        turns: view.turns,
        usage: Some(usage(view.usage)),
        created_at: Some(timestamp(view.created_at)),
        updated_at: Some(timestamp(view.updated_at)),
    }
}

/// Shortens a session's summary for a list.
pub fn with_short_summary(session: pb::Session) -> pb::Session {
    let end = session.summary.char_indices().nth(MAX_LISTED_SUMMARY_CHARS).map(|(end, _)| end);
    let summary = match end {
        Some(end) => format!("{}…", &session.summary[..end]),
        None => session.summary,
    };
    pb::Session { summary, ..session }
}

/// Converts a surface of a session's canvas.
pub fn surface(one: Surface) -> pb::Surface {
    let Surface { properties: is, version, updated_at } = one;
    pb::Surface {
        name: is.name,
        title: is.title,
        kind: is.kind,
        content: is.content,
        shown: is.shown,
        version,
        updated_at: Some(timestamp(updated_at)),
    }
}

/// Converts an entry: its text, and all other fields as JSON.
pub fn entry(view: EntryView) -> pb::Entry {
    let kind = view.entry.kind();
    let (text, detail) = match view.entry {
        Entry::Heard { seq, body } => {
            let text = body.text_and_recordings().into_owned();
            let sent_at = body.sent_at;
            let rest = Body { text: String::new(), sent_at: None, ..body };
            let mut detail = serde_json::to_value(rest).unwrap_or_default();
            if let Value::Object(detail) = &mut detail {
                detail.remove("text");
                detail.insert("seq".to_owned(), seq.into());
                let sent_at = sent_at.and_then(|at| Timestamp::from_second(at).ok());
                if let Some(at) = sent_at {
                    detail.insert("sent_at".to_owned(), at.to_string().into());
                }
            }
            (text, detail)
        }
        Entry::Thought { text, calls, usage, model, carry: _, record } => {
            let mut detail = json!({"calls": calls, "usage": usage, "model": model});
            if let Some(record) = record.filter(|record| !record.stop.is_empty()) {
                detail["stop"] = record.stop.into();
            }
            (text, detail)
        }
        Entry::Called { call, effect } => (String::new(), json!({"call": call, "effect": effect})),
        Entry::Returned { call, output, failed, media, record: _ } => {
            let mut detail = json!({"call": call, "failed": failed});
            if !media.is_empty() {
                detail["media"] = serde_json::to_value(media).unwrap_or_default();
            }
            (output, detail)
        }
        Entry::Noted { note: Note::Unknown, text, .. } => {
            (String::new(), serde_json::from_str(&text).unwrap_or_default())
        }
        Entry::Noted { note, text, keeps: 0, .. } => (text, json!({"note": note})),
        Entry::Noted { note, text, keeps, .. } => (text, json!({"note": note, "keeps": keeps})),
    };
    pb::Entry {
        seq: view.seq,
        run_id: view.run.to_string(),
        kind: kind.to_owned(),
        text,
        detail: detail.to_string(),
        created_at: Some(timestamp(view.created_at)),
    }
}

pub fn run(view: RunView, names: &AgentNames) -> pb::Run {
    pb::Run {
        id: view.id.to_string(),
        status: view.outcome.as_str().to_owned(),
        session_id: view.session.to_string(),
        agent: names.of(view.agent),
        outcome: outcome(view.outcome).into(),
        reason: view.reason.unwrap_or_default(),
        steps: view.steps,
        model: view.model,
        usage: Some(usage(view.usage)),
        text: view.text,
        cost_micros: view.cost_micros,
        channel: view.channel.unwrap_or_default(),
        person: view.person.unwrap_or_default(),
        started_at: Some(timestamp(view.started_at)),
        finished_at: Some(timestamp(view.finished_at)),
        ..pb::Run::default()
    }
}

pub fn tool_call(view: ToolCallView) -> pb::ToolCall {
    let took = view.started_at.zip(view.ended_at).map(|(from, to)| to.duration_since(from));
    pb::ToolCall {
        id: view.id,
        run_id: view.run.to_string(),
        tool: view.tool,
        state: view.state.as_str().to_owned(),
        requested_at: Some(timestamp(view.requested_at)),
        started_at: view.started_at.map(timestamp),
        ended_at: view.ended_at.map(timestamp),
        duration_ms: took.and_then(|took| u64::try_from(took.as_millis()).ok()).unwrap_or(0),
        cost_micros: view.cost_micros,
        error: view.error.unwrap_or_default(),
        details: view.details.map(|details| details.to_string()).unwrap_or_default(),
    }
}

/// Converts a run that waits for an approval.
pub fn waiting_run(view: WaitingRun, names: &AgentNames) -> pb::Run {
    pb::Run {
        id: view.id.to_string(),
        status: "waiting_approval".to_owned(),
        session_id: view.session.to_string(),
        agent: names.of(view.agent),
        started_at: Some(timestamp(view.asked_at)),
        ..pb::Run::default()
    }
}

/// Converts a run that runs, or waits for a runner.
pub fn open_run(run: OpenRun, names: &AgentNames) -> pb::Run {
    pb::Run {
        id: run.id.to_string(),
        status: "running".to_owned(),
        session_id: run.session.to_string(),
        agent: names.of(run.agent),
        started_at: Some(timestamp(run.started_at)),
        ..pb::Run::default()
    }
}

const fn outcome(outcome: TurnOutcome) -> pb::Outcome {
    match outcome {
        TurnOutcome::Completed => pb::Outcome::Completed,
        TurnOutcome::Interrupted => pb::Outcome::Interrupted,
        TurnOutcome::Cancelled => pb::Outcome::Cancelled,
        TurnOutcome::Failed => pb::Outcome::Failed,
        TurnOutcome::Dead => pb::Outcome::Dead,
    }
}

pub(crate) const fn usage(usage: Usage) -> pb::Usage {
    pb::Usage {
        input_tokens: usage.input,
        cached_tokens: usage.cached,
        output_tokens: usage.output,
        written_tokens: usage.written.saturating_add(usage.written_long),
        reasoning_tokens: usage.reasoning,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{AgentId, Effect, Note, RunId, Sender, SessionId, SessionState, ToolCall};
    use jiff::SignedDuration;
    use uuid::Uuid;

    use super::*;

    fn view(state: SessionState, paused: Option<&str>, waiting: i64) -> SessionView {
        SessionView {
            approvals: 0,
            id: SessionId::generate(),
            key: "agent:main:main".into(),
            kind: "main".into(),
            agent: AgentId::generate(),
            parent: None,
            label: String::new(),
            given_label: None,
            tags: Vec::new(),
            pinned: false,
            workspace: None,
            branch: None,
            summary: String::new(),
            state,
            paused: paused.map(str::to_owned),
            waiting,
            turns: 0,
            usage: Usage::default(),
            last_target: None,
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
            used_hour: None,
        }
    }

    #[test]
    fn a_session_sleeps_only_if_it_is_at_rest_with_nothing_to_do_for_a_day() {
        let hours = |hours| Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours);
        for (view, at, expected) in [
            (view(SessionState::Wait, None, 0), hours(23), "WAIT"),
            (view(SessionState::Wait, None, 0), hours(24), "SLEEP"),
            (view(SessionState::Wait, None, 1), hours(24), "WAIT"),
            (view(SessionState::WaitForMsg, None, 0), hours(24), "WAIT_FOR_MSG"),
            (view(SessionState::Ready, None, 1), hours(24), "READY"),
            (view(SessionState::Running, None, 1), hours(24), "RUNNING"),
            (view(SessionState::Wait, Some("user"), 0), hours(24), "PAUSE"),
            (view(SessionState::Ready, Some("parent"), 1), hours(0), "PAUSE"),
        ] {
            assert_eq!(view.shown_state(at).as_str(), expected);
        }
    }

    #[test]
    fn an_entry_shows_its_text_apart_and_all_else_as_json() {
        let shown = |what: Entry| {
            let view = EntryView {
                seq: 3,
                run: RunId::from(Uuid::nil()),
                entry: what,
                created_at: Timestamp::UNIX_EPOCH,
            };
            let entry = entry(view);
            (entry.kind, entry.text, serde_json::from_str::<Value>(&entry.detail).unwrap())
        };
        let sender = Some(Sender { id: "7".into(), name: String::new() });
        let body = Body { sender, ..Body::text("hello") };
        let call = ToolCall { id: "c1".into(), tool: "t".into(), input: "{}".into() };
        let thought = Entry::Thought {
            text: "hm".into(),
            calls: vec![call],
            usage: Usage { input: 1, output: 2, ..Usage::default() },
            model: "demo:demo".into(),
            carry: None,
            record: None,
        };
        let returned = Entry::returned("c1", "42", true);
        let heard = Entry::Heard { seq: 1, body };
        let called = Entry::Called { call: "c1".into(), effect: Effect::Acts };
        let noted = Entry::noted(Note::Failed, "why");

        assert_eq!(
            shown(heard),
            ("heard".into(), "hello".into(), json!({"seq": 1, "sender": {"id": "7"}}))
        );
        assert_eq!(
            shown(thought),
            (
                "thought".into(),
                "hm".into(),
                json!({
                    "calls": [{"id": "c1", "tool": "t", "input": "{}"}],
                    "usage": {"input": 1, "cached": 0, "output": 2},
                    "model": "demo:demo"
                })
            )
        );
        assert_eq!(
            shown(called),
            ("called".into(), String::new(), json!({"call": "c1", "effect": "acts"}))
        );
        assert_eq!(
            shown(returned),
            ("returned".into(), "42".into(), json!({"call": "c1", "failed": true}))
        );
        assert_eq!(shown(noted), ("noted".into(), "why".into(), json!({"note": "failed"})));
    }
}
