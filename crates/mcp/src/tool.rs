//! What a server offers, bounded, and under which names.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::ToolSpec;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The most tools of one server; the rest is left out.
pub(crate) const MOST_TOOLS: usize = 256;

/// The longest name of a tool, as its server calls it, in bytes.
const LONGEST_NAME: usize = 128;

/// The most of a description that is kept, in characters.
const MOST_DESCRIPTION: usize = 2_000;

/// The largest schema, as JSON, in bytes.
const LARGEST_SCHEMA: usize = 16 * 1024;

/// The longest name that every model provider takes.
const LONGEST_OWN_NAME: usize = 64;

/// A tool that a server offers.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// What its server calls it.
    pub name: String,
    /// What its server says that it does; a stranger's text.
    pub description: String,
    /// What it takes, as a JSON Schema of an object.
    pub input: Value,
    /// Its server says that it changes nothing.
    pub reads: bool,
}

impl Tool {
    /// `None` if no model could be told of it.
    pub(crate) fn read(tool: rmcp::model::Tool) -> Option<Self> {
        let name = tool.name.into_owned();
        let is_name =
            (1..=LONGEST_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
        let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
        let mut input = tool.input_schema.as_ref().clone();
        for needless in ["$schema", "title"] {
            input.remove(needless);
        }
        input.insert("type".to_owned(), json!("object"));
        // Some providers refuse an object that does not say which properties it has.
        input.entry("properties").or_insert_with(|| json!({}));
        let input = Value::Object(input);
        let fits = input.to_string().len() <= LARGEST_SCHEMA;
        (is_name && fits).then(|| Self {
            description: description.chars().take(MOST_DESCRIPTION).collect(),
            reads: tool.annotations.and_then(|hints| hints.read_only_hint).unwrap_or_default(),
            name,
            input,
        })
    }

    /// What a model is told of it, under the name that [`names`] gave it.
    #[must_use]
    pub fn spec(&self, name: &str) -> ToolSpec {
        ToolSpec {
            name: name.to_owned(),
            description: self.description.clone(),
            input: self.input.clone(),
        }
    }
}

/// The names by which models call the tools of some servers: `mcp_<server>_<tool>`.
///
/// They are of lower-case letters, digits and `_`, 64 at most. Each is one tool's: of two that would
/// share one, and of one that is too long, the name ends with a part of its digest. Given
/// (server, tool) in any order; answers by name.
#[must_use]
pub fn names<'a>(
    tools: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<String, (&'a str, &'a str)> {
    let tools: BTreeSet<(&str, &str)> = tools.into_iter().collect();
    let mut names = BTreeMap::new();
    for (server, tool) in tools {
        let plain = plain(server, tool);
        let taken = plain.len() > LONGEST_OWN_NAME || names.contains_key(&plain);
        let name = if taken { digested(&plain, server, tool) } else { plain };
        names.insert(name, (server, tool));
    }
    names
}

fn plain(server: &str, tool: &str) -> String {
    let letter = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() => c,
        _ => '_',
    };
    format!("mcp_{server}_{}", tool.chars().map(letter).collect::<String>())
}

fn digested(plain: &str, server: &str, tool: &str) -> String {
    let digest = Sha256::digest(format!("{server}\n{tool}"));
    let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let most = LONGEST_OWN_NAME - digest.len() - 1;
    format!("{}_{digest}", &plain[..plain.len().min(most)])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tool(name: &str, schema: Value) -> rmcp::model::Tool {
        let Value::Object(schema) = schema else { panic!("{schema}") };
        rmcp::model::Tool::new(name.to_owned(), "Says it again.", Arc::new(schema))
    }

    #[test]
    fn a_tool_is_named_by_its_server_and_itself() {
        let names = names([("everything", "get-sum"), ("files", "Read File"), ("x", "echo")]);

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

        let found = names(all);
        let mut back = all;
        back.reverse();

        assert_eq!(found.len(), all.len(), "{found:?}");
        assert_eq!(found, names(back));
        assert!(found.keys().all(|name| name.len() <= 64), "{found:?}");
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(found.keys().all(|name| name.chars().all(is_plain)), "{found:?}");
    }

    #[test]
    fn a_schema_is_made_fit_for_every_provider() {
        let read = Tool::read(tool("echo", json!({ "$schema": "x", "title": "Echo" }))).unwrap();

        assert_eq!(read.input, json!({ "type": "object", "properties": {} }));
        assert!(!read.reads);
    }

    #[test]
    fn what_no_model_could_be_told_of_is_left_out() {
        let huge = json!({ "description": "x".repeat(LARGEST_SCHEMA) });
        for unfit in [tool("", json!({})), tool("a\nb", json!({})), tool("huge", huge)] {
            assert_eq!(Tool::read(unfit), None);
        }
    }
}
