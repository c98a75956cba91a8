//! Message senders of the mesh tests: gRPC, signed webhooks, Telegram.
//!
//! Each message is sent one to three times, over different gateways and bridges, always with the
//! same idempotency key, and each copy is retried until it is answered. So the sender knows which
//! messages were accepted; the ledger lists them.

mod channels;
mod observations;
mod operations;

pub use channels::sign;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::future::join_all;
use holdfast_proto::gateway::v1::messages_client::MessagesClient;
use holdfast_proto::gateway::v1::run_event::Event;
use holdfast_proto::gateway::v1::{Done, SendRequest};
use rand::RngExt as _;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::dice;
use crate::history::{Client, EventKind};
use crate::mesh::Mesh;
use crate::script::MessageKind;

/// How long one call may take before it is made again.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);

/// How long a message is offered before its sender gives up, which fails the test.
const SEND_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a stream may say nothing.
const STREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The way a message comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestChannel {
    /// gRPC with a key; the answer is asked for.
    Grpc,
    /// A signed webhook; the answer is posted with a key.
    Webhook,
    /// Telegram; the answer is sent without a key.
    Telegram,
    /// Matrix; the answer is sent with a transaction id, as a key.
    Matrix,
    /// Slack; before the answer is sent again, Slack is asked whether it has it.
    Slack,
    /// Discord; the answer is sent with a nonce, as a key. A message may be lost with a connection.
    Discord,
    /// E-mail; before the answer is sent again, the server is asked whether it has it.
    Email,
}

/// A conversation: one sender, who says one thing after the other.
#[derive(Debug, Clone)]
pub struct Conversation {
    pub tenant: usize,
    pub number: usize,
    pub door: TestChannel,
}

/// A message that was said.
#[derive(Debug, Clone)]
pub struct SentMessage {
    /// Its id, which its text begins with.
    pub id: String,
    pub tenant: usize,
    /// Number of its conversation.
    pub conversation: usize,
    pub door: TestChannel,
    pub word: MessageKind,
    /// How often it was sent, besides what was sent again because nobody answered.
    pub copies: usize,
    /// What the mesh calls it; Telegram is not told.
    pub message: Option<String>,
    pub retention: MessageRetention,
}

impl SentMessage {
    /// The conversation that it belongs to.
    #[must_use]
    pub const fn conversation(&self) -> Conversation {
        Conversation { tenant: self.tenant, number: self.conversation, door: self.door }
    }
}

/// What the sender had done to a message after it was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageRetention {
    Kept,
    /// It was pruned, or its session was deleted.
    Removed,
}

/// All who talk to a mesh.
#[derive(Debug)]
pub struct Senders<'m> {
    mesh: &'m Mesh,
    gateways: Vec<Channel>,
    http: reqwest::Client,
    next: Vec<AtomicU64>,
    next_platform_id: AtomicI64,
    said: Mutex<Vec<SentMessage>>,
    /// The sessions of conversations by gRPC.
    sessions: Mutex<BTreeMap<Client, String>>,
    /// Calls that were made again.
    pub retries: AtomicU64,
    /// Answers that were followed to their end.
    pub followed: AtomicU64,
}

impl<'m> Senders<'m> {
    pub fn on(mesh: &'m Mesh) -> anyhow::Result<Self> {
        holdfast_kit::tls::install_crypto();
        let mut gateways = Vec::new();
        for addr in &mesh.grpc {
            let channel = holdfast_grpc::channel(&format!("http://{addr}"), CALL_TIMEOUT)?;
            gateways.push(channel);
        }
        let http =
            reqwest::Client::builder().timeout(CALL_TIMEOUT).pool_max_idle_per_host(0).build()?;
        Ok(Self {
            mesh,
            gateways,
            http,
            next: mesh.tenants.iter().map(|_| AtomicU64::new(1)).collect(),
            next_platform_id: AtomicI64::new(1_000_000),
            said: Mutex::default(),
            sessions: Mutex::default(),
            retries: AtomicU64::new(0),
            followed: AtomicU64::new(0),
        })
    }

