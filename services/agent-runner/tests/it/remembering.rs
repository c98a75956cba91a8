//! Memory prefetch: memories are added to a message, and a failing memory service stops no turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use holdfast_agent::memory::EXTRACTOR;
use holdfast_directory::{Actor, Budget};
use holdfast_grpc::{MemoryClient, Mesh, Signer};
use holdfast_llm::{ModelCard, ScriptedModel};
use holdfast_proto::memory::v1 as pb;
use holdfast_session::NewMessage;
use holdfast_types::{Chat, ChatMessage, Reply, SessionKey, TenantId};
use tokio::net::TcpListener;

use crate::world::{MESH, Remembers, World, mesh};

/// Result of the last call.
fn returned(chat: &Chat) -> Option<&str> {
    chat.messages.iter().rev().find_map(|message| match message {
        ChatMessage::Tool { output, .. } => Some(output.as_str()),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    })
}

/// Searches its memory for whatever it is asked, and says what came of that.
fn searching() -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::answering(|request| {
        Ok(match returned(&request.chat) {
            None => ScriptedModel::calls(&[("a", "memory_search", r#"{"query":"cat"}"#)]),
            Some(told) => ScriptedModel::text(told),
        })
    }))
}

#[tokio::test]
async fn without_a_secret_of_the_mesh_nothing_of_memory_is_on_offer() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    world.ask("a", "hello").await?;

    let asked = world.model.requests()[0].body.to_string();
    assert!(!asked.contains("memory_") && !asked.contains("kb_"), "{asked}");
    Ok(())
}

