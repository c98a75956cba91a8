//! Events, kept by JetStream for some days.
//!
//! The stream has four limits. The oldest events are deleted first, so publishing never fails for
//! lack of space:
//!
//! | limit | protects |
//! |---|---|
//! | messages per subject | other sessions from one noisy session |
//! | bytes in all (`nats.events_max_bytes`) | the disk from many noisy sessions |
//! | age (`nats.events_max_age`) | the disk from events that nobody reads |
//! | bytes per event | the stream from one event |
//!
//! A tenant with many noisy sessions can shorten the history of all tenants, but can never prevent
//! others from publishing. No component depends on the history for its correctness.

use std::time::Duration;

use async_nats::jetstream::{
    context::{CreateStreamErrorKind, PublishErrorKind},
    stream::{Config as StreamConfig, DiscardPolicy, StorageType},
};
use bytes::Bytes;
use tokio::time::timeout;
use tracing::info;

use crate::{
    Bus, Error, Subject,
    bus::{NATS_TIMEOUT, headers},
};

/// Maximum number of events kept for one session and family.
pub const MAX_EVENTS_PER_SUBJECT: i64 = 4096;

/// Maximum size of one event, in bytes.
pub const MAX_EVENT_BYTES: usize = 256 * 1024;

/// Period in which an event that is sent again under the same id is stored once.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

impl Bus {
    /// Creates the event stream, or updates its limits.
    ///
    /// # Errors
    ///
    /// If NATS is unavailable or refuses.
    pub async fn ensure_streams(&self) -> Result<(), Error> {
        if !self.is_connected() {
            return Err(Error::Unavailable(None));
        }
        let ensure = self.jetstream.create_or_update_stream(self.stream_config());
        match timeout(NATS_TIMEOUT, ensure).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(match error.kind() {
                CreateStreamErrorKind::TimedOut => Error::Unavailable(Some(error.into())),
                _ => Error::Refused(error.into()),
            }),
            Err(_) => Err(Error::Unavailable(None)),
        }
    }

    /// Publishes an event and waits until JetStream has stored it. An event sent again under the
    /// same `id` is stored once.
    ///
    /// If the stream is missing because JetStream's storage was wiped, it is created again, by a
    /// service that may do so.
    ///
    /// # Errors
    ///
    /// If NATS is unavailable, the event is too large, or JetStream refuses it.
    pub async fn publish_event(
        &self,
        subject: &Subject,
        id: &str,
        payload: Bytes,
    ) -> Result<(), Error> {
        if payload.len() > MAX_EVENT_BYTES {
            return Err(Error::TooLarge { size: payload.len(), limit: MAX_EVENT_BYTES });
        }
        match self.try_publish_event(subject, id, payload.clone()).await {
            // Where somebody else listens to the subject, NATS does not say that no stream does.
            Err(PublishFailure::NoStream | PublishFailure::NoAnswer(_)) if self.is_connected() => {}
            Err(PublishFailure::NoStream) => return Err(Error::Unavailable(None)),
            Err(PublishFailure::NoAnswer(error) | PublishFailure::Failed(error)) => {
                return Err(error);
            }
            Ok(()) => return Ok(()),
        }
        if !self.may_create_streams {
            return Err(Error::Unavailable(None));
        }
        self.ensure_streams().await?;
        info!("the stream of events was made");
        self.try_publish_event(subject, id, payload).await.map_err(|error| match error {
            PublishFailure::NoStream => Error::Unavailable(None),
            PublishFailure::NoAnswer(error) | PublishFailure::Failed(error) => error,
        })
    }

    async fn try_publish_event(
        &self,
        subject: &Subject,
        id: &str,
        payload: Bytes,
    ) -> Result<(), PublishFailure> {
        if !self.is_connected() {
            return Err(PublishFailure::Failed(Error::Unavailable(None)));
        }
        let mut headers = headers();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
        let publish = async {
            let subject = self.prefixed(subject);
            self.jetstream.publish_with_headers(subject, headers, payload).await?.await
        };
        match timeout(NATS_TIMEOUT, publish).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(match error.kind() {
                PublishErrorKind::StreamNotFound => PublishFailure::NoStream,
                PublishErrorKind::TimedOut => {
                    PublishFailure::NoAnswer(Error::Unavailable(Some(error.into())))
                }
                PublishErrorKind::BrokenPipe => {
                    PublishFailure::Failed(Error::Unavailable(Some(error.into())))
                }
                PublishErrorKind::WrongLastMessageId
                | PublishErrorKind::WrongLastSequence
                | PublishErrorKind::MaxAckPending
                | PublishErrorKind::MaxPayloadExceeded
                | PublishErrorKind::Other => PublishFailure::Failed(Error::Refused(error.into())),
            }),
            Err(_) => Err(PublishFailure::NoAnswer(Error::Unavailable(None))),
        }
    }

    fn stream_config(&self) -> StreamConfig {
        let subjects = match self.config.prefix.as_str() {
            "" => "evt.>".to_owned(),
            prefix => format!("{prefix}.evt.>"),
        };
        StreamConfig {
            name: self.config.stream(),
            subjects: vec![subjects],
            description: Some("what others may like to know".to_owned()),
            storage: StorageType::File,
            discard: DiscardPolicy::Old,
            max_bytes: i64::try_from(self.config.events_max_bytes).unwrap_or(i64::MAX),
            max_age: self.config.events_max_age,
            max_messages_per_subject: MAX_EVENTS_PER_SUBJECT,
            num_replicas: self.config.events_replicas,
            // JetStream counts the headers, which we add.
            max_message_size: i32::try_from(MAX_EVENT_BYTES + 4096).unwrap_or(i32::MAX),
            duplicate_window: DUPLICATE_WINDOW.min(self.config.events_max_age),
            ..StreamConfig::default()
        }
    }
}

/// Failure of the first attempt to publish an event.
enum PublishFailure {
    NoStream,
    NoAnswer(Error),
    Failed(Error),
}
