//! Tools of a request, converted to functions of Chat Completions.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{api_error::ApiError, openai::GivenTools};

/// Type of the tools that the client runs and describes itself; it may be left out.
const CUSTOM: &str = "custom";

/// Fields that change nothing here: marks of the cache, and how the provider streams or loads a tool.
const HINTS: [&str; 4] =
    ["cache_control", "eager_input_streaming", "defer_loading", "allowed_callers"];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GivenChoice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

/// Converts tools and the choice among them. Tools of other types stay as they are, so that they are
/// left out and named.
pub fn convert(
    tools: Option<Vec<Value>>,
    choice: Option<GivenChoice>,
) -> Result<GivenTools, ApiError> {
    let tools = tools.map(|tools| tools.into_iter().map(function).collect());
    let Some(choice) = choice else { return Ok(GivenTools { tools, ..GivenTools::default() }) };
    let word = match choice.kind.as_str() {
        "auto" => "auto".into(),
        "any" => "required".into(),
        "none" => "none".into(),
        "tool" => json!({ "type": "function", "name": choice.name.unwrap_or_default() }),
        _ => {
            let message = "the type of `tool_choice` must be auto, any, tool or none";
            return Err(ApiError::invalid_field("tool_choice", message));
        }
    };
    let parallel = choice.disable_parallel_tool_use.map(|is_disabled| !is_disabled);
    Ok(GivenTools { tools, choice: Some(word), parallel })
}

fn function(tool: Value) -> Value {
    let Value::Object(mut tool) = tool else { return tool };
    let is_custom = tool.get("type").is_none_or(|kind| kind.is_null() || kind == CUSTOM);
    if !is_custom {
        return Value::Object(tool);
    }
    let mut function = Map::new();
    function.insert("type".to_owned(), "function".into());
    if let Some(schema) = tool.remove("input_schema") {
        function.insert("parameters".to_owned(), schema);
    }
    tool.remove("type");
    let others = tool.into_iter().filter(|(name, _)| !HINTS.contains(&name.as_str()));
    function.extend(others);
    Value::Object(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_becomes_a_function_and_a_server_tool_stays() {
        let tools = vec![
            json!({"type": "custom", "name": "a", "description": "d", "input_schema": {"type": "object"},
                   "cache_control": {"type": "ephemeral"}, "strict": true}),
            json!({"name": "b"}),
            json!({"type": "web_search_20250305", "name": "web_search"}),
        ];
        let choice = GivenChoice { kind: "any".into(), ..GivenChoice::default() };

        let given = convert(Some(tools), Some(choice)).unwrap();

        assert_eq!(
            given.tools.unwrap(),
            json!([
                {"type": "function", "name": "a", "description": "d", "strict": true,
                 "parameters": {"type": "object"}},
                {"type": "function", "name": "b"},
                {"type": "web_search_20250305", "name": "web_search"},
            ])
        );
        assert_eq!(given.choice, Some("required".into()));
    }
}
