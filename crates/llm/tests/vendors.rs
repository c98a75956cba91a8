//! Requests to vendors that refuse what their rules forbid: nothing is refused, whatever the conversation
//! before it was and whatever a client asks.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers too"
)]

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use holdfast_egress::{Guard, Lookup, LookupFuture};
use holdfast_llm::{Error, Models, Provider, Request, WorkloadIdentity, WorkloadIdentityConfig};
use holdfast_testkit::{
    FakeModel, Reply as Scripted,
    model::{AWS_KEYS, KEY, RULES, Vendor},
};
use holdfast_types::{
    AnswerOptions, Chat, ChatMessage, Image, ImageData, Reply, Thinking, ToolCall, ToolSpec,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A vendor, the kind of its provider, and a model. The provider has the vendor's usual name.
type Row = (Vendor, &'static str, &'static str);

/// Each vendor with the kinds of models that it has.
const TABLE: [Row; 39] = [
    (Vendor::OpenAi, "openai", "openai:gpt-6.1-sol"),
    (Vendor::OpenAi, "openai", "openai:gpt-5.4"),
    (Vendor::OpenAi, "openai", "openai:gpt-5.2"),
    (Vendor::OpenAi, "openai", "openai:gpt-4o"),
    (Vendor::OpenAiResponses, "openai-responses", "openai:gpt-5.6-terra"),
    (Vendor::Anthropic, "anthropic", "anthropic:claude-opus-5-5"),
    (Vendor::Anthropic, "anthropic", "anthropic:claude-opus-5"),
    (Vendor::Anthropic, "anthropic", "anthropic:claude-sonnet-4-6"),
    (Vendor::Anthropic, "anthropic", "anthropic:claude-haiku-4-5"),
    (Vendor::Gemini, "gemini", "gemini:gemini-3.8-flash"),
    (Vendor::Gemini, "gemini", "gemini:gemini-2.5-flash"),
    (Vendor::DeepSeek, "openai", "deepseek:deepseek-v4-pro"),
    (Vendor::DeepSeek, "openai", "deepseek:deepseek-flash"),
    (Vendor::Moonshot, "openai", "moonshot:kimi-k2.6"),
    (Vendor::Mistral, "openai", "mistral:mistral-large-4"),
    (Vendor::XAi, "openai", "xai:grok-4.7"),
    (Vendor::Groq, "openai", "groq:openai/gpt-oss-120b"),
    (Vendor::OpenRouter, "openai", "openrouter:anthropic/claude-sonnet-5"),
    (Vendor::Qwen, "openai", "qwen:qwen3.7-max"),
    (Vendor::Qwen, "openai", "qwen:qwen3.8-max"),
    (Vendor::Glm, "openai", "zhipu:glm-4.6"),
    (Vendor::MiniMax, "openai", "minimax:MiniMax-M3"),
    (Vendor::Doubao, "openai", "volcengine:doubao-seed-2-1-pro-260915"),
    (Vendor::Ollama, "ollama", "ollama:qwen3"),
    (Vendor::Ollama, "ollama", "ollama:llama3.2"),
    (Vendor::Vllm, "openai", "vllm:gemma-4"),
    (Vendor::LlamaCpp, "openai", "llamacpp:qwen3"),
    (Vendor::LmStudio, "openai", "lmstudio:gemma-4"),
    (Vendor::LmStudio, "openai", "lmstudio:openai/gpt-oss-20b"),
    (Vendor::Azure, "azure", "azure:gpt-5.6-terra"),
    (Vendor::Azure, "azure", "azure:gpt-5.2"),
    (Vendor::Azure, "azure", "azure:gpt-4o"),
    (Vendor::Vertex, "vertex", "vertex:gemini-3.8-flash"),
    (Vendor::Vertex, "vertex", "vertex:gemini-2.5-flash"),
    (Vendor::VertexClaude, "vertex", "vertex:claude-opus-5-5"),
    (Vendor::VertexClaude, "vertex", "vertex:claude-haiku-4-5@20251001"),
    (Vendor::Bedrock, "bedrock", "bedrock:eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    (Vendor::Bedrock, "bedrock", "bedrock:eu.anthropic.claude-opus-4-6-v1"),
    (Vendor::Bedrock, "bedrock", LLAMA),
];

const LLAMA: &str = "bedrock:us.meta.llama4-maverick-17b-instruct-v1:0";

/// Name of the fake's host for Bedrock, whose clients sign for the region in it.
const BEDROCK_HOST: &str = "bedrock-runtime.eu-west-1.example";

/// Finds every name on this machine.
struct Local;

impl Lookup for Local {
    fn lookup(&self, _: String) -> LookupFuture {
        Box::pin(async { Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]) })
    }
}

