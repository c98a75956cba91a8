//! Tests of the parser of results.

use holdfast_types::{StepAction, StepReply, TodoOperation, TodoStatus};
use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<StepResult, ResultError> {
    parse_result(Protocol::BehaviorResult, text)
}

fn route(text: &str) -> Result<StepResult, ResultError> {
    parse_result(Protocol::RouteResult, text)
}

fn reply(content: &str) -> StepReply {
    StepReply { audience: String::new(), format: String::new(), content: content.to_owned() }
}

#[test]
fn an_answer_is_found_directly_fenced_and_embedded() {
    let json = r#"{"reply": "hi", "next_behavior": "END"}"#;
    for text in [
        json.to_owned(),
        format!("\n  {json}\n"),
        format!("```json\n{json}\n```"),
        format!("```\n{json}\n```"),
        format!("```{json}```"),
        format!("Here it is:\n```json\n{{\"a\": 1}}\n```\nand\n```json\n{json}\n```\nBye."),
        format!("I think {{this}} is right: {json} Good?"),
        format!("{{\"note\": 1}} {json}"),
    ] {
        let result = parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(result.reply, [reply("hi")], "{text}");
        assert_eq!(result.next_behavior.as_deref(), Some("END"), "{text}");
    }
}

#[test]
fn all_spellings_of_the_references_are_read() {
    let result = parse(
        r#"{
            "thinking": "t", "reply": ["a", {"content": "b", "audience": "ann"}, " "],
            "tool_calls": [{"name": "read", "arguments": "{\"path\": \"x\"}"}, {"name": "now"}],
            "shell_commands": ["ls"],
            "todo": {"op": "update", "id": "T001", "to_status": "COMPLETE", "reason": "r"},
            "set_memory": [{"key": "tea", "value": "green"}, {"key": "old", "value": null}],
            "topic_tags": ["x"], "session_delta": [{"title": "T"}],
            "wait_details": null, "memory_queries": "tea", "next_behavior": "null"
        }"#,
    )
    .unwrap();

    assert_eq!(result.reply[0], reply("a"));
    assert_eq!((result.reply.len(), result.reply[1].audience.as_str()), (2, "ann"));
    let actions = [
        StepAction { tool: "read".into(), input: json!({"path": "x"}) },
        StepAction { tool: "now".into(), input: json!({}) },
        StepAction { tool: "exec".into(), input: json!({"command": "ls"}) },
    ];
    assert_eq!(result.actions, actions);
    let update = TodoOperation::Update {
        code: "T001".into(),
        to_status: Some(TodoStatus::Complete),
        priority: None,
        reason: "r".into(),
    };
    assert_eq!(result.todo_delta, [update]);
    assert_eq!((&*result.set_memory["tea"], &*result.set_memory["old"]), ("green", ""));
    assert_eq!(result.session_delta.title.as_deref(), Some("T"));
    assert_eq!(result.session_delta.tags, ["x"]);
    assert_eq!(result.memory_queries, ["tea"]);
    assert_eq!((result.next_behavior, result.wait_details), (None, None));
}

