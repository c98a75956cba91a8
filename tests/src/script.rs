//! Script of the fake model: it reads the messages of its turn, makes the calls that they ask for,
//! and then names each message in its answer.
//!
//! A message is `<id> <word>`, as in `t0m000012 note`; the word says what is to be done about it:
//!
//! | word | the model |
//! |---|---|
//! | `say` | answers |
//! | `status` | calls `session_status`, then answers |
//! | `note` | sends `note <id>` with the tool `message`, then answers |
//! | `act` | calls `act`, which acts on the world, then answers |
//! | `ask` | calls `act_if_allowed`, which acts on the world after an approval, then answers |
//! | `remind` | sets a reminder for two seconds later, then answers; says `reminded <id>` when it fires |
//! | `spawn` | starts a subagent, then answers; says `told <id>` when that has ended |
//! | `chain` | starts the chain `relay`, then answers; says `told <id>` when that has ended |
//! | `poison` | calls `explode`, which ends the runner that makes the call |
//!
//! It writes what it is shown and what it answers into the test's history.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_testkit::model::{FakeModel, Reply, Request};
use serde_json::{Value, json};

use crate::history::{History, MessageId, WitnessKind};

/// Chain of the messages with `chain`: [`relay`] is its specification.
pub const RELAY: &str = "relay";

/// What a subagent is to do, before the id of the message that asked for it.
const TASK: &str = "look into";

/// How the message of a reminder that fired begins.
const FIRED: &str = "[Scheduled task fired]";

/// How the message about a subagent or a chain that has ended begins.
const TASK_ENDED: &str = "A background task";

/// What a message asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    Say,
    Status,
    /// A tool that writes: a message besides the answer.
    Note,
    /// A tool that acts on the world.
    Act,
    /// A tool that acts on the world after an approval.
    ActIfAllowed,
    Remind,
    Spawn,
    Chain,
    /// A tool that ends its runner.
    Poison,
}

impl MessageKind {
    /// The word, as it stands in a message.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Say => "say",
            Self::Status => "status",
            Self::Note => "note",
            Self::Act => "act",
            Self::ActIfAllowed => "ask",
            Self::Remind => "remind",
            Self::Spawn => "spawn",
            Self::Chain => "chain",
            Self::Poison => "poison",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let all = [
            Self::Say,
            Self::Status,
            Self::Note,
            Self::Act,
            Self::ActIfAllowed,
            Self::Remind,
            Self::Spawn,
            Self::Chain,
            Self::Poison,
        ];
        all.into_iter().find(|word| word.as_str() == text)
    }
}

/// What was wrong with what the model was asked.
#[derive(Debug, Clone, Default)]
pub struct RequestViolations(Arc<Mutex<Vec<String>>>);

impl RequestViolations {
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, complaint: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(complaint);
    }
}

/// Specification of the chain of the messages with `chain`: two stages with one subagent each.
#[must_use]
pub fn relay() -> String {
    let stage =
        |name: &str| json!({"steps": [{"name": name, "prompt": format!("{TASK} {{{{input}}}}")}]});
    json!({"description": "Two look into it.", "stages": [stage("one"), stage("two")]}).to_string()
}

/// Gives the model its script.
#[must_use]
pub fn teach(model: &FakeModel, history: &History) -> RequestViolations {
    let complaints = RequestViolations::default();
    let (calls, told, history) = (AtomicU64::new(0), complaints.clone(), history.clone());
    model.answer(move |request| {
        check(request, &told);
        // Requests for summaries and memories offer no tools; there is nothing worth noting.
        if request.tool_names().is_empty() {
            return Reply::text("[]");
        }
        let tenant = tenant_of(request);
        let shown = request.messages().iter().flat_map(|m| MessageId::all_in(&content(m)));
        let shown: BTreeSet<MessageId> = shown.collect();
        let messages = shown.into_iter().collect();
        history.witness(WitnessKind::Shown { tenant, messages });
        match next_step(request, &calls) {
            Step::Call(reply) => reply,
            Step::Answer(text) => {
                history.witness(WitnessKind::Answered { tenant, text: text.clone() });
                Reply::text(text)
            }
        }
    });
    complaints
}

/// What the model does next in a turn.
enum Step {
    Call(Reply),
    Answer(String),
}

/// Number of the tenant whose key came with the request; another is in the complaints.
fn tenant_of(request: &Request) -> u16 {
    let name = request.key.as_deref().and_then(|key| key.strip_prefix("model-key-of-t"));
    name.and_then(|number| number.parse().ok()).unwrap_or(u16::MAX)
}

/// A tenant's key brings its own messages and nobody else's (I10).
fn check(request: &Request, complaints: &RequestViolations) {
    let key = request.key.as_deref().unwrap_or_default();
    let Some(tenant) = key.strip_prefix("model-key-of-") else {
        complaints.add(format!("a request with the key `{key}`"));
        return;
    };
    let theirs = format!("{tenant}m");
    for message in request.messages() {
        for id in ids(&content(message)) {
            if !id.starts_with(&theirs) {
                complaints.add(format!("`{id}` was shown to the model of {tenant}"));
            }
        }
    }
}

