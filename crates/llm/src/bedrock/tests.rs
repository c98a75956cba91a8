//! Bedrock and AWS's credentials against servers that answer as theirs do.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
    routing,
};
use futures::stream;
use holdfast_egress::{Lookup, LookupFuture};
use holdfast_types::{ChatMessage, Reply};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{
    decode::tests::EVENTS,
    frames::tests::frame,
    sigv4::{AwsKeys, Scope, sign},
    *,
};
use crate::{AwsIdentityConfig, WorkloadIdentityConfig, scripted_model::tests::request};

const HOST: &str = "bedrock-runtime.eu-west-1.example";
const MODEL: &str = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
const KEYS: &str = r#"{
  "Version": 1, "AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "secret", "SessionToken": "session"
}"#;

/// What the servers saw: requests for credentials, and requests to models with path and body.
#[derive(Debug, Default)]
struct Seen {
    credentials: Vec<String>,
    models: Vec<(String, HeaderMap, Bytes)>,
}

type Shared = Arc<Mutex<Seen>>;

/// Bedrock, AWS's token service and the agent of pods at one port. Each request to a model is
/// answered with these events.
async fn aws(events: &[(&str, &str, &str)]) -> (u16, Shared) {
    type Answer = (Shared, Arc<Vec<u8>>);
    async fn sts(State((seen, _)): State<Answer>, body: String) -> Json<Value> {
        seen.lock().unwrap().credentials.push(body);
        Json(json!({ "AssumeRoleWithWebIdentityResponse": {
            "AssumeRoleWithWebIdentityResult": { "Credentials": {
                "AccessKeyId": "ASIAROLE", "SecretAccessKey": "s", "SessionToken": "t",
                "Expiration": 4_102_444_800.0,
            } },
        } }))
    }
    async fn agent(State((seen, _)): State<Answer>, headers: HeaderMap) -> Json<Value> {
        let token = headers["authorization"].to_str().unwrap().to_owned();
        seen.lock().unwrap().credentials.push(token);
        Json(json!({
            "AccessKeyId": "ASIAPOD", "SecretAccessKey": "s", "Token": "t",
            "Expiration": "2100-01-01T00:00:00Z",
        }))
    }
    async fn model(
        State((seen, frames)): State<Answer>,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        seen.lock().unwrap().models.push((uri.to_string(), headers, body));
        if frames.is_empty() {
            let refused = [("x-amzn-errortype", "ThrottlingException:http://internal/")];
            let body = Json(json!({ "message": "Too many requests" }));
            return (StatusCode::TOO_MANY_REQUESTS, refused, body).into_response();
        }
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            frames.chunks(7).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let kind = [("content-type", "application/vnd.amazon.eventstream")];
        (kind, Body::from_stream(stream::iter(pieces))).into_response()
    }

    let seen = Shared::default();
    let frames = events.iter().flat_map(|(kind, name, event)| frame(kind, name, event)).collect();
    let app = Router::new()
        .route("/sts", routing::post(sts))
        .route("/agent", routing::get(agent))
        .fallback(model)
        .with_state((Arc::clone(&seen), Arc::new(frames)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (port, seen)
}

/// Finds every name on this machine.
struct Local;

impl Lookup for Local {
    fn lookup(&self, _: String) -> LookupFuture {
        Box::pin(async { Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]) })
    }
}

fn client(port: u16, credentials: BedrockCredentials<'_>) -> Result<Bedrock, Error> {
    let guard = Guard::new([HOST.to_owned()], Arc::new(Local)).unwrap();
    Bedrock::new(guard, Some(&format!("http://{HOST}:{port}")), credentials)
}

async fn ask(bedrock: &Bedrock) -> Result<Reply, Error> {
    let mut asked = request();
    asked.model = format!("bedrock:{MODEL}").parse().unwrap();
    asked.chat.messages = vec![ChatMessage::user("hi")];
    asked.deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    bedrock.reply(&asked, &mut |_| {}, &CancellationToken::new()).await
}

fn events() -> Vec<(&'static str, &'static str, &'static str)> {
    EVENTS.iter().map(|(name, event)| ("event", *name, *event)).collect()
}

fn identity(port: u16, aws: AwsIdentityConfig) -> WorkloadIdentity {
    let config = WorkloadIdentityConfig {
        tenants: vec!["*".into()],
        hosts: vec![format!("{HOST}:{port}")],
        aws,
        ..WorkloadIdentityConfig::default()
    };
    WorkloadIdentity::new(&config).unwrap()
}

#[tokio::test]
async fn an_api_key_is_sent_as_it_is_and_the_answer_comes_through() {
    let (port, seen) = aws(&events()).await;
    let bedrock = client(port, BedrockCredentials::Key(&"bedrock-api-key-x".into())).unwrap();

    let reply = ask(&bedrock).await.unwrap();

    assert_eq!((reply.text.as_str(), reply.calls.len()), ("Grüße", 1));
    assert!(reply.carry.is_some());
    let seen = seen.lock().unwrap();
    let (path, headers, body) = &seen.models[0];
    assert_eq!(path, "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream");
    assert_eq!(headers["authorization"], "Bearer bedrock-api-key-x");
    let body: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(body["messages"][0]["content"], json!([{ "text": "hi" }]));
    assert!(body.get("model").is_none());
}

