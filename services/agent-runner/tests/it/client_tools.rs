//! Tools of a client: what the model is offered, how a turn ends with calls, and how it goes on.

use std::time::Duration;

use holdfast_directory::{Actor, NewProvider, ProviderKind};
use holdfast_session::{Acceptance, MessageStatus, NewMessage, TurnOutcome};
use holdfast_testkit::{Reply, Request};
use holdfast_types::{AnswerOptions, Body, ClientResult, Handover, QueueMode, SessionState};
use serde_json::{Value, json};

use crate::world::World;

fn options(extra: Value) -> Option<Box<AnswerOptions>> {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": false,
    });
    let tool = |name: &str, strict| json!({"name": name, "description": "of the client", "parameters": schema, "strict": strict});
    let mut options = json!({"tools": [tool("weather", true), tool("ask_person", false)]});
    for (name, value) in extra.as_object().unwrap() {
        options[name] = value.clone();
    }
    Some(Box::new(serde_json::from_value(options).unwrap()))
}

fn message(world: &World, text: &str, extra: Value) -> NewMessage {
    let body = Body { answer_options: options(extra), ..Body::text(text) };
    NewMessage { body, mode: QueueMode::Followup, ..world.message("s", text) }
}

/// Sends what the client found out, as the gateway does.
async fn send_results(
    world: &World,
    handover: &Handover,
    outputs: &[&str],
) -> anyhow::Result<Acceptance> {
    let result = |(call, output): (&holdfast_types::ClientCall, &&str)| ClientResult {
        call: call.call.clone(),
        output: (*output).to_owned(),
    };
    let results = handover.calls.iter().zip(outputs).map(result).collect();
    let body = Body { results, answer_options: options(json!({})), ..Body::default() };
    let mode = QueueMode::Followup;
    world.send(NewMessage { body, mode, ..world.message("s", "") }).await
}

async fn handed_over(
    world: &World,
    sent: &Acceptance,
) -> anyhow::Result<(MessageStatus, Handover)> {
    let answer = world.answer(sent).await?;
    let handover = answer.handover.clone();
    let handover = handover.ok_or_else(|| anyhow::anyhow!("no calls: {answer:?}"))?;
    Ok((answer, handover))
}

/// All results of tools in a request: (call id, text).
fn results(request: &Request) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let tools = request.messages().iter().filter(|message| message["role"] == "tool");
    tools.map(|tool| (text(&tool["tool_call_id"]), text(&tool["content"]))).collect()
}

async fn state(world: &World, sent: &Acceptance) -> anyhow::Result<SessionState> {
    Ok(world.sessions.views().session(world.tenant, sent.session).await?.state)
}

