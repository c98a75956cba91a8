//! Parser of a step's result (spec BHV-012 to BHV-015).
//!
//! Models wrap their answer in code fences and sentences, and write a text where a list belongs.
//! What has one sensible reading is accepted; everything else is an error that says what to
//! correct, in words for the model.
//!
//! | written | read as |
//! |---|---|
//! | a fenced or embedded object | the object |
//! | `null` | the field is left out |
//! | a text or an object as `reply` | a list of it |
//! | `tool_calls`, with `name` and `arguments` | `actions`, with `tool` and `input` |
//! | `shell_commands` | actions of the tool `exec` |
//! | a list of `{key, value}` as `set_memory` | a map |
//! | `topic_tags` | `session_delta.tags` |
//! | an object as `todo_delta` | a list of it |
//! | an action without input | one with an empty object |

use holdfast_types::{BehaviorName, StepResult};
use serde_json::{Map, Value, json};

use super::protocol::Protocol;
use crate::text::line;

/// Maximum size of an answer that is looked at, in bytes.
const MAX_ANSWER_BYTES: usize = 256 << 10;

/// Maximum number of places at which an embedded object is looked for.
const MAX_CANDIDATES: usize = 64;

const MAX_REPLIES: usize = 16;
const MAX_ACTIONS: usize = 32;
const MAX_TODO_OPERATIONS: usize = 64;
const MAX_MEMORIES: usize = 64;
const MAX_MEMORY_QUERIES: usize = 8;
/// Tags of a session.
pub const MAX_TAGS: usize = 32;
const MAX_ROUTE_TAGS: usize = 5;

/// Fields by which an object is recognised as a result.
const FIELDS: [&str; 17] = [
    "thinking",
    "reply",
    "actions",
    "tool_calls",
    "shell_commands",
    "todo_delta",
    "todo",
    "set_memory",
    "session_delta",
    "topic_tags",
    "next_behavior",
    "wait_details",
    "memory_queries",
    "route_session_id",
    "session_id",
    "new_session",
    "replies",
];

/// Unusable result; the message is for the model, and completes "cannot be used: …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    #[error("it has no JSON object with fields of the output protocol")]
    NoObject,
    #[error("it has {0} bytes, and {MAX_ANSWER_BYTES} is the most")]
    TooLong(usize),
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    #[error("`{field}`: {problem}")]
    Field { field: String, problem: String },
}

impl ResultError {
    fn at(field: &str, problem: impl Into<String>) -> Self {
        Self::Field { field: field.to_owned(), problem: problem.into() }
    }
}

/// Parses an answer.
///
/// # Errors
///
/// What is wrong with it, in words for the model.
pub fn parse_result(protocol: Protocol, text: &str) -> Result<StepResult, ResultError> {
    if text.len() > MAX_ANSWER_BYTES {
        return Err(ResultError::TooLong(text.len()));
    }
    let mut object = find_object(text).ok_or(ResultError::NoObject)?;
    if protocol == Protocol::RouteResult {
        for field in ["next_behavior", "reply", "memory_queries"] {
            let is_there =
                object.contains_key(field) || (field == "reply" && object.contains_key("replies"));
            if !is_there {
                return Err(ResultError::Missing(field));
            }
        }
    }
    normalize(&mut object)?;
    let result: StepResult =
        serde_path_to_error::deserialize(Value::Object(object)).map_err(|error| {
            let problem = line(&error.inner().to_string(), 300);
            ResultError::at(&error.path().to_string(), problem)
        })?;
    check(protocol, &result)?;
    Ok(result)
}

/// Returns the object of an answer: the whole text, else the last fenced one, else the first that
/// is embedded in it.
fn find_object(text: &str) -> Option<Map<String, Value>> {
    let read = |text: &str| match serde_json::from_str(text.trim()) {
        Ok(Value::Object(object)) if is_result(&object) => Some(object),
        Ok(_) | Err(_) => None,
    };
    if let Some(object) = read(text) {
        return Some(object);
    }
    let fenced = text.split("```").skip(1).step_by(2).map(|block| {
        // The first line names the language.
        let (language, rest) = block.split_once('\n').unwrap_or(("", block));
        if language.trim_start().starts_with('{') { block } else { rest }
    });
    let fenced: Vec<&str> = fenced.collect();
    if let Some(object) = fenced.iter().rev().take(MAX_CANDIDATES).find_map(|block| read(block)) {
        return Some(object);
    }
    let starts = text.match_indices('{').map(|(at, _)| at).take(MAX_CANDIDATES);
    starts.filter_map(|at| embedded(&text[at..])).find(is_result)
}

