//! A canvas is stored with its conversation, announced to watchers, and offered only where somebody
//! can see it.

use std::time::Duration;

use holdfast_bus::DeltaBody;
use holdfast_session::MAX_SURFACES;
use holdfast_testkit::Reply;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::world::{LONG, World, place};

/// Calls `canvas` with what was said, and repeats what came of it.
async fn started() -> anyhow::Result<World> {
    let world = World::start().await?;
    world.model.answer(|asked| match asked.tool_results().first() {
        Some((_, told)) => Reply::text(told.clone()),
        None => Reply::call("c", "canvas", asked.last_user_text()),
    });
    Ok(world)
}

fn show(surface: &str, text: &str) -> String {
    json!({"action": "present", "surface": surface, "title": "T", "markdown": text}).to_string()
}

#[tokio::test]
async fn what_is_shown_is_kept_and_whoever_watches_is_told() -> anyhow::Result<()> {
    let world = started().await?;
    let _runner = world.runner().await?;
    let first = world.say("s", r#"{"action":"snapshot"}"#).await?;
    assert_eq!(world.text(&first).await?, "[]");
    let mut deltas = world.bus.subscribe_deltas(world.tenant, first.session).await?;
    world.bus.flush().await;

    assert_eq!(world.ask("s", &show("main", "# Plan")).await?, "`main` is shown.");

    let mut told = Vec::new();
    // The end of the first answer may come only now.
    let mut has_begun = false;
    loop {
        let delta = timeout(LONG, deltas.next()).await?.expect("the bus is there");
        match delta.body {
            DeltaBody::Started => has_begun = true,
            DeltaBody::Canvas { surfaces } => told.push(surfaces),
            DeltaBody::Done { .. } if has_begun => break,
            _ => {}
        }
    }
    assert_eq!(told, [["main"]]);
    let kept = world.sessions.canvas().surfaces(world.tenant, first.session).await?;
    let is = (
        kept[0].properties.title.as_str(),
        kept[0].properties.content.as_str(),
        kept[0].properties.shown,
    );
    assert_eq!((kept.len(), is), (1, ("T", "# Plan", true)));

    let shot = world.ask("s", r#"{"action":"snapshot"}"#).await?;
    let shot: Value = serde_json::from_str(&shot)?;
    assert_eq!(shot[0]["content"], "# Plan");
    assert_eq!(world.ask("other", r#"{"action":"snapshot"}"#).await?, "[]");
    world
        .until("the session can be deleted", async || {
            world.sessions.delete(world.tenant, first.session).await.is_ok()
        })
        .await?;
    assert_eq!(world.number("select count(*) from session.surfaces").await?, 0);
    Ok(())
}

#[tokio::test]
async fn messages_change_what_is_shown_and_too_many_surfaces_change_nothing() -> anyhow::Result<()>
{
    let world = started().await?;
    let _runner = world.runner().await?;
    let text = |id: &str| json!({"id": id, "component": {"Text": {}}});
    let push = |surface: &str, id: &str| {
        let update = json!({"surfaceId": surface, "components": [text(id)]});
        json!({"action": "update", "messages": [{"surfaceUpdate": update}]})
    };

    world.ask("s", &push("form", "a").to_string()).await?;
    let sent = world.say("s", &push("form", "b").to_string()).await?;
    world.text(&sent).await?;
    let kept = world.sessions.canvas().surfaces(world.tenant, sent.session).await?;
    let content: Value = serde_json::from_str(&kept[0].properties.content)?;
    assert_eq!(content[0]["surfaceUpdate"]["components"], json!([text("a"), text("b")]));
    assert_eq!(kept[0].version, 2);

    let many: Vec<Value> = (0..=MAX_SURFACES)
        .map(|at| json!({"surfaceUpdate": {"surfaceId": format!("s{at}"), "components": []}}))
        .collect();
    let told = world.ask("s", &json!({"action": "update", "messages": many}).to_string()).await?;
    assert!(told.contains("there would be 18 surfaces, and 16 are the most"), "{told}");
    assert_eq!(world.sessions.canvas().surfaces(world.tenant, sent.session).await?, kept);
    Ok(())
}

#[tokio::test]
async fn a_conversation_on_a_channel_and_a_subagent_have_no_canvas() -> anyhow::Result<()> {
    let world = started().await?;
    let _runner = world.runner().await?;
    let mut said = world.message("s", &show("main", "x"));
    said.target = Some(place("42"));

    let sent = world.send(said).await?;
    let told = world.text(&sent).await?;
    assert!(told.contains("not one of yours"), "{told}");
    assert_eq!(world.number("select count(*) from session.surfaces").await?, 0);

    // Spoken to by a program, the same conversation has one.
    assert_eq!(world.ask("s", &show("main", "x")).await?, "`main` is shown.");

    let asked = world.model.count();
    world.model.answer(|asked| match asked.last_user_text().as_str() {
        "TASK" => match asked.tool_results().first() {
            Some((_, told)) => Reply::text(told.clone()),
            None => Reply::call("c", "canvas", r#"{"action":"snapshot"}"#),
        },
        _ => match asked.tool_results().first() {
            Some((_, told)) => Reply::text(told.clone()),
            None => Reply::call("s", "sessions_spawn", r#"{"task":"TASK","wait":true}"#),
        },
    });
    let told = timeout(Duration::from_secs(20), world.ask("t", "go")).await??;
    assert!(told.contains("not one of yours"), "{told}");
    assert!(world.model.count() > asked);
    Ok(())
}
