//! Reserved shares of a runner's slots, and of its upkeep.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_directory::Actor;
use holdfast_session::NewMessage;
use holdfast_types::{RunnerId, SessionKey, Source};

use crate::{gated::Gated, world::World};

#[tokio::test]
async fn a_flood_of_jobs_leaves_slots_to_subagents_and_people() -> anyhow::Result<()> {
    const RUNNING: &str = "
        select count(*) from session.session_lease l join session.sessions s
        using (tenant_id, session_id) where l.state = 'RUNNING' and s.kind = 'cron'";
    let world = World::start().await?;
    world.use_demo().await?;
    let model = Gated::closed();
    let shared = Arc::new(model.clone());
    let mut config = world.config();
    config.runner.slots = 8;
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;
    let name = &world.agent.name;
    for n in 0..12 {
        let key = SessionKey::cron(name, "job", &n.to_string())?;
        world.send(NewMessage { key, ..world.message("x", "go") }).await?;
    }
    model.until_asked(5).await?;

    // A subagent without a task ends at once, without the model: it has had a slot.
    let key = SessionKey::subagent(name, "child")?;
    let source = Source::Internal(key.as_str().to_owned());
    let child = NewMessage { key, source, ..world.message("x", "go") };
    world.answer(&world.send(child).await?).await?;
    // Two people hold their quarter, and no more jobs run.
    world.say("p1", "hello").await?;
    world.say("p2", "hello").await?;
    model.until_asked(7).await?;
    assert_eq!(world.number(RUNNING).await?, 5);
    Ok(())
}

#[tokio::test]
async fn a_tenant_with_a_slow_model_leaves_a_quarter_of_the_slots_to_others() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.use_demo().await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let agent = world.directory.agents().default_agent(other.id).await?;
    let model = Gated::closed();
    let shared = Arc::new(model.clone());
    let mut config = world.config();
    config.runner.slots = 8;
    // Only wake-ups and ends of turns cause claims.
    config.runner.poll = Duration::from_secs(120);
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;
    let other_says = async |session: &str| {
        let message = NewMessage { agent: agent.id, ..world.message(session, "hello") };
        world.sessions.ingest(other.id, message).await?;
        world.bus.wake_run(0);
        anyhow::Ok(())
    };
    let running = format!(
        "select count(*) from session.session_lease where state = 'RUNNING' and tenant_id = '{}'",
        world.tenant.as_uuid()
    );

    other_says("t1").await?;
    model.until_asked(1).await?;
    for n in 0..10 {
        world.say(&format!("s{n}"), "hello").await?;
    }
    model.until_asked(6).await?;
    other_says("t2").await?;
    model.until_asked(7).await?;
    assert_eq!(world.number(&running).await?, 5);

    // The first answers are to `t1` and to the busy tenant, whose next turn begins.
    model.let_out(2);
    model.until_asked(8).await?;
    assert_eq!(world.number(&running).await?, 5);
    Ok(())
}

#[tokio::test]
async fn a_runner_that_gets_the_duty_late_prunes_soon() -> anyhow::Result<()> {
    const PRUNE: Duration = Duration::from_secs(16);
    let world = World::start().await?;
    world
        .admin(
            "insert into session.tombstones
                 (tenant_id, source, idem_key, hash, session_id, seq, message_id, until)
             select tenant_id, 's', 'k', '', gen_random_uuid(), 1, gen_random_uuid(),
                    now() - interval '1 day'
             from control.tenants",
        )
        .await?;
    // Another runner has the duty when the first prune is due.
    let other = RunnerId::generate();
    assert!(world.sessions.upkeep().hold(other, PRUNE + Duration::from_secs(1)).await?);
    let begun = Instant::now();
    let mut config = world.config();
    config.runner.prune = PRUNE;
    let _runner = world.runner_with(config, |app| app).await?;

    let gone = async || {
        world.number("select count(*) from session.tombstones").await.is_ok_and(|rows| rows == 0)
    };
    world.until("the old row is pruned", gone).await?;

    // The second prune would come after 28.8 s at the earliest.
    assert!(begun.elapsed() < Duration::from_secs(28), "{:?}", begun.elapsed());
    assert!(begun.elapsed() > PRUNE, "{:?}", begun.elapsed());
    Ok(())
}
