//! HTTP proxy that connects only where its rules allow.
//!
//! Chromium sends all connections of a context here: pages, redirects, frames, scripts, workers,
//! web sockets; commands send what their programs request. Names are resolved only here, and the
//! connection goes to the address that was checked, so a name cannot resolve to one address for the
//! check and to another for the connection (DNS rebinding).
//!
//! Each connection carries one plain HTTP request: a second request on it could be for another
//! host.

use std::{
    collections::HashMap,
    fmt, io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy, sink},
    net::{TcpListener, TcpStream, UnixStream},
    task::JoinSet,
    time::timeout,
};
use tracing::{debug, warn};

use crate::{
    Admission, ConnectRules,
    admission::{Admissions, rules_of},
    namespace,
};

/// Maximum size of a request's head, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Maximum number of open connections; further ones are closed at once.
const MAX_CONNECTIONS: usize = 2048;

/// Timeout for a request's head to arrive, and for a connection to be made.
const IO_TIMEOUT: Duration = Duration::from_secs(15);

/// Timeout for a server to take what a client sends.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that are read from a client at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// Rules of a connection to the proxy.
#[derive(Clone)]
enum Access {
    /// The same for all connections.
    Same(Arc<dyn ConnectRules>),
    /// Those of the credential that the request has.
    ByCredential(Arc<Admissions>),
}

/// Running proxy; it stops when dropped, with its connections.
pub struct Proxy {
    task: tokio::task::JoinHandle<()>,
    admissions: Arc<Admissions>,
}

impl Proxy {
    /// Starts a proxy with the same rules for all connections. `per_peer` is the maximum number of
    /// open connections of an address.
    #[must_use]
    pub fn start(listener: TcpListener, rules: Arc<dyn ConnectRules>, per_peer: usize) -> Self {
        let task = tokio::spawn(accept_all(listener, Access::Same(rules), per_peer));
        Self { task, admissions: Arc::default() }
    }

    /// Starts a proxy whose listener comes from another network namespace, over `channel`.
    #[must_use]
    pub fn start_in_namespace(
        channel: UnixStream,
        rules: Arc<dyn ConnectRules>,
        per_peer: usize,
    ) -> Self {
        let task = tokio::spawn(async move {
            match namespace::receive(channel).await {
                Ok(listener) => accept_all(listener, Access::Same(rules), per_peer).await,
                Err(error) => warn!(%error, "a namespace has no network"),
            }
        });
        Self { task, admissions: Arc::default() }
    }

    /// Starts a proxy whose rules depend on the credential of a request.
    #[must_use]
    pub fn start_with_credentials(listener: TcpListener, per_peer: usize) -> Self {
        let admissions = Arc::new(Admissions::default());
        let access = Access::ByCredential(Arc::clone(&admissions));
        Self { task: tokio::spawn(accept_all(listener, access, per_peer)), admissions }
    }

    /// Admits a program to a proxy with credentials.
    #[must_use]
    pub fn admit(&self, rules: Arc<dyn ConnectRules>) -> Admission {
        Admission::new(&self.admissions, rules)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").finish_non_exhaustive()
    }
}

async fn accept_all(listener: TcpListener, access: Access, per_peer: usize) {
    let peers = Arc::new(Peers::default());
    // Dropping the set ends the connections.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, peer)) = listener.accept().await else {
            // Accept fails when file descriptors run out. Retry: closing connections frees some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if connections.len() >= MAX_CONNECTIONS {
            continue;
        }
        let Some(counted) = PeerConnection::count(&peers, peer.ip(), per_peer) else { continue };
        let access = access.clone();
        connections.spawn(async move {
            // A broken connection needs no reaction.
            if let Err(error) = serve(stream, &access).await {
                debug!(%error, "a connection of the proxy ended");
            }
            drop(counted);
        });
    }
}

/// Number of open connections by address.
type Peers = Mutex<HashMap<IpAddr, usize>>;

/// Open connection of an address, which is counted until it is dropped.
struct PeerConnection {
    peers: Arc<Peers>,
    address: IpAddr,
}

