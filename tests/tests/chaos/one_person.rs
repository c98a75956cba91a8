//! One person in a console, in Telegram, by mail and as a user of a program: one memory, one set of
//! reminders; nobody else finds anything. Two records become one, an account is separated again, and
//! an erasure leaves no word.

use anyhow::{Context as _, ensure};
use holdfast_directory::{Actor, NewKey, SignIn};
use holdfast_proto::gateway::v1 as pb;
use holdfast_proto::gateway::v1::memories_client::MemoriesClient;
use holdfast_proto::gateway::v1::people_client::PeopleClient;
use holdfast_proto::gateway::v1::policies_client::PoliciesClient;
use holdfast_proto::gateway::v1::routing_client::RoutingClient;
use holdfast_proto::gateway::v1::schedules_client::SchedulesClient;
use holdfast_testkit::platforms::Written;
use holdfast_testkit::{Backends, Reply, Request};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::{GrpcClient, REPLY_TIMEOUT, TelegramUser, until};
use holdfast_tests::turnstile;
use holdfast_types::{PersonId, QueueMode, TenantRole};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::{RUNNER, erases::settle};

/// The machine may be busy: what is remembered is waited for.
const LONG_RECALL_TIMEOUT: (&str, &str) = ("HOLDFAST_RUNNER__MEMORY__RECALL_TIMEOUT", "30s");

/// What the person tells in the console, as a user of a program, and as their other record.
const NAMES: [&str; 3] = ["Zyxotom", "Idaquill", "Rexomund"];

const NOTHING: &str = "I know of nobody";
/// Asks for a call that a person must approve.
const STATUS_REQUEST: &str = "Say what the session's status is.";
const QUESTION: &str = "what are they called?";

/// Asks whether the assistant knows which time zone and language were chosen.
const PREFERENCES_REQUEST: &str = "What did I choose?";
const ZONE: &str = "Asia/Tokyo";

/// Mailbox of the tenant, and the number of the person who writes to it.
const MAILBOX: &str = "storm";
const MAIL_NUMBER: usize = 9;

/// Keeps what it is told to, sets reminders, and says whom it knows.
fn assistant(asked: &Request) -> Reply {
    let said = asked.last_user_text();
    let result = asked.tool_results().first().map(|(_, output)| output.clone());
    if let Some(result) = result {
        return Reply::text(result);
    }
    if let Some((_, what)) = said.split_once("Remember: ") {
        let input = json!({"text": what, "type": "fact"});
        return Reply::call("a", "memory_save", input.to_string());
    }
    if said == STATUS_REQUEST {
        return Reply::call("c", "session_status", "{}");
    }
    if let Some((_, what)) = said.split_once("Remind me: ") {
        let input = json!({"time": "tomorrow 9:00", "content": what});
        return Reply::call("b", "scheduler_add", input.to_string());
    }
    let shown = asked.body.to_string();
    if said == PREFERENCES_REQUEST {
        let chosen = [ZONE, "has chosen the language nb"].map(|chosen| shown.contains(chosen));
        return Reply::text(format!("{chosen:?}"));
    }
    let known: Vec<_> =
        NAMES.into_iter().filter(|name| shown.contains(&format!("is called {name}"))).collect();
    match known.is_empty() {
        true => Reply::text(NOTHING),
        false => Reply::text(format!("I know {}", known.join(" and "))),
    }
}

