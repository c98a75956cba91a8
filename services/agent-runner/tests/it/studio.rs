//! Pictures that are drawn and texts that are spoken, by the providers of the tenant.
//!
//! The provider here has the shape of OpenAI's API
//! (<https://platform.openai.com/docs/api-reference/images/create>,
//! <https://platform.openai.com/docs/api-reference/audio/createSpeech>) and of ElevenLabs'
//! (<https://elevenlabs.io/docs/api-reference/text-to-speech/convert>).

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::post,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_directory::{Actor, Budget, NewAccount, NewProvider, ProviderKind};
use holdfast_session::NewMessage;
use holdfast_testkit::Reply;
use holdfast_types::{Entry, Target};
use serde_json::{Value, json};

use crate::world::{World, place};

/// One dot.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const MP3: &[u8] = b"ID3 something that sounds";

#[derive(Clone, Default)]
struct Fake {
    asked: Arc<Mutex<Vec<(String, String, Value)>>>,
    /// Speech requests fail.
    is_hoarse: bool,
}

impl Fake {
    async fn start(self) -> anyhow::Result<String> {
        let router = Router::new()
            .route("/v1/images/generations", post(draw))
            .route("/v1/audio/speech", post(speak))
            .route("/v1/text-to-speech/{voice}", post(speak_eleven))
            .with_state(self);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async { axum::serve(listener, router).await });
        Ok(url)
    }

    fn note(&self, what: &str, key: Option<String>, body: Value) {
        self.asked.lock().unwrap().push((what.to_owned(), key.unwrap_or_default(), body));
    }

    fn asked(&self) -> Vec<(String, String, Value)> {
        self.asked.lock().unwrap().clone()
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

async fn draw(State(fake): State<Fake>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    fake.note("draw", header(&headers, "authorization"), body.clone());
    if body["prompt"] == "something bad" {
        let error = json!({"error": {"message": "Your request was rejected", "code": "x"}});
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    }
    let is_refused = body.get("response_format").is_some()
        || !["1024x1024", "1536x1024", "1024x1536"].contains(&body["size"].as_str().unwrap());
    if is_refused {
        let error = json!({"error": {"message": "Unknown parameter or value", "code": "x"}});
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    }
    let usage = json!({
        "input_tokens": 10, "input_tokens_details": {"text_tokens": 10, "image_tokens": 0},
        "output_tokens": 2_000, "total_tokens": 2_010,
    });
    Json(json!({"created": 1, "data": [{"b64_json": PNG}], "usage": usage})).into_response()
}

async fn speak(State(fake): State<Fake>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    fake.note("speak", header(&headers, "authorization"), body);
    if fake.is_hoarse {
        return (StatusCode::SERVICE_UNAVAILABLE, "later").into_response();
    }
    MP3.into_response()
}

async fn speak_eleven(
    State(fake): State<Fake>,
    Path(voice): Path<String>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    fake.note(&voice, header(&headers, "xi-api-key"), body);
    MP3.into_response()
}

async fn provider(world: &World, name: &str, base_url: String) -> anyhow::Result<()> {
    let provider = NewProvider {
        name: name.to_owned(),
        kind: ProviderKind::OpenAi,
        base_url,
        api_key: Some("sk-media".into()),
        default_model: None,
        ..NewProvider::default()
    };
    world.directory.providers().put(world.tenant, Actor::Operator, provider).await?;
    Ok(())
}

async fn on_telegram(world: &World) -> anyhow::Result<NewMessage> {
    let account = NewAccount {
        channel: "telegram".to_owned(),
        name: "bot".to_owned(),
        enabled: true,
        settings: json!({}),
        secrets: Some(json!({ "token": "1:a" })),
    };
    let account =
        world.directory.accounts().create(world.tenant, Actor::Operator, account).await?.id;
    let target = Target { account, ..place("7") };
    Ok(NewMessage { target: Some(target), ..world.message("s", "hello") })
}

async fn returned(world: &World, message: NewMessage) -> anyhow::Result<Vec<String>> {
    let sent = world.send(message).await?;
    world.text(&sent).await?;
    let journal = world.journal(sent.session).await?;
    Ok(journal
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Returned { output, .. } => Some(output),
            _ => None,
        })
        .collect())
}

