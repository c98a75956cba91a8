//! A model that answers when the test permits it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use holdfast_llm::{Model, OnDelta, ReplyFuture, Request};
use holdfast_types::{ChatMessage, Reply};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::world::LONG;

/// A model that answers `echo: <what was said last>` when it is let, and counts.
#[derive(Debug, Clone)]
pub struct Gated(Arc<Gate>);

#[derive(Debug)]
struct Gate {
    open: Semaphore,
    asked: AtomicUsize,
    heard: Mutex<Vec<String>>,
    now: Mutex<BTreeMap<String, usize>>,
    overlaps: AtomicUsize,
}

impl Gated {
    pub fn closed() -> Self {
        Self(Arc::new(Gate {
            open: Semaphore::new(0),
            asked: AtomicUsize::new(0),
            heard: Mutex::default(),
            now: Mutex::default(),
            overlaps: AtomicUsize::new(0),
        }))
    }

    /// Lets so many answers out.
    pub fn let_out(&self, answers: usize) {
        self.0.open.add_permits(answers);
    }

    /// Number of requests.
    pub fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// For each request, the users' messages since the previous answer.
    pub fn heard(&self) -> Vec<String> {
        self.0.heard.lock().unwrap().clone()
    }

    /// Number of requests for a conversation that already had one in progress.
    pub fn overlaps(&self) -> usize {
        self.0.overlaps.load(Ordering::SeqCst)
    }

    pub async fn until_asked(&self, times: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.asked() < times {
            anyhow::ensure!(begun.elapsed() < LONG, "asked {} times", self.asked());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// Counts a request in, and out when it is dropped.
struct Inside<'g>(&'g Gate, String);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *self.0.now.lock().unwrap().entry(self.1.clone()).or_default() -= 1;
    }
}

impl Model for Gated {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        _: OnDelta<'a>,
        _: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        Box::pin(async move {
            let said = |message: &ChatMessage| match message {
                ChatMessage::User { text, .. } => Some(text.clone()),
                ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => None,
            };
            let messages = &request.chat.messages;
            let first = messages.iter().find_map(said).unwrap_or_default();
            let mut new: Vec<String> = messages.iter().rev().map_while(said).collect();
            new.reverse();
            let new = new.join(" | ");
            self.0.heard.lock().unwrap().push(new.clone());
            {
                let mut now = self.0.now.lock().unwrap();
                let count = now.entry(first.clone()).or_default();
                *count += 1;
                if *count > 1 {
                    self.0.overlaps.fetch_add(1, Ordering::SeqCst);
                }
            }
            let _inside = Inside(&self.0, first);
            self.0.asked.fetch_add(1, Ordering::SeqCst);
            self.0.open.acquire().await.unwrap().forget();
            let model = request.model.to_string();
            Ok(Reply { text: format!("echo: {new}"), model, ..Reply::default() })
        })
    }
}
