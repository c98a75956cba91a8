//! Transcriptions and speech by the tenant's providers.

use std::sync::Arc;

use gateway::Config;
use holdfast_directory::{
    Actor, Budget, NewPlan, NewPlatformKey, NewProvider, ProviderKind, TenantChanges,
};
use holdfast_testkit::model::audio::{AudioVendor, FakeAudio, SOUND};
use reqwest::{
    Response,
    multipart::{Form, Part},
};
use serde_json::{Value, json};

use crate::world::{Tenant, World, until};

const OGG: &[u8] = b"OggS\0 somebody says something";
const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
const SPEECH: &str = "/v1/audio/speech";

async fn world() -> World {
    let allow = |config: &mut Config| config.egress.local_providers = Some(true);
    World::start_with(allow).await.unwrap()
}

async fn provider(world: &World, name: &str, audio: &FakeAudio) {
    let new = NewProvider {
        name: name.to_owned(),
        kind: ProviderKind::OpenAi,
        base_url: audio.url(),
        api_key: Some("sk-anna".into()),
        default_model: None,
        ..NewProvider::default()
    };
    world.directory.providers().put(world.anna.id, Actor::Operator, new).await.unwrap();
}

fn form(model: &str, fields: &[(&'static str, &'static str)]) -> Form {
    let file = Part::bytes(OGG).file_name("my secret plan.ogg").mime_str("audio/ogg").unwrap();
    let form = Form::new().part("file", file).text("model", model.to_owned());
    fields.iter().fold(form, |form, (name, value)| form.text(*name, *value))
}

async fn transcribe(world: &World, of: &Tenant, form: Form) -> Response {
    world.post(of, TRANSCRIPTIONS).multipart(form).send().await.unwrap()
}

async fn error_of(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    (status, response.json::<Value>().await.unwrap()["error"].take())
}

fn speech() -> Value {
    json!({"model": "tts-1", "input": "grüße", "voice": "alloy", "response_format": "mp3"})
}

/// Model and cost of each run.
async fn runs(world: &World) -> Vec<String> {
    let sql = "select model || ' ' || cost_micros || ' ' || channel from session.runs order by finished_at";
    world.texts(sql).await.unwrap()
}

#[tokio::test]
async fn a_recording_is_transcribed_with_the_tenants_key_and_charged() {
    let world = world().await;
    let audio = FakeAudio::start(AudioVendor::OpenAi, "good day").await.unwrap();
    provider(&world, "openai", &audio).await;
    let budget = Budget { agent: None, tokens: None, micros: Some(3_200) };
    world.sessions.usage().open_budget(world.anna.id, None).await.unwrap();
    world.directory.budgets().put(world.anna.id, Actor::Operator, &budget).await.unwrap();

    let answer = transcribe(&world, &world.anna, form("holdfast", &[("language", "en")])).await;
    let answer: Value = answer.json().await.unwrap();
    let times =
        transcribe(&world, &world.anna, form("whisper-1", &[("response_format", "srt")])).await;
    let times = times.text().await.unwrap();
    let spent = transcribe(&world, &world.anna, form("holdfast", &[])).await;

    assert_eq!((&answer["text"], &answer["usage"]["type"]), (&json!("good day"), &json!("tokens")));
    assert_eq!(times, "1\n00:00:00,000 --> 00:00:02,500\ngood day\n\n");
    let asked = audio.requests();
    assert_eq!(asked[0].key.as_deref(), Some("sk-anna"));
    assert_eq!(asked[0].fields, json!({"model": "gpt-4o-mini-transcribe", "language": "en"}));
    // The name of the file is nobody's concern.
    assert_eq!(asked[0].file.clone().unwrap().0, "recording.ogg");
    assert_eq!(asked[1].fields["response_format"], "verbose_json");
    assert_eq!(
        runs(&world).await,
        ["openai:gpt-4o-mini-transcribe 3100 api", "openai:whisper-1 300 api"]
    );
    let (status, error) = error_of(spent).await;
    assert_eq!((status, &error["code"]), (429, &json!("budget_spent")), "{error}");
    assert_eq!(asked.len(), audio.requests().len());
    assert_eq!(world.number("select micros from session.spending").await.unwrap(), 3_400);
}

