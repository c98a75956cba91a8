//! Requests with replies over core NATS.
//!
//! Nothing is stored: a question asked while NATS is down, or while no process can answer it, gets
//! no answer. Questions that are not signed as their subject demands are refused.

use std::{fmt, sync::Arc, time::Duration};

use async_nats::{Client, StatusCode, Subscriber};
use bytes::Bytes;
use futures::StreamExt as _;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::{
    Bus, Error, Subject,
    bus::{NATS_TIMEOUT, headers, with_timeout},
    signature::{SIGNATURE_HEADER, Signatures, SignedParts},
};

/// Queue group of the runners: each question goes to one of them.
pub(crate) const RUNNERS_GROUP: &str = "runners";

/// Questions on one subject, as they arrive.
pub struct Questions {
    subscriber: Subscriber,
    client: Client,
    /// `None` if they need not be signed.
    signatures: Option<Arc<Signatures>>,
}

/// Reply address of a question.
pub struct Responder {
    client: Client,
    to: async_nats::Subject,
}

impl Questions {
    fn new(bus: &Bus, subject: &Subject, subscriber: Subscriber) -> Self {
        let signatures = subject.is_signed().then(|| Arc::clone(&bus.signatures));
        Self { subscriber, client: bus.client.clone(), signatures }
    }

    /// Returns the next question that is accepted and can be parsed, with its reply address; `None`
    /// once the connection is closed for good.
    pub async fn next<Q: DeserializeOwned>(&mut self) -> Option<(Q, Responder)> {
        // Before a message is taken, which would be lost if the caller gave up waiting.
        let keys = match &self.signatures {
            Some(signatures) => Some((signatures, signatures.keys().await)),
            None => None,
        };
        loop {
            let message = self.subscriber.next().await?;
            if keys.is_some_and(|(signatures, keys)| !signatures.accept(keys, &message)) {
                continue;
            }
            let Some(to) = message.reply else { continue };
            match serde_json::from_slice(&message.payload) {
                Ok(question) => {
                    return Some((question, Responder { client: self.client.clone(), to }));
                }
                Err(error) => debug!(%error, "a question is not understood"),
            }
        }
    }
}

impl Responder {
    /// Sends the answer. Its arrival is not confirmed.
    pub async fn answer(self, answer: &impl Serialize) {
        let sent = match serde_json::to_vec(answer) {
            Ok(payload) => self.client.publish(self.to, Bytes::from(payload)).await,
            Err(error) => return debug!(%error, "an answer cannot be written as json"),
        };
        if let Err(error) = sent {
            debug!(%error, "an answer was not sent");
        }
    }
}

impl Bus {
    /// Asks a question. Collects answers until there are `most`, or `patience` has passed. If
    /// nobody is subscribed, returns no answers at once.
    ///
    /// # Errors
    ///
    /// If NATS is unavailable, or the question has to be signed and the keys are not known.
    pub async fn ask<A: DeserializeOwned>(
        &self,
        subject: &Subject,
        question: &impl Serialize,
        patience: Duration,
        most: usize,
    ) -> Result<Vec<A>, Error> {
        if !self.is_connected() {
            return Err(Error::Unavailable(None));
        }
        let until = Instant::now() + patience;
        let gone = |error: anyhow::Error| Error::Unavailable(Some(error));
        let payload = serde_json::to_vec(question).map_err(|error| gone(error.into()))?;
        let inbox = self.client.new_inbox();
        let mut answers = with_timeout(self.client.subscribe(inbox.clone())).await?;
        let (to, mut headers) = (self.prefixed(subject), headers());
        if subject.is_signed() {
            let keys = self.signatures.keys_within(NATS_TIMEOUT).await?;
            let parts = SignedParts { subject: &to, reply: &inbox, payload: &payload };
            let signature = keys.sign(parts).ok_or(Error::NoRequestKeys)?;
            headers.insert(SIGNATURE_HEADER, signature);
        }
        let sent = self.client.publish_with_reply_and_headers(to, inbox, headers, payload.into());
        sent.await.map_err(|error| gone(error.into()))?;
        let mut gathered = Vec::new();
        while gathered.len() < most {
            let Ok(Some(message)) = timeout_at(until, answers.next()).await else { break };
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                break;
            }
            match serde_json::from_slice(&message.payload) {
                Ok(answer) => gathered.push(answer),
                Err(error) => debug!(%error, "an answer is not understood"),
            }
        }
        Ok(gathered)
    }

    /// Subscribes to the questions on a subject.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn questions(&self, subject: &Subject) -> Result<Questions, Error> {
        let subscriber = with_timeout(self.client.subscribe(self.prefixed(subject))).await?;
        Ok(Questions::new(self, subject, subscriber))
    }

    /// Subscribes as a member of `group`: each question goes to one member.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub(crate) async fn questions_in_group(
        &self,
        subject: &Subject,
        group: &str,
    ) -> Result<Questions, Error> {
        let listening = self.client.queue_subscribe(self.prefixed(subject), group.to_owned());
        let subscriber = with_timeout(listening).await?;
        Ok(Questions::new(self, subject, subscriber))
    }
}

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Questions").finish_non_exhaustive()
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").finish_non_exhaustive()
    }
}
