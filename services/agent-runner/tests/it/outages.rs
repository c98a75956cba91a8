//! Backends go away and come back; what was accepted is answered once all the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use holdfast_session::NewMessage;
use holdfast_testkit::{
    Proxy, Reply,
    proxy::{When, contains},
};
use secrecy::ExposeSecret as _;

use crate::{
    gated::Gated,
    world::{Running, World, place},
};

/// A runner that reaches the database through a proxy.
async fn behind(world: &World, model: Option<Gated>) -> anyhow::Result<(Proxy, Running)> {
    let mut config = world.config();
    let url = config.database.url.expose_secret().to_owned();
    let proxy = Proxy::in_front_of(&url).await?;
    config.database.url = proxy.through(&url).into();
    let runner = world
        .runner_with(config, |app| match model {
            Some(model) => app.with_demo(Arc::new(model)),
            None => app,
        })
        .await?;
    Ok((proxy, runner))
}

/// True for the first commit after a chunk that holds these bytes.
fn commit_after(needle: &'static str) -> impl Fn(&[u8]) -> bool + Send + Sync + 'static {
    let (seen, is_it, is_commit) = (AtomicBool::new(false), contains(needle), contains("COMMIT"));
    move |chunk| {
        if is_it(chunk) {
            seen.store(true, Ordering::SeqCst);
        }
        is_commit(chunk) && seen.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_step_whose_commit_was_not_heard_of_is_not_written_twice() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::call("a", "agents_list", "{}")]);
    let (proxy, _runner) = behind(&world, None).await?;
    let lost = proxy.lose_answer(When::Once, commit_after("insert into session.entries"));

    let sent = world.say("s", "hello").await?;
    world.text(&sent).await?;

    assert_eq!(lost.fired(), 1);
    assert_eq!(world.kinds(sent.session).await?, ["heard", "thought", "returned", "thought"]);
    assert_eq!(world.model.count(), 2);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn an_answer_whose_commit_was_not_heard_of_is_given_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (proxy, _runner) = behind(&world, None).await?;
    let lost = proxy.lose_answer(When::Once, commit_after("insert into session.runs"));

    let message = NewMessage { target: Some(place("7")), ..world.message("s", "hello") };
    let sent = world.send(message).await?;
    world.text(&sent).await?;
    assert_eq!(world.ask("s", "again").await?, "echo: again");

    assert_eq!(lost.fired(), 1);
    assert_eq!(world.model.count(), 2);
    assert_eq!(world.number("select count(*) from session.deliveries").await?, 1);
    assert_eq!(world.kinds(sent.session).await?, ["heard", "thought", "heard", "thought"]);
    Ok(())
}

#[tokio::test]
async fn an_answer_outlives_a_database_that_is_gone_for_a_while() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let model = Gated::closed();
    let (proxy, _runner) = behind(&world, Some(model.clone())).await?;

    let sent = world.say("s", "hello").await?;
    model.until_asked(1).await?;
    proxy.refuse().await?;
    proxy.cut();
    model.let_out(1);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    proxy.accept().await?;

    assert_eq!(world.text(&sent).await?, "echo: hello");
    assert_eq!(model.asked(), 1, "what the model said was not lost");
    Ok(())
}

#[tokio::test]
async fn a_runner_that_starts_before_its_database_waits_for_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    let url = config.database.url.expose_secret().to_owned();
    let proxy = Proxy::in_front_of(&url).await?;
    proxy.refuse().await?;
    config.database.url = proxy.through(&url).into();
    let _runner = world.runner_with(config, |app| app).await?;
    let sent = world.say("s", "hello").await?;
    tokio::time::sleep(Duration::from_millis(500)).await;

    proxy.accept().await?;

    assert_eq!(world.text(&sent).await?, "echo: hello");
    Ok(())
}

#[tokio::test]
async fn without_nats_and_redis_everything_is_only_slower() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.nats.url = "nats://127.0.0.1:1".into();
    config.redis.url = "redis://127.0.0.1:1".into();
    let _runner = world.runner_with(config, |app| app).await?;

    for n in 0..3 {
        assert_eq!(world.ask("s", &format!("message {n}")).await?, format!("echo: message {n}"));
    }
    Ok(())
}
