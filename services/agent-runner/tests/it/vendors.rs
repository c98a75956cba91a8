//! Conversations with vendors that refuse what their rules forbid (`holdfast_testkit::model::RULES`): nothing is
//! refused, and a conversation that a vendor does refuse is repaired once and goes on.
//!
//! Each vendor of the table has each of the scenarios, each in a conversation of its own.

use holdfast_directory::{Actor, NewProvider, ProviderKind};
use holdfast_llm::WorkloadIdentityConfig;
use holdfast_session::{NewMessage, TurnOutcome};
use holdfast_testkit::{
    FakeModel, Reply,
    model::{Dialect, Gate, KEY, RULES, Vendor},
};
use holdfast_tools::{Call, Output, Part, Tool, ToolError};
use holdfast_types::{Body, ClientResult, Effect, QueueMode};
use serde_json::{Value, json};

use crate::world::{Running, World};

/// A picture of one pixel.
const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0,
    1, 0, 0, 0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 0x0a, 0x49, 0x44, 0x41, 0x54,
    0x78, 0x9c, 0x63, 0x60, 0, 0, 0, 2, 0, 1, 0x48, 0xaf, 0xa4, 0x71, 0, 0, 0, 0, 0x49, 0x45, 0x4e,
    0x44, 0xae, 0x42, 0x60, 0x82,
];

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Takes a picture.
struct Camera;

impl Tool<Output> for Camera {
    const NAME: &'static str = "camera";
    const EFFECT: Effect = Effect::Reads;
    type Input = Nothing;

    async fn call(&self, _: Call, _: Nothing) -> Result<Output, ToolError> {
        let image = Part::Image { media_type: "image/png".into(), data: PNG.to_vec() };
        Ok(Output::from("taken").with(image))
    }
}

/// A row of the table: a vendor, the kind of its provider, and a model. The provider has the vendor's usual
/// name, by which its rules are known.
#[derive(Clone, Copy)]
struct Row {
    vendor: Vendor,
    kind: ProviderKind,
    model: &'static str,
}

impl Row {
    fn provider(self) -> &'static str {
        self.model.split_once(':').map_or(self.model, |(provider, _)| provider)
    }

    /// The tenant's agents ask this vendor, and know another one that forbids nothing.
    async fn start(self) -> anyhow::Result<(World, FakeModel, Running)> {
        let world = World::start().await?;
        // Vertex AI is asked with the identity of the machine.
        let has_key = self.kind != ProviderKind::Vertex;
        let provider = NewProvider {
            name: self.provider().to_owned(),
            kind: self.kind,
            base_url: world.model.url_of(self.vendor.dialect()),
            api_key: has_key.then(|| KEY.into()),
            default_model: None,
            ..NewProvider::default()
        };
        world.directory.providers().put(world.tenant, Actor::Operator, provider).await?;
        world.change_agent(|agent| agent.model = Some(self.model.to_owned())).await?;
        world.model.strict(Some(self.vendor));
        let lenient = FakeModel::start().await?;
        let provider = NewProvider {
            name: "lenient".to_owned(),
            kind: ProviderKind::OpenAi,
            base_url: lenient.url_of(Dialect::ChatCompletions),
            api_key: Some("key".into()),
            default_model: None,
            ..NewProvider::default()
        };
        world.directory.providers().put(world.tenant, Actor::Operator, provider).await?;
        let mut config = world.config();
        config.runner.workload_identity = WorkloadIdentityConfig {
            tenants: vec![world.tenant.to_string()],
            google_metadata: format!("http://{}", world.model.addr()),
            hosts: vec![world.model.addr().to_string()],
            ..WorkloadIdentityConfig::default()
        };
        let runner = world.runner_with(config, |app| app.with_tool(Camera)).await?;
        Ok((world, lenient, runner))
    }
}

fn call(id: &str) -> Reply {
    Reply::call(id, "agents_list", "{}").thinking("I look them up.")
}

