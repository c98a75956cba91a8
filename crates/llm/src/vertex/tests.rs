//! Vertex AI and Google's tokens against servers that answer as theirs do.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, extract::State, http::HeaderMap, routing};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use holdfast_testkit::{FakeModel, model::Vendor};
use holdfast_types::ChatMessage;
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::{WorkloadIdentityConfig, scripted_model::tests::request};

/// RSA key that was made for these tests, in base64.
const KEY: &str = "MIIEvgIBADANBgkqhkiG9w0BAQEFAASCBKgwggSkAgEAAoIBAQCpdynZcbJWS9dtpLoUMxtedxa66i9Lz+jEHmRn \
     i6cXOY9EK1mGYNtMs3V0aKlVMalV0hsPW8Psxat/mHXFV6EMkyi0G3l3ipzffEPoXII3oOQla8z2CaFnZ1zqI9tj \
     /LxbL00prwvwzIrsaiT23opZlO2JqpvefyZssxsso0q5Ee1/O8QWam3E/bMgTFHX1WWWaGjiT8LCpRo7cMB5BEW4 \
     G550gOqBY+X7JLQNUSvCftgYKXHm5JGf3bek9QHDaKhsNSGwtsv+arPctbyn3bnn4eTT8RmCS5Ac80y/7uWi9RlV \
     qzP5R/QrZiAtcBHzsAmSosPRLeaLGi4ZpXIMA8sbAgMBAAECggEAFE2+qdrBby1vBifyU3E8GjlSc9qTCBZE4Rpz \
     FSTaRCIVVCmNdFgubiYiMGxJvXdRvoKJ03E/LCMSxRrTIW26UfNfsRSJnRTybqRIzpIm19ti+kjMKb5FpEnyC+t3 \
     4abqOlKUgCYE3DjlfCXLf/hxwwHg49mZCzNYuzVKUDLQRRP6aSPPiS9853QFvcfC49ECUSR4yxZgcrEx0VMsh+yN \
     3C7Zk5XZN+Vi/jQrbSRHgEkJGriLmtbLAFc7iAZeGrMt+zvNMixKJQxh7qp5mrpBsV09dmLi8xlGJCeTIBtdoGNJ \
     atmfyTkErzitaiw74K+9MdNabv3JHuWBTz2xTZa6IQKBgQDvKuLBSGi/YwaGtLWJCJ6Jb2mZGdXdMAqdH/R/1Gz5 \
     4fFOeVTvBBv7aCC66pijKjijxdQ2L1/mwNTHj+jvFqyh/b18XqSYT+q7teOkaLPmiS5wW6uFLpmp4j7exeiMC2Sm \
     TeI7Nk4xXytH+GgyU1XxWrpgRLOAJLppAAsgr/bx7wKBgQC1ZHJJ+j+PHkBLynr8E0sBHo7awIxM0xqq7jMpMrSU \
     tpUQIUVi+unszf1E3NRKXp1GU5VSCZmamQ+X0SuxnOmlt5IbBNGBwVPK7fKPA3BdfUCZhOkSwzDAGi0VspudrOwS \
     EGxsWEWZUZj7U1z3VNsC6P2B28MJQ1aBABMP6nW1lQKBgQDVo+t2WGYpQB3eSqI2zJpBjmI3vtpJgNaaUKcpYOoP \
     tQLG5J83+uW8B+Hk1haO+fIqaVcNJ/h0uh/YO/cJS6nd8jlHVYuV+x1lnC7C+DxrXHM9LsXibCQbmtwqR4NZRfwc \
     ikniNrpWY/rXiVAaVFLbC/6cbAIkH6rcjItkIYtnxQKBgCCFf9Avo9GfFNwB04b6Voo+1lH2D7F+b9uRlW6ffqzj \
     B1q6/FvArMweKnh8NzuWNxByz+TDf9yt8JPBltnjTii9/t4FQSLIbKOHgeOONEkuubRMlhUdFdJ7XvXy7d+ZL0IV \
     27qZIPFaJdl5msNlXVbqOvlbU16HyiyavNAvsyb5AoGBAMh8kWJVSl9ujo+kJte0uEQCTAW0TKo2xCf08Zgmk3TV \
     U5vLC1pfNAMn85rc4A6sqRjJ7FXWfPCyzXVwsix+AdzqQZSKNgK7ZEykuu8R7wSJnO6xGt0VqyW0oa+f1fS1JQEn \
     kcsKcfUWz5N1Z/fY6lJFpkimwG2IsfrRrAJwts1J";