#[tokio::test]
async fn calls_of_a_client_wait_for_it_and_any_runner_goes_on_with_the_results()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let first = world.runner().await?;
    world.model.queue([
        Reply::calls([
            ("a", "weather", r#"{"city": "Paris"}"#),
            ("b", "agents_list", "{}"),
            ("c", "ask_person", "{"),
        ])
        .saying("I will look."),
        Reply::text("It rains."),
    ]);

    let sent = world.send(message(&world, "how is the weather?", json!({}))).await?;
    let (answer, handover) = handed_over(&world, &sent).await?;

    assert_eq!(
        (answer.outcome, answer.text.as_str()),
        (Some(TurnOutcome::Completed), "I will look.")
    );
    let named: Vec<(&str, &str)> =
        handover.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(named, [("weather", r#"{"city": "Paris"}"#), ("ask_person", "{")]);
    assert_eq!(state(&world, &sent).await?, SessionState::WaitForMsg);
    let offered = world.model.requests()[0].body["tools"].to_string();
    assert!(offered.contains("ask_person") && offered.contains("web_fetch"), "{offered}");
    first.kill();
    let _second = world.runner().await?;

    let next = send_results(&world, &handover, &["rain", "a coat"]).await?;

    assert_eq!(world.text(&next).await?, "It rains.");
    let requests = world.model.requests();
    let [_, request] = requests.as_slice() else { panic!("{requests:?}") };
    let results = request.tool_results();
    let result = |call: &str| {
        let found = results.iter().find(|(id, _)| id == call);
        found.map(|(_, output)| output.as_str()).unwrap_or_default()
    };
    assert_eq!((result("a"), result("c")), ("rain", "a coat"), "{results:?}");
    assert!(result("b").contains("main"), "{results:?}");
    assert!(request.body["messages"].as_array().unwrap().last().unwrap()["role"] == "tool");
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn calls_without_results_end_at_their_deadline_and_the_conversation_goes_on()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.client_tool_timeout = Duration::from_millis(300);
    let _runner = world.runner_with(config, |app| app).await?;
    world.model.queue([Reply::call("a", "weather", r#"{"city": "Paris"}"#), Reply::text("I see.")]);
    let sent = world.send(message(&world, "look", json!({}))).await?;
    handed_over(&world, &sent).await?;

    world
        .until("the calls have ended", async || {
            world.kinds(sent.session).await.is_ok_and(|kinds| kinds.contains(&"returned"))
        })
        .await?;

    assert_eq!(state(&world, &sent).await?, SessionState::Wait);
    assert_eq!(world.model.count(), 1, "nobody asked for an answer");
    assert_eq!(world.ask("s", "and now?").await?, "I see.");
    let results = results(&world.model.requests()[1]);
    assert!(results[0].1.contains("did not send a result"), "{results:?}");
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn another_message_ends_the_wait_and_the_model_is_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::call("a", "weather", r#"{"city": "Paris"}"#), Reply::text("Well.")]);
    let sent = world.send(message(&world, "look", json!({}))).await?;
    handed_over(&world, &sent).await?;

    assert_eq!(world.ask("s", "never mind").await?, "Well.");

    let results = results(&world.model.requests()[1]);
    assert!(results[0].1.contains("not made"), "{results:?}");
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn strict_arguments_that_break_their_schema_go_back_to_the_model() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([
        Reply::call("a", "weather", r#"{"town": "Paris"}"#),
        Reply::call("b", "weather", r#"{"city": "Paris"}"#),
    ]);

    let sent = world.send(message(&world, "look", json!({}))).await?;
    let (_, handover) = handed_over(&world, &sent).await?;

    assert_eq!(handover.calls.len(), 1);
    assert_eq!(handover.calls[0].call, "b");
    let results = results(&world.model.requests()[1]);
    assert!(results[0].1.contains("arguments cannot be used"), "{results:?}");
    let tools = &world.model.requests()[0].body["tools"];
    let weather =
        tools.as_array().unwrap().iter().find(|tool| tool["function"]["name"] == "weather");
    assert_eq!(weather.unwrap()["function"]["strict"], true);
    Ok(())
}

#[tokio::test]
async fn one_call_at_a_time_is_handed_over_if_the_client_wants_that() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([
        Reply::calls([
            ("a", "weather", r#"{"city": "Paris"}"#),
            ("b", "weather", r#"{"city": "Rome"}"#),
        ]),
        Reply::text("Done."),
    ]);

    let sent = world.send(message(&world, "look", json!({"parallel_tool_calls": false}))).await?;
    let (_, handover) = handed_over(&world, &sent).await?;
    assert_eq!(handover.calls.len(), 1);
    assert_eq!(world.model.requests()[0].body["parallel_tool_calls"], false);
    let next = send_results(&world, &handover, &["rain"]).await?;

    assert_eq!(world.text(&next).await?, "Done.");
    let results = results(&world.model.requests()[1]);
    assert!(results[1].1.contains("one call at a time"), "{results:?}");
    Ok(())
}

#[tokio::test]
async fn the_choice_of_a_tool_reaches_the_model_or_is_refused_by_its_name() -> anyhow::Result<()> {
    let world = World::start().await?;
    let runner = world.runner().await?;
    for (choice, sent_choice, names) in [
        (json!("none"), Value::Null, &[][..]),
        (json!("required"), json!("required"), &["weather", "ask_person"]),
        (
            json!({"function": "ask_person"}),
            json!({"type": "function", "function": {"name": "ask_person"}}),
            &["ask_person"],
        ),
    ] {
        let before = world.model.requests().len();
        world.model.queue([Reply::text("no call")]);
        let sent = world.send(message(&world, "look", json!({"tool_choice": choice}))).await?;
        world.text(&sent).await?;

        let request = &world.model.requests()[before];
        assert_eq!(request.body["tool_choice"], sent_choice, "{choice}");
        let own = |name: &&&str| ["weather", "ask_person"].contains(*name);
        let offered = request.tool_names();
        assert_eq!(offered.iter().filter(own).copied().collect::<Vec<_>>(), names, "{choice}");
        // A demanded call is one of the client's.
        assert_eq!(offered.len() == names.len(), choice != "none", "{offered:?}");
    }

    drop(runner);
    let provider = NewProvider {
        name: "fake".to_owned(),
        kind: ProviderKind::Ollama,
        base_url: world.model.url(),
        api_key: Some("secret".into()),
        default_model: Some("fake:one".to_owned()),
        ..NewProvider::default()
    };
    world.directory.providers().put(world.tenant, Actor::Operator, provider).await?;
    // A runner keeps what it knows of a provider for a while.
    let _runner = world.runner().await?;
    let sent = world.send(message(&world, "look", json!({"tool_choice": "required"}))).await?;
    let answer = world.answer(&sent).await?;
    assert_eq!(answer.reason.as_deref(), Some("unsupported_parameter"), "{answer:?}");
    assert!(answer.text.contains("`tool_choice`"), "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn a_tool_with_the_name_of_the_agents_own_is_refused() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let clash = json!({"tools": [{"name": "agents_list", "parameters": {"type": "object"}}]});

    let sent = world.send(message(&world, "look", clash)).await?;
    let answer = world.answer(&sent).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Failed));
    assert_eq!(answer.reason.as_deref(), Some("tool_name_taken"), "{answer:?}");
    assert!(answer.text.contains("`agents_list`"), "{answer:?}");
    assert_eq!(world.model.count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_runner_that_dies_with_the_results_in_hand_leaves_them_to_another() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(5);
    config.runner.sweep = Duration::from_millis(100);
    let first = world.runner_with(config.clone(), |app| app).await?;
    world.model.queue([Reply::call("a", "weather", r#"{"city": "Paris"}"#)]);
    let sent = world.send(message(&world, "look", json!({}))).await?;
    let (_, handover) = handed_over(&world, &sent).await?;
    world.model.queue([Reply::hang(Duration::from_secs(60)), Reply::text("It rains.")]);

    let next = send_results(&world, &handover, &["rain"]).await?;
    world.until("the model is asked", async || world.model.queued() == 1).await?;
    first.kill();
    let _second = world.runner_with(config, |app| app).await?;

    assert_eq!(world.text(&next).await?, "It rains.");
    let requests = world.model.requests();
    let results = requests.last().unwrap().tool_results();
    assert_eq!(results, [("a".to_owned(), "rain".to_owned())]);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}
