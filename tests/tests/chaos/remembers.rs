//! Memories under failures: what a user says in one session is known in their other sessions, and
//! to nobody else, although the memory service and the runner are killed.

use anyhow::ensure;
use holdfast_proto::gateway::v1 as pb;
use holdfast_proto::gateway::v1::channels_client::ChannelsClient;
use holdfast_proto::gateway::v1::routing_client::RoutingClient;
use holdfast_testkit::{Backends, Reply, Request};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::{GrpcClient, REPLY_TIMEOUT, TelegramUser};
use holdfast_tests::turnstile;
use holdfast_types::QueueMode;
use serde_json::json;

use crate::RUNNER;

/// The machine may be busy: what is remembered is waited for.
const LONG_RECALL_TIMEOUT: (&str, &str) = ("HOLDFAST_RUNNER__MEMORY__RECALL_TIMEOUT", "30s");

const SECOND_BOT_TOKEN: &str = "2000:token-of-the-second-bot";

const ANYBODY: &str = "I know of nobody";

/// Keeps what it is told to, and says whom it knows.
fn knowing(asked: &Request) -> Reply {
    let said = asked.last_user_text();
    match (said.split_once("Remember: "), asked.tool_results().first()) {
        (Some((_, what)), None) => {
            let input = json!({"text": what, "type": "fact"});
            Reply::call("a", "memory_save", input.to_string())
        }
        (Some(_), Some((_, kept))) => Reply::text(kept.clone()),
        (None, _) => {
            let shown = asked.body.to_string();
            let known = |name: &&str| shown.contains(&format!("is called {name}"));
            let known: Vec<_> = ["Tom", "Ida"].into_iter().filter(known).collect();
            match known.is_empty() {
                true => Reply::text(ANYBODY),
                false => Reply::text(format!("I know {}", known.join(" and "))),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_says_in_telegram_is_known_in_their_other_sessions_and_to_nobody_else()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig {
        memories: 1,
        tenants: vec![QueueMode::Steer, QueueMode::Steer],
        ..MeshConfig::small(RUNNER)
    };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    mesh.fakes.model.answer(knowing);
    let (runner, memory) = (&mesh.runners[0], &mesh.memories[0]);
    for node in mesh.gateways.iter().chain(&mesh.bridges).chain([memory]) {
        node.start().await?;
        node.ready(REPLY_TIMEOUT).await?;
    }
    let caller = GrpcClient::of(&mesh, 0)?;
    set_up(&caller).await?;
    runner.start_with(&[LONG_RECALL_TIMEOUT]).await?;
    runner.ready(REPLY_TIMEOUT).await?;
    let bot = mesh.tenants[0].bot.as_str();
    let (owner, anna) = (TelegramUser::of(&mesh, bot, 1), TelegramUser::of(&mesh, bot, 42));

    for (who, fact) in [(&owner, "our boat is called Ida"), (&anna, "my cat is called Tom")] {
        let kept = who.ask(&format!("Remember: {fact}")).await?;
        ensure!(kept.starts_with("Remembered as itm_"), "`{fact}`: {kept}");
    }
    for node in [runner, memory] {
        node.kill().await?;
    }
    memory.start().await?;
    memory.ready(REPLY_TIMEOUT).await?;
    runner.start_with(&[LONG_RECALL_TIMEOUT]).await?;

    let question = "what is it called, the cat or the boat?";
    let elsewhere = TelegramUser::of(&mesh, SECOND_BOT_TOKEN, 50);
    let known = elsewhere.ask(question).await?;
    ensure!(known == "I know Tom", "Anna's other account is told by the other bot `{known}`");
    let known = caller.ask("", question).await?;
    ensure!(known == "I know Ida", "the owner's main session is told `{known}`");
    for (who, person) in [
        ("somebody else in Telegram", TelegramUser::of(&mesh, bot, 43)),
        ("somebody else by the other bot", TelegramUser::of(&mesh, SECOND_BOT_TOKEN, 43)),
        (
            "who has that id at another tenant's bot",
            TelegramUser::of(&mesh, &mesh.tenants[1].bot, 42),
        ),
    ] {
        let known = person.ask(question).await?;
        ensure!(known == ANYBODY, "{who} is told `{known}`");
    }
    for session in ["anna", "telegram:anna", "owner"] {
        let known = caller.ask(session, question).await?;
        ensure!(known == ANYBODY, "a program's session `{session}` is told `{known}`");
    }
    let known = GrpcClient::of(&mesh, 1)?.ask("", question).await?;
    ensure!(known == ANYBODY, "the other tenant's owner is told `{known}`");

    let hers = "select count(*) from session.sessions where key like '%:dm:telegram:%:anna'";
    let hers = mesh.number(hers).await?;
    ensure!(hers == 2, "Anna had {hers} sessions: nothing is shown of another one");
    let violations = mesh.fakes.model.violations();
    ensure!(violations.is_empty(), "calls and results do not pair up: {violations:?}");
    Ok(())
}

/// A person links two accounts herself, and the runner dies when the link is made and nothing is
/// moved yet: the next one finishes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_that_a_person_links_are_one_although_the_runner_dies_in_between()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig {
        memories: 1,
        lease: std::time::Duration::from_millis(900),
        tenants: vec![QueueMode::Steer],
        ..MeshConfig::small(RUNNER)
    };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    mesh.fakes.model.answer(knowing);
    let runner = &mesh.runners[0];
    for node in mesh.gateways.iter().chain(&mesh.bridges).chain(&mesh.memories) {
        node.start().await?;
        node.ready(REPLY_TIMEOUT).await?;
    }
    let caller = GrpcClient::of(&mesh, 0)?;
    add_second_bot(&caller).await?;
    runner.start_with(&[LONG_RECALL_TIMEOUT]).await?;
    runner.ready(REPLY_TIMEOUT).await?;
    let anna = TelegramUser::of(&mesh, &mesh.tenants[0].bot, 42);
    let elsewhere = TelegramUser::of(&mesh, SECOND_BOT_TOKEN, 50);
    let question = "what is the cat called?";
    let kept = elsewhere.ask("Remember: my cat is called Tom").await?;
    ensure!(kept.starts_with("Remembered as itm_"), "{kept}");
    ensure!(anna.ask(question).await? == ANYBODY, "known before the accounts are linked");

    let told = anna.ask("/link").await?;
    let code = told.lines().find_map(|line| line.strip_prefix("/link ")).unwrap_or_default();
    runner.kill().await?;
    let dies = ("HOLDFAST_FAILPOINTS", "runner.linked=kill:1");
    runner.start_with(&[LONG_RECALL_TIMEOUT, dies]).await?;
    let (heard, news) = (elsewhere.heard().len(), anna.heard().len());
    elsewhere.send(&format!("/link {code}"));
    runner.wait_for_death(REPLY_TIMEOUT).await?;
    runner.start_with(&[LONG_RECALL_TIMEOUT]).await?;
    elsewhere.wait_for_messages(heard + 1).await?;
    anna.wait_for_messages(news + 1).await?;

    let linked = elsewhere.heard().pop().unwrap_or_default();
    ensure!(linked.starts_with("Linked with your account on telegram."), "{linked}");
    let news = anna.heard().split_off(news);
    ensure!(news.len() == 1 && news[0].starts_with("An account on telegram is now"), "{news:?}");
    for (which, who) in [("the first", &anna), ("the other", &elsewhere)] {
        let known = who.ask(question).await?;
        ensure!(known == "I know Tom", "{which} account is told `{known}`");
    }
    let renamed =
        "select count(*) from session.sessions where key like '%:dm:telegram:second:=telegram%'";
    ensure!(mesh.number(renamed).await? == 1, "the conversation does not go on");
    let old = "select count(*) from memory.units where user_id = 'telegram:50'";
    ensure!(mesh.number(old).await? == 0, "something is remembered of the former name");
    let stranger = TelegramUser::of(&mesh, SECOND_BOT_TOKEN, 43).ask(question).await?;
    ensure!(stranger == ANYBODY, "a stranger is told `{stranger}`");
    Ok(())
}

/// Another bot of the tenant's, Anna's two accounts, and who the owner is.
async fn set_up(caller: &GrpcClient) -> anyhow::Result<()> {
    add_second_bot(caller).await?;
    let mut routing = RoutingClient::new(caller.channel.clone());
    for peer in ["42", "50"] {
        let (channel, peer, canonical) = ("telegram".into(), peer.into(), "anna".into());
        let identity = Some(pb::Identity { channel, peer, canonical });
        routing.put_identity(caller.request(pb::PutIdentityRequest { identity })?).await?;
    }
    caller.put_owner("telegram:1").await
}

async fn add_second_bot(caller: &GrpcClient) -> anyhow::Result<()> {
    let account = pb::Account {
        channel: "telegram".to_owned(),
        name: "second".to_owned(),
        enabled: true,
        settings: json!({"allow": ["*"], "parse": "plain"}).to_string(),
        ..pb::Account::default()
    };
    let secrets = json!({"token": SECOND_BOT_TOKEN}).to_string();
    let create = pb::CreateAccountRequest { account: Some(account), secrets };
    let mut channels = ChannelsClient::new(caller.channel.clone());
    channels.create_account(caller.request(create)?).await?;
    Ok(())
}