/// What the servers saw: tokens asked for, and requests to models with their path.
#[derive(Debug, Default)]
struct Seen {
    assertions: Vec<String>,
    metadata: u32,
    models: Vec<(String, HeaderMap, Value)>,
}

type Shared = Arc<Mutex<Seen>>;

/// Google's token endpoint, metadata server and models at one address.
async fn google() -> (String, Shared) {
    async fn token(State(seen): State<Shared>, body: String) -> Json<Value> {
        let assertion = body.split("assertion=").nth(1).unwrap();
        let assertion = assertion.replace("%2E", ".").replace("%2D", "-").replace("%5F", "_");
        assert!(
            body.starts_with(
                "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant%2Dtype%3Ajwt%2Dbearer&"
            )
        );
        seen.lock().unwrap().assertions.push(assertion);
        Json(json!({ "access_token": "ya29.account", "expires_in": 3599, "token_type": "Bearer" }))
    }
    async fn metadata(
        State(seen): State<Shared>,
        headers: HeaderMap,
    ) -> impl axum::response::IntoResponse {
        assert_eq!(headers["metadata-flavor"], "Google");
        seen.lock().unwrap().metadata += 1;
        let token =
            json!({ "access_token": "ya29.pod", "expires_in": 3599, "token_type": "Bearer" });
        ([("metadata-flavor", "Google")], Json(token))
    }
    async fn model(
        State(seen): State<Shared>,
        uri: axum::http::Uri,
        headers: HeaderMap,
        Json(body): Json<Value>,
    ) -> impl axum::response::IntoResponse {
        seen.lock().unwrap().models.push((uri.to_string(), headers, body));
        let stream = include_str!("../../streams/gemini-tools.sse");
        ([("content-type", "text/event-stream")], stream)
    }

    let seen = Shared::default();
    let app = Router::new()
        .route("/token", routing::post(token))
        .route(
            "/computeMetadata/v1/instance/service-accounts/default/token",
            routing::get(metadata),
        )
        .fallback(model)
        .with_state(Arc::clone(&seen));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (format!("http://{address}"), seen)
}

fn local() -> Guard {
    Guard::with_system_resolver(["127.0.0.1".to_owned()]).unwrap()
}

