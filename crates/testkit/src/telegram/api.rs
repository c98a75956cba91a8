//! The methods of the Bot API.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::bot::{Bot, Poll, Refused};
use super::{BOT_NAME, Call, Sent, Shared};
use crate::faults::{Fault, retry_seconds};
use crate::http::Cut;
use crate::scratch::lock;

const MAX_TEXT_CHARS: usize = 4096;

/// Of what is said beside a file, or asked in a poll (300 there; nobody here comes near).
const MAX_CAPTION_CHARS: usize = 1024;

/// A refusal, as Telegram puts it.
struct Refusal {
    code: u16,
    description: String,
    retry_after: Option<u64>,
}

fn refuse(code: u16, description: impl Into<String>) -> Refusal {
    Refusal { code, description: description.into(), retry_after: None }
}

pub(super) async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    Path((bot, method)): Path<(String, String)>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let answer = match bot.strip_prefix("bot").filter(|token| !token.is_empty()) {
        None => Err(refuse(404, "Not Found")),
        Some(token) => match params(query, &headers, &body) {
            None => Err(refuse(400, "Bad Request: the parameters are not JSON")),
            Some(params) => shared.call(token, &method, params, &cut).await,
        },
    };
    match answer {
        Ok(result) => Json(json!({"ok": true, "result": result})).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// A file, by the path that `getFile` told.
pub(super) async fn file(
    State(shared): State<Arc<Shared>>,
    Path((_, id)): Path<(String, String)>,
) -> Response {
    match lock(&shared.files).get(&id) {
        Some(content) => content.clone().into_response(),
        None => refuse(404, "Not Found").into_response(),
    }
}

/// From the query, and over it from a JSON body. Numbers in a query are numbers.
fn params(query: HashMap<String, String>, headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    let mut params = serde_json::Map::new();
    for (name, text) in query {
        let number = text.parse::<i64>().map(Value::from);
        params.insert(name, number.unwrap_or(Value::String(text)));
    }
    let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
    if let Some(form) = content_type.filter(|kind| kind.starts_with("multipart/form-data")) {
        params.extend(super::form::params(form, body)?);
        return Some(Value::Object(params));
    }
    if !body.is_empty() {
        let Value::Object(more) = serde_json::from_slice(body).ok()? else { return None };
        params.extend(more);
    }
    Some(Value::Object(params))
}

impl Refusal {
    fn into_response(self) -> Response {
        let mut body =
            json!({"ok": false, "error_code": self.code, "description": self.description});
        if let Some(seconds) = self.retry_after {
            body["parameters"] = json!({"retry_after": seconds});
        }
        let status = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(body)).into_response()
    }
}

impl Shared {
    async fn call(
        &self,
        token: &str,
        method: &str,
        params: Value,
        cut: &Cut,
    ) -> Result<Value, Refusal> {
        let bot = self.bot(token);
        if bot.is_revoked() {
            return Err(refuse(401, "Unauthorized"));
        }
        if method == "getUpdates" {
            return self.get_updates(&bot, &params).await;
        }
        lock(&self.calls).push(Call {
            at: Instant::now(),
            token: token.to_owned(),
            method: method.to_owned(),
            params: params.clone(),
        });
        match method {
            "getMe" => Ok(json!({"id": bot_id(token), "is_bot": true, "first_name": "Holdfast",
                "username": BOT_NAME, "can_join_groups": true,
                "can_read_all_group_messages": false})),
            "setWebhook" => {
                let url = params["url"].as_str().unwrap_or_default();
                match url {
                    "" => bot.delete_webhook(),
                    _ => bot.set_webhook(
                        url.to_owned(),
                        params["secret_token"].as_str().map(str::to_owned),
                    ),
                }
                Ok(json!(true))
            }
            "deleteWebhook" => {
                bot.delete_webhook();
                Ok(json!(true))
            }
            "getWebhookInfo" => Ok(json!({"url": bot.webhook_url(),
                "has_custom_certificate": false, "pending_update_count": bot.pending()})),
            // Nobody misses one, and what is behind it would not be sent.
            "sendChatAction" => self.act(token, method, &params),
            "sendMessage"
            | "editMessageText"
            | "editMessageReplyMarkup"
            | "deleteMessage"
            | "setMessageReaction"
            | "pinChatMessage"
            | "unpinChatMessage"
            | "sendPoll"
            | "createForumTopic"
            | "sendPhoto"
            | "sendDocument"
            | "sendVoice"
            | "sendAudio"
            | "sendAnimation"
            | "sendVideo" => {
                let fault = self.faults.take();
                if let Some(fault) = &fault {
                    before(fault, cut)?;
                }
                let result = self.act(token, method, &params)?;
                if let Some(fault) = &fault {
                    after(fault, cut).await;
                }
                Ok(result)
            }
            "getFile" => {
                let id = params["file_id"].as_str().unwrap_or_default();
                match lock(&self.files).get(id).map(Vec::len) {
                    Some(size) => Ok(json!({"file_id": id, "file_unique_id": id,
                        "file_size": size, "file_path": format!("files/{id}")})),
                    None => Err(refuse(400, "Bad Request: invalid file_id")),
                }
            }
            "setMyCommands" | "answerCallbackQuery" => Ok(json!(true)),
            _ => Err(refuse(404, "Not Found")),
        }
    }

