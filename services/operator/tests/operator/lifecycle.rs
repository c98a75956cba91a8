//! Creation, change, deletion, drift, adoption and conflicts of agents, channels and providers.

use std::time::Duration;

use holdfast_directory::{Actor, BehaviorSettings, NewAgent};
use holdfast_types::{AgentId, AgentName, HitPointSettings, QueueMode, SelfImproveSettings};
use serde_json::json;

use crate::world::{PATIENCE, World, ready};

#[tokio::test]
async fn an_agent_is_created_changed_and_deleted_as_its_resource_is() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;

    world.apply("Agent", "coach", &json!({"tenant": "acme", "instructions": "Be kind."}));
    let created = world.until_ready("Agent", "coach").await;
    let agent = world.agent(tenant, "coach").await.unwrap();
    assert_eq!(
        (&*agent.instructions, created["status"]["id"].as_str()),
        ("Be kind.", Some(&*agent.id.to_string()))
    );

    world.apply(
        "Agent",
        "coach",
        &json!({"tenant": "acme", "instructions": "Be brief.", "queueMode": "collect"}),
    );
    world.until_ready("Agent", "coach").await;
    let changed = world.agent(tenant, "coach").await.unwrap();
    assert_eq!((changed.id, &*changed.instructions), (agent.id, "Be brief."));
    assert_eq!(changed.settings.queue_mode, QueueMode::Collect);

    // A field that is removed has its default again.
    world.apply("Agent", "coach", &json!({"tenant": "acme", "instructions": "Be brief."}));
    world.until_ready("Agent", "coach").await;
    assert_eq!(world.agent(tenant, "coach").await.unwrap().settings.queue_mode, QueueMode::Steer);

    world.kube.delete("Agent", "coach").unwrap();
    world.until_gone("Agent", "coach").await;
    assert!(world.agent(tenant, "coach").await.is_none());
    world.until_events("coach", &["Created", "Updated", "Deleted"]).await;
    world.check();
}

#[tokio::test]
async fn settings_that_are_no_fields_of_the_resource_stay_when_it_changes() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    world.apply("Agent", "coach", &json!({"tenant": "acme", "behaviors": {}}));
    world.until_ready("Agent", "coach").await;
    let agent = world.agent(tenant, "coach").await.unwrap();
    let improves = Some(SelfImproveSettings { max_per_day: 2, ..SelfImproveSettings::default() });
    let mut settings = agent.settings.clone();
    settings.self_improve = improves;
    let new = NewAgent {
        name: agent.name.clone(),
        description: agent.description.clone(),
        instructions: agent.instructions.clone(),
        model: agent.model.clone(),
        is_default: agent.is_default,
        settings,
    };
    world.directory.agents().update(tenant, Actor::Operator, "coach", new).await.unwrap();

    world.apply(
        "Agent",
        "coach",
        &json!({"tenant": "acme", "behaviors": {}, "instructions": "Be brief."}),
    );
    world.until_ready("Agent", "coach").await;
    let changed = world.agent(tenant, "coach").await.unwrap();
    assert_eq!((&*changed.instructions, changed.settings.self_improve), ("Be brief.", improves));

    // Without behaviours there is nothing by which it could improve itself.
    world.apply("Agent", "coach", &json!({"tenant": "acme", "instructions": "Be brief."}));
    world.until_ready("Agent", "coach").await;
    assert_eq!(world.agent(tenant, "coach").await.unwrap().settings.self_improve, None);
    world.check();
}

#[tokio::test]
async fn a_behavior_that_cannot_be_used_is_told_with_what_is_wrong() {
    let world = World::start().await;
    let _operator = world.operator().await;
    world.tenant("acme").await;

    let documents = json!({"do": "process_rule: |\n  # Work.\n\n  {{new_msg}}\n"});
    world.apply("Agent", "coach", &json!({"tenant": "acme", "behaviorDocuments": documents}));

    let told = world.until_reason("Agent", "coach", "Refused").await;
    assert!(told.contains("`process_rule`: `{{new_msg}}` cannot be used here"), "{told}");
}

