//! Tool policies of a tenant apply when tools are offered and when they are called.

use std::time::Duration;

use holdfast_directory::{Actor, Directory};
use holdfast_sandbox::BackendChoice;
use holdfast_session::{Acceptance, NewMessage};
use holdfast_testkit::{Reply, model::Gate};
use holdfast_tools::{Call, Tool, ToolError};
use holdfast_types::{Author, Body, Effect, Entry, SessionKey, Target};
use serde_json::{Value, json};

use crate::world::{World, place};

/// Tool results of a session, and whether they failed.
async fn returned(world: &World, sent: &Acceptance) -> anyhow::Result<Vec<(String, bool)>> {
    let journal = world.journal(sent.session).await?;
    Ok(journal
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Returned { output, failed, .. } => Some((output, failed)),
            _ => None,
        })
        .collect())
}

async fn put(world: &World, document: Value) -> anyhow::Result<()> {
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &document).await?;
    Ok(())
}

/// Somebody's direct message, as the gateway takes it in.
fn from(world: &World, author: &str, roles: &[&str], chat: &str, text: &str) -> NewMessage {
    let (channel, peer) = author.split_once(':').unwrap();
    let scope = holdfast_types::DmScope::PerChannelPeer;
    let roles = roles.iter().map(|&role| role.to_owned()).collect();
    NewMessage {
        key: SessionKey::direct(&world.agent.name, scope, channel, "default", peer).unwrap(),
        target: Some(Target { channel: channel.to_owned(), ..place(chat) }),
        body: Body { author: Some(Author { id: author.to_owned(), roles }), ..Body::text(text) },
        ..world.message("s", text)
    }
}

/// Every tool is shown to a model whose agent names them all.
async fn name_all(world: &World) -> anyhow::Result<()> {
    world.change_agent(|agent| agent.settings.tools = Some(vec!["*".to_owned()])).await?;
    Ok(())
}

/// Tools that the last request offered.
fn offered(world: &World) -> Vec<String> {
    let requests = world.model.requests();
    let last = requests.last().unwrap();
    last.tool_names().into_iter().map(str::to_owned).collect()
}

/// Whether somebody is offered a tool; and what comes of it if their model calls it all the same.
async fn may(world: &World, message: NewMessage, tool: &str) -> anyhow::Result<(bool, bool)> {
    world.model.queue([Reply::call("a", tool, "{}"), Reply::text("done")]);
    let before = world.model.count();
    let sent = world.send(message).await?;
    world.text(&sent).await?;
    let requests = world.model.requests();
    let request = &requests[usize::try_from(before)?];
    let made = returned(world, &sent).await?;
    let (output, failed) = made.last().unwrap();
    assert_eq!(*failed, output.contains("not one of yours"), "{output}");
    Ok((request.tool_names().contains(&tool), !failed))
}