fn account_key(token_uri: &str) -> SecretString {
    let private_key = format!("-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n");
    json!({
        "type": "service_account",
        "project_id": "my-project",
        "private_key_id": "k1",
        "private_key": private_key,
        "client_email": "bot@my-project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    })
    .to_string()
    .into()
}

async fn ask(vertex: &Vertex) -> Result<holdfast_types::Reply, Error> {
    let mut asked = request();
    asked.model = "vertex:gemini-3.8-flash".parse().unwrap();
    asked.chat.messages = vec![ChatMessage::user("hi")];
    asked.deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    vertex.reply(&asked, &mut |_| {}, &CancellationToken::new()).await
}

fn identity(server: &str, hosts: &[&str]) -> WorkloadIdentity {
    let config = WorkloadIdentityConfig {
        tenants: vec!["*".into()],
        google_metadata: server.to_owned(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        ..WorkloadIdentityConfig::default()
    };
    WorkloadIdentity::new(&config).unwrap()
}

#[tokio::test]
async fn a_service_account_signs_for_a_token_that_is_used_until_it_expires() {
    let (url, seen) = google().await;
    let token_url = format!("{url}/token");
    let key = account_key(&token_url);
    let base = format!("{url}/v1/projects/p/locations/europe-west1");
    let credentials = VertexCredentials::ServiceAccount(&key);
    let vertex = Vertex::with_token_url(local(), Some(&base), credentials, &token_url).unwrap();

    let reply = ask(&vertex).await.unwrap();
    ask(&vertex).await.unwrap();

    assert_eq!((reply.text.as_str(), reply.calls.len()), ("Grüße, 語 there", 2));
    let seen = seen.lock().unwrap();
    assert_eq!((seen.assertions.len(), seen.models.len()), (1, 2));
    let (path, headers, body) = &seen.models[0];
    assert_eq!(
        path,
        "/v1/projects/p/locations/europe-west1/publishers/google/models/\
         gemini-3.8-flash:streamGenerateContent?alt=sse"
    );
    assert_eq!(headers["authorization"], "Bearer ya29.account");
    assert_eq!(body["contents"][0]["parts"][0]["text"], "hi");

    let (signed, signature) = seen.assertions[0].rsplit_once('.').unwrap();
    let claims = BASE64_URL_SAFE_NO_PAD.decode(signed.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["iss"], "bot@my-project.iam.gserviceaccount.com");
    assert_eq!(claims["aud"], token_url);
    let pair = ServiceAccount::new(local(), &key, &token_url).unwrap().key;
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref());
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    public.verify(signed.as_bytes(), &signature).unwrap();
}

#[tokio::test]
async fn a_token_of_a_service_account_is_asked_for_as_google_demands() {
    let server = FakeModel::start().await.unwrap();
    server.strict(Some(Vendor::Vertex));
    let token_url = format!("http://{}/token", server.addr());
    let key = account_key(&token_url);
    let base = server.url_of(Vendor::Vertex.dialect());
    let credentials = VertexCredentials::ServiceAccount(&key);
    let vertex = Vertex::with_token_url(local(), Some(&base), credentials, &token_url).unwrap();

    let reply = ask(&vertex).await.unwrap();

    assert_eq!(reply.text, "echo: hi");
    assert_eq!(server.refusals(), [""; 0]);
}

#[test]
fn a_service_account_s_key_goes_to_google_alone_and_names_the_project() {
    let google = account_key(google::TOKEN_URL);
    let other = account_key("https://attacker.example/token");
    let new = |key| Vertex::new(local(), None, VertexCredentials::ServiceAccount(key));

    assert!(new(&google).is_ok());
    assert_eq!(
        own_url("my-project").unwrap().as_str(),
        "https://aiplatform.googleapis.com/v1/projects/my-project/locations/global"
    );
    for wrong in [other, "sk-plain".into(), r#"{"type":"authorized_user"}"#.into()] {
        let refused = Vertex::new(local(), None, VertexCredentials::ServiceAccount(&wrong));
        assert!(matches!(refused, Err(Error::Setup(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn the_metadata_server_gives_a_token_for_listed_hosts_and_googles_own() {
    let (url, seen) = google().await;
    let host = url.strip_prefix("http://").unwrap();
    let base = format!("{url}/v1/projects/p/locations/global");
    let listed = identity(&url, &[host]);
    let vertex = Vertex::new(local(), Some(&base), VertexCredentials::Identity(&listed)).unwrap();

    ask(&vertex).await.unwrap();
    ask(&vertex).await.unwrap();

    let asked = seen.lock().unwrap();
    assert_eq!((asked.metadata, asked.models.len()), (1, 2));
    assert_eq!(asked.models[1].1["authorization"], "Bearer ya29.pod");
    drop(asked);
    let strict = identity(&url, &[]);
    let at = |base: &str| Vertex::new(local(), Some(base), VertexCredentials::Identity(&strict));
    for own in
        ["https://aiplatform.googleapis.com/v1/x", "https://eu-aiplatform.googleapis.com/v1/x"]
    {
        assert!(at(own).is_ok(), "{own}");
    }
    for other in [
        base.as_str(),
        "http://aiplatform.googleapis.com/v1/x",
        "https://aiplatform.googleapis.com:8443/v1/x",
        "https://aiplatform.googleapis.com.attacker.example/v1/x",
        "https://attacker.example/x-aiplatform.googleapis.com",
        "https://storage.googleapis.com/v1/x",
        "https://a.b-aiplatform.googleapis.com/v1/x",
    ] {
        assert!(matches!(at(other), Err(Error::Setup(_))), "{other}");
    }
}

#[test]
fn an_identity_is_for_the_tenants_that_the_operator_names() {
    let (ours, theirs) =
        (holdfast_types::TenantId::generate(), holdfast_types::TenantId::generate());
    let of = |tenants: &[String]| {
        let config = WorkloadIdentityConfig {
            tenants: tenants.to_vec(),
            ..WorkloadIdentityConfig::default()
        };
        let identity = WorkloadIdentity::new(&config).unwrap();
        [ours, theirs].map(|tenant| identity.of_tenant(tenant).is_some())
    };

    assert_eq!(of(&[]), [false, false]);
    assert_eq!(of(&[ours.to_string()]), [true, false]);
    assert_eq!(of(&["*".to_owned()]), [true, true]);
    let wrong = WorkloadIdentityConfig { tenants: vec!["acme".into()], ..Default::default() };
    assert!(wrong.check().is_err());
}
