//! TLS handshakes of accepted connections.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use holdfast_kit::tls::{TlsProblem, VerifiedClient};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy, sink},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::{debug, warn};

/// First byte of a TLS connection.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Maximum time for a client without TLS to read the answer that tells it so.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Answer to clients without TLS.
const PLAIN_TEXT: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 37\r\nconnection: close\r\n\r\nthis port speaks TLS: use `https://`\n";

/// Minimum interval of log lines about certificates that are refused, in seconds: anybody can cause
/// them.
const REFUSAL_LOG_INTERVAL: u64 = 10;

/// Performs the handshake. Returns `None` if it fails.
pub(crate) async fn accept(
    socket: TcpStream,
    tls: Arc<ServerConfig>,
    peer: IpAddr,
    limit: Duration,
) -> Option<(TlsStream<TcpStream>, Option<VerifiedClient>)> {
    let handshake = async {
        let mut first = [0];
        if socket.peek(&mut first).await.ok()? == 1 && first[0] != HANDSHAKE_RECORD {
            refuse_plain_text(socket).await;
            return None;
        }
        match TlsAcceptor::from(tls).accept(socket).await {
            Ok(stream) => Some(stream),
            Err(error) => {
                report(&error, peer);
                None
            }
        }
    };
    let stream = timeout(limit, handshake).await.ok().flatten()?;
    let client = stream.get_ref().1.peer_certificates().map(VerifiedClient::of);
    Some((stream, client))
}

async fn refuse_plain_text(mut socket: TcpStream) {
    let answered = async {
        socket.write_all(PLAIN_TEXT).await?;
        socket.shutdown().await?;
        // The answer would be lost if the socket were closed with something unread.
        copy(&mut socket.take(64 * 1024), &mut sink()).await
    };
    drop(timeout(GOODBYE_TIMEOUT, answered).await);
}

fn report(error: &std::io::Error, peer: IpAddr) {
    static LAST_LOGGED: AtomicU64 = AtomicU64::new(0);

    let problem = match TlsProblem::find(error) {
        Some(
            problem @ (TlsProblem::UnknownAuthority
            | TlsProblem::Expired
            | TlsProblem::NotYetValid
            | TlsProblem::WrongPurpose),
        ) => problem,
        _ => return debug!(%peer, %error, "a tls handshake failed"),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let last = LAST_LOGGED.load(Ordering::Relaxed);
    let is_due = now >= last + REFUSAL_LOG_INTERVAL
        && LAST_LOGGED.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_due {
        warn!(%peer, %problem, "a caller is refused: give it a certificate of `tls.authorities`");
    }
}