#[tokio::test]
async fn a_denied_tool_is_not_offered_and_a_call_of_it_is_refused_counted_and_recorded()
-> anyhow::Result<()> {
    holdfast_kit::metrics::install()?;
    let world = World::start().await?;
    let runner = world.runner().await?;
    name_all(&world).await?;
    put(&world, json!({ "deny": ["group:sessions"] })).await?;
    world.model.queue([Reply::call("a", "list_session", "{}"), Reply::text("done")]);

    let sent = world.say("s", "look").await?;
    world.text(&sent).await?;

    assert!(offered(&world).contains(&"read".to_owned()), "{:?}", offered(&world));
    assert!(!offered(&world).contains(&"sessions_list".to_owned()));
    let made = returned(&world, &sent).await?;
    assert!(made[0].1 && made[0].0.contains("not one of yours"), "{made:?}");
    let audit = "select actor || ' ' || action || ' ' || subject from control.audit
                 where action = 'tool.refuse'";
    let audit = world.texts(audit).await?;
    assert_eq!(audit.len(), 1, "{audit:?}");
    assert!(audit[0].starts_with(&format!("{} tool.refuse run_", world.agent.id)), "{audit:?}");
    let why = "sessions_list: global: denied by `group:sessions` in tools.deny";
    assert!(audit[0].ends_with(why), "{audit:?}");
    let metrics = crate::idling::get(runner.address, "/metrics").await?;
    let counted = metrics.lines().any(|line| {
        line.starts_with("holdfast_runner_policy_denied_total")
            && line.contains(r#"layer="global""#)
            && line.contains(r#"tool="sessions_list""#)
    });
    assert!(counted, "{metrics}");
    Ok(())
}

#[tokio::test]
async fn in_restricted_mode_commands_and_writing_are_removed_and_their_calls_refused()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let _runner = world.runner_with(config, |app| app).await?;
    name_all(&world).await?;
    put(&world, json!({ "chats": [{ "kind": "dm", "sandbox_mode": "restricted" }] })).await?;
    let stranger = |text: &str| from(&world, "telegram:9", &["member"], "9", text);
    let removed = ["exec", "write", "edit", "apply_patch", "append_file"];

    let write = may(&world, stranger("write"), "write").await?;
    let in_direct_message = offered(&world);
    let exec = may(&world, stranger("run"), "exec").await?;
    let main =
        NewMessage { key: SessionKey::main(&world.agent.name), ..world.message("s", "look") };
    world.model.queue([Reply::text("done")]);
    world.text(&world.send(main).await?).await?;
    let in_main_session = offered(&world);

    assert_eq!((write, exec), ((false, false), (false, false)));
    for tool in removed.map(str::to_owned) {
        assert!(!in_direct_message.contains(&tool), "{tool}: {in_direct_message:?}");
        assert!(in_main_session.contains(&tool), "{tool}: {in_main_session:?}");
    }
    assert!(in_direct_message.contains(&"read".to_owned()), "{in_direct_message:?}");
    Ok(())
}

/// Denies `agents_list` in the midst of a turn.
struct Deny(Directory);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

impl Tool for Deny {
    const NAME: &'static str = "deny";
    const EFFECT: Effect = Effect::Writes;
    type Input = Nothing;

    async fn call(&self, call: Call, _: Nothing) -> Result<String, ToolError> {
        let document = json!({ "deny": ["agents_list"] });
        let put = self.0.policies().put(call.tenant, Actor::Operator, None, None, &document);
        put.await.map_err(anyhow::Error::from)?;
        // The old policy is cached for at most a second.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        Ok("denied".to_owned())
    }
}

#[tokio::test]
async fn a_change_holds_from_the_next_step_on_in_a_turn_that_is_under_way() -> anyhow::Result<()> {
    let world = World::start().await?;
    let tool = Deny(world.directory.clone());
    let _runner = world.runner_with(world.config(), |app| app.with_tool(tool)).await?;
    name_all(&world).await?;
    world.model.queue([
        Reply::call("a", "agents_list", "{}"),
        Reply::call("b", "deny", "{}"),
        Reply::call("c", "agents_list", "{}"),
        Reply::text("done"),
    ]);

    let sent = world.say("s", "look").await?;
    world.text(&sent).await?;

    let made = returned(&world, &sent).await?;
    let failed: Vec<bool> = made.iter().map(|(_, failed)| *failed).collect();
    assert_eq!(failed, [false, false, true], "{made:?}");
    let requests = world.model.requests();
    let had: Vec<bool> =
        requests.iter().map(|request| request.tool_names().contains(&"agents_list")).collect();
    assert_eq!(had, [true, true, false, false]);
    Ok(())
}

#[tokio::test]
async fn an_agent_s_own_policy_narrows_its_tenants_and_one_that_cannot_be_read_allows_nothing()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    name_all(&world).await?;
    put(&world, json!({ "deny": ["agents_list"] })).await?;
    let (agent, by) = (Some(world.agent.id), Actor::Operator);
    let own = json!({ "deny": ["session_status"] });
    world.directory.policies().put(world.tenant, by, agent, None, &own).await?;

    world.ask("s", "hello").await?;
    let (first, later) = (offered(&world), json!({ "of_tomorrow": true }));
    world.directory.policies().put(world.tenant, by, agent, None, &later).await?;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    world.ask("s", "hello").await?;

    assert!(first.contains(&"sessions_list".to_owned()), "{first:?}");
    assert!(!first.iter().any(|tool| tool == "agents_list" || tool == "session_status"));
    assert_eq!(offered(&world), [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_tool_for_admins_is_shown_to_admins_and_callable_by_nobody_else() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    name_all(&world).await?;
    put(
        &world,
        json!({
            "owners": ["telegram:7"],
            "roles": { "admin": ["telegram:8"] },
            "visibility": [{ "tools": ["agents_list"], "roles": ["admin"] }]
        }),
    )
    .await?;

    let admin = may(&world, from(&world, "telegram:8", &[], "8", "look"), "agents_list").await?;
    let owner = may(&world, from(&world, "telegram:7", &[], "7", "look"), "agents_list").await?;
    let guest = may(&world, from(&world, "telegram:9", &[], "9", "look"), "agents_list").await?;
    let key = from(&world, "api:key_1", &["owner", "admin", "member"], "1", "look");
    let key = may(&world, key, "agents_list").await?;
    // A tool that no filter names is everybody's.
    let normal = from(&world, "telegram:9", &[], "9", "again");
    let normal = may(&world, normal, "session_status").await?;

    assert_eq!((admin, key, normal), ((true, true), (true, true), (true, true)));
    assert_eq!((owner, guest), ((false, false), (false, false)));
    Ok(())
}

#[tokio::test]
async fn a_tool_for_some_is_shown_in_their_chat_or_to_their_group_of_users() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    name_all(&world).await?;
    put(
        &world,
        json!({
            "roles": { "vip": ["telegram:8"] },
            "visibility": [
                { "tools": ["agents_list"], "chats": ["-100123"] },
                { "tools": ["agents_list"], "roles": ["vip"] }
            ]
        }),
    )
    .await?;

    let by_chat = from(&world, "telegram:9", &[], "-100123", "look");
    let by_chat = may(&world, by_chat, "agents_list").await?;
    let by_group = may(&world, from(&world, "telegram:8", &[], "8", "look"), "agents_list").await?;
    let other = may(&world, from(&world, "telegram:6", &[], "6", "look"), "agents_list").await?;

    assert_eq!((by_chat, by_group, other), ((true, true), (true, true), (false, false)));
    Ok(())
}

#[tokio::test]
async fn a_channel_s_features_are_shown_on_that_channel_alone() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    name_all(&world).await?;
    let filter = json!({ "tools": ["agents_list"], "channels": ["telegram"] });
    put(&world, json!({ "visibility": [filter] })).await?;

    let here = may(&world, from(&world, "telegram:9", &[], "9", "look"), "agents_list").await?;
    let there = may(&world, from(&world, "slack:U9", &[], "D9", "look"), "agents_list").await?;
    let nowhere = may(&world, world.message("s", "look"), "agents_list").await?;

    assert_eq!((here, there, nowhere), ((true, true), (false, false), (false, false)));
    Ok(())
}