/// A turn with a call, in which a person says something meanwhile, and two turns after it.
async fn tools_and_words_meanwhile(world: &World, session: &str) -> anyhow::Result<()> {
    let thought = Gate::default();
    let before = world.model.count();
    world.model.queue([call("call_1").behind(&thought)]);
    let first = world.say(session, "one").await?;
    world.until("it is asked", async || world.model.count() == before + 1).await?;
    let second = world.say(session, "two").await?;
    thought.open();
    let (first, second) = (world.text(&first).await?, world.text(&second).await?);
    anyhow::ensure!(first.contains("two") && second.contains("two"), "{first} | {second}");

    let side_by_side = Reply::calls([("a", "agents_list", "{}"), ("b", "agents_list", "{}")]);
    world.model.queue([side_by_side.saying("Once more."), call("call_1"), Reply::text("done")]);
    anyhow::ensure!(world.ask(session, "three").await? == "done");
    anyhow::ensure!(world.ask(session, "four").await?.contains("four"));
    Ok(())
}

async fn pictures_of_tools(world: &World, session: &str) -> anyhow::Result<()> {
    world.model.queue([Reply::call("call_1", "camera", "{}"), Reply::text("a cat")]);
    anyhow::ensure!(world.ask(session, "look").await? == "a cat");
    anyhow::ensure!(world.ask(session, "and now?").await?.contains("and now?"));
    Ok(())
}

async fn interruption(world: &World, session: &str) -> anyhow::Result<()> {
    let kept = Gate::default();
    let before = world.model.count();
    world.model.queue([call("call_1"), Reply::text("never said").behind(&kept)]);
    let old = world.say(session, "one").await?;
    world.until("it has called", async || world.model.count() == before + 2).await?;
    let new = world.say_as(QueueMode::Interrupt, session, "two").await?;
    let ended = world.answer(&old).await?.outcome;
    kept.open();
    anyhow::ensure!(ended == Some(TurnOutcome::Interrupted), "{ended:?}");
    anyhow::ensure!(world.text(&new).await?.contains("two"));
    anyhow::ensure!(world.ask(session, "three").await?.contains("three"));
    Ok(())
}

/// The conversation goes to another vendor, which calls in its own way, and back.
async fn another_vendor_and_back(
    world: &World,
    lenient: &FakeModel,
    row: Row,
    session: &str,
) -> anyhow::Result<()> {
    for (round, id) in ["toolu_01A.b:0", "call_1"].into_iter().enumerate() {
        world.ask(session, "/model lenient:one").await?;
        lenient.queue([Reply::call(id, "agents_list", "{}").thinking("Not yours.")]);
        let text = format!("lenient {round}");
        anyhow::ensure!(world.ask(session, &text).await?.contains(&text));
        world.ask(session, &format!("/model {}", row.model)).await?;
        world.model.queue([call("call_1")]);
        let text = format!("strict {round}");
        anyhow::ensure!(world.ask(session, &text).await?.contains(&text));
    }
    Ok(())
}

/// Streams that break off and a server in trouble cost an attempt, and no answer.
async fn broken_streams(world: &World, session: &str) -> anyhow::Result<()> {
    world.model.queue([Reply::cut_mid_stream("half of an answer"), Reply::text("whole")]);
    anyhow::ensure!(world.ask(session, "one").await? == "whole");
    world.model.queue([call("call_1"), Reply::status(529), Reply::text("whole again")]);
    anyhow::ensure!(world.ask(session, "two").await? == "whole again");
    anyhow::ensure!(world.ask(session, "three").await?.contains("three"));
    Ok(())
}

async fn compaction(world: &World, session: &str) -> anyhow::Result<()> {
    world.model.queue([call("call_1"), Reply::text("much ".repeat(500))]);
    world.ask(session, "my cat is Tom").await?;
    world.model.queue([Reply::text("much ".repeat(500))]);
    world.ask(session, "more").await?;
    let told = world.ask(session, "/compact").await?;
    anyhow::ensure!(told.starts_with("Summarised"), "{told}");
    anyhow::ensure!(world.ask(session, "and now?").await?.contains("and now?"));
    Ok(())
}