    /// What was said so far, and accepted.
    #[must_use]
    pub fn said(&self) -> Vec<SentMessage> {
        self.ledger().clone()
    }

    /// Says one thing, and returns when every copy of it was accepted.
    ///
    /// # Errors
    ///
    /// If a copy is refused, or nobody takes it for very long, or two copies became two messages.
    pub async fn say(
        &self,
        conversation: &Conversation,
        word: MessageKind,
        copies: usize,
    ) -> anyhow::Result<SentMessage> {
        let id = self.next_id(conversation);
        self.send_copies(conversation, &id, word, copies).await
    }

    /// Sends a message under this id. Under an id that was used before it is the same message.
    ///
    /// # Errors
    ///
    /// As for [`Self::say`].
    pub async fn send_copies(
        &self,
        conversation: &Conversation,
        id: &str,
        word: MessageKind,
        copies: usize,
    ) -> anyhow::Result<SentMessage> {
        let text = format!("{id} {}", word.as_str());
        self.record_sending(conversation, id, word);
        let sent = async {
            anyhow::Ok(match conversation.door {
                TestChannel::Grpc => Some(self.by_grpc(conversation, id, &text, copies).await?),
                TestChannel::Webhook => {
                    Some(self.by_webhook(conversation, id, &text, copies).await?)
                }
                TestChannel::Telegram => {
                    self.by_telegram(conversation, id, &text, copies).await?;
                    None
                }
                TestChannel::Matrix
                | TestChannel::Slack
                | TestChannel::Discord
                | TestChannel::Email => {
                    self.by_platform(conversation, id, &text, copies).await?;
                    None
                }
            })
        };
        let message = sent.await.inspect_err(|error: &anyhow::Error| {
            if error.downcast_ref::<Status>().is_some() {
                self.record(conversation, id, |message| EventKind::Refused { message });
            }
        })?;
        let said = SentMessage {
            id: id.to_owned(),
            tenant: conversation.tenant,
            conversation: conversation.number,
            door: conversation.door,
            word,
            copies,
            message,
            retention: MessageRetention::Kept,
        };
        let mut ledger = self.ledger();
        if !ledger.iter().any(|before| before.id == said.id) {
            ledger.push(said.clone());
        }
        Ok(said)
    }

    /// Says one thing by gRPC and follows it to its answer, over other gateways if one is lost.
    ///
    /// # Errors
    ///
    /// If it is refused, hangs, or ends without an answer and without an error.
    pub async fn ask(
        &self,
        conversation: &Conversation,
        word: MessageKind,
    ) -> anyhow::Result<Done> {
        let id = self.next_id(conversation);
        let text = format!("{id} {}", word.as_str());
        self.record_sending(conversation, &id, word);
        let asking =
            self.retry_call(&id, 0, |gateway| self.stream(gateway, conversation, &id, &text));
        let (message, done) = timeout(SEND_TIMEOUT, asking)
            .await
            .with_context(|| format!("`{id}` had no answer for {SEND_TIMEOUT:?}"))??;
        self.followed.fetch_add(1, Ordering::Relaxed);
        self.record_acknowledgement(conversation, &id, Some(&message));
        self.record_end(conversation, &id, &done);
        self.ledger().push(SentMessage {
            id: id.clone(),
            tenant: conversation.tenant,
            conversation: conversation.number,
            door: TestChannel::Grpc,
            word,
            copies: 1,
            message: Some(message),
            retention: MessageRetention::Kept,
        });
        let answered = done.text.contains(&id) || done.outcome != 1;
        ensure!(answered, "`{id}` was answered with `{}`", done.text);
        Ok(done)
    }

    async fn by_grpc(
        &self,
        conversation: &Conversation,
        id: &str,
        text: &str,
        copies: usize,
    ) -> anyhow::Result<String> {
        let sent = (0..copies).map(|copy| {
            self.retry_call(id, copy, move |gateway| async move {
                let request = self.request(conversation, id, text, CALL_TIMEOUT)?;
                let sent = MessagesClient::new(self.gateways[gateway].clone()).send(request).await;
                let sent = sent.inspect_err(|_| {
                    self.record(conversation, id, |message| EventKind::Unanswered { message });
                })?;
                let sent = sent.into_inner();
                self.record_acknowledgement(conversation, id, Some(&sent.message_id));
                self.remember_session(conversation, sent.session_id);
                Ok(sent.message_id)
            })
        });
        self.one_message(id, timeout(SEND_TIMEOUT, join_all(sent)).await)
    }