fn next_step(request: &Request, calls: &AtomicU64) -> Step {
    let of_user = |messages: &[Value]| -> Vec<String> {
        messages.iter().filter(|message| message["role"] == "user").map(content).collect()
    };
    let task = of_user(request.messages()).into_iter().find(|text| text.starts_with(TASK));
    if let Some(task) = task {
        return Step::Answer(format!("found {}", ids(&task).join(" ")));
    }
    let turn = turn(request.messages());
    let heard = of_user(turn);
    let wanted: Vec<(String, MessageKind)> =
        heard.iter().filter(|text| !is_event(text)).flat_map(|text| wants(text)).collect();
    let made = |messages: &[Value], tool: &str, id: &str| {
        let mut calls = messages.iter().flat_map(called);
        calls.any(|call| call.split(' ').next() == Some(tool) && call.contains(id))
    };
    // A message may be heard again, when its turn died under another; what was done then is done.
    let was_made = |tool: &str, id: &str| made(request.messages(), tool, id);
    for (id, word) in &wanted {
        let Some((tool, input)) = call_for(*word, id) else { continue };
        let is_made = match word {
            MessageKind::Status => made(turn, tool, ""),
            MessageKind::Poison => made(turn, tool, id),
            _ => was_made(tool, id),
        };
        if !is_made {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            return Step::Call(Reply::call(format!("call-{number}"), tool, input.to_string()));
        }
    }
    let named: Vec<&str> = wanted.iter().map(|(id, _)| id.as_str()).collect();
    let mut answer = format!("re {}", named.join(" "));
    for (verb, event) in [("told", TASK_ENDED), ("reminded", FIRED)] {
        let about = heard.iter().filter(|text| text.contains(event)).flat_map(|text| ids(text));
        let about: BTreeSet<String> = about.collect();
        for id in about {
            answer.push_str(&format!(" {verb} {id}"));
        }
    }
    Step::Answer(answer)
}

/// Whether a text is of the product, and not of a client.
fn is_event(text: &str) -> bool {
    text.contains(TASK_ENDED) || text.contains(FIRED)
}

/// The call that a message asks for.
fn call_for(word: MessageKind, id: &str) -> Option<(&'static str, Value)> {
    Some(match word {
        MessageKind::Say => return None,
        MessageKind::Status => ("session_status", json!({})),
        MessageKind::Note => ("message", json!({"text": format!("note {id}")})),
        MessageKind::Act => ("act", json!({"id": id})),
        MessageKind::ActIfAllowed => ("act_if_allowed", json!({"id": id})),
        MessageKind::Remind => {
            ("scheduler_add", json!({"time": "in 2 seconds", "content": id, "auto_continue": true}))
        }
        MessageKind::Spawn => {
            ("sessions_spawn", json!({"task": format!("{TASK} {id}"), "label": id}))
        }
        MessageKind::Chain => ("chain_run", json!({"chain": RELAY, "input": id})),
        MessageKind::Poison => ("explode", json!({"id": id})),
    })
}

/// The messages since the last answer, or since the last turn that was given up.
fn turn(messages: &[Value]) -> &[Value] {
    let ends = |message: &Value| match message["role"].as_str() {
        Some("assistant") => message["tool_calls"].as_array().is_none_or(Vec::is_empty),
        Some("user") => content(message).starts_with("[the turn above was"),
        _ => false,
    };
    let start = messages.iter().rposition(ends).map_or(0, |at| at + 1);
    &messages[start..]
}

/// `tool arguments` of each call in a message.
fn called(message: &Value) -> Vec<String> {
    let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |call: &Value| {
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default();
        format!("{name} {}", function["arguments"].as_str().unwrap_or_default())
    };
    calls.iter().map(text).collect()
}

fn content(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// The ids of messages in a text.
#[must_use]
pub fn ids(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| is_id(word)).map(str::to_owned).collect()
}

fn wants(text: &str) -> Vec<(String, MessageKind)> {
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let pairs = words.windows(2).filter(|pair| is_id(pair[0]));
    pairs
        .map(|pair| (pair[0].to_owned(), MessageKind::parse(pair[1]).unwrap_or(MessageKind::Say)))
        .collect()
}

fn is_id(word: &str) -> bool {
    let Some((tenant, number)) = word.strip_prefix('t').and_then(|rest| rest.split_once('m'))
    else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits(tenant) && number.len() == 6 && digits(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_wherever_they_stand() {
        assert_eq!(ids("re t0m000001 t12m000002, tm000003"), ["t0m000001", "t12m000002"]);
        assert_eq!(wants("[Ann]: t0m000001 note"), [("t0m000001".to_owned(), MessageKind::Note)]);
    }

    #[test]
    fn a_turn_begins_after_the_last_answer_and_holds_its_calls() {
        let messages = [
            json!({"role": "user", "content": "t0m000001 say"}),
            json!({"role": "assistant", "content": "re t0m000001"}),
            json!({"role": "user", "content": "t0m000002 status"}),
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "c", "function": {"name": "session_status", "arguments": "{}"}}]}),
            json!({"role": "tool", "tool_call_id": "c", "content": "fine"}),
        ];

        assert_eq!(turn(&messages).len(), 3);
        assert_eq!(called(&turn(&messages)[1]), ["session_status {}"]);
    }
}
