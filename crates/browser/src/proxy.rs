//! HTTP proxy for a browser's pages; it connects only where the policy allows.
//!
//! Chromium sends all connections of a context here: pages, redirects, frames, scripts, workers,
//! web sockets. Names are resolved only here, and the connection goes to the address that was
//! checked, so a name cannot resolve to one address for the check and to another for the connection
//! (DNS rebinding).
//!
//! Each connection carries one plain HTTP request: a second request on it could be for another
//! host.

use std::{
    fmt,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tracing::debug;

/// Maximum size of a request's head, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Maximum number of open connections; further ones are closed at once.
const MAX_CONNECTIONS: usize = 512;

/// Timeout for a request's head to arrive, and for a connection to be made.
const IO_TIMEOUT: Duration = Duration::from_secs(15);

/// Addresses to connect to, or the reason for a refusal, which is shown to the page.
pub type PolicyDecision = Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, String>> + Send>>;

/// Policy that decides what pages may connect to.
pub trait ConnectPolicy: Send + Sync + 'static {
    /// Resolves a host and decides whether pages may connect to it on this port.
    fn check(&self, host: String, port: u16) -> PolicyDecision;
}

/// Running proxy; it stops when dropped.
pub(crate) struct Proxy {
    task: tokio::task::JoinHandle<()>,
    address: SocketAddr,
}

impl Proxy {
    pub(crate) async fn start(
        listen: SocketAddr,
        way: Arc<dyn ConnectPolicy>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let open = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // Accept fails when file descriptors run out. Retry: closing connections frees
                    // some.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                if open.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
                    open.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                let (way, open) = (Arc::clone(&way), Arc::clone(&open));
                tokio::spawn(async move {
                    // A broken connection needs no reaction.
                    if let Err(error) = serve(stream, &*way).await {
                        debug!(%error, "a page's connection ended");
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Ok(Self { task, address })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Request of a page to the proxy.
#[derive(Debug, PartialEq, Eq)]
enum ProxyRequest {
    /// `CONNECT`: the page speaks to the server itself, over TLS or a web socket.
    Tunnel { host: String, port: u16 },
    /// Plain HTTP request: the rewritten head for the server, and the length of the body.
    Request { host: String, port: u16, head: String, body: u64 },
}

async fn serve(mut page: TcpStream, way: &dyn ConnectPolicy) -> std::io::Result<()> {
    let Ok(head) = timeout(IO_TIMEOUT, read_head(&mut page)).await else { return Ok(()) };
    let Some((head, rest)) = head? else { return Ok(()) };
    let asked = match parse_request(&head) {
        Ok(asked) => asked,
        Err(why) => return refuse(&mut page, "400 Bad Request", why).await,
    };
    let (host, port) = match &asked {
        ProxyRequest::Tunnel { host, port } | ProxyRequest::Request { host, port, .. } => {
            (host.clone(), *port)
        }
    };
    let addresses = match way.check(host, port).await {
        Ok(addresses) => addresses,
        Err(why) => return refuse(&mut page, "403 Forbidden", &why).await,
    };
    let connected = timeout(IO_TIMEOUT, TcpStream::connect(addresses.as_slice())).await;
    let Ok(Ok(mut server)) = connected else {
        return refuse(&mut page, "502 Bad Gateway", "no connection could be made").await;
    };
    match asked {
        ProxyRequest::Tunnel { .. } => {
            page.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            server.write_all(&rest).await?;
            copy_bidirectional(&mut page, &mut server).await?;
        }
        ProxyRequest::Request { head, body, .. } => {
            server.write_all(head.as_bytes()).await?;
            let (mut from_page, mut to_page) = page.split();
            let (mut from_server, mut to_server) = server.split();
            let here = usize::try_from(body).unwrap_or(usize::MAX).min(rest.len());
            to_server.write_all(&rest[..here]).await?;
            let here = u64::try_from(here).unwrap_or(body);
            let mut left = (&mut from_page).take(body - here);
            let sending = copy(&mut left, &mut to_server);
            let answering = async {
                copy(&mut from_server, &mut to_page).await?;
                to_page.shutdown().await
            };
            tokio::pin!(sending, answering);
            tokio::select! {
                // A server may respond before it has read the whole body.
                answered = &mut answering => answered?,
                sent = &mut sending => {
                    sent?;
                    answering.await?;
                }
            }
        }
    }
    Ok(())
}

/// Reads the head of a request, and the bytes received after it. Returns `None` if the connection
/// closed, or the head is too large or not UTF-8.
async fn read_head(page: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        if page.read_buf(&mut bytes).await? == 0 || bytes.len() > MAX_HEAD_BYTES {
            return Ok(None);
        }
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok(String::from_utf8(bytes).ok().map(|head| (head, rest)));
        }
    }
}

async fn refuse(page: &mut TcpStream, status: &str, why: &str) -> std::io::Result<()> {
    let why = why.replace(['\r', '\n'], " ");
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{why}",
        why.len()
    );
    page.write_all(answer.as_bytes()).await?;
    page.shutdown().await
}

fn parse_request(head: &str) -> Result<ProxyRequest, &'static str> {
    const NOT_A_PROXY_REQUEST: &str = "the request is none that a browser makes";
    let mut lines = head.trim_end().split("\r\n");
    let first = lines.next().unwrap_or_default();
    let mut words = first.split(' ');
    let (Some(method), Some(target), Some(_), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(NOT_A_PROXY_REQUEST);
    };
    if method == "CONNECT" {
        let (host, port) = authority(target, None).ok_or(NOT_A_PROXY_REQUEST)?;
        return Ok(ProxyRequest::Tunnel { host, port });
    }
    let rest = target.strip_prefix("http://").ok_or(NOT_A_PROXY_REQUEST)?;
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (named, path) = rest.split_at(at);
    let (host, port) = authority(named, Some(80)).ok_or(NOT_A_PROXY_REQUEST)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head = format!("{method} {slash}{path} HTTP/1.1\r\n");
    let mut body = 0;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(NOT_A_PROXY_REQUEST)?;
        match name.to_ascii_lowercase().as_str() {
            "connection" | "proxy-connection" | "proxy-authorization" | "keep-alive" => continue,
            "transfer-encoding" | "upgrade" => return Err(NOT_A_PROXY_REQUEST),
            "content-length" => body = value.trim().parse().map_err(|_| NOT_A_PROXY_REQUEST)?,
            _ => {}
        }
        head.push_str(line);
        head.push_str("\r\n");
    }
    head.push_str("Connection: close\r\n\r\n");
    Ok(ProxyRequest::Request { host, port, head, body })
}

