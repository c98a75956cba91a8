//! Arguments of tools, and the other names of tools and of their families.

use std::{collections::BTreeSet, time::Duration};

use axum::http::HeaderMap;
use holdfast_agent::policy::{COMPANIONS, NATIVE};
use holdfast_directory::{Actor, NewAgent, NewProvider, ProviderKind};
use holdfast_llm::{ModelCard, ThinkingControl, ThinkingForm};
use holdfast_sandbox::BackendChoice;
use holdfast_session::NewMessage;
use holdfast_testkit::Reply;
use holdfast_tools::DuckDuckGo;
use holdfast_types::{Entry, SessionKey};
use serde_json::{Value, json};

use crate::world::World;

/// Has the model make these calls, one after another, and returns their results in order.
async fn results(
    world: &World,
    message: NewMessage,
    calls: impl IntoIterator<Item = (&str, Value)>,
) -> anyhow::Result<Vec<String>> {
    let mut replies: Vec<Reply> = calls
        .into_iter()
        .enumerate()
        .map(|(n, (tool, input))| Reply::call(format!("c{n}"), tool, input.to_string()))
        .collect();
    let made = replies.len();
    replies.push(Reply::text("done"));
    world.model.queue(replies);
    let sent = world.send(message).await?;
    world.text(&sent).await?;
    let journal = world.journal(sent.session).await?;
    let outputs: Vec<String> = journal
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Returned { output, .. } => Some(output),
            _ => None,
        })
        .collect();
    Ok(outputs[outputs.len() - made..].to_vec())
}

#[tokio::test]
async fn conversations_are_chosen_by_type_and_state_and_read_page_by_page() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    for text in ["one", "two", "three"] {
        world.ask("other", text).await?;
    }
    let key = SessionKey::api(&world.agent.name, "other")?;
    let page = |offset: u32| json!({ "session_key": key.as_str(), "limit": 2, "offset": offset });

    let seen = results(
        &world,
        world.owners("look"),
        [
            ("sessions_list", json!({ "type": "api", "state": "wait" })),
            ("sessions_list", json!({ "state": "running" })),
            ("session_status", json!({ "session_key": key.as_str() })),
            ("sessions_history", page(0)),
            ("sessions_history", page(2)),
            ("sessions_history", page(4)),
            ("sessions_history", json!({ "session": key.as_str(), "older": 1 })),
        ],
    )
    .await?;
    let foreign = results(
        &world,
        world.message("stranger", "look"),
        [("session_status", json!({ "session": key.as_str() }))],
    )
    .await?;

    assert_eq!(seen[0].lines().count(), 1, "{seen:?}");
    assert!(seen[0].contains(key.as_str()) && seen[0].contains("WAIT"), "{seen:?}");
    assert!(seen[1].contains("this one") && !seen[1].contains(key.as_str()), "{seen:?}");
    assert!(seen[2].contains(&format!("session: {} (api, WAIT)", key.as_str())), "{seen:?}");
    assert!(seen[2].contains("agent: main\n") && seen[2].contains("messages: 3"), "{seen:?}");
    let texts: Vec<bool> = seen[3..6].iter().map(|page| page.contains("has_more")).collect();
    assert_eq!(texts, [true, true, false], "{seen:?}");
    assert!(seen[3].contains("user: three") && !seen[3].contains("user: two"), "{seen:?}");
    assert!(seen[4].contains("user: two") && !seen[4].contains("user: one"), "{seen:?}");
    assert!(seen[5].contains("user: one") && !seen[5].contains("user: two"), "{seen:?}");
    assert!(seen[6].contains("unknown field `older`"), "{seen:?}");
    assert!(foreign[0].starts_with("there is no session"), "{foreign:?}");
    Ok(())
}

#[tokio::test]
async fn an_agent_without_a_model_is_listed_only_on_request() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let new = NewAgent {
        name: "mute".parse()?,
        model: Some("acme:one".to_owned()),
        ..NewAgent::default()
    };
    world.directory.agents().create(world.tenant, Actor::Operator, new).await?;

    let seen = results(
        &world,
        world.owners("look"),
        [("agents_list", json!({})), ("agents_list", json!({ "include_inactive": true }))],
    )
    .await?;

    assert!(seen[0].contains("main") && !seen[0].contains("mute"), "{seen:?}");
    assert!(seen[1].contains("- mute (acme:one) [inactive: "), "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_subagent_thinks_as_much_as_its_task_says() -> anyhow::Result<()> {
    let world = World::start().await?;
    let thinking = ThinkingControl { by: ThinkingForm::Effort, ..ThinkingControl::default() };
    let card = ModelCard { context: 100_000, thinking, ..ModelCard::default() };
    world
        .directory
        .models()
        .put(world.tenant, Actor::Operator, &"fake:one".parse()?, &card)
        .await?;
    let _runner = world.runner().await?;
    world.model.answer(|request| match request.last_user_text().as_str() {
        "count the stars" => Reply::text("seven"),
        _ if request.tool_results().is_empty() => {
            let input = json!({ "task": "count the stars", "thinking": "high", "wait": true });
            Reply::call("a", "sessions_spawn", input.to_string())
        }
        _ => Reply::text("done"),
    });

    world.ask("s", "how many stars?").await?;

    let requests = world.model.requests();
    let child = requests.iter().find(|request| request.last_user_text() == "count the stars");
    let child = child.unwrap().body.to_string();
    assert!(child.contains("thinking=high"), "{child}");
    assert!(requests[0].body.to_string().contains("thinking=off"), "{}", requests[0].body);
    Ok(())
}