async fn deliveries(world: &World) -> anyhow::Result<Vec<(String, Value)>> {
    let sql = "select jsonb_build_array(body, act)::text from session.deliveries order by out_seq";
    let rows = world.texts(sql).await?;
    rows.iter().map(|row| Ok(serde_json::from_str(row)?)).collect()
}

#[tokio::test]
async fn a_picture_is_drawn_by_the_tenants_provider_and_kept() -> anyhow::Result<()> {
    let world = World::start().await?;
    let fake = Fake::default();
    provider(&world, "openai", format!("{}/v1", fake.clone().start().await?)).await?;
    let _runner = world.runner().await?;
    let wish = |prompt: &str| json!({ "op": "generate", "prompt": prompt }).to_string();
    world.model.queue([
        Reply::call("a", "image", wish("a cat")),
        Reply::call("b", "image", wish("something bad")),
        Reply::text("done"),
    ]);

    let said = returned(&world, world.message("s", "draw")).await?;

    assert!(said[0].starts_with("Drawn by openai:gpt-image-2: 1 × 1 dots."), "{said:?}");
    assert_eq!(said[1], "`openai` did not draw it: it refused (400) Your request was rejected");
    let (_, key, body) = fake.asked().remove(0);
    assert_eq!(key, "Bearer sk-media");
    assert_eq!(
        body,
        json!({"model": "gpt-image-2", "prompt": "a cat", "size": "1024x1024", "n": 1})
    );
    let kept = world.texts("select encode(content, 'base64') from workspace.contents c join workspace.files f using (hash) where path like '%/media/%.png'").await?;
    assert_eq!(STANDARD.decode(kept[0].replace('\n', ""))?, STANDARD.decode(PNG)?);
    Ok(())
}

