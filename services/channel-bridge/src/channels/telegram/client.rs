//! Client for the methods of Telegram's Bot API that the bridge needs.
//!
//! The token is part of every URL. So no URL is ever logged or put into an error, and the HTTP
//! client's errors are stripped of theirs.

use std::{fmt, time::Duration};

use reqwest::{Client, StatusCode, multipart::Form};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json};

use super::wire::{BotIdentity, MessageId};
use crate::guard;

/// Timeout of a call, in addition to the time that a poll waits.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum size of a response, in bytes: a hundred updates are far below.
const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;

/// Kinds of updates that we ask for; Telegram does not send others.
const ALLOWED_UPDATES: [&str; 4] =
    ["message", "edited_message", "callback_query", "message_reaction"];

/// Error for a text that is not a bot's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is none: copy it from @BotFather, it looks like `123456:ABC-DEF`")]
pub struct InvalidToken;

/// Reason why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call certainly did not arrive.
    #[error("telegram was not reached: {0}")]
    NotSent(String),
    /// The call may have been executed or not.
    #[error("telegram's answer was lost: {0}")]
    Unsure(String),
    #[error("telegram asks to wait {after:?}")]
    RateLimited { after: Duration },
    #[error("telegram refused ({status}): {description}")]
    Refused {
        /// HTTP status; 0 if the call was refused on this side.
        status: u16,
        description: String,
        /// New chat id, if the group became a supergroup.
        moved_to: Option<i64>,
    },
}

#[derive(Clone)]
pub struct Bot {
    http: Client,
    base: SecretString,
    /// Base URL of the bot's files.
    files: SecretString,
}

impl fmt::Debug for Bot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bot").finish_non_exhaustive()
    }
}

/// Option of a message without link preview. For a preview Telegram fetches the first address of a text, and
/// the agent may have put what it knows into that.
pub fn no_link_preview() -> Value {
    json!({"is_disabled": true})
}

#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Chat to send to: a number, or `@name`.
    pub chat: &'a str,
    pub thread: Option<i64>,
    /// Message that this one replies to.
    pub reply_to: Option<i64>,
    pub text: &'a str,
    /// Whether the text is HTML.
    pub html: bool,
    /// Buttons below the message, one per row: label and data.
    pub buttons: &'a [(String, String)],
}