#[tokio::test]
async fn names_that_other_assistants_use_reach_the_tools() -> anyhow::Result<()> {
    let world = World::start().await?;
    let memory = world.memory().await?;
    let _runner = world.runner_with(world.config_with(&memory), |app| app).await?;

    let seen = results(
        &world,
        world.owners("look"),
        [
            ("load_memory", json!({ "keyword": "tea" })),
            ("create_sub_agent", json!({ "name": "n", "prompt": "count", "agent_id": "nobody" })),
            ("get_session", json!({ "session_id": "agent:main:main" })),
            ("automations", json!({ "action": "status" })),
        ],
    )
    .await?;

    assert_eq!(seen[0], "Nothing is remembered of this.");
    assert!(seen[1].contains("may not give tasks to `nobody`"), "{seen:?}");
    assert!(seen[2].starts_with("session: agent:main:main (main, RUNNING)"), "{seen:?}");
    assert!(!seen[3].contains("there is no tool"), "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn the_name_of_a_tool_family_means_all_its_tools() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let families = ["filesystem", "scheduler", "web"].map(str::to_owned).to_vec();
    world.change_agent(|agent| agent.settings.tools = Some(families)).await?;

    world.ask("s", "hello").await?;

    let requests = world.model.requests();
    let mut offered = requests[0].tool_names();
    offered.retain(|tool| !tool.starts_with("tool_"));
    for tool in ["read", "write", "edit", "list_files", "web_fetch", "scheduler_add", "cron"] {
        let is_named = requests[0].body.to_string().contains(tool);
        assert!(is_named, "{tool} is not among {offered:?}");
    }
    for tool in ["session_status", "sessions_list", "message"] {
        assert!(!offered.contains(&tool), "{offered:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_value_is_kept_by_its_key_until_another_one_null_or_its_time() -> anyhow::Result<()> {
    let world = World::start().await?;
    let memory = world.memory().await?;
    let _runner = world.runner_with(world.config_with(&memory), |app| app).await?;
    let set = |value: Value| ("memory_set", json!({ "key": "home/city", "value": value }));
    let values = || ("memory_values", json!({ "prefix": "home/" }));
    let past = json!({ "key": "home/guest", "value": "Ben", "expires_at": "2020-01-01T00:00:00Z" });
    let detailed = json!({
        "key": "home/pet", "value": { "name": "Tom" }, "importance": 0.9, "tags": ["cat"],
        "expires_at": "2999-01-01T00:00:00Z",
    });

    let first = results(
        &world,
        world.message("anna/one", "keep"),
        [set(json!("Bergen")), set(json!("Oslo")), ("memory_set", past), values()],
    )
    .await?;
    let second = results(
        &world,
        world.message("anna/two", "keep"),
        [
            ("memory_search", json!({ "query": "home/city" })),
            set(Value::Null),
            ("memory_set", detailed),
            values(),
        ],
    )
    .await?;
    let stranger = results(&world, world.message("ben", "look"), [values()]).await?;

    assert!(first[0].starts_with("`home/city` is kept, as itm_"), "{first:?}");
    assert!(first[3].contains("home/city = \"Oslo\" · "), "{first:?}");
    assert!(!first[3].contains("Bergen") && !first[3].contains("guest"), "{first:?}");
    assert!(second[0].contains("home/city: Oslo"), "{second:?}");
    assert_eq!(second[1], "`home/city` has no value any more.");
    assert!(second[3].contains("home/pet = {\"name\":\"Tom\"}"), "{second:?}");
    assert!(second[3].contains("importance 0.9 · cat · until 2999-01-01"), "{second:?}");
    assert!(!second[3].contains("home/city"), "{second:?}");
    assert_eq!(stranger, ["No such value is kept."]);
    Ok(())
}

#[tokio::test]
async fn an_edit_replaces_a_text_that_is_there_exactly_and_once_unless_all_are_meant()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let edit = |old: &str, new: &str| json!({ "path": "list.md", "old": old, "new": new });
    let written = "buy tea\nbuy milk\nbuy tea\n";
    let file = async || world.file("people/api=s/list.md").await;

    let refused = results(
        &world,
        world.message("s", "write"),
        [
            ("write", json!({ "path": "list.md", "content": written })),
            ("edit", edit("buy tea", "buy rice")),
            ("edit", edit("buy  milk", "buy rice")),
        ],
    )
    .await?;
    let kept = file().await?;
    let once = [("edit", edit("milk\nbuy tea", "milk\nbuy salt"))];
    results(&world, world.message("s", "edit once"), once).await?;
    let changed_once = file().await?;
    let mut all = edit("buy", "sell");
    all["all_occurrences"] = json!(true);
    results(&world, world.message("s", "edit all"), [("edit", all)]).await?;

    assert!(refused[1].contains("2 times, in lines 1, 3: take more"), "{refused:?}");
    assert!(refused[2].contains("0 times, but for its spaces"), "{refused:?}");
    assert_eq!(kept.as_deref(), Some(written));
    assert_eq!(changed_once.as_deref(), Some("buy tea\nbuy milk\nbuy salt\n"));
    assert_eq!(file().await?.as_deref(), Some("sell tea\nsell milk\nsell salt\n"));
    Ok(())
}

#[tokio::test]
async fn a_search_of_memory_returns_ten_answers_of_a_score_that_suffices() -> anyhow::Result<()> {
    let world = World::start().await?;
    let memory = world.memory().await?;
    let _runner = world.runner_with(world.config_with(&memory), |app| app).await?;
    let key = |n: usize| json!({ "key": format!("tea/{n}"), "value": "likes tea" });
    let set: Vec<(&str, Value)> = (0..12).map(|n| ("memory_set", key(n))).collect();
    results(&world, world.message("anna", "keep"), set).await?;

    let found = results(
        &world,
        world.message("anna", "look"),
        [
            ("memory_search", json!({ "query": "tea" })),
            ("memory_search", json!({ "query": "tea", "max_results": 12 })),
            ("memory_search", json!({ "query": "tea", "min_score": 1_000_000 })),
        ],
    )
    .await?;

    let count = |text: &str| text.matches("likes tea").count();
    assert_eq!((count(&found[0]), count(&found[1])), (10, 12), "{found:?}");
    assert_eq!(found[2], "Nothing is remembered of this.");
    Ok(())
}

#[tokio::test]
async fn a_runner_with_everything_set_up_registers_the_24_native_tools() -> anyhow::Result<()> {
    let world = World::start().await?;
    let memory = world.memory().await?;
    let mut config = world.config_with(&memory);
    config.runner.sandbox.backend = BackendChoice::Plain;
    config.runner.browser.path = Some("/usr/bin/chromium".into());
    config.runner.web.search.duckduckgo = Some(DuckDuckGo::default());
    let _runner = world.runner_with(config, |app| app).await?;
    let policies = world.directory.policies();
    world
        .until("the runner has announced its tools", async || {
            policies.known_tools().await.is_ok_and(|known| !known.is_empty())
        })
        .await?;

    let known = policies.known_tools().await?;

    let known: BTreeSet<&str> = known.iter().map(|tool| tool.name.as_str()).collect();
    let missing: Vec<&&str> = NATIVE.iter().filter(|tool| !known.contains(**tool)).collect();
    assert!(missing.is_empty(), "{missing:?} of {known:?}");
    // What is not native belongs to a native tool, or is one of these.
    let companions: Vec<&str> = COMPANIONS.iter().map(|(tool, _)| *tool).collect();
    let others = known.iter().filter(|tool| !NATIVE.contains(tool) && !companions.contains(tool));
    let others: Vec<&str> = others.copied().collect();
    assert_eq!(
        others,
        ["calendar", "chain_run", "find_skills", "notion", "self", "subagents", "todo", "wallet"]
    );
    Ok(())
}

/// A server that answers searches as Brave does, with the key that it was asked with.
async fn brave() -> anyhow::Result<String> {
    let search = async |headers: HeaderMap| {
        let key = headers.get("x-subscription-token").and_then(|key| key.to_str().ok());
        let title = format!("found with {}", key.unwrap_or("no key"));
        let hit = json!({ "title": title, "url": "https://one.example/", "description": "x" });
        axum::Json(json!({ "web": { "results": [hit] } }))
    };
    let routes = axum::Router::new().route("/res/v1/web/search", axum::routing::get(search));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(url)
}

#[tokio::test]
async fn a_tenant_searches_the_web_with_its_own_key_and_without_any_has_no_search()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let _runner = world.runner().await?;
    let search = || [("web_search", json!({ "query": "rust" }))];
    let put = async |tenant, key: &str, base_url: &str| {
        let provider = NewProvider {
            name: "brave".to_owned(),
            kind: ProviderKind::OpenAi,
            base_url: base_url.to_owned(),
            api_key: Some(key.into()),
            default_model: None,
            ..NewProvider::default()
        };
        anyhow::Ok(world.directory.providers().put(tenant, Actor::Operator, provider).await?)
    };
    let url = brave().await?;
    put(other.id, "of-another", &url).await?;

    let none = results(&world, world.owners("search"), search()).await?;
    let before = world.model.requests()[0].tool_names().contains(&"web_search");
    put(world.tenant, "our-own", &url).await?;
    // An agent's snapshot is cached for a second.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let found = results(&world, world.owners("search"), search()).await?;

    assert!(!before && none[0].contains("not one of yours"), "{none:?}");
    assert!(found[0].contains("Results for: rust (via Brave)"), "{found:?}");
    assert!(found[0].contains("1. found with our-own"), "{found:?}");
    Ok(())
}
