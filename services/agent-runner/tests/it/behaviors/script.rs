//! A scripted model that plays the built-in behaviours: it plans two tasks and a bench, does the
//! first one badly, finds that in the check, and repairs it.

use holdfast_testkit::{Reply, model::Request};
use serde_json::{Value, json};

/// The behaviour whose prompt a request has.
pub fn behavior_of(asked: &Request) -> &'static str {
    let system = asked.messages()[0]["content"].as_str().unwrap_or_default();
    let known = [
        ("You are the first to see what arrives.", "route"),
        ("You plan work; you do none of it.", "plan"),
        ("You work on one todo", "do"),
        ("You check what was done", "check"),
        ("Something failed, or a behaviour ran out of steps.", "adjust"),
    ];
    known.iter().find(|(text, _)| system.contains(text)).map_or("other", |(_, name)| name)
}

/// What the user's side of a request says, without the results of tools.
pub fn shown(asked: &Request) -> String {
    let user = asked.messages().iter().filter(|message| message["role"] == "user");
    user.filter_map(|message| message["content"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The input section of a request.
pub fn input(asked: &Request) -> String {
    let shown = shown(asked);
    let start = shown.rfind("<<input>>").unwrap_or(0);
    shown[start..].to_owned()
}

/// Number of results of tools that a request shows.
pub fn tool_count(asked: &Request) -> usize {
    asked.messages().iter().filter(|message| message["role"] == "tool").count()
}

pub fn result(value: &Value) -> Reply {
    Reply::text(value.to_string())
}

fn update(code: &str, to: &str) -> Value {
    json!({"op": "update", "code": code, "to_status": to, "reason": "as it is"})
}

fn write(path: &str, content: &str) -> Value {
    json!({"tool": "write", "input": {"path": path, "content": content}})
}

/// Whether the todo that the step is run for begins like this.
fn is_current(input: &str, todo: &str) -> bool {
    input.contains(&format!("<current_todo>\n{todo}"))
}

fn plan() -> Value {
    let items = json!([
        {"title": "write the text", "description": "out.txt says that it is final"},
        {"title": "write the note"},
        {"title": "both are there", "type": "bench"},
    ]);
    json!({
        "thinking": "two tasks and a bench",
        "todo_delta": [{"op": "init", "items": items}],
        "next_behavior": "DO:todo=T001",
    })
}

fn work(input: &str) -> Value {
    let begun = [update("T001", "IN_PROGRESS")];
    let done = |code: &str| json!([update(code, "IN_PROGRESS"), update(code, "COMPLETE")]);
    if is_current(input, "T001 WAIT") && input.contains("Attempts: ") {
        json!({"actions": [write("out.txt", "final")], "todo_delta": done("T001"),
               "next_behavior": "CHECK"})
    } else if is_current(input, "T001 WAIT") {
        json!({"todo_delta": begun})
    } else if is_current(input, "T001 IN_PROGRESS") {
        json!({"actions": [write("out.txt", "draft")],
               "todo_delta": [update("T001", "COMPLETE")], "next_behavior": "DO:todo=T002"})
    } else {
        json!({"actions": [write("note.txt", "see out.txt")], "todo_delta": done("T002"),
               "next_behavior": "CHECK"})
    }
}

fn check(asked: &Request) -> Reply {
    let results = asked.tool_results();
    let Some((_, text)) = results.first() else {
        return Reply::call("read-it", "read", json!({"path": "out.txt"}).to_string());
    };
    if text.contains("draft") {
        return result(&json!({
            "todo_delta": [update("T001", "CHECK_FAILED")],
            "next_behavior": "ADJUST:todo=T001",
        }));
    }
    let done = ["T001", "T002", "T003"].map(|code| update(code, "DONE"));
    result(&json!({
        "todo_delta": done,
        "reply": [{"content": "All is done."}],
        "next_behavior": "END",
    }))
}

/// Answers as the current behaviour does. The same request always has the same answer.
pub fn play(asked: &Request) -> Reply {
    let input = input(asked);
    match behavior_of(asked) {
        "route" => result(&json!({
            "next_behavior": "PLAN", "reply": "On it.", "memory_queries": []
        })),
        "plan" => result(&plan()),
        "do" => result(&work(&input)),
        "check" => check(asked),
        "adjust" => result(&json!({
            "todo_delta": [update("T001", "WAIT")], "next_behavior": "DO:todo=T001"
        })),
        _ => Reply::text("this is no behaviour"),
    }
}
