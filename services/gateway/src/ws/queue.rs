//! Frames that wait to be sent on one connection, bounded in bytes.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Reason why the server ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseReason {
    pub code: u16,
    pub reason: &'static str,
}

impl CloseReason {
    /// The client reads slower than events arrive.
    pub const SLOW_READER: Self =
        Self { code: 1008, reason: "slow reader: too many bytes wait to be sent" };
    /// The process stops.
    pub const STOPPING: Self = Self { code: 1012, reason: "the gateway is stopping: reconnect" };
    /// The client has sent nothing, not even an answer to a ping.
    pub const SILENT: Self = Self { code: 1008, reason: "no answer to pings" };
    /// The credential is no longer valid.
    pub const INVALID_CREDENTIAL: Self =
        Self { code: 1008, reason: "the credential is no longer valid" };
    /// Messages that are being read have as many bytes as they may.
    pub const NO_ROOM: Self =
        Self { code: 1013, reason: "requests of this size find no room now: try again" };
    pub const BINARY: Self = Self { code: 1003, reason: "frames are JSON text" };
    pub const TOO_LARGE: Self =
        Self { code: 1009, reason: "the frame is larger than `maxPayload`" };
}

/// Next thing to do for the task that owns the socket.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing {
    Frame(String),
    Close(CloseReason),
}

/// Queue between the producers of a connection's frames and the task that owns its socket.
#[derive(Debug)]
pub struct SendQueue {
    waiting: Mutex<Waiting>,
    changed: Notify,
    /// Notified when there is room for frames that can wait.
    has_room: Notify,
    limit: usize,
    /// Cancelled when the connection has to end at once.
    aborted: CancellationToken,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<String>,
    bytes: usize,
    /// Number of events sent.
    seq: u64,
    closing: Option<CloseReason>,
}

impl SendQueue {
    /// `limit` is in bytes.
    pub fn new(limit: usize) -> Self {
        let aborted = CancellationToken::new();
        let waiting = Mutex::default();
        Self { waiting, changed: Notify::new(), has_room: Notify::new(), limit, aborted }
    }

    /// Queues a response. A client that does not read its responses is disconnected.
    pub fn push(&self, frame: String) {
        let mut waiting = self.lock();
        if waiting.closing.is_some() {
            return;
        }
        if waiting.bytes > self.limit {
            return self.abort(waiting, CloseReason::SLOW_READER);
        }
        waiting.bytes += frame.len();
        waiting.frames.push_back(frame);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Queues an event, rendered with its number on this connection. With too many bytes waiting, an
    /// event that a later one replaces is left out; any other ends the connection.
    pub fn push_event(&self, is_droppable: bool, render: impl FnOnce(u64) -> String) {
        let mut waiting = self.lock();
        if waiting.closing.is_some() {
            return;
        }
        if waiting.bytes > self.limit {
            if !is_droppable {
                self.abort(waiting, CloseReason::SLOW_READER);
            }
            return;
        }
        waiting.seq += 1;
        let frame = render(waiting.seq);
        waiting.bytes += frame.len();
        waiting.frames.push_back(frame);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Ends the connection after the frames that wait.
    pub fn close(&self, closing: CloseReason) {
        let mut waiting = self.lock();
        waiting.closing.get_or_insert(closing);
        drop(waiting);
        self.changed.notify_one();
        self.has_room.notify_waiters();
    }

    /// Ends the connection at once.
    pub fn close_now(&self, closing: CloseReason) {
        self.abort(self.lock(), closing);
    }

    fn abort(&self, mut waiting: MutexGuard<'_, Waiting>, closing: CloseReason) {
        waiting.closing = Some(closing);
        waiting.frames = VecDeque::new();
        waiting.bytes = 0;
        drop(waiting);
        if closing == CloseReason::SLOW_READER {
            metrics::counter!("holdfast_gateway_websocket_slow_readers_total").increment(1);
        }
        self.aborted.cancel();
        self.changed.notify_one();
        self.has_room.notify_waiters();
    }

    /// Waits for the next frame, or the end. Cancel safe.
    pub async fn next(&self) -> Outgoing {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            self.changed.notified().await;
        }
    }

    /// Next frame, if one waits.
    pub fn take_frame(&self) -> Option<String> {
        let mut waiting = self.lock();
        let frame = waiting.frames.pop_front()?;
        waiting.bytes -= frame.len();
        if waiting.frames.is_empty() {
            // An idle connection holds no buffer.
            waiting.frames = VecDeque::new();
        }
        if self.is_free(&waiting) {
            self.has_room.notify_waiters();
        }
        Some(frame)
    }

    fn take(&self) -> Option<Outgoing> {
        if let Some(frame) = self.take_frame() {
            return Some(Outgoing::Frame(frame));
        }
        self.lock().closing.map(Outgoing::Close)
    }

    /// Waits until few bytes wait to be sent, or the connection ends: frames that can wait leave the
    /// rest of the room to those that cannot.
    pub async fn room(&self) {
        loop {
            let mut freed = pin!(self.has_room.notified());
            // From here on, no notification is missed.
            freed.as_mut().enable();
            if self.is_free(&self.lock()) {
                return;
            }
            freed.await;
        }
    }

    const fn is_free(&self, waiting: &Waiting) -> bool {
        waiting.closing.is_some() || waiting.bytes <= self.limit / 4
    }

    /// Waits until the connection has to end at once.
    pub async fn aborted(&self) {
        self.aborted.cancelled().await;
    }

    /// Reason why the connection ends, if it does.
    pub fn closing(&self) -> Option<CloseReason> {
        self.lock().closing
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(queue: &SendQueue, is_droppable: bool) {
        queue.push_event(is_droppable, |seq| format!("event {seq}"));
    }

    #[tokio::test]
    async fn frames_keep_their_order_and_events_are_numbered() {
        let queue = SendQueue::new(100);
        event(&queue, false);
        queue.push("response".to_owned());
        event(&queue, true);
        queue.close(CloseReason::STOPPING);
        event(&queue, false);

        for expected in ["event 1", "response", "event 2"] {
            assert_eq!(queue.next().await, Outgoing::Frame(expected.to_owned()));
        }
        assert_eq!(queue.next().await, Outgoing::Close(CloseReason::STOPPING));
    }

    #[tokio::test]
    async fn what_can_wait_has_room_again_when_frames_are_taken_or_the_connection_ends() {
        let queue = SendQueue::new(40);
        for _ in 0..3 {
            event(&queue, false);
        }
        let mut room = pin!(queue.room());
        assert!(futures::poll!(&mut room).is_pending());

        for _ in 0..2 {
            assert!(queue.take_frame().is_some());
        }
        room.await;

        queue.push("x".repeat(20));
        let mut room = pin!(queue.room());
        assert!(futures::poll!(&mut room).is_pending());
        queue.close(CloseReason::STOPPING);
        room.await;
    }

    #[tokio::test]
    async fn a_slow_reader_loses_what_is_replaced_and_then_its_connection() {
        let queue = SendQueue::new(10);
        event(&queue, false);
        event(&queue, false);
        event(&queue, true);
        let seq = queue.lock().seq;
        assert_eq!((seq, queue.closing()), (2, None));

        event(&queue, false);

        queue.aborted().await;
        assert_eq!(queue.next().await, Outgoing::Close(CloseReason::SLOW_READER));
        assert_eq!(queue.lock().bytes, 0);
    }
}