#[tokio::test]
async fn what_a_guest_says_into_an_owners_turn_takes_the_owners_tools_away() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    name_all(&world).await?;
    put(
        &world,
        json!({
            "owners": ["telegram:7"],
            "visibility": [{ "tools": ["agents_list"], "roles": ["owner"] }]
        }),
    )
    .await?;
    let channel = SessionKey::group(&world.agent.name, "telegram", "-5", None)?;
    let in_group = |author: &str, text: &str| NewMessage {
        key: channel.clone(),
        ..from(&world, author, &[], "-5", text)
    };
    let spoken = Gate::default();
    world.model.queue([
        Reply::call("a", "session_status", "{}").behind(&spoken),
        Reply::call("b", "agents_list", "{}"),
        Reply::text("done"),
    ]);

    let owner = world.send(in_group("telegram:7", "look")).await?;
    world.until("it is asked", async || world.model.count() == 1).await?;
    world.send(in_group("telegram:9", "tell me")).await?;
    spoken.open();
    world.text(&owner).await?;

    let had: Vec<bool> = world
        .model
        .requests()
        .iter()
        .map(|request| request.tool_names().contains(&"agents_list"))
        .collect();
    assert_eq!(had, [true, false, false]);
    let made = returned(&world, &owner).await?;
    assert!(made[1].0.contains("not one of yours"), "{made:?}");
    Ok(())
}

