//! Connection to a gateway: kept, restored when it is lost, and answered on.

use std::{sync::Arc, time::Duration};

use holdfast_grpc::kind;
use holdfast_kit::Backoff;
use holdfast_proto::gateway::v1::{
    AttachRequest, attach_request::Said, attach_response::Asked, nodes_client::NodesClient,
};
use holdfast_types::Kind;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tracing::{info, warn};

use super::host::Host;
use crate::error::Error;

/// Maximum time for the gateway to accept a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Delays between connection attempts. Short, since a caller may wait for an answer.
const RECONNECT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(500), Duration::from_secs(10));

/// Maximum number of answers that wait to be sent.
const MAX_PENDING_ANSWERS: usize = 64;

/// Connection of a node to its gateway.
#[derive(Debug)]
pub(super) struct Link {
    url: String,
    token: MetadataValue<Ascii>,
    channel: Channel,
    host: Arc<Host>,
}

impl Link {
    /// Creates a link over a channel to the gateway at `url`. Does not connect yet.
    pub(super) fn new(
        channel: Channel,
        url: &str,
        token: &str,
        host: Arc<Host>,
    ) -> Result<Self, Error> {
        let mut token: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
            Error::Usage("the token holds characters that none has: copy it anew".to_owned())
        })?;
        token.set_sensitive(true);
        Ok(Self { url: url.to_owned(), token, channel, host })
    }

    /// Stays connected until `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// If the node may not connect, or another program uses its token.
    pub(super) async fn stay_connected(&self, stop: &CancellationToken) -> Result<(), Error> {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let ended = tokio::select! {
                ended = self.attach(&mut failures) => ended,
                () = stop.cancelled() => return Ok(()),
            };
            if is_final(&ended) {
                return Err(Error::from_status(ended, &self.url));
            }
            let wait = RECONNECT_BACKOFF.delay(failures);
            failures = failures.saturating_add(1);
            warn!(why = ended.message(), again_in = ?wait, "not connected");
            stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
        Ok(())
    }

    /// Connects and answers until the connection ends. Returns the reason of the end.
    async fn attach(&self, failures: &mut u32) -> Status {
        match self.try_attach(failures).await {
            Ok(()) => Status::unavailable("the gateway has ended the connection"),
            Err(status) => status,
        }
    }

    async fn try_attach(&self, failures: &mut u32) -> Result<(), Status> {
        let (answers, answered) = mpsc::channel(MAX_PENDING_ANSWERS);
        let hello = AttachRequest { said: Some(Said::Hello(self.host.hello())) };
        // The channel is empty, so this does not block.
        drop(answers.send(hello).await);
        let mut request = Request::new(ReceiverStream::new(answered));
        request.metadata_mut().insert("authorization", self.token.clone());
        let asked = NodesClient::new(self.channel.clone()).attach(request).await;
        let mut asked = asked?.into_inner();
        while let Some(message) = asked.message().await? {
            match message.asked {
                Some(Asked::Welcome(welcome)) => {
                    info!(name = welcome.name, "connected");
                    *failures = 0;
                    self.host.accept_welcome(welcome)?;
                }
                Some(Asked::Ask(ask)) => {
                    let (host, answers) = (Arc::clone(&self.host), answers.clone());
                    tokio::spawn(async move {
                        let answer = Said::Answer(host.answer(ask).await);
                        // If the connection is lost, the caller asks again by the key.
                        drop(answers.send(AttachRequest { said: Some(answer) }).await);
                    });
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// Whether another attempt to connect would end in the same way.
fn is_final(status: &Status) -> bool {
    // Another program uses this token: the two would replace each other forever.
    if status.code() == Code::Aborted {
        return true;
    }
    match kind(status) {
        Kind::Unauthenticated | Kind::Forbidden | Kind::Invalid => true,
        Kind::NotFound | Kind::Conflict | Kind::Exhausted | Kind::Unavailable | Kind::Internal => {
            false
        }
    }
}
