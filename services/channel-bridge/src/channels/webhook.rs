//! Signed webhook: any program as a channel.
//!
//! Inbound: a signed `POST` to `/webhook/<account id>`. Outbound: a signed `POST` to the account's
//! URL, with the delivery's id as idempotency key, so that retries are safe and a reply arrives
//! exactly once.

mod actions;
mod files;
mod inbound;
mod receive;
mod sign;

use std::{sync::Arc, time::Duration};

use axum::response::Response;
use futures::future::BoxFuture;
use holdfast_directory::channel::{self, WebhookSecrets, WebhookSettings};
use holdfast_kit::trace;
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Delivery;
use holdfast_types::{ChannelAction, DeliveryClass, Sender};
use reqwest::{
    Client, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER},
};
use secrecy::ExposeSecret as _;
use serde_json::json;

use self::sign::{SIGNATURE_HEADER, SignedParts, TIMESTAMP_HEADER, Version};
use crate::{
    Outcome,
    account::ServedAccount,
    channel::{Channel, ChannelAccount, StoredSettings, Unusable},
    guard::{self, Clients},
    http::InboundRequest,
    split::utf16,
};

pub(super) static CHANNEL: Channel = Channel {
    name: channel::WEBHOOK,
    class: DeliveryClass::Keyed { window: KEY_WINDOW },
    assurance: SenderAssurance::Verified,
    build: |account, stored, context| {
        Ok(Arc::new(Webhook::new(account, stored, &context.clients)?))
    },
};

/// Time for which docs/channels.md asks receivers to remember keys.
const KEY_WINDOW: Duration = Duration::from_secs(24 * 3600);

/// Maximum length of a part, in UTF-16 units.
const MAX_PART_UTF16_UNITS: usize = 32_000;

/// Timeout of a post to the receiver.
const POST_TIMEOUT: Duration = Duration::from_secs(15);

/// Header that makes a second delivery harmless.
const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";

#[derive(Debug)]
pub struct Webhook {
    account: ServedAccount,
    settings: WebhookSettings,
    secrets: WebhookSecrets,
    /// Address that replies are posted to, with its client.
    called: Option<(Client, Url)>,
}

impl Webhook {
    /// Builds the account with these settings.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used.
    pub fn new(
        account: ServedAccount,
        stored: StoredSettings<'_>,
        clients: &Clients,
    ) -> Result<Self, Unusable> {
        let (settings, secrets) = WebhookSettings::read(stored.settings, stored.secrets)?;
        let client = |url: &str| match &secrets.authorization {
            Some(_) => clients.for_secret(url),
            None => clients.for_tenant(url),
        };
        let called = settings.url.as_deref().map(client).transpose();
        let called = called.map_err(|error| Unusable::Address("url", error))?;
        Ok(Self { account, settings, secrets, called })
    }

    async fn post(&self, part: &Delivery, file: Option<&[u8]>) -> Outcome {
        let Some((http, url)) = &self.called else {
            return Outcome::refused("the account has no `url` to post replies to: set one");
        };
        let id = part.id.to_string();
        if matches!(part.act, Some(ChannelAction::Close { .. })) && !self.settings.actions {
            // The program understands texts only, so it shows no buttons that could be removed.
            return Outcome::Sent { platform_id: id };
        }
        let mut body = json!({
            "delivery_id": id,
            "conversation": part.target.chat,
            "thread": part.target.thread,
            "text": part.text,
            "part": part.part,
            "in_reply_to": part.target.reply_to,
        });
        if let Some(act) = &part.act {
            match actions::action_fields(act, file) {
                Ok(fields) => actions::add_fields(&mut body, fields),
                Err(why) => return Outcome::refused(why),
            }
        }
        let body = body.to_string();
        let timestamp = sign::now().to_string();
        let signed = SignedParts { timestamp: &timestamp, key: &id, body: body.as_bytes() };
        let signature = sign::sign(&self.secrets.secret, Version::V2, signed);
        let mut request = http
            .post(url.clone())
            .timeout(POST_TIMEOUT)
            .header(CONTENT_TYPE, "application/json")
            .header(TIMESTAMP_HEADER, &timestamp)
            .header(SIGNATURE_HEADER, signature)
            .header(IDEMPOTENCY_KEY_HEADER, &id);
        if let Some(authorization) = &self.secrets.authorization {
            request = request.header(AUTHORIZATION, authorization.expose_secret());
        }
        if let Some(traceparent) = trace::current() {
            request = request.header(trace::TRACEPARENT, traceparent);
        }
        match request.body(body).send().await {
            Ok(response) => response_outcome(&response, id),
            Err(error) => error_outcome(&error),
        }
    }
}

fn response_outcome(response: &reqwest::Response, id: String) -> Outcome {
    let status = response.status();
    let code = status.as_u16();
    match status {
        // The receiver has an earlier request with this key, so the reply has arrived.
        StatusCode::CONFLICT => Outcome::Sent { platform_id: id },
        status if status.is_success() => Outcome::Sent { platform_id: id },
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let after = after.and_then(|seconds| seconds.trim().parse::<u64>().ok());
            Outcome::NotSent {
                reason: format!("the receiver answered {code}"),
                after: after.map(|seconds| Duration::from_secs(seconds.min(3600))),
            }
        }
        status if status.is_redirection() => Outcome::refused(format!(
            "the receiver answered {code}: redirects are not followed, set `url` to where it leads"
        )),
        status if status.is_client_error() => {
            Outcome::refused(format!("the receiver answered {code}"))
        }
        _ => Outcome::unsure(format!("the receiver answered {code}")),
    }
}

fn error_outcome(error: &reqwest::Error) -> Outcome {
    if let Some(private) = guard::refusal(error) {
        return Outcome::refused(private.to_string());
    }
    if error.is_connect() {
        return Outcome::not_sent("the receiver could not be reached");
    }
    if error.is_builder() {
        return Outcome::refused("`url` is no address that can be called");
    }
    Outcome::unsure(if error.is_timeout() {
        "the receiver did not answer in time"
    } else {
        "the connection to the receiver broke"
    })
}

impl ChannelAccount for Webhook {
    fn account(&self) -> &ServedAccount {
        &self.account
    }

    fn is_allowed(&self, sender: &Sender) -> bool {
        self.settings.allow.allows(&sender.id, "")
    }

    fn fits(&self, text: &str) -> bool {
        utf16(text) <= MAX_PART_UTF16_UNITS
    }

    fn send<'a>(&'a self, part: &'a Delivery, file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.post(part, file))
    }

    fn receive(self: Arc<Self>, request: InboundRequest) -> BoxFuture<'static, Response> {
        Box::pin(self.receive_message(request))
    }
}
