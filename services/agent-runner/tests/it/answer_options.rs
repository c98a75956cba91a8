//! What a client asks of the model with a message: sampling, and the form of the answer.

use std::time::Duration;

use holdfast_directory::{Actor, NewProvider, ProviderKind};
use holdfast_session::{NewMessage, TurnOutcome};
use holdfast_testkit::Reply;
use holdfast_types::{AnswerOptions, Body, StopReason};
use serde_json::{Value, json};

use crate::world::World;

fn message(world: &World, text: &str, options: Value) -> NewMessage {
    let options: AnswerOptions = serde_json::from_value(options).unwrap();
    let body = Body { answer_options: Some(Box::new(options)), ..Body::text(text) };
    NewMessage { body, ..world.message("s", text) }
}

fn schema() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": false,
    });
    json!({"type": "json_schema", "name": "number", "schema": schema, "strict": true})
}

#[tokio::test]
async fn what_a_client_asks_of_the_model_holds_in_the_runner_that_takes_over() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(5);
    config.runner.sweep = Duration::from_millis(100);
    world.model.latency(Duration::from_millis(300));
    world.model.queue([Reply::call("a", "agents_list", "{}")]);
    let first = world.runner_with(config.clone(), |app| app).await?;
    let options = json!({
        "temperature": 0.25,
        "top_p": 0.5,
        "max_output": 77,
        "stop": ["END"],
        "seed": 7,
        "frequency_penalty": -1,
        "presence_penalty": 1.5,
        "effort": "minimal",
    });

    let sent = world.send(message(&world, "hello", options)).await?;
    world
        .until("it has called", async || {
            world.kinds(sent.session).await.is_ok_and(|kinds| kinds.contains(&"returned"))
        })
        .await?;
    first.kill();
    let _second = world.runner_with(config, |app| app).await?;
    world.text(&sent).await?;
    // The next message has no options.
    world.ask("s", "again").await?;

    let requests = world.model.requests();
    let (own, [other]) = requests.split_at(requests.len() - 1) else { panic!("{requests:?}") };
    assert!(own.len() >= 2, "{requests:?}");
    for request in own {
        for (name, value) in [
            ("temperature", json!(0.25)),
            ("top_p", json!(0.5)),
            ("max_tokens", json!(77)),
            ("stop", json!(["END"])),
            ("seed", json!(7)),
            ("frequency_penalty", json!(-1)),
            ("presence_penalty", json!(1.5)),
            ("reasoning_effort", json!("minimal")),
        ] {
            assert_eq!(request.body[name], value, "{name}");
            assert_eq!(other.body.get(name), None, "{name}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_option_that_the_provider_does_not_take_is_refused_by_its_name() -> anyhow::Result<()> {
    let world = World::start().await?;
    for (kind, options, name) in [
        (ProviderKind::Responses, json!({"seed": 7}), "`seed`"),
        (ProviderKind::Responses, json!({"stop": ["x"]}), "`stop`"),
        (ProviderKind::Anthropic, json!({"presence_penalty": 1}), "`presence_penalty`"),
        (ProviderKind::Ollama, json!({"effort": "high"}), "`reasoning_effort`"),
    ] {
        let provider = NewProvider {
            name: "fake".to_owned(),
            kind,
            base_url: world.model.url(),
            api_key: Some("secret".into()),
            default_model: Some("fake:one".to_owned()),
            ..NewProvider::default()
        };
        world.directory.providers().put(world.tenant, Actor::Operator, provider).await?;
        // A runner keeps what it knows of a provider for a while.
        let _runner = world.runner().await?;

        let sent = world.send(message(&world, "hello", options)).await?;
        let answer = world.answer(&sent).await?;

        assert_eq!(answer.outcome, Some(TurnOutcome::Failed), "{name}");
        assert_eq!(answer.reason.as_deref(), Some("unsupported_parameter"), "{answer:?}");
        assert!(answer.text.contains(name), "{answer:?}");
    }
    assert_eq!(world.model.count(), 0);
    Ok(())
}

#[tokio::test]
async fn an_answer_in_another_form_is_corrected_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::text("{\"n\": \"one\"}"), Reply::text("{\"n\": 1}")]);

    let sent = world.send(message(&world, "one", json!({"format": schema()}))).await?;

    assert_eq!(world.text(&sent).await?, "{\"n\": 1}");
    let requests = world.model.requests();
    let asked = &requests[0].body["response_format"];
    assert_eq!(asked["json_schema"]["name"], "number", "{asked}");
    assert_eq!(asked["json_schema"]["strict"], true, "{asked}");
    assert!(requests[0].messages()[0].to_string().contains("additionalProperties"));
    let correction = requests[1].last_user_text();
    assert!(correction.contains("`$.n` breaks `type`"), "{correction}");
    // The conversation has only the answer that counts.
    assert_eq!(world.kinds(sent.session).await?, ["heard", "thought"]);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_stays_in_another_form_fails_the_turn() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::text("one"), Reply::text("[1]")]);

    let format = json!({"format": {"type": "json_object"}});
    let sent = world.send(message(&world, "one", format)).await?;
    let answer = world.answer(&sent).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Failed));
    assert_eq!(answer.reason.as_deref(), Some("answer_format"), "{answer:?}");
    assert!(answer.text.contains("no object"), "{answer:?}");
    assert_eq!(world.model.count(), 2);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_its_limit_cuts_off_is_returned_and_says_so() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::text("{\"n\":").finish("length")]);

    let options = json!({"max_output": 3, "format": schema()});
    let sent = world.send(message(&world, "one", options)).await?;
    let answer = world.answer(&sent).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Completed), "{answer:?}");
    assert_eq!(answer.text, "{\"n\":");
    assert_eq!(answer.reason.as_deref(), StopReason::MaxTokens.early_end());
    assert_eq!(world.model.count(), 1);
    Ok(())
}

#[tokio::test]
async fn housekeeping_has_the_model_and_nothing_of_the_agent() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.change_agent(|agent| agent.instructions = "Speak of whales only.".to_owned()).await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::text("A title"), Reply::text("whales")]);
    let title = message(&world, "### Task: a title", json!({"is_housekeeping": true}));

    let sent = world.send(title).await?;
    let answer = world.answer(&sent).await?;
    world.ask("s", "hello").await?;

    assert_eq!(answer.text, "A title");
    let requests = world.model.requests();
    let [bare, usual] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(bare.body.get("tools"), None, "{}", bare.body);
    let prompt = bare.messages()[0]["content"].to_string();
    assert!(!prompt.contains("whales") && prompt.len() < 300, "{prompt}");
    // The next message of the session is the agent's again.
    assert!(usual.body["tools"].as_array().is_some_and(|tools| !tools.is_empty()));
    assert!(usual.messages()[0]["content"].to_string().contains("whales"));
    let runs = world.number("select count(*) from session.runs where output_tokens > 0").await?;
    assert_eq!(runs, 2, "both are metered");
    Ok(())
}

#[tokio::test]
async fn a_level_of_thinking_is_passed_over_by_a_model_without_levels() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let asked = message(&world, "hello", json!({"thinking": "high", "shows_thinking": true}));

    let sent = world.send(asked).await?;
    let answer = world.answer(&sent).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Completed), "{answer:?}");
    assert_eq!(world.model.requests()[0].body.get("reasoning_effort"), None);
    Ok(())
}
