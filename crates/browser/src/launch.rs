//! Starts Chromium, or connects to one that runs elsewhere.
//!
//! A browser that is started here is isolated, since a page may break out of it: it sees its profile,
//! programs, libraries and fonts, and no other files or processes of this machine, and its network
//! has the proxy only. It is controlled over a pipe, which no other process can open.

mod isolation;

use std::{
    net::SocketAddr,
    os::{fd::OwnedFd, unix::net},
    path::Path,
    process::Stdio,
    time::Duration,
};

use command_fds::{CommandFdExt as _, FdMapping};
use holdfast_proxy::ListenerChannel;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpStream, UnixStream},
    process::Child,
    time::timeout,
};
use tokio_tungstenite::client_async;

use crate::{Config, Error, cdp::Cdp};

/// Timeout for the browser to start or to answer.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of the response to `/json/version`, in bytes.
const MAX_VERSION_BYTES: u64 = 64 * 1024;

/// Arguments of the program. They turn off background traffic, and everything that could bypass the
/// proxy: where the browser is not isolated, nothing else does.
const BROWSER_ARGS: [&str; 19] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-features=BackForwardCache,MediaRouter,OptimizationHints,PreconnectToSearch,Translate",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--password-store=basic",
    "--proxy-bypass-list=<-loopback>",
    // For requests of the browser itself. Nothing listens there; the contexts of pages have the proxy.
    "--proxy-server=http://127.0.0.1:1",
];

/// Local browser process; dropping this kills it.
#[derive(Debug)]
pub(crate) struct BrowserProcess {
    _child: Child,
    _home: TempDir,
}

/// The proxy, as the browser sees it.
pub(crate) struct ProxyAddress {
    pub(crate) url: String,
    /// Channel for the listener, if the browser is isolated.
    pub(crate) channel: Option<ListenerChannel>,
}

/// Connects to the configured browser; starts it if it is a local one.
pub(crate) async fn connect(
    config: &Config,
    proxy: ProxyAddress,
) -> Result<(Cdp, Option<BrowserProcess>), Error> {
    let connecting = async {
        match (&config.url, &config.path) {
            (Some(url), _) => Ok((connect_to_url(url).await?, None)),
            (None, Some(path)) => {
                let (cdp, running) = start(path, config, proxy).await?;
                Ok((cdp, Some(running)))
            }
            (None, None) => Err(Error::Unavailable("none is configured".to_owned())),
        }
    };
    let late =
        || Error::Unavailable(format!("no answer came within {} s", LAUNCH_TIMEOUT.as_secs()));
    timeout(LAUNCH_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(late()))
}

async fn start(
    path: &Path,
    config: &Config,
    proxy: ProxyAddress,
) -> Result<(Cdp, BrowserProcess), Error> {
    let away = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Error::Unavailable(format!("{what}: {error}"))
    };
    let does_not_start = format!("`{}` does not start", path.display());
    let path = path.canonicalize().map_err(away(&does_not_start))?;
    let home = tempfile::Builder::new().prefix("holdfast-browser-").tempdir();
    let home = home.map_err(away("no folder for its profile can be made"))?;
    let (ours, theirs) = pipe().map_err(away("no pipe to it can be made"))?;
    let ProxyAddress { url: proxy, channel } = proxy;
    let mut command = isolation::command(channel.as_ref(), &path, home.path());
    // The environment is cleared: this process's variables hold secrets.
    command
        .args(BROWSER_ARGS)
        .arg(resolver_rules(&proxy))
        .arg(format!("--user-data-dir={}", home.path().display()))
        .args(&config.args)
        .arg("about:blank")
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let is_isolated = channel.is_some();
    let listener = channel
        .map(|channel| FdMapping { parent_fd: channel.socket, child_fd: isolation::LISTENER_FD });
    let mapped = command.fd_mappings(theirs.into_iter().chain(listener).collect());
    mapped.map_err(|error| Error::Unavailable(error.to_string()))?;
    let mut child = command.spawn().map_err(away(&does_not_start))?;
    drop(command);
    let stderr =
        child.stderr.take().ok_or_else(|| Error::Unavailable("it says nothing".to_owned()))?;
    // A full stderr pipe would block the browser, so it is drained.
    let last_words = tokio::spawn(async move {
        let (mut lines, mut last) = (BufReader::new(stderr).lines(), String::new());
        while let Ok(Some(line)) = lines.next_line().await {
            last = line.chars().take(200).collect();
        }
        last
    });
    let cdp = Cdp::start_pipe(ours);
    if let Err(error) = cdp.call(None, "Browser.getVersion", Value::Null).await {
        drop(child);
        let last = last_words.await.unwrap_or_default();
        return Err(match error {
            Error::Unavailable(_) => Error::Unavailable(format!(
                "it ended at once; its last words: {last}{}",
                if is_isolated { isolation::ADVICE } else { "" }
            )),
            other => other,
        });
    }
    Ok((cdp, BrowserProcess { _child: child, _home: home }))
}

