//! Platforms of the storm beside Telegram and the signed webhook, with one account each.

use std::net::IpAddr;
use std::time::Instant;

use holdfast_testkit::matrix::TOKEN;
use holdfast_testkit::platforms::{AccountSettings, Posted, Written};
use holdfast_testkit::slack::{APP_TOKEN, BOT_TOKEN};
use holdfast_testkit::{FakeDiscord, FakeMail, FakeMatrix, FakeSlack, Faults};
use serde_json::{Value, json};

use crate::load::{Conversation, TestChannel};

/// Numbers of the tenants with the accounts.
const MATRIX_TENANT: usize = 0;
const SLACK_TENANT: usize = 2;
const DISCORD_TENANT: usize = 1;
const EMAIL_TENANT: usize = 0;

/// Numbers of the conversations there. Every tenant numbers its own.
const MATRIX_PEOPLE: [usize; 2] = [10, 11];
const SLACK_PEOPLE: [usize; 2] = [12, 13];
const DISCORD_PEOPLE: [usize; 2] = [14, 15];
const EMAIL_PEOPLE: [usize; 2] = [16, 17];

/// Name of the accounts on Discord and of e-mail.
const ACCOUNT: &str = "storm";

#[derive(Debug)]
pub struct Platforms {
    /// Takes each transaction id once (`Keyed`).
    pub matrix: FakeMatrix,
    /// Takes each post, and can be asked what it took (`Reconcilable`).
    pub slack: FakeSlack,
    /// Takes each nonce once (`Keyed`), and does not repeat a message that a connection got.
    pub discord: FakeDiscord,
    /// Takes each mail, and can be asked what it took (`Reconcilable`).
    pub mail: FakeMail,
}

/// An account on one of the platforms, as it is created.
pub(crate) struct PlatformAccount {
    pub(crate) channel: &'static str,
    pub(crate) settings: Value,
    pub(crate) secrets: Value,
}

impl Platforms {
    pub(crate) async fn start_on(ip: IpAddr) -> anyhow::Result<Self> {
        Ok(Self {
            matrix: FakeMatrix::start_on(ip).await?,
            slack: FakeSlack::start_on(ip).await?,
            discord: FakeDiscord::start_on(ip).await?,
            mail: FakeMail::new(ip),
        })
    }

    /// The accounts of a tenant.
    pub(crate) async fn accounts_of(&self, tenant: usize) -> anyhow::Result<Vec<PlatformAccount>> {
        let matrix = || PlatformAccount {
            channel: "matrix",
            settings: json!({"homeserver": self.matrix.url(), "allow": ["*"]}),
            secrets: json!({"access_token": TOKEN}),
        };
        let slack = || PlatformAccount {
            channel: "slack",
            settings: json!({"allow": ["*"]}),
            secrets: json!({"bot_token": BOT_TOKEN, "app_token": APP_TOKEN}),
        };
        let of = |channel, AccountSettings { settings, secrets }| PlatformAccount {
            channel,
            settings,
            secrets,
        };
        let mut accounts = Vec::new();
        if tenant == MATRIX_TENANT {
            accounts.push(matrix());
        }
        if tenant == SLACK_TENANT {
            accounts.push(slack());
        }
        if tenant == DISCORD_TENANT {
            accounts.push(of("discord", self.discord.account(ACCOUNT)));
        }
        if tenant == EMAIL_TENANT {
            accounts.push(of("email", self.mail.account(ACCOUNT).await?));
        }
        Ok(accounts)
    }

    /// Whether a bridge reads at each platform; what was written in Matrix before is not taken.
    #[must_use]
    pub fn are_read(&self) -> bool {
        let are_connected = self.matrix.polls().1 > 1 && self.slack.connections().0 > 0;
        are_connected && self.is_heard(TestChannel::Discord) && self.is_heard(TestChannel::Email)
    }

    /// Whether a bridge gets what is written now, on the platforms that lose or hide it otherwise.
    pub(crate) fn is_heard(&self, channel: TestChannel) -> bool {
        match channel {
            TestChannel::Discord => self.discord.is_heard(ACCOUNT),
            TestChannel::Email => self.mail.is_heard(ACCOUNT),
            TestChannel::Grpc
            | TestChannel::Webhook
            | TestChannel::Telegram
            | TestChannel::Matrix
            | TestChannel::Slack => true,
        }
    }