/// The settings of a vendor's provider: with a key, or for Vertex AI with the identity of this machine.
fn provider(vendor: Vendor, kind: &str, server: &FakeModel) -> Provider {
    let mut url = server.url_of(vendor.dialect());
    let mut key = json!(KEY);
    if vendor == Vendor::Bedrock {
        url = url.replace("127.0.0.1", BEDROCK_HOST);
        key = json!(AWS_KEYS);
    }
    let is_vertex = kind == "vertex";
    if is_vertex {
        key = Value::Null;
    }
    let provider = json!({"kind": kind, "base_url": url, "api_key": key});
    let provider: Provider = serde_json::from_value(provider).unwrap();
    let config = WorkloadIdentityConfig {
        tenants: vec!["*".to_owned()],
        google_metadata: format!("http://{}", server.addr()),
        hosts: vec![server.addr().to_string()],
        ..WorkloadIdentityConfig::default()
    };
    let identity = is_vertex.then(|| WorkloadIdentity::new(&config).unwrap());
    Provider { identity, ..provider }
}

/// A conversation with a vendor.
struct Talk {
    vendor: Vendor,
    server: FakeModel,
    models: Models,
    request: Request,
}

impl Talk {
    async fn start(row: Row) -> Self {
        Self::start_with(row, |provider| provider).await
    }

    /// Starts with other settings than the vendor's usual ones.
    async fn start_with(
        (vendor, kind, model): Row,
        change: impl FnOnce(Provider) -> Provider,
    ) -> Self {
        let server = FakeModel::start().await.unwrap();
        server.strict(Some(vendor));
        let allowed = ["127.0.0.1".to_owned(), BEDROCK_HOST.to_owned()];
        let guard = Guard::new(allowed, Arc::new(Local)).unwrap();
        let provider = change(provider(vendor, kind, &server));
        let (name, _) = model.split_once(':').unwrap();
        let models = Models::demo().with_provider(name, &guard, &provider).unwrap();
        let chat = Chat {
            stable: "You are coach.\n".into(),
            dynamic: "It is noon.".to_owned(),
            messages: Vec::new(),
            tools: vec![tool("recall", json!({"type": "object", "properties": {}}))],
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        let request = Request::new(model.parse().unwrap(), chat, deadline);
        Self { vendor, server, models, request }
    }

    fn user(&mut self, text: &str) {
        self.request.chat.messages.push(ChatMessage::user(text));
    }

    /// Asks, and adds the reply with the results of its calls to the conversation.
    async fn ask(&mut self, scripted: Scripted) -> Reply {
        self.server.queue([scripted]);
        let asked = self.try_to_ask().await;
        let refusals = self.server.refusals();
        let reply = asked.unwrap_or_else(|error| panic!("{}: {error} {refusals:?}", self.name()));
        assert_eq!(refusals, [""; 0], "{}", self.name());
        assert_eq!(self.server.violations(), [""; 0], "{}", self.name());
        let messages = &mut self.request.chat.messages;
        messages.push(ChatMessage::Assistant {
            text: reply.text.clone(),
            calls: reply.calls.clone(),
            carry: reply.carry.clone(),
        });
        messages.extend(reply.calls.iter().map(|call| result(&call.id, "tea", false)));
        reply
    }

    async fn try_to_ask(&self) -> Result<Reply, Error> {
        let model = self.models.get(&self.request.model).unwrap();
        model.reply(&self.request, &mut |_| {}, &CancellationToken::new()).await
    }

    fn options(&mut self, options: Value) {
        let options: AnswerOptions = serde_json::from_value(options).unwrap();
        self.request.options = Some(Box::new(options));
    }

    /// What was sent last.
    fn sent(&self) -> Value {
        self.server.requests().last().unwrap().body.clone()
    }

    fn name(&self) -> String {
        format!("{:?} {}", self.vendor, self.request.model)
    }
}

fn tool(name: &str, input: Value) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: "Looks it up.".to_owned(), input }
}

