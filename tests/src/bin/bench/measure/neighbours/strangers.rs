//! Behaviours without a key: connections, handshakes, guesses.

use std::{
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::Arc,
};

use anyhow::ensure;
use reqwest::header;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use super::{
    behavior::{Counts, Target},
    channels::{accepted, client, invented_address},
};

/// Addresses of this machine that connections come from.
const ADDRESSES: usize = 16;

/// Twenty WebSocket connections in each second that are opened and never send the first frame; up to 1,000
/// stay, which is more than the gateway allows these addresses.
pub async fn leave_handshakes_open(target: Arc<Target>, counts: Rc<Counts>) -> anyhow::Result<()> {
    let upgrade = format!(
        "GET /ws HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        target.http
    );
    let call = async |nth: usize| {
        let mut stream = connect(target.http, nth).await?;
        stream.write_all(upgrade.as_bytes()).await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        ensure!(status == *b"HTTP/1.1 101", "the upgrade was refused");
        Ok(stream)
    };
    counts.repeat((20.0, 1_000), call).await;
    Ok(())
}

/// Twenty connections in each second that send half of a request, to HTTP, gRPC and the bridge in turn; up
/// to 1,000 stay.
pub async fn hold_silent_connections(
    target: Arc<Target>,
    counts: Rc<Counts>,
) -> anyhow::Result<()> {
    let servers = [target.http, target.grpc, target.bridge];
    let call = async |nth: usize| {
        let mut stream = connect(servers[nth % servers.len()], nth).await?;
        stream.write_all(b"POST /v1/chat/comple").await?;
        Ok(stream)
    };
    counts.repeat((20.0, 1_000), call).await;
    Ok(())
}

/// Twenty calls in each second with a key that does not exist, every fourth of them a sign-in to the
/// console, from addresses that their headers invent.
pub async fn guess_keys(target: Arc<Target>, counts: Rc<Counts>) -> anyhow::Result<()> {
    let http = client()?;
    let base = format!("http://{}", target.http);
    let call = async |nth: usize| {
        let key = format!("hf_{nth:032}");
        let request = match nth % 4 {
            0 => http
                .post(format!("{base}/console/sign-in"))
                .header(header::ORIGIN, &base)
                .json(&json!({ "key": key })),
            _ => http
                .post(format!("{base}/v1/chat/completions"))
                .bearer_auth(key)
                .json(&json!({ "model": "holdfast/main", "messages": [] })),
        };
        accepted(request.header("x-forwarded-for", invented_address(nth)?)).await
    };
    counts.repeat((20.0, 0), call).await;
    Ok(())
}

/// Opens a connection, from one of several addresses in turn.
async fn connect(to: SocketAddr, nth: usize) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let last = u8::try_from(nth % ADDRESSES + 1)?;
    socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into())?;
    Ok(socket.connect(to).await?)
}
