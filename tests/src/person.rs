//! One who talks with an agent and waits for what it says: in Telegram, and with a key by gRPC.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_proto::gateway::v1 as pb;
use holdfast_proto::gateway::v1::messages_client::MessagesClient;
use holdfast_proto::gateway::v1::policies_client::PoliciesClient;
use holdfast_proto::gateway::v1::run_event::Event;
use holdfast_testkit::telegram::Incoming;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tonic::Request;
use tonic::transport::Channel;

use crate::mesh::Mesh;

/// Longer than anything here should take, with a runner's death in it.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(45);

/// Somebody in a chat with a bot alone.
#[derive(Debug, Clone)]
pub struct TelegramUser<'m> {
    mesh: &'m Mesh,
    bot: String,
    id: i64,
}

impl<'m> TelegramUser<'m> {
    /// The person with this id, and the bot with this token.
    #[must_use]
    pub fn of(mesh: &'m Mesh, bot: &str, id: i64) -> Self {
        Self { mesh, bot: bot.to_owned(), id }
    }

    pub fn send(&self, text: &str) {
        self.mesh.fakes.telegram.push(&self.bot, Incoming::private(self.id, text));
    }

    /// All that the bot has sent here.
    #[must_use]
    pub fn heard(&self) -> Vec<String> {
        let sends = self.mesh.fakes.telegram.sends().into_iter();
        let here = sends.filter(|sent| sent.token == self.bot && sent.chat == self.id);
        here.map(|sent| sent.text).collect()
    }

    /// Waits until the bot has sent so many messages here.
    pub async fn wait_for_messages(&self, count: usize) -> anyhow::Result<()> {
        let is_heard = async || Ok(self.heard().len() >= count);
        until("the bot says something", is_heard).await
    }

    /// Writes to the bot, and says what it says next.
    pub async fn ask(&self, text: &str) -> anyhow::Result<String> {
        let before = self.heard().len();
        self.send(text);
        self.wait_for_messages(before + 1)
            .await
            .with_context(|| format!("`{text}` is not answered"))?;
        self.heard().into_iter().nth(before).context("it is gone")
    }
}

/// A program with a tenant's key.
#[derive(Debug, Clone)]
pub struct GrpcClient {
    /// The way to the first gateway.
    pub channel: Channel,
    key: String,
}

impl GrpcClient {
    /// The one with the key of the tenant with this number.
    pub fn of(mesh: &Mesh, tenant: usize) -> anyhow::Result<Self> {
        Ok(Self { channel: mesh.channel(REPLY_TIMEOUT)?, key: mesh.tenants[tenant].key.clone() })
    }

    /// Another program of the tenant's, or a person, with this key.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        Self { channel: self.channel.clone(), key: key.to_owned() }
    }

    /// The same program, over another channel.
    #[must_use]
    pub fn over(self, channel: Channel) -> Self {
        Self { channel, ..self }
    }

    /// The message, with the key.
    pub fn request<T>(&self, message: T) -> anyhow::Result<Request<T>> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.key).parse()?);
        request.set_timeout(REPLY_TIMEOUT);
        Ok(request)
    }

    /// Makes somebody, as `telegram:42`, the owner of the tenant's agents.
    pub async fn put_owner(&self, owner: &str) -> anyhow::Result<()> {
        let document = json!({"owners": [owner]}).to_string();
        let put = pb::PutPolicyRequest { document, ..pb::PutPolicyRequest::default() };
        let mut policies = PoliciesClient::new(self.channel.clone());
        policies.put_policy(self.request(put)?).await?;
        Ok(())
    }

    /// Says something in a session, and what it is answered; no name is the main session.
    pub async fn ask(&self, session: &str, text: &str) -> anyhow::Result<String> {
        let (session, text) = (session.to_owned(), text.to_owned());
        let send = pb::SendRequest { session, text, ..pb::SendRequest::default() };
        let mut messages = MessagesClient::new(self.channel.clone());
        let mut events = messages.stream(self.request(send)?).await?.into_inner();
        while let Some(event) = events.message().await? {
            if let Some(Event::Done(done)) = event.event {
                ensure!(done.outcome == pb::Outcome::Completed as i32, "it ended as {done:?}");
                return Ok(done.text);
            }
        }
        anyhow::bail!("the stream just ended")
    }
}

/// Waits until something is so.
pub async fn until(
    what: &str,
    is_so: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_so().await? {
        ensure!(begun.elapsed() < REPLY_TIMEOUT, "not within {REPLY_TIMEOUT:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