fn call(id: &str) -> Scripted {
    Scripted::call(id, "recall", r#"{"query":"tea"}"#).thinking("I look it up.")
}

fn result(id: &str, output: &str, failed: bool) -> ChatMessage {
    ChatMessage::Tool { call: id.to_owned(), output: output.to_owned(), failed }
}

#[test]
fn each_vendor_has_rules_and_each_rule_a_source() {
    for (vendor, ..) in TABLE {
        assert!(RULES.iter().any(|rule| rule.vendor == vendor), "{vendor:?}");
    }
    for rule in &RULES {
        assert!(rule.source.starts_with("https://"), "{rule:?}");
        // Its newer models are asked by Responses.
        let is_azure = rule.vendor == Vendor::AzureResponses;
        let asked = if is_azure { Vendor::Azure } else { rule.vendor };
        assert!(TABLE.iter().any(|(vendor, ..)| *vendor == asked), "{rule:?}");
    }
}

#[tokio::test]
async fn calls_and_their_reasoning_go_back_as_each_vendor_wants_them() {
    for row in TABLE {
        for level in [Thinking::High, Thinking::Off] {
            let mut talk = Talk::start(row).await;
            talk.request.thinking = level;
            talk.user("a");
            talk.ask(call("call_1").saying("Let me see.")).await;
            // Something that was said meanwhile, in two messages.
            talk.user("b");
            talk.user("c");
            let two = [("call_1", "recall", "{}"), ("x", "recall", "{}")];
            talk.ask(Scripted::calls(two).thinking("Both.")).await;
            talk.ask(call("call_1")).await;
            talk.ask(Scripted::text("Tea.")).await;
            talk.user("d");
            talk.ask(Scripted::text("Yes.")).await;
            // A summary is asked for without tools.
            talk.request.chat.tools.clear();
            talk.user("e");
            talk.ask(Scripted::text("Tea, twice.")).await;
        }
    }
}

#[tokio::test]
async fn a_conversation_of_another_vendor_goes_on() {
    // Longer ids are replaced when a reply is read.
    let long = "x".repeat(40);
    let other = |id: &str, input: &str| ChatMessage::Assistant {
        text: String::new(),
        calls: vec![ToolCall { id: id.into(), tool: "no such/töol".into(), input: input.into() }],
        carry: Some(json!({"api": "other", "model": "other:one", "items": ["not yours"]})),
    };
    let data = ImageData::Base64("iVBORw0KGgo=".into());
    let image = Image { media_type: "image/png".into(), data };
    let before = vec![
        ChatMessage::assistant("Good morning.", vec![]),
        ChatMessage::user("a"),
        other("toolu_01A.b:0", "{\"half"),
        result("toolu_01A.b:0", "", true),
        ChatMessage::assistant(" ", vec![]),
        ChatMessage::assistant("So.", vec![]),
        other(&long, "[1]"),
        result(&long, "", true),
        ChatMessage::User { text: String::new(), images: vec![image] },
        ChatMessage::user("b"),
    ];
    for row in TABLE {
        let mut talk = Talk::start(row).await;
        talk.request.thinking = Thinking::High;
        talk.request.chat.messages = before.clone();
        talk.ask(call("call_1")).await;
        talk.ask(Scripted::text("Tea.")).await;
    }
}

#[tokio::test]
async fn schemas_and_numbers_of_tools_are_what_each_vendor_takes() {
    let union = json!({"anyOf": [
        {"type": "object", "properties": {"a": {"type": ["array", "null"]}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"anyOf": [{"type": "array"}]}}},
    ]});
    for row in TABLE {
        let mut talk = Talk::start(row).await;
        talk.user("a");
        let long = ToolSpec { description: "ü".repeat(2_000), ..tool("long", json!({})) };
        let mute = ToolSpec { description: String::new(), ..tool("mute", json!({})) };
        talk.request.chat.tools =
            vec![tool("recall", union.clone()), tool("x", json!(true)), long, mute];
        talk.ask(call("call_1")).await;
        let many = (0..150).map(|n| tool(&format!("t{n}"), json!({"type": "object"})));
        talk.request.chat.tools.extend(many);
        talk.ask(Scripted::text("Tea.")).await;
    }
}

