//! Requests for a message: their fields, and their check.

use holdfast_types::Thinking;
use serde::Deserialize;
use serde_json::{Number, Value, json};

use super::{
    agent_model,
    content::{SentMessage, SystemPrompt},
    tools::{self, GivenChoice},
};
use crate::{
    api_error::ApiError,
    openai::{AnswerRequest, GivenOptions, IgnoredFields, OtherFields, Stop, join_calls},
};

/// Budgets of thinking, in tokens, up to which a request asks for little and for medium thinking.
const LOW_BUDGET: u64 = 4_096;
const MEDIUM_BUDGET: u64 = 16_384;

/// Name of the schema of an answer, which the request does not give.
const SCHEMA_NAME: &str = "answer";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MessagesRequest {
    model: Option<String>,
    messages: Option<Vec<SentMessage>>,
    system: Option<SystemPrompt>,
    max_tokens: Option<u64>,
    stream: Option<bool>,
    stop_sequences: Option<Vec<String>>,
    temperature: Option<Number>,
    top_p: Option<Number>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<GivenChoice>,
    thinking: Option<ThinkingOptions>,
    output_config: Option<OutputOptions>,
    output_format: Option<Value>,
    metadata: Option<Metadata>,
    /// A mark for the provider's cache, which the agent sets itself.
    #[serde(rename = "cache_control")]
    _cache_control: Option<Value>,
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ThinkingOptions {
    #[serde(rename = "type")]
    kind: String,
    budget_tokens: Option<u64>,
    display: Option<String>,
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputOptions {
    effort: Option<String>,
    format: Option<Value>,
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    user_id: Option<String>,
    #[serde(flatten)]
    others: OtherFields,
}

impl MessagesRequest {
    pub fn is_stream(&self) -> bool {
        self.stream.unwrap_or_default()
    }

    /// Model's name as the client wrote it.
    pub fn model(&self) -> &str {
        self.model.as_deref().unwrap_or_default()
    }

    /// Whether the client wants to see thinking.
    pub fn shows_thinking(&self) -> bool {
        self.thinking.as_ref().is_some_and(|thinking| {
            !matches!(thinking.kind.as_str(), "" | "disabled")
                && thinking.display.as_deref() != Some("omitted")
        })
    }

    /// As [`check`](Self::check), for a request that is only counted and needs no `max_tokens`.
    pub fn check_count(mut self) -> Result<AnswerRequest, ApiError> {
        self.max_tokens.get_or_insert(1);
        self.check()
    }

    /// Refuses what would change the answer, and notes the other fields that are not followed.
    pub fn check(self) -> Result<AnswerRequest, ApiError> {
        if self.model().is_empty() {
            return Err(ApiError::invalid_field("model", "`model` is missing: write `holdfast`"));
        }
        if self.max_tokens.is_none() {
            let message = "`max_tokens` is missing: write the most tokens of an answer";
            return Err(ApiError::invalid_field("max_tokens", message));
        }
        let model = agent_model(self.model()).to_owned();
        let shows_thinking = self.shows_thinking();
        let thinking = thinking_level(self.thinking.as_ref(), self.output_config.as_ref())?;
        let mut ignored = IgnoredFields::default();
        ignored.add("", &self.others)?;
        let metadata = self.metadata.unwrap_or_default();
        let output = self.output_config.unwrap_or_default();
        for (within, fields) in [
            ("metadata.", Some(&metadata.others)),
            ("output_config.", Some(&output.others)),
            ("thinking.", self.thinking.as_ref().map(|thinking| &thinking.others)),
        ] {
            ignored.add(within, fields.unwrap_or(&OtherFields::new()))?;
        }
        let mut turns = Vec::new();
        if let Some(system) = self.system {
            turns.extend(system.convert()?);
        }
        for message in self.messages.unwrap_or_default() {
            turns.extend(message.convert(&mut ignored)?);
        }
        let options = GivenOptions {
            temperature: self.temperature,
            top_p: self.top_p,
            max_output: vec![("max_tokens", self.max_tokens)],
            stop: Some(("stop_sequences", self.stop_sequences.map(Stop::Several))),
            format: answer_format(output.format, self.output_format)?,
            tools: tools::convert(self.tools, self.tool_choice)?,
            thinking,
            shows_thinking,
            ..GivenOptions::default()
        };
        Ok(AnswerRequest {
            model,
            user: metadata.user_id.map(user_and_session),
            turns: join_calls(turns),
            options: options.check(&mut ignored)?,
            has_whole_conversation: true,
            ignored,
            ..AnswerRequest::default()
        })
    }
}

/// Name of a conversation: `user/session` for the ids of Claude Code, which have both in one text, and any
/// other id as it is. The part before the slash is the person, whose memory all sessions have.
fn user_and_session(user_id: String) -> String {
    let ids = serde_json::from_str::<Value>(&user_id).unwrap_or_default();
    let id = |name: &str| ids[name].as_str().filter(|id| !id.is_empty());
    let user = id("account_uuid").or_else(|| id("device_id"));
    let joined = user
        .zip(id("session_id"))
        // As versions before 2.1 write it.
        .or_else(|| user_id.strip_prefix("user_")?.split_once("_session_"));
    match joined {
        Some((user, session)) => format!("{user}/{session}"),
        None => user_id,
    }
}

/// How much the model is to think; `None` leaves it to the conversation and the agent.
fn thinking_level(
    thinking: Option<&ThinkingOptions>,
    output: Option<&OutputOptions>,
) -> Result<Option<Thinking>, ApiError> {
    let budget = match thinking {
        None => None,
        Some(thinking) => match thinking.kind.as_str() {
            "disabled" => return Ok(Some(Thinking::Off)),
            "enabled" => thinking.budget_tokens,
            "adaptive" | "between_tools" => None,
            _ => {
                let message = "the type of `thinking` must be enabled, adaptive, between_tools or \
                               disabled";
                return Err(ApiError::invalid_field("thinking", message));
            }
        },
    };
    match output.and_then(|output| output.effort.as_deref()) {
        Some("low") => Ok(Some(Thinking::Low)),
        Some("medium") => Ok(Some(Thinking::Medium)),
        Some("high" | "xhigh" | "max") => Ok(Some(Thinking::High)),
        Some(_) => {
            let message = "`output_config.effort` must be low, medium, high, xhigh or max";
            Err(ApiError::invalid_field("output_config.effort", message))
        }
        None => Ok(budget.map(|budget| {
            if budget <= LOW_BUDGET {
                Thinking::Low
            } else if budget <= MEDIUM_BUDGET {
                Thinking::Medium
            } else {
                Thinking::High
            }
        })),
    }
}

/// Form of the answer, as Responses has it. `older` is the field of earlier versions.
fn answer_format(
    format: Option<Value>,
    older: Option<Value>,
) -> Result<Option<(&'static str, Option<Value>)>, ApiError> {
    let given = format.filter(|format| !format.is_null()).map(|one| ("output_config.format", one));
    let older = older.filter(|format| !format.is_null()).map(|one| ("output_format", one));
    let Some((param, mut format)) = given.or(older) else { return Ok(None) };
    if format["type"] != "json_schema" {
        let message = format!("the type of `{param}` must be json_schema");
        return Err(ApiError::invalid_field(param, message));
    }
    let schema = format["schema"].take();
    let format =
        json!({ "type": "json_schema", "name": SCHEMA_NAME, "schema": schema, "strict": true });
    Ok(Some((param, Some(format))))
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;

    use super::*;

    fn check(extra: Value) -> Result<AnswerRequest, ApiError> {
        let mut request = json!({
            "model": "holdfast", "max_tokens": 100,
            "messages": [{"role": "user", "content": "hi"}],
        });
        for (key, value) in extra.as_object().unwrap() {
            request[key] = value.clone();
        }
        serde_json::from_value::<MessagesRequest>(request).unwrap().check()
    }

    #[test]
    fn thinking_becomes_the_nearest_level() {
        for (extra, level) in [
            (json!({}), None),
            (json!({"thinking": {"type": "disabled"}}), Some(Thinking::Off)),
            (json!({"thinking": {"type": "adaptive"}}), None),
            (json!({"thinking": {"type": "enabled", "budget_tokens": 1_024}}), Some(Thinking::Low)),
            (
                json!({"thinking": {"type": "enabled", "budget_tokens": 10_000}}),
                Some(Thinking::Medium),
            ),
            (
                json!({"thinking": {"type": "enabled", "budget_tokens": 31_999}}),
                Some(Thinking::High),
            ),
            (
                json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
                Some(Thinking::High),
            ),
            (
                json!({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}),
                Some(Thinking::Off),
            ),
        ] {
            let options = check(extra.clone()).unwrap().options.unwrap();
            assert_eq!(options.thinking, level, "{extra}");
        }
    }

    #[test]
    fn a_name_that_clients_have_built_in_is_the_default_agent() {
        for (name, agent) in [
            ("claude-sonnet-4-5", "holdfast"),
            ("holdfast/other", "holdfast/other"),
            ("gpt-5", "gpt-5"),
        ] {
            assert_eq!(check(json!({ "model": name })).unwrap().model, agent);
        }
    }

    #[test]
    fn sessions_of_claude_code_belong_to_one_user() {
        for (user_id, name) in [
            (r#"{"device_id":"d1","account_uuid":"","session_id":"s1"}"#, "d1/s1"),
            (r#"{"device_id":"d1","account_uuid":"a1","session_id":"s2"}"#, "a1/s2"),
            ("user_d1_account__session_s1", "d1_account_/s1"),
            (r#"{"session_id":"s1"}"#, r#"{"session_id":"s1"}"#),
            (r#"["a"]"#, r#"["a"]"#),
            ("42", "42"),
            ("anna_session_1", "anna_session_1"),
        ] {
            let request = check(json!({"metadata": {"user_id": user_id}})).unwrap();
            assert_eq!(request.user.as_deref(), Some(name), "{user_id}");
        }
    }

    #[test]
    fn what_is_not_followed_is_named_and_marks_of_the_cache_are_not() {
        let mark = json!({"type": "ephemeral"});
        let asked = check(json!({
            "system": [{"type": "text", "text": "Rhyme.", "cache_control": mark}],
            "top_k": 5,
            "metadata": {"user_id": "anna", "team": "a"},
            "context_management": {"edits": [1]},
            "cache_control": mark,
            "tools": [
                {"type": "web_search_20250305", "name": "web_search"},
                {"name": "look", "input_schema": {"type": "object"}, "cache_control": mark},
            ],
        }))
        .unwrap();

        let [(_, names)] = asked.ignored.header().unwrap();
        assert_eq!(names, "context_management, top_k, metadata.team, tools.web_search_20250305");
        assert_eq!((asked.user.as_deref(), asked.turns.len()), (Some("anna"), 2));
        assert_eq!(asked.options.unwrap().tools.len(), 1);
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for extra in [
            json!({"model": ""}),
            json!({"max_tokens": null}),
            json!({"max_tokens": 0}),
            json!({"temperature": 3}),
            json!({"thinking": {"type": "much"}}),
            json!({"output_config": {"effort": "much"}}),
            json!({"output_config": {"format": {"type": "xml"}}}),
            json!({"stop_sequences": [""]}),
            json!({"tools": [{"input_schema": {}}]}),
            json!({"tool_choice": {"type": "tool", "name": "a"}}),
            json!({"messages": [{"role": "robot", "content": "hi"}]}),
            json!({"messages": [{"role": "user", "content": [{"type": "sound"}]}]}),
        ] {
            assert!(check(extra.clone()).is_err(), "{extra}");
        }
    }

    const BODIES: [&str; 2] = [
        r#"{"model": "claude-x", "max_tokens": 9, "system": "Rhyme.", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]}], "stream": true, "metadata": {"user_id": "u"}, "thinking": {"type": "enabled", "budget_tokens": 2000}}"#,
        r#"{"model": "holdfast", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""}, {"type": "tool_use", "id": "c", "name": "f", "input": {"n": 1}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1", "is_error": true}]}], "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}}"#,
    ];

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body in mutated_json(&BODIES)) {
            if let Ok(request) = serde_json::from_str::<MessagesRequest>(&body)
                && let Ok(asked) = request.check()
            {
                prop_assert!(!asked.model.is_empty());
            }
        }
    }
}
