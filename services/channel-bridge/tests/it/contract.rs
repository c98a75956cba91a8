//! Contract of a channel: what each one promises, tested against its platform.
//!
//! A channel's test world implements [`Platform`]. `contract_suite!` runs every promise for every
//! world. What a platform does not have is in [`Platform::lacks`], and the promise then is that
//! agents are not offered it.

mod discord;
mod email;
mod irc;
mod matrix;
mod promises;
mod slack;
mod telegram;
mod webhook;
mod whatsapp;

use holdfast_directory::{Account, Actor, NewAccount, channel};
use holdfast_types::{AccountId, Target};
use serde_json::{Value, json};

use crate::world::{Bridge, World, eventually};

/// A file in a test.
pub struct File {
    pub name: &'static str,
    pub content: Vec<u8>,
}

/// A message that a person writes.
#[derive(Clone)]
pub struct Written {
    /// Whether the account allows the person.
    pub is_allowed: bool,
    pub place: Where,
    /// Id on the platform, where it has any.
    pub id: u32,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    Direct,
    Group,
    /// In a group, naming the assistant.
    Mention,
}

/// A message that the platform got from the bridge.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Got {
    pub chat: String,
    pub text: String,
    pub reply_to: Option<String>,
    pub thread: Option<String>,
    /// Name and size.
    pub file: Option<(String, usize)>,
    /// Data of the buttons.
    pub buttons: Vec<String>,
}

/// How the platform fails the next send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It refuses, and does nothing.
    Refused,
    /// It asks to wait for a second, and does nothing.
    RateLimited,
    /// It does it, and its answer is lost.
    AnswerLost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// All conversations are with one person.
    Groups,
    /// A text of any usual length is one message.
    Splitting,
    /// Messages have no ids: a message cannot come twice.
    MessageIds,
    Files,
    InboundFiles,
    Typing,
    Reactions,
    Quotes,
    Threads,
    Buttons,
    /// Messages cannot be edited.
    Edits,
    /// Files come in calls whose size is limited, and which are refused.
    FileLimit,
    /// The platform calls the bridge.
    Connection,
    /// The platform does not ask to wait.
    RateLimits,
    /// Nothing is shown to people who may not write.
    Notices,
    /// The bridge cannot tell whether the platform accepts the credentials.
    CredentialCheck,
}

pub trait Platform: Sized {
    const CHANNEL: &'static str;

    async fn start(world: &mut World) -> Self;

    fn lacks(&self) -> &'static [Lack];

    /// Settings of an account, without `allow`, and its secrets.
    fn account(&self) -> (Value, Value);

    /// Secrets that the platform refuses.
    fn wrong_secrets(&self) -> Value;

    /// Entries of `allow` that mean the person who writes.
    fn allow_forms(&self) -> Vec<Value>;

    /// Text that must not be in logs, errors and statuses.
    fn secret(&self) -> &'static str;

    /// Waits until the bridge hears what is written.
    async fn is_heard(&self, world: &World);

    async fn write(&self, world: &World, at: &Address, written: Written);

    async fn write_file(&self, world: &World, at: &Address, file: File);

    /// Presses a button by its data.
    async fn press(&self, world: &World, at: &Address, data: &str);

    /// Messages that the platform has, in order.
    fn got(&self, world: &World) -> Vec<Got>;

    /// Texts of the messages that people see now: after edits and deletions, without files.
    fn shown(&self, world: &World) -> Vec<String> {
        self.got(world).into_iter().map(|got| got.text).collect()
    }

    /// Number of reactions that the platform has.
    fn reactions(&self, world: &World) -> usize;

    fn is_typing_shown(&self, world: &World) -> bool;

    fn fail_next(&self, world: &World, failure: Failure);

    /// Ends all connections; the platform stays reachable.
    fn cut(&self, world: &World);

    /// Number of connections or polls at this moment, and since the beginning.
    fn connections(&self, world: &World) -> (usize, usize);

    /// Number of times that the bridge has signed in.
    fn sign_ins(&self, world: &World) -> usize {
        self.connections(world).1
    }

    /// The chat of the person, of the group, and a message and a thread in it.
    fn chat(&self) -> &'static str;
    fn group(&self) -> &'static str;
    fn message_id(&self) -> &'static str {
        "11"
    }
    fn thread_id(&self) -> &'static str {
        "3"
    }
}

/// Where the bridge can be called.
pub struct Address {
    pub url: String,
    pub account: AccountId,
}

/// A bridge that serves an account of a platform.
pub struct Contract<P> {
    pub world: World,
    pub platform: P,
    pub account: Account,
    pub bridge: Bridge,
    pub at: Address,
}

impl<P: Platform> Contract<P> {
    pub async fn start() -> Self {
        let mut world = World::new().await;
        let platform = P::start(&mut world).await;
        let (settings, secrets) = platform.account();
        let allow = platform.allow_forms().remove(0);
        let account = world.account(P::CHANNEL, with_allow(settings, allow), secrets).await;
        let bridge = world.bridge().await;
        let at = Address { url: bridge.url.clone(), account: account.id };
        let contract = Self { world, platform, account, bridge, at };
        contract.platform.is_heard(&contract.world).await;
        contract
    }

    pub fn lacks(&self, lack: Lack) -> bool {
        self.platform.lacks().contains(&lack)
    }