#[tokio::test]
async fn a_memory_that_is_away_is_told_to_the_model_and_the_turn_goes_on() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let model = searching();
    let mut config = world.config();
    config.mesh.secret = MESH.into();
    config.mesh.memory_url = "http://127.0.0.1:1".into();
    let shared = Arc::clone(&model);
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;

    let answer = world.ask("a", "my cat?").await?;

    assert!(answer.starts_with("memory does not answer just now"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_memory_that_hangs_is_waited_for_once_and_not_for_long() -> anyhow::Result<()> {
    let world = World::start().await?;
    // The server accepts connections and does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let mut config = world.config();
    config.mesh.secret = MESH.into();
    config.mesh.memory_url = format!("http://{}", silent.local_addr()?);
    // Longer than a turn may take that does not wait for the memory.
    let limit = Duration::from_secs(10);
    config.runner.memory.recall_timeout = limit;
    let _runner = world.runner_with(config, |app| app).await?;

    let mut took = Vec::new();
    for n in 0..4 {
        let begun = std::time::Instant::now();
        world.ask("a", &format!("hello {n}")).await?;
        took.push(begun.elapsed());
    }

    assert!(took[0] >= limit, "it was not asked at all: {took:?}");
    // It is not asked for five seconds. On a busy machine a turn may begin later than that.
    assert!(took.iter().any(|one| *one < limit), "it is asked each time: {took:?}");
    Ok(())
}

#[tokio::test]
async fn a_memory_that_is_slow_for_one_tenant_is_still_asked_by_another() -> anyhow::Result<()> {
    let world = World::start().await?;
    let limit = Duration::from_secs(2);
    // The server accepts connections and does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let mut config = world.config();
    config.mesh.secret = MESH.into();
    config.mesh.memory_url = format!("http://{}", silent.local_addr()?);
    config.runner.memory.recall_timeout = limit;
    let _runner = world.runner_with(config, |app| app).await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let theirs = world.directory.agents().default_agent(other.id).await?;
    let key = SessionKey::api(&theirs.name, "anna")?;
    let foreign = NewMessage { key, agent: theirs.id, ..world.message("anna", "hello") };

    world.ask("a", "hello").await?;
    let begun = std::time::Instant::now();
    world.answer_in(other.id, foreign).await?;

    assert!(begun.elapsed() >= limit, "it was not asked: {:?}", begun.elapsed());
    Ok(())
}

/// A client of the memory, as the mesh's own services have one.
fn client(memory: &Remembers) -> anyhow::Result<MemoryClient> {
    Ok(MemoryClient::new(&memory.url, Mesh::new(Signer::new(&mesh())?, "gateway"))?)
}

/// All that is remembered in a tenant, as `user: text`.
async fn remembered(memory: &MemoryClient, tenant: TenantId) -> anyhow::Result<Vec<String>> {
    let who = pb::Who { everything: true, ..pb::Who::default() };
    let list = pb::ListItemsRequest { who: Some(who), ..pb::ListItemsRequest::default() };
    let mut all: Vec<String> = memory
        .list_items(tenant, list)
        .await?
        .items
        .into_iter()
        .map(|item| {
            format!("{}: {} {}", item.user, item.subject, item.content).replace(":  ", ": ")
        })
        .collect();
    all.sort();
    Ok(all)
}

fn last_said(chat: &Chat) -> &str {
    let said = chat.messages.iter().rev().find_map(|message| match message {
        ChatMessage::User { text, .. } => Some(text.as_str()),
        ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => None,
    });
    said.unwrap_or_default()
}

/// Remembers what it is told to, and says whether it knows the cat.
fn knowing(chat: &Chat) -> Reply {
    let told = last_said(chat);
    let is_answered = matches!(chat.messages.last(), Some(ChatMessage::Tool { .. }));
    match told.split_once("Remember: ") {
        Some((_, what)) if !is_answered => {
            let input = serde_json::json!({ "text": what, "type": "fact" }).to_string();
            ScriptedModel::calls(&[("a", "memory_save", &input)])
        }
        Some(_) => ScriptedModel::text(returned(chat).unwrap_or("nothing was returned")),
        None if chat.dynamic.contains("called Tom") => ScriptedModel::text("I know Tom"),
        None => ScriptedModel::text("I know no cat"),
    }
}

#[tokio::test]
async fn what_is_told_in_one_session_is_known_in_another_of_the_same_person_and_to_nobody_else()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let memory = world.memory().await?;
    let model = Arc::new(ScriptedModel::answering(|request| Ok(knowing(&request.chat))));
    let shared = Arc::clone(&model);
    let config = world.config_with(&memory);
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let theirs = world.directory.agents().default_agent(other.id).await?;
    let group = SessionKey::group(&world.agent.name, "telegram", "-100", None)?;
    let group = |text: &str| NewMessage { key: group.clone(), ..world.message("g", text) };

    let before = world.ask("anna/two", "what is my cat called?").await?;
    let told = world.ask("anna/one", "Remember: the cat is called Tom").await?;
    let same = world.ask("anna/two", "what is my cat called?").await?;
    let stranger = world.ask("ben", "what is my cat called?").await?;
    let alike = world.ask("annabel/two", "what is my cat called?").await?;
    let in_group = world.text(&world.send(group("what is my cat called?")).await?).await?;
    let owner = world.text(&world.send(world.owners("what is my cat called?")).await?).await?;
    let key = SessionKey::api(&theirs.name, "anna/two")?;
    let message = world.message("anna/two", "what is my cat called?");
    let foreign = NewMessage { key, agent: theirs.id, ..message };
    let foreign = world.answer_in(other.id, foreign).await?.text;

    assert_eq!(before, "I know no cat");
    assert!(told.starts_with("Remembered as itm_"), "{told}");
    assert_eq!(same, "I know Tom");
    for (who, answer) in [
        ("a stranger", stranger),
        ("one whose name begins alike", alike),
        ("a group", in_group),
        ("the owner", owner),
    ] {
        assert_eq!(answer, "I know no cat", "{who}");
    }
    assert!(!foreign.contains("Tom"), "{foreign}");
    // A group's own memory is the group's.
    world.text(&world.send(group("Remember: our cat is called Tom")).await?).await?;
    assert_eq!(world.text(&world.send(group("and the cat?")).await?).await?, "I know Tom");
    assert_eq!(world.ask("ben", "and the cat?").await?, "I know no cat");
    let all = remembered(&client(&memory)?, world.tenant).await?;
    let expected =
        ["api:anna: the cat is called Tom", "group:telegram:-100: our cat is called Tom"];
    assert_eq!(all, expected);
    Ok(())
}

/// Adds to the knowledge base what it is told to, and changes what it has added.
fn writing(chat: &Chat) -> Reply {
    if let Some(ChatMessage::Tool { output, .. }) = chat.messages.last() {
        return ScriptedModel::text(output);
    }
    let told = last_said(chat);
    if let Some((_, text)) = told.split_once("Add: ") {
        let input = serde_json::json!({ "text": text, "source": "Ann" }).to_string();
        return ScriptedModel::calls(&[("a", "kb_ingest", &input)]);
    }
    match told.split_once("Change ").and_then(|(_, change)| change.split_once(": ")) {
        Some((id, text)) => {
            let change = serde_json::json!({
                "id": id, "version": 1, "text": text, "source": "Ann",
            });
            ScriptedModel::calls(&[("b", "kb_update", &change.to_string())])
        }
        None => ScriptedModel::text("nothing to write"),
    }
}

#[tokio::test]
async fn what_an_agent_adds_to_the_knowledge_base_is_erased_with_the_conversation()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let memory = world.memory().await?;
    let model = Arc::new(ScriptedModel::answering(|request| Ok(writing(&request.chat))));
    let config = world.config_with(&memory);
    let _runner = world.runner_with(config, |app| app.with_demo(model)).await?;
    let owner = async |text: &str| -> anyhow::Result<(String, String)> {
        let sent = world.send(world.owners(text)).await?;
        Ok((sent.session.to_string(), world.text(&sent).await?))
    };

    let (session, added) = owner("Add: Cats sleep.").await?;
    let id = added.split([' ', ',']).find(|word| word.starts_with("doc_")).unwrap_or_default();
    let (same, changed) = owner(&format!("Change {id}: Cats sleep at noon.")).await?;
    let other = world.ask("anna", "Add: Dogs sleep.").await?;
    let brought = |user: &str, session: &str| {
        format!(
            "select count(*) from memory.sources where user_id = '{user}' and session = '{session}'"
        )
    };
    let sources = world.number(&brought("owner", &session)).await?;
    // Two turns of a message and an answer: what is indexed later would be there again.
    let turns =
        format!("select count(*) from memory.units where session = '{session}' and kind = 5");
    world.until("its turns are indexed", async || world.number(&turns).await.unwrap() == 4).await?;
    let who = pb::Who { everything: true, ..pb::Who::default() };
    let what = Some(pb::forget_request::What::Session(session.clone()));
    let forget = pb::ForgetRequest { who: Some(who), what };
    let proof = client(&memory)?.forget(world.tenant, forget).await?;

    assert!(added.starts_with("Added: doc_"), "{added}");
    assert_eq!((changed, same), (format!("Changed: {id}, version 2."), session));
    assert!(other.starts_with("Added: doc_"), "{other}");
    assert_eq!(sources, 2);
    let versions = proof.erased.iter().find(|count| count.what == "versions");
    assert_eq!(versions.map(|count| count.rows), Some(2));
    assert!(proof.left.iter().all(|count| count.rows == 0), "{:?}", proof.left);
    let left = "select text from memory.versions";
    assert_eq!(world.texts(left).await?, ["Dogs sleep."]);
    let of_anna = "select count(*) from memory.sources where user_id = 'api:anna'";
    assert_eq!(world.number(of_anna).await?, 1);
    Ok(())
}