impl PeerConnection {
    /// Counts a connection; `None` if the address has too many.
    fn count(peers: &Arc<Peers>, address: IpAddr, most: usize) -> Option<Self> {
        let mut counts = peers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Self { peers: Arc::clone(peers), address })
    }
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        let mut counts = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Request of a program to the proxy.
#[derive(Debug, PartialEq, Eq)]
enum ProxyRequest {
    /// `CONNECT`: the program speaks to the server itself, over TLS or a web socket.
    Tunnel { host: String, port: u16 },
    /// Plain HTTP request: the rewritten head for the server, and the length of the body.
    Request { host: String, port: u16, head: String, body: u64 },
}

async fn serve(mut client: TcpStream, access: &Access) -> io::Result<()> {
    let Ok(head) = timeout(IO_TIMEOUT, read_head(&mut client)).await else { return Ok(()) };
    let Some((head, rest)) = head? else { return Ok(()) };
    match access {
        Access::Same(rules) => forward(client, (&head, &rest), &**rules).await,
        Access::ByCredential(admissions) => match rules_of(admissions, &head) {
            Some(admitted) => {
                let forwarding = forward(client, (&head, &rest), &*admitted.rules);
                admitted.ended.run_until_cancelled(forwarding).await.unwrap_or(Ok(()))
            }
            None => {
                let status = "407 Proxy Authentication Required\r\n\
                              Proxy-Authenticate: Basic realm=\"holdfast\"";
                refuse(&mut client, status, "the credential of this proxy is missing or ended")
                    .await
            }
        },
    }
}

/// Serves a request whose head was read, with the bytes received after it.
async fn forward(
    mut client: TcpStream,
    (head, rest): (&str, &[u8]),
    rules: &dyn ConnectRules,
) -> io::Result<()> {
    let asked = match parse_request(head) {
        Ok(asked) => asked,
        Err(why) => return refuse(&mut client, "400 Bad Request", why).await,
    };
    let (host, port) = match &asked {
        ProxyRequest::Tunnel { host, port } | ProxyRequest::Request { host, port, .. } => {
            (host.clone(), *port)
        }
    };
    let addresses = match rules.check(host, port).await {
        Ok(addresses) => addresses,
        Err(why) => return refuse(&mut client, "403 Forbidden", &why).await,
    };
    let connected = timeout(IO_TIMEOUT, TcpStream::connect(addresses.as_slice())).await;
    let Ok(Ok(mut server)) = connected else {
        return refuse(&mut client, "502 Bad Gateway", "no connection could be made").await;
    };
    let (head, body) = match asked {
        ProxyRequest::Tunnel { .. } => {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            (String::new(), u64::MAX)
        }
        ProxyRequest::Request { head, body, .. } => (head, body),
    };
    let here = usize::try_from(body).unwrap_or(usize::MAX).min(rest.len());
    let received = [head.as_bytes(), &rest[..here]].concat();
    let left = body - u64::try_from(here).unwrap_or(body);
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let sending = async {
        send(&mut received.as_slice(), &mut to_server).await?;
        send(&mut (&mut from_client).take(left), &mut to_server).await?;
        // What follows is no part of the request; its end is the client's.
        copy(&mut from_client, &mut sink()).await.map(drop)
    };
    let answering = async {
        copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    };
    // A server may respond before it has read everything. A client that has gone needs no response: a
    // server that never ends must not keep the connection.
    tokio::select! {
        sent = sending => sent,
        answered = answering => answered,
    }
}

/// Copies from a client to a server until the client ends. While a server takes nothing, the end of its
/// client is not seen, so that has a time limit.
async fn send<R, W>(from: &mut R, to: &mut W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        timeout(SEND_TIMEOUT, to.write_all(&buffer[..length])).await??;
    }
}

/// Reads the head of a request, and the bytes received after it. Returns `None` if the connection
/// closed, or the head is too large or not UTF-8.
async fn read_head(client: &mut TcpStream) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        if client.read_buf(&mut bytes).await? == 0 || bytes.len() > MAX_HEAD_BYTES {
            return Ok(None);
        }
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok(String::from_utf8(bytes).ok().map(|head| (head, rest)));
        }
    }
}

async fn refuse(client: &mut TcpStream, status: &str, why: &str) -> io::Result<()> {
    let why = why.replace(['\r', '\n'], " ");
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{why}",
        why.len()
    );
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}