#[tokio::test]
async fn behaviors_and_hit_points_are_as_the_resource_says_and_others_go() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    let documents = async |agent: AgentId| {
        let all = world.directory.behaviors().list(tenant, Some(agent)).await.unwrap();
        all.into_iter().map(|one| (one.name, one.source)).collect::<Vec<_>>()
    };
    let is = |name: &str, source: &str| (name.to_owned(), source.to_owned());

    world.apply("Agent", "coach", &json!({"tenant": "acme", "behaviors": {"maxSteps": 9},
        "hitPoints": {"max": 300}, "behaviorDocuments": {"do": "process_rule: a", "look": "process_rule: b"}}));
    world.until_ready("Agent", "coach").await;
    let agent = world.agent(tenant, "coach").await.unwrap();
    let expected = BehaviorSettings { max_steps: 9, ..BehaviorSettings::default() };
    assert_eq!(agent.settings.behaviors, Some(expected));
    let expected = HitPointSettings { max: 300, ..HitPointSettings::default() };
    assert_eq!(agent.settings.hit_points, Some(expected));
    assert_eq!(
        documents(agent.id).await,
        [is("do", "process_rule: a"), is("look", "process_rule: b")]
    );

    // One that was changed by hand returns, and another goes.
    let place = |name| (Some(agent.id), name);
    let stored = world.directory.behaviors();
    stored.put(tenant, Actor::Operator, place("do"), None, "process_rule: c").await.unwrap();
    stored.put(tenant, Actor::Operator, place("more"), None, "process_rule: d").await.unwrap();
    let end = tokio::time::Instant::now() + PATIENCE;
    while documents(agent.id).await != [is("do", "process_rule: a"), is("look", "process_rule: b")]
    {
        assert!(tokio::time::Instant::now() < end, "{:?}", documents(agent.id).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    world.apply("Agent", "coach", &json!({"tenant": "acme", "behaviorDocuments": {"do": "a: ["}}));
    world.until_reason("Agent", "coach", "Refused").await;
    // Without the fields the agent has no behaviours and no hit points, and its documents stay.
    world.apply("Agent", "coach", &json!({"tenant": "acme"}));
    world.until_ready("Agent", "coach").await;
    let agent = world.agent(tenant, "coach").await.unwrap();
    assert_eq!((&agent.settings.behaviors, &agent.settings.hit_points), (&None, &None));
    assert!(documents(agent.id).await.contains(&is("do", "process_rule: a")));
    world.check();
}

#[tokio::test]
async fn what_is_changed_by_hand_returns_to_the_resource() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    world.apply("Agent", "coach", &json!({"tenant": "acme", "instructions": "Be kind."}));
    world.until_ready("Agent", "coach").await;

    let new = NewAgent {
        name: AgentName::new("coach"),
        instructions: "Be rude.".into(),
        ..NewAgent::default()
    };
    world.directory.agents().update(tenant, Actor::Operator, "coach", new).await.unwrap();
    world
        .until_agent(tenant, "coach", |agent| agent.is_some_and(|it| it.instructions == "Be kind."))
        .await;
    // Until then the operator may not have reported what it wrote.
    world.until_events("coach", &["Created", "DriftCorrected"]).await;

    world.directory.agents().delete(tenant, Actor::Operator, "coach").await.unwrap();
    world
        .until_agent(tenant, "coach", |agent| agent.is_some_and(|it| it.instructions == "Be kind."))
        .await;
    world.until_events("coach", &["Created", "DriftCorrected", "Recreated"]).await;
    world.check();
}

#[tokio::test]
async fn nothing_is_written_while_nothing_differs() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    world.apply(
        "Agent",
        "coach",
        &json!({"tenant": "acme", "tools": ["read"], "heartbeat": {"every": "10m"}}),
    );
    world.until_ready("Agent", "coach").await;
    let (agent, version) = (
        world.agent(tenant, "coach").await.unwrap(),
        world.kube.get("Agent", "coach").unwrap()["metadata"]["resourceVersion"].clone(),
    );

    // Three comparisons.
    tokio::time::sleep(Duration::from_secs(7)).await;

    assert_eq!(world.agent(tenant, "coach").await.unwrap().updated_at, agent.updated_at);
    assert_eq!(world.kube.get("Agent", "coach").unwrap()["metadata"]["resourceVersion"], version);
    world.check();
}

#[tokio::test]
async fn what_is_there_is_adopted_by_its_name() {
    let world = World::start().await;
    let (tenant, _) = world.directory.tenants().ensure("acme").await.unwrap();
    let new = NewAgent { name: AgentName::new("coach"), ..NewAgent::default() };
    let there = world.directory.agents().create(tenant.id, Actor::Operator, new).await.unwrap();
    let _operator = world.operator().await;

    world.apply("Tenant", "acme", &json!({"rate": 777}));
    world.until_ready("Tenant", "acme").await;
    world.apply(
        "Agent",
        "the-coach",
        &json!({"tenant": "acme", "name": "coach", "description": "x"}),
    );
    world.until_ready("Agent", "the-coach").await;

    let agent = world.agent(tenant.id, "coach").await.unwrap();
    assert_eq!((agent.id, &*agent.description), (there.id, "x"));
    assert_eq!(world.directory.tenants().get("acme").await.unwrap().rate, 777);
    world.until_events("acme", &["Adopted"]).await;
    world.until_events("the-coach", &["Adopted"]).await;
    world.check();
}

