//! Models and addresses of each vendor, and what is read of an answer.

use holdfast_types::Usage;
use secrecy::SecretString;
use serde_json::json;

use super::*;
use crate::RequestExtras;

fn provider(kind: ProviderKind, base_url: &str) -> Provider {
    Provider {
        kind,
        base_url: Some(base_url.to_owned()),
        api_key: Some(SecretString::from("sk-1")),
        is_oauth: false,
        extras: RequestExtras::default(),
        identity: None,
    }
}

#[test]
fn each_vendor_has_its_model_and_others_have_none() {
    for (name, kind, url, model) in [
        ("openai", ProviderKind::OpenAi, "", Some("gpt-4o-mini-transcribe")),
        ("mine", ProviderKind::Responses, "", Some("gpt-4o-mini-transcribe")),
        ("groq", ProviderKind::OpenAi, "", Some("whisper-large-v3-turbo")),
        ("mine", ProviderKind::OpenAi, "https://api.mistral.ai/v1", Some("voxtral-mini-latest")),
        ("whisper", ProviderKind::OpenAi, "http://10.0.0.7:9000/v1", Some("whisper-1")),
        ("deepseek", ProviderKind::OpenAi, "", None),
        ("openai", ProviderKind::Anthropic, "", None),
    ] {
        assert_eq!(transcription_model(name, &provider(kind, url)), model, "{name} {url}");
    }
}

#[test]
fn the_key_of_a_known_server_goes_to_that_server() {
    let base = |name: &str| base_url(name, &provider(ProviderKind::OpenAi, "")).unwrap().unwrap();

    assert_eq!(base("groq").as_str(), "https://api.groq.com/openai/v1");
    assert_eq!(base("mine").as_str(), "https://api.openai.com/v1");
}

#[test]
fn what_servers_count_is_read() {
    let read = |answer: Value| Transcript::read(answer.to_string().as_bytes());
    let tokens = Usage { input: 14, audio_input: 10, output: 5, ..Usage::default() };

    assert_eq!(
        read(json!({"text": " hi ", "usage": {"type": "tokens", "input_tokens": 14,
            "input_token_details": {"text_tokens": 4, "audio_tokens": 10}, "output_tokens": 5}})),
        Some(Transcript { text: "hi".into(), usage: tokens, seconds: 0 })
    );
    for (answer, seconds) in [
        (json!({"text": "hi", "usage": {"type": "duration", "seconds": 3}}), 3),
        (json!({"text": "hi", "duration": 2.1}), 3),
        (json!({"text": "hi", "duration": "2.9"}), 3),
        (json!({"text": "hi", "usage": {"prompt_audio_seconds": 7}}), 7),
        (json!({"text": "hi"}), 0),
    ] {
        assert_eq!(read(answer.clone()).unwrap().seconds, seconds, "{answer}");
    }
    assert_eq!(read(json!({"error": "no"})), None);
    assert_eq!(Transcript::read(b"1\n00:00:00,000 --> 00:00:01,000\nhi"), None);
    assert_eq!(Transcript::format("whisper-large-v3"), Some("verbose_json"));
    assert_eq!(Transcript::format("gpt-4o-mini-transcribe"), None);
}

#[test]
fn a_provider_s_words_have_no_key_in_them() {
    let guard = Guard::with_system_resolver(Vec::<String>::new()).unwrap();
    let client =
        AudioClient::new("mine", &guard, &provider(ProviderKind::OpenAi, "")).unwrap().unwrap();

    let body =
        br#"{"error": {"message": "wrong: sk-12345678 of Bearer abcdef1234567890abcdef12"}}"#;

    let cleaned = client.clean(body, "whisper-1");
    assert!(cleaned.starts_with("wrong:"), "{cleaned}");
    assert!(!cleaned.contains("12345678"), "{cleaned}");
}