impl Bot {
    /// Builds the client for the bot with this token, at the server with this base URL.
    ///
    /// # Errors
    ///
    /// If the text is not a token.
    pub fn new(http: Client, api_base: &str, token: &SecretString) -> Result<Self, InvalidToken> {
        let secret = token.expose_secret();
        // The token becomes part of a path: it must not contain characters with a meaning there.
        let is_token = secret.split_once(':').is_some_and(|(id, rest)| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            !id.is_empty()
                && id.chars().all(|c| c.is_ascii_digit())
                && !rest.is_empty()
                && rest.chars().all(plain)
        });
        if !is_token {
            return Err(InvalidToken);
        }
        let server = api_base.trim_end_matches('/');
        let (base, files) = (format!("{server}/bot{secret}"), format!("{server}/file/bot{secret}"));
        Ok(Self { http, base: base.into(), files: files.into() })
    }

    /// Returns the identity of the bot.
    pub async fn get_me(&self) -> Result<BotIdentity, CallError> {
        self.call("getMe", &json!({}), CALL_TIMEOUT).await
    }

    /// Returns the updates from `offset` on, after waiting up to `wait` for the first. Confirms all
    /// updates before `offset`: Telegram deletes them.
    pub async fn get_updates(
        &self,
        offset: Option<i64>,
        wait: Duration,
    ) -> Result<Vec<Value>, CallError> {
        let mut params = json!({"timeout": wait.as_secs(), "allowed_updates": ALLOWED_UPDATES});
        if let Some(offset) = offset {
            params["offset"] = offset.into();
        }
        self.call("getUpdates", &params, wait + CALL_TIMEOUT).await
    }

    pub async fn send_message(&self, message: Outgoing<'_>) -> Result<MessageId, CallError> {
        let mut params = json!({
            "chat_id": message.chat,
            "text": message.text,
            "link_preview_options": no_link_preview(),
        });
        if let Ok(chat) = message.chat.parse::<i64>() {
            params["chat_id"] = chat.into();
        }
        if message.html {
            params["parse_mode"] = "HTML".into();
        }
        if let Some(thread) = message.thread {
            params["message_thread_id"] = thread.into();
        }
        if let Some(id) = message.reply_to {
            params["reply_parameters"] =
                json!({"message_id": id, "allow_sending_without_reply": true});
        }
        if !message.buttons.is_empty() {
            let row =
                |(text, data): &(String, String)| json!([{"text": text, "callback_data": data}]);
            let rows: Vec<Value> = message.buttons.iter().map(row).collect();
            params["reply_markup"] = json!({"inline_keyboard": rows});
        }
        self.call("sendMessage", &params, CALL_TIMEOUT).await
    }

    /// Confirms that a button was pressed; until then Telegram shows it as busy.
    pub async fn answer_callback_query(&self, press: &str, text: &str) -> Result<(), CallError> {
        let params = json!({"callback_query_id": press, "text": text});
        self.execute("answerCallbackQuery", &params).await
    }

    pub async fn send_typing(&self, chat: i64, thread: Option<i64>) -> Result<(), CallError> {
        let mut params = json!({"chat_id": chat, "action": "typing"});
        if let Some(thread) = thread {
            params["message_thread_id"] = thread.into();
        }
        self.execute("sendChatAction", &params).await
    }

    /// Registers `url` for updates. Telegram sends `secret` in a header.
    pub async fn set_webhook(&self, url: &str, secret: &SecretString) -> Result<(), CallError> {
        let params = json!({"url": url, "secret_token": secret.expose_secret(),
            "allowed_updates": ALLOWED_UPDATES, "max_connections": 10});
        self.execute("setWebhook", &params).await
    }

    /// Removes the webhook, so that updates can be polled. Pending updates are kept.
    pub async fn delete_webhook(&self) -> Result<(), CallError> {
        self.execute("deleteWebhook", &json!({})).await
    }

    /// Calls a method whose result does not matter: `ok` is enough.
    pub async fn execute(&self, method: &str, params: &Value) -> Result<(), CallError> {
        let (status, body) = self.post(method, params, CALL_TIMEOUT).await?;
        parse_response::<IgnoredAny>(status, &body).map(drop)
    }

    /// Calls a method with these parameters.
    pub async fn method<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &Value,
    ) -> Result<T, CallError> {
        self.call(method, params, CALL_TIMEOUT).await
    }

    /// Downloads a file of at most `most` bytes, by the path that `getFile` returned.
    ///
    /// # Errors
    ///
    /// If the file is larger, or cannot be downloaded.
    pub async fn download(&self, path: &str, most: usize) -> Result<Vec<u8>, CallError> {
        let url = format!("{}/{path}", self.files.expose_secret());
        let sent = self.http.get(url).timeout(CALL_TIMEOUT).send().await;
        let response = sent.map_err(|error| transport_error(&error.without_url()))?;
        let status = response.status();
        if !status.is_success() {
            return Err(CallError::Refused {
                status: status.as_u16(),
                description: "the file is not there".to_owned(),
                moved_to: None,
            });
        }
        read_up_to(response, most).await
    }

    /// Calls a method with a form, which may hold files.
    pub async fn post_form<T: DeserializeOwned>(
        &self,
        method: &str,
        form: Form,
        patience: Duration,
    ) -> Result<T, CallError> {
        let url = format!("{}/{method}", self.base.expose_secret());
        let sent = self.http.post(url).timeout(patience).multipart(form).send().await;
        let response = sent.map_err(|error| transport_error(&error.without_url()))?;
        let status = response.status();
        parse_result(status, &read(response).await?)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &Value,
        patience: Duration,
    ) -> Result<T, CallError> {
        let (status, body) = self.post(method, params, patience).await?;
        parse_result(status, &body)
    }

    async fn post(
        &self,
        method: &str,
        params: &Value,
        patience: Duration,
    ) -> Result<(StatusCode, Vec<u8>), CallError> {
        let url = format!("{}/{method}", self.base.expose_secret());
        let sent = self.http.post(url).timeout(patience).json(params).send().await;
        let response = sent.map_err(|error| transport_error(&error.without_url()))?;
        Ok((response.status(), read(response).await?))
    }
}

