//! Accounts that a person links by a code are one person, and nobody gains rights by another's word.

use std::sync::Arc;

use holdfast_directory::{Actor, NewAccount};
use holdfast_llm::ScriptedModel;
use holdfast_session::{Acceptance, NewMessage};
use holdfast_types::{
    AccountId, Author, Body, Chat, ChatMessage, Reply, Sender, SessionKey, Source, Target,
};
use serde_json::json;

use crate::{
    patches::put,
    world::{Running, World},
};

/// Remembers what it is told to, and says whether it knows the cat.
fn knowing(chat: &Chat) -> Reply {
    let said = chat.messages.iter().rev().find_map(|message| match message {
        ChatMessage::User { text, .. } => Some(text.as_str()),
        ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => None,
    });
    match (said.unwrap_or_default().split_once("Remember: "), chat.messages.last()) {
        (Some(_), Some(ChatMessage::Tool { output, .. })) => ScriptedModel::text(output),
        (Some((_, what)), _) => {
            let input = json!({ "text": what, "type": "fact" }).to_string();
            ScriptedModel::calls(&[("a", "memory_save", &input)])
        }
        (None, _) if chat.dynamic.contains("called Tom") => ScriptedModel::text("I know Tom"),
        (None, _) => ScriptedModel::text("I know no cat"),
    }
}

/// Two channels of one assistant.
struct Channels {
    world: World,
    telegram: AccountId,
    shop: AccountId,
}

/// Somebody on a channel.
struct Person {
    channel: &'static str,
    id: &'static str,
    role: &'static str,
}

const ANNA: Person = Person { channel: "telegram", id: "42", role: "member" };
const ANNA_IN_SHOP: Person = Person { channel: "webhook", id: "w1", role: "member" };
const BEN_IN_SHOP: Person = Person { channel: "webhook", id: "w2", role: "member" };
const GUEST: Person = Person { channel: "telegram", id: "77", role: "guest" };

impl Channels {
    async fn start() -> anyhow::Result<Self> {
        let world = World::start().await?;
        world.use_demo().await?;
        let account = async |channel: &str, name: &str, settings, secrets| {
            let account = NewAccount {
                channel: channel.to_owned(),
                name: name.to_owned(),
                enabled: true,
                settings,
                secrets: Some(secrets),
            };
            world.directory.accounts().create(world.tenant, Actor::Operator, account).await
        };
        let telegram =
            account("telegram", "bot", json!({ "allow": ["*"] }), json!({ "token": "1:a" }))
                .await?
                .id;
        let settings = json!({ "url": "https://shop.example.com/hook", "allow": ["*"] });
        let secrets = json!({ "secret": "the secret of a webhook of tests" });
        let shop = account("webhook", "shop", settings, secrets).await?.id;
        Ok(Self { world, telegram, shop })
    }

    async fn runner(&self, memory: &crate::world::Remembers) -> anyhow::Result<Running> {
        let model = Arc::new(ScriptedModel::answering(|request| Ok(knowing(&request.chat))));
        let config = self.world.config_with(memory);
        self.world.runner_with(config, |app| app.with_demo(model)).await
    }

    /// Accepts a message in the session with this key, as the gateway does.
    async fn send(&self, who: &Person, key: &str, text: &str) -> anyhow::Result<Acceptance> {
        let account = if who.channel == "telegram" { self.telegram } else { self.shop };
        let roles = match who.role {
            "guest" => Vec::new(),
            role => vec![role.to_owned()],
        };
        let author = Author { id: format!("{}:{}", who.channel, who.id), roles };
        let sender = Sender { id: who.id.to_owned(), name: String::new() };
        let target = Target {
            channel: who.channel.to_owned(),
            account,
            chat: who.id.to_owned(),
            thread: None,
            reply_to: None,
        };
        let body = Body { author: Some(author), sender: Some(sender), ..Body::text(text) };
        let message = NewMessage {
            key: format!("agent:main:dm:{key}").parse::<SessionKey>()?,
            source: Source::Channel(account),
            body,
            target: Some(target),
            ..self.world.message("x", "")
        };
        self.world.send(message).await
    }

    async fn ask(&self, who: &Person, text: &str) -> anyhow::Result<String> {
        let key = format!("{}:{}", who.channel, who.id);
        self.world.text(&self.send(who, &key, text).await?).await
    }

    /// Asks for a code.
    async fn code(&self, who: &Person) -> anyhow::Result<String> {
        let told = self.ask(who, "/link").await?;
        let line = told.lines().find_map(|line| line.strip_prefix("/link "));
        line.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("there is no code in `{told}`"))
    }

    async fn told(&self, chat: &str) -> anyhow::Result<Vec<String>> {
        let sql = format!(
            "select body from session.deliveries where target->>'chat' = '{chat}' order by created_at"
        );
        self.world.texts(&sql).await
    }
}