    async fn stream(
        &self,
        gateway: usize,
        conversation: &Conversation,
        id: &str,
        text: &str,
    ) -> Result<(String, Done), Status> {
        let request = self.request(conversation, id, text, SEND_TIMEOUT)?;
        let mut client = MessagesClient::new(self.gateways[gateway].clone());
        let mut events = client.stream(request).await?.into_inner();
        let mut message = String::new();
        loop {
            let event = timeout(STREAM_IDLE_TIMEOUT, events.message())
                .await
                .map_err(|_| Status::data_loss(format!("`{id}`: the stream hangs")))??;
            let Some(event) = event else {
                return Err(Status::data_loss(format!("`{id}`: the stream just ended")));
            };
            if !event.message_id.is_empty() {
                message.clone_from(&event.message_id);
            }
            if !event.session_id.is_empty() {
                self.remember_session(conversation, event.session_id);
            }
            if let Some(Event::Done(done)) = event.event {
                return Ok((message, done));
            }
        }
    }

    fn request(
        &self,
        conversation: &Conversation,
        id: &str,
        text: &str,
        patience: Duration,
    ) -> Result<Request<SendRequest>, Status> {
        let send = SendRequest {
            request_id: id.to_owned(),
            text: text.to_owned(),
            session: format!("talk-{}", conversation.number),
            ..SendRequest::default()
        };
        self.authorized(conversation.tenant, send, patience)
    }

    /// A request of a tenant.
    fn authorized<T>(
        &self,
        tenant: usize,
        message: T,
        patience: Duration,
    ) -> Result<Request<T>, Status> {
        let mut request = Request::new(message);
        let bearer = format!("Bearer {}", self.mesh.tenants[tenant].key);
        let bearer = bearer.parse().map_err(|_| Status::internal("the key is no header"))?;
        request.metadata_mut().insert("authorization", bearer);
        request.set_timeout(patience);
        Ok(request)
    }

    /// Makes a call until it is answered, each time to the next gateway.
    /// `name` is of the stream that its delays are drawn from.
    async fn retry_call<T, F>(
        &self,
        name: &str,
        first: usize,
        call: impl Fn(usize) -> F,
    ) -> anyhow::Result<T>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut draws = dice::stream(name);
        for attempt in 0.. {
            match call((first + attempt) % self.gateways.len()).await {
                Ok(answer) => return Ok(answer),
                Err(status) => match status.code() {
                    Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::ResourceExhausted
                    | Code::Cancelled
                    | Code::Unknown => {}
                    // A connection that ended during the call, not an answer of the gateway.
                    Code::Internal if std::error::Error::source(&status).is_some() => {}
                    _ => return Err(anyhow::Error::new(status).context("a call was refused")),
                },
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(draws.random_range(50..250))).await;
        }
        bail!("there is no end of numbers")
    }

    fn one_message(
        &self,
        id: &str,
        sent: Result<Vec<anyhow::Result<String>>, tokio::time::error::Elapsed>,
    ) -> anyhow::Result<String> {
        let sent = sent.with_context(|| format!("nobody took `{id}` for {SEND_TIMEOUT:?}"))?;
        let mut messages = sent.into_iter().collect::<anyhow::Result<Vec<String>>>()?;
        messages.dedup();
        ensure!(messages.len() == 1, "copies of `{id}` became {messages:?}");
        messages.pop().context("it was not sent")
    }

    fn next_id(&self, conversation: &Conversation) -> String {
        let number = self.next[conversation.tenant].fetch_add(1, Ordering::Relaxed);
        format!("{}m{number:06}", self.mesh.tenants[conversation.tenant].name)
    }

    fn ledger(&self) -> MutexGuard<'_, Vec<SentMessage>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