/// Parses a host, without the brackets of an IPv6 address, and a port.
fn authority(text: &str, usual: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
        Some(_) | None => (text, usual),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_plain = !host.is_empty() && !host.contains(['@', '/', '[', ']']);
    port.filter(|_| is_plain).map(|port| (host.to_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_asks_for_is_understood() {
        let tunnel = |host: &str, port| Ok(ProxyRequest::Tunnel { host: host.to_owned(), port });
        assert_eq!(parse_request("CONNECT a.test:443 HTTP/1.1\r\n\r\n"), tunnel("a.test", 443));
        assert_eq!(parse_request("CONNECT [::1]:443 HTTP/1.1\r\n\r\n"), tunnel("::1", 443));

        let asked = parse_request(
            "POST http://A.test:8080/p?q HTTP/1.1\r\nHost: a.test:8080\r\nProxy-Connection: \
             keep-alive\r\nContent-Length: 3\r\n\r\n",
        );
        let head = "POST /p?q HTTP/1.1\r\nHost: a.test:8080\r\nContent-Length: 3\r\n\
                    Connection: close\r\n\r\n";
        let (host, head) = ("a.test".to_owned(), head.to_owned());
        assert_eq!(asked, Ok(ProxyRequest::Request { host, port: 8080, head, body: 3 }));
    }

    #[test]
    fn what_no_browser_asks_is_refused() {
        for head in [
            "",
            "GET / HTTP/1.1",
            "GET https://a.test/ HTTP/1.1",
            "GET http://u:p@a.test/ HTTP/1.1",
            "GET http:///x HTTP/1.1",
            "CONNECT a.test HTTP/1.1",
            "CONNECT a.test:99999 HTTP/1.1",
            "POST http://a.test/ HTTP/1.1\r\nTransfer-Encoding: chunked",
            "GET http://a.test/ HTTP/1.1\r\nno colon",
            "GET http://a.test/ x HTTP/1.1",
        ] {
            assert!(parse_request(&format!("{head}\r\n\r\n")).is_err(), "{head}");
        }
    }
}