#[tokio::test]
async fn notes_are_found_by_their_owner_and_by_nobody_else() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let memory = world.memory().await?;
    let model = Arc::new(ScriptedModel::answering(|request| {
        let chat = &request.chat;
        if let Some(ChatMessage::Tool { output, .. }) = chat.messages.last() {
            return Ok(ScriptedModel::text(output));
        }
        let said = last_said(chat).to_owned();
        Ok(match said.split_once(' ') {
            Some(("write", path)) => {
                let content = "# Diary\n\nThe boiler was repaired by Ms Lindqvist.\n";
                let input = serde_json::json!({ "path": path, "content": content }).to_string();
                ScriptedModel::calls(&[("w", "write", &input)])
            }
            Some(("delete", path)) => {
                let input = serde_json::json!({ "path": path }).to_string();
                ScriptedModel::calls(&[("d", "delete_file", &input)])
            }
            _ => ScriptedModel::calls(&[(
                "s",
                "memory_search",
                r#"{"query":"who repaired the boiler?"}"#,
            )]),
        })
    }));
    let mut config = world.config_with(&memory);
    config.runner.relay = Duration::from_millis(100);
    // The answers quote the note, and would be found once it is deleted.
    config.runner.memory.index_turns = false;
    let shared = Arc::clone(&model);
    let runner = world.runner_with(config.clone(), |app| app.with_demo(shared)).await?;
    let owner = async |text: &str| world.text(&world.send(world.owners(text)).await?).await;
    let path = "memory/202601/20260105.md";
    let stored = "select count(*) from memory.documents";
    let docs = async |number: i64| {
        let is = async || world.number(stored).await.is_ok_and(|found| found == number);
        world.until("the notes are indexed", is).await
    };

    // The template that every agent begins with is no note yet.
    owner("hello").await?;
    owner(&format!("write {path}")).await?;
    docs(1).await?;
    let found = owner("search").await?;
    let group = SessionKey::group(&world.agent.name, "telegram", "-100", None)?;
    let group = NewMessage { key: group, ..world.message("g", "search") };
    let in_group = world.text(&world.send(group).await?).await?;
    let stranger = world.ask("ben", "search").await?;

    assert!(
        found.contains(&format!("note · {path} · lines 3 to 3")) || found.contains(path),
        "{found}"
    );
    assert!(found.contains("Ms Lindqvist"), "{found}");
    for (who, told) in [("a group", in_group), ("a stranger", stranger)] {
        assert_eq!(told, "Nothing is remembered of this.", "{who}");
    }

    // A change made while no runner runs is processed by the next one.
    runner.stop().await?;
    let by = holdfast_workspace::ChangeAuthor::new("test", "tidying up");
    let edits = vec![
        holdfast_workspace::Edit::Delete {
            path: path.parse()?,
            base: holdfast_workspace::Base::Any,
        },
        holdfast_workspace::Edit::Put {
            path: "MEMORY.md".parse()?,
            content: b"Anna likes tea.\n".to_vec(),
            base: holdfast_workspace::Base::Any,
        },
    ];
    world.workspaces.commit(world.tenant, world.agent.id, &by, edits).await?;
    let shared = Arc::clone(&model);
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;
    let paths = "select path from memory.documents";
    world
        .until("what is gone is taken out", async || {
            world.texts(paths).await.is_ok_and(|paths| paths == ["MEMORY.md"])
        })
        .await?;
    let open = "select count(*) from workspace.trees where noted > indexed";
    world.until("all is indexed", async || world.number(open).await.is_ok_and(|n| n == 0)).await?;
    assert!(!owner("search").await?.contains("Lindqvist"));
    Ok(())
}

