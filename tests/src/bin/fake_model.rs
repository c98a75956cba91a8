//! The testkit's fake model as a process of its own, so that what it costs is not counted with
//! what is measured.
//!
//! It prints its base URL as the first line of stdout and runs until it is killed. Other processes
//! say by `POST /script` what it answers.

use std::{io::Write as _, time::Duration};

use anyhow::Context as _;
use clap::Parser;
use holdfast_testkit::{FakeModel, Reply, model::Request};
use serde_json::{Value, json};

/// A model that answers after a while, and may call a tool first
#[derive(Debug, Parser)]
struct Args {
    /// How many milliseconds pass before each answer begins
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,

    /// A tool that it calls without arguments for each message
    #[arg(long)]
    tool: Option<String>,

    /// How often it calls the tool, one call after the other
    #[arg(long, default_value_t = 1)]
    rounds: usize,

    /// Play the built-in behaviours with a list of so many todos; each step has the tool as its action
    #[arg(long)]
    todos: Option<usize>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let model = FakeModel::start().await?;
    model.forget_requests();
    model.latency(Duration::from_millis(args.latency_ms));
    if let Some(tool) = args.tool {
        model.answer(move |request| match args.todos {
            Some(todos) => Reply::text(step_result(request, &tool, todos).to_string()),
            None => call_or_answer(request, &tool, args.rounds),
        });
    }

    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", model.url()).context("cannot tell where the model is")?;
    stdout.flush()?;
    std::future::pending().await
}

/// Calls the tool until it has the results of all rounds, then answers.
fn call_or_answer(request: &Request, tool: &str, rounds: usize) -> Reply {
    let since_asked = request.messages().iter().rev().take_while(|one| one["role"] != "user");
    let results = since_asked.filter(|message| message["role"] == "tool").count();
    match request.tool_results().first() {
        Some((_, result)) if results >= rounds => {
            Reply::text(format!("The tool said {} bytes.", result.len()))
        }
        _ => Reply::call(format!("call_{}", request.messages().len()), tool, "{}"),
    }
}

/// Result of a step of the built-in behaviours `plan`, `do` and `check`.
fn step_result(request: &Request, tool: &str, todos: usize) -> Value {
    let system = request.messages().first().and_then(|first| first["content"].as_str());
    let system = system.unwrap_or_default();
    let actions = json!([{"tool": tool, "input": {}}]);
    if system.contains("You plan work; you do none of it.") {
        let items =
            (1..=todos).map(|number| json!({"title": format!("part {number} of the work")}));
        let items: Vec<Value> = items.collect();
        let todos = json!([{"op": "init", "items": items}]);
        let next = "DO:todo=T001";
        return json!({"actions": actions, "todo_delta": todos, "next_behavior": next});
    }
    let update = |number: usize, status: &str| {
        let code = format!("T{number:03}");
        json!({"op": "update", "code": code, "to_status": status, "reason": "as planned"})
    };
    if system.contains("You check what was done") {
        let done: Vec<Value> = (1..=todos).map(|number| update(number, "DONE")).collect();
        return json!({"actions": actions, "todo_delta": done, "reply": "All of it is done.",
                      "next_behavior": "END"});
    }
    let number = current_todo(&request.last_user_text());
    let next = match number < todos {
        true => format!("DO:todo=T{:03}", number + 1),
        false => "CHECK".to_owned(),
    };
    let done = [update(number, "IN_PROGRESS"), update(number, "COMPLETE")];
    json!({"actions": actions, "todo_delta": done, "next_behavior": next})
}

/// Number of the todo that a step is run for.
fn current_todo(input: &str) -> usize {
    let todo = input.split_once("<current_todo>\nT").map_or("", |(_, todo)| todo);
    let digits: String = todo.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(1)
}