#[tokio::test]
async fn forms_of_answers_are_asked_for_where_the_vendor_takes_them() {
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let by_schema = json!({"type": "json_schema", "name": "n", "schema": schema, "strict": true});
    for row in TABLE {
        for form in [by_schema.clone(), json!({"type": "json_object"})] {
            let mut talk = Talk::start(row).await;
            // As the runner says it.
            talk.request.chat.dynamic = "Your answer is one JSON value.".to_owned();
            talk.options(json!({ "format": form }));
            talk.user("a");
            talk.ask(Scripted::text("{}")).await;
            talk.request.chat.tools.clear();
            talk.user("b");
            talk.ask(Scripted::text("{}")).await;
        }
    }
}

#[tokio::test]
async fn a_call_is_demanded_where_the_vendor_lets_one() {
    let words = ["tool_choice", "toolChoice", "functionCallingConfig"];
    for row in TABLE {
        for choice in [json!("required"), json!({"function": "recall"})] {
            let mut talk = Talk::start(row).await;
            talk.request.thinking = Thinking::High;
            talk.request.chat.tools.push(tool("other", json!({"type": "object"})));
            talk.options(json!({ "tool_choice": choice }));
            talk.user("a");
            if matches!(talk.vendor, Vendor::Glm | Vendor::Ollama) || row.2 == LLAMA {
                let error = talk.try_to_ask().await.unwrap_err().to_string();
                assert!(error.contains("`tool_choice`"), "{}: {error}", talk.name());
                assert_eq!(talk.server.count(), 0);
                continue;
            }
            talk.ask(call("call_1")).await;
            let mut sent = talk.sent();
            let is_demanded = words.iter().any(|name| sent.to_string().contains(name));
            assert!(is_demanded, "{}: {sent}", talk.name());
            // Either its name is in the demand, or no other tool is on offer.
            if choice.is_object() && sent["tool_choice"] == "required" {
                assert_eq!(sent["tools"].as_array().map(Vec::len), Some(1), "{}", talk.name());
            } else if choice.is_object() {
                sent["tools"].take();
                sent["toolConfig"]["tools"].take();
                assert!(sent.to_string().contains("\"recall\""), "{}: {sent}", talk.name());
            }
        }
    }
}

#[tokio::test]
async fn temperatures_limits_and_seeds_are_sent_as_each_vendor_names_them() {
    for row in TABLE {
        let mut talk = Talk::start(row).await;
        talk.request.temperature = Some(0.2);
        talk.request.max_output = Some(2_000);
        talk.request.cache_key = Some("agent".to_owned());
        talk.user("a");
        talk.ask(Scripted::text("Tea.")).await;
        talk.options(json!({"top_p": 0.9}));
        talk.user("b");
        talk.ask(Scripted::text("Tea.")).await;
    }
    let mut talk = Talk::start((Vendor::Mistral, "openai", "mistral:mistral-large-4")).await;
    talk.options(json!({"seed": 7}));
    talk.user("a");
    talk.ask(Scripted::text("Tea.")).await;
    assert_eq!(talk.sent()["random_seed"], 7);
}

#[tokio::test]
async fn thinking_is_switched_in_the_words_of_each_vendor() {
    for (vendor, kind, model, off, on) in [
        (Vendor::DeepSeek, "openai", "deepseek:deepseek-v4-pro", "\"disabled\"", "\"enabled\""),
        (Vendor::Moonshot, "openai", "moonshot:kimi-k2.6", "\"disabled\"", "\"enabled\""),
        (Vendor::MiniMax, "openai", "minimax:MiniMax-M3", "\"disabled\"", "\"adaptive\""),
        (Vendor::Glm, "openai", "zhipu:glm-4.6", "\"disabled\"", "\"enabled\""),
        (Vendor::Qwen, "openai", "qwen:qwen3.7-max", "false", "true"),
        (Vendor::Ollama, "ollama", "ollama:qwen3", "false", "true"),
    ] {
        for (level, word) in [(Thinking::Off, off), (Thinking::Low, on)] {
            let mut talk = Talk::start((vendor, kind, model)).await;
            talk.request.thinking = level;
            talk.user("a");
            talk.ask(Scripted::text("Tea.")).await;
            let sent = talk.sent();
            let said = [&sent["thinking"]["type"], &sent["enable_thinking"], &sent["think"]];
            let said = said.into_iter().find(|value| !value.is_null()).cloned();
            assert_eq!(said.unwrap_or_default().to_string(), word, "{model} {level:?}");
        }
    }
}