#[tokio::test]
async fn a_note_that_is_no_text_keeps_no_other_back_and_what_it_said_before_is_taken_out()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let memory = world.memory().await?;
    let mut config = world.config_with(&memory);
    config.runner.relay = Duration::from_millis(100);
    let _runner = world.runner_with(config, |app| app).await?;
    let by = holdfast_workspace::ChangeAuthor::new("test", "noting");
    let write = async |notes: &[(&str, &[u8])]| {
        let edits = notes.iter().map(|(path, content)| {
            let (path, content) = (path.parse()?, content.to_vec());
            let base = holdfast_workspace::Base::Any;
            anyhow::Ok(holdfast_workspace::Edit::Put { path, content, base })
        });
        let edits = edits.collect::<anyhow::Result<Vec<_>>>()?;
        anyhow::Ok(world.workspaces.commit(world.tenant, world.agent.id, &by, edits).await?)
    };
    let indexed = async |paths: &[&str]| {
        let sql = "select path from memory.documents order by path";
        let is = async || world.texts(sql).await.is_ok_and(|found| found == paths);
        world.until("the notes are indexed", is).await
    };

    write(&[("memory/a.md", b"The pin is 1234."), ("memory/b.md", b"tea"), ("memory/d.md", b"x")])
        .await?;
    indexed(&["memory/a.md", "memory/b.md", "memory/d.md"]).await?;
    let delete = holdfast_workspace::Edit::Delete {
        path: "memory/d.md".parse()?,
        base: holdfast_workspace::Base::Any,
    };
    world.workspaces.commit(world.tenant, world.agent.id, &by, vec![delete]).await?;
    // As an encrypted one; then one with a NUL, which is good UTF-8 and no text; then another.
    write(&[("memory/a.md", b"\xff\xfe\x01"), ("memory/b.md", b"a\0b"), ("memory/c.md", b"c")])
        .await?;

    indexed(&["memory/c.md"]).await?;
    let open = "select count(*) from workspace.trees where noted > indexed";
    world.until("all is indexed", async || world.number(open).await.is_ok_and(|n| n == 0)).await?;
    Ok(())
}