    fn act(&self, token: &str, method: &str, params: &Value) -> Result<Value, Refusal> {
        match method {
            "sendMessage" => self.send(token, params),
            "editMessageText" => self.edit(params),
            "editMessageReplyMarkup" => {
                let (chat, id) = (chat(params)?, params["message_id"].as_i64().unwrap_or_default());
                match lock(&self.texts).get(&(chat, id)) {
                    Some(_) if self.null_results.load(Ordering::Relaxed) => Ok(Value::Null),
                    Some(text) => Ok(message(token, chat, id, text)),
                    None => Err(refuse(400, "Bad Request: message to edit not found")),
                }
            }
            "deleteMessage" => {
                let key = (chat(params)?, params["message_id"].as_i64().unwrap_or_default());
                match lock(&self.texts).remove(&key) {
                    Some(_) => Ok(json!(true)),
                    None => Err(refuse(400, "Bad Request: message to delete not found")),
                }
            }
            "sendPoll" => {
                let options = params["options"].as_array().map_or(0, Vec::len);
                if !(2..=10).contains(&options) {
                    return Err(refuse(400, "Bad Request: poll must have at least 2 option"));
                }
                self.made(token, params, params["question"].as_str())
            }
            "createForumTopic" => {
                chat(params)?;
                let name = params["name"].as_str().unwrap_or_default();
                Ok(json!({"message_thread_id": self.next_message_id(), "name": name,
                    "icon_color": 7_322_096}))
            }
            "sendPhoto" | "sendDocument" | "sendVoice" | "sendAudio" | "sendAnimation"
            | "sendVideo" => {
                let field = method.trim_start_matches("send").to_ascii_lowercase();
                let file = &params[&field];
                if file["file_size"].as_u64().unwrap_or_default() == 0 {
                    return Err(refuse(400, "Bad Request: file must be non-empty"));
                }
                // Telegram looks into what is said to be a picture.
                if method == "sendPhoto" && file["text"].as_str().is_some_and(|t| t.contains("odd"))
                {
                    return Err(refuse(400, "Bad Request: PHOTO_INVALID_DIMENSIONS"));
                }
                self.made(token, params, params["caption"].as_str())
            }
            _ => chat(params).map(|_| json!(true)),
        }
    }

