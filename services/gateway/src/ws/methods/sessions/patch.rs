//! `sessions.patch` and `sessions.patchMany`: label, pin, model and levels of sessions.

use holdfast_proto::gateway::v1::{self as pb, sessions_server::Sessions as _};
use holdfast_types::{Effort, Elevated, QueueSettings, Reasoning, Thinking, Verbose};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    super::{
        super::{
            call::{Call, rpc},
            error::MethodError,
            keys,
        },
        Reply, parse,
    },
    Handler, changed, find, row_after_change, run_command, unknown,
};
use crate::permissions::rights::ConversationRight;

/// Sessions that one `sessions.patchMany` changes at most.
const MAX_TARGETS: usize = 100;

/// Session that a patch changes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Target {
    key: String,
    #[serde(default)]
    agent_id: String,
    /// The session that the client knows under the key.
    expected_session_id: Option<String>,
}

/// Changes of a session. What is absent stays; null is the default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Changes {
    #[serde(default, deserialize_with = "given")]
    label: Option<Option<String>>,
    pinned: Option<bool>,
    #[serde(default, deserialize_with = "given")]
    model: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    thinking_level: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    verbose_level: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    reasoning_level: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    elevated_level: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    queue_mode: Option<Option<String>>,
    /// Nothing is ever unread here, so `false` is true already.
    unread: Option<bool>,
}

/// A field that may be absent, null, or a value.
fn given<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

impl Changes {
    /// Commands that make the changes; label and pin are stored, and need none.
    fn commands(&self) -> Result<Vec<String>, MethodError> {
        let settings = [
            ("model", "default", &self.model),
            ("think", "off", &self.thinking_level),
            ("verbose", "off", &self.verbose_level),
            ("reasoning", "off", &self.reasoning_level),
            ("elevated", "ask", &self.elevated_level),
            ("queue", "reset", &self.queue_mode),
        ];
        let wanted = settings.into_iter().filter_map(|(command, default, value)| {
            Some((command, default, value.as_ref()?.as_deref()))
        });
        wanted
            .map(|(command, default, value)| match value {
                Some(value) => self::command(command, value),
                None => Ok(format!("/{command} {default}")),
            })
            .collect()
    }
}

/// The command that sets a model or a level, if the value is one.
pub(super) fn command(name: &str, value: &str) -> Result<String, MethodError> {
    let wrong = |why: String| MethodError::invalid(format!("invalid params: {name}: {why}"));
    let value = value.trim();
    let value = match name {
        "think" => thinking(value).map_err(wrong)?.as_str().to_owned(),
        "verbose" => level::<Verbose>(value).map_err(wrong)?.as_str().to_owned(),
        "reasoning" => level::<Reasoning>(value).map_err(wrong)?.as_str().to_owned(),
        "elevated" => level::<Elevated>(value).map_err(wrong)?.as_str().to_owned(),
        "queue" => {
            QueueSettings::parse(&[value]).map_err(wrong)?;
            value.to_owned()
        }
        _ if value.is_empty() || value.contains(char::is_whitespace) => {
            return Err(wrong("must be a name without spaces".to_owned()));
        }
        _ => model_name(value),
    };
    Ok(format!("/{name} {value}"))
}

fn level<L: std::str::FromStr<Err: std::fmt::Display>>(value: &str) -> Result<L, String> {
    value.parse().map_err(|error: L::Err| error.to_string())
}

/// A level of thinking, in the words of Holdfast or of OpenAI.
fn thinking(value: &str) -> Result<Thinking, String> {
    let in_words_of_openai = || serde_json::from_value::<Effort>(value.into()).ok();
    let known = value.parse::<Thinking>().ok();
    known
        .or_else(|| in_words_of_openai().map(Effort::thinking))
        .ok_or_else(|| "must be off, none, minimal, low, medium, high or xhigh".to_owned())
}

/// Name of a model here: clients write `provider/model`.
fn model_name(name: &str) -> String {
    if name.contains(':') { name.to_owned() } else { name.replacen('/', ":", 1) }
}

/// Parses the parameters, which hold the session beside the changes.
fn split(mut fields: Map<String, Value>) -> Result<(Target, Changes), MethodError> {
    let mut target = Map::new();
    for name in ["key", "agentId", "expectedSessionId"] {
        if let Some(value) = fields.remove(name) {
            target.insert(name.to_owned(), value);
        }
    }
    let target = parse("sessions.patch", &[], target.into())?;
    Ok((target, parse("sessions.patch", &["expectedMarkedUnreadAt"], fields.into())?))
}