/// A mesh with an assistant, and the owner's key.
struct World {
    mesh: Mesh,
    owner: GrpcClient,
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let plan = MeshConfig {
            memories: 1,
            schedulers: 1,
            tenants: vec![QueueMode::Steer],
            platforms: true,
            ..MeshConfig::small(RUNNER)
        };
        let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
        mesh.fakes.model.answer(assistant);
        let nodes = mesh.gateways.iter().chain(&mesh.bridges).chain(&mesh.memories);
        for node in nodes.chain(&mesh.schedulers) {
            node.start().await?;
            node.ready(REPLY_TIMEOUT).await?;
        }
        mesh.runners[0].start_with(&[LONG_RECALL_TIMEOUT]).await?;
        let owner = GrpcClient::of(&mesh, 0)?;
        let document = json!({"approvals": {"tools": {"session_status": "always"}}}).to_string();
        let put = pb::PutPolicyRequest { document, ..pb::PutPolicyRequest::default() };
        PoliciesClient::new(owner.channel.clone()).put_policy(owner.request(put)?).await?;
        Ok(Self { mesh, owner })
    }

    /// Somebody who has signed in, with a key of theirs.
    async fn person(&self, name: &str, role: TenantRole) -> anyhow::Result<(PersonId, GrpcClient)> {
        let directory = self.mesh.directory()?;
        let tenant = self.mesh.tenants[0].id;
        let said = SignIn {
            tenant: tenant.to_string(),
            issuer: "https://people.example".to_owned(),
            subject: name.to_owned(),
            name: name.to_owned(),
            role,
        };
        let id = directory.people().sign_in(&said).await?.person;
        let scopes = ["chat", "read"].map(str::to_owned).to_vec();
        let key = NewKey {
            name: name.to_owned(),
            scopes,
            lifetime: None,
            person: Some(id),
            agent: None,
            origins: Vec::new(),
        };
        let (_, secret) = directory.keys().create(tenant, Actor::Operator, key).await?;
        Ok((id, self.owner.with_key(secret.expose_secret())))
    }

    fn telegram(&self, number: i64) -> TelegramUser<'_> {
        TelegramUser::of(&self.mesh, &self.mesh.tenants[0].bot, number)
    }

    /// Writes a mail, and says what is answered.
    async fn mail(&self, id: i64, text: &str) -> anyhow::Result<String> {
        let mail = &self.mesh.fakes.platforms.as_ref().context("there is no mail")?.mail;
        let chat = format!("person-{MAIL_NUMBER}@y.example");
        let answers = || {
            let posted = mail.posted().into_iter().filter(|posted| posted.chat == chat);
            posted.map(|posted| posted.text).collect::<Vec<_>>()
        };
        until("the mailbox is read", async || Ok(mail.is_heard(MAILBOX))).await?;
        let before = answers().len();
        mail.push(MAILBOX, &Written { person: MAIL_NUMBER, id, text });
        until("the mail is answered", async || Ok(answers().len() > before)).await?;
        answers().into_iter().nth(before).context("it is gone")
    }

    /// Key of the conversation in which a mail would be answered now.
    async fn mail_key(&self) -> anyhow::Result<String> {
        let explain = pb::ExplainRequest {
            channel: "email".to_owned(),
            account: MAILBOX.to_owned(),
            peer_kind: "direct".to_owned(),
            peer_id: format!("person-{MAIL_NUMBER}@y.example"),
            ..pb::ExplainRequest::default()
        };
        let mut routing = RoutingClient::new(self.owner.channel.clone());
        Ok(routing.explain(self.owner.request(explain)?).await?.into_inner().session_key)
    }

    fn people(&self) -> PeopleClient<tonic::transport::Channel> {
        PeopleClient::new(self.owner.channel.clone())
    }

    /// A code of whoever has the key.
    async fn code(&self, person: &GrpcClient) -> anyhow::Result<String> {
        let request = person.request(pb::CreateLinkCodeRequest {})?;
        Ok(self.people().create_link_code(request).await?.into_inner().code)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_person_is_known_everywhere_and_erased_everywhere() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let world = World::start().await?;
    let [cat, boat, dog] = NAMES;
    let (anna, console) = world.person("Anna", TenantRole::Approver).await?;
    let (_, ben) = world.person("Ben", TenantRole::Member).await?;
    let telegram = world.telegram(770_042_917);

    // What the record says holds wherever the person writes.
    let (time_zone, language) = (Some(ZONE.to_owned()), Some("nb".to_owned()));
    let update = pb::UpdatePersonRequest { time_zone, language, ..Default::default() };
    world.people().update_person(console.request(update)?).await?;
    let chosen = console.ask("", PREFERENCES_REQUEST).await?;
    ensure!(chosen == "[true, true]", "zone and language in the console: {chosen}");
    let chosen = telegram.ask(PREFERENCES_REQUEST).await?;
    ensure!(chosen == "[false, false]", "a stranger has them: {chosen}");

    // The console, a chat and mail.
    let kept = console.ask("", &format!("Remember: my cat is called {cat}")).await?;
    ensure!(kept.starts_with("Remembered as itm_"), "{kept}");
    ensure!(telegram.ask(QUESTION).await? == NOTHING, "known before it is linked");
    let code = world.code(&console).await?;
    let linked = telegram.ask(&format!("/link {code}")).await?;
    ensure!(linked.starts_with("Linked with the person who you are in the console."), "{linked}");
    let code = world.code(&console).await?;
    let linked = world.mail(1, &format!("/link {code}")).await?;
    ensure!(linked.starts_with("Linked with the person who you are in the console."), "{linked}");
    until("the gateway knows that the address is linked", async || {
        Ok(world.mail_key().await?.contains(&anna.to_string()))
    })
    .await?;
    let known = format!("I know {cat}");
    ensure!(telegram.ask(QUESTION).await? == known, "Telegram knows nothing");
    let chosen = telegram.ask(PREFERENCES_REQUEST).await?;
    ensure!(chosen == "[true, true]", "zone and language in Telegram: {chosen}");
    let by_mail = world.mail(2, QUESTION).await?;
    ensure!(by_mail == known, "the mail says `{by_mail}`");

    // A user of a program: what they said before is theirs, too.
    let kept =
        world.owner.ask("quillanovic", &format!("Remember: my boat is called {boat}")).await?;
    ensure!(kept.starts_with("Remembered as itm_"), "{kept}");
    ensure!(console.ask("other", QUESTION).await? == known, "known before the user is linked");
    let link =
        pb::LinkProgramUserRequest { person: anna.to_string(), user: "quillanovic".to_owned() };
    world.people().link_program_user(world.owner.request(link)?).await?;
    let known = format!("I know {cat} and {boat}");
    let by_program = world.owner.ask("quillanovic/trip", QUESTION).await?;
    ensure!(by_program == known, "the program's user is told `{by_program}`");
    let in_console = console.ask("third", QUESTION).await?;
    ensure!(in_console == known, "the console says `{in_console}`");
    let (_, again) = (telegram.ask("/new").await?, telegram.ask(QUESTION).await?);
    ensure!(again == known, "Telegram says `{again}`");

    // Reminders are the person's, wherever they were set.
    telegram.ask(&format!("Remind me: feed {cat}")).await?;
    console.ask("fourth", &format!("Remind me: brush {cat}")).await?;
    let mut schedules = SchedulesClient::new(world.owner.channel.clone());
    let list = console.request(pb::ListRemindersRequest::default())?;
    let mut contents: Vec<_> = schedules.list_reminders(list).await?.into_inner().reminders;
    contents.sort_by(|one, other| one.content.cmp(&other.content));
    let contents: Vec<_> = contents.into_iter().map(|one| one.content).collect();
    ensure!(contents == [format!("brush {cat}"), format!("feed {cat}")], "{contents:?}");

    is_reached_where_they_write(&world, &console, &telegram).await?;

    // Nobody else finds anything.
    let others = [
        ("Ben", ben.ask("", QUESTION).await?),
        ("another user of the program", world.owner.ask("ben", QUESTION).await?),
        ("a stranger in Telegram", world.telegram(43).ask(QUESTION).await?),
    ];
    for (who, told) in others {
        ensure!(told == NOTHING, "{who} is told `{told}`");
    }
    let list = ben.request(pb::ListRemindersRequest::default())?;
    ensure!(schedules.list_reminders(list).await?.into_inner().reminders.is_empty(), "Ben's");

    // Two records become one.
    let (second, at_home) = world.person("Anna at home", TenantRole::Member).await?;
    at_home.ask("", &format!("Remember: my dog is called {dog}")).await?;
    let merge = pb::MergePeopleRequest { from: second.to_string(), into: anna.to_string() };
    for _ in 0..2 {
        world.people().merge_people(world.owner.request(merge.clone())?).await?;
    }
    for (number, (thing, name)) in [("cat", cat), ("boat", boat), ("dog", dog)].iter().enumerate() {
        let session = format!("home-{number}");
        let told = at_home.ask(&session, &format!("what is the {thing} called?")).await?;
        ensure!(told.contains(name), "the merged person is told of the {thing}: `{told}`");
    }
    let of_both =
        "select count(*) from session.sessions where key like 'agent:%:api:=per\\_%/main%'";
    ensure!(world.mesh.number(of_both).await? == 3, "a conversation called main is lost");

    // An account is separated: it knows what was said in it, and nothing new.
    let chat = format!("email:person-{MAIL_NUMBER}@y.example");
    let split = pb::SplitPersonRequest { person: String::new(), identity: chat.clone() };
    world.people().split_person(console.request(split)?).await?;
    world.mail(3, "/new").await?;
    let told = world.mail(4, QUESTION).await?;
    ensure!(told == NOTHING, "the separated mail address is told `{told}`");
    let show = pb::GetPersonRequest::default();
    let shown = world.people().get_person(console.request(show)?).await?.into_inner();
    let identities: Vec<_> = shown.identities.into_iter().map(|one| one.value).collect();
    for expected in ["telegram:770042917", "api:quillanovic", &second.to_string()] {
        ensure!(identities.iter().any(|one| one == expected), "{expected}: {identities:?}");
    }
    ensure!(!identities.contains(&chat), "{identities:?}");

    erase(&world, anna, &chat).await
}

