//! Tests of the registry.

use proptest::{prelude::*, sample::select};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::mesh::tests::{call, said, tell, world};

/// Say something again and again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RepeatInput {
    /// What to say.
    text: String,
    /// How often.
    #[serde(default)]
    times: usize,
}

struct Repeat;

impl Tool for Repeat {
    const NAME: &'static str = "repeat";
    const EFFECT: Effect = Effect::Reads;
    type Input = RepeatInput;

    async fn call(&self, _: Call, input: RepeatInput) -> Result<String, ToolError> {
        match input.times {
            0 => Err(anyhow::anyhow!("the parrot is ill").into()),
            times => Ok(input.text.repeat(times)),
        }
    }
}

/// Run a command.
#[derive(Debug, Deserialize, JsonSchema)]
struct ExecInput {
    /// What to run.
    command: String,
}

struct Exec;

impl Tool<Output> for Exec {
    const NAME: &'static str = "exec";
    const EFFECT: Effect = Effect::Acts;
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(120));
    type Input = ExecInput;

    async fn approval(&self, _: &Call, input: &ExecInput) -> Result<Approval, ToolError> {
        Ok(match input.command.as_str() {
            "panic" => panic!("a secret in a panic"),
            "mkfs" => Approval::Deny("no".to_owned()),
            "ls" => Approval::Never,
            command => Approval::Ask {
                subject: format!("{command} in /workspace"),
                summary: command.to_owned(),
                pattern: None,
            },
        })
    }

    async fn call(&self, _: Call, input: ExecInput) -> Result<Output, ToolError> {
        match input.command.as_str() {
            "panic" => panic!("a secret in a panic"),
            command => Ok(Output::from(command.to_owned()).record(json!({ "exit": 0 }))),
        }
    }
}

fn tools() -> Registry {
    Registry::default().with(Repeat).with(Exec)
}

async fn told(name: &str, input: &str) -> String {
    tell(tools().call(call(), name, input).await)
}

