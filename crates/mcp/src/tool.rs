//! Tools of a server, with size limits, and the names by which models call them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use holdfast_types::ToolSpec;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Maximum number of tools of one server; the rest is left out.
pub(crate) const MAX_TOOLS_PER_SERVER: usize = 256;

/// Maximum length of a server's name for a tool, in bytes.
const MAX_SERVER_TOOL_NAME_BYTES: usize = 128;

/// Maximum length of a description, in characters; the rest is cut.
const MAX_DESCRIPTION_CHARS: usize = 2_000;

/// Maximum size of a schema as JSON, in bytes.
const MAX_SCHEMA_BYTES: usize = 16 * 1024;

/// Maximum length of a tool name that every model provider accepts.
const MAX_MODEL_TOOL_NAME_CHARS: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Name of the tool on its server.
    pub name: String,
    /// Description by its server; untrusted.
    pub description: String,
    /// JSON Schema of the arguments, always of type object.
    pub input: Value,
    /// Whether its server declares it read-only.
    pub reads: bool,
}

/// Tools of a server, in its order, and those that cannot be used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolList {
    pub tools: Vec<Tool>,
    /// Tools that are left out, at most 256.
    pub omitted: Vec<OmittedTool>,
    /// Whether the server has further tools, which were not listed.
    pub has_more: bool,
}

impl ToolList {
    /// Adds a tool as its server lists it, or the reason why it is left out.
    pub(crate) fn add(&mut self, tool: rmcp::model::Tool) {
        let name = tool.name.to_string();
        let reason = if self.tools.iter().any(|known| known.name == name) {
            OmitReason::DuplicateName
        } else {
            match Tool::read(tool) {
                Ok(_) if self.is_full() => OmitReason::TooManyTools,
                Ok(tool) => return self.tools.push(tool),
                Err(reason) => reason,
            }
        };
        if self.omitted.len() < MAX_TOOLS_PER_SERVER {
            self.omitted.push(OmittedTool { name, reason });
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.tools.len() >= MAX_TOOLS_PER_SERVER
    }
}

/// Tool of a server that no model is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedTool {
    /// Name of the tool on its server; untrusted, and of any length.
    pub name: String,
    pub reason: OmitReason,
}

/// Reason why a tool of a server is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OmitReason {
    InvalidName,
    /// The server lists another tool of this name before it.
    DuplicateName,
    LargeSchema {
        /// Size as JSON.
        bytes: usize,
    },
    /// The server lists as many tools as are used before it.
    TooManyTools,
}

impl fmt::Display for OmitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidName => write!(
                f,
                "its name is empty, has more than {MAX_SERVER_TOOL_NAME_BYTES} bytes, or has \
                 control characters"
            ),
            Self::DuplicateName => write!(f, "the server lists another tool of this name"),
            Self::LargeSchema { bytes } => write!(
                f,
                "the schema of its arguments has {bytes} bytes, and {MAX_SCHEMA_BYTES} are the most"
            ),
            Self::TooManyTools => write!(
                f,
                "the server lists too many tools: the first {MAX_TOOLS_PER_SERVER} are used"
            ),
        }
    }
}

impl Tool {
    fn read(tool: rmcp::model::Tool) -> Result<Self, OmitReason> {
        let name = tool.name.into_owned();
        if !(1..=MAX_SERVER_TOOL_NAME_BYTES).contains(&name.len())
            || name.chars().any(char::is_control)
        {
            return Err(OmitReason::InvalidName);
        }
        let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
        let mut input = tool.input_schema.as_ref().clone();
        for needless in ["$schema", "title"] {
            input.remove(needless);
        }
        input.insert("type".to_owned(), json!("object"));
        // Some providers refuse an object schema without `properties`.
        if !input.get("properties").is_some_and(Value::is_object) {
            input.insert("properties".to_owned(), json!({}));
        }
        let input = Value::Object(input);
        let bytes = input.to_string().len();
        if bytes > MAX_SCHEMA_BYTES {
            return Err(OmitReason::LargeSchema { bytes });
        }
        Ok(Self {
            description: description.chars().take(MAX_DESCRIPTION_CHARS).collect(),
            reads: tool.annotations.and_then(|hints| hints.read_only_hint).unwrap_or_default(),
            name,
            input,
        })
    }

    /// Specification for a model, under the name that [`assign_tool_names`] gave the tool.
    #[must_use]
    pub fn spec(&self, name: &str) -> ToolSpec {
        ToolSpec {
            name: name.to_owned(),
            description: self.description.clone(),
            input: self.input.clone(),
        }
    }
}

/// Assigns the names by which models call the tools of all servers: `mcp_<server>_<tool>`.
///
/// A name has up to 64 lower-case letters, digits and `_`. Names are unique: one that is taken or
/// too long ends with part of a digest. Takes pairs (server, tool) in any order; returns them by
/// name.
#[must_use]
pub fn assign_tool_names<'a>(
    tools: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<String, (&'a str, &'a str)> {
    let tools: BTreeSet<(&str, &str)> = tools.into_iter().collect();
    let mut names = BTreeMap::new();
    for (server, tool) in tools {
        let plain = plain_name(server, tool);
        let taken = plain.len() > MAX_MODEL_TOOL_NAME_CHARS || names.contains_key(&plain);
        let name = if taken { digest_name(&plain, server, tool) } else { plain };
        names.insert(name, (server, tool));
    }
    names
}

