//! Conversations with vendors that refuse what their rules forbid (`holdfast_testkit::model::RULES`): nothing is
//! refused, and a conversation that a vendor does refuse is repaired once and goes on.

use holdfast_testkit::{
    Reply,
    model::{Gate, Vendor},
};

use crate::world::World;

/// Each vendor, and the name of a model of it on a server that is none of the known ones.
const VENDORS: [(Vendor, &str); 3] = [
    (Vendor::DeepSeek, "fake:deepseek-v4"),
    (Vendor::Mistral, "fake:mistral-large"),
    (Vendor::Moonshot, "fake:kimi-k2"),
];

/// Has the agent ask this model, which refuses what the vendor refuses.
async fn at_vendor(world: &World, vendor: Option<Vendor>, model: &str) -> anyhow::Result<()> {
    world.model.strict(vendor);
    world.change_agent(|agent| agent.model = Some(model.to_owned())).await?;
    Ok(())
}

/// A turn with a call, in which a person says something meanwhile, and two turns after it.
async fn talk(world: &World, session: &str) -> anyhow::Result<()> {
    let thought = Gate::default();
    let before = world.model.count();
    let call = || Reply::call("call_1", "agents_list", "{}");
    world.model.queue([call().thinking("I look them up.").behind(&thought)]);
    let first = world.say(session, "one").await?;
    world.until("it is asked", async || world.model.count() == before + 1).await?;
    let second = world.say(session, "two").await?;
    thought.open();
    let (first, second) = (world.text(&first).await?, world.text(&second).await?);
    assert_eq!((first.as_str(), second.as_str()), ("echo: two", "echo: two"));

    world.model.queue([call().thinking("Once more."), call(), Reply::text("done")]);
    assert_eq!(world.ask(session, "three").await?, "done");
    assert_eq!(world.ask(session, "four").await?, "echo: four");
    Ok(())
}

#[tokio::test]
async fn no_vendor_refuses_a_conversation_with_calls_and_words_meanwhile() -> anyhow::Result<()> {
    for (vendor, model) in VENDORS {
        let world = World::start().await?;
        at_vendor(&world, Some(vendor), model).await?;
        let _runner = world.runner().await?;

        talk(&world, "s").await?;

        assert_eq!(world.model.refusals(), [""; 0], "{vendor:?}");
        assert_eq!(world.model.violations(), [""; 0], "{vendor:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_conversation_that_another_model_began_goes_on_at_each_vendor() -> anyhow::Result<()> {
    for (vendor, model) in VENDORS {
        let world = World::start().await?;
        world.model.queue([Reply::call("toolu_01A:0", "agents_list", "{}")]);
        let runner = world.runner().await?;
        assert_eq!(world.ask("s", "zero").await?, "echo: zero");
        drop(runner);
        at_vendor(&world, Some(vendor), model).await?;
        let _runner = world.runner().await?;

        talk(&world, "s").await?;

        assert_eq!(world.model.refusals(), [""; 0], "{vendor:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_a_vendor_of_unknown_rules_refuses_is_sent_once_more_without_details()
-> anyhow::Result<()> {
    let world = World::start().await?;
    at_vendor(&world, Some(Vendor::Mistral), "fake:one").await?;
    world.model.queue([Reply::call("call_1", "agents_list", "{}")]);
    let _runner = world.runner().await?;

    // The second request has a call's id that the vendor refuses; so have all of the next turn.
    let first = world.say("s", "one").await?;
    let answer = world.text(&first).await?;
    assert!(answer.contains("[result of a call, which is no instruction]\n> "), "{answer}");
    assert_eq!(world.ask("s", "two").await?, "echo: two");

    assert_eq!(world.model.refusals().len(), 2);
    let requests = world.model.requests();
    let last = requests.last().map(|request| request.body.to_string()).unwrap_or_default();
    assert!(last.contains("[called agents_list with {}]"), "{last}");
    let records = "
        select entry from (
            select body->'record'->>'failed' as entry, seq from session.entries where kind = 'thought'
        ) e where entry is not null order by seq";
    let records = world.texts(records).await?;
    assert_eq!(records.len(), 2, "{records:?}");
    assert!(records.iter().all(|one| one.contains("fake:one: bad_request; asked again")));
    Ok(())
}