#[derive(Deserialize)]
struct ApiResponse<T> {
    ok: bool,
    result: Option<T>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Parameters {
    retry_after: Option<u64>,
    migrate_to_chat_id: Option<i64>,
}

/// Classifies a transport error. The error must not contain its URL any more.
fn transport_error(error: &reqwest::Error) -> CallError {
    if let Some(private) = guard::refusal(error) {
        let description = private.to_string();
        return CallError::Refused { status: 0, description, moved_to: None };
    }
    if error.is_connect() {
        return CallError::NotSent("the connection could not be made".to_owned());
    }
    if error.is_builder() {
        let description = "`api_base` is no address".to_owned();
        return CallError::Refused { status: 0, description, moved_to: None };
    }
    CallError::Unsure(
        if error.is_timeout() { "it took too long" } else { "the connection broke" }.to_owned(),
    )
}

async fn read(response: reqwest::Response) -> Result<Vec<u8>, CallError> {
    read_up_to(response, MAX_RESPONSE_BYTES).await
}

async fn read_up_to(mut response: reqwest::Response, most: usize) -> Result<Vec<u8>, CallError> {
    let mut body = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|error| transport_error(&error.without_url()))?
    {
        if body.len() + chunk.len() > most {
            return Err(CallError::Unsure(format!("it has more than {most} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Parses a response that must have a result.
fn parse_result<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, CallError> {
    // A success that cannot be parsed may come from another server, or from Telegram after the
    // work was done.
    parse_response(status, body)?.ok_or_else(unreadable)
}

fn unreadable() -> CallError {
    CallError::Unsure("it cannot be read".to_owned())
}

/// Parses a response; a successful one may have no result.
fn parse_response<T: DeserializeOwned>(
    status: StatusCode,
    body: &[u8],
) -> Result<Option<T>, CallError> {
    let parsed = serde_json::from_slice::<ApiResponse<T>>(body).ok();
    if status.is_success() {
        return match parsed {
            Some(ApiResponse { ok: true, result, .. }) => Ok(result),
            Some(_) | None => Err(unreadable()),
        };
    }
    let (description, parameters) =
        parsed.map_or_else(Default::default, |answer| (answer.description, answer.parameters));
    match status {
        StatusCode::TOO_MANY_REQUESTS => {
            let after = Duration::from_secs(parameters.retry_after.unwrap_or(1).min(3600));
            Err(CallError::RateLimited { after })
        }
        StatusCode::REQUEST_TIMEOUT => Err(CallError::NotSent("it timed out (408)".to_owned())),
        status if status.is_server_error() => {
            Err(CallError::Unsure(format!("status {}", status.as_u16())))
        }
        status => Err(CallError::Refused {
            status: status.as_u16(),
            description,
            moved_to: parameters.migrate_to_chat_id,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, body: &str) -> Result<MessageId, CallError> {
        parse_result(StatusCode::from_u16(code).unwrap(), body.as_bytes())
    }

    #[test]
    fn an_answer_is_told_by_its_status() {
        let refused = |status, description: &str, moved_to| {
            Err(CallError::Refused { status, description: description.into(), moved_to })
        };

        assert_eq!(
            status(200, r#"{"ok":true,"result":{"message_id":7,"new":1}}"#),
            Ok(MessageId { message_id: 7 })
        );
        assert_eq!(
            status(403, r#"{"ok":false,"description":"bot was blocked"}"#),
            refused(403, "bot was blocked", None)
        );
        assert_eq!(
            status(400, r#"{"ok":false,"description":"x","parameters":{"migrate_to_chat_id":-9}}"#),
            refused(400, "x", Some(-9))
        );
        assert_eq!(
            status(429, r#"{"ok":false,"parameters":{"retry_after":5}}"#),
            Err(CallError::RateLimited { after: Duration::from_secs(5) })
        );
        assert!(matches!(status(408, ""), Err(CallError::NotSent(_))));
        for (code, body) in [(500, ""), (502, "<html>"), (200, "<html>"), (200, r#"{"ok":false}"#)]
        {
            assert!(matches!(status(code, body), Err(CallError::Unsure(_))), "{code} {body}");
        }
        assert_eq!(status(404, "<html>"), refused(404, "", None));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        holdfast_kit::tls::install_crypto();
        for token in ["", "abc", "12", "12:", ":abc", "12:a/b", "12:a?b", "1a:abc", "12:a b"] {
            assert!(Bot::new(Client::new(), "http://x", &token.into()).is_err(), "{token}");
        }
        assert!(Bot::new(Client::new(), "http://x", &"12:AB-c_d".into()).is_ok());
    }

    #[tokio::test]
    async fn no_error_shows_the_token() {
        holdfast_kit::tls::install_crypto();
        for base in ["http://127.0.0.1:1", "http://nowhere.invalid", "nonsense", "http://[::bad"] {
            let bot = Bot::new(Client::new(), base, &"12:SECRET".into()).unwrap();

            let error = bot.get_me().await.unwrap_err();

            assert!(!format!("{error} {error:?} {bot:?}").contains("SECRET"), "{error:?}");
        }
    }

    #[tokio::test]
    async fn what_cannot_connect_was_not_sent() {
        holdfast_kit::tls::install_crypto();
        let bot = Bot::new(Client::new(), "http://127.0.0.1:1", &"12:a".into()).unwrap();

        assert!(matches!(bot.get_me().await, Err(CallError::NotSent(_))));
    }
}
