//! The router: one request without tools, an exact result, and sessions for work.

use holdfast_directory::Actor;
use holdfast_testkit::Reply;
use serde_json::{Value, json};

use super::script::{behavior_of, input, result};
use crate::world::World;

fn opened(title: &str) -> Reply {
    result(&json!({
        "next_behavior": null, "reply": "I begin.", "memory_queries": [],
        "new_session": {"title": title, "description": "Water the fern."},
    }))
}

/// Keys of the sessions that were opened for work.
async fn work_sessions(world: &World) -> anyhow::Result<Vec<String>> {
    world.texts("select key from session.sessions where kind = 'work' order by created_at").await
}

#[tokio::test]
async fn the_router_is_offered_no_tools_and_is_asked_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(|asked| {
        match asked.last_user_text().contains("This answer cannot be used") {
            false if input(asked).contains("search") => {
                Reply::call("c", "read", r#"{"path": "a"}"#)
            }
            _ => result(&json!({"next_behavior": "END", "reply": "Hello.", "memory_queries": []})),
        }
    });
    let _runner = world.runner().await?;

    assert_eq!(world.ask("s", "hi").await?, "Hello.");
    assert_eq!(world.model.count(), 1);
    assert_eq!(world.model.requests()[0].tool_names(), Vec::<&str>::new());

    // The layer of the tenant cannot give it tools.
    let own = "process_rule: Route it.\noutput_protocol: RouteResult\n\
               limits: {max_tool_rounds: 5}\ntoolbox: {tools: {mode: all}}";
    let by = (None, "resolve_router");
    world.directory.behaviors().put(world.tenant, Actor::Operator, by, None, own).await?;
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    assert_eq!(world.ask("t", "search for it").await?, "Hello.");
    let requests = world.model.requests();
    assert!(requests.iter().all(|asked| asked.tool_names().is_empty()));
    // The call was not made: the router was asked for its result instead.
    assert_eq!(requests.len(), 3);
    assert!(requests[2].last_user_text().contains("no more calls can be made"));
    Ok(())
}

#[tokio::test]
async fn a_message_goes_to_the_session_that_the_router_names_which_answers_it() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(|asked| match behavior_of(asked) {
        "route" if input(asked).contains("water the fern") => opened("The fern"),
        "route" => {
            let listed = input(asked);
            let key = listed.split("- ").nth(1).and_then(|line| line.split(": The fern").next());
            result(&json!({
                "next_behavior": null, "reply": null, "memory_queries": [],
                "route_session_id": key, "topic_tags": ["plants"],
            }))
        }
        _ => result(&json!({"reply": "The fern is wet.", "next_behavior": "END"})),
    });
    let _runner = world.runner().await?;
    // The two sessions write side by side, so their deliveries are in no certain order.
    let told = "select body from session.deliveries order by body";

    world.send(world.on_channel("s", "water the fern")).await?;
    world
        .until("the work is done", async || {
            world.texts(told).await.is_ok_and(|told| told == ["I begin.", "The fern is wet."])
        })
        .await?;
    let again = world.send(world.on_channel("s", "more of it")).await?;
    world.text(&again).await?;
    world
        .until("the same session answers", async || {
            world.texts(told).await.is_ok_and(|told| told.len() == 3)
        })
        .await?;

    assert_eq!(work_sessions(&world).await?.len(), 1);
    assert_eq!(world.texts(told).await?, ["I begin.", "The fern is wet.", "The fern is wet."]);
    let plans = world.asked_as("plan");
    assert_eq!(plans.len(), 2);
    assert!(input(&plans[0]).contains("water the fern\n\nWater the fern."), "{}", input(&plans[0]));
    assert!(input(&plans[1]).contains("more of it"), "{}", input(&plans[1]));
    assert_eq!(world.behavior_state(again.session).await?["tags"], json!(["plants"]));
    Ok(())
}

/// A result of the router, with these fields besides.
fn route(fields: &Value) -> Value {
    let mut all = json!({"next_behavior": null, "reply": null, "memory_queries": []});
    for (name, value) in fields.as_object().into_iter().flatten() {
        all[name] = value.clone();
    }
    all
}

#[tokio::test]
async fn a_result_that_names_both_targets_or_leaves_the_person_alone_is_corrected()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    let _runner = world.runner().await?;
    let new = json!({"title": "The fern", "description": ""});
    let cases = [
        (
            route(&json!({"reply": "ok", "route_session_id": "x", "new_session": new})),
            "one of them",
        ),
        (route(&json!({"reply": "ok", "route_session_id": "x"})), "that session answers"),
        (route(&json!({"new_session": new})), "what you begin"),
        (route(&json!({"next_behavior": "END"})), "nobody would answer"),
        (
            route(&json!({"reply": "ok", "next_behavior": "END",
                          "topic_tags": ["a", "b", "c", "d", "e", "f"]})),
            "it has 6, and 5 is the most",
        ),
    ];

    for (at, (wrong, says)) in cases.iter().enumerate() {
        let before = world.model.requests().len();
        let good = route(&json!({"reply": "Fine.", "next_behavior": "END"}));
        world.model.queue([result(wrong), result(&good)]);
        assert_eq!(world.ask(&format!("s{at}"), "water the fern").await?, "Fine.", "{wrong}");
        let requests = world.model.requests();
        assert_eq!(requests.len(), before + 2, "{wrong}");
        let told = requests[before + 1].last_user_text();
        assert!(told.contains(says), "{wrong}: {told}");
    }

    assert!(work_sessions(&world).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn searches_of_the_router_are_shown_to_the_next_step_here_and_in_a_new_session()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    let memory = world.memory().await?;
    world.model.answer(|asked| match behavior_of(asked) {
        "do" => result(&json!({"set_memory": {"tea": "green"}, "next_behavior": "END"})),
        "route" => {
            let opens = input(asked).contains("alone");
            let new = opens.then(|| json!({"title": "Tea", "description": "Buy it."}));
            result(&json!({
                "next_behavior": "PLAN", "reply": "Let me see.", "memory_queries": ["which tea"],
                "new_session": new,
            }))
        }
        _ => result(&json!({"reply": "Green tea.", "next_behavior": "END"})),
    });
    let _runner = world.runner_with(world.config_with(&memory), |app| app).await?;
    world.text(&world.say("s", "I drink green tea").await?).await?;
    world.use_behaviors(|_| {}).await?;
    tokio::time::sleep(holdfast_directory::AGENT_CACHE_TTL).await;

    world.text(&world.say("s", "buy tea").await?).await?;
    world.text(&world.say("s", "buy tea, but alone").await?).await?;
    world.until("both are planned", async || world.asked_as("plan").len() == 2).await?;

    let plans = world.asked_as("plan");
    let here = input(&plans[0]);
    assert!(here.contains("<result tool=\"memory_search\" state=\"ok\">"), "{here}");
    assert!(here.contains("green"), "{here}");
    let elsewhere = input(&plans[1]);
    assert!(elsewhere.contains("Buy it.\n\nFound in your memory:"), "{elsewhere}");
    assert!(elsewhere.contains("green"), "{elsewhere}");
    Ok(())
}