#[tokio::test]
async fn linked_accounts_share_memory_files_and_time_zone_and_lose_nothing() -> anyhow::Result<()> {
    let channels = Channels::start().await?;
    let world = &channels.world;
    let memory = world.memory().await?;
    let _runner = channels.runner(&memory).await?;
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    put(world, "people/webhook=w1/notes.md", "of the shop\n").await?;
    put(world, "people/telegram=42/notes.md", "of telegram\n").await?;
    put(world, "people/webhook=w2/notes.md", "ben's\n").await?;
    let before =
        channels.send(&ANNA_IN_SHOP, "webhook:w1", "Remember: the cat is called Tom").await?;
    anyhow::ensure!(world.text(&before).await?.starts_with("Remembered as"), "not remembered");
    // Turns belong to the person who the account is when they are indexed.
    world.until_indexed().await?;
    channels.ask(&ANNA_IN_SHOP, "/timezone Europe/Oslo").await?;
    assert_eq!(channels.ask(&ANNA, "what is the cat called?").await?, "I know no cat");

    let code = channels.code(&ANNA).await?;
    let unknown = channels.ask(&ANNA_IN_SHOP, "/link AAAABBBB").await?;
    let lower = code.to_lowercase();
    let linked = channels.ask(&ANNA_IN_SHOP, &format!("/link {lower}")).await?;

    assert!(unknown.starts_with("There is no such code"), "{unknown}");
    assert!(linked.starts_with("Linked with your account on telegram."), "{linked}");
    let told = channels.told("42").await?;
    let news = "An account on webhook is now linked with this one";
    assert_eq!(told.iter().filter(|text| text.starts_with(news)).count(), 1, "{told:?}");
    assert_eq!(channels.ask(&ANNA, "what is the cat called?").await?, "I know Tom");
    let zone = channels.ask(&ANNA, "/timezone").await?;
    assert!(zone.starts_with("Time zone: Europe/Oslo (yours"), "{zone}");
    for (path, text) in [
        ("people/telegram=42/notes.md", Some("of telegram\n")),
        ("people/telegram=42/webhook/notes.md", Some("of the shop\n")),
        ("people/webhook=w1/notes.md", None),
        ("people/webhook=w2/notes.md", Some("ben's\n")),
    ] {
        assert_eq!(world.file(path).await?.as_deref(), text, "{path}");
    }
    // The conversation goes on under the key that the gateway makes from now on.
    let after = channels.send(&ANNA_IN_SHOP, "webhook:=telegram%3A42", "and the cat?").await?;
    assert_eq!(world.text(&after).await?, "I know Tom");
    assert_eq!(after.session, before.session);
    assert_eq!(channels.ask(&BEN_IN_SHOP, "what is the cat called?").await?, "I know no cat");
    let routing = world.directory.routing().get(world.tenant).await?;
    assert_eq!(routing.canonical("webhook", "shop", "w1"), Some("=telegram:42"));
    assert_eq!(routing.canonical("webhook", "other", "w1"), None);
    let audit = "select subject from control.audit where action = 'identity.link'";
    assert_eq!(world.texts(audit).await?, ["telegram and webhook"]);

    let again = channels.ask(&BEN_IN_SHOP, &format!("/link {code}")).await?;
    assert!(again.starts_with("There is no such code"), "{again}");
    let key = "webhook:=telegram%3A42";
    let apart = channels.send(&ANNA_IN_SHOP, key, "/unlink").await?;
    assert!(world.text(&apart).await?.starts_with("Unlinked."));
    let own = channels.send(&ANNA_IN_SHOP, "webhook:w1", "what is the cat called?").await?;
    assert_eq!((world.text(&own).await?.as_str(), own.session), ("I know no cat", before.session));
    Ok(())
}

#[tokio::test]
async fn a_link_raises_nobodys_rights_by_the_word_of_one_side() -> anyhow::Result<()> {
    let channels = Channels::start().await?;
    let world = &channels.world;
    let memory = world.memory().await?;
    let _runner = channels.runner(&memory).await?;

    // A guest who talks a member into sending a code gets nothing.
    let code = channels.code(&GUEST).await?;
    let refused = channels.ask(&ANNA_IN_SHOP, &format!("/link {code}")).await?;
    let own = channels.ask(&GUEST, &format!("/link {code}")).await?;
    let group = SessionKey::group(&world.agent.name, "telegram", "-1", None)?;
    let in_group = NewMessage { key: group, ..world.message("g", "/link") };
    let in_group = world.text(&world.send(in_group).await?).await?;
    let program = world.ask("anna", "/link").await?;

    assert!(refused.starts_with("This account has rights that the other"), "{refused}");
    assert!(own.starts_with("This is the account that asked"), "{own}");
    assert!(in_group.starts_with("This command is not for groups"), "{in_group}");
    assert!(program.starts_with("Send this in a direct conversation"), "{program}");
    assert_eq!(world.number("select count(*) from control.identities").await?, 0);

    let code = channels.code(&ANNA).await?;
    for _ in 0..5 {
        channels.ask(&BEN_IN_SHOP, "/link AAAABBBB").await?;
    }
    let late = channels.ask(&BEN_IN_SHOP, &format!("/link {code}")).await?;
    assert!(late.starts_with("Too many codes"), "{late}");
    world.admin("update control.link_codes set expires_at = now() - interval '1 second'").await?;
    let expired = channels.ask(&ANNA_IN_SHOP, &format!("/link {code}")).await?;
    assert!(expired.starts_with("There is no such code"), "{expired}");
    let stored = world.texts("select c::text from control.link_codes c").await?.join("\n");
    assert!(!stored.contains(&code), "the code is stored as it is");
    Ok(())
}
