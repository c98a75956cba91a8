//! Events: what others may like to know, kept for some days by JetStream.
//!
//! The stream is bounded four ways, and the oldest goes first, so that publishing
//! never fails for want of room:
//!
//! | bound | holds |
//! |---|---|
//! | [`PER_SUBJECT`] messages per subject | one session, that it does not push out the others' |
//! | bytes in all (`nats.events_max_bytes`) | many noisy sessions; the disk |
//! | age (`nats.events_max_age`) | what nobody reads |
//! | [`LARGEST`] bytes per event | one event |
//!
//! A tenant with many noisy sessions can shorten everyone's history, and can
//! never stop anyone from publishing. Nobody's correctness rests on history.

use std::time::Duration;

use async_nats::jetstream::{
    context::PublishErrorKind,
    stream::{Config as StreamConfig, DiscardPolicy, StorageType},
};
use bytes::Bytes;
use tokio::time::timeout;
use tracing::info;

use crate::{
    Bus, Error, Subject,
    bus::{PATIENCE, headers},
};

/// The most events kept for one session and family.
pub const PER_SUBJECT: i64 = 4096;

/// The most bytes of one event.
pub const LARGEST: usize = 256 * 1024;

/// Within this time an event that is sent again, under the same id, is stored once.
const DUPLICATES: Duration = Duration::from_secs(120);

impl Bus {
    /// Makes the stream of events if there is none, or gives it the bounds that are set.
    ///
    /// # Errors
    ///
    /// If NATS is not there, or refuses.
    pub async fn ensure_streams(&self) -> Result<(), Error> {
        if !self.is_connected() {
            return Err(Error::Unavailable(None));
        }
        let ensure = self.jetstream.create_or_update_stream(self.stream());
        match timeout(PATIENCE, ensure).await {
            Ok(outcome) => outcome.map(drop).map_err(|error| Error::Refused(error.into())),
            Err(_) => Err(Error::Unavailable(None)),
        }
    }

    /// Publishes an event, and waits until JetStream has it. With the same `id` again it is stored once.
    ///
    /// If the stream is gone, since its store was wiped, it is made again.
    ///
    /// # Errors
    ///
    /// If NATS is not there, the event is too large, or JetStream refuses it.
    pub async fn publish_event(
        &self,
        subject: &Subject,
        id: &str,
        payload: Bytes,
    ) -> Result<(), Error> {
        if payload.len() > LARGEST {
            return Err(Error::TooLarge { size: payload.len(), limit: LARGEST });
        }
        match self.try_publish_event(subject, id, payload.clone()).await {
            Err(Published::NoStream) => {}
            Err(Published::Not(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
        self.ensure_streams().await?;
        info!("the stream of events was made");
        self.try_publish_event(subject, id, payload).await.map_err(|error| match error {
            Published::NoStream => Error::Unavailable(None),
            Published::Not(error) => error,
        })
    }

    async fn try_publish_event(
        &self,
        subject: &Subject,
        id: &str,
        payload: Bytes,
    ) -> Result<(), Published> {
        if !self.is_connected() {
            return Err(Published::Not(Error::Unavailable(None)));
        }
        let mut headers = headers();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
        let publish = async {
            let subject = self.prefixed(subject);
            self.jetstream.publish_with_headers(subject, headers, payload).await?.await
        };
        match timeout(PATIENCE, publish).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(match error.kind() {
                PublishErrorKind::StreamNotFound => Published::NoStream,
                PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => {
                    Published::Not(Error::Unavailable(Some(error.into())))
                }
                PublishErrorKind::WrongLastMessageId
                | PublishErrorKind::WrongLastSequence
                | PublishErrorKind::MaxAckPending
                | PublishErrorKind::MaxPayloadExceeded
                | PublishErrorKind::Other => Published::Not(Error::Refused(error.into())),
            }),
            Err(_) => Err(Published::Not(Error::Unavailable(None))),
        }
    }

    fn stream(&self) -> StreamConfig {
        let (name, subjects) = match self.config.prefix.as_str() {
            "" => ("EVENTS".to_owned(), "evt.>".to_owned()),
            prefix => (format!("{prefix}_EVENTS"), format!("{prefix}.evt.>")),
        };
        StreamConfig {
            name,
            subjects: vec![subjects],
            description: Some("what others may like to know".to_owned()),
            storage: StorageType::File,
            discard: DiscardPolicy::Old,
            max_bytes: i64::try_from(self.config.events_max_bytes).unwrap_or(i64::MAX),
            max_age: self.config.events_max_age,
            max_messages_per_subject: PER_SUBJECT,
            // JetStream counts the headers, which are ours.
            max_message_size: i32::try_from(LARGEST + 4096).unwrap_or(i32::MAX),
            duplicate_window: DUPLICATES.min(self.config.events_max_age),
            ..StreamConfig::default()
        }
    }
}

/// Why an event was not published at the first try.
enum Published {
    NoStream,
    Not(Error),
}
