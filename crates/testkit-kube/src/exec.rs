//! Processes in pods, over WebSockets (`v5.channel.k8s.io`).

use std::{os::unix::process::ExitStatusExt as _, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Request, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures::{SinkExt as _, StreamExt as _, stream::SplitSink};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin},
    sync::mpsc,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

use crate::{
    Shared, kubelet,
    request::{Refusal, Target},
    server::key,
};

const PROTOCOL: &str = "v5.channel.k8s.io";
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const CLOSE: u8 = 255;

/// Time for the client to close its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Starts a process in the container of a pod.
pub fn upgrade(
    shared: Arc<Shared>,
    target: &Target,
    query: &[(String, String)],
    request: &mut Request<Body>,
) -> Result<Response, Refusal> {
    let headers = request.headers();
    let text = |name| header_text(headers, name);
    if !text(header::UPGRADE).eq_ignore_ascii_case("websocket") {
        return Err(Refusal::bad_request("Upgrade request required"));
    }
    let offered = text(header::SEC_WEBSOCKET_PROTOCOL);
    if !offered.split(',').any(|offered| offered.trim() == PROTOCOL) {
        return Err(Refusal::new(403, "Forbidden", "no protocol of the client is known here"));
    }
    let accept = derive_accept_key(text(header::SEC_WEBSOCKET_KEY).as_bytes());
    let all = |name: &str| -> Vec<String> {
        query.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect()
    };
    let is_set = |name: &str| all(name).first().is_some_and(|value| value == "true");
    if !is_set("stdin") || !is_set("stdout") || !is_set("stderr") || is_set("tty") {
        return Err(Refusal::bad_request("this server has all three streams, and no terminals"));
    }
    let program = all("command");
    let (pid, container) = {
        let containers = shared.containers();
        let found = containers.get(&key(target));
        let found = found.map(|container| (container.pid, container.name.clone()));
        found.ok_or_else(|| {
            Refusal::new(500, "InternalError", "container not found in the pod's status")
        })?
    };
    if all("container").first().is_some_and(|name| *name != container) || program.is_empty() {
        return Err(Refusal::bad_request("container or command is not valid"));
    }
    let upgraded = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None);
        let mut is_up = shared.is_up.subscribe();
        let socket = socket.await;
        tokio::select! {
            () = serve(socket, pid, &program) => {}
            _ = is_up.wait_for(|is_up| !is_up) => {}
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let values = [
        (header::CONNECTION, "Upgrade"),
        (header::UPGRADE, "websocket"),
        (header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL),
        (header::SEC_WEBSOCKET_ACCEPT, &accept),
    ];
    for (name, value) in values {
        let value = HeaderValue::from_str(value);
        response
            .headers_mut()
            .insert(name, value.map_err(|error| Refusal::bad_request(error.to_string()))?);
    }
    Ok(response)
}

pub fn header_text(headers: &HeaderMap, name: header::HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Serves one process. As of a real node, it goes on if the client is gone.
async fn serve(socket: Socket, pid: u32, program: &[String]) {
    let (mut to_client, mut from_client) = socket.split();
    for channel in [STDOUT, STDERR, STATUS] {
        if to_client.send(Message::binary(vec![channel])).await.is_err() {
            return;
        }
    }
    let mut child = match kubelet::join(pid, program).spawn() {
        Ok(child) => child,
        Err(error) => {
            let failed = json!({"status": "Failure", "reason": "InternalError", "message": error.to_string()});
            return close(to_client, &failed).await;
        }
    };
    let mut stdin = child.stdin.take();
    let mut parts = outputs(&mut child);
    let ended = async {
        while let Some(part) = parts.recv().await {
            if to_client.send(Message::binary(part)).await.is_err() {
                return;
            }
        }
        // Not before all writers of the output are gone.
        let status = status_of(&mut child).await;
        close(to_client, &status).await;
    };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => break,
            message = from_client.next() => match message {
                Some(Ok(Message::Binary(message))) => feed(&mut stdin, &message).await,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    }
    // Closing with unread input would reset the connection, and the client would miss the status.
    let drained = async { while let Some(Ok(_)) = from_client.next().await {} };
    let _closed = timeout(CLOSE_TIMEOUT, drained).await;
}

async fn feed(stdin: &mut Option<ChildStdin>, message: &[u8]) {
    match message {
        [STDIN, bytes @ ..] => {
            if let Some(pipe) = stdin {
                // A process that reads no more gets no more.
                let _closed = pipe.write_all(bytes).await;
            }
        }
        [CLOSE, STDIN] => drop(stdin.take()),
        _ => {}
    }
}

/// Output of a process, each part with its channel. It ends when all writers are gone.
fn outputs(child: &mut Child) -> mpsc::Receiver<Vec<u8>> {
    let (sender, parts) = mpsc::channel(4);
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(copy(STDOUT, stdout, sender.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(copy(STDERR, stderr, sender));
    }
    parts
}

async fn copy(channel: u8, mut from: impl AsyncRead + Unpin, to: mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer).await {
        let mut part = vec![channel];
        part.extend_from_slice(&buffer[..read]);
        if read == 0 || to.send(part).await.is_err() {
            return;
        }
    }
}

/// How a process ended, as a `Status`.
async fn status_of(child: &mut Child) -> Value {
    let code = match child.wait().await {
        Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
        Err(_) => -1,
    };
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

async fn close(mut to_client: SplitSink<Socket, Message>, status: &Value) {
    let mut message = vec![STATUS];
    message.extend_from_slice(status.to_string().as_bytes());
    // The client may be gone.
    let _gone = to_client.send(Message::binary(message)).await;
    let _gone = to_client.close().await;
}
