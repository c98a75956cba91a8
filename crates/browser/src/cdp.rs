//! Client of the Chrome DevTools protocol: calls and responses over a web socket, or over a pipe to
//! a local browser, where a NUL ends each message.
//!
//! The client handles only one event: a dialog is dismissed at once, because it blocks its page
//! until it is answered.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{Sink, SinkExt as _, Stream, StreamExt as _, future::ready};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, Message},
};
use tokio_util::{
    codec::{AnyDelimiterCodec, FramedRead, FramedWrite},
    sync::CancellationToken,
};

use crate::Error;

/// Timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a message over a pipe, in bytes; screenshots are large.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// Maximum number of calls waiting to be written.
const MAX_QUEUED_CALLS: usize = 64;

type PendingCalls = Mutex<HashMap<u64, oneshot::Sender<Result<Value, String>>>>;

pub(crate) struct Cdp {
    out: mpsc::Sender<String>,
    pending_calls: Arc<PendingCalls>,
    next_id: AtomicU64,
    ended: CancellationToken,
}

impl Cdp {
    /// Starts a task that serves an open socket.
    pub(crate) fn start<S>(socket: WebSocketStream<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (write, read) = socket.split();
        let write = write
            .with(|message: String| ready(Ok::<_, tungstenite::Error>(Message::text(message))));
        let read = read.map(|message| Some(message.ok()?.into_data().to_vec()));
        Self::serve(write, read)
    }

    /// Starts a task that serves a pipe.
    pub(crate) fn start_pipe<S>(pipe: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let codec = || {
            let nul = || vec![0];
            AnyDelimiterCodec::new_with_max_length(nul(), nul(), MAX_MESSAGE_BYTES)
        };
        let (read, write) = tokio::io::split(pipe);
        let read = FramedRead::new(read, codec()).map(|frame| Some(frame.ok()?.to_vec()));
        Self::serve(FramedWrite::new(write, codec()), read)
    }

    fn serve<W, R>(write: W, read: R) -> Self
    where
        W: Sink<String> + Unpin + Send + 'static,
        R: Stream<Item = Option<Vec<u8>>> + Unpin + Send + 'static,
    {
        let (out, queue) = mpsc::channel(MAX_QUEUED_CALLS);
        let waiting = Arc::new(PendingCalls::default());
        let ended = CancellationToken::new();
        let (answers, over, own) = (Arc::clone(&waiting), ended.clone(), out.clone());
        tokio::spawn(async move {
            serve_messages((write, read), queue, own.downgrade(), &answers, &over).await;
            over.cancel();
            // Dropping the senders wakes all callers that still wait for a response.
            lock(&answers).clear();
        });
        Self { out, pending_calls: waiting, next_id: AtomicU64::new(1), ended }
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Calls a method of the browser, or of a page if `session` is given.
    pub(crate) async fn call(
        &self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, Error> {
        let gone = || Error::Unavailable("its connection ended".to_owned());
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        lock(&self.pending_calls).insert(id, sender);
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
            called = timeout(CALL_TIMEOUT, called) => called,
            () = self.ended.cancelled() => return Err(gone()),
        };
        called.unwrap_or_else(|_| {
            lock(&self.pending_calls).remove(&id);
            Err(Error::Timeout(CALL_TIMEOUT.as_secs()))
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
        f.debug_struct("Cdp").field("over", &self.is_closed()).finish_non_exhaustive()
    }
}

async fn serve_messages<W, R>(
    (mut write, mut read): (W, R),
    mut queue: mpsc::Receiver<String>,
    own: mpsc::WeakSender<String>,
    waiting: &PendingCalls,
    ended: &CancellationToken,
) where
    W: Sink<String> + Unpin,
    R: Stream<Item = Option<Vec<u8>>> + Unpin,
{
    loop {
        tokio::select! {
            message = queue.recv() => {
                let Some(message) = message else { return };
                if write.send(message).await.is_err() {
                    return;
                }
            }
            message = read.next() => {
                let Some(Some(message)) = message else { return };
                let Ok(said) = serde_json::from_slice::<Value>(&message) else { continue };
                if let Some(dismissal) = handle_message(said, waiting)
                    && let Some(own) = own.upgrade()
                {
                    // If the queue is full, the dialog stays open and the next call to the page
                    // times out.
                    let _ = own.try_send(dismissal);
                }
            }
            () = ended.cancelled() => return,
        }
    }
}

/// Delivers a response to its caller. Returns the message that dismisses a dialog if the page
/// opened one.
fn handle_message(mut said: Value, waiting: &PendingCalls) -> Option<String> {
    if let Some(id) = said["id"].as_u64() {
        let sender = lock(waiting).remove(&id)?;
        let answer = match said.get("error") {
            Some(error) => Err(error["message"].as_str().unwrap_or("it failed").to_owned()),
            None => Ok(said["result"].take()),
        };
        // The caller may have timed out.
        let _ = sender.send(answer);
        return None;
    }
    (said["method"] == "Page.javascriptDialogOpening").then(|| {
        // No call has the id 0, so the response to this one is ignored.
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
