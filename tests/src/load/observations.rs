//! What senders write into the test's history, while they send and at the end.

use std::time::Instant;

use futures::stream::{self, StreamExt as _};
use holdfast_proto::gateway::v1::messages_client::MessagesClient;
use holdfast_proto::gateway::v1::operations_client::OperationsClient;
use holdfast_proto::gateway::v1::run_event::Event;
use holdfast_proto::gateway::v1::{
    Done, FollowRequest, ListDeadLettersRequest, ListDeliveriesRequest, Outcome,
};
use holdfast_types::QueueMode;
use tonic::Status;

use super::channels::conversation_of;
use super::{CALL_TIMEOUT, Conversation, MessageRetention, Senders, SentMessage, TestChannel};
use crate::history::{Client, End, EventKind, Link, MessageId, WitnessKind};
use crate::platforms::{Platforms, conversation_in};
use crate::script::MessageKind;

/// Rows of a list that one call returns.
const PAGE: u32 = 200;

/// Calls at once while ends are asked for.
const CALLS: usize = 8;

impl Conversation {
    /// The conversation in a history.
    #[must_use]
    pub fn client(&self) -> Client {
        let link = match self.door {
            TestChannel::Grpc => Link::Grpc,
            TestChannel::Webhook => Link::Keyed,
            // Their senders are not told a message's id, and hear replies without keys.
            TestChannel::Telegram
            | TestChannel::Matrix
            | TestChannel::Slack
            | TestChannel::Discord
            | TestChannel::Email => Link::Plain,
        };
        let tenant = u16::try_from(self.tenant).unwrap_or(u16::MAX);
        Client { tenant, number: u32::try_from(self.number).unwrap_or(u32::MAX), link }
    }
}

