//! Tools that the client gives: functions, and which of them the model calls.

use holdfast_types::{AnswerSchema, ClientTool, ToolChoice};
use serde_json::{Value, json};

use super::ignored_fields::IgnoredFields;
use crate::api_error::ApiError;

/// Maximum number of tools, as at OpenAI.
const MAX_TOOLS: usize = 128;

/// Maximum size of all definitions together, in bytes. They are stored with the message.
const MAX_DEFINITIONS_BYTES: usize = 256 * 1024;

const MAX_NAME_LENGTH: usize = 64;

/// Fields of a request about tools. In Chat Completions a function is in an object of its own.
#[derive(Debug, Default)]
pub struct GivenTools {
    pub tools: Option<Value>,
    pub choice: Option<Value>,
    pub parallel: Option<bool>,
}

/// Checked tools.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClientTools {
    pub tools: Vec<ClientTool>,
    pub choice: Option<ToolChoice>,
    pub parallel: Option<bool>,
}

impl GivenTools {
    /// Checks the tools. Those of other types than functions are left out: the agent has tools of its own.
    pub fn check(self, ignored: &mut IgnoredFields) -> Result<ClientTools, ApiError> {
        let given = match self.tools {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(tools)) => tools,
            Some(_) => return Err(invalid("`tools` is no list: send a list of functions")),
        };
        if given.len() > MAX_TOOLS {
            return Err(invalid(format!("there are more than {MAX_TOOLS} tools: send fewer")));
        }
        let tools = given.into_iter().map(|tool| read_tool(tool, ignored));
        let mut tools: Vec<ClientTool> =
            tools.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let size = serde_json::to_string(&tools).map_or(usize::MAX, |text| text.len());
        if size > MAX_DEFINITIONS_BYTES {
            let message = format!(
                "the definitions of the tools have more than {MAX_DEFINITIONS_BYTES} bytes: make \
                 them shorter"
            );
            return Err(invalid(message));
        }
        for (n, tool) in tools.iter().enumerate() {
            if tools[..n].iter().any(|other| other.name == tool.name) {
                return Err(invalid(format!("two tools have the name `{}`", tool.name)));
            }
        }
        let choice = read_choice(self.choice, &mut tools)?;
        // Without tools it changes nothing.
        let parallel = self.parallel.filter(|_| !tools.is_empty());
        Ok(ClientTools { tools, choice, parallel })
    }
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::invalid_field("tools", message)
}

/// Reads a function; `None` for a tool of another type.
fn read_tool(mut tool: Value, ignored: &mut IgnoredFields) -> Result<Option<ClientTool>, ApiError> {
    match tool["type"].as_str() {
        Some("function") => {}
        Some(kind) => {
            ignored.note(format!("tools.{kind}"));
            return Ok(None);
        }
        None => return Err(invalid("a tool has no `type`: write `function`")),
    }
    let mut function = match tool["function"].take() {
        Value::Null => tool,
        function => {
            ignored.add_keys("tools", &tool, &["type", "function"]);
            function
        }
    };
    ignored.add_keys("tools", &function, &["type", "name", "description", "parameters", "strict"]);
    let name = function["name"].as_str().unwrap_or_default().to_owned();
    let is_right = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !name.chars().all(is_right) {
        return Err(invalid(format!(
            "a function needs a `name` of up to {MAX_NAME_LENGTH} letters, digits, `_` and `-`"
        )));
    }
    let parameters = match function["parameters"].take() {
        Value::Null => json!({ "type": "object", "properties": {} }),
        parameters @ Value::Object(_) => parameters,
        _ => return Err(invalid(format!("the `parameters` of `{name}` are no JSON schema"))),
    };
    let strict = function["strict"].as_bool().unwrap_or_default();
    if strict && let Err(error) = AnswerSchema::try_from(parameters.clone()) {
        return Err(invalid(format!("the strict function `{name}`: {error}")));
    }
    let description = function["description"].as_str().unwrap_or_default().to_owned();
    Ok(Some(ClientTool { name, description, parameters, strict }))
}

/// Reads the choice. One among some of the tools leaves only these.
fn read_choice(
    choice: Option<Value>,
    tools: &mut Vec<ClientTool>,
) -> Result<Option<ToolChoice>, ApiError> {
    let refuse = |message: String| Err(ApiError::invalid_field("tool_choice", message));
    let Some(mut choice) = choice.filter(|choice| !choice.is_null()) else { return Ok(None) };
    if choice["type"] == "allowed_tools" {
        if choice["allowed_tools"].is_object() {
            choice = choice["allowed_tools"].take();
        }
        let named = choice["tools"].as_array().cloned().unwrap_or_default();
        let names: Vec<&str> = named.iter().filter_map(function_name).collect();
        if names.is_empty() || names.len() < named.len() {
            return refuse("the allowed tools of `tool_choice` must be functions".to_owned());
        }
        if let Some(name) = names.iter().find(|name| tools.iter().all(|tool| tool.name != **name)) {
            return refuse(format!("`tool_choice` allows `{name}`, which is not in `tools`"));
        }
        tools.retain(|tool| names.contains(&tool.name.as_str()));
        choice = choice["mode"].take();
    }
    let found = match (choice.as_str(), function_name(&choice)) {
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("none"), _) => ToolChoice::None,
        (Some("required"), _) => ToolChoice::Required,
        (None, Some(name)) => ToolChoice::Function(name.to_owned()),
        (Some(_), _) | (None, None) => {
            return refuse(
                "`tool_choice` must be auto, none, required, or name a function".to_owned(),
            );
        }
    };
    match &found {
        ToolChoice::Function(name) if tools.iter().all(|tool| tool.name != *name) => {
            refuse(format!("`tool_choice` names `{name}`, which is not in `tools`"))
        }
        ToolChoice::Required if tools.is_empty() => {
            refuse("`tool_choice` demands a call, and there are no `tools`".to_owned())
        }
        ToolChoice::Auto | ToolChoice::None if tools.is_empty() => Ok(None),
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Function(_) => {
            Ok(Some(found))
        }
    }
}

