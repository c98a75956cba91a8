//! Resources of subagents, and how their requester waits for them, checks them and stops them.

use std::time::Duration;

use holdfast_directory::NewMcpServer;
use holdfast_pg::Pools;
use holdfast_session::{SubagentFilter, SubagentOutcome};
use holdfast_testkit::{Reply, model::Request};
use holdfast_workspace::{Base, ChangeAuthor, Edit, Workspaces};

use crate::{
    mcp::{self, server::Server},
    world::World,
};

const TASK: &str = "do your part";

/// Asks for a subagent with these arguments when told to; as the subagent, does what `part` says.
fn script(
    spawn: &str,
    part: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    let spawn = spawn.replace("TASK", TASK);
    move |asked| {
        let said = asked.last_user_text();
        match asked.tool_results().as_slice() {
            _ if said == TASK => part(asked),
            _ if said.contains("just ") => Reply::text("told later"),
            [] => Reply::call("a", "sessions_spawn", spawn.clone()),
            results => Reply::text(results[0].1.clone()),
        }
    }
}

/// Result of the subagent's first call.
fn first_result(world: &World) -> String {
    let requests = world.model.requests();
    let found = requests
        .iter()
        .find(|asked| asked.last_user_text() == TASK && !asked.tool_results().is_empty());
    found.map(|asked| asked.tool_results()[0].1.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_subagent_has_the_tools_of_its_bundle_and_no_others() -> anyhow::Result<()> {
    let world = World::start().await?;
    let spawn = r#"{"task":"TASK","bundle":"look","tools":["web_search"],"wait":true}"#;
    world.model.answer(script(spawn, |asked| match asked.tool_results().as_slice() {
        [] => Reply::call("b", "write", r#"{"path":"x.txt","content":"x"}"#),
        _ => Reply::text("tried"),
    }));
    world
        .change_agent(|agent| {
            let tools = vec!["read".to_owned(), "list_files".to_owned()];
            agent.settings.bundles.insert("look".to_owned(), tools);
        })
        .await?;
    let _runner = world.runner().await?;

    let told = world.ask("s", "go").await?;

    assert!(told.contains("tried"), "{told}");
    assert!(first_result(&world).contains("not one of yours"), "{}", first_result(&world));
    let requests = world.model.requests();
    let child = requests.iter().find(|asked| asked.last_user_text() == TASK).unwrap();
    assert!(!child.tool_names().contains(&"write"), "{:?}", child.tool_names());
    assert!(child.tool_names().contains(&"read"), "{:?}", child.tool_names());
    let listed = world
        .sessions
        .subagents()
        .list(world.tenant, &SubagentFilter { most: 9, ..SubagentFilter::default() })
        .await?;
    assert_eq!(listed[0].given.bundle, "look");
    assert_eq!(listed[0].given.tools.clone().unwrap(), ["list_files", "read", "web_search"]);
    assert!(listed[0].max_steps.is_some() && listed[0].max_tokens.is_some());
    Ok(())
}

#[tokio::test]
async fn a_bundle_chooses_the_tools_of_servers_that_a_subagent_has() -> anyhow::Result<()> {
    let (world, server) = (World::start().await?, Server::start().await?);
    for name in ["x", "y"] {
        let new = NewMcpServer { name: name.to_owned(), ..mcp::at(&server.url()) };
        mcp::put(&world, new).await?;
    }
    world
        .change_agent(|agent| {
            for (name, tool) in [("one", "mcp_x_echo"), ("server", "group:mcp:y")] {
                agent.settings.bundles.insert(name.to_owned(), vec![tool.to_owned()]);
            }
        })
        .await?;
    let _runner = world.runner_with(mcp::config(&world), |app| app).await?;

    let all_of_y = ["mcp_y_buy", "mcp_y_echo", "mcp_y_hang", "mcp_y_report"];
    for (bundle, tools, made) in [("one", &["mcp_x_echo"][..], 0), ("server", &all_of_y[..], 1)] {
        let spawn = format!(r#"{{"task":"TASK","bundle":"{bundle}","wait":true}}"#);
        world.model.answer(script(&spawn, |asked| match asked.tool_results().as_slice() {
            [] => Reply::calls([
                ("a", "mcp_x_echo", r#"{"text":"hello"}"#),
                ("b", "mcp_y_echo", r#"{"text":"hello"}"#),
            ]),
            _ => Reply::text("tried"),
        }));
        let before = world.model.requests().len();
        let told = world.ask(bundle, "go").await?;

        assert!(told.contains("tried"), "{bundle}: {told}");
        let requests = world.model.requests().split_off(before);
        let of_child: Vec<_> =
            requests.iter().filter(|asked| asked.last_user_text() == TASK).collect();
        // The tools are there at the first request, although nobody has looked for them.
        assert_eq!(of_child[0].tool_names(), tools, "{bundle}");
        let results = of_child[1].tool_results();
        assert!(results[made].1.contains("hello! (key s3cret)"), "{bundle}: {results:?}");
        assert!(results[1 - made].1.contains("not one of yours"), "{bundle}: {results:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_subagent_has_no_tool_that_the_message_it_is_for_left_out() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(script(r#"{"task":"TASK","wait":true}"#, |asked| {
        match asked.tool_results().as_slice() {
            [] => Reply::call("b", "write", r#"{"path":"x.txt","content":"x"}"#),
            _ => Reply::text("tried"),
        }
    }));
    let _runner = world.runner().await?;
    let mut narrow = world.message("s", "go");
    narrow.body.tools = Some(vec!["read".to_owned(), "sessions_spawn".to_owned()]);

    let sent = world.send(narrow).await?;
    world.text(&sent).await?;

    assert!(first_result(&world).contains("not one of yours"), "{}", first_result(&world));
    assert_eq!(world.file("people/api=s/x.txt").await?, None);
    Ok(())
}

#[tokio::test]
async fn a_bundle_that_there_is_not_is_refused_with_those_that_there_are() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(script(r#"{"task":"TASK","bundle":"god"}"#, |_| Reply::text("x")));
    let _runner = world.runner().await?;

    let told = world.ask("s", "go").await?;

    assert!(told.contains("there is no bundle `god`; there are: none, read"), "{told}");
    assert_eq!(world.number("select count(*) from session.subagents").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_subagent_looks_and_writes_only_where_it_was_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    let files = Workspaces::new(Pools::lazy(&world.config().database, "test")?);
    let secret =
        Edit::Put { path: "secret.txt".parse()?, content: b"s3cret".to_vec(), base: Base::Absent };
    let by = ChangeAuthor::new("test", "for the test");
    files.commit(world.tenant, world.agent.id, &by, vec![secret]).await?;
    let spawn = r#"{"task":"TASK","read":["docs"],"write":["out/"],"wait":true}"#;
    world.model.answer(script(spawn, |asked| match asked.tool_results().as_slice() {
        [] => Reply::calls([
            ("b", "read", r#"{"path":"secret.txt"}"#),
            ("c", "write", r#"{"path":"docs/a.txt","content":"x"}"#),
            ("d", "write", r#"{"path":"out/a.txt","content":"x"}"#),
            ("e", "read", r#"{"path":"out/a.txt"}"#),
            ("f", "list_files", "{}"),
            ("g", "exec", r#"{"command":"cat secret.txt"}"#),
        ]),
        results => {
            let lines: Vec<String> =
                results.iter().map(|(id, text)| format!("{id}: {text}")).collect();
            Reply::text(lines.join("\n"))
        }
    }));
    world.change_agent(|_| {}).await?;
    let _runner = world.runner().await?;

    let told = world.ask("s", "go").await?;

    assert!(
        told.contains("b: error: `secret.txt` is outside of where you may look: docs"),
        "{told}"
    );
    assert!(
        told.contains("c: error: `docs/a.txt` is outside of where you may write: out"),
        "{told}"
    );
    assert_eq!(world.file("people/api=s/out/a.txt").await?.as_deref(), Some("x"));
    assert_eq!(world.file("people/api=s/docs/a.txt").await?, None);
    let listed = told.split("f: ").nth(1).unwrap_or_default();
    assert!(listed.contains("out/a.txt") && !listed.contains("secret.txt"), "{told}");
    assert!(!told.contains("s3cret"), "{told}");
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_waited_for_is_told_in_the_turn_and_not_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(script(r#"{"task":"TASK","wait":true}"#, |_| Reply::text("seven stars")));
    let _runner = world.runner().await?;

    let sent = world.say("s", "go").await?;
    let told = world.text(&sent).await?;

    assert!(told.contains("seven stars"), "{told}");
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(
        world
            .number("select count(*) from session.inbox where body->>'event' = 'subagent'")
            .await?,
        0
    );
    let children = world.sessions.subagents().children(world.tenant, sent.session).await?;
    assert_eq!(children[0].outcome, Some(SubagentOutcome::Ok));
    Ok(())
}

#[tokio::test]
async fn a_runner_that_dies_while_it_waits_waits_again_for_the_same_one() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(script(r#"{"task":"TASK","wait":true}"#, |asked| {
        match asked.tool_results().as_slice() {
            [] => Reply::call("b", "list_files", "{}"),
            _ => Reply::text("seven stars"),
        }
    }));
    world.model.latency(Duration::from_millis(400));
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(2);
    let first = world.runner_with(config.clone(), |app| app).await?;

    let sent = world.say("s", "go").await?;
    world
        .until("the subagent is made", async || {
            world.number("select count(*) from session.subagents").await.is_ok_and(|n| n == 1)
        })
        .await?;
    first.kill();
    let _second = world.runner_with(config, |app| app).await?;

    let told = world.text(&sent).await?;
    assert!(told.contains("seven stars"), "{told}");
    assert_eq!(world.number("select count(*) from session.subagents").await?, 1);
    let told_later = "select count(*) from session.inbox where body->>'event' = 'subagent'";
    assert_eq!(world.number(told_later).await?, 0);
    Ok(())
}

#[tokio::test]
async fn subagents_are_listed_and_one_that_is_stopped_is_said_to_have_failed() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let scripted =
        script(r#"{"task":"TASK","label":"slow"}"#, |_| Reply::hang(Duration::from_secs(20)));
    world.model.answer(move |asked| {
        let results = asked.tool_results();
        match asked.last_user_text().as_str() {
            "how are they?" if results.is_empty() => Reply::call("l", "subagents", "{}"),
            "how are they?" => Reply::text(results[0].1.clone()),
            text if text.starts_with("stop ") && results.is_empty() => {
                let session = text.trim_start_matches("stop ");
                let input = format!(r#"{{"action":"stop","session":"{session}"}}"#);
                Reply::call("s", "subagents", input)
            }
            text if text.starts_with("stop ") => Reply::text(results[0].1.clone()),
            // The turn that stops it may hear of its end before it answers.
            text if text.contains("just failed") => {
                let result = asked.messages().iter().rev().find(|one| one["role"] == "tool");
                let stopped = result.map(|one| one["content"].to_string()).unwrap_or_default();
                Reply::text(stopped)
            }
            _ => scripted(asked),
        }
    });
    let _runner = world.runner().await?;
    let sent = world.say("s", "go").await?;
    world.text(&sent).await?;
    world
        .until("it runs", async || {
            let running = "select count(*) from session.session_lease where state = 'RUNNING'";
            world.number(running).await.is_ok_and(|n| n == 1)
        })
        .await?;

    let listed = world.ask("s", "how are they?").await?;
    assert!(listed.contains(r#""label":"slow""#) && listed.contains("running"), "{listed}");
    let other = world.ask("t", "how are they?").await?;
    assert!(other.contains("no subagents"), "{other}");
    let child = world.sessions.subagents().children(world.tenant, sent.session).await?.remove(0);
    let foreign = world.ask("t", &format!("stop {}", child.session)).await?;
    assert!(foreign.contains("has no such subagent"), "{foreign}");
    let stopped = world.ask("s", &format!("stop {}", child.session)).await?;
    assert!(stopped.contains("It is stopped"), "{stopped}");

    world
        .until("its end is told", async || {
            let told = "select count(*) from session.inbox where body->>'event' = 'subagent' \
                        and body->>'text' like '%just failed%'";
            world.number(told).await.is_ok_and(|n| n == 1)
        })
        .await?;
    let again = world.ask("s", &format!("stop {}", child.session)).await?;
    assert!(again.contains("has ended already (`error`)"), "{again}");
    Ok(())
}
