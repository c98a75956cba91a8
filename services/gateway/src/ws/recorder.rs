//! Socket that records what is read from it until the client is known, and follows its frames then.
//!
//! A frame has 64 KiB at most before the handshake and many more after it, and the codec's limit is
//! fixed. So the codec is replaced after the handshake; what the first one has read beyond the
//! handshake is given to the second.

use std::{
    io::{self, Cursor},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::protocol::frame::{
    FrameHeader,
    coding::{Data, OpCode},
};

use super::frames::{FrameTracker, NoRoom};

#[derive(Debug)]
pub struct RecordedSocket<S> {
    socket: S,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Handshake(Vec<u8>),
    Open(Box<FrameTracker>),
}

impl<S> RecordedSocket<S> {
    pub const fn new(socket: S) -> Self {
        Self { socket, stage: Stage::Handshake(Vec::new()) }
    }

    /// Stops recording, and returns what was read after the first `messages` messages. From there on
    /// `frames` follows.
    pub fn finish(
        self,
        messages: usize,
        mut frames: FrameTracker,
    ) -> Result<(Self, Vec<u8>), NoRoom> {
        let Stage::Handshake(read) = &self.stage else { return Ok((self, Vec::new())) };
        let rest = read.get(end_of_messages(read, messages)..).unwrap_or_default().to_vec();
        frames.observe(&rest)?;
        Ok((Self { stage: Stage::Open(Box::new(frames)), ..self }, rest))
    }

    /// Tracker of the frames since the handshake; `None` during the handshake.
    pub fn frames(&mut self) -> Option<&mut FrameTracker> {
        match &mut self.stage {
            Stage::Open(frames) => Some(frames),
            Stage::Handshake(_) => None,
        }
    }
}

/// Position behind the first `messages` messages. A control frame is a message, and so are a data
/// frame and its continuations together.
fn end_of_messages(read: &[u8], messages: usize) -> usize {
    let (mut position, mut seen) = (0, 0);
    while seen < messages {
        let mut rest = Cursor::new(read.get(position..).unwrap_or_default());
        let Ok(Some((header, length))) = FrameHeader::parse(&mut rest) else { return read.len() };
        let size = rest.position().saturating_add(length);
        position = position.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        let is_part =
            matches!(header.opcode, OpCode::Data(Data::Continue | Data::Text | Data::Binary));
        seen += usize::from(header.is_final || !is_part);
    }
    position
}

impl<S: AsyncRead + Unpin> AsyncRead for RecordedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { socket, stage } = &mut *self;
        let before = buffer.filled().len();
        let frames = match stage {
            Stage::Handshake(read) => {
                let polled = Pin::new(socket).poll_read(cx, buffer);
                read.extend_from_slice(buffer.filled().get(before..).unwrap_or_default());
                return polled;
            }
            Stage::Open(frames) => frames,
        };
        let limit = frames.read_limit().min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(limit));
        ready!(Pin::new(socket).poll_read(cx, &mut part))?;
        let observed = frames.observe(part.filled());
        let read = part.filled().len();
        buffer.advance(read);
        Poll::Ready(observed.map_err(io::Error::other))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RecordedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures::{SinkExt as _, StreamExt as _};
    use holdfast_kit::config::reload::Current;
    use holdfast_types::TenantId;
    use proptest::prelude::*;
    use tokio_tungstenite::{
        WebSocketStream,
        tungstenite::{Message, protocol::Role},
    };

    use super::*;
    use crate::{Config, bodies::BodyBudget};

    #[tokio::test]
    async fn nothing_is_lost_when_the_codec_is_replaced() {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let mut client = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
        let recorded = RecordedSocket::new(ours);
        let mut server = WebSocketStream::from_raw_socket(recorded, Role::Server, None).await;
        client.feed(Message::text("hello")).await.unwrap();
        client.feed(Message::text("x".repeat(70_000))).await.unwrap();
        client.send(Message::text("last")).await.unwrap();

        assert_eq!(server.next().await.unwrap().unwrap(), Message::text("hello"));
        let budget = BodyBudget::new(Current::from(Config::default()));
        let frames = FrameTracker::new(budget, TenantId::generate());
        let (socket, rest) = server.into_inner().finish(1, frames).unwrap();
        let mut server =
            WebSocketStream::from_partially_read(socket, rest, Role::Server, None).await;

        assert_eq!(server.next().await.unwrap().unwrap().len(), 70_000);
        assert_eq!(server.next().await.unwrap().unwrap(), Message::text("last"));
    }

    proptest! {
        #[test]
        fn the_end_of_any_bytes_is_within_them(
            read in prop::collection::vec(any::<u8>(), 0..200),
            messages in 0_usize..20,
        ) {
            // Bytes behind a frame that is not whole are of that frame.
            let end = end_of_messages(&read, messages);
            prop_assert!(read.get(end..).is_some() || end > read.len());
            prop_assert!(messages > 0 || end == 0);
        }
    }
}