#[tokio::test]
async fn the_notes_of_the_last_days_are_in_the_owner_s_prompt_and_in_no_other() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.use_demo().await?;
    let model = Arc::new(ScriptedModel::answering(|request| {
        let knows = request.chat.dynamic.contains("boiler was repaired");
        Ok(ScriptedModel::text(if knows { "I noted it" } else { "I know nothing" }))
    }));
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let old = today.checked_sub(jiff::Span::new().days(4))?;
    let shared = Arc::clone(&model);
    let _runner = world.runner_with(world.config(), |app| app.with_demo(shared)).await?;
    let owner = async || world.text(&world.send(world.owners("boiler?")).await?).await;

    put_note(&world, old, "The boiler was repaired.\n").await?;
    let before = owner().await?;
    put_note(&world, today, "The boiler was repaired.\n").await?;
    // An agent's snapshot is cached for a second.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let after = owner().await?;
    let stranger = world.ask("ben", "boiler?").await?;

    assert_eq!((before.as_str(), after.as_str()), ("I know nothing", "I noted it"));
    assert_eq!(stranger, "I know nothing");
    Ok(())
}

/// Puts a note of a day among the agent's files.
async fn put_note(world: &World, day: jiff::civil::Date, text: &str) -> anyhow::Result<()> {
    let path = format!("memory/{}.md", day.strftime("%Y%m/%Y%m%d")).parse()?;
    let (content, base) = (text.as_bytes().to_vec(), holdfast_workspace::Base::Any);
    let edits = vec![holdfast_workspace::Edit::Put { path, content, base }];
    let by = holdfast_workspace::ChangeAuthor::new("test", "noting");
    world.workspaces.commit(world.tenant, world.agent.id, &by, edits).await?;
    Ok(())
}

#[tokio::test]
async fn the_days_of_notes_are_those_of_the_owner_s_time_zone() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let now = jiff::Timestamp::now();
    let day = |zone: &str| anyhow::Ok(now.to_zoned(jiff::tz::TimeZone::get(zone)?).date());
    let utc = day("UTC")?;
    // At any time one of the two zones has another date than UTC, which is the agent's zone.
    let (zone, only_there) = match day("Pacific/Kiritimati")? > utc {
        true => ("Pacific/Kiritimati", utc.tomorrow()?),
        false => ("Etc/GMT+12", utc.checked_sub(jiff::Span::new().days(3))?),
    };
    put_note(&world, only_there, "The boiler was repaired.\n").await?;
    let knows = async |text: &str| {
        world.text(&world.send(world.owners(text)).await?).await?;
        let request = world.model.requests().pop().unwrap();
        anyhow::Ok(request.body.to_string().contains("boiler was repaired"))
    };

    let before = knows("hello").await?;
    world.text(&world.send(world.owners(&format!("/timezone {zone}"))).await?).await?;
    let after = knows("and now?").await?;

    assert_eq!((before, after), (false, true), "{zone}");
    Ok(())
}

