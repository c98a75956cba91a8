//! What a request asks of the model: sampling and the form of the answer.
//!
//! It is passed on with the message. A provider that cannot take an option refuses it by its name;
//! ranges are checked here.

use holdfast_types::{AnswerFormat, AnswerOptions, AnswerSchema, Effort, NamedSchema, Thinking};
use serde::Deserialize;
use serde_json::{Number, Value};

use super::{
    ignored_fields::IgnoredFields,
    tools::{ClientTools, GivenTools},
};
use crate::api_error::ApiError;

/// Maximum number of stop sequences, and of bytes of each.
const MAX_STOPS: usize = 4;
const MAX_STOP_BYTES: usize = 256;

/// Maximum length of a schema's name, as at OpenAI, and of its description.
const MAX_NAME_LENGTH: usize = 64;
const MAX_DESCRIPTION_BYTES: usize = 1_024;

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Stop {
    One(String),
    Several(Vec<String>),
}

/// Options with the names that the request has for them.
#[derive(Debug, Default)]
pub struct GivenOptions {
    pub temperature: Option<Number>,
    pub top_p: Option<Number>,
    /// Name and value of each output limit that is given.
    pub max_output: Vec<(&'static str, Option<u64>)>,
    /// Name and value.
    pub stop: Option<(&'static str, Option<Stop>)>,
    pub seed: Option<i64>,
    pub frequency_penalty: Option<Number>,
    pub presence_penalty: Option<Number>,
    /// Name and value.
    pub effort: Option<(&'static str, Option<String>)>,
    pub thinking: Option<Thinking>,
    pub shows_thinking: bool,
    /// Name and value. In Chat Completions a schema is in an object of its own.
    pub format: Option<(&'static str, Option<Value>)>,
    pub tools: GivenTools,
    pub cache: CacheOptions,
}

/// Fields about the provider's prompt cache and tier, alike in both APIs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CacheOptions {
    pub prompt_cache_key: Option<String>,
    pub prompt_cache_retention: Option<String>,
    pub service_tier: Option<String>,
}

/// Maximum length of the key of a prompt cache.
const MAX_CACHE_KEY_BYTES: usize = 256;

impl CacheOptions {
    /// Returns the key of the prompt cache.
    fn check(self) -> Result<Option<String>, ApiError> {
        let others = |value: &Option<String>, known: &[&str]| {
            value.as_ref().is_some_and(|value| !known.contains(&value.as_str()))
        };
        if others(&self.prompt_cache_retention, &["in_memory", "in-memory"]) {
            let message = "only `in_memory` is supported: leave `prompt_cache_retention` out";
            return Err(ApiError::unsupported("prompt_cache_retention", message));
        }
        if others(&self.service_tier, &["auto", "default"]) {
            let message = "only `auto` and `default` are supported: leave `service_tier` out";
            return Err(ApiError::unsupported("service_tier", message));
        }
        let key = self.prompt_cache_key.filter(|key| !key.is_empty());
        if key.as_ref().is_some_and(|key| key.len() > MAX_CACHE_KEY_BYTES) {
            let message = format!("`prompt_cache_key` has more than {MAX_CACHE_KEY_BYTES} bytes");
            return Err(ApiError::invalid_field("prompt_cache_key", message));
        }
        Ok(key)
    }
}

impl GivenOptions {
    /// Checks the options; `None` if there are none.
    pub fn check(
        self,
        ignored: &mut IgnoredFields,
    ) -> Result<Option<Box<AnswerOptions>>, ApiError> {
        let ClientTools { tools, choice, parallel } = self.tools.check(ignored)?;
        let options = AnswerOptions {
            temperature: in_range("temperature", self.temperature, 0.0, 2.0)?,
            top_p: in_range("top_p", self.top_p, 0.0, 1.0)?,
            max_output: output_limit(self.max_output)?,
            stop: stops(self.stop)?,
            seed: self.seed,
            frequency_penalty: in_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?,
            presence_penalty: in_range("presence_penalty", self.presence_penalty, -2.0, 2.0)?,
            effort: effort(self.effort)?,
            thinking: self.thinking,
            shows_thinking: self.shows_thinking,
            is_housekeeping: false,
            format: match self.format {
                Some((param, Some(format))) => read_format(param, format, ignored)?,
                Some((_, None)) | None => None,
            },
            cache_key: self.cache.check()?,
            tools,
            tool_choice: choice,
            parallel_tool_calls: parallel,
        };
        // The database stores no NUL in JSON.
        if serde_json::to_string(&options).is_ok_and(|text| text.contains("\\u0000")) {
            return Err(ApiError::bad_body("a text of the request contains a NUL: remove it"));
        }
        Ok(Some(options).filter(|options| *options != AnswerOptions::default()).map(Box::new))
    }
}

fn in_range(
    param: &'static str,
    number: Option<Number>,
    least: f64,
    most: f64,
) -> Result<Option<Number>, ApiError> {
    let is_in = |number: &Number| number.as_f64().is_some_and(|n| n >= least && n <= most);
    match number {
        Some(number) if !is_in(&number) => {
            let message = format!("`{param}` must be from {least} to {most}");
            Err(ApiError::invalid_field(param, message))
        }
        number => Ok(number),
    }
}

/// The only output limit that is given; several are the same thing under two names.
fn output_limit(given: Vec<(&'static str, Option<u64>)>) -> Result<Option<u32>, ApiError> {
    let mut limit = None;
    for (param, value) in given {
        let Some(value) = value else { continue };
        let most = u32::try_from(value).ok().filter(|most| *most > 0);
        let Some(most) = most else {
            let message = format!("`{param}` must be from 1 to {}", u32::MAX);
            return Err(ApiError::invalid_field(param, message));
        };
        if limit.is_some_and(|limit| limit != most) {
            let message = format!("`{param}` differs from the limit under its other name: set one");
            return Err(ApiError::invalid_field(param, message));
        }
        limit = Some(most);
    }
    Ok(limit)
}

fn stops(given: Option<(&'static str, Option<Stop>)>) -> Result<Vec<String>, ApiError> {
    let Some((param, Some(stop))) = given else { return Ok(Vec::new()) };
    let stops = match stop {
        Stop::One(one) => vec![one],
        Stop::Several(all) => all,
    };
    let is_right = |stop: &String| !stop.is_empty() && stop.len() <= MAX_STOP_BYTES;
    if stops.len() > MAX_STOPS || !stops.iter().all(is_right) {
        let message = format!(
            "`{param}` takes up to {MAX_STOPS} texts, each from 1 to {MAX_STOP_BYTES} bytes long"
        );
        return Err(ApiError::invalid_field(param, message));
    }
    Ok(stops)
}

fn effort(given: Option<(&'static str, Option<String>)>) -> Result<Option<Effort>, ApiError> {
    let Some((param, Some(word))) = given else { return Ok(None) };
    let effort = Effort::deserialize(Value::String(word)).map_err(|_| {
        let message = format!("`{param}` must be none, minimal, low, medium, high or xhigh");
        ApiError::invalid_field(param, message)
    })?;
    Ok(Some(effort))
}

fn read_format(
    param: &'static str,
    mut format: Value,
    ignored: &mut IgnoredFields,
) -> Result<Option<AnswerFormat>, ApiError> {
    let invalid = |message: String| Err(ApiError::invalid_field(param, message));
    let kind = format["type"].as_str().unwrap_or_default().to_owned();
    let mut named = match kind.as_str() {
        "text" => return Ok(None),
        "json_object" => return Ok(Some(AnswerFormat::JsonObject)),
        "json_schema" if format["json_schema"].is_object() => format["json_schema"].take(),
        "json_schema" => format,
        _ => {
            return invalid(format!(
                "the type of `{param}` must be text, json_object or json_schema"
            ));
        }
    };
    ignored.add_keys(param, &named, &["type", "name", "description", "schema", "strict"]);
    let name = named["name"].as_str().unwrap_or_default().to_owned();
    let is_right = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !name.chars().all(is_right) {
        return invalid(format!(
            "the schema in `{param}` needs a `name` of up to {MAX_NAME_LENGTH} letters, digits, \
             `_` and `-`"
        ));
    }
    let description = named["description"].as_str().map(str::to_owned);
    if description.as_ref().is_some_and(|text| text.len() > MAX_DESCRIPTION_BYTES) {
        return invalid(format!(
            "the description of the schema has more than {MAX_DESCRIPTION_BYTES} bytes"
        ));
    }
    let strict = named["strict"].as_bool().unwrap_or_default();
    let schema = named["schema"].take();
    let schema = match AnswerSchema::try_from(schema) {
        Ok(schema) => schema,
        Err(error) => return invalid(error.to_string()),
    };
    Ok(Some(AnswerFormat::JsonSchema(NamedSchema { name, description, schema, strict })))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn format(value: Value) -> GivenOptions {
        GivenOptions { format: Some(("response_format", Some(value))), ..GivenOptions::default() }
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_its_name() {
        let number = |n: f64| Number::from_f64(n);
        let given = GivenOptions::default;
        for (options, told) in [
            (GivenOptions { temperature: number(2.1), ..given() }, "`temperature`"),
            (GivenOptions { top_p: number(-0.1), ..given() }, "`top_p`"),
            (GivenOptions { presence_penalty: number(3.0), ..given() }, "`presence_penalty`"),
            (GivenOptions { max_output: vec![("max_tokens", Some(0))], ..given() }, "`max_tokens`"),
            (
                GivenOptions {
                    max_output: vec![("max_tokens", Some(1)), ("max_completion_tokens", Some(2))],
                    ..given()
                },
                "`max_completion_tokens`",
            ),
            (
                GivenOptions { stop: Some(("stop", Some(Stop::One(String::new())))), ..given() },
                "`stop`",
            ),
            (
                GivenOptions {
                    effort: Some(("reasoning_effort", Some("much".to_owned()))),
                    ..given()
                },
                "`reasoning_effort`",
            ),
            (format(json!({"type": "xml"})), "json_schema"),
            (format(json!({"type": "json_schema", "json_schema": {"schema": {}}})), "`name`"),
            (
                format(json!({"type": "json_schema", "name": "n", "schema": {"type": "what"}})),
                "`type`",
            ),
        ] {
            let refusal = options.check(&mut IgnoredFields::default()).unwrap_err();
            assert!(refusal.message().contains(told), "{told}: {}", refusal.message());
        }
        assert_eq!(format(json!({"type": "text"})).check(&mut IgnoredFields::default()), Ok(None));
    }

    #[test]
    fn a_schema_is_read_from_both_apis() {
        let schema = json!({"type": "object"});
        let inner = json!({"name": "n", "schema": schema, "strict": true});
        let chat = format(json!({"type": "json_schema", "json_schema": inner}));
        let responses =
            format(json!({"type": "json_schema", "name": "n", "schema": schema, "strict": true}));

        let chat = chat.check(&mut IgnoredFields::default()).unwrap().unwrap();
        assert_eq!(chat, responses.check(&mut IgnoredFields::default()).unwrap().unwrap());
        assert!(matches!(chat.format, Some(AnswerFormat::JsonSchema(named)) if named.strict));
    }
}