    /// Messages that the platforms have and no bridge has confirmed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.matrix.pending() + self.slack.pending()
    }

    /// Faults of sends, by the name of the platform.
    #[must_use]
    pub fn faults(&self) -> [(&'static str, &Faults); 4] {
        [
            ("matrix", self.matrix.faults()),
            ("slack", self.slack.faults()),
            ("discord", self.discord.faults()),
            ("email", self.mail.faults()),
        ]
    }

    /// Polls and connections at this moment, for each account.
    #[must_use]
    pub fn readers(&self) -> [(&'static str, usize); 2] {
        [("matrix", self.matrix.polls().0), ("slack", self.slack.connections().0)]
    }

    /// Messages that the platforms got: when, the channel, the chat and the text.
    pub(crate) fn heard(&self) -> Vec<(Instant, &'static str, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let matrix = self.matrix.sent().into_iter();
        let matrix = matrix.filter(|event| event.kind == "m.room.message");
        let matrix = matrix
            .map(|event| (event.at, "matrix", event.room.clone(), text(&event.content["body"])));
        let slack = self.slack.taken().into_iter();
        let slack = slack.map(|call| {
            (call.at, "slack", text(&call.input["channel"]), text(&call.input["text"]))
        });
        let of = |channel: &'static str| {
            move |posted: Posted| (posted.at, channel, posted.chat, posted.text)
        };
        let discord = self.discord.posted().into_iter().map(of("discord"));
        let mail = self.mail.posted().into_iter().map(of("email"));
        matrix.chain(slack).chain(discord).chain(mail).collect()
    }

    /// Writes a message, as many times as the platform is to show it.
    pub(crate) fn write(&self, conversation: &Conversation, id: u64, text: &str, copies: usize) {
        let number = conversation.number;
        let written = Written { person: number, id: i64::try_from(id).unwrap_or(i64::MAX), text };
        for _ in 0..copies {
            match conversation.door {
                TestChannel::Matrix => self.matrix.push(
                    &format!("!dm-{number}:x"),
                    json!({"type": "m.room.message", "event_id": format!("${id}"),
                        "sender": format!("@person-{number}:x"), "origin_server_ts": 1,
                        "content": {"msgtype": "m.text", "body": text}}),
                ),
                TestChannel::Slack => self.slack.push(
                    json!({"type": "event_callback", "event_id": format!("Ev{id}"), "event": {
                        "type": "message", "channel": format!("D{number}"), "channel_type": "im",
                        "user": format!("U{number}"), "text": text,
                        "ts": format!("{}.000100", 1_600_000_000 + id)}}),
                ),
                TestChannel::Discord => self.discord.push(ACCOUNT, &written),
                TestChannel::Email => self.mail.push(ACCOUNT, &written),
                TestChannel::Grpc | TestChannel::Webhook | TestChannel::Telegram => {}
            }
        }
    }
}

/// Conversations on the platforms.
#[must_use]
pub fn conversations() -> Vec<Conversation> {
    let of = |tenant: usize, door: TestChannel, numbers: [usize; 2]| {
        numbers.map(|number| Conversation { tenant, number, door })
    };
    let matrix = of(MATRIX_TENANT, TestChannel::Matrix, MATRIX_PEOPLE);
    let slack = of(SLACK_TENANT, TestChannel::Slack, SLACK_PEOPLE);
    let discord = of(DISCORD_TENANT, TestChannel::Discord, DISCORD_PEOPLE);
    let email = of(EMAIL_TENANT, TestChannel::Email, EMAIL_PEOPLE);
    [matrix, slack, discord, email].into_iter().flatten().collect()
}

/// The tenant and the number of the conversation in a chat of a platform.
pub(crate) fn conversation_in(channel: &str, chat: &str) -> Option<(u16, u32)> {
    let (tenant, number) = match channel {
        "matrix" => (MATRIX_TENANT, chat.strip_prefix("!dm-")?.strip_suffix(":x")?),
        "slack" => (SLACK_TENANT, chat.strip_prefix('D')?),
        "discord" => (DISCORD_TENANT, chat),
        "email" => (EMAIL_TENANT, chat.strip_prefix("person-")?.strip_suffix("@y.example")?),
        _ => return None,
    };
    Some((u16::try_from(tenant).ok()?, number.parse().ok()?))
}
