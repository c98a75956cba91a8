//! A caller of the mesh over gRPC, many of them at once, and calls at a steady rate.

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
    Outcome, RunEvent, SendRequest, messages_client::MessagesClient, run_event::Event,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tonic::{
    Request, Streaming,
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
        MessagesClient::new(self.channel(nth))
    }

    /// One of the connections.
    pub fn channel(&self, nth: usize) -> Channel {
        self.channels[nth % self.channels.len()].clone()
    }

    /// A request with the tenant's key.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.authorization.clone());
        request
    }

    fn message(&self, model: Model, session: &str, text: &str) -> Request<SendRequest> {
        self.request(SendRequest {
            request_id: Uuid::now_v7().to_string(),
            text: text.to_owned(),
            agent: model.name().to_owned(),
            session: session.to_owned(),
            ..SendRequest::default()
        })
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
        let request = self.message(model, session, MESSAGE_TEXT);
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
        self.send_text(nth, model, session, MESSAGE_TEXT).await
    }

    /// As [`Self::send`], with this text.
    pub async fn send_text(
        &self,
        nth: usize,
        model: Model,
        session: &str,
        text: &str,
    ) -> anyhow::Result<String> {
        let request = self.message(model, session, text);
        Ok(self.messages(nth).send(request).await?.into_inner().message_id)
    }

    /// Says something, and returns the events of its turn, of which none is read yet.
    pub async fn stream(
        &self,
        model: Model,
        session: &str,
        text: &str,
    ) -> anyhow::Result<Streaming<RunEvent>> {
        let request = self.message(model, session, text);
        Ok(self.messages(0).stream(request).await?.into_inner())
    }
}

/// A name that no session has yet.
pub fn unique_session(what: &str) -> String {
    format!("{what}-{}", Uuid::now_v7().simple())
}

/// Calls at a steady rate for so long, whether the calls before have ended or not. Returns what all of
/// them returned.
pub async fn at_rate<T, F>(
    per_second: u32,
    time: Duration,
    call: impl Fn(usize) -> F,
) -> anyhow::Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<T>> + Send + 'static,
{
    let mut clock = interval(Duration::from_secs(1) / per_second);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (begun, mut calls) = (Instant::now(), JoinSet::new());
    for nth in 0_usize.. {
        clock.tick().await;
        if begun.elapsed() >= time {
            break;
        }
        calls.spawn(call(nth));
    }
    let mut returned = Vec::new();
    while let Some(call) = calls.join_next().await {
        returned.push(call??);
    }
    Ok(returned)
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