#[tokio::test]
async fn of_two_resources_for_one_object_the_older_one_counts() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    world.apply("Agent", "first", &json!({"tenant": "acme", "name": "coach", "description": "1"}));
    world.until_ready("Agent", "first").await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    world.apply("Agent", "second", &json!({"tenant": "acme", "name": "coach", "description": "2"}));
    let message = world.until_reason("Agent", "second", "NameTaken").await;
    assert!(message.contains("`first`"), "{message}");

    // Deleting the second one deletes nothing; deleting the first one hands it over.
    world.kube.delete("Agent", "second").unwrap();
    world.until_gone("Agent", "second").await;
    assert_eq!(world.agent(tenant, "coach").await.unwrap().description, "1");
    world.apply("Agent", "third", &json!({"tenant": "acme", "name": "coach", "description": "3"}));
    world.until_reason("Agent", "third", "NameTaken").await;
    world.kube.delete("Agent", "first").unwrap();
    world.until_ready("Agent", "third").await;
    assert_eq!(world.agent(tenant, "coach").await.unwrap().description, "3");
    world.check();
}

#[tokio::test]
async fn a_refused_value_is_told_and_applied_once_it_can_be() {
    let world = World::start().await;
    let _operator = world.operator().await;
    world.tenant("acme").await;

    world.apply("Agent", "coach", &json!({"tenant": "acme", "model": "mine:qwen3"}));
    let message = world.until_reason("Agent", "coach", "NotFound").await;
    assert!(message.contains("mine"), "{message}");
    world.apply("Agent", "martian", &json!({"tenant": "acme", "timeZone": "Mars/Base"}));
    world.until_reason("Agent", "martian", "Refused").await;
    world.apply("Agent", "lost", &json!({"tenant": "nobody"}));
    world.until_reason("Agent", "lost", "TenantNotFound").await;

    world.apply(
        "ModelProvider",
        "mine",
        &json!({"tenant": "acme", "kind": "openai", "apiKey": {"name": "mine", "key": "api-key"}}),
    );
    world.until_reason("ModelProvider", "mine", "SecretNotFound").await;
    world.secret("mine", "other", "sk-1");
    world.until_reason("ModelProvider", "mine", "SecretKeyNotFound").await;
    world.secret("mine", "api-key", "sk-1");
    world.until_ready("ModelProvider", "mine").await;
    world.until_ready("Agent", "coach").await;
    world.check();
}

#[tokio::test]
async fn the_key_of_a_tenant_is_no_secret_of_a_resource() {
    let world = World::start().await;
    let _operator = world.operator().await;
    world.tenant("acme").await;
    world.tenant("other").await;

    let key = json!({"name": "holdfast-tenant-other", "key": "key"});
    let spec = json!({"tenant": "acme", "kind": "openai", "baseUrl": "https://evil.example", "apiKey": key});
    world.apply("ModelProvider", "mine", &spec);

    world.until_reason("ModelProvider", "mine", "SecretOfOperator").await;
    world.check();
}

#[tokio::test]
async fn a_channel_follows_its_secret() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    world.secret("bot", "token", "1:first");
    world.apply(
        "Channel",
        "bot",
        &json!({"tenant": "acme", "type": "telegram",
        "settings": {"allow": ["1"]}, "secret": {"name": "bot", "key": "token"}}),
    );
    world.until_ready("Channel", "bot").await;
    let accounts = world.directory.accounts().list(tenant, None).await.unwrap();
    let id = accounts[0].id;
    assert_eq!((accounts.len(), &*accounts[0].name), (1, "bot"));
    assert_eq!(accounts[0].settings["allow"], json!(["1"]));

    world.secret("bot", "token", "1:second");
    let version = world.kube.get("Secret", "bot").unwrap()["metadata"]["resourceVersion"].clone();
    world.until("Channel", "bot", |channel| channel["status"]["secretVersion"] == version).await;
    let opened = world.directory.accounts().get(tenant, id).await.unwrap();
    assert!(format!("{:?}", opened.account).contains("bot"));
    let text = serde_json::to_string(&world.kube.get("Channel", "bot")).unwrap();
    assert!(!text.contains("1:first") && !text.contains("1:second"), "{text}");

    world.kube.delete("Channel", "bot").unwrap();
    world.until_gone("Channel", "bot").await;
    assert!(world.directory.accounts().list(tenant, None).await.unwrap().is_empty());
    world.check();
}

