//! `holdfast behaviors try`: steps without their effects.

use std::fmt::Write as _;

use clap::Args;
use holdfast_proto::gateway::v1::{TriedStep, TryBehaviorRequest, TryBehaviorResponse};
use serde_json::{Value, json};

use super::{Owner, source_of};
use crate::{
    client::Client,
    commands::option_values,
    error::Error,
    screen::Screen,
    view::{dollars, usage},
};

#[derive(Debug, Args)]
pub struct Trial {
    /// Name of the behaviour, with parameters as in `do:todo=T001`
    name: String,
    /// Answer of the model: text, `@file`, or `-` for stdin [default: the agent's model is asked]
    #[arg(conflicts_with = "answers")]
    answer: Option<String>,
    /// Document to use instead of the one in effect; `-` is stdin
    #[arg(long)]
    file: Option<String>,
    /// Answers of the model, one for each step: a list in YAML or JSON, or a JSON object in each line
    #[arg(long, value_name = "FILE")]
    answers: Option<String>,
    /// New message; may be given several times
    #[arg(long = "message")]
    messages: Vec<String>,
    /// New event; may be given several times
    #[arg(long = "event")]
    events: Vec<String>,
    /// Code of the current todo, as the parameter `todo` of the behaviour
    #[arg(long, value_name = "CODE")]
    todo: Option<String>,
    /// Session whose todo list the steps begin with [default: an empty list]
    #[arg(long, default_value = "", hide_default_value = true)]
    session: String,
    /// Number of the step, from 0
    #[arg(long, default_value_t = 0)]
    step: u32,
    /// Summary of the step before; from step 1 on
    #[arg(long, default_value = "", hide_default_value = true)]
    last_step: String,
    /// Memory; may be given several times
    #[arg(long = "memory")]
    memories: Vec<String>,
    #[command(flatten)]
    of: Owner,
}

impl Trial {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let answers = match (self.answer, self.answers) {
            (Some(answer), _) => vec![option_values::text(&answer)?],
            (None, Some(file)) => {
                let path = file.strip_prefix('@').unwrap_or(&file);
                let source = if file == "-" { file.clone() } else { format!("@{path}") };
                answers_of(&option_values::text(&source)?)?
            }
            (None, None) => Vec::new(),
        };
        let name = match &self.todo {
            Some(code) => format!("{}:todo={code}", self.name),
            None => self.name,
        };
        let wanted = TryBehaviorRequest {
            agent: self.of.agent,
            name,
            source: source_of(self.file)?,
            messages: self.messages,
            events: self.events,
            session: self.session,
            last_step: self.last_step,
            step: self.step,
            memories: self.memories,
            answers,
        };
        let tried = client.behavior_trials().try_behavior(client.request(wanted)).await;
        let tried = client.answer(tried)?;
        match screen.is_json() {
            true => screen.one(&[], &view(&tried))?,
            false => screen.print(&text(&tried))?,
        }
        match tried.steps.last() {
            Some(last) if matches!(last.next.as_str(), "correct" | "fail") => {
                let error = format!("the answer cannot be used: {}", last.error);
                Err(Error::Other(anyhow::anyhow!(error)))
            }
            _ => Ok(()),
        }
    }
}

