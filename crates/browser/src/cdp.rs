//! Client of the Chrome DevTools protocol: calls and responses over a web socket, or over a pipe to
//! a local browser, where a NUL ends each message.
//!
//! The client handles three events: a dialog is dismissed at once, because it blocks its page until it
//! is answered; a page that leaves for another address waits for its [`NavigationRule`]; and the rule of
//! a tab that ended is forgotten.

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

/// Rule that decides whether a tab may go to an address, or why not.
pub type NavigationRule = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Rule of a tab.
struct TabRule {
    /// Session that pauses the tab's navigations.
    session: String,
    rule: NavigationRule,
    /// Reason of the latest refusal.
    refusal: Option<String>,
}

/// Calls in progress and rules of tabs, by which messages of the browser are handled.
#[derive(Default)]
struct SocketState {
    calls: PendingCalls,
    /// By the target's id, which is that of its main frame, too.
    rules: Mutex<HashMap<String, TabRule>>,
}

pub(crate) struct Cdp {
    out: mpsc::Sender<String>,
    state: Arc<SocketState>,
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
        let state = Arc::new(SocketState::default());
        let ended = CancellationToken::new();
        let (answers, over) = (Arc::clone(&state), ended.clone());
        tokio::spawn(async move {
            serve_messages((write, read), queue, &answers, &over).await;
            over.cancel();
            // Dropping the senders wakes all callers that still wait for a response.
            lock(&answers.calls).clear();
        });
        Self { out, state, next_id: AtomicU64::new(1), ended }
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
        lock(&self.state.calls).insert(id, sender);
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
            lock(&self.state.calls).remove(&id);
            Err(Error::Timeout(CALL_TIMEOUT.as_secs()))
        })
    }

    /// Lets a rule decide where a tab goes, until [`release`](Self::release).
    pub(crate) async fn restrict(
        &self,
        (target, session): (&str, &str),
        rule: NavigationRule,
    ) -> Result<(), Error> {
        let held = TabRule { session: session.to_owned(), rule, refusal: None };
        lock(&self.state.rules).insert(target.to_owned(), held);
        // Redirects are paused one by one, as are navigations by scripts.
        let pages = json!({ "patterns": [{ "resourceType": "Document" }] });
        self.call(Some(session), "Fetch.enable", pages).await.map(drop)
    }

    /// Lets a tab go anywhere again.
    pub(crate) fn release(&self, target: &str) {
        lock(&self.state.rules).remove(target);
    }

    /// Why the tab was last kept from an address, since its rule began.
    pub(crate) fn refusal(&self, target: &str) -> Option<String> {
        lock(&self.state.rules).get(target)?.refusal.clone()
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
    state: &SocketState,
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
                // Written here, since a page waits for it: the queue may be full.
                if let Some(reaction) = handle_message(said, state)
                    && write.send(reaction).await.is_err()
                {
                    return;
                }
            }
            () = ended.cancelled() => return,
        }
    }
}

/// Delivers a response to its caller, or returns the message with which the client reacts to an event.
fn handle_message(mut said: Value, state: &SocketState) -> Option<String> {
    if let Some(id) = said["id"].as_u64() {
        let sender = lock(&state.calls).remove(&id)?;
        let answer = match said.get("error") {
            Some(error) => Err(error["message"].as_str().unwrap_or("it failed").to_owned()),
            None => Ok(said["result"].take()),
        };
        // The caller may have timed out.
        let _ = sender.send(answer);
        return None;
    }
    let (method, params) = match said["method"].as_str()? {
        "Page.javascriptDialogOpening" => {
            ("Page.handleJavaScriptDialog", json!({ "accept": false }))
        }
        "Fetch.requestPaused" => judge_navigation(&said["params"], state),
        "Target.detachedFromTarget" => {
            let ended = said["params"]["sessionId"].as_str().unwrap_or_default();
            lock(&state.rules).retain(|_, held| held.session != ended);
            return None;
        }
        _ => return None,
    };
    // No call has the id 0, so the response to this one is ignored.
    let reaction =
        json!({ "id": 0, "sessionId": said["sessionId"], "method": method, "params": params });
    Some(reaction.to_string())
}

/// Returns the method that ends a paused request, and its parameters. Frames within a page have no rule.
fn judge_navigation(paused: &Value, state: &SocketState) -> (&'static str, Value) {
    let (request, frame) = (&paused["requestId"], paused["frameId"].as_str().unwrap_or_default());
    let address = paused["request"]["url"].as_str().unwrap_or_default();
    if let Some(held) = lock(&state.rules).get_mut(frame)
        && let Err(why) = (held.rule)(address)
    {
        held.refusal = Some(why);
        let reason = json!({ "requestId": request, "errorReason": "BlockedByClient" });
        return ("Fetch.failRequest", reason);
    }
    ("Fetch.continueRequest", json!({ "requestId": request }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reaction of the client to an event.
    fn reaction(state: &SocketState, method: &str, params: &Value) -> Value {
        let event = json!({ "method": method, "sessionId": "S", "params": params });
        handle_message(event, state).map_or(Value::Null, |text| text.parse().unwrap())
    }

    #[test]
    fn a_tab_with_a_rule_goes_only_where_the_rule_allows() {
        let state = SocketState::default();
        let rule: NavigationRule =
            Arc::new(|address: &str| match address.starts_with("http://a.test/") {
                true => Ok(()),
                false => Err(format!("not to {address}")),
            });
        let held = TabRule { session: "S".to_owned(), rule, refusal: None };
        lock(&state.rules).insert("tab".to_owned(), held);
        let paused = |frame: &str, url: &str| {
            let params = json!({ "requestId": "7", "frameId": frame, "request": { "url": url } });
            let reaction = reaction(&state, "Fetch.requestPaused", &params);
            assert_eq!(
                (&reaction["sessionId"], &reaction["params"]["requestId"]),
                (&json!("S"), &json!("7"))
            );
            reaction["method"].as_str().unwrap().to_owned()
        };

        assert_eq!(paused("tab", "http://a.test/next"), "Fetch.continueRequest");
        assert_eq!(paused("tab", "http://b.test/?d=x"), "Fetch.failRequest");
        assert_eq!(paused("frame", "http://b.test/"), "Fetch.continueRequest");
        let refusal = lock(&state.rules).get("tab").and_then(|held| held.refusal.clone());
        assert_eq!(refusal.unwrap(), "not to http://b.test/?d=x");
        let ended = json!({ "sessionId": "S" });
        assert_eq!(reaction(&state, "Target.detachedFromTarget", &ended), Value::Null);
        assert!(lock(&state.rules).is_empty());
    }

    #[test]
    fn a_dialog_is_dismissed() {
        let state = SocketState::default();
        let dismissal = reaction(&state, "Page.javascriptDialogOpening", &json!({}));

        assert_eq!(dismissal["method"], "Page.handleJavaScriptDialog");
        assert_eq!(dismissal["params"]["accept"], false);
    }
}