/// Changes settings of a session. Model and levels are changed by the commands that a person would
/// write: so changes are made in order with messages.
pub(super) async fn patch(call: Call, fields: Map<String, Value>) -> Reply {
    let (target, changes) = split(fields)?;
    change(&call, target, &changes).await
}

async fn change(call: &Call, target: Target, changes: &Changes) -> Reply {
    let commands = changes.commands()?;
    if changes.unread == Some(true) {
        return Err(MethodError::invalid(
            "invalid sessions.patch params: unread: sessions have no mark of being unread",
        ));
    }
    let (place, found) =
        find(call, &target.agent_id, &target.key, ConversationRight::Write).await?;
    let known = found.map(|session| session.to_string());
    if target.expected_session_id.is_some() && target.expected_session_id != known {
        return Err(MethodError::invalid(
            "the session is another one now: list the sessions again",
        ));
    }
    if changes.label.is_some() || changes.pinned.is_some() {
        // A session exists once it has its first message.
        let session = known.ok_or_else(|| unknown(&target.key))?;
        let label = changes.label.clone().map(Option::unwrap_or_default);
        update(call, session, label, changes.pinned).await?;
    }
    let mut answers = Vec::with_capacity(commands.len());
    for command in commands {
        answers.push(run_command(call, &place, command).await?);
    }
    let key = keys::shown(place.key.as_str());
    let found = call.state().sessions.views().find(call.tenant(), &place.key).await?;
    let entry = row_after_change(call, found).await?;
    changed(call, &key, place.agent.name.as_str(), "patch");
    Ok(json!({
        "ok": true,
        "path": "",
        "key": key,
        "entry": entry,
        "resolved": { "modelProvider": entry["modelProvider"], "model": entry["model"] },
        "answers": answers,
    }))
}

/// Stores what people call a session, and whether it is pinned.
pub(super) async fn update(
    call: &Call,
    session: String,
    label: Option<String>,
    pinned: Option<bool>,
) -> Result<(), MethodError> {
    let request = pb::UpdateSessionRequest { session, label, pinned, tags: None };
    let handler = Handler(call.state().clone());
    rpc!(call, "Sessions/UpdateSession", handler, update_session, request)?;
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchManyParams {
    targets: Vec<Target>,
    patch: Changes,
}

/// Makes the same changes to several sessions. One that fails does not stop the others.
pub(super) async fn patch_many(call: Call, params: PatchManyParams) -> Reply {
    let PatchManyParams { targets, patch } = params;
    if targets.is_empty() || targets.len() > MAX_TARGETS {
        return Err(MethodError::invalid(format!(
            "invalid sessions.patchMany params: targets: 1 to {MAX_TARGETS}"
        )));
    }
    let mut outcomes = Vec::with_capacity(targets.len());
    for target in targets {
        let key = target.key.clone();
        outcomes.push(match change(&call, target, &patch).await {
            Ok(done) => json!({ "ok": true, "key": done["key"] }),
            Err(error) => json!({ "ok": false, "key": key, "error": error.openclaw() }),
        });
    }
    Ok(json!({ "outcomes": outcomes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(fields: Value) -> Result<Vec<String>, String> {
        let changes: Changes = serde_json::from_value(fields).map_err(|error| error.to_string())?;
        changes.commands().map_err(|error| error.message)
    }

    #[test]
    fn levels_become_commands_and_a_wrong_one_is_refused() {
        assert_eq!(
            commands(json!({
                "model": "openai/gpt-5", "thinkingLevel": "xhigh", "elevatedLevel": null,
                "queueMode": "collect", "pinned": true,
            }))
            .unwrap(),
            ["/model openai:gpt-5", "/think high", "/elevated ask", "/queue collect"]
        );
        assert_eq!(commands(json!({ "queueMode": null })).unwrap(), ["/queue reset"]);
        assert_eq!(commands(json!({ "label": "x" })).unwrap(), Vec::<String>::new());
        for wrong in [
            json!({ "thinkingLevel": "much" }),
            json!({ "verboseLevel": "loud" }),
            json!({ "queueMode": "stack" }),
            json!({ "model": "a\n/new" }),
            json!({ "icon": "star" }),
        ] {
            assert!(commands(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
