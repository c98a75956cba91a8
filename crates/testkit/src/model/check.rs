//! Checks of a provider: tool calls without results and results without calls are refused.

use serde_json::Value;

/// What is wrong with a conversation, in words.
pub(super) fn violations(messages: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            match open.iter().position(|call| *call == id) {
                Some(call) => drop(open.swap_remove(call)),
                None => {
                    found.push(format!("message {at} is a result without an open call: `{id}`"))
                }
            }
            continue;
        }
        report_open(&mut open, &mut found, at);
        for call in message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice) {
            let id = call["id"].as_str().unwrap_or_default();
            if id.is_empty() {
                found.push(format!("message {at} has a call without an id"));
            } else if open.contains(&id) {
                found.push(format!("message {at} has two calls with the id `{id}`"));
            } else {
                open.push(id);
            }
            let arguments = call["function"]["arguments"].as_str();
            if arguments.is_none_or(|text| serde_json::from_str::<Value>(text).is_err()) {
                found.push(format!(
                    "message {at}: the arguments of `{id}` are not JSON in a string"
                ));
            }
        }
    }
    report_open(&mut open, &mut found, messages.len());
    found
}

fn report_open(open: &mut Vec<&str>, found: &mut Vec<String>, at: usize) {
    for id in open.drain(..) {
        found.push(format!("the call `{id}` has no result before message {at}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calls(ids: &[&str]) -> Value {
        let calls: Vec<Value> = ids
            .iter()
            .map(|id| json!({"id": id, "function": {"name": "f", "arguments": "{}"}}))
            .collect();
        json!({"role": "assistant", "tool_calls": calls})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "done"})
    }

    fn user() -> Value {
        json!({"role": "user", "content": "hi"})
    }

    #[test]
    fn each_call_has_one_result_and_each_result_a_call() {
        let table = [
            (vec![user(), calls(&["a", "b"]), result("b"), result("a"), user()], 0),
            (vec![user()], 0),
            (vec![calls(&["a"])], 1),
            (vec![calls(&["a"]), user(), result("a")], 2),
            (vec![calls(&["a"]), result("a"), result("a")], 1),
            (vec![result("a")], 1),
            (vec![calls(&["a", "a"]), result("a")], 1),
            (vec![calls(&["a"]), result("a"), calls(&["a"]), result("a")], 0),
        ];
        for (messages, expected) in table {
            let found = violations(&messages);
            assert_eq!(found.len(), expected, "{messages:?}: {found:?}");
        }
    }

    #[test]
    fn arguments_that_are_not_json_are_found() {
        let mut message = calls(&["a"]);
        message["tool_calls"][0]["function"]["arguments"] = json!("{half");

        let found = violations(&[message, result("a")]);

        assert_eq!(found, ["message 0: the arguments of `a` are not JSON in a string"]);
    }
}