/// Name of a function in a choice, in either API.
fn function_name(choice: &Value) -> Option<&str> {
    let name = choice["function"]["name"].as_str().or_else(|| choice["name"].as_str());
    name.filter(|_| choice["type"] == "function")
}

/// The tools as Responses shows them.
pub fn shown_tools(tools: &[ClientTool]) -> Vec<Value> {
    let shown = |tool: &ClientTool| {
        json!({
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": tool.strict,
        })
    };
    tools.iter().map(shown).collect()
}

/// The choice as Responses shows it.
pub fn shown_choice(choice: Option<&ToolChoice>) -> Value {
    match choice {
        None | Some(ToolChoice::Auto) => "auto".into(),
        Some(ToolChoice::None) => "none".into(),
        Some(ToolChoice::Required) => "required".into(),
        Some(ToolChoice::Function(name)) => json!({ "type": "function", "name": name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tools: Value, choice: Value) -> Result<ClientTools, ApiError> {
        let given = GivenTools { tools: Some(tools), choice: Some(choice), parallel: None };
        given.check(&mut IgnoredFields::default())
    }

    #[test]
    fn a_function_is_read_from_both_apis() {
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let inner =
            json!({"name": "look", "description": "d", "parameters": parameters, "strict": true});
        let mut outer = inner.clone();
        outer["type"] = "function".into();

        let chat = check(
            json!([{"type": "function", "function": inner}]),
            json!({"type": "function", "function": {"name": "look"}}),
        );
        let responses = check(json!([outer]), json!({"type": "function", "name": "look"}));

        let chat = chat.unwrap();
        assert_eq!(chat.choice, Some(ToolChoice::Function("look".into())));
        assert_eq!(Ok(chat), responses);
    }

    #[test]
    fn a_choice_among_some_leaves_the_others_out() {
        let tools = json!([
            {"type": "function", "name": "a"},
            {"type": "function", "name": "b"},
        ]);
        let among = json!([{"type": "function", "name": "b"}]);
        let inner = json!({"mode": "required", "tools": among});

        let chat = check(tools.clone(), json!({"type": "allowed_tools", "allowed_tools": inner}));
        let responses =
            check(tools, json!({"type": "allowed_tools", "mode": "required", "tools": among}));

        assert_eq!(chat, responses);
        let found = chat.unwrap();
        assert_eq!((found.tools.len(), found.choice), (1, Some(ToolChoice::Required)));
        assert_eq!(found.tools[0].name, "b");
    }

    #[test]
    fn what_cannot_be_offered_is_refused() {
        let function = |name: &str| json!({"type": "function", "name": name});
        let strict = json!({"type": "function", "name": "a", "strict": true, "parameters": {"type": "what"}});
        for (tools, choice, told) in [
            (json!([{"name": "a"}]), Value::Null, "`type`"),
            (json!([{"type": "web_search"}]), json!("required"), "`tools`"),
            (json!([{"type": "function"}]), Value::Null, "`name`"),
            (json!([function("a b")]), Value::Null, "`name`"),
            (json!([function("a"), function("a")]), Value::Null, "`a`"),
            (json!([strict]), Value::Null, "`type`"),
            (json!({}), Value::Null, "list"),
            (json!([function("a")]), json!("sometimes"), "`tool_choice`"),
            (json!([function("a")]), json!({"type": "function", "name": "b"}), "`b`"),
            (json!([]), json!("required"), "`tools`"),
            (json!([function("a")]), json!({"type": "custom", "name": "a"}), "`tool_choice`"),
        ] {
            let refusal = check(tools.clone(), choice).unwrap_err();
            assert!(refusal.message().contains(told), "{tools}: {}", refusal.message());
        }
        assert_eq!(check(json!([]), json!("auto")), Ok(ClientTools::default()));
    }

    #[test]
    fn tools_of_other_types_and_keys_beside_a_function_are_left_out() {
        let tools = json!([
            {"type": "web_search"},
            {"type": "custom", "name": "apply_patch"},
            {"type": "function", "function": {"name": "a"}, "cache_control": {"type": "x"}},
        ]);
        let mut ignored = IgnoredFields::default();

        let given = GivenTools { tools: Some(tools), ..GivenTools::default() };
        let found = given.check(&mut ignored).unwrap();

        assert_eq!((found.tools.len(), found.tools[0].name.as_str()), (1, "a"));
        let [(_, names)] = ignored.header().unwrap();
        assert_eq!(names, "tools.web_search, tools.custom, tools.cache_control");
    }
}
