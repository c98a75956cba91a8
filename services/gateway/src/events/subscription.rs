//! A subscription to a tenant's events.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::{Stream, stream};
use holdfast_session::{EventCursor, EventFilter, EventText, LoggedEvent};
use holdfast_types::TenantId;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{EventSource, recent_pages::RecentPages};
use crate::Error;

/// Maximum time between two items, so that an idle subscriber's cursor does not grow old.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionStart {
    /// Behind the newest event.
    Now,
    /// With the oldest event that is kept.
    Earliest,
    After(EventCursor),
}

/// What a subscriber wants.
#[derive(Debug, Clone)]
pub struct Subscription {
    pub start: SubscriptionStart,
    pub filter: EventFilter,
    /// Adds the texts of messages and answers. The caller must be permitted to read conversations.
    pub include_content: bool,
    /// Ends behind the newest event.
    pub end_at_newest: bool,
}

/// Item of a subscription.
#[derive(Debug, Clone, PartialEq)]
pub enum EventItem {
    Event {
        event: LoggedEvent,
        text: Option<String>,
    },
    /// Everything before the cursor was sent or is not wanted.
    KeepAlive(EventCursor),
}

impl EventSource {
    /// Subscribes to the events of a tenant. Returns the cursor with which the stream begins; the
    /// stream ends with its first error.
    ///
    /// # Errors
    ///
    /// [`Error::CursorOutOfRange`] if events after the cursor are deleted.
    pub async fn subscribe(
        &self,
        tenant: TenantId,
        wanted: Subscription,
    ) -> Result<(EventCursor, impl Stream<Item = Result<EventItem, Error>> + Send + use<>), Error>
    {
        let (newest, recent) = self.watched_log(tenant);
        let bounds = self.sessions.event_log().bounds(tenant).await?;
        let after = match wanted.start {
            SubscriptionStart::Now => bounds.newest,
            SubscriptionStart::Earliest => bounds.deleted,
            SubscriptionStart::After(EventCursor(position)) => position,
        };
        if after < bounds.deleted || after > bounds.newest {
            return Err(Error::CursorOutOfRange);
        }
        let reader = LogReader {
            source: self.clone(),
            tenant,
            wanted,
            newest,
            recent,
            after,
            is_at_end: false,
            end: bounds.newest,
            page: VecDeque::new(),
            keep_alive_at: Instant::now() + KEEP_ALIVE_INTERVAL,
        };
        let events = stream::try_unfold(reader, |mut reader| async move {
            Ok(reader.next().await?.map(|item| (item, reader)))
        });
        Ok((EventCursor(after), events))
    }
}

/// State of one subscription.
struct LogReader {
    source: EventSource,
    tenant: TenantId,
    wanted: Subscription,
    newest: watch::Receiver<i64>,
    recent: Arc<RecentPages>,
    /// Position up to which the log was read.
    after: i64,
    /// Whether there was nothing behind `after` when the last page was read.
    is_at_end: bool,
    /// Position of the newest event when the subscription began.
    end: i64,
    /// Events that were read and are not sent yet.
    page: VecDeque<(LoggedEvent, Option<String>)>,
    keep_alive_at: Instant,
}

impl LogReader {
    async fn next(&mut self) -> Result<Option<EventItem>, Error> {
        loop {
            if let Some((event, text)) = self.page.pop_front() {
                self.keep_alive_at = Instant::now() + KEEP_ALIVE_INTERVAL;
                return Ok(Some(EventItem::Event { event, text }));
            }
            if self.source.stop.is_cancelled() {
                return Err(Error::Stopping);
            }
            if self.wanted.end_at_newest && self.after >= self.end {
                return Ok(None);
            }
            if Instant::now() >= self.keep_alive_at {
                self.keep_alive_at = Instant::now() + KEEP_ALIVE_INTERVAL;
                return Ok(Some(EventItem::KeepAlive(EventCursor(self.after))));
            }
            if self.is_at_end || !self.read().await? {
                self.wait().await?;
                self.is_at_end = false;
            }
        }
    }

    /// Reads the next page. Returns whether there was one.
    async fn read(&mut self) -> Result<bool, Error> {
        let log = self.source.sessions.event_log();
        let (tenant, after) = (self.tenant, self.after);
        let read = || async move { Ok(log.page(tenant, after).await?) };
        let page = self.recent.get(after, read).await?;
        if self.after < page.bounds.deleted || self.after > page.bounds.newest {
            // A subscriber that is slower than the retention, or a log that was restored.
            return Err(Error::CursorOutOfRange);
        }
        let Some(last) = page.events.last() else { return Ok(false) };
        self.after = last.position;
        self.is_at_end = self.after >= page.bounds.newest;
        let filter = &self.wanted.filter;
        let events: Vec<LoggedEvent> =
            page.events.iter().filter(|logged| filter.includes(&logged.event)).cloned().collect();
        let texts = match self.wanted.include_content {
            true => self.texts(&events).await?,
            false => vec![None; events.len()],
        };
        self.page = events.into_iter().zip(texts).collect();
        Ok(true)
    }

    /// Returns the text of each event that has one.
    async fn texts(&self, events: &[LoggedEvent]) -> Result<Vec<Option<String>>, Error> {
        let wanted: Vec<Option<EventText>> = events.iter().map(EventText::of).collect();
        let known: Vec<EventText> = wanted.iter().flatten().cloned().collect();
        if known.is_empty() {
            return Ok(vec![None; events.len()]);
        }
        let texts = self.source.sessions.event_log().texts(self.tenant, &known).await?;
        let mut texts = texts.into_iter();
        Ok(wanted
            .iter()
            .map(|wanted| wanted.as_ref().and_then(|_| texts.next().flatten()))
            .collect())
    }

    /// Waits for further events, the next keep-alive or the end of this process.
    async fn wait(&mut self) -> Result<(), Error> {
        let after = self.after;
        tokio::select! {
            () = self.source.stop.cancelled() => return Err(Error::Stopping),
            () = sleep_until(self.keep_alive_at) => {}
            _ = self.newest.wait_for(|newest| *newest > after) => {}
        }
        Ok(())
    }
}
