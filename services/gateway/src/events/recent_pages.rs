//! Pages of a tenant's log that this process read last.
//!
//! Most subscriptions to one tenant's events wait at the end of the log, and are woken together: one
//! of them reads the next page, and the others share it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_session::EventPage;
use tokio::{sync::OnceCell, time::Instant};

use crate::Error;

/// Pages that are kept. One has the events of a few rows of the log.
const MAX_PAGES: usize = 4;

/// Time for which a page is shared, so that deleted events are soon no longer sent.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The pages of one tenant that were read last, oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentPages(Mutex<VecDeque<RecentPage>>);

#[derive(Debug, Clone)]
struct RecentPage {
    /// Position behind which the page begins.
    after: i64,
    read_at: Instant,
    /// `None` if it could not be read.
    page: Arc<OnceCell<Option<Arc<EventPage>>>>,
}

impl RecentPages {
    /// Returns the page behind a position: one that was just read, or that is being read, or what
    /// `read` returns.
    ///
    /// # Errors
    ///
    /// Those of `read`, which each caller then calls for itself: nobody waits for the attempts of
    /// others.
    pub(super) async fn get<F>(
        &self,
        after: i64,
        read: impl Fn() -> F,
    ) -> Result<Arc<EventPage>, Error>
    where
        F: Future<Output = Result<EventPage, Error>>,
    {
        let recent = self.find(after);
        let mut failure = None;
        let shared = recent.page.get_or_init(|| async {
            match read().await {
                Ok(page) => Some(Arc::new(page)),
                Err(error) => {
                    failure = Some(error);
                    None
                }
            }
        });
        let shared = shared.await.clone();
        // A position without a page has one as soon as there is an event.
        if shared.as_ref().is_none_or(|page| page.events.is_empty()) {
            self.lock().retain(|known| !Arc::ptr_eq(&known.page, &recent.page));
        }
        match (shared, failure) {
            (Some(page), _) => Ok(page),
            (None, Some(failure)) => Err(failure),
            (None, None) => read().await.map(Arc::new),
        }
    }

    /// Returns the page of this position, which is not set if nobody has read it yet.
    fn find(&self, after: i64) -> RecentPage {
        let mut pages = self.lock();
        let now = Instant::now();
        pages.retain(|known| now.duration_since(known.read_at) < MAX_AGE);
        if let Some(known) = pages.iter().find(|known| known.after == after) {
            return known.clone();
        }
        if pages.len() >= MAX_PAGES {
            pages.pop_front();
        }
        let new = RecentPage { after, read_at: now, page: Arc::default() };
        pages.push_back(new.clone());
        new
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RecentPage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use holdfast_session::{Event, LogBounds, LoggedEvent};
    use jiff::Timestamp;
    use serde_json::json;
    use tokio::time::sleep;

    use super::*;

    fn page(position: i64) -> EventPage {
        let event = Event {
            kind: "run.started".to_owned(),
            schema_version: 1,
            at: Timestamp::now(),
            agent: None,
            session: None,
            channel: None,
            data: json!({}),
        };
        EventPage { bounds: LogBounds::default(), events: vec![LoggedEvent { position, event }] }
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_for_a_page_at_the_same_time_share_one_read() {
        let (pages, reads) = (RecentPages::default(), AtomicUsize::new(0));
        let read = || async {
            reads.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(10)).await;
            Ok(page(8))
        };

        let got = join_all((0..100).map(|_| pages.get(7, read))).await;
        let later = pages.get(7, read).await.unwrap();

        assert!(got.into_iter().all(|page| Arc::ptr_eq(&page.unwrap(), &later)));
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        assert_eq!(pages.get(8, || async { Ok(page(9)) }).await.unwrap().events[0].position, 9);

        sleep(MAX_AGE).await;
        pages.get(7, read).await.unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_without_events_is_read_again() {
        let pages = RecentPages::default();
        let empty = || async { Ok(EventPage { bounds: LogBounds::default(), events: Vec::new() }) };

        assert!(pages.get(7, empty).await.unwrap().events.is_empty());

        assert_eq!(pages.get(7, || async { Ok(page(8)) }).await.unwrap().events[0].position, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_the_failures_of_others_one_after_the_other() {
        let pages = RecentPages::default();
        let begun = Instant::now();
        let read = || async {
            sleep(Duration::from_secs(30)).await;
            Err(Error::Stopping)
        };

        let got = join_all((0..100).map(|_| pages.get(7, read))).await;

        assert!(got.iter().all(Result::is_err));
        assert_eq!(begun.elapsed(), Duration::from_secs(60));
        assert!(pages.get(7, || async { Ok(page(8)) }).await.is_ok());
    }

    #[tokio::test]
    async fn only_the_newest_pages_are_kept() {
        let pages = RecentPages::default();

        for after in 0..10 {
            pages.get(after, || async { Ok(page(after + 1)) }).await.unwrap();
        }

        assert_eq!(pages.lock().len(), MAX_PAGES);
    }
}