#[test]
fn a_route_result_needs_its_three_fields_and_at_most_one_target() {
    let some = r#"{"next_behavior": null, "reply": null, "memory_queries": []}"#;
    assert_eq!(route(some).unwrap(), StepResult::default());
    for (text, says) in [
        (r#"{"reply": "x", "memory_queries": []}"#, "`next_behavior` is missing"),
        (r#"{"next_behavior": "END", "memory_queries": []}"#, "`reply` is missing"),
        (r#"{"next_behavior": "END", "reply": "x"}"#, "`memory_queries` is missing"),
        (
            r#"{"next_behavior": "PLAN", "reply": "", "memory_queries": [],
                "session_id": "a", "new_session": {"title": "t"}}"#,
            "`new_session` is given too",
        ),
        (
            r#"{"next_behavior": "PLAN", "reply": "", "memory_queries": [],
                "actions": [{"tool": "exec", "input": {}}]}"#,
            "a RouteResult has none",
        ),
    ] {
        let error = route(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    let both = r#"{"next_behavior": "PLAN", "reply": "ok", "memory_queries": ["tea"],
                   "new_session": {"title": "t", "summary": "s"}}"#;
    assert_eq!(route(both).unwrap().new_session.unwrap().description, "s");
}

#[test]
fn what_cannot_be_read_says_what_to_correct() {
    for (text, says) in [
        ("", "no JSON object"),
        ("I am done.", "no JSON object"),
        ("{", "no JSON object"),
        ("[]", "no JSON object"),
        ("null", "no JSON object"),
        ("{}", "no JSON object"),
        (r#"{"answer": 1}"#, "no JSON object"),
        (r#"{"reply": "x", "next_behavior": "go home"}"#, "`next_behavior`: a behaviour is named"),
        (r#"{"reply": 3}"#, "`reply[0]`: invalid type"),
        (r#"{"reply": [{"text": "x"}]}"#, "`reply[0]`: missing field `content`"),
        (r#"{"actions": "ls"}"#, "`actions`: it is no list"),
        (r#"{"actions": [{"input": {}}]}"#, "`actions[0]`: missing field `tool`"),
        (r#"{"actions": [{"tool": "exec", "input": 3}]}"#, "the input of `exec` is no object"),
        (r#"{"actions": [{"tool": " ", "input": {}}]}"#, "names no tool"),
        (r#"{"todo_delta": [{"op": "destroy"}]}"#, "unknown variant `destroy`"),
        (
            r#"{"todo_delta": [{"op": "update", "code": "T1", "to_status": "OVER"}]}"#,
            "unknown variant `OVER`",
        ),
        (r#"{"set_memory": [1]}"#, "`set_memory`: it is no map"),
        (r#"{"wait_details": {"filter": {"moon": "full"}}}"#, "unknown field `moon`"),
        (r#"{"new_session": {"title": "x"}}"#, "only a behaviour with the protocol RouteResult"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    let many = format!(r#"{{"actions": [{}]}}"#, vec![r#"{"tool":"x","input":{}}"#; 33].join(","));
    assert!(parse(&many).unwrap_err().to_string().contains("it has 33, and 32 is the most"));
    let long = format!(r#"{{"thinking": "{}"}}"#, "x".repeat(MAX_ANSWER_BYTES));
    assert!(matches!(parse(&long), Err(ResultError::TooLong(_))));
    let acts = r#"{"actions": [{"tool": "exec", "input": {}}]}"#;
    let error = parse_result(Protocol::NoActionResult, acts).unwrap_err().to_string();
    assert!(error.contains("call tools directly"), "{error}");
}

#[test]
fn nul_characters_are_removed_because_the_database_stores_none() {
    let result = parse(r#"{"reply": "a\u0000b", "set_memory": {"k\u0000": "x", "t": "\u0000"}}"#);

    let result = result.unwrap();
    assert_eq!(result.reply, [reply("ab")]);
    assert_eq!(result.set_memory, [("t".to_owned(), String::new())].into());
}

proptest! {
    #[test]
    fn any_answer_is_a_result_or_an_error(
        text in "(\\{|\\}|\\[|\\]|\"|:|,|```|json\n|\"reply\"|\"actions\"|null|3|x| ){0,40}",
    ) {
        for protocol in [Protocol::BehaviorResult, Protocol::RouteResult, Protocol::NoActionResult] {
            let _ = parse_result(protocol, &text);
        }
    }

    #[test]
    fn a_result_that_is_written_is_read_again(
        content in "\\PC{1,40}", next in "[A-Z]{1,8}", key in "[a-z]{1,8}",
    ) {
        prop_assume!(!is_none(&next) && !content.trim().is_empty());
        let result = StepResult {
            reply: vec![reply(&content)],
            next_behavior: Some(next),
            set_memory: [(key, content)].into(),
            ..StepResult::default()
        };

        let text = serde_json::to_string(&result).unwrap();

        prop_assert_eq!(parse(&format!("So:\n```json\n{text}\n```")).unwrap(), result);
    }
}