#[tokio::test]
async fn models_that_the_operator_names_speak_and_transcribe() {
    let name_models = |config: &mut Config| {
        config.egress.local_providers = Some(true);
        config.audio.speech_model = "gpt-4o-mini-tts".to_owned();
        let model = ("litellm".to_owned(), "gpt-4o-transcribe".to_owned());
        config.audio.transcription_models = [model].into();
    };
    let world = World::start_with(name_models).await.unwrap();
    let audio = FakeAudio::start(AudioVendor::OpenAi, "good day").await.unwrap();
    provider(&world, "litellm", &audio).await;

    let heard = transcribe(&world, &world.anna, form("holdfast", &[])).await;
    let mut speech = speech();
    speech["model"] = json!("holdfast");
    let spoken = world.post(&world.anna, SPEECH).json(&speech).send().await.unwrap();

    assert_eq!((heard.status().as_u16(), spoken.status().as_u16()), (200, 200));
    let models: Vec<Value> =
        audio.requests().iter().map(|request| request.fields["model"].clone()).collect();
    assert_eq!(models, ["gpt-4o-transcribe", "gpt-4o-mini-tts"]);
}

#[tokio::test]
async fn a_client_that_goes_away_pays_for_what_it_has_asked_for() {
    let world = Arc::new(world().await);
    let audio = FakeAudio::start(AudioVendor::OpenAi, "good day").await.unwrap();
    provider(&world, "openai", &audio).await;
    audio.hold(true);
    let client = {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            transcribe(&world, &world.anna, form("holdfast", &[])).await;
        })
    };
    until(async || (audio.requests().len() == 1).then_some(())).await;

    client.abort();
    client.await.unwrap_err();
    audio.hold(false);

    let recorded = async || Some(runs(&world).await).filter(|runs| !runs.is_empty());
    assert_eq!(until(recorded).await, ["openai:gpt-4o-mini-transcribe 3100 api"]);
}

#[tokio::test]
async fn keys_of_the_platform_are_not_for_sound() {
    let world = world().await;
    let audio = FakeAudio::start(AudioVendor::OpenAi, "good day").await.unwrap();
    let key = NewPlatformKey {
        provider: "openai".to_owned(),
        name: "main".to_owned(),
        key: "sk-platform".into(),
        kind: None,
        base_url: Some(audio.url()),
        default_model: None,
    };
    world.directory.platform_keys().put(&key).await.unwrap();
    let platform_providers = vec!["openai".to_owned()];
    let plan = NewPlan { name: "basic".into(), platform_providers, ..NewPlan::default() };
    world.directory.plans().put(&plan).await.unwrap();
    let changes =
        TenantChanges { plan: Some(Some("basic".to_owned())), ..TenantChanges::default() };
    world.directory.tenants().update(world.anna.id, Actor::Operator, changes).await.unwrap();
    let without_key = NewProvider { name: "openai".to_owned(), ..NewProvider::default() };
    world.directory.providers().put(world.anna.id, Actor::Operator, without_key).await.unwrap();

    let spoken = world.post(&world.anna, SPEECH).json(&speech()).send().await.unwrap();
    let heard = transcribe(&world, &world.anna, form("openai:whisper-1", &[])).await;

    for refused in [spoken, heard] {
        let (status, error) = error_of(refused).await;
        assert_eq!((status, &error["code"]), (422, &json!("no_provider")), "{error}");
    }
    assert!(audio.requests().is_empty());
}

#[tokio::test]
async fn formats_of_other_servers_are_made_here() {
    let world = world().await;
    let audio = FakeAudio::start(AudioVendor::Groq, "good day").await.unwrap();
    provider(&world, "groq", &audio).await;

    for (format, content_type, body) in [
        ("text", "text/plain; charset=utf-8", "good day\n"),
        ("vtt", "text/vtt; charset=utf-8", "WEBVTT\n\n00:00:00.000 --> 00:00:02.500\ngood day\n\n"),
    ] {
        // The name that clients have built in.
        let form = form("whisper-1", &[("response_format", format)]);
        let answer = transcribe(&world, &world.anna, form).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], content_type);
        assert_eq!(answer.text().await.unwrap(), body);
    }
    let answer = transcribe(&world, &world.anna, form("holdfast", &[])).await;
    let answer: Value = answer.json().await.unwrap();
    let usage = json!({"type": "duration", "seconds": 3});
    assert_eq!(answer, json!({"text": "good day", "usage": usage}));
    let asked = audio.requests();
    assert!(asked.iter().all(|one| one.fields["model"] == "whisper-large-v3-turbo"), "{asked:?}");
}