/// Argument by which the browser resolves no name: the proxy does, and checks it.
fn resolver_rules(proxy: &str) -> String {
    let host = proxy.split_once("://").map_or(proxy, |(_, address)| address);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    format!("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {host}")
}

/// Makes our end of a pipe to the browser, and the descriptors from which it reads and to which it
/// writes.
fn pipe() -> std::io::Result<(UnixStream, [FdMapping; 2])> {
    let (ours, theirs) = net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let (reads, writes) = (OwnedFd::from(theirs.try_clone()?), OwnedFd::from(theirs));
    let mapping = |parent_fd, child_fd| FdMapping { parent_fd, child_fd };
    Ok((UnixStream::from_std(ours)?, [mapping(reads, 3), mapping(writes, 4)]))
}

/// Connects to a running browser by `http://host:port` or by its `ws://…` address.
async fn connect_to_url(url: &str) -> Result<Cdp, Error> {
    let wrong = || Error::Unavailable(format!("`{url}` is no address of a browser"));
    let (is_socket, rest) = match (url.strip_prefix("http://"), url.strip_prefix("ws://")) {
        (Some(rest), _) => (false, rest),
        (None, Some(rest)) => (true, rest),
        (None, None) => return Err(wrong()),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = if host.contains(':') { host.to_owned() } else { format!("{host}:9222") };
    let mut found = tokio::net::lookup_host(&host)
        .await
        .map_err(|error| Error::Unavailable(format!("`{host}` is not found: {error}")))?;
    let address = found.next().ok_or_else(wrong)?;
    let path = if is_socket { path.to_owned() } else { socket_path(address).await? };
    let stream = open(address).await?;
    // Chromium accepts only `localhost` or an IP address as the host, as a protection against DNS
    // rebinding.
    let request = format!("ws://localhost:{}/{path}", address.port());
    let (socket, _) = client_async(request, stream)
        .await
        .map_err(|error| Error::Unavailable(format!("it takes no calls: {error}")))?;
    Ok(Cdp::start(socket))
}

async fn open(address: SocketAddr) -> Result<TcpStream, Error> {
    TcpStream::connect(address)
        .await
        .map_err(|error| Error::Unavailable(format!("{address} is not reached: {error}")))
}

/// Path of the browser's own web socket, from `/json/version`.
async fn socket_path(address: SocketAddr) -> Result<String, Error> {
    let broken =
        |error: std::io::Error| Error::Unavailable(format!("{address} does not answer: {error}"));
    let mut stream = open(address).await?;
    let ask = "GET /json/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.map_err(broken)?;
    let mut answer = Vec::new();
    // Chromium ignores `Connection: close`: the response ends with the JSON object.
    let mut stream = stream.take(MAX_VERSION_BYTES);
    loop {
        let read = stream.read_buf(&mut answer).await.map_err(broken)?;
        let text = String::from_utf8_lossy(&answer);
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        if let Ok(said) = serde_json::from_str::<Value>(body) {
            let url = said["webSocketDebuggerUrl"].as_str().unwrap_or_default();
            let path = url.splitn(4, '/').nth(3).unwrap_or_default();
            if path.is_empty() {
                return Err(Error::Unavailable(format!("{address} is no browser")));
            }
            return Ok(path.to_owned());
        }
        if read == 0 {
            return Err(Error::Unavailable(format!("{address} is no browser")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_is_the_only_host_that_the_browser_resolves() {
        for (proxy, host) in
            [("http://127.0.0.1:18797", "127.0.0.1"), ("http://[::1]:8080", "[::1]")]
        {
            let rules = resolver_rules(proxy);
            assert_eq!(rules, format!("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {host}"));
        }
    }
}
