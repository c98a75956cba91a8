//! Behaviours at the tenant's channel accounts: webhooks and widget.

use std::{net::Ipv4Addr, rc::Rc, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use uuid::Uuid;

use super::behavior::{Counts, Target};

/// Senders of webhooks.
const SENDERS: usize = 200;
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Messages with valid signatures, at twice the tenant's rate.
pub async fn post_signed_webhooks(target: Arc<Target>, counts: Rc<Counts>) -> anyhow::Result<()> {
    let http = client()?;
    let url = format!("http://{}/webhook/{}", target.bridge, target.webhook.id);
    let call = async |nth: usize| {
        let sender = format!("person-{}", nth % SENDERS);
        let body = json!({ "sender": sender, "text": "Which train?" }).to_string();
        let mut request = http.post(&url);
        for (name, value) in target.webhook.headers(&Uuid::now_v7().to_string(), &body)? {
            request = request.header(name, value);
        }
        accepted(request.body(body)).await
    };
    counts.repeat((target.flood_rate, 0), call).await;
    Ok(())
}

/// Fifty posts of 64 kB in each second whose signatures have the right form and were not made with the
/// account's secret.
pub async fn post_forged_webhooks(target: Arc<Target>, counts: Rc<Counts>) -> anyhow::Result<()> {
    let http = client()?;
    let url = format!("http://{}/webhook/{}", target.bridge, target.webhook.id);
    let body = json!({ "sender": "person-1", "text": "word ".repeat(13_000) }).to_string();
    let call = async |_| {
        let mut request = http.post(&url);
        for (name, value) in target.webhook.headers(&Uuid::now_v7().to_string(), "another body")? {
            request = request.header(name, value);
        }
        accepted(request.body(body.clone())).await
    };
    counts.repeat((50.0, 0), call).await;
    Ok(())
}

/// Five visitors in each second, from addresses that their headers invent: each sends a message and
/// listens without reading; up to 150 stay.
pub async fn open_widgets(target: Arc<Target>, counts: Rc<Counts>) -> anyhow::Result<()> {
    let http = client()?;
    let url = format!("http://{}/widget/{}", target.bridge, target.widget);
    let call = async |nth: usize| {
        let address = invented_address(nth)?;
        let session = http.post(format!("{url}/session")).header("x-forwarded-for", &address);
        let session: Value = accepted(session.body("{}")).await?.json().await?;
        let token = session["token"].as_str().context("a session without a token")?;
        let message = json!({ "key": Uuid::now_v7().to_string(), "text": "hello" }).to_string();
        let post = http.post(format!("{url}/messages")).header("x-forwarded-for", &address);
        accepted(post.bearer_auth(token).body(message)).await?;
        let events = http.get(format!("{url}/events?after=0")).header("x-forwarded-for", address);
        accepted(events.bearer_auth(token)).await
    };
    counts.repeat((5.0, 150), call).await;
    Ok(())
}

/// A client without a limit on whole responses: some never end.
pub fn client() -> anyhow::Result<Client> {
    let client = Client::builder().tcp_nodelay(true).no_proxy().read_timeout(CALL_TIMEOUT);
    Ok(client.build()?)
}

/// Makes a call; what is not answered with a success is an error.
pub async fn accepted(request: reqwest::RequestBuilder) -> anyhow::Result<Response> {
    let response = request.send().await?;
    ensure!(response.status().is_success(), "{}", response.status());
    Ok(response)
}

/// Address that a header names as the client's: another one for each call.
pub fn invented_address(nth: usize) -> anyhow::Result<String> {
    let [_, high, middle, low] = u32::try_from(nth)?.to_be_bytes();
    Ok(Ipv4Addr::new(198, high, middle, low).to_string())
}