/// Reads an object at the beginning of a text.
fn embedded(text: &str) -> Option<Map<String, Value>> {
    match serde_json::Deserializer::from_str(text).into_iter::<Value>().next() {
        Some(Ok(Value::Object(object))) => Some(object),
        Some(Ok(_) | Err(_)) | None => None,
    }
}

fn is_result(object: &Map<String, Value>) -> bool {
    object.keys().any(|key| FIELDS.contains(&key.as_str()))
}

/// Brings the spellings that are accepted into the form of [`StepResult`].
fn normalize(object: &mut Map<String, Value>) -> Result<(), ResultError> {
    object.retain(|_, value| !value.is_null());
    for value in object.values_mut() {
        remove_nul(value);
    }
    rename(object, "replies", "reply");
    rename(object, "todo", "todo_delta");
    rename(object, "tool_calls", "actions");
    rename(object, "session_id", "route_session_id");
    if let Some(reply) = object.remove("reply") {
        object.insert("reply".to_owned(), replies(reply));
    }
    if let Some(todo @ Value::Object(_)) = object.get_mut("todo_delta") {
        *todo = Value::Array(vec![todo.take()]);
    }
    actions(object)?;
    if let Some(Value::Array(pairs)) = object.get("set_memory") {
        let pairs: Result<Map<String, Value>, ResultError> = pairs.iter().map(pair).collect();
        object.insert("set_memory".to_owned(), Value::Object(pairs?));
    }
    if let Some(Value::Object(facts)) = object.get_mut("set_memory") {
        for fact in facts.values_mut() {
            match fact {
                Value::Null => *fact = Value::String(String::new()),
                Value::Number(_) | Value::Bool(_) => *fact = Value::String(fact.to_string()),
                Value::String(_) | Value::Array(_) | Value::Object(_) => {}
            }
        }
    }
    if let Some(Value::String(query)) = object.get("memory_queries") {
        let queries = if query.trim().is_empty() { json!([]) } else { json!([query]) };
        object.insert("memory_queries".to_owned(), queries);
    }
    session_delta(object);
    for field in ["next_behavior", "route_session_id"] {
        let is_blank = object.get(field).and_then(Value::as_str).is_some_and(is_none);
        if is_blank {
            object.remove(field);
        }
    }
    Ok(())
}

/// Whether a text stands for nothing.
fn is_none(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || text.eq_ignore_ascii_case("null") || text.eq_ignore_ascii_case("none")
}

fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from)
        && !object.contains_key(to)
    {
        object.insert(to.to_owned(), value);
    }
}

