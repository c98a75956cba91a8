//! Sign-in in a browser on this machine: the provider redirects to a port of this process, with a
//! code that only this process can exchange (RFC 8252, PKCE).

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, bail, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::Url;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::Command,
    time::timeout,
};

use crate::{
    screen::Screen,
    tokens::{Provider, Tokens, claims, form},
};

/// Time for the person to sign in.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(300);
/// Time for a request of the browser to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_REQUEST_BYTES: u64 = 16 * 1024;
const CALLBACK_PATH: &str = "/callback";

#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether a browser is opened.
    pub opens: bool,
    /// Port for the redirect; 0 takes a free one.
    pub port: u16,
}

pub async fn sign_in(
    provider: &Provider,
    scope: &str,
    options: Options,
    screen: &Screen,
) -> anyhow::Result<Tokens> {
    let listener = TcpListener::bind(("127.0.0.1", options.port)).await.with_context(|| {
        format!("cannot listen on port {} of this machine: give another as --port", options.port)
    })?;
    let redirect = format!("http://127.0.0.1:{}{CALLBACK_PATH}", listener.local_addr()?.port());
    let (verifier, state, nonce) = (random(), random(), random());
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
    let query = form(&[
        ("response_type", "code"),
        ("client_id", &provider.client_id),
        ("redirect_uri", &redirect),
        ("scope", scope),
        // Providers give a refresh token only after the person was asked.
        ("prompt", "consent"),
        ("state", &state),
        ("nonce", &nonce),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ]);
    let endpoint = &provider.endpoints.authorization_endpoint;
    let separator = if endpoint.contains('?') { '&' } else { '?' };
    let url = format!("{endpoint}{separator}{query}");
    screen.note(&format!("Open this address to sign in:\n\n  {url}\n"))?;
    if options.opens {
        open(&url);
    }

    let waited = timeout(SIGN_IN_TIMEOUT, wait_for_code(&listener, &state, &provider.issuer)).await;
    let code = waited.context("nobody signed in within five minutes: try again")??;
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", &redirect),
        ("client_id", &provider.client_id),
        ("code_verifier", &verifier),
    ];
    let tokens = match provider.tokens(&fields).await? {
        Ok(tokens) => tokens,
        Err(refusal) => bail!("the provider gave no token: {}", refusal.text()),
    };
    if let Some(token) = &tokens.id_token {
        let given = claims(token)?;
        ensure!(given["nonce"] == nonce.as_str(), "the ID token belongs to another sign-in");
    }
    Ok(tokens)
}

/// Answers the browser until it comes with the code of this sign-in.
async fn wait_for_code(
    listener: &TcpListener,
    state: &str,
    issuer: &str,
) -> anyhow::Result<String> {
    loop {
        let (mut browser, _) = listener.accept().await?;
        let Ok(Ok(url)) = timeout(REQUEST_TIMEOUT, read_request(&mut browser)).await else {
            continue;
        };
        if url.path() != CALLBACK_PATH {
            // Browsers ask for an icon too.
            answer(&mut browser, "404 Not Found", "There is nothing here.").await;
            continue;
        }
        let outcome = code_of(&url, state, issuer);
        match &outcome {
            Ok(_) => answer(&mut browser, "200 OK", "Signed in. You may close this page.").await,
            Err(_) => {
                answer(&mut browser, "400 Bad Request", "Not signed in: the terminal says why.")
                    .await;
            }
        }
        return outcome;
    }
}

/// Returns the code of a redirect, after checking that it answers this sign-in.
fn code_of(url: &Url, state: &str, issuer: &str) -> anyhow::Result<String> {
    let field = |name: &str| {
        let mut pairs = url.query_pairs();
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    ensure!(
        field("state").as_deref() == Some(state),
        "the browser came back from another sign-in: try again"
    );
    if let Some(named) = field("iss") {
        ensure!(named == issuer, "the answer is from another provider: `{named}`");
    }
    if let Some(error) = field("error") {
        let said = field("error_description").unwrap_or_default();
        bail!("the provider refused the sign-in: `{error}` {said}");
    }
    field("code").context("the provider sent no code")
}

async fn read_request(browser: &mut TcpStream) -> anyhow::Result<Url> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    let mut limited = browser.take(MAX_REQUEST_BYTES);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = limited.read(&mut part).await?;
        ensure!(count > 0, "the request ended too early");
        head.extend_from_slice(&part[..count]);
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).context("no request of HTTP")?;
    Ok(Url::parse("http://127.0.0.1")?.join(path)?)
}

async fn answer(browser: &mut TcpStream, status: &str, text: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    // The browser may have gone: the outcome is the same.
    drop(browser.write_all(answer.as_bytes()).await);
    drop(browser.shutdown().await);
}

/// Opens a browser, if there is one; the address was printed.
pub fn open(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    drop(quiet);
}

/// 256 random bits, in letters of URLs.
fn random() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(query: &str) -> anyhow::Result<String> {
        let url = Url::parse(&format!("http://127.0.0.1/callback?{query}")).unwrap();
        code_of(&url, "s", "https://id")
    }

    #[test]
    fn only_the_answer_to_this_sign_in_is_taken() {
        assert_eq!(code("state=s&code=c").unwrap(), "c");
        assert_eq!(code("state=s&code=c&iss=https%3A%2F%2Fid").unwrap(), "c");
        for wrong in
            ["", "code=c", "state=x&code=c", "state=s", "state=s&code=c&iss=https%3A%2F%2Fother"]
        {
            assert!(code(wrong).is_err(), "{wrong}");
        }
        let told = code("state=s&error=access_denied&error_description=no").unwrap_err();
        assert!(told.to_string().contains("`access_denied` no"), "{told}");
    }
}