    /// Whether agents are offered an action on this account.
    pub fn offers(&self, action: &str) -> bool {
        channel::supported_actions(P::CHANNEL, &self.account.settings).contains(&action)
    }

    pub async fn write(&self, place: Where, id: u32, text: &str) {
        let written = Written { is_allowed: true, place, id, text: text.to_owned() };
        self.platform.write(&self.world, &self.at, written).await;
    }

    pub async fn allow(&self, entry: Value) {
        let (settings, _) = self.platform.account();
        self.change(with_allow(settings, entry), None).await;
    }

    pub async fn change(&self, settings: Value, secrets: Option<Value>) {
        let new = NewAccount {
            channel: P::CHANNEL.into(),
            name: "default".into(),
            enabled: true,
            settings,
            secrets,
        };
        let accounts = self.world.directory.accounts();
        accounts.update(self.world.tenant, Actor::Operator, self.account.id, new).await.unwrap();
    }

    pub fn target(&self, chat: &str) -> Target {
        crate::world::target(P::CHANNEL, self.account.id, chat)
    }

    /// State and detail of the account's status.
    pub async fn status(&self) -> (String, String) {
        let statuses = self.world.directory.accounts().statuses(self.world.tenant).await.unwrap();
        let ours = statuses.into_iter().find(|status| status.account == self.account.id);
        ours.map(|status| (status.state, status.detail)).unwrap_or_default()
    }

    pub async fn has_status(&self, state: &str) -> String {
        eventually("the status is stored", async || self.status().await.0 == state).await;
        self.status().await.1
    }

    pub async fn got(&self, count: usize) -> Vec<Got> {
        eventually("the platform has the messages", async || {
            self.platform.got(&self.world).len() >= count
        })
        .await;
        self.platform.got(&self.world)
    }

    pub async fn stop(self) {
        self.bridge.stop().await;
    }
}

fn with_allow(mut settings: Value, entry: Value) -> Value {
    settings["allow"] = json!([entry]);
    settings
}

macro_rules! contract_suite {
    ($($name:ident: $platform:ty),+ $(,)?) => {
        $(mod $name {
            use super::super::promises;

            contract_suite!(@tests $platform:
                a_message_is_taken_once,
                an_allow_list_may_be_written_in_each_form,
                a_stranger_reaches_nobody_and_is_told_once,
                in_a_group_only_a_mention_is_answered_and_all_is_kept,
                a_file_comes_with_its_message,
                a_file_goes_out,
                a_file_that_is_too_large_comes_without_its_content,
                an_answer_is_shown_while_it_is_written_and_replaced_by_the_whole,
                a_preview_that_nothing_replaces_is_deleted,
                an_answer_comes_once_when_the_bridge_of_its_preview_is_lost,
                a_long_reply_is_split_with_its_fences,
                a_platform_that_asks_to_wait_is_not_asked_before,
                a_refusal_is_dead_with_a_reason_without_secrets,
                a_lost_answer_ends_as_the_class_says,
                typing_is_shown_for_what_will_be_answered,
                a_reaction_arrives,
                a_reply_quotes_and_stays_in_its_thread,
                an_approval_is_decided_by_a_button_or_by_words,
                a_lost_connection_is_made_again_and_not_too_often,
                of_two_bridges_one_connects_and_the_other_takes_over,
                neither_secrets_nor_texts_are_logged,
                the_status_says_whether_the_platform_accepts_the_account,
            );
        })+
    };
    (@tests $platform:ty: $($test:ident),+ $(,)?) => {
        $(#[tokio::test]
        async fn $test() {
            promises::$test::<$platform>().await;
        })+
    };
}

mod of {
    contract_suite! {
        telegram: super::super::telegram::TelegramPlatform,
        webhook: super::super::webhook::WebhookPlatform,
        irc: super::super::irc::IrcPlatform,
        discord: super::super::discord::DiscordPlatform,
        slack: super::super::slack::SlackPlatform,
        matrix: super::super::matrix::MatrixPlatform,
        email: super::super::email::EmailPlatform,
        whatsapp: super::super::whatsapp::WhatsappPlatform,
    }
}

/// A part of a multipart form.
pub struct FormPart {
    pub name: String,
    pub file_name: Option<String>,
    pub content: Vec<u8>,
}

/// Parses a multipart body by its first line, which is the boundary.
pub fn multipart(body: &[u8]) -> Vec<FormPart> {
    let find = |from: &[u8], what: &[u8]| from.windows(what.len()).position(|at| at == what);
    let end = find(body, b"\r\n").unwrap();
    let boundary = [b"\r\n", &body[..end]].concat();
    let mut rest = &body[end + 2..];
    let mut parts = Vec::new();
    while let Some(next) = find(rest, &boundary) {
        let part = &rest[..next];
        let head_end = find(part, b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&part[..head_end]).into_owned();
        let field = |name: &str| {
            let (_, after) = head.split_once(&format!("{name}=\""))?;
            Some(after.split('"').next().unwrap().to_owned())
        };
        parts.push(FormPart {
            name: field(" name").unwrap(),
            file_name: field("filename"),
            content: part[head_end + 4..].to_vec(),
        });
        rest = &rest[(next + boundary.len() + 2).min(rest.len())..];
    }
    parts
}