#[tokio::test]
async fn what_is_drawn_and_spoken_is_charged_with_the_run_and_to_its_budget() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let fake = Fake::default();
    provider(&world, "openai", format!("{}/v1", fake.clone().start().await?)).await?;
    let budget = Budget { agent: None, tokens: None, micros: Some(1_000_000) };
    world.sessions.usage().open_budget(world.tenant, None).await?;
    world.directory.budgets().put(world.tenant, Actor::Operator, &budget).await?;
    let _runner = world.runner().await?;
    world.model.queue([
        Reply::call("a", "image", r#"{"op":"generate","prompt":"a cat","size":"1792x1024"}"#),
        Reply::call("b", "image", r#"{"op":"generate","prompt":"something bad"}"#),
        Reply::call("c", "tts", r#"{"text":"good day"}"#),
        Reply::text("Look.[[tts: and more ]]"),
    ]);

    returned(&world, on_telegram(&world).await?).await?;

    // $5 for a million tokens of the prompt and $30 of the picture; $15 for a million characters, 8 with
    // the tool and 8 with the answer.
    let micros = 50 + 60_000 + 15 * 16;
    assert_eq!(world.number("select cost_micros from session.runs").await?, micros);
    assert_eq!(world.number("select micros from session.spending").await?, micros);
    let of_calls = "select coalesce(body->'record'->>'cost_micros', '0') from session.entries
                    where kind = 'returned' order by seq";
    assert_eq!(world.texts(of_calls).await?, ["60050", "0", "120"]);
    Ok(())
}

#[tokio::test]
async fn speech_is_on_offer_only_where_somebody_speaks() -> anyhow::Result<()> {
    let world = World::start().await?;
    world
        .change_agent(|agent| {
            agent.settings.tools = Some(vec!["tts".into(), "sessions_list".into()])
        })
        .await?;
    let _runner = world.runner().await?;

    world.ask("a", "with a key").await?;
    world.directory.credentials().delete(world.tenant, Actor::Operator, "fake", "default").await?;
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    world.ask("b", "without").await?;

    let requests = world.model.requests();
    assert_eq!(requests[0].tool_names(), ["sessions_list", "tts"]);
    assert_eq!(requests[1].tool_names(), ["sessions_list"]);
    Ok(())
}

#[tokio::test]
async fn without_a_provider_nobody_draws_or_speaks_and_the_model_is_told_why() -> anyhow::Result<()>
{
    let world = World::start().await?;
    // The model's own provider has no key, and so does not count.
    let plain = NewProvider {
        name: "plain".to_owned(),
        kind: ProviderKind::OpenAi,
        base_url: world.model.url(),
        api_key: None,
        default_model: Some("plain:one".to_owned()),
        ..NewProvider::default()
    };
    world.directory.providers().put(world.tenant, Actor::Operator, plain).await?;
    world.directory.providers().delete(world.tenant, Actor::Operator, "fake").await?;
    let _runner = world.runner().await?;
    world.model.queue([
        Reply::call("a", "image", r#"{"op":"generate","prompt":"a cat"}"#),
        Reply::call("b", "tts", r#"{"text":"hi"}"#),
        Reply::call("c", "tts", r#"{"op":"providers"}"#),
        Reply::text("done"),
    ]);

    let said = returned(&world, on_telegram(&world).await?).await?;

    assert!(said[0].starts_with("nobody here draws"), "{said:?}");
    // Nor is there a tool for it.
    assert!(said[1].starts_with("this tool is not one of yours"), "{said:?}");
    assert_eq!(said[1], said[2]);
    Ok(())
}

#[tokio::test]
async fn what_is_spoken_goes_as_a_voice_message_by_the_next_provider_if_one_fails()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let hoarse = Fake { is_hoarse: true, ..Fake::default() };
    provider(&world, "openai", format!("{}/v1", hoarse.clone().start().await?)).await?;
    let eleven = Fake::default();
    provider(&world, "elevenlabs", eleven.clone().start().await?).await?;
    let _runner = world.runner().await?;
    world.model.queue([
        Reply::call("a", "tts", r#"{"text":"good day","voice":"nova"}"#),
        Reply::text("listen"),
    ]);

    let said = returned(&world, on_telegram(&world).await?).await?;

    assert!(said[0].starts_with("Spoken by elevenlabs; it goes with your answer."), "{said:?}");
    assert_eq!(
        hoarse.asked()[0].2,
        json!({"model": "tts-1", "input": "good day", "voice": "nova", "response_format": "mp3"})
    );
    assert_eq!(
        eleven.asked(),
        [(
            "21m00Tcm4TlvDq8ikWAM".to_owned(),
            "sk-media".to_owned(),
            json!({"text": "good day", "model_id": "eleven_multilingual_v2"})
        )]
    );
    let sent = deliveries(&world).await?;
    assert_eq!(sent[0], ("listen".to_owned(), Value::Null));
    assert_eq!((&sent[1].1["act"], &sent[1].1["voice"]), (&json!("media"), &json!(true)));
    assert_eq!(sent[1].1["file"]["media_type"], "audio/mpeg");
    Ok(())
}

#[tokio::test]
async fn an_answer_that_asks_for_it_is_spoken_and_its_directives_are_not_shown()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let fake = Fake::default();
    provider(&world, "openai", format!("{}/v1", fake.clone().start().await?)).await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::text("[[tts:voice=nova]] Good day.[[tts: and more ]]")]);

    returned(&world, on_telegram(&world).await?).await?;

    let sent = deliveries(&world).await?;
    assert_eq!(sent[0], ("Good day.".to_owned(), Value::Null));
    // The same sound twice is one file, and goes once.
    assert_eq!((sent.len(), &sent[1].1["voice"]), (2, &json!(true)));
    let asked: Vec<Value> =
        fake.asked().into_iter().map(|(_, _, body)| body["input"].clone()).collect();
    assert_eq!(asked, ["Good day.", "and more"]);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_spoken_is_said_in_words() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::text("Good day.[[tts: and more ]]")]);

    returned(&world, on_telegram(&world).await?).await?;

    assert_eq!(deliveries(&world).await?, [("Good day.\nand more".to_owned(), Value::Null)]);
    Ok(())
}