/// Postgres stores no NUL character.
fn remove_nul(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('\0') => *text = text.replace('\0', ""),
        Value::Array(items) => items.iter_mut().for_each(remove_nul),
        Value::Object(fields) => {
            if fields.keys().any(|key| key.contains('\0')) {
                fields.retain(|key, _| !key.contains('\0'));
            }
            fields.values_mut().for_each(remove_nul);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn replies(reply: Value) -> Value {
    let one = |reply: Value| match reply {
        Value::String(text) => json!({ "content": text }),
        other => other,
    };
    let all = match reply {
        Value::Array(items) => items.into_iter().map(one).collect(),
        other => vec![one(other)],
    };
    let is_blank =
        |reply: &Value| reply["content"].as_str().is_some_and(|text| text.trim().is_empty());
    Value::Array(all.into_iter().filter(|reply| !is_blank(reply)).collect())
}

fn actions(object: &mut Map<String, Value>) -> Result<(), ResultError> {
    let mut all = match object.remove("actions") {
        None => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(one @ Value::Object(_)) => vec![one],
        Some(_) => return Err(ResultError::at("actions", "it is no list of tool calls")),
    };
    for action in &mut all {
        let Value::Object(fields) = action else { continue };
        rename(fields, "name", "tool");
        rename(fields, "arguments", "input");
        rename(fields, "args", "input");
        if let Some(Value::String(text)) = fields.get("input")
            && let Ok(input @ Value::Object(_)) = serde_json::from_str(text)
        {
            fields.insert("input".to_owned(), input);
        }
        if fields.get("input").is_none_or(Value::is_null) {
            fields.insert("input".to_owned(), json!({}));
        }
    }
    match object.remove("shell_commands") {
        None => {}
        Some(Value::Array(commands)) => {
            all.extend(
                commands
                    .into_iter()
                    .map(|command| json!({ "tool": "exec", "input": { "command": command } })),
            );
        }
        Some(command @ Value::String(_)) => {
            all.push(json!({ "tool": "exec", "input": { "command": command } }));
        }
        Some(_) => return Err(ResultError::at("shell_commands", "it is no list of commands")),
    }
    if !all.is_empty() {
        object.insert("actions".to_owned(), Value::Array(all));
    }
    Ok(())
}

fn pair(pair: &Value) -> Result<(String, Value), ResultError> {
    match (pair["key"].as_str(), &pair["value"]) {
        (Some(key), value) => Ok((key.to_owned(), value.clone())),
        (None, _) => Err(ResultError::at("set_memory", "it is no map of keys to texts")),
    }
}

fn session_delta(object: &mut Map<String, Value>) {
    // A list of changes is their union.
    if let Some(Value::Array(changes)) = object.get("session_delta") {
        let fields = changes.iter().filter_map(Value::as_object).flatten();
        let merged = fields.map(|(key, value)| (key.clone(), value.clone())).collect();
        object.insert("session_delta".to_owned(), Value::Object(merged));
    }
    if let Some(Value::Object(delta)) = object.get_mut("session_delta") {
        match delta.get("workspace") {
            Some(Value::String(name)) if is_none(name) => drop(delta.remove("workspace")),
            Some(Value::String(name)) => {
                let choice = json!({ "name": name });
                delta.insert("workspace".to_owned(), choice);
            }
            Some(Value::Null) => drop(delta.remove("workspace")),
            Some(_) | None => {}
        }
    }
    let Some(tags) = object.remove("topic_tags") else { return };
    let delta = object.entry("session_delta").or_insert_with(|| json!({}));
    if let Value::Object(delta) = delta {
        delta.entry("tags").or_insert(tags);
    }
}

fn check(protocol: Protocol, result: &StepResult) -> Result<(), ResultError> {
    for (field, count, most) in [
        ("reply", result.reply.len(), MAX_REPLIES),
        ("actions", result.actions.len(), MAX_ACTIONS),
        ("todo_delta", result.todo_delta.len(), MAX_TODO_OPERATIONS),
        ("set_memory", result.set_memory.len(), MAX_MEMORIES),
        ("memory_queries", result.memory_queries.len(), MAX_MEMORY_QUERIES),
        ("session_delta.tags", result.session_delta.tags.len(), MAX_TAGS),
    ] {
        if count > most {
            return Err(ResultError::at(field, format!("it has {count}, and {most} is the most")));
        }
    }
    if let Some(next) = &result.next_behavior
        && let Err(error) = next.parse::<BehaviorName>()
    {
        return Err(ResultError::at("next_behavior", error.to_string()));
    }
    for action in &result.actions {
        if action.tool.trim().is_empty() || action.tool.chars().any(char::is_control) {
            return Err(ResultError::at("actions", "an action names no tool"));
        }
        if !action.input.is_object() {
            let tool = line(&action.tool, 80);
            return Err(ResultError::at("actions", format!("the input of `{tool}` is no object")));
        }
    }
    let has_route = result.route_session_id.is_some() || result.new_session.is_some();
    match protocol {
        Protocol::RouteResult => check_route(result),
        Protocol::NoActionResult if !result.actions.is_empty() => {
            Err(ResultError::at("actions", "there are none here: call tools directly"))
        }
        Protocol::BehaviorResult | Protocol::NoActionResult if has_route => {
            let problem = "only a behaviour with the protocol RouteResult hands a message on";
            Err(ResultError::at("new_session", problem))
        }
        Protocol::BehaviorResult | Protocol::NoActionResult => Ok(()),
    }
}

/// Checks the rules of a routing result (spec RTE-012, C-29).
fn check_route(result: &StepResult) -> Result<(), ResultError> {
    let tags = result.session_delta.tags.len();
    let problem = match (&result.route_session_id, &result.new_session) {
        (Some(_), Some(_)) => {
            ("route_session_id", "`new_session` is given too: give one of them".to_owned())
        }
        (Some(_), None) if !result.reply.is_empty() => {
            ("reply", "leave it out with `route_session_id`: that session answers".to_owned())
        }
        (None, Some(_)) if result.reply.is_empty() => {
            ("reply", "say with `new_session` in one sentence what you begin".to_owned())
        }
        _ if !result.actions.is_empty() => ("actions", "a RouteResult has none".to_owned()),
        _ if !result.todo_delta.is_empty() => ("todo_delta", "a RouteResult has none".to_owned()),
        _ if tags > MAX_ROUTE_TAGS => {
            ("session_delta.tags", format!("it has {tags}, and {MAX_ROUTE_TAGS} is the most"))
        }
        _ => return Ok(()),
    };
    Err(ResultError::at(problem.0, problem.1))
}

#[cfg(test)]
mod tests;
