//! WhatsApp's Cloud API, by Meta's public documents:
//! <https://developers.facebook.com/docs/whatsapp/cloud-api/reference/messages>,
//! <https://developers.facebook.com/docs/whatsapp/cloud-api/webhooks/components>,
//! <https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes>.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse as _, Response},
    routing::any,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Address, Failure, File, Got, Lack, Platform, Where, Written};
use crate::world::World;

const TOKEN: &str = "whatsapp-token-0123456789";
const APP_SECRET: &str = "whatsapp-app-secret";
const NUMBER: &str = "1065";

pub struct WhatsappPlatform {
    meta: Arc<Meta>,
    _stop: DropGuard,
}

#[derive(Default)]
struct Meta {
    url: String,
    sent: Mutex<Vec<Value>>,
    calls: Mutex<Vec<Value>>,
    file: Mutex<Vec<u8>>,
    failure: Mutex<Option<Failure>>,
}

pub fn signature(body: &str) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(APP_SECRET.as_bytes()).unwrap();
    let digest = mac.chain_update(body).finalize().into_bytes();
    format!("sha256={}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

async fn serve(
    State(meta): State<Arc<Meta>>,
    Path(path): Path<String>,
    request: Request,
) -> Response {
    if request.headers().get("authorization").unwrap() != &format!("Bearer {TOKEN}") {
        let body = json!({"error": {"code": 190, "message": "Invalid OAuth access token"}});
        return (StatusCode::UNAUTHORIZED, Json(body)).into_response();
    }
    let method = request.method().clone();
    let body = axum::body::to_bytes(Body::new(request.into_body()), 1 << 20).await.unwrap();
    match (method, path.as_str()) {
        (Method::GET, NUMBER) => Json(json!({"display_phone_number": "+1 555"})).into_response(),
        (Method::GET, "77") => {
            Json(json!({"url": format!("{}/lookaside", meta.url), "file_size": 10})).into_response()
        }
        (Method::GET, "lookaside") => meta.file.lock().unwrap().clone().into_response(),
        (Method::POST, "1065/media") => {
            *meta.file.lock().unwrap() = body.to_vec();
            Json(json!({"id": "88"})).into_response()
        }
        (Method::POST, "1065/messages") => meta.send(serde_json::from_slice(&body).unwrap()),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

impl Meta {
    fn send(&self, message: Value) -> Response {
        if message["status"] == "read" {
            self.calls.lock().unwrap().push(message);
            return Json(json!({"success": true})).into_response();
        }
        let refused = |code: i64| {
            let body = json!({"error": {"code": code, "message": "(#) refused"}});
            (StatusCode::BAD_REQUEST, Json(body)).into_response()
        };
        let failure = self.failure.lock().unwrap().take();
        match failure {
            Some(Failure::Refused) => return refused(131_026),
            Some(Failure::RateLimited) => {
                let ([retry], refused) = ([("retry-after", "1")], refused(130_429));
                return ([retry], refused).into_response();
            }
            Some(Failure::AnswerLost) | None => {}
        }
        let mut sent = self.sent.lock().unwrap();
        sent.push(message);
        match failure {
            Some(_) => StatusCode::BAD_GATEWAY.into_response(),
            None => {
                Json(json!({"messages": [{"id": format!("wamid.{}", sent.len())}]})).into_response()
            }
        }
    }
}

impl WhatsappPlatform {
    async fn post(&self, at: &Address, value: Value) {
        let mut value = value;
        value["metadata"] = json!({"phone_number_id": NUMBER});
        let body = json!({"object": "whatsapp_business_account",
            "entry": [{"changes": [{"field": "messages", "value": value}]}]});
        let body = body.to_string();
        let request = reqwest::Client::new()
            .post(format!("{}/whatsapp/{}", at.url, at.account))
            .header("x-hub-signature-256", signature(&body))
            .body(body);
        assert!(request.send().await.unwrap().status().is_success());
    }

    async fn post_message(&self, at: &Address, from: &str, more: Value) {
        let mut message = json!({"from": from, "id": "wamid.in", "timestamp": "1800000000"});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let contacts = json!([{"wa_id": from, "profile": {"name": "Anna"}}]);
        self.post(at, json!({"contacts": contacts, "messages": [message]})).await;
    }
}

impl Platform for WhatsappPlatform {
    const CHANNEL: &'static str = "whatsapp";

    async fn start(_: &mut World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (meta, stop) = (Arc::new(Meta { url, ..Meta::default() }), CancellationToken::new());
        let router = Router::new().route("/{*path}", any(serve)).with_state(Arc::clone(&meta));
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            tokio::select! {
                () = stopped => {}
                _ = axum::serve(listener, router).into_future() => {}
            }
        });
        Self { meta, _stop: stop.drop_guard() }
    }

    fn lacks(&self) -> &'static [Lack] {
        &[Lack::Groups, Lack::Threads, Lack::Edits, Lack::Connection]
    }

    fn account(&self) -> (Value, Value) {
        let settings = json!({"phone_number_id": NUMBER, "api_base": self.meta.url});
        let secrets = json!({"access_token": TOKEN, "app_secret": APP_SECRET,
            "verify_token": "verify-me-0123456789"});
        (settings, secrets)
    }

    fn wrong_secrets(&self) -> Value {
        json!({"access_token": "WRONG", "app_secret": APP_SECRET,
            "verify_token": "verify-me-0123456789"})
    }

    fn allow_forms(&self) -> Vec<Value> {
        vec![json!("+49170"), json!(49170), json!("49170|Anna"), json!("*")]
    }

    fn secret(&self) -> &'static str {
        TOKEN
    }

    async fn is_heard(&self, _: &World) {}

    async fn write(&self, _: &World, at: &Address, written: Written) {
        assert_eq!(written.place, Where::Direct);
        let from = if written.is_allowed { "49170" } else { "666" };
        let id = format!("wamid.in{}", written.id);
        let text = json!({"id": id, "type": "text", "text": {"body": written.text}});
        self.post_message(at, from, text).await;
    }

    async fn write_file(&self, _: &World, at: &Address, file: File) {
        *self.meta.file.lock().unwrap() = file.content;
        let image = json!({"id": "77", "mime_type": "image/png"});
        self.post_message(at, "49170", json!({"type": "image", "image": image})).await;
    }

    async fn press(&self, _: &World, at: &Address, data: &str) {
        let reply = json!({"type": "button_reply", "button_reply": {"id": data, "title": "x"}});
        self.post_message(at, "49170", json!({"type": "interactive", "interactive": reply})).await;
    }

    fn got(&self, _: &World) -> Vec<Got> {
        let sent = self.meta.sent.lock().unwrap();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        sent.iter()
            .filter(|message| message["type"] != "reaction")
            .map(|message| {
                let content = &message[message["type"].as_str().unwrap()];
                let shown = [&content["body"], &content["caption"], &content["body"]["text"]];
                let buttons = content["action"]["buttons"].as_array().cloned().unwrap_or_default();
                Got {
                    chat: text(&message["to"]).unwrap(),
                    text: shown.into_iter().find_map(text).unwrap_or_default(),
                    reply_to: text(&message["context"]["message_id"]),
                    thread: None,
                    file: text(&content["filename"]).map(|name| {
                        let form = self.meta.file.lock().unwrap();
                        let form = String::from_utf8_lossy(&form);
                        (
                            name,
                            form.split("\r\n\r\n")
                                .find(|part| part.starts_with("1,2"))
                                .map_or(0, |_| 3),
                        )
                    }),
                    buttons: buttons
                        .iter()
                        .map(|button| text(&button["reply"]["id"]).unwrap())
                        .collect(),
                }
            })
            .collect()
    }

    fn reactions(&self, _: &World) -> usize {
        let sent = self.meta.sent.lock().unwrap();
        sent.iter().filter(|message| message["type"] == "reaction").count()
    }

    fn is_typing_shown(&self, _: &World) -> bool {
        let calls = self.meta.calls.lock().unwrap();
        calls.iter().any(|call| call["typing_indicator"]["type"] == "text")
    }

    fn fail_next(&self, world: &World, failure: Failure) {
        *self.meta.failure.lock().unwrap() = Some(failure);
        if failure != Failure::AnswerLost {
            return;
        }
        // The status of the message arrives though the answer was lost.
        let (meta, url) = (Arc::clone(&self.meta), world.first_bridge.get().unwrap().clone());
        let (directory, tenant) = (world.directory.clone(), world.tenant);
        tokio::spawn(async move {
            while meta.sent.lock().unwrap().is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            let account = directory.accounts().list(tenant, None).await.unwrap().remove(0).id;
            let data = meta.sent.lock().unwrap()[0]["biz_opaque_callback_data"].clone();
            let status =
                json!({"id": "wamid.1", "status": "sent", "biz_opaque_callback_data": data});
            let platform = Self { meta, _stop: CancellationToken::new().drop_guard() };
            let at = Address { url, account };
            platform.post(&at, json!({"statuses": [status]})).await;
        });
    }

    fn cut(&self, _: &World) {}

    fn connections(&self, _: &World) -> (usize, usize) {
        (0, 0)
    }

    fn chat(&self) -> &'static str {
        "49170"
    }

    fn group(&self) -> &'static str {
        "49170"
    }

    fn message_id(&self) -> &'static str {
        "wamid.11"
    }
}