/// What the person is asked and reminded of in the console reaches them in the chat, where they decide.
async fn is_reached_where_they_write(
    world: &World,
    console: &GrpcClient,
    telegram: &TelegramUser<'_>,
) -> anyhow::Result<()> {
    let [cat, ..] = NAMES;
    let before = telegram.heard().len();
    let decide = async {
        telegram.wait_for_messages(before + 1).await.context("nobody is asked")?;
        let request = telegram.heard().into_iter().nth(before).context("it is gone")?;
        let id = request.split(['(', ')']).nth(1).context("no id")?.to_owned();
        ensure!(request.contains("wants to use session_status"), "{request}");
        let stranger = world.telegram(44).ask(&format!("/approve {id}")).await?;
        ensure!(stranger.contains("no approval"), "a stranger is told `{stranger}`");
        let decided = telegram.ask(&format!("/approve {id}")).await?;
        ensure!(decided.starts_with("Allowed once"), "the person is told `{decided}`");
        anyhow::Ok(())
    };
    let (status, decided) = tokio::join!(console.ask("fifth", STATUS_REQUEST), decide);
    decided?;
    let status = status?;
    ensure!(status.contains("fifth"), "the status is `{status}`");

    let before = telegram.heard().len();
    let reminder = pb::AddReminderRequest {
        time: "in 1 second".to_owned(),
        content: format!("comb {cat}"),
        ..pb::AddReminderRequest::default()
    };
    let mut schedules = SchedulesClient::new(world.owner.channel.clone());
    schedules.add_reminder(console.request(reminder)?).await?;
    telegram.wait_for_messages(before + 1).await.context("nobody is reminded")?;
    let reminded = telegram.heard().into_iter().nth(before).context("it is gone")?;
    ensure!(reminded == format!("⏰ Reminder: comb {cat}"), "reminded of `{reminded}`");
    // The conversation is still held in the console only.
    let places =
        "select count(*) from session.sessions where kind = 'api' and last_target is not null";
    ensure!(world.mesh.number(places).await? == 0, "the console's conversation has a place");
    Ok(())
}