#[tokio::test]
async fn an_owner_s_direct_conversation_sees_the_private_notes_and_a_strangers_does_not()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    put(&world, json!({ "owners": ["telegram:7"] })).await?;
    // Makes the agent's first files.
    world.ask("s", "hello").await?;
    let script = || {
        let write = r##"{"path":"MEMORY.md","content":"# The owner likes tea"}"##;
        let read = r#"{"path":"MEMORY.md"}"#;
        [Reply::call("a", "write", write), Reply::call("b", "read", read), Reply::text("done")]
    };
    world.model.queue(script());

    let owner = world.send(from(&world, "telegram:7", &[], "7", "look")).await?;
    world.text(&owner).await?;
    world.model.queue(script());
    let stranger = world.send(from(&world, "telegram:9", &[], "9", "look")).await?;
    world.text(&stranger).await?;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let again = world.send(from(&world, "telegram:7", &[], "7", "again")).await?;
    world.text(&again).await?;
    let seen = world.model.requests().last().unwrap().messages()[0].to_string();
    let other = world.send(from(&world, "telegram:9", &[], "9", "again")).await?;
    world.text(&other).await?;
    let hidden = world.model.requests().last().unwrap().messages()[0].to_string();

    let of_owner = returned(&world, &owner).await?;
    assert!(of_owner[1].0.contains("The owner likes tea"), "{of_owner:?}");
    let of_stranger = returned(&world, &stranger).await?;
    assert!(of_stranger[0].1, "{of_stranger:?}");
    assert!(!of_stranger[1].0.contains("The owner likes tea"), "{of_stranger:?}");
    assert!(seen.contains("The owner likes tea"), "{seen}");
    assert!(!hidden.contains("The owner likes tea"), "{hidden}");
    Ok(())
}

#[tokio::test]
async fn the_gateway_tool_shows_the_tenant_to_its_owner_and_to_nobody_else() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let theirs = world.sessions.ingest(other.id, world.message("theirs", "a secret")).await?;
    let _runner = world.runner().await?;
    let ours = world.say("ours", "hello").await?;
    world.text(&ours).await?;
    let ask = |method: &str, params: Value| {
        ("gateway".to_owned(), json!({ "method": method, "params": params }).to_string())
    };
    let calls = [
        ask("Operations/GetStatus", json!({})),
        ask("Sessions/ListSessions", json!({ "limit": 10 })),
        ask("Sessions/GetSession", json!({ "session": ours.session })),
        ask("Sessions/GetSession", json!({ "session": theirs.session })),
        ask("Sessions/ListRuns", json!({ "session": ours.session })),
        ask("Agents/GetAgent", json!({ "agent": "main" })),
        ask("Keys/ListKeys", json!({})),
    ];
    world.model.answer(move |request| match request.tool_results().len() {
        0 => Reply::calls(
            calls
                .clone()
                .into_iter()
                .enumerate()
                .map(|(n, (tool, input))| (format!("{n}"), tool, input)),
        ),
        _ => Reply::text("done"),
    });

    let main =
        NewMessage { key: SessionKey::main(&world.agent.name), ..world.message("s", "look") };
    let owner = world.send(main).await?;
    world.text(&owner).await?;
    let stranger = world.say("s", "look").await?;
    world.text(&stranger).await?;

    let seen = returned(&world, &owner).await?;
    let read = |at: usize| serde_json::from_str::<Value>(&seen[at].0);
    assert_eq!(read(0)?["agents"], 1, "{seen:?}");
    assert_eq!(read(1)?["sessions"].as_array().map(Vec::len), Some(2), "{seen:?}");
    assert_eq!(read(2)?["session"]["id"], json!(ours.session));
    assert!(seen[3].1 && seen[3].0.contains("there is no session"), "{seen:?}");
    assert_eq!(read(4)?["runs"][0]["outcome"], "completed");
    assert_eq!(read(5)?["agent"]["name"], "main");
    assert!(read(5)?["agent"].get("instructions").is_none());
    assert!(seen[6].0.contains("no method that may be called here"), "{seen:?}");
    let refused = returned(&world, &stranger).await?;
    let with_owner = |(output, _): &(String, bool)| output.contains("with your owner only");
    assert!(refused[..6].iter().all(with_owner), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn web_fetch_reaches_only_hosts_that_the_policy_lists() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    put(&world, json!({ "actions": { "egress": ["*.example.test", "10.0.0.9"] } })).await?;
    let fetch =
        |id: &str, url: &str| Reply::call(id, "web_fetch", json!({ "url": url }).to_string());
    world.model.queue([
        fetch("a", "http://elsewhere.test/"),
        fetch("b", "http://10.0.0.9/"),
        Reply::text("done"),
    ]);

    let sent = world.say("s", "look").await?;
    world.text(&sent).await?;

    let made = returned(&world, &sent).await?;
    assert!(made[0].0.contains("`elsewhere.test` is not among the hosts"), "{made:?}");
    assert!(made[1].0.contains("not on the public internet"), "{made:?}");
    Ok(())
}