#[tokio::test]
async fn speech_is_passed_on_and_charged_by_its_characters() {
    let world = world().await;
    let audio = FakeAudio::start(AudioVendor::OpenAi, "").await.unwrap();
    provider(&world, "openai", &audio).await;

    let answer = world.post(&world.anna, SPEECH).json(&speech()).send().await.unwrap();

    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "audio/mpeg");
    assert_eq!(answer.bytes().await.unwrap(), SOUND);
    assert_eq!(audio.requests()[0].fields, speech());
    assert_eq!(runs(&world).await, ["openai:tts-1 75 api"]);
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_in_the_form_that_clients_know() {
    let world = world().await;
    let audio = FakeAudio::start(AudioVendor::OpenAi, "").await.unwrap();
    let other = Tenant { id: world.anna.id, key: "hf_wrong".to_owned() };
    let read = world.anna.by(&world.key(&world.anna, &["read"], None).await.unwrap());
    let guest = world.anna.by(&world.key(&world.anna, &["guest"], None).await.unwrap());

    // Before there is a provider, and in a tenant without one.
    for of in [&world.anna, &world.ben] {
        let (status, error) = error_of(transcribe(&world, of, form("whisper-1", &[])).await).await;
        assert_eq!((status, &error["code"]), (422, &json!("no_provider")), "{error}");
        let spoken = world.post(of, SPEECH).json(&speech()).send().await.unwrap();
        assert_eq!(error_of(spoken).await.1["code"], "no_provider");
    }
    provider(&world, "openai", &audio).await;
    for (of, status) in [(&other, 401), (&read, 403), (&guest, 403)] {
        assert_eq!(transcribe(&world, of, form("whisper-1", &[])).await.status(), status);
        let spoken = world.post(of, SPEECH).json(&speech()).send().await.unwrap();
        assert_eq!(spoken.status(), status);
    }
    let large = Part::bytes([OGG, &vec![0; 26_214_400][..]].concat()).file_name("a.ogg");
    let large = Form::new().text("model", "whisper-1").part("file", large);
    assert_eq!(transcribe(&world, &world.anna, large).await.status(), 413);
    let page = Part::bytes(&b"<script>"[..]).file_name("a.ogg");
    for (form, param) in [
        (Form::new().text("model", "whisper-1").part("file", page), "file"),
        (Form::new().text("model", "whisper-1"), "file"),
        (form("", &[]), "model"),
        (form("whisper-1", &[("response_format", "exe")]), "response_format"),
        (form("gpt-4o-transcribe", &[("response_format", "vtt")]), "response_format"),
        (form("whisper-1", &[("stream", "true")]), "stream"),
        (form("whisper-1", &[("of_tomorrow", "1")]), "of_tomorrow"),
    ] {
        let (status, error) = error_of(transcribe(&world, &world.anna, form).await).await;
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{error}");
    }
    let no_form = world.post(&world.anna, TRANSCRIPTIONS).json(&json!({})).send().await.unwrap();
    assert_eq!(no_form.status(), 400);
    assert!(audio.requests().is_empty() && runs(&world).await.is_empty());
}

#[tokio::test]
async fn what_a_provider_refuses_is_said_without_its_key_and_costs_nothing() {
    let world = world().await;
    let audio = FakeAudio::start(AudioVendor::OpenAi, "").await.unwrap();
    provider(&world, "openai", &audio).await;

    let unknown = transcribe(&world, &world.anna, form("openai:whisper-9", &[])).await;
    let (status, error) = error_of(unknown).await;
    assert_eq!((status, &error["code"]), (422, &json!("bad_request")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("The model does not exist"), "{error}");
    for (failure, status, code) in
        [(401, 422, "auth"), (429, 429, "rate_limited"), (500, 502, "unavailable")]
    {
        audio.fail(failure);
        let (told, error) =
            error_of(transcribe(&world, &world.anna, form("whisper-1", &[])).await).await;
        assert_eq!((told, &error["code"]), (status, &json!(code)), "{error}");
        assert!(!error.to_string().contains("sk-anna"), "{error}");
        let spoken = world.post(&world.anna, SPEECH).json(&speech()).send().await.unwrap();
        assert_eq!(error_of(spoken).await.0, status);
    }
    assert!(runs(&world).await.is_empty());
}