#[tokio::test]
async fn keys_of_an_identity_sign_what_is_sent() {
    let (port, seen) = aws(&events()).await;
    let bedrock = client(port, BedrockCredentials::Key(&KEYS.into())).unwrap();

    ask(&bedrock).await.unwrap();

    let seen = seen.lock().unwrap();
    let (path, headers, body) = &seen.models[0];
    assert_eq!(headers["host"], format!("{HOST}:{port}"));
    assert_eq!(headers["x-amz-security-token"], "session");
    let keys = AwsKeys {
        access_key_id: "AKIDEXAMPLE".into(),
        secret_access_key: "secret".into(),
        session_token: Some("session".into()),
    };
    let scope = Scope { region: "eu-west-1".into(), service: "bedrock" };
    let url = Url::parse(&format!("http://{HOST}:{port}{path}")).unwrap();
    let date = headers["x-amz-date"].to_str().unwrap();
    let signed = sign(("POST", &url, body), &keys, &scope, date).unwrap();
    assert_eq!(headers["authorization"], signed["authorization"]);
}

#[tokio::test]
async fn the_identity_of_a_pod_is_exchanged_for_keys_once() {
    let token_file = std::env::temp_dir().join(format!("holdfast-token-{}", std::process::id()));
    std::fs::write(&token_file, "pod.token\n").unwrap();
    let (port, seen) = aws(&events()).await;
    let role = AwsIdentityConfig {
        role_arn: "arn:aws:iam::1:role/holdfast".into(),
        sts_url: format!("http://127.0.0.1:{port}/sts"),
        token_file: token_file.clone(),
        ..AwsIdentityConfig::default()
    };
    let agent = AwsIdentityConfig {
        credentials_url: format!("http://127.0.0.1:{port}/agent"),
        token_file: token_file.clone(),
        ..AwsIdentityConfig::default()
    };
    for (config, key, credential) in
        [(role, "ASIAROLE", "WebIdentityToken=pod%2Etoken"), (agent, "ASIAPOD", "pod.token")]
    {
        let identity = identity(port, config);
        let bedrock = client(port, BedrockCredentials::Identity(&identity)).unwrap();

        ask(&bedrock).await.unwrap();
        ask(&bedrock).await.unwrap();

        let mut seen = seen.lock().unwrap();
        assert_eq!((seen.credentials.len(), seen.models.len()), (1, 2), "{key}");
        assert!(seen.credentials[0].contains(credential), "{key}");
        let signed = seen.models[0].1["authorization"].to_str().unwrap();
        assert!(signed.contains(&format!("Credential={key}/")), "{signed}");
        *seen = Seen::default();
    }
    std::fs::remove_file(token_file).unwrap();
}

#[test]
fn an_identity_goes_to_bedrock_alone() {
    let aws = AwsIdentityConfig {
        role_arn: "arn:aws:iam::1:role/holdfast".into(),
        ..AwsIdentityConfig::default()
    };
    let identity = identity(1, aws);
    let guard = || Guard::new([], Arc::new(Local)).unwrap();
    let at = |url: &str| Bedrock::new(guard(), Some(url), BedrockCredentials::Identity(&identity));

    for own in [
        "https://bedrock-runtime.us-east-1.amazonaws.com",
        "https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com",
        "https://bedrock-runtime.cn-north-1.amazonaws.com.cn",
    ] {
        assert!(at(own).is_ok(), "{own}");
    }
    for other in [
        "http://bedrock-runtime.us-east-1.amazonaws.com",
        "https://bedrock-runtime.us-east-1.amazonaws.com.attacker.example",
        "https://bedrock-runtime.attacker.example",
        "https://bedrock-runtime.x.elb.amazonaws.com",
        "https://bucket.s3.amazonaws.com",
    ] {
        assert!(matches!(at(other), Err(Error::Setup(_))), "{other}");
    }
    assert!(matches!(client(1, BedrockCredentials::Key(&"{}".into())), Err(Error::Setup(_))));
}

#[tokio::test]
async fn a_refusal_is_understood_before_and_within_the_stream() {
    let (port, _) = aws(&[]).await;
    let refused = client(port, BedrockCredentials::Key(&"k".into())).unwrap();
    let late = [events()[0], ("exception", "throttlingException", r#"{"message":"slow"}"#)];
    let (port, _) = aws(&late).await;
    let broken = client(port, BedrockCredentials::Key(&"k".into())).unwrap();

    assert!(matches!(ask(&refused).await, Err(Error::RateLimited { .. })));
    assert!(matches!(ask(&broken).await, Err(Error::RateLimited { .. })));
}

#[test]
fn a_models_name_leads_nowhere_else() {
    let url = |id: &str| {
        let model = format!("bedrock:{id}").parse().unwrap();
        let base = http::base(Some("https://bedrock-runtime.eu-west-1.amazonaws.com/"), "");
        Converse { base: base.unwrap() }.url(&Request { model, ..request() }).to_string()
    };

    assert_eq!(
        url("eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        "https://bedrock-runtime.eu-west-1.amazonaws.com/model/\
         eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    );
    assert_eq!(
        url("../../x?y#z"),
        "https://bedrock-runtime.eu-west-1.amazonaws.com/model/..%2F..%2Fx%3Fy%23z/converse-stream"
    );
}

#[test]
fn a_region_is_in_the_host() {
    let of = |url: &str| region(&Url::parse(url).unwrap()).ok();

    assert_eq!(of("https://bedrock-runtime.us-east-1.amazonaws.com").as_deref(), Some("us-east-1"));
    assert_eq!(
        of("https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com").as_deref(),
        Some("us-gov-west-1")
    );
    assert_eq!(
        of("https://vpce-1.bedrock-runtime.eu-central-1.vpce.amazonaws.com").as_deref(),
        Some("eu-central-1")
    );
    assert_eq!(of("https://models.example.com"), None);
}
