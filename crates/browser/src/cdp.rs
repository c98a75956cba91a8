//! The DevTools protocol: calls and their answers over one web socket.
//!
//! Of the protocol's events only one is looked at: a dialog, which would hold
//! its page up until someone answers it, is dismissed at once.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};
use tokio_util::sync::CancellationToken;

use crate::Error;

/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many calls may wait to be written.
const QUEUE: usize = 64;

type Waiting = Mutex<HashMap<u64, oneshot::Sender<Result<Value, String>>>>;

/// A connection to a browser.
pub(crate) struct Cdp {
    out: mpsc::Sender<String>,
    waiting: Arc<Waiting>,
    next: AtomicU64,
    ended: CancellationToken,
}

impl Cdp {
    /// Over a socket that is open.
    pub(crate) fn over<S>(socket: WebSocketStream<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (out, queue) = mpsc::channel(QUEUE);
        let waiting = Arc::new(Waiting::default());
        let ended = CancellationToken::new();
        let (answers, over, own) = (Arc::clone(&waiting), ended.clone(), out.clone());
        tokio::spawn(async move {
            talk(socket, queue, own.downgrade(), &answers, &over).await;
            over.cancel();
            // Whoever still waits learns of it by its sender's end.
            lock(&answers).clear();
        });
        Self { out, waiting, next: AtomicU64::new(1), ended }
    }

    /// Whether the browser is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Calls a method, of the browser itself or of a page's session.
    pub(crate) async fn call(
        &self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, Error> {
        let gone = || Error::Away("its connection ended".to_owned());
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        lock(&self.waiting).insert(id, sender);
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let called = async {
            self.out.send(message.to_string()).await.map_err(|_| gone())?;
            match answer.await {
                Ok(answer) => answer.map_err(Error::Refused),
                Err(_) => Err(gone()),
            }
        };
        let called = tokio::select! {
            called = timeout(PATIENCE, called) => called,
            () = self.ended.cancelled() => return Err(gone()),
        };
        called.unwrap_or_else(|_| {
            lock(&self.waiting).remove(&id);
            Err(Error::Slow(PATIENCE.as_secs()))
        })
    }
}

impl Drop for Cdp {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl fmt::Debug for Cdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cdp").field("over", &self.is_over()).finish_non_exhaustive()
    }
}

async fn talk<S>(
    socket: WebSocketStream<S>,
    mut queue: mpsc::Receiver<String>,
    own: mpsc::WeakSender<String>,
    waiting: &Waiting,
    ended: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut write, mut read) = socket.split();
    loop {
        tokio::select! {
            message = queue.recv() => {
                let Some(message) = message else { return };
                if write.send(Message::text(message)).await.is_err() {
                    return;
                }
            }
            message = read.next() => {
                let Some(Ok(message)) = message else { return };
                let Ok(text) = message.to_text() else { continue };
                let Ok(said) = serde_json::from_str::<Value>(text) else { continue };
                if let Some(dismissal) = heard(said, waiting)
                    && let Some(own) = own.upgrade()
                {
                    // If the queue is full, the page waits and the call that is next times out.
                    let _ = own.try_send(dismissal);
                }
            }
            () = ended.cancelled() => return,
        }
    }
}

/// Hands an answer to whoever waits for it; says what to send if a page shows a dialog.
fn heard(mut said: Value, waiting: &Waiting) -> Option<String> {
    if let Some(id) = said["id"].as_u64() {
        let sender = lock(waiting).remove(&id)?;
        let answer = match said.get("error") {
            Some(error) => Err(error["message"].as_str().unwrap_or("it failed").to_owned()),
            None => Ok(said["result"].take()),
        };
        // Whoever waited may have given up.
        let _ = sender.send(answer);
        return None;
    }
    (said["method"] == "Page.javascriptDialogOpening").then(|| {
        // Its answer is waited for by nobody: 0 is the id of no call.
        json!({
            "id": 0,
            "sessionId": said["sessionId"],
            "method": "Page.handleJavaScriptDialog",
            "params": { "accept": false },
        })
        .to_string()
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