impl Senders<'_> {
    pub(super) fn record(
        &self,
        conversation: &Conversation,
        id: &str,
        kind: impl FnOnce(MessageId) -> EventKind,
    ) {
        if let Some(message) = MessageId::parse(id) {
            self.mesh.fakes.history.client(conversation.client(), kind(message));
        }
    }

    pub(super) fn record_sending(&self, conversation: &Conversation, id: &str, wish: MessageKind) {
        let may_be_interrupted =
            self.mesh.tenants[conversation.tenant].mode == QueueMode::Interrupt;
        self.record(conversation, id, |message| EventKind::Sent {
            message,
            wish,
            may_be_interrupted,
        });
    }

    pub(super) fn record_acknowledgement(
        &self,
        conversation: &Conversation,
        id: &str,
        name: Option<&str>,
    ) {
        let name = name.map(str::to_owned);
        self.record(conversation, id, |message| EventKind::Acknowledged { message, name });
    }

    pub(super) fn record_end(&self, conversation: &Conversation, id: &str, done: &Done) {
        let end = match done.outcome() {
            Outcome::Completed => End::Completed,
            Outcome::Interrupted => End::Interrupted,
            Outcome::Cancelled => End::Cancelled,
            Outcome::Dead => End::Dead,
            Outcome::Failed | Outcome::Unspecified => End::Failed,
        };
        let text = match end {
            End::Completed => done.text.clone(),
            // Its reason is worded differently in different places.
            End::Interrupted | End::Cancelled | End::Dead => String::new(),
            End::Failed => done.reason.clone(),
        };
        self.record(conversation, id, |message| EventKind::Ended { message, end, text });
    }

    /// Completes the history with what shows at the end: how each message ended, what receivers
    /// got, and which replies are reported as dead or unknown.
    ///
    /// # Errors
    ///
    /// If the product does not say.
    pub async fn complete_history(&self) -> anyhow::Result<()> {
        let mut ends = stream::iter(self.said())
            .filter(|said| std::future::ready(said.retention == MessageRetention::Kept))
            .map(|said| async move { self.follow(&said).await })
            .buffer_unordered(CALLS);
        while let Some(asked) = ends.next().await {
            asked?;
        }
        for tenant in 0..self.mesh.tenants.len() {
            self.ask_for_dead_letters(tenant).await?;
            self.ask_for_unknown_replies(tenant).await?;
        }
        self.read_receivers();
        Ok(())
    }

    /// Asks how a message ended, and waits for its end.
    ///
    /// # Errors
    ///
    /// If the product does not say.
    pub async fn follow(&self, said: &SentMessage) -> anyhow::Result<()> {
        let Some(message_id) = &said.message else { return Ok(()) };
        let follow = |gateway: usize| async move {
            let message_id = message_id.clone();
            let request =
                self.authorized(said.tenant, FollowRequest { message_id }, CALL_TIMEOUT)?;
            let mut client = MessagesClient::new(self.gateways[gateway].clone());
            let mut events = client.follow(request).await?.into_inner();
            while let Some(event) = events.message().await? {
                if let Some(Event::Done(done)) = event.event {
                    return Ok(Some(done));
                }
            }
            Ok::<_, Status>(None)
        };
        let done = self.retry_call(&said.id, 0, follow).await?;
        let conversation = said.conversation();
        // Without an end the judge reports it as lost.
        if let Some(done) = done {
            self.record_end(&conversation, &said.id, &done);
        }
        Ok(())
    }

    async fn ask_for_dead_letters(&self, tenant: usize) -> anyhow::Result<()> {
        let list = |gateway: usize| async move {
            let request = ListDeadLettersRequest { limit: PAGE, ..Default::default() };
            let request = self.authorized(tenant, request, CALL_TIMEOUT)?;
            let mut client = OperationsClient::new(self.gateways[gateway].clone());
            Ok::<_, Status>(client.list_dead_letters(request).await?.into_inner().letters)
        };
        let letters = self.retry_call("dead letters", 0, list).await?;
        let said = self.said();
        for letter in letters {
            let Some(first) = letter.text.split(' ').next() else { continue };
            if let Some(said) = said.iter().find(|said| said.id == first) {
                let dead = Done { outcome: Outcome::Dead.into(), ..Done::default() };
                self.record_end(&said.conversation(), &said.id, &dead);
                continue;
            }
            for id in MessageId::all_in(&letter.text) {
                let said = said.iter().find(|said| MessageId::parse(&said.id) == Some(id));
                if let Some(said) = said {
                    self.record(&said.conversation(), &said.id, |message| {
                        EventKind::ConsequenceDead { message }
                    });
                }
            }
        }
        Ok(())
    }

    async fn ask_for_unknown_replies(&self, tenant: usize) -> anyhow::Result<()> {
        let list = |gateway: usize| async move {
            let request = ListDeliveriesRequest {
                state: "unknown".to_owned(),
                limit: PAGE,
                ..Default::default()
            };
            let request = self.authorized(tenant, request, CALL_TIMEOUT)?;
            let mut client = OperationsClient::new(self.gateways[gateway].clone());
            Ok::<_, Status>(client.list_deliveries(request).await?.into_inner().deliveries)
        };
        for delivery in self.retry_call("unknown replies", 0, list).await? {
            let place = match delivery.channel.as_str() {
                "telegram" => delivery.chat.parse().ok().and_then(conversation_of),
                channel => conversation_in(channel, &delivery.chat),
            };
            if let Some((tenant, number)) = place {
                let client = Client { tenant, number, link: Link::Plain };
                self.mesh.fakes.history.client(client, EventKind::UnknownReplies { count: 1 });
            }
        }
        Ok(())
    }

    fn read_receivers(&self) {
        let fakes = &self.mesh.fakes;
        let heard = |at: Instant, client: Client, text: &str, key: Option<&str>| {
            let (text, key) = (text.to_owned(), key.map(str::to_owned));
            fakes.history.client_at(at, client, EventKind::Heard { text, key });
        };
        for post in fakes.receiver.unique() {
            let body = post.json();
            let number =
                body["conversation"].as_str().and_then(|name| name.strip_prefix("person-"));
            let number = number.and_then(|number| number.parse().ok()).unwrap_or(u32::MAX);
            let tenant = post.path.rsplit("/t").next().and_then(|number| number.parse().ok());
            let client = Client { tenant: tenant.unwrap_or(u16::MAX), number, link: Link::Keyed };
            heard(post.at, client, body["text"].as_str().unwrap_or_default(), post.key());
        }
        for sent in fakes.telegram.sends() {
            let owner = self.mesh.tenants.iter().position(|tenant| tenant.bot == sent.token);
            let tenant = owner.and_then(|owner| u16::try_from(owner).ok()).unwrap_or(u16::MAX);
            let number = conversation_of(sent.chat).map_or(u32::MAX, |(_, number)| number);
            heard(sent.at, Client { tenant, number, link: Link::Plain }, &sent.text, None);
        }
        for (at, channel, chat, text) in fakes.platforms.iter().flat_map(Platforms::heard) {
            let (tenant, number) = conversation_in(channel, &chat).unwrap_or((u16::MAX, u32::MAX));
            heard(at, Client { tenant, number, link: Link::Plain }, &text, None);
        }
        for post in fakes.world.posts() {
            let body = post.json();
            let key = body["key"].as_str().unwrap_or_default().to_owned();
            for message in MessageId::all_in(body["id"].as_str().unwrap_or_default()) {
                let acted = WitnessKind::Acted { message, key: key.clone() };
                fakes.history.witness_at(post.at, acted);
            }
        }
    }
}
