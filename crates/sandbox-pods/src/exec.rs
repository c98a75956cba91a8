//! A process in a pod, over a WebSocket of the API server.
//!
//! Each message begins with the number of its channel (`v5.channel.k8s.io`). Version 4 cannot close
//! standard input, so a cluster without version 5 is refused.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures::{
    Sink, SinkExt as _, Stream, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use holdfast_sandbox::{Input, Stream as OutputStream};
use serde_json::Value;
use tokio::{sync::mpsc, time::interval};
use tokio_tungstenite::tungstenite::{self, Message};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const CLOSE: u8 = 255;

/// Bytes of input in one message.
const MAX_MESSAGE: usize = 32 * 1024;

/// Interval of pings. A connection on which nothing arrives between three of them is broken.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// Reason why the end of a process is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecError {
    #[error("the connection broke")]
    Disconnected,
    /// The consumer of the output wanted no more.
    #[error("its output was not read to the end")]
    Stopped,
    /// The process could not be started, or the node lost it.
    #[error("{0}")]
    Failed(String),
}

/// Consumer of a process' output.
pub(crate) trait ExecOutput: Send {
    /// Takes a part of the output; `Break` ends the connection.
    fn write(
        &mut self,
        stream: OutputStream,
        bytes: Bytes,
    ) -> impl Future<Output = ControlFlow<()>> + Send;
}

/// Moves input and output of a process until it has ended, and returns its exit code. Dropping the
/// future ends the connection, which may leave the process running.
pub(crate) async fn transfer<S, O>(
    socket: S,
    first: Vec<u8>,
    input: mpsc::Receiver<Input>,
    output: &mut O,
) -> Result<i32, ExecError>
where
    S: Stream<Item = Result<Message, tungstenite::Error>>
        + Sink<Message, Error = tungstenite::Error>
        + Send,
    O: ExecOutput,
{
    let (sink, stream) = socket.split();
    let is_heard = AtomicBool::new(true);
    // Both sides run at the same time: a process that does not read its input may still write.
    tokio::select! {
        ended = receive(stream, &is_heard, output) => ended,
        () = send(sink, &is_heard, first, input) => Err(ExecError::Disconnected),
    }
}

async fn receive<S, O>(
    mut stream: SplitStream<S>,
    is_heard: &AtomicBool,
    output: &mut O,
) -> Result<i32, ExecError>
where
    S: Stream<Item = Result<Message, tungstenite::Error>>,
    O: ExecOutput,
{
    while let Some(Ok(message)) = stream.next().await {
        is_heard.store(true, Ordering::Relaxed);
        let Message::Binary(message) = message else { continue };
        let channel = match message.as_ref() {
            // Each channel begins with an empty message.
            [] | [_] => continue,
            [STDOUT, ..] => OutputStream::Out,
            [STDERR, ..] => OutputStream::Err,
            [STATUS, status @ ..] => return exit_code(status),
            [..] => continue,
        };
        if output.write(channel, message.slice(1..)).await.is_break() {
            return Err(ExecError::Stopped);
        }
    }
    Err(ExecError::Disconnected)
}

/// Sends the input, then only pings. Returns once nothing arrives any more.
///
/// A process may end before it has read its input, and its end is still to arrive then.
async fn send<S>(
    mut sink: SplitSink<S, Message>,
    is_heard: &AtomicBool,
    first: Vec<u8>,
    mut input: mpsc::Receiver<Input>,
) where
    S: Sink<Message, Error = tungstenite::Error>,
{
    let mut pings = interval(PING_INTERVAL);
    let (mut is_open, mut silent) = (true, 0);
    let mut is_writable = send_input(&mut sink, &first).await.is_ok();
    loop {
        let sent = tokio::select! {
            more = input.recv(), if is_open && is_writable => match more {
                Some(Input { bytes, written }) => {
                    let sent = send_input(&mut sink, &bytes).await;
                    // The caller may have stopped waiting.
                    let _unheard = written.send(match &sent {
                        Ok(()) => Ok(()),
                        Err(_) => Err(std::io::ErrorKind::BrokenPipe.into()),
                    });
                    sent
                }
                None => {
                    is_open = false;
                    sink.send(Message::binary(vec![CLOSE, STDIN])).await
                }
            },
            _ = pings.tick() => {
                silent = if is_heard.swap(false, Ordering::Relaxed) { 0 } else { silent + 1 };
                if silent > 2 {
                    return;
                }
                sink.send(Message::Ping(Bytes::new())).await
            }
        };
        is_writable &= sent.is_ok();
    }
}

async fn send_input<S>(
    sink: &mut SplitSink<S, Message>,
    bytes: &[u8],
) -> Result<(), tungstenite::Error>
where
    S: Sink<Message, Error = tungstenite::Error>,
{
    for part in bytes.chunks(MAX_MESSAGE) {
        let mut message = Vec::with_capacity(part.len() + 1);
        message.push(STDIN);
        message.extend_from_slice(part);
        sink.send(Message::binary(message)).await?;
    }
    Ok(())
}

/// Exit code that a `Status` of the API server tells.
fn exit_code(status: &[u8]) -> Result<i32, ExecError> {
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    if status["status"] == "Success" {
        return Ok(0);
    }
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    let code = causes
        .filter(|cause| cause["reason"] == "ExitCode")
        .find_map(|cause| cause["message"].as_str()?.parse().ok());
    code.filter(|_| status["reason"] == "NonZeroExitCode").ok_or_else(|| {
        let told = status["message"].as_str().unwrap_or("the cluster said nothing");
        ExecError::Failed(told.chars().take(200).collect())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_tells_the_exit_code() {
        let code = |status: Value| exit_code(status.to_string().as_bytes()).ok();
        assert_eq!(code(json!({"status": "Success"})), Some(0));
        let causes = json!({"causes": [{"reason": "ExitCode", "message": "137"}]});
        let failed =
            |reason: &str| json!({"status": "Failure", "reason": reason, "details": causes});
        assert_eq!(code(failed("NonZeroExitCode")), Some(137));
        assert_eq!(code(failed("InternalError")), None);
        assert!(exit_code(b"no json").is_err());
    }
}
