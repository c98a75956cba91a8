//! Index of conversation turns: words of one conversation are found in others of the same person,
//! by nobody else, and are gone after a reset, a deletion or an erasure.

use std::{sync::Arc, time::Duration};

use holdfast_directory::{Actor, NewAgent};
use holdfast_grpc::{MemoryClient, Mesh, Signer};
use holdfast_llm::ScriptedModel;
use holdfast_proto::memory::v1 as pb;
use holdfast_session::{Acceptance, KeyChanges, NewMessage};
use holdfast_types::{Chat, ChatMessage, Reply, SessionKey, TenantId};

use crate::world::{LONG, Remembers, Running, World, mesh};

const WORDS: &str = "the key of the boathouse lies under the blue pot";
const QUESTION: &str = "find: key of the boathouse";

/// Searches where it is told to and answers with the result. To anything else it answers what the
/// prompt tells of the pot.
fn searching(chat: &Chat) -> Reply {
    if let Some(ChatMessage::Tool { output, .. }) = chat.messages.last() {
        return ScriptedModel::text(output);
    }
    let told = chat.messages.iter().rev().find_map(|message| match message {
        ChatMessage::User { text, .. } => Some(text.as_str()),
        ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => None,
    });
    match told.and_then(|text| text.split_once("find: ")) {
        Some((_, query)) => {
            let input = serde_json::json!({ "query": query }).to_string();
            ScriptedModel::calls(&[("a", "memory_search", &input)])
        }
        None => {
            let line = chat.dynamic.lines().find(|line| line.contains("blue pot"));
            ScriptedModel::text(line.unwrap_or("NO_REPLY"))
        }
    }
}

impl World {
    /// Waits until all conversations are indexed to their ends.
    pub async fn until_indexed(&self) -> anyhow::Result<()> {
        let open = "select count(*) from session.session_lease l
                    left join session.journal_readers x
                      on x.session_id = l.session_id and x.reader = 'turn_index'
                    where l.next_entry - 1 > coalesce(x.upto, 0) or x.lease_until is not null";
        let is = async || self.number(open).await.is_ok_and(|open| open == 0);
        self.until("the conversations are indexed", is).await
    }
}

struct Told {
    world: World,
    memory: Remembers,
    client: MemoryClient,
    _runner: Running,
}

impl Told {
    async fn start() -> anyhow::Result<Self> {
        let world = World::start().await?;
        world.use_demo().await?;
        let memory = world.memory().await?;
        let client = MemoryClient::new(&memory.url, Mesh::new(Signer::new(&mesh())?, "gateway"))?;
        let mut config = world.config_with(&memory);
        config.runner.relay = Duration::from_millis(100);
        let model = Arc::new(ScriptedModel::answering(|request| Ok(searching(&request.chat))));
        let _runner = world.runner_with(config, |app| app.with_demo(model)).await?;
        Ok(Self { world, memory, client, _runner })
    }

    /// Says something and waits until the conversation is indexed to its end.
    async fn tell(&self, message: NewMessage) -> anyhow::Result<Acceptance> {
        let sent = self.world.send(message).await?;
        self.world.text(&sent).await?;
        self.world.until_indexed().await?;
        Ok(sent)
    }

    async fn turns(&self) -> anyhow::Result<Vec<String>> {
        self.world
            .texts("select ref || ' ' || user_id || ': ' || text from memory.units where kind = 5 order by 1")
            .await
    }

    async fn is_found_in(&self, session: &str) -> anyhow::Result<bool> {
        Ok(self.world.ask(session, QUESTION).await?.contains("blue pot"))
    }

    async fn forget(&self, tenant: TenantId, what: pb::forget_request::What) -> anyhow::Result<()> {
        let who = pb::Who { everything: true, ..pb::Who::default() };
        let request = pb::ForgetRequest { who: Some(who), what: Some(what) };
        let proof = self.client.forget(tenant, request).await?;
        assert!(proof.left.iter().all(|count| count.rows == 0), "{:?}", proof.left);
        Ok(())
    }
}