/// A name as the console of earlier versions gave it to each conversation.
const CONSOLE_NAME: &str = "c-0198c0ff-eeee";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_of_the_former_console_becomes_its_writers() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let world = World::start().await?;
    let [cat, boat, _] = NAMES;
    // The owner's key is a person's, and names conversations as that console did.
    let directory = world.mesh.directory()?;
    let owner = directory.people().first_owner(world.mesh.tenants[0].id, ("Olga", false)).await?.id;
    world.owner.ask(CONSOLE_NAME, &format!("Remember: my cat is called {cat}")).await?;
    world.owner.ask("quillanovic", &format!("Remember: my boat is called {boat}")).await?;
    let assign = async |dry_run| {
        let request = pb::AssignConversationsRequest { dry_run, ..Default::default() };
        let request = world.owner.request(request)?;
        let listed = world.people().assign_conversations(request).await?.into_inner();
        anyhow::Ok(listed.conversations)
    };

    let planned = assign(true).await?;
    let done = assign(false).await?;
    let left = assign(false).await?;

    ensure!(planned == done && left.is_empty(), "{planned:?} {done:?} {left:?}");
    ensure!(done.len() == 1 && done[0].person == owner.to_string(), "{done:?}");
    let theirs =
        format!("select count(*) from session.sessions where key like '%:api:=%/{CONSOLE_NAME}'");
    ensure!(world.mesh.number(&theirs).await? == 1, "the conversation is not theirs");
    let known = world.owner.ask("", "what is the cat called?").await?;
    ensure!(known == format!("I know {cat}"), "the main session knows `{known}`");
    Ok(())
}

/// Erases the person, and the address that was theirs for a while.
async fn erase(world: &World, anna: PersonId, chat: &str) -> anyhow::Result<()> {
    let open = "select (select count(*) from session.events) + (select count(*) from memory.queue)";
    until("events are published and memories indexed", async || {
        Ok(world.mesh.number(open).await? == 0)
    })
    .await?;
    let erase = pb::ErasePersonRequest { id: anna.to_string() };
    let erased = world.people().erase_person(world.owner.request(erase)?).await?.into_inner();
    ensure!(erased.left.iter().all(|left| left.rows == 0), "{erased:?}");
    let user = chat.to_owned();
    let erase = pb::EraseMemoriesRequest { user, everywhere: true, ..Default::default() };
    let mut memories = MemoriesClient::new(world.owner.channel.clone());
    memories.erase_memories(world.owner.request(erase)?).await?;
    settle(&world.mesh, &NAMES.map(str::to_owned), &[]).await.context("a word of the person")?;
    let ids = ["770042917".to_owned(), "quillanovic".to_owned()];
    // The proof of the erasure, and the owner's own acts.
    settle(&world.mesh, &ids, &["control.audit", "memory.erasures"])
        .await
        .context("an id of the person")
}
