//! Starts Chromium, or connects to one that runs elsewhere.

use std::{net::SocketAddr, path::Path, process::Stdio, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};
use tokio_tungstenite::client_async;

use crate::{Config, Error, cdp::Cdp};

/// Timeout for the browser to start or to answer.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of the response to `/json/version`, in bytes.
const MAX_VERSION_BYTES: u64 = 64 * 1024;

/// Arguments of the program. They turn off background traffic, and everything that could bypass the
/// proxy.
const BROWSER_ARGS: [&str; 18] = [
    "--headless=new",
    "--remote-debugging-port=0",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-features=BackForwardCache,MediaRouter,OptimizationHints,Translate",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--password-store=basic",
    "--proxy-bypass-list=<-loopback>",
];

/// Local browser process; dropping this kills it.
#[derive(Debug)]
pub(crate) struct BrowserProcess {
    _child: Child,
    _home: TempDir,
}

/// Connects to the configured browser; starts it if it is a local one.
pub(crate) async fn connect(
    config: &Config,
    proxy: &str,
) -> Result<(Cdp, Option<BrowserProcess>), Error> {
    let connecting = async {
        match (&config.url, &config.path) {
            (Some(url), _) => Ok((connect_to_url(url).await?, None)),
            (None, Some(path)) => {
                let (cdp, running) = start(path, &config.args, proxy).await?;
                Ok((cdp, Some(running)))
            }
            (None, None) => Err(Error::Unavailable("none is configured".to_owned())),
        }
    };
    let late =
        || Error::Unavailable(format!("no answer came within {} s", LAUNCH_TIMEOUT.as_secs()));
    timeout(LAUNCH_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(late()))
}

async fn start(path: &Path, args: &[String], proxy: &str) -> Result<(Cdp, BrowserProcess), Error> {
    let away = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Error::Unavailable(format!("{what}: {error}"))
    };
    let home = tempfile::Builder::new().prefix("holdfast-browser-").tempdir();
    let home = home.map_err(away("no folder for its profile can be made"))?;
    // The environment is cleared: this process's variables hold secrets.
    let mut child = Command::new(path)
        .args(BROWSER_ARGS)
        .arg(format!("--proxy-server={proxy}"))
        .arg(format!("--user-data-dir={}", home.path().display()))
        .args(args)
        .arg("about:blank")
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(away(&format!("`{}` does not start", path.display())))?;
    let stderr =
        child.stderr.take().ok_or_else(|| Error::Unavailable("it says nothing".to_owned()))?;
    let mut lines = BufReader::new(stderr).lines();
    let mut last = String::new();
    let url = loop {
        match lines.next_line().await {
            Ok(Some(line)) => match line.strip_prefix("DevTools listening on ") {
                Some(url) => break url.trim().to_owned(),
                None => last = line.chars().take(200).collect(),
            },
            Ok(None) | Err(_) => {
                return Err(Error::Unavailable(format!(
                    "it ended at once; its last words: {last}"
                )));
            }
        }
    };
    // A full stderr pipe would block the browser, so it is drained.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((connect_to_url(&url).await?, BrowserProcess { _child: child, _home: home }))
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
