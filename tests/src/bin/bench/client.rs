//! A caller of the mesh over gRPC, and many of them at once.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, ensure};
use holdfast_proto::gateway::v1::{
    Outcome, SendRequest, messages_client::MessagesClient, run_event::Event,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use uuid::Uuid;

use crate::{models::Model, stats::Samples};

/// What is said in each turn.
const MESSAGE_TEXT: &str = "Which train to Lisbon should I take tomorrow morning?";
/// A server takes 200 calls at once on one connection, as HTTP/2 servers do.
const CONNECTIONS: usize = 4;
/// No turn here takes so long; one that does has failed.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// A tenant's way in. Cloning shares the connections.
#[derive(Debug, Clone)]
pub struct Client {
    channels: Vec<Channel>,
    authorization: MetadataValue<Ascii>,
}

/// How long a turn took, from the caller's side.
#[derive(Debug, Clone, Copy)]
pub struct TurnTiming {
    pub sent: Instant,
    /// Until the first text came.
    pub first: Duration,
    pub done: Duration,
    /// Tokens of all model requests: read, and written.
    pub tokens: (u64, u64),
}

impl Client {
    pub(crate) fn new(at: SocketAddr, key: &SecretString) -> anyhow::Result<Self> {
        let mut authorization: MetadataValue<Ascii> =
            format!("Bearer {}", key.expose_secret()).parse()?;
        authorization.set_sensitive(true);
        let channel = || holdfast_grpc::channel(&format!("http://{at}"), TURN_TIMEOUT);
        let channels = (0..CONNECTIONS).map(|_| channel()).collect::<Result<_, _>>()?;
        Ok(Self { channels, authorization })
    }

    fn messages(&self, nth: usize) -> MessagesClient<Channel> {
        MessagesClient::new(self.channels[nth % self.channels.len()].clone())
    }

    fn request(&self, model: Model, session: &str) -> Request<SendRequest> {
        let mut request = Request::new(SendRequest {
            request_id: Uuid::now_v7().to_string(),
            text: MESSAGE_TEXT.to_owned(),
            agent: model.name().to_owned(),
            session: session.to_owned(),
            ..SendRequest::default()
        });
        request.metadata_mut().insert("authorization", self.authorization.clone());
        request
    }

    /// Says something and follows the answer to its end.
    pub async fn turn(
        &self,
        nth: usize,
        model: Model,
        session: &str,
    ) -> anyhow::Result<TurnTiming> {
        let turn = tokio::time::timeout(TURN_TIMEOUT, self.follow(nth, model, session)).await;
        turn.with_context(|| format!("a turn took longer than {TURN_TIMEOUT:?}"))?
    }

    async fn follow(&self, nth: usize, model: Model, session: &str) -> anyhow::Result<TurnTiming> {
        let request = self.request(model, session);
        let sent = Instant::now();
        let mut events = self.messages(nth).stream(request).await?.into_inner();
        let mut first = None;
        while let Some(event) = events.message().await? {
            match event.event {
                Some(Event::Text(_)) => first = first.or_else(|| Some(sent.elapsed())),
                Some(Event::Done(done)) => {
                    ensure!(
                        done.outcome() == Outcome::Completed && !done.text.is_empty(),
                        "a turn ended {:?}: {}",
                        done.outcome(),
                        done.reason
                    );
                    let usage = done.usage.unwrap_or_default();
                    let tokens = (usage.input_tokens, usage.output_tokens);
                    let done = sent.elapsed();
                    return Ok(TurnTiming { sent, first: first.unwrap_or(done), done, tokens });
                }
                Some(
                    Event::Accepted(_)
                    | Event::StepStarted(_)
                    | Event::ToolStarted(_)
                    | Event::ToolEnded(_)
                    | Event::Thinking(_)
                    | Event::ApprovalRequested(_)
                    | Event::CanvasChanged(_)
                    | Event::StepProgress(_),
                )
                | None => {}
            }
        }
        anyhow::bail!("a stream ended without an answer")
    }

    /// Says something and waits only until it is accepted; returns the message's id.
    pub async fn send(&self, nth: usize, model: Model, session: &str) -> anyhow::Result<String> {
        let request = self.request(model, session);
        Ok(self.messages(nth).send(request).await?.into_inner().message_id)
    }
}

/// A name that no session has yet.
pub fn unique_session(what: &str) -> String {
    format!("{what}-{}", Uuid::now_v7().simple())
}

/// Many callers, each with a session of its own, who say the next thing as soon as they are
/// answered.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub parallel: usize,
    pub model: Model,
    /// How long they go on before anything is measured.
    pub warm_up: Duration,
    /// For how long is measured.
    pub time: Duration,
}

/// What was measured under load.
#[derive(Debug)]
pub struct Loaded<T> {
    /// Turns that ended within the time.
    pub turns: usize,
    pub time: Duration,
    /// How long those turns took.
    pub latency: Samples,
    /// What was seen at the beginning and at the end of the time.
    pub seen: (T, T),
}

impl<T> Loaded<T> {
    pub fn rate(&self) -> f64 {
        crate::report::float(self.turns) / self.time.as_secs_f64()
    }
}

impl Load {
    /// Puts the load on, and looks at something before and after.
    pub async fn run<T>(
        self,
        client: &Client,
        look: impl AsyncFn() -> anyhow::Result<T>,
    ) -> anyhow::Result<Loaded<T>> {
        let over = Arc::new(AtomicBool::new(false));
        let name = unique_session("load");
        let mut callers = JoinSet::new();
        for nth in 0..self.parallel {
            let (client, over) = (client.clone(), Arc::clone(&over));
            let session = format!("{name}-{nth}");
            callers.spawn(async move {
                let mut turns = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    turns.push(client.turn(nth, self.model, &session).await?);
                }
                anyhow::Ok(turns)
            });
        }
        sleep(self.warm_up).await;
        let (before, begun) = (look().await?, Instant::now());
        sleep(self.time).await;
        let (ended, after) = (Instant::now(), look().await?);
        over.store(true, Ordering::Relaxed);

        let mut turns = Vec::new();
        while let Some(caller) = callers.join_next().await {
            turns.extend(caller??);
        }
        let counted = |turn: &&TurnTiming| (begun..ended).contains(&(turn.sent + turn.done));
        let latency: Samples = turns.iter().filter(counted).map(|turn| turn.done).collect();
        Ok(Loaded { turns: latency.count(), time: ended - begun, latency, seen: (before, after) })
    }
}