#[tokio::test]
async fn memory_takes_no_more_of_the_prompt_than_its_share() -> anyhow::Result<()> {
    let world = World::start().await?;
    let memory = world.memory().await?;
    let _runner = world.runner_with(world.config_with(&memory), |app| app).await?;
    let window = async |context: u64| {
        let card = ModelCard { context, ..ModelCard::default() };
        let model = "fake:one".parse()?;
        world.directory.models().put(world.tenant, Actor::Operator, &model, &card).await?;
        // An agent's snapshot is cached for a second.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        anyhow::Ok(())
    };
    let client = client(&memory)?;
    let item = pb::NewItem {
        kind: pb::Kind::Memory.into(),
        r#type: "fact".to_owned(),
        content: "kettle ".repeat(500),
        provenance: Some(pb::Provenance {
            kind: pb::SourceKind::User.into(),
            name: "test".to_owned(),
            ..pb::Provenance::default()
        }),
        ..pb::NewItem::default()
    };
    let who = pb::Who {
        agent: world.agent.id.to_string(),
        user: "owner".to_owned(),
        ..pb::Who::default()
    };
    let put =
        pb::PutItemsRequest { who: Some(who), items: vec![item], ..pb::PutItemsRequest::default() };
    client.put_items(world.tenant, put).await?;
    put_note(
        &world,
        jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC).date(),
        &"boiler ".repeat(4_000),
    )
    .await?;
    let words = async || {
        world.text(&world.send(world.owners("kettle?")).await?).await?;
        let prompt = world.model.requests().pop().unwrap().body.to_string();
        let count = |word: &str| prompt.matches(word).count();
        anyhow::Ok((count("kettle "), count("boiler ")))
    };

    window(100_000).await?;
    let (large_memory, large_notes) = words().await?;
    window(12_000).await?;
    let (small_memory, small_notes) = words().await?;

    // 1,500 tokens together, and for one memory a quarter of them; a word is one or two tokens.
    assert!((90..=375).contains(&large_memory), "{large_memory}");
    assert!((375..=1_500).contains(&large_notes), "{large_notes}");
    // A tenth of a small window.
    assert!((70..large_memory).contains(&small_memory), "{small_memory}");
    assert!((300..=1_200).contains(&small_notes) && small_notes < large_notes, "{small_notes}");
    Ok(())
}

/// Finds a memory in what it is asked to look through, in other words each time.
fn extracting(asked: &AtomicUsize, chat: &Chat) -> Reply {
    if &*chat.stable != EXTRACTOR {
        return knowing(chat);
    }
    if !last_said(chat).contains("my cat is called Tom") {
        return ScriptedModel::text("[]");
    }
    let time = asked.fetch_add(1, Ordering::SeqCst);
    let found = serde_json::json!([
        { "type": "fact", "content": format!("{time}{time}{time} cat called Tom") },
        { "type": "fact", "subject": "Anna", "predicate": "lives in", "object": format!("Oslo{time}") },
    ]);
    ScriptedModel::text(&format!("Here you are:\n```json\n{found}\n```"))
}

#[tokio::test]
async fn what_is_worth_it_is_taken_from_a_conversation_that_rests_and_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let memory = world.memory().await?;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let model =
        Arc::new(ScriptedModel::answering(move |request| Ok(extracting(&counted, &request.chat))));
    let mut config = world.config_with(&memory);
    config.runner.memory.extractions = 2;
    config.runner.memory.extract_after = Duration::from_millis(300);
    let runner = async || {
        let shared = Arc::clone(&model);
        world.runner_with(config.clone(), |app| app.with_demo(shared)).await
    };
    let first = runner().await?;
    let client = client(&memory)?;
    let done = async |number: i64| {
        let sql = "select count(*) from session.journal_readers
                   where reader = 'extraction' and pending is null";
        let is = async || world.number(sql).await.is_ok_and(|done| done == number);
        world.until("conversations were looked through", is).await
    };

    world.ask("anna/one", "my cat is called Tom, and I live in Oslo").await?;
    done(1).await?;
    let kept = remembered(&client, world.tenant).await?;
    assert_eq!(kept, ["api:anna: 000 cat called Tom", "api:anna: Anna Oslo0"]);
    assert_eq!(world.ask("anna/two", "what is my cat called?").await?, "I know Tom");
    done(2).await?;

    // As if it had died after it kept what it found, and before it could say so.
    first.stop().await?;
    let back = "update session.journal_readers
                set pending = upto, upto = 0, lease_until = now() - interval '1 second'
                where reader = 'extraction' and session_id in
                    (select session_id from session.sessions where key like '%anna/one')";
    assert_eq!(world.admin(back).await?, 1);
    let second = runner().await?;
    done(2).await?;

    assert_eq!(asked.load(Ordering::SeqCst), 2, "it was not asked again");
    assert_eq!(remembered(&client, world.tenant).await?, kept, "kept twice");

    // Processed entries are not processed again, not even by a new runner.
    second.stop().await?;
    // Other with each version of each row; what is counted as written is told late.
    let written = "select coalesce(sum(hashtext(ctid::text || xmin::text)), 0)::bigint
                   from session.journal_readers where reader = 'extraction'";
    let rows = world.number(written).await?;
    let _third = runner().await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(world.number(written).await?, rows);
    Ok(())
}