fn parse_request(head: &str) -> Result<ProxyRequest, &'static str> {
    const NOT_A_PROXY_REQUEST: &str = "the request is none that a client of a proxy makes";
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
    use std::net::SocketAddr;

    use super::*;
    use crate::RuleDecision;

    #[test]
    fn what_a_program_requests_is_understood() {
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
    fn what_no_client_requests_is_refused() {
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

    /// Allows this machine's loopback only, under any name.
    #[derive(Debug)]
    struct Loopback;

    impl ConnectRules for Loopback {
        fn check(&self, host: String, port: u16) -> RuleDecision {
            Box::pin(async move {
                match host.as_str() {
                    "here.test" => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
                    _ => Err(format!("`{host}` is refused")),
                }
            })
        }
    }

    async fn answer(proxy: SocketAddr, request: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(proxy).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    #[tokio::test]
    async fn a_credential_has_its_own_rules_and_ends_with_its_admission() -> io::Result<()> {
        let (server, there) = listen().await?;
        let (listener, address) = listen().await?;
        let proxy = Proxy::start_with_credentials(listener, 8);
        let admission = proxy.admit(Arc::new(Loopback));
        let url = admission.url(address);
        let user = url.strip_prefix("http://").and_then(|rest| rest.split_once('@')).unwrap().0;
        let request = |host: &str, user: &str| {
            use base64::{Engine as _, engine::general_purpose::STANDARD};

            let user = STANDARD.encode(user);
            let port = there.port();
            format!("CONNECT {host}:{port} HTTP/1.1\r\nProxy-Authorization: Basic {user}\r\n\r\n")
        };

        let refused = answer(address, &request("elsewhere.test", user)).await?;
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
        for wrong in ["command:", "command:x", "x"] {
            let refused = answer(address, &request("here.test", wrong)).await?;
            assert!(refused.starts_with("HTTP/1.1 407 "), "{refused}");
        }
        let without = format!("CONNECT here.test:{} HTTP/1.1\r\n\r\n", there.port());
        assert!(answer(address, &without).await?.starts_with("HTTP/1.1 407 "));

        let admitted = request("here.test", user);
        let tunnel = tokio::spawn({
            let admitted = admitted.clone();
            async move { answer(address, &admitted).await }
        });
        let (_connection, _) = server.accept().await?;
        drop(admission);
        let tunnelled = tunnel.await?.unwrap_or_default();
        assert!(!tunnelled.contains("407"), "it was admitted: {tunnelled}");
        assert!(answer(address, &admitted).await?.starts_with("HTTP/1.1 407 "), "it has ended");
        Ok(())
    }

    #[tokio::test]
    async fn an_address_has_a_limited_number_of_connections() -> io::Result<()> {
        let (listener, address) = listen().await?;
        let _proxy = Proxy::start(listener, Arc::new(Loopback), 1);
        let mut first = TcpStream::connect(address).await?;
        first.write_all(b"CONNECT x").await?;
        let request = "CONNECT elsewhere.test:1 HTTP/1.1\r\n\r\n";
        let second = answer(address, request).await.unwrap_or_default();
        assert_eq!(second, "", "closed without an answer");

        drop(first);
        loop {
            let next = answer(address, request).await.unwrap_or_default();
            if next.starts_with("HTTP/1.1 403 ") {
                return Ok(());
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_has_gone_leaves_no_connection_behind() -> io::Result<()> {
        let (server, there) = listen().await?;
        let host = format!("here.test:{}", there.port());
        for request in [
            format!("CONNECT {host} HTTP/1.1\r\n\r\n"),
            format!("GET http://{host}/ HTTP/1.1\r\n\r\n"),
            format!("POST http://{host}/ HTTP/1.1\r\nContent-Length: 9\r\n\r\n"),
        ] {
            let (listener, address) = listen().await?;
            let _proxy = Proxy::start(listener, Arc::new(Loopback), 1);
            let mut client = TcpStream::connect(address).await?;
            client.write_all(request.as_bytes()).await?;
            let (mut silent, _) = server.accept().await?;

            drop(client);

            // The connection to the server ends, although the server does not end it.
            let mut rest = Vec::new();
            let _reset = silent.read_to_end(&mut rest).await;
            let elsewhere = "CONNECT elsewhere.test:1 HTTP/1.1\r\n\r\n";
            loop {
                let next = answer(address, elsewhere).await.unwrap_or_default();
                if next.starts_with("HTTP/1.1 403 ") {
                    break;
                }
            }
        }
        Ok(())
    }
}
