//! Inputs and outputs of the MCP tools.

use holdfast_mcp::OfferedTool;
use holdfast_proto::gateway::v1 as pb;
use holdfast_types::ToolSpec;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::permissions::{self, Rule};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskArgs {
    pub message: String,
    #[serde(default)]
    pub agent: String,
    #[serde(default)]
    pub session: String,
    #[serde(default)]
    pub request_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmptyArgs {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSessionsArgs {
    #[serde(default)]
    pub agent: String,
    #[serde(default)]
    pub limit: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadHistoryArgs {
    pub session: String,
    #[serde(default)]
    pub limit: u32,
    #[serde(default)]
    pub before: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListFilesArgs {
    #[serde(default)]
    pub agent: String,
    #[serde(default)]
    pub path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadFileArgs {
    pub path: String,
    #[serde(default)]
    pub agent: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteFileArgs {
    pub path: String,
    pub content: String,
    #[serde(default)]
    pub agent: String,
    #[serde(default)]
    pub base_hash: String,
    #[serde(default)]
    pub reason: String,
}

const AGENT_DESCRIPTION: &str = "The agent, by name or id; the default one if it is left out.";

/// Rule of a tool; `None` if there is no such tool.
pub fn rule(name: &str) -> Option<&'static Rule> {
    let (method, _) = all_tools().into_iter().find(|(_, tool)| tool.spec.name == name)?;
    permissions::of_method(method)
}

/// All tools, each with the method of which it has the rule.
pub fn all_tools() -> Vec<(&'static str, OfferedTool)> {
    let text = |said: &str| json!({ "type": "string", "description": said });
    let number = |said: &str| json!({ "type": "integer", "minimum": 0, "description": said });
    vec![
        tool(
            "Messages/Send",
            "ask",
            "Say something to an assistant, and get its answer. It may take minutes.",
            json!({
                "message": text("What to say."),
                "agent": text(AGENT_DESCRIPTION),
                "session": text(
                    "A name for the conversation, which goes on under it later; `mcp` if it is \
                     left out.",
                ),
                "request_id": text("The same again, with the same message, brings the same answer."),
            }),
            &["message"],
        ),
        tool("Agents/ListAgents", "list_agents", "List the assistants.", json!({}), &[]),
        tool(
            "Sessions/ListSessions",
            "list_sessions",
            "List conversations, the newest first.",
            json!({ "agent": text("Only this agent's."), "limit": number("1 to 200; usually 50.") }),
            &[],
        ),
        tool(
            "Sessions/GetHistory",
            "read_history",
            "Read what was said in a conversation, the newest last.",
            json!({
                "session": text("Its id or key, or a name that was given to `ask`."),
                "limit": number("1 to 1000; usually 20."),
                "before": number("Only what is before the entry of this `seq`."),
            }),
            &["session"],
        ),
        tool(
            "Files/ListFiles",
            "list_files",
            "List an assistant's files.",
            json!({ "agent": text(AGENT_DESCRIPTION), "path": text("Only what is in this folder.") }),
            &[],
        ),
        tool(
            "Files/ReadFile",
            "read_file",
            "Read one of an assistant's files, which must be a text.",
            json!({ "path": text("As in `memory/today.md`."), "agent": text(AGENT_DESCRIPTION) }),
            &["path"],
        ),
        tool(
            "Files/WriteFile",
            "write_file",
            "Write one of an assistant's files, whole. What it was is kept in its history.",
            json!({
                "path": text("As in `memory/today.md`."),
                "content": text("All that the file is to hold."),
                "agent": text(AGENT_DESCRIPTION),
                "base_hash": text("The `hash` of what was read: if it is another now, it is refused."),
                "reason": text("Why, for the history."),
            }),
            &["path", "content"],
        ),
    ]
}

fn tool(
    method: &'static str,
    name: &str,
    description: &str,
    properties: Value,
    required: &[&str],
) -> (&'static str, OfferedTool) {
    let input = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let spec = ToolSpec { name: name.to_owned(), description: description.to_owned(), input };
    let is_read_only = !matches!(name, "ask" | "write_file");
    (method, OfferedTool { spec, is_read_only })
}

pub fn agent(agent: &pb::Agent) -> Value {
    json!({
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "is_default": agent.is_default,
    })
}

pub fn session(session: &pb::Session) -> Value {
    json!({
        "id": session.id,
        "key": session.key,
        "kind": session.kind,
        "agent": session.agent,
        "label": session.label,
        "state": session.state,
        "turns": session.turns,
        "updated_at": session.updated_at.as_ref().map(format_timestamp),
    })
}

pub fn entry(entry: &pb::Entry) -> Value {
    json!({
        "seq": entry.seq,
        "kind": entry.kind,
        "text": entry.text,
        "at": entry.created_at.as_ref().map(format_timestamp),
    })
}

pub fn file(file: &pb::File) -> Value {
    json!({ "path": file.path, "size": file.size, "hash": file.hash })
}

fn format_timestamp(at: &prost_types::Timestamp) -> Option<String> {
    Some(jiff::Timestamp::new(at.seconds, at.nanos).ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_takes_what_its_schema_says() {
        for (_, tool) in all_tools() {
            let schema = &tool.spec.input;
            let fields = schema["properties"].as_object().unwrap();
            let given = fields.iter().map(|(name, field)| {
                let value = if field["type"] == "integer" { json!(1) } else { json!("x") };
                (name.clone(), value)
            });
            let given = Value::Object(given.collect());
            let read = match tool.spec.name.as_str() {
                "ask" => serde_json::from_value::<AskArgs>(given).map(drop),
                "list_agents" => serde_json::from_value::<EmptyArgs>(given).map(drop),
                "list_sessions" => serde_json::from_value::<ListSessionsArgs>(given).map(drop),
                "read_history" => serde_json::from_value::<ReadHistoryArgs>(given).map(drop),
                "list_files" => serde_json::from_value::<ListFilesArgs>(given).map(drop),
                "read_file" => serde_json::from_value::<ReadFileArgs>(given).map(drop),
                "write_file" => serde_json::from_value::<WriteFileArgs>(given).map(drop),
                other => panic!("{other} is not read anywhere"),
            };
            assert!(read.is_ok(), "{}: {read:?}", tool.spec.name);
        }
    }

    #[test]
    fn only_what_reads_says_so() {
        let reads: Vec<String> = all_tools()
            .into_iter()
            .filter(|(_, it)| it.is_read_only)
            .map(|(_, it)| it.spec.name)
            .collect();

        assert_eq!(
            reads,
            ["list_agents", "list_sessions", "read_history", "list_files", "read_file"]
        );
    }
}