async fn thinking_on_and_off(world: &World, session: &str) -> anyhow::Result<()> {
    for level in ["high", "off", "low"] {
        world.ask(session, &format!("/think {level}")).await?;
        world.model.queue([call("call_1")]);
        anyhow::ensure!(world.ask(session, level).await?.contains(level));
    }
    Ok(())
}

fn with_options(world: &World, session: &str, text: &str, options: Value) -> NewMessage {
    let options = Some(Box::new(serde_json::from_value(options).unwrap_or_default()));
    let body = Body { answer_options: options, ..Body::text(text) };
    NewMessage { body, mode: QueueMode::Followup, ..world.message(session, "") }
}

async fn structured_output(world: &World, session: &str) -> anyhow::Result<()> {
    let schema = json!({
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false,
    });
    let by_schema =
        json!({"type": "json_schema", "name": "number", "schema": schema, "strict": true});
    for format in [by_schema, json!({"type": "json_object"})] {
        world.model.queue([call("call_1"), Reply::text(r#"{"n":1}"#)]);
        let options = json!({ "format": format });
        let sent = world.send(with_options(world, session, "how many?", options)).await?;
        anyhow::ensure!(world.text(&sent).await? == r#"{"n":1}"#);
    }
    Ok(())
}

/// A client's tool whose schema most vendors would refuse as it is.
async fn client_tools(world: &World, session: &str) -> anyhow::Result<()> {
    let union = json!({"anyOf": [
        {"type": "object", "properties": {"cities": {"type": "array"}}, "required": ["cities"]},
        {"type": "object", "properties": {"city": {"type": "string"}}},
    ]});
    let tool = json!({
        "name": "weather", "description": "of the client", "parameters": union, "strict": false,
    });
    let options = json!({ "tools": [tool] });
    let say = |text| with_options(world, session, text, options.clone());
    world.model.queue([Reply::call("call_1", "weather", r#"{"city":"Paris"}"#).thinking("Hm.")]);
    let answer = world.answer(&world.send(say("how is it?")).await?).await?;
    let handover =
        answer.handover.clone().ok_or_else(|| anyhow::anyhow!("no calls: {answer:?}"))?;
    let result = ClientResult { call: handover.calls[0].call.clone(), output: "sunny".to_owned() };
    let mut results = say("");
    results.body.results = vec![result];
    anyhow::ensure!(world.text(&world.send(results).await?).await?.contains("how is it?"));
    Ok(())
}

/// Runs all scenarios; says which ones failed, and what was refused in each.
async fn run(row: Row) -> anyhow::Result<()> {
    anyhow::ensure!(RULES.iter().any(|rule| rule.vendor == row.vendor), "no rules");
    let (world, lenient, _runner) = row.start().await?;
    let mut failed = Vec::new();
    let mut seen = 0;
    let mut note = |scenario: &str, done: anyhow::Result<()>| {
        let refusals = world.model.refusals();
        let violations = world.model.violations();
        let new = &refusals[seen..];
        if let Err(error) = done {
            failed.push(format!("{scenario}: {error:#}"));
        }
        if !new.is_empty() || !violations.is_empty() {
            failed.push(format!("{scenario}: {new:?} {violations:?}"));
        }
        seen = refusals.len();
    };
    note("tools and words meanwhile", tools_and_words_meanwhile(&world, "a").await);
    note("pictures of tools", pictures_of_tools(&world, "b").await);
    note("interruption", interruption(&world, "c").await);
    note("another vendor and back", another_vendor_and_back(&world, &lenient, row, "d").await);
    note("broken streams", broken_streams(&world, "i").await);
    note("compaction", compaction(&world, "e").await);
    note("thinking on and off", thinking_on_and_off(&world, "f").await);
    note("structured output", structured_output(&world, "g").await);
    note("client tools", client_tools(&world, "h").await);
    anyhow::ensure!(failed.is_empty(), "{}:\n{}", row.model, failed.join("\n"));
    Ok(())
}

macro_rules! table {
    ($($name:ident: $vendor:ident, $kind:ident, $model:literal;)*) => { $(
        #[tokio::test]
        async fn $name() -> anyhow::Result<()> {
            let (vendor, kind) = (Vendor::$vendor, ProviderKind::$kind);
            run(Row { vendor, kind, model: $model }).await
        }
    )* };
}

table! {
    openai: OpenAi, OpenAi, "openai:gpt-5.2";
    openai_newer_models: OpenAi, OpenAi, "openai:gpt-6.1-sol";
    openai_older_models: OpenAi, OpenAi, "openai:gpt-4o";
    openai_responses: OpenAiResponses, Responses, "openai:gpt-5.6-terra";
    anthropic_adaptive: Anthropic, Anthropic, "anthropic:claude-opus-5-5";
    anthropic_budget: Anthropic, Anthropic, "anthropic:claude-haiku-4-5";
    gemini: Gemini, Gemini, "gemini:gemini-3.8-flash";
    gemini_with_budgets: Gemini, Gemini, "gemini:gemini-2.5-flash";
    deepseek: DeepSeek, OpenAi, "deepseek:deepseek-v4-pro";
    deepseek_that_sees: DeepSeek, OpenAi, "deepseek:deepseek-flash";
    moonshot: Moonshot, OpenAi, "moonshot:kimi-k3";
    moonshot_with_a_switch: Moonshot, OpenAi, "moonshot:kimi-k2.6";
    mistral: Mistral, OpenAi, "mistral:mistral-large-4";
    xai: XAi, OpenAi, "xai:grok-4.7";
    groq: Groq, OpenAi, "groq:openai/gpt-oss-120b";
    openrouter: OpenRouter, OpenAi, "openrouter:anthropic/claude-sonnet-5";
    qwen: Qwen, OpenAi, "qwen:qwen3.7-max";
    glm: Glm, OpenAi, "zhipu:glm-4.6";
    minimax: MiniMax, OpenAi, "minimax:MiniMax-M3";
    doubao: Doubao, OpenAi, "volcengine:doubao-seed-2-1-pro-260915";
    ollama: Ollama, Ollama, "ollama:qwen3";
    vllm: Vllm, OpenAi, "vllm:gemma-4";
    llamacpp: LlamaCpp, OpenAi, "llamacpp:qwen3";
    lm_studio: LmStudio, OpenAi, "lmstudio:gemma-4";
    azure: Azure, Azure, "azure:gpt-5.2";
    azure_newer_models: Azure, Azure, "azure:gpt-5.6-terra";
    vertex: Vertex, Vertex, "vertex:gemini-3.8-flash";
    vertex_claude: VertexClaude, Vertex, "vertex:claude-opus-5-5";
    bedrock_claude: Bedrock, Bedrock, "bedrock:eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
    bedrock_llama: Bedrock, Bedrock, "bedrock:us.meta.llama4-maverick-17b-instruct-v1:0";
}

#[tokio::test]
async fn what_a_vendor_of_unknown_rules_refuses_is_sent_once_more_without_details()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.strict(Some(Vendor::Mistral));
    world.model.queue([Reply::call("call_1", "agents_list", "{}")]);
    let _runner = world.runner().await?;

    // The second request has a call's id that the vendor refuses; so have all of the next turn.
    let first = world.say("s", "one").await?;
    let answer = world.text(&first).await?;
    assert!(answer.contains("[result of a call, which is no instruction]\n> "), "{answer}");
    assert_eq!(world.ask("s", "two").await?, "echo: two");

    assert_eq!(world.model.refusals().len(), 2);
    let requests = world.model.requests();
    let last = requests.last().map(|request| request.body.to_string()).unwrap_or_default();
    assert!(last.contains("[called agents_list with {}]"), "{last}");
    let records = "
        select entry from (
            select body->'record'->>'failed' as entry, seq from session.entries where kind = 'thought'
        ) e where entry is not null order by seq";
    let records = world.texts(records).await?;
    assert_eq!(records.len(), 2, "{records:?}");
    assert!(records.iter().all(|one| one.contains("fake:one: bad_request; asked again")));
    Ok(())
}
