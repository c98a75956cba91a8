//! Tools that the agent looked up, or called without having been shown them.

use holdfast_types::Entry;
use serde::Deserialize;

/// Maximum number of such tools that stay in the request.
const MAX_RECENT_TOOLS: usize = 16;

/// Tool that describes another.
const DESCRIBE_TOOL: &str = "tool_describe";

#[derive(Deserialize)]
struct DescribeInput {
    name: String,
}

/// Returns the tools that the agent looked up or called, newest first, without duplicates, by the
/// names that it used.
///
/// Providers reject calls to tools missing from the request, so these tools stay in it.
#[must_use]
pub fn recently_used_tools(journal: &[Entry]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for entry in journal.iter().rev() {
        let Entry::Thought { calls, .. } = entry else { continue };
        for call in calls.iter().rev() {
            let name = match call.tool.as_str() {
                // Invalid input: the call failed and described no tool.
                DESCRIBE_TOOL => match serde_json::from_str::<DescribeInput>(&call.input) {
                    Ok(described) => described.name,
                    Err(_) => continue,
                },
                called => called.to_owned(),
            };
            if !names.contains(&name) {
                names.push(name);
            }
            if names.len() == MAX_RECENT_TOOLS {
                return names;
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use holdfast_types::{ToolCall, Usage};

    use super::*;

    fn thought(calls: &[(&str, &str)]) -> Entry {
        let calls = calls.iter().enumerate().map(|(at, (tool, input))| ToolCall {
            id: at.to_string(),
            tool: (*tool).to_owned(),
            input: (*input).to_owned(),
        });
        Entry::Thought {
            text: String::new(),
            calls: calls.collect(),
            usage: Usage::default(),
            model: String::new(),
            carry: None,
            record: None,
        }
    }

    #[test]
    fn what_was_described_or_called_is_sought_the_last_first_and_once() {
        let journal = [
            thought(&[("tool_describe", r#"{"name":"message"}"#), ("read", "{}")]),
            thought(&[("tool_describe", "{"), ("message", "{}")]),
        ];

        assert_eq!(recently_used_tools(&journal), ["message", "read"]);
        assert_eq!(recently_used_tools(&[]), [""; 0]);
    }

    #[test]
    fn only_so_many_stay_open() {
        let names: Vec<String> = (0..MAX_RECENT_TOOLS + 4).map(|at| format!("tool{at}")).collect();
        let journal: Vec<Entry> = names.iter().map(|name| thought(&[(name, "{}")])).collect();

        let found = recently_used_tools(&journal);

        assert_eq!(found.len(), MAX_RECENT_TOOLS);
        assert_eq!(found.first(), names.last());
    }
}