/// Reads a file of answers. What is no list and no lines of JSON is one answer.
fn answers_of(text: &str) -> Result<Vec<String>, Error> {
    let answer = |value: Value| match value {
        Value::String(text) => text,
        value => value.to_string(),
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let objects: Result<Vec<serde_json::Map<String, Value>>, _> =
        lines.map(serde_json::from_str).collect();
    let answers = match (objects, serde_saphyr::from_str::<Value>(text)) {
        (Ok(objects), _) => objects.into_iter().map(|object| answer(object.into())).collect(),
        (Err(_), Ok(Value::Array(list))) => list.into_iter().map(answer).collect(),
        (Err(_), _) => vec![text.to_owned()],
    };
    if answers.is_empty() {
        return Err(Error::Usage("--answers: the file has no answer".to_owned()));
    }
    Ok(answers)
}

fn text(tried: &TryBehaviorResponse) -> String {
    let mut text = String::new();
    for step in &tried.steps {
        step_text(&mut text, step);
    }
    if !tried.todos.is_empty() {
        _ = writeln!(text, "{}", tried.todos);
    }
    if tried.unused_answers > 0 {
        _ = writeln!(text, "answers without a step: {}", tried.unused_answers);
    }
    text
}

fn step_text(text: &mut String, step: &TriedStep) {
    _ = writeln!(
        text,
        "step {} of {}, prompt of about {} tokens",
        step.step, step.behavior, step.prompt_tokens
    );
    if let Some(usage) = &step.usage {
        _ = writeln!(
            text,
            "answer of {}: {} tokens read, {} written, {}",
            step.model,
            usage.input_tokens,
            usage.output_tokens,
            dollars(step.cost_micros)
        );
    }
    let mut part = |name: &str, value: &str| {
        if !value.trim().is_empty() {
            _ = writeln!(text, "{name}:\n  {}", value.trim().replace('\n', "\n  "));
        }
    };
    part("answer", &step.answer);
    for call in &step.calls {
        part("call", &format!("{} {}", call.tool, call.input));
    }
    if let Ok(result) = serde_json::from_str::<Value>(&step.result) {
        part("result", &format!("{result:#}"));
    }
    part("error", &step.error);
    for operation in &step.todo_operations {
        match operation.error.as_str() {
            "" => part("todo operation, applied", &operation.operation),
            error => part("todo operation, refused", &format!("{}\n{error}", operation.operation)),
        }
    }
    part("told to the next step", &step.observation);
    _ = writeln!(text, "next: {}\n", next_text(step));
}

fn next_text(step: &TriedStep) -> String {
    let next = format!("step {} of {}", step.next_step, step.next_behavior);
    match step.next.as_str() {
        "step" => next,
        "wait" => format!("the session waits, then {next}"),
        "wait_for_message" => format!("the session waits for a message, then {next}"),
        "wait_for_event" => format!("the session waits for an event, then {next}"),
        "end" => "the work has ended".to_owned(),
        "calls" => "the calls are made, and the model is asked again".to_owned(),
        "correct" => "the model is asked once more, with the error".to_owned(),
        "fail" => "the turn fails, and the session waits".to_owned(),
        "idle" => "there is no input: no model is asked".to_owned(),
        other => other.to_owned(),
    }
}

fn view(tried: &TryBehaviorResponse) -> Value {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let steps = tried.steps.iter().map(|step| {
        let operations = step.todo_operations.iter().map(|operation| {
            json!({"operation": parsed(&operation.operation), "error": operation.error})
        });
        let calls = step.calls.iter();
        let calls = calls.map(|call| json!({"tool": call.tool, "input": parsed(&call.input)}));
        json!({
            "behavior": step.behavior,
            "step": step.step,
            "prompt_tokens": step.prompt_tokens,
            "answer": step.answer,
            "calls": calls.collect::<Vec<_>>(),
            "result": parsed(&step.result),
            "error": step.error,
            "todo_operations": operations.collect::<Vec<_>>(),
            "next": step.next,
            "next_behavior": step.next_behavior,
            "next_step": step.next_step,
            "observation": step.observation,
            "summary": step.summary,
            "model": step.model,
            "usage": step.usage.as_ref().map(usage),
            "cost_micros": step.cost_micros,
        })
    });
    json!({
        "steps": steps.collect::<Vec<_>>(),
        "todos": tried.todos,
        "unused_answers": tried.unused_answers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_a_list_or_lines_or_one_text() {
        let lines = "{\"reply\": \"a\"}\n\n{\"next_behavior\": \"END\"}\n";
        assert_eq!(
            answers_of(lines).unwrap(),
            ["{\"reply\":\"a\"}", "{\"next_behavior\":\"END\"}"]
        );
        let list = "- reply: a\n- |\n  So:\n  {\"reply\": \"b\"}\n";
        assert_eq!(answers_of(list).unwrap(), ["{\"reply\":\"a\"}", "So:\n{\"reply\": \"b\"}\n"]);
        let json = "[\n{\"reply\": \"a\"},\n\"free text\"]";
        assert_eq!(answers_of(json).unwrap(), ["{\"reply\":\"a\"}", "free text"]);
        let pretty = "{\n\"reply\": \"a\"\n}";
        assert_eq!(answers_of(pretty).unwrap(), [pretty]);
        assert!(answers_of("").is_err());
    }

    #[test]
    fn a_step_tells_its_answer_what_is_refused_and_what_follows() {
        let operation = holdfast_proto::gateway::v1::TriedOperation {
            operation: "{\"op\":\"note\"}".to_owned(),
            error: "there is no todo `T009`".to_owned(),
        };
        let step = TriedStep {
            behavior: "DO:todo=T001".to_owned(),
            prompt_tokens: 90,
            answer: "{\"next_behavior\":\"WAIT\"}".to_owned(),
            todo_operations: vec![operation],
            next: "wait".to_owned(),
            next_behavior: "DO:todo=T001".to_owned(),
            ..TriedStep::default()
        };

        let text = text(&TryBehaviorResponse { steps: vec![step], ..Default::default() });

        assert!(text.starts_with("step 0 of DO:todo=T001, prompt of about 90 tokens\n"), "{text}");
        assert!(text.contains("refused:\n  {\"op\":\"note\"}\n  there is no todo `T009`\n"));
        assert!(text.contains("next: the session waits, then step 0 of DO:todo=T001\n"), "{text}");
    }
}
