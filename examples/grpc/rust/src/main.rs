//! Sends a message to an agent and follows it to its answer, over lost connections too.
//!
//! ```sh
//! HOLDFAST_API_KEY=hf_… cargo run -- "hello"
//! ```
//!
//! `HOLDFAST_GRPC` is the address (127.0.0.1:18790). `HOLDFAST_CA_FILE` turns TLS on; it names a PEM
//! file with the authority of the gateway's certificate, or is `system`.

use std::{env, fs, time::Duration};

use anyhow::{Context as _, bail};
use pb::{Done, FollowRequest, Outcome, SendRequest, messages_client::MessagesClient, run_event::Event};
use tokio::time::sleep;
use tonic::{
    Code, Request, Status,
    transport::{Certificate, Channel, ClientTlsConfig},
};
use tonic_types::StatusExt as _;
use uuid::Uuid;

mod pb {
    tonic::include_proto!("holdfast.gateway.v1");
}

/// How often a call is made.
const TRIES: u32 = 8;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let key = env::var("HOLDFAST_API_KEY").context("set HOLDFAST_API_KEY")?;
    let text = env::args().skip(1).collect::<Vec<_>>().join(" ");
    let done = ask(MessagesClient::new(connect()?), &key, text).await?;
    if done.outcome() != Outcome::Completed {
        bail!("{}: {}", done.outcome().as_str_name(), done.reason);
    }
    println!("{}", done.text);
    Ok(())
}

fn connect() -> anyhow::Result<Channel> {
    let address = env::var("HOLDFAST_GRPC").unwrap_or_else(|_| "127.0.0.1:18790".to_owned());
    let Ok(authority) = env::var("HOLDFAST_CA_FILE") else {
        return Ok(Channel::from_shared(format!("http://{address}"))?.connect_lazy());
    };
    let tls = match authority.as_str() {
        "system" => ClientTlsConfig::new().with_native_roots(),
        file => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(fs::read(file)?)),
    };
    Ok(Channel::from_shared(format!("https://{address}"))?.tls_config(tls)?.connect_lazy())
}

async fn ask(client: MessagesClient<Channel>, key: &str, text: String) -> anyhow::Result<Done> {
    // With one id for all tries the message is accepted once, even if an acknowledgement is lost.
    let send = SendRequest { request_id: Uuid::new_v4().to_string(), text, ..Default::default() };
    let sent = retrying(|| async {
        let mut request = by(key, send.clone())?;
        request.set_timeout(Duration::from_secs(10));
        client.clone().send(request).await
    });
    let message_id = sent.await?.into_inner().message_id;

    retrying(|| async {
        let follow = by(key, FollowRequest { message_id: message_id.clone() })?;
        let mut events = client.clone().follow(follow).await?.into_inner();
        while let Some(event) = events.message().await? {
            match event.event {
                Some(Event::ToolStarted(started)) => eprintln!("[{}]", started.tool),
                Some(Event::ApprovalRequested(asked)) => {
                    eprintln!("{}\nholdfast approvals allow {}", asked.subject, asked.slug);
                }
                Some(Event::Done(done)) => return Ok(done),
                _ => {}
            }
        }
        Err(Status::unavailable("the stream ended before the answer"))
    })
    .await
}

fn by<T>(key: &str, message: T) -> Result<Request<T>, Status> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {key}").parse();
    let bearer = bearer.map_err(|_| Status::unauthenticated("the key is no header"))?;
    request.metadata_mut().insert("authorization", bearer);
    Ok(request)
}

/// Makes a call until it succeeds, fails for good, or was tried often enough.
async fn retrying<T, F>(call: impl Fn() -> F) -> anyhow::Result<T>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut attempt = 1;
    loop {
        let status = match call().await {
            Ok(answer) => return Ok(answer),
            Err(status) => status,
        };
        let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
        // A quota does not pass by itself: such an error has no delay.
        let passes = match status.code() {
            Code::Unavailable | Code::DeadlineExceeded => true,
            Code::ResourceExhausted => delay.is_some(),
            _ => false,
        };
        if !passes || attempt == TRIES {
            let reason = status.get_details_error_info().map(|info| info.reason);
            bail!("{:?} {}: {}", status.code(), reason.unwrap_or_default(), status.message());
        }
        sleep(delay.unwrap_or(Duration::from_millis(200 * 2_u64.pow(attempt)))).await;
        attempt += 1;
    }
}