#[tokio::test]
async fn a_channel_with_several_secrets_follows_each_of_them() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    world.secret("slack-bot", "token", "xoxb-1");
    world.secret("slack-app", "token", "xapp-1");
    let spec = |secrets: serde_json::Value| {
        json!({"tenant": "acme", "type": "slack", "settings": {"allow": ["U012AB3CD"]},
            "secret": {"name": "slack-bot", "key": "token"}, "secrets": secrets})
    };
    world.apply("Channel", "team", &spec(json!({"bot": {"name": "slack-app", "key": "token"}})));
    let refused = |channel: &serde_json::Value| {
        let condition = &channel["status"]["conditions"][0];
        let message = condition["message"].as_str().unwrap_or_default();
        condition["reason"] == "Refused" && message.contains("there are bot_token, app_token")
    };
    world.until("Channel", "team", refused).await;

    world.apply(
        "Channel",
        "team",
        &spec(json!({"app_token": {"name": "slack-app", "key": "token"}})),
    );
    world.until_ready("Channel", "team").await;
    let accounts = world.directory.accounts().list(tenant, None).await.unwrap();
    let stored =
        || async { world.directory.accounts().get(tenant, accounts[0].id).await.unwrap().secrets };
    assert_eq!(stored().await, json!({"bot_token": "xoxb-1", "app_token": "xapp-1"}));

    let version = |channel: &serde_json::Value| channel["status"]["secretVersion"].clone();
    let before = version(&world.kube.get("Channel", "team").unwrap());
    world.secret("slack-app", "token", "xapp-2");
    world.until("Channel", "team", |channel| version(channel) != before).await;
    assert_eq!(stored().await, json!({"bot_token": "xoxb-1", "app_token": "xapp-2"}));

    world.apply(
        "Channel",
        "chat",
        &json!({"tenant": "acme", "type": "irc", "settings": {"server": "irc.example.org", "nick": "agent"}}),
    );
    world.until_ready("Channel", "chat").await;
    world.check();
}

#[tokio::test]
async fn a_retained_agent_stays_and_the_default_agent_is_not_deleted() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let tenant = world.tenant("acme").await;
    world.apply("Agent", "coach", &json!({"tenant": "acme", "deletionPolicy": "Retain"}));
    world.until_ready("Agent", "coach").await;
    world.apply("Agent", "main", &json!({"tenant": "acme", "default": true}));
    world.until_ready("Agent", "main").await;

    world.kube.delete("Agent", "coach").unwrap();
    world.until_gone("Agent", "coach").await;
    assert!(world.agent(tenant, "coach").await.is_some());

    world.kube.delete("Agent", "main").unwrap();
    let message = world.until_reason("Agent", "main", "Conflict").await;
    assert!(message.contains("default"), "{message}");
    world.apply("Agent", "chief", &json!({"tenant": "acme", "default": true}));
    world.until_gone("Agent", "main").await;
    assert!(world.agent(tenant, "chief").await.unwrap().is_default);
    world.check();
}

#[tokio::test]
async fn fields_of_others_are_left_alone() {
    let world = World::start().await;
    let _operator = world.operator().await;
    world.tenant("acme").await;
    world.apply("Agent", "coach", &json!({"tenant": "acme"}));
    let agent = world.until_ready("Agent", "coach").await;
    assert_eq!(agent["metadata"]["finalizers"], json!(["holdfast.dev/operator"]));

    // Another person applies the same field with another value: refused, as for any writer.
    let other =
        crate::world::resource("Agent", "coach", &json!({"tenant": "acme", "description": "b"}));
    world.kube.apply(&other, "ben").unwrap();
    let mine =
        crate::world::resource("Agent", "coach", &json!({"tenant": "acme", "description": "c"}));
    let refused = world.kube.apply(&mine, "anna").unwrap_err();
    assert_eq!(refused["code"], 409, "{refused}");
    // The operator's status is its own, and its finalizer survives applies of people.
    let agent = world.until_ready("Agent", "coach").await;
    assert_eq!(ready(&agent)["reason"], "Applied");
    assert_eq!(agent["metadata"]["finalizers"], json!(["holdfast.dev/operator"]));
    world.check();
}