    async fn get_updates(&self, bot: &Bot, params: &Value) -> Result<Value, Refusal> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        let longest = if self.hasty.load(Ordering::Relaxed) { 0 } else { 50 };
        let limit = params["limit"].as_u64().unwrap_or(100).clamp(1, 100);
        let poll = Poll {
            offset: params["offset"].as_i64().unwrap_or(0),
            limit: usize::try_from(limit).unwrap_or(100),
            timeout: Duration::from_secs(params["timeout"].as_u64().unwrap_or(0).min(longest)),
        };
        let conflict = || {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
        };
        match bot.poll(poll, conflict).await {
            Ok(updates) => Ok(Value::Array(updates)),
            Err(Refused::Conflict) => Err(refuse(
                409,
                "Conflict: terminated by other getUpdates request; make sure that only one bot \
                 instance is running",
            )),
            Err(Refused::Webhook) => Err(refuse(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook \
                 to delete the webhook first",
            )),
        }
    }

    fn send(&self, token: &str, params: &Value) -> Result<Value, Refusal> {
        let chat = chat(params)?;
        let text = self.text(params)?;
        let topic = params["message_thread_id"].as_i64();
        let message_id = self.next_message_id();
        lock(&self.texts).insert((chat, message_id), text.to_owned());
        lock(&self.sends).push(Sent {
            at: Instant::now(),
            token: token.to_owned(),
            chat,
            topic,
            reply_to: params["reply_parameters"]["message_id"]
                .as_i64()
                .or_else(|| params["reply_to_message_id"].as_i64()),
            text: text.to_owned(),
            parse_mode: params["parse_mode"].as_str().map(str::to_owned),
            message_id,
        });
        let mut message = message(token, chat, message_id, text);
        if let Some(topic) = topic {
            message["message_thread_id"] = json!(topic);
        }
        Ok(message)
    }

    /// A message that is no text.
    fn made(&self, token: &str, params: &Value, text: Option<&str>) -> Result<Value, Refusal> {
        let chat = chat(params)?;
        let text = text.unwrap_or_default();
        if text.encode_utf16().count() > MAX_CAPTION_CHARS {
            return Err(refuse(400, "Bad Request: message caption is too long"));
        }
        let message_id = self.next_message_id();
        lock(&self.texts).insert((chat, message_id), text.to_owned());
        Ok(message(token, chat, message_id, text))
    }

    fn edit(&self, params: &Value) -> Result<Value, Refusal> {
        let chat = chat(params)?;
        let text = self.text(params)?;
        let message_id = params["message_id"].as_i64().unwrap_or_default();
        let mut texts = lock(&self.texts);
        let Some(now) = texts.get_mut(&(chat, message_id)) else {
            return Err(refuse(400, "Bad Request: message to edit not found"));
        };
        if now == text {
            return Err(refuse(
                400,
                "Bad Request: message is not modified: specified new message content and reply \
                 markup are exactly the same as a current content and reply markup of the message",
            ));
        }
        text.clone_into(now);
        Ok(message("", chat, message_id, text))
    }

    fn text<'a>(&self, params: &'a Value) -> Result<&'a str, Refusal> {
        let text = params["text"].as_str().unwrap_or_default();
        if text.trim().is_empty() {
            return Err(refuse(400, "Bad Request: message text is empty"));
        }
        if text.encode_utf16().count() > MAX_TEXT_CHARS {
            return Err(refuse(400, "Bad Request: message is too long"));
        }
        if params["parse_mode"].is_string() {
            let left = |n: u64| n.checked_sub(1);
            let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
            if self.bad_entities.fetch_update(set, fetch, left).is_ok() {
                return Err(refuse(
                    400,
                    "Bad Request: can't parse entities: Can't find end of the entity starting at \
                     byte offset 0",
                ));
            }
        }
        Ok(text)
    }
}

fn message(token: &str, chat: i64, message_id: i64, text: &str) -> Value {
    let kind = if chat < 0 { "supergroup" } else { "private" };
    json!({
        "message_id": message_id, "date": 1_800_000_000, "text": text,
        "chat": {"id": chat, "type": kind},
        "from": {"id": bot_id(token), "is_bot": true, "first_name": "Holdfast",
                 "username": BOT_NAME},
    })
}

/// Some clients send the number as text.
fn chat(params: &Value) -> Result<i64, Refusal> {
    let id = &params["chat_id"];
    id.as_i64()
        .or_else(|| id.as_str()?.parse().ok())
        .ok_or_else(|| refuse(400, "Bad Request: chat not found"))
}

/// What stands before the colon of a token.
fn bot_id(token: &str) -> i64 {
    token.split(':').next().and_then(|id| id.parse().ok()).unwrap_or(1)
}

fn before(fault: &Fault, cut: &Cut) -> Result<(), Refusal> {
    match fault {
        Fault::Status(code) => Err(refuse(*code, "as the test wanted")),
        Fault::RateLimited { retry_after } => {
            let seconds = retry_seconds(*retry_after);
            let mut refusal = refuse(429, format!("Too Many Requests: retry after {seconds}"));
            refusal.retry_after = Some(seconds);
            Err(refusal)
        }
        Fault::CutBefore => {
            cut.now();
            Err(refuse(500, "nobody reads this"))
        }
        Fault::Hang(_) | Fault::CutAfter => Ok(()),
    }
}

async fn after(fault: &Fault, cut: &Cut) {
    match fault {
        Fault::Hang(time) => tokio::time::sleep(*time).await,
        Fault::CutAfter => cut.now(),
        Fault::Status(_) | Fault::RateLimited { .. } | Fault::CutBefore => {}
    }
}