#[tokio::test]
async fn a_model_that_errs_is_told_how() {
    assert_eq!(told("repet", "{}").await, "there is no tool `repet`; did you mean: repeat?");
    assert_eq!(told("bush", "{}").await, "there is no tool `bush`; did you mean: exec?");
    assert_eq!(told("zzz", "{}").await, "there is no tool `zzz`; there are: exec, repeat");
    assert_eq!(told("repeat", "").await, "the input is not right: missing field `text`");
    assert_eq!(
        told("repeat", r#"{"text":"a","loud":true}"#).await,
        "the input is not right: unknown field `loud`, expected `text` or `times`"
    );
    let text = told("repeat", r#"{"text":"a"#).await;
    assert!(text.starts_with("the input is not JSON: EOF while parsing"), "{text}");
}

#[tokio::test]
async fn a_tool_that_is_broken_is_not_the_models_fault() {
    let answer = tools().call(call(), "repeat", r#"{"text":"a"}"#).await;

    assert!(matches!(answer, Err(ToolError::Broken(_))));
}

#[tokio::test]
async fn a_tool_that_panics_is_told_of_and_ends_nothing() {
    let told = told("exec", r#"{"command":"panic"}"#).await;

    assert!(told.starts_with("`exec` broke down"), "{told}");
    assert!(told.contains("not known") && !told.contains("secret"), "{told}");
}

#[tokio::test]
async fn a_long_answer_is_cut_between_characters_and_says_so() {
    let answer = said(tools().call(call(), "repeat", r#"{"text":"語","times":30000}"#).await);

    assert!(answer.ends_with("語\n[cut off: 90000 bytes, and 65536 are the most]"));
    assert!(answer.len() < MAX_OUTPUT_BYTES + 100);
}

#[tokio::test]
async fn a_tool_is_called_by_another_name_with_that_names_arguments() {
    let output = tools().call(call(), "run_command", r#"{"cmd":"ls"}"#).await.unwrap();

    assert_eq!(output, Output::from("ls").record(json!({ "exit": 0 })));
}

#[tokio::test]
async fn what_a_call_may_not_use_is_refused_by_every_name() {
    let call = Call { allowed: AllowedTools::only(["repeat"]), ..call() };
    let tools = tools();

    for name in ["exec", "bash", "run_command"] {
        let told = tell(tools.call(call.clone(), name, r#"{"command":"ls"}"#).await);
        assert_eq!(told, "this tool is not one of yours; use those that you were given");
    }
    // A near miss reveals no other tools.
    assert!(!tell(tools.call(call, "zzz", "{}").await).contains("exec"));
}

#[tokio::test]
async fn an_input_without_names_is_refused() {
    let told = tell(tools().call(call(), "repeat", r#"["a", 2]"#).await);
    assert_eq!(told, "the input is no JSON object");
}

#[test]
fn what_is_not_here_acts() {
    assert_eq!(tools().effect("repeat"), Effect::Reads);
    assert_eq!(tools().effect("other"), Effect::Acts);
    assert_eq!(tools().effect("read_file"), Effect::Acts);
    assert_eq!(tools().canonical("read_file"), None);
}

#[test]
fn a_tool_may_take_its_own_time() {
    assert_eq!(tools().timeout("bash"), Some(Duration::from_secs(120)));
    assert_eq!(tools().timeout("repeat"), None);
}

#[test]
fn the_model_reads_the_doc_comments() {
    let [_, spec] = tools().specs().try_into().unwrap();

    assert_eq!(spec.description, "Say something again and again.");
    assert_eq!(spec.input["properties"]["times"]["description"], "How often.");
    assert_eq!(spec.input["additionalProperties"], false);
    assert_eq!(spec.input.get("title"), None);
}

/// Dynamic tool for tests.
struct Brings(&'static str, Effect);

impl DynamicTool for Brings {
    fn spec(&self) -> ToolSpec {
        let input = json!({ "type": "object", "properties": {} });
        ToolSpec { name: self.0.to_owned(), description: "Frob the widget.".to_owned(), input }
    }

    fn effect(&self) -> Effect {
        self.1
    }

    fn destination(&self) -> Option<crate::Destination> {
        Some(crate::Destination::new(format!("calls of {}", self.0)))
    }

    fn call(&self, _: Call, input: Value) -> crate::ToolFuture<'_> {
        Box::pin(async move { Ok(format!("frobbed {input}").into()) })
    }
}

fn joined(tools: Vec<Brings>, away: &[(&str, &str)]) -> Registry {
    let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn DynamicTool>).collect();
    let away = away.iter().map(|(prefix, why)| UnavailableSource {
        prefix: (*prefix).to_owned(),
        reason: (*why).to_owned(),
    });
    let brought = DynamicTools { tools, unavailable: away.collect(), is_incomplete: false };
    self::tools().with_direct_tools(["exec"]).with_dynamic_tools(brought)
}

#[tokio::test]
async fn what_others_bring_is_found_described_and_called_like_any_tool() {
    let tools = joined(vec![Brings("mcp_x_frob", Effect::Reads)], &[]);
    let ask = |name, input| tools.call(call(), name, input);

    assert_eq!(
        said(ask(SEARCH_TOOL, r#"{"query":"widget"}"#).await),
        "- mcp_x_frob: Frob the widget.\n"
    );
    assert!(
        said(ask(DESCRIBE_TOOL, r#"{"name":"mcp_x_frob"}"#).await).contains("Frob the widget.")
    );
    assert_eq!(said(ask("mcp_x_frob", r#"{"a":1}"#).await), r#"frobbed {"a":1}"#);
    assert_eq!(tools.effect("mcp_x_frob"), Effect::Reads);
    assert!(tools.is_brought("mcp_x_frob") && !tools.is_brought("exec"));
    let only = Call { allowed: AllowedTools::only(["repeat"]), ..call() };
    assert!(tell(tools.call(only, "mcp_x_frob", "{}").await).contains("not one of yours"));
}

#[test]
fn what_others_bring_takes_no_tools_place_by_any_of_its_names() {
    let names = ["repeat", "exec", "bash", "run_command", SEARCH_TOOL];
    let tools = joined(names.map(|name| Brings(name, Effect::Reads)).into(), &[]);

    assert_eq!(tools.specs().len(), 2, "{tools:?}");
    assert!(names.iter().all(|name| !tools.is_brought(name)));
    assert_eq!(tools.effect("exec"), Effect::Acts);
}

#[tokio::test]
async fn what_cannot_be_had_is_told_of_and_never_silently_missing() {
    let tools = joined(Vec::new(), &[("mcp_x_", "the MCP server `x` does not answer")]);
    let ask = |name, input| tools.call(call(), name, input);

    assert_eq!(tell(ask("mcp_x_frob", "{}").await), "the MCP server `x` does not answer");
    let found = said(ask(SEARCH_TOOL, r#"{"query":"widget"}"#).await);
    assert!(found.ends_with("\nNot to be had now: the MCP server `x` does not answer"), "{found}");
    assert!(tell(ask("mcp_y_frob", "{}").await).starts_with("there is no tool"));
}

proptest! {
    #[test]
    fn an_alias_has_the_effect_and_the_visibility_of_its_tool(
        alias in select(ALIASES),
        allowed in proptest::collection::vec(select(ALIASES), 0..6),
    ) {
        let (_, _, tools) = world();
        let tools = tools.with(Exec);
        let allowed = AllowedTools::only(allowed.into_iter().map(|alias| alias.tool));
        let call = Call { allowed, ..call() };
        let ask = |name: &str| {
            let answer = futures::executor::block_on(tools.call(call.clone(), name, "{}"));
            match answer {
                Err(ToolError::Tell(text)) if text.contains("not one of yours") => "refused",
                Err(ToolError::Tell(text)) if text.starts_with("there is no tool") => "unknown",
                _ => "called",
            }
        };

        prop_assert_eq!(tools.effect(alias.name), tools.effect(alias.tool));
        prop_assert_eq!(tools.timeout(alias.name), tools.timeout(alias.tool));
        prop_assert_eq!(tools.canonical(alias.name), tools.canonical(alias.tool));
        prop_assert_eq!(ask(alias.name), ask(alias.tool));
    }
}

#[tokio::test]
async fn a_tool_says_which_of_its_calls_need_a_persons_word() {
    let tools = tools();
    let asked = async |name: &str, input: &str| tools.approval(&call(), name, input).await;

    assert_eq!(asked("repeat", r#"{"text":"a"}"#).await.unwrap(), Approval::Never);
    assert_eq!(asked("exec", r#"{"command":"ls"}"#).await.unwrap(), Approval::Never);
    assert_eq!(
        asked("bash", r#"{"command":"rm x"}"#).await.unwrap(),
        Approval::Ask {
            subject: "rm x in /workspace".into(),
            summary: "rm x".into(),
            pattern: None
        }
    );
    assert_eq!(
        asked("exec", r#"{"command":"mkfs"}"#).await.unwrap(),
        Approval::Deny("no".to_owned())
    );
    let broke = asked("exec", r#"{"command":"panic"}"#).await.unwrap_err().to_string();
    assert!(broke.contains("may be tried once more") && !broke.contains("secret"), "{broke}");
    let wrong = asked("exec", "{}").await.unwrap_err().to_string();
    assert_eq!(wrong, "the input is not right: missing field `command`");
}
