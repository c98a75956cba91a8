//! A runner asks a model for a person who tries a behaviour; nothing else happens.

use std::time::Duration;

use holdfast_bus::{Bus, ModelAnswer, ModelQuestion, RequestKeys, Subject};
use holdfast_directory::{Actor, Budget};
use holdfast_testkit::{Reply, model::Usage};
use holdfast_types::{AgentId, Chat, ChatMessage, TenantId, ToolSpec};

use crate::world::World;

fn tool(name: &str) -> ToolSpec {
    let (name, description) = (name.to_owned(), "a stub".to_owned());
    ToolSpec { name, description, input: serde_json::json!({"type": "object"}) }
}

fn question(tenant: TenantId, agent: AgentId) -> ModelQuestion {
    let chat = Chat {
        stable: "<<role>>\nYou plan.".into(),
        messages: vec![ChatMessage::user("go on".to_owned())],
        tools: vec![tool("session_status"), tool("unknown_tool")],
        ..Chat::default()
    };
    ModelQuestion {
        tenant,
        agent,
        models: vec!["nobody:model".to_owned()],
        chat,
        temperature: None,
        max_output: None,
        deadline: Duration::from_secs(20),
    }
}

impl World {
    /// Asks until a runner has subscribed.
    async fn ask_model(&self, question: &ModelQuestion) -> anyhow::Result<ModelAnswer> {
        self.until_some("a runner answers", async || self.bus.ask_model("", question).await.ok())
            .await
    }
}

#[tokio::test]
async fn a_model_is_asked_once_charged_and_nothing_is_done() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.card(1_000).await?;
    world.budget(Budget { agent: None, tokens: Some(10_100), micros: None }).await?;
    let usage = Usage { prompt: 10_000, cached: 0, completion: 100 };
    world.model.answer(move |_| Reply::call("c", "session_status", "{}").usage(usage));
    let _runner = world.runner().await?;

    let answer = world.ask_model(&question(world.tenant, world.agent.id)).await?;
    let spent = world.ask_model(&question(world.tenant, world.agent.id)).await?;

    let ModelAnswer::Replied { reply, micros } = answer else { panic!("{answer:?}") };
    assert_eq!((reply.calls.len(), reply.model.as_str(), micros), (1, "fake:one", 11_000));
    let ModelAnswer::Failed { error } = spent else { panic!("{spent:?}") };
    assert!(error.contains("10100 tokens a day, is spent"), "{error}");
    assert_eq!(world.model.count(), 1);
    let asked = &world.model.requests()[0];
    assert_eq!(asked.tool_names(), ["session_status"]);
    let described = &asked.body["tools"][0]["function"]["description"];
    assert_ne!(described, "a stub");
    assert_eq!(world.number("select tokens from session.spending").await?, 10_100);
    let recorded = "select kind || ' ' || name || ' ' || outcome || ' ' || cost_micros
                    from work.ledger where session_id is null and run_id is null";
    assert_eq!(world.texts(recorded).await?, ["model fake:one ok 11000"]);
    assert_eq!(world.number("select count(*) from session.sessions").await?, 0);
    Ok(())
}

#[tokio::test]
async fn an_agent_of_another_tenant_is_not_found() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let _runner = world.runner().await?;

    let answer = world.ask_model(&question(other.id, world.agent.id)).await?;

    let ModelAnswer::Failed { error } = answer else { panic!("{answer:?}") };
    assert_eq!(error, "there is no such agent");
    assert_eq!(world.model.count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_login_to_nats_is_not_enough_to_ask_a_model() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let question = question(world.tenant, world.agent.id);
    world.model.answer(|_| Reply::text("yes"));
    world.ask_model(&question).await?;
    let stranger = Bus::connect(&world.config().nats, "test").await?;
    RequestKeys::new([[7; 32]]).install(&stranger);
    world.until("the stranger is connected", async || stranger.is_connected()).await?;

    let subject = Subject::model("");
    let refused: Vec<ModelAnswer> =
        stranger.ask(&subject, &question, Duration::from_secs(1), 1).await?;

    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(world.model.count(), 1);
    Ok(())
}