/// Stretches of conversations that were given back, for so many minutes at least.
async fn put_off(world: &World, minutes: u32) -> anyhow::Result<()> {
    let sql = format!(
        "select count(*) from session.journal_readers
         where reader = 'extraction' and pending is not null and lease_until > now() + interval '{minutes} minutes'"
    );
    let is = async || world.number(&sql).await.is_ok_and(|found| found == 1);
    world.until("a conversation is put off", is).await
}

/// As if the time had come for what was put off.
async fn again(world: &World) -> anyhow::Result<()> {
    let sql = "update session.journal_readers set lease_until = now() - interval '1 second'
               where reader = 'extraction'";
    assert_eq!(world.admin(sql).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_memory_that_is_long_away_loses_nothing_and_no_model_is_paid_meanwhile()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let model =
        Arc::new(ScriptedModel::answering(move |request| Ok(extracting(&counted, &request.chat))));
    let memory = world.memory().await?;
    let mut config = world.config_with(&memory);
    config.runner.memory.extractions = 1;
    config.runner.memory.extract_after = Duration::from_millis(300);
    let mut away = config.clone();
    away.mesh.memory_url = "http://127.0.0.1:1".into();
    let shared = Arc::clone(&model);
    let first = world.runner_with(away, |app| app.with_demo(shared)).await?;

    world.ask("anna", "my cat is called Tom").await?;
    // More often than what fails by itself is tried.
    for _ in 0..=holdfast_session::MAX_EXTRACTION_TRIES + 2 {
        put_off(&world, 10).await?;
        again(&world).await?;
    }
    put_off(&world, 10).await?;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    first.stop().await?;
    again(&world).await?;
    let _second = world.runner_with(config, |app| app.with_demo(model)).await?;

    let client = client(&memory)?;
    world
        .until("it is remembered", async || {
            remembered(&client, world.tenant).await.is_ok_and(|all| all.len() == 2)
        })
        .await
}

#[tokio::test]
async fn a_budget_that_is_spent_puts_off_what_is_to_be_remembered() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let asked = AtomicUsize::new(0);
    let model =
        Arc::new(ScriptedModel::answering(move |request| Ok(extracting(&asked, &request.chat))));
    let memory = world.memory().await?;
    let mut config = world.config_with(&memory);
    let runner = async |config: &agent_runner::Config| {
        let shared = Arc::clone(&model);
        world.runner_with(config.clone(), |app| app.with_demo(shared)).await
    };
    let tokens = async |tokens: u64| {
        world.sessions.usage().open_budget(world.tenant, None).await?;
        let budget = Budget { agent: None, tokens: Some(tokens), micros: None };
        anyhow::Ok(world.directory.budgets().put(world.tenant, Actor::Operator, &budget).await?)
    };

    let first = runner(&config).await?;
    world.ask("anna", "my cat is called Tom").await?;
    first.stop().await?;
    tokens(1).await?;
    config.runner.memory.extractions = 1;
    config.runner.memory.extract_after = Duration::from_millis(300);
    let second = runner(&config).await?;
    put_off(&world, 30).await?;
    second.stop().await?;
    let client = client(&memory)?;
    assert_eq!(remembered(&client, world.tenant).await?, Vec::<String>::new());

    tokens(1_000_000).await?;
    again(&world).await?;
    let _third = runner(&config).await?;
    world
        .until("it is remembered", async || {
            remembered(&client, world.tenant).await.is_ok_and(|all| all.len() == 2)
        })
        .await
}