#[tokio::test]
async fn a_deployment_of_azure_is_asked_by_a_dated_version_too() {
    let dated = |provider: Provider| {
        let url = provider.base_url.map(|url| format!("{url}?api-version=2024-10-21"));
        Provider { base_url: url, ..provider }
    };
    let row = (Vendor::Azure, "azure", "azure:gpt-5.2");
    let mut talk = Talk::start_with(row, dated).await;
    talk.request.cache_key = Some("agent".to_owned());
    talk.request.max_output = Some(2_000);
    talk.user("a");
    talk.ask(call("call_1")).await;
    let reply = talk.ask(Scripted::text("Tea.")).await;

    assert_eq!(reply.text, "Tea.");
}

#[tokio::test]
async fn a_prompt_that_the_filter_of_azure_refuses_is_filtered() {
    let mut talk = Talk::start((Vendor::Azure, "azure", "azure:gpt-4o")).await;
    talk.server.queue([Scripted::filtered_prompt(Vendor::Azure.dialect())]);
    talk.user("a");

    assert!(matches!(talk.try_to_ask().await, Err(Error::Filtered)));
    assert_eq!(talk.server.count(), 1);
}

#[tokio::test]
async fn clouds_are_asked_with_their_own_credentials() {
    let (azure, bedrock) = ("azure:gpt-4o", "bedrock:eu.anthropic.claude-sonnet-4-5");
    let other_secret = AWS_KEYS.replace("SecretAccessKey\": \"w", "SecretAccessKey\": \"x");
    assert_ne!(other_secret, AWS_KEYS);
    for (vendor, kind, model, key, is_oauth, is_taken) in [
        (Vendor::Azure, "azure", azure, KEY, false, true),
        (Vendor::Azure, "azure", azure, "token of entra", true, true),
        (Vendor::Azure, "azure", azure, KEY, true, false),
        (Vendor::Azure, "azure", azure, "other", false, false),
        (Vendor::Vertex, "vertex", "vertex:gemini-3.8-flash", "other", true, false),
        (Vendor::VertexClaude, "vertex", "vertex:claude-opus-5-5", "other", true, false),
        (Vendor::Bedrock, "bedrock", bedrock, AWS_KEYS, false, true),
        (Vendor::Bedrock, "bedrock", bedrock, KEY, false, true),
        (Vendor::Bedrock, "bedrock", bedrock, &other_secret, false, false),
        (Vendor::Bedrock, "bedrock", bedrock, "other", false, false),
    ] {
        let key = |provider: Provider| Provider {
            api_key: Some(key.into()),
            is_oauth,
            identity: None,
            ..provider
        };
        let mut talk = Talk::start_with((vendor, kind, model), key).await;
        talk.user("a");
        let asked = talk.try_to_ask().await;
        match is_taken {
            true => assert_eq!(asked.unwrap().text, "echo: a", "{}", talk.name()),
            false => assert!(matches!(asked, Err(Error::Auth)), "{}: {asked:?}", talk.name()),
        }
    }
}

#[tokio::test]
async fn words_of_lm_studio_for_a_long_conversation_are_understood() {
    for words in [
        "Trying to keep the first 6547 tokens when context the overflows. However, the model is \
         loaded with context length of only 4096 tokens, which is not enough.",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
    ] {
        let refused = Scripted::status(400).body(json!({ "error": words }).to_string());
        let event = json!({"error": {"message": words}});
        let begun = Scripted::malformed(format!("event: error\ndata: {event}\n\n"));
        for answer in [refused, begun] {
            let mut talk = Talk::start((Vendor::LmStudio, "openai", "lmstudio:gemma-4")).await;
            talk.server.queue([answer]);
            talk.user("a");
            let asked = talk.try_to_ask().await;
            assert!(matches!(asked, Err(Error::ContextOverflow)), "{asked:?}");
        }
    }
}