#[tokio::test]
async fn words_are_found_in_other_conversations_of_the_same_person_and_by_nobody_else()
-> anyhow::Result<()> {
    let told = Box::pin(Told::start()).await?;
    let world = &told.world;
    let (tenant, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let theirs = world.directory.agents().default_agent(tenant.id).await?;
    let new = NewAgent { name: "second".parse()?, ..NewAgent::default() };
    let second = world.directory.agents().create(world.tenant, Actor::Operator, new).await?;
    let of_second = |name: &str, text: &str| -> anyhow::Result<NewMessage> {
        let key = SessionKey::api(&second.name, name)?;
        Ok(NewMessage { key, agent: second.id, ..world.message(name, text) })
    };

    let sent = told.tell(world.message("anna/one", WORDS)).await?;
    assert_eq!(told.turns().await?, [format!("1 api:anna: {WORDS}")]);
    assert_eq!(world.number("select count(*) from memory.items").await?, 0);

    let found = world.ask("anna/two", QUESTION).await?;
    let from = format!("said by the user in {}, entry 1", sent.session);
    assert!(found.contains(WORDS) && found.contains(&from), "{found}");
    let shown = world.ask("anna/three", "where is the key of the boathouse?").await?;
    assert!(shown.contains(WORDS) && shown.contains(&from), "{shown}");

    let group = SessionKey::group(&world.agent.name, "telegram", "-100", None)?;
    let group = |text: &str| NewMessage { key: group.clone(), ..world.message("g", text) };
    let in_group = world.text(&world.send(group(QUESTION)).await?).await?;
    let owner = world.text(&world.send(world.owners(QUESTION)).await?).await?;
    let other_agent = world.text(&world.send(of_second("anna/two", QUESTION)?).await?).await?;
    let key = SessionKey::api(&theirs.name, "anna/two")?;
    let foreign = NewMessage { key, agent: theirs.id, ..world.message("anna/two", QUESTION) };
    let other_tenant = world.answer_in(tenant.id, foreign).await?.text;
    for (who, answer) in [
        ("somebody else", world.ask("ben/two", QUESTION).await?),
        ("a group", in_group),
        ("the owner", owner),
        ("another agent", other_agent),
        ("another tenant", other_tenant),
    ] {
        assert!(!answer.contains("blue pot"), "{who}: {answer}");
    }

    // A group's words are the group's.
    told.tell(group("our meeting is in the green hall")).await?;
    let in_group = world.text(&world.send(group("find: where is our meeting")).await?).await?;
    assert!(in_group.contains("green hall"), "{in_group}");
    let outside = world.ask("anna/two", "find: where is our meeting").await?;
    assert!(!outside.contains("green hall"), "{outside}");
    drop(told.memory);
    Ok(())
}

#[tokio::test]
async fn a_conversation_is_indexed_once_although_a_runner_dies_and_an_idle_one_costs_nothing()
-> anyhow::Result<()> {
    let told = Box::pin(Told::start()).await?;
    let world = &told.world;
    told.tell(world.message("anna/one", WORDS)).await?;
    told.tell(world.message("anna/one", "and the oars are in the attic")).await?;
    let before = told.turns().await?;
    assert_eq!(before.len(), 2, "{before:?}");

    // As if the runner had died after it stored the turns, and before it recorded that.
    let back = "update session.journal_readers
                set upto = 0, pending = upto, lease_until = now() - interval '1 second'
                where reader = 'turn_index'";
    assert_eq!(world.admin(back).await?, 1);
    world.until_indexed().await?;

    assert_eq!(told.turns().await?, before);
    let versions = "select coalesce(sum(hashtext(ctid::text || xmin::text)), 0)::bigint
                    from session.journal_readers";
    let rows = world.number(versions).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.number(versions).await?, rows, "an idle conversation is written to");
    Ok(())
}

#[tokio::test]
async fn words_are_gone_after_a_reset_a_deletion_and_an_erasure() -> anyhow::Result<()> {
    let told = Box::pin(Told::start()).await?;
    let world = &told.world;
    let gone = async |what: &str| {
        let is = async || told.turns().await.is_ok_and(|turns| turns.is_empty());
        world.until(what, is).await
    };

    told.tell(world.message("anna/one", WORDS)).await?;
    assert!(told.is_found_in("anna/two").await?);
    let only = "delete from memory.units where kind = 5 and text not like 'the key%'";
    world.until_indexed().await?;
    world.admin(only).await?;
    told.tell(world.message("anna/one", "/new")).await?;
    assert_eq!(told.turns().await?, [format!("1 api:anna: {WORDS}")]);
    told.tell(world.message("anna/one", "/reset")).await?;
    gone("the words are gone after a reset").await?;
    assert!(!told.is_found_in("carl").await?);

    let sent = told.tell(world.message("ben/one", WORDS)).await?;
    world.admin("delete from memory.units where user_id <> 'api:ben'").await?;
    world.sessions.delete(world.tenant, sent.session).await?;
    gone("the words are gone with their session").await?;
    let kept = "select count(*) from session.journal_readers x
                where not exists (select from session.sessions s where s.session_id = x.session_id)";
    assert_eq!(world.number(kept).await?, 0);

    told.tell(world.message("dora/one", WORDS)).await?;
    told.forget(world.tenant, pb::forget_request::What::User("api:dora".into())).await?;
    // What was said before the erasure is not indexed again.
    let again = "update session.journal_readers set upto = 0, pending = upto, lease_until = now()
                 where reader = 'turn_index' and upto > 0";
    world.admin(again).await?;
    world.until_indexed().await?;
    let hers = "select count(*) from memory.units where user_id = 'api:dora'";
    assert_eq!(world.number(hers).await?, 0);
    assert!(!told.is_found_in("dora/two").await?);
    Ok(())
}

#[tokio::test]
async fn a_conversation_that_is_renamed_while_it_is_indexed_is_read_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let sent = world.say("anna/one", WORDS).await?;
    world.text(&sent).await?;
    let (tenant, session, index) = (world.tenant, sent.session, world.sessions.turn_index());
    let claim = async || index.claim(tenant, session, LONG).await.ok().flatten();
    let first = world.until_some("the turn has ended", claim).await?;

    let latter = SessionKey::api(&world.agent.name, "ben/one")?.to_string();
    let keys = vec![(first.key.clone(), latter.clone())];
    let changes = KeyChanges { channel: None, keys };
    assert_eq!(world.sessions.settings().rename_sessions(tenant, &changes).await?, 1);
    let range = (first.upto, first.upto);
    assert!(index.complete(tenant, session, range, Some(&first.key)).await?);

    let second = world.until_some("the range is free", claim).await?;
    assert_eq!((second.after, second.upto, &second.key), (first.after, first.upto, &latter));
    assert!(!index.complete(tenant, session, range, Some(&second.key)).await?);
    assert_eq!(claim().await, None);
    Ok(())
}