fn plain_name(server: &str, tool: &str) -> String {
    let letter = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() => c,
        _ => '_',
    };
    format!("mcp_{server}_{}", tool.chars().map(letter).collect::<String>())
}

fn digest_name(plain: &str, server: &str, tool: &str) -> String {
    let digest = Sha256::digest(format!("{server}\n{tool}"));
    let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let most = MAX_MODEL_TOOL_NAME_CHARS - digest.len() - 1;
    format!("{}_{digest}", &plain[..plain.len().min(most)])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;

    use super::*;

    fn tool(name: &str, schema: Value) -> rmcp::model::Tool {
        let Value::Object(schema) = schema else { panic!("{schema}") };
        rmcp::model::Tool::new(name.to_owned(), "Says it again.", Arc::new(schema))
    }

    #[test]
    fn a_tool_is_named_by_its_server_and_itself() {
        let names =
            assign_tool_names([("everything", "get-sum"), ("files", "Read File"), ("x", "echo")]);

        let names: Vec<&str> = names.keys().map(String::as_str).collect();
        assert_eq!(names, ["mcp_everything_get_sum", "mcp_files_read_file", "mcp_x_echo"]);
    }

    #[test]
    fn no_two_tools_share_a_name_and_none_is_too_long() {
        let long = "x".repeat(100);
        let all = [
            ("a", "b-c"),
            ("a", "b_c"),
            ("a_b", "c"),
            ("a", long.as_str()),
            ("a", "é"),
            ("a", "_"),
        ];

        let found = assign_tool_names(all);
        let mut back = all;
        back.reverse();

        assert_eq!(found.len(), all.len(), "{found:?}");
        assert_eq!(found, assign_tool_names(back));
        assert!(found.keys().all(|name| name.len() <= 64), "{found:?}");
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(found.keys().all(|name| name.chars().all(is_plain)), "{found:?}");
    }

    #[test]
    fn a_schema_is_made_fit_for_every_provider() {
        let read = Tool::read(tool("echo", json!({ "$schema": "x", "title": "Echo" }))).unwrap();

        assert_eq!(read.input, json!({ "type": "object", "properties": {} }));
        assert!(!read.reads);
        let read = Tool::read(tool("echo", json!({ "properties": null }))).unwrap();
        assert_eq!(read.input["properties"], json!({}));
    }

    #[test]
    fn a_tool_that_no_model_can_be_offered_is_left_out_with_the_reason() {
        let large = json!({ "description": "x".repeat(20 * 1024) });
        let mut list = ToolList::default();
        for tool in [
            tool("", json!({})),
            tool("a\nb", json!({})),
            tool("large", large.clone()),
            tool("echo", json!({})),
            tool("echo", large),
        ] {
            list.add(tool);
        }

        let names: Vec<&str> = list.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["echo"]);
        let omitted: Vec<_> =
            list.omitted.iter().map(|tool| (tool.name.as_str(), tool.reason)).collect();
        assert_eq!(
            omitted,
            [
                ("", OmitReason::InvalidName),
                ("a\nb", OmitReason::InvalidName),
                ("large", OmitReason::LargeSchema { bytes: 20_530 }),
                ("echo", OmitReason::DuplicateName),
            ]
        );
        assert_eq!(
            list.omitted[2].reason.to_string(),
            "the schema of its arguments has 20530 bytes, and 16384 are the most"
        );
    }

    #[test]
    fn tools_above_the_limit_of_a_server_are_left_out() {
        let mut list = ToolList::default();

        for n in 0..MAX_TOOLS_PER_SERVER + 2 {
            list.add(tool(&format!("t{n}"), json!({})));
        }

        assert_eq!(list.tools.len(), MAX_TOOLS_PER_SERVER);
        let reasons: Vec<OmitReason> = list.omitted.iter().map(|tool| tool.reason).collect();
        assert_eq!(reasons, [OmitReason::TooManyTools; 2]);
    }

    const TOOLS: [&str; 2] = [
        r#"{"name": "echo", "title": "Echo", "description": "Says it again.", "inputSchema": {"$schema": "x", "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}, "annotations": {"readOnlyHint": true}}"#,
        r#"{"name": "a/b.c", "inputSchema": {"type": "object"}}"#,
    ];

    proptest! {
        #[test]
        fn any_tool_of_a_server_is_fit_for_a_model_or_left_out(tool in mutated_json(&TOOLS)) {
            if let Ok(tool) = serde_json::from_str::<rmcp::model::Tool>(&tool)
                && let Ok(read) = Tool::read(tool)
            {
                prop_assert!(read.input["type"] == "object" && read.input["properties"] != json!(null));
                let names = assign_tool_names([("s", read.name.as_str())]);
                prop_assert!(names.keys().all(|name| name.is_ascii() && name.len() <= 64));
            }
        }
    }
}