#[tokio::test]
async fn what_is_more_than_the_model_reads_at_once_is_looked_through_in_parts() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.use_demo().await?;
    let asked = AtomicUsize::new(0);
    let model =
        Arc::new(ScriptedModel::answering(move |request| Ok(extracting(&asked, &request.chat))));
    let memory = world.memory().await?;
    let mut config = world.config_with(&memory);
    let shared = Arc::clone(&model);
    let first = world.runner_with(config.clone(), |app| app.with_demo(shared)).await?;
    // The matching memory is first here and last there.
    world.ask("anna", "my cat is called Tom").await?;
    for name in ["anna", "ben"] {
        for _ in 0..3 {
            world.ask(name, &"tell me more ".repeat(300)).await?;
        }
    }
    world.ask("ben", "my cat is called Tom").await?;
    first.stop().await?;

    config.runner.context_tokens = 6_000;
    config.runner.memory.extractions = 1;
    config.runner.memory.extract_after = Duration::from_millis(300);
    let _second = world.runner_with(config, |app| app.with_demo(model)).await?;

    let all = "select count(*) from session.journal_readers x
               join session.session_lease l using (tenant_id, session_id)
               where x.reader = 'extraction' and x.pending is null and x.upto = l.next_entry - 1";
    world.until("all was read", async || world.number(all).await.is_ok_and(|n| n == 2)).await?;
    let kept = remembered(&client(&memory)?, world.tenant).await?;
    let of = |name: &str| kept.iter().filter(|one| one.starts_with(name)).count();
    assert_eq!((of("api:anna"), of("api:ben")), (2, 2), "{kept:?}");
    Ok(())
}

#[tokio::test]
async fn what_was_said_before_a_person_was_erased_is_not_remembered_afterwards()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let asked = AtomicUsize::new(0);
    let model =
        Arc::new(ScriptedModel::answering(move |request| Ok(extracting(&asked, &request.chat))));
    let memory = world.memory().await?;
    let mut config = world.config_with(&memory);
    let shared = Arc::clone(&model);
    let first = world.runner_with(config.clone(), |app| app.with_demo(shared)).await?;
    let client = client(&memory)?;
    for name in ["anna", "ben"] {
        world.ask(name, "my cat is called Tom").await?;
    }

    let who = pb::Who { everything: true, ..pb::Who::default() };
    let what = Some(pb::forget_request::What::User("api:anna".to_owned()));
    client.forget(world.tenant, pb::ForgetRequest { who: Some(who), what }).await?;
    world.ask("anna", "hello again").await?;
    first.stop().await?;
    config.runner.memory.extractions = 1;
    config.runner.memory.extract_after = Duration::from_millis(300);
    let _second = world.runner_with(config, |app| app.with_demo(model)).await?;

    let all = "select count(*) from session.journal_readers
                   where reader = 'extraction' and pending is null";
    world.until("all was read", async || world.number(all).await.is_ok_and(|n| n == 2)).await?;
    let kept = remembered(&client, world.tenant).await?;
    assert!(kept.len() == 2 && kept.iter().all(|one| one.starts_with("api:ben")), "{kept:?}");
    Ok(())
}

#[tokio::test]
async fn a_new_beginning_has_what_was_said_before_remembered_at_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let memory = world.memory().await?;
    let asked = AtomicUsize::new(0);
    let model =
        Arc::new(ScriptedModel::answering(move |request| Ok(extracting(&asked, &request.chat))));
    let mut config = world.config_with(&memory);
    config.runner.memory.extractions = 1;
    config.runner.memory.extract_after = Duration::from_hours(1);
    // A turn that is indexed during its erasure stays until the second pass.
    config.runner.memory.index_turns = false;
    let shared = Arc::clone(&model);
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;
    let client = client(&memory)?;

    world.ask("anna", "my cat is called Tom").await?;
    assert_eq!(remembered(&client, world.tenant).await?, Vec::<String>::new());
    world.ask("anna", "/new").await?;
    let all = "select count(*) from session.journal_readers
               where reader = 'extraction' and pending is null";
    world.until("all was read", async || world.number(all).await.is_ok_and(|n| n == 1)).await?;
    assert_eq!(remembered(&client, world.tenant).await?.len(), 2);
    assert_eq!(world.ask("anna", "what is my cat called?").await?, "I know Tom");

    // Erased is erased, from every table, and counted.
    let who = pb::Who { everything: true, ..pb::Who::default() };
    let what = Some(pb::forget_request::What::User("api:anna".to_owned()));
    let forgotten = client.forget(world.tenant, pb::ForgetRequest { who: Some(who), what }).await?;
    assert!(forgotten.left.iter().all(|count| count.rows == 0), "{forgotten:?}");
    assert!(forgotten.erased.iter().any(|count| count.rows > 0), "{forgotten:?}");
    assert_eq!(world.ask("anna", "and now?").await?, "I know no cat");
    Ok(())
}
