//! A waiting session is woken by matching input, and other input costs nothing.

use holdfast_types::{Body, MessageFilter, Wait};

use crate::world::World;

fn for_yes() -> Wait {
    Wait::Message {
        filter: MessageFilter { contains: Some("yes".into()), ..MessageFilter::default() },
        deadline_ms: None,
        note: String::new(),
    }
}

#[tokio::test]
async fn what_does_not_match_stays_new_and_is_heard_with_what_does() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "delete it").await?;
    let claim = world.claim_one().await?;
    world.finish(&claim, vec![1], "sure?", for_yes()).await?;

    let ignored = ada.say("s", "k2", "what time is it?").await?;
    assert_eq!(ignored.wake, None);
    assert!(world.claim().await?.is_empty());
    let wanted = ada.say("s", "k3", "Yes!").await?;
    assert!(wanted.wake.is_some());

    let claim = world.claim_one().await?;
    assert_eq!(world.sessions.load(&claim, 10).await?.waiting.len(), 2);
    Ok(())
}

#[tokio::test]
async fn what_came_before_the_wait_began_is_asked_too() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "delete it").await?;
    let claim = world.claim_one().await?;
    ada.say("s", "k2", "yes, really").await?;

    world.finish(&claim, vec![1], "sure?", for_yes()).await?;

    assert_eq!(world.claim().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_silent_message_wakes_nobody_and_is_there_for_the_next_turn() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut silent = ada.message("s", "k1", "chatter");
    silent.body = Body { silent: true, ..silent.body };
    world.sessions.ingest(ada.id, silent).await?;
    assert!(world.claim().await?.is_empty());

    ada.say("s", "k2", "@bot hello").await?;

    let claim = world.claim_one().await?;
    assert_eq!(world.sessions.load(&claim, 10).await?.waiting.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_crowd_of_silent_messages_is_taken_in_before_it_fills_the_inbox() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for n in 0..260 {
        let mut silent = ada.message("s", &format!("k{n}"), "chatter");
        silent.body = Body { silent: true, ..silent.body };
        world.sessions.ingest(ada.id, silent).await?;
        for claim in world.claim().await? {
            world.answer(&claim, "").await?;
        }
    }

    let open = world.number("select count(*) from session.inbox where state = 'new'").await?;
    assert!(open < 50, "{open}");
    assert!(ada.say("s", "mention", "@bot hello").await?.wake.is_some());
    Ok(())
}

#[tokio::test]
async fn gathered_messages_are_ready_after_a_pause() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut message = ada.message("s", "k1", "one");
    message.mode = holdfast_types::QueueMode::Collect;
    message.debounce = std::time::Duration::from_secs(60);

    let accepted = world.sessions.ingest(ada.id, message).await?;

    assert_eq!(accepted.wake, Some(std::time::Duration::from_secs(60)));
    assert!(world.claim().await?.is_empty());
    world.admin("update session.session_lease set ready_at = clock_timestamp()").await?;
    assert_eq!(world.claim().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn gathered_messages_wait_ten_pauses_at_most_however_many_come() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let say = async |key: &str| {
        let mut message = ada.message("s", key, "and");
        message.mode = holdfast_types::QueueMode::Collect;
        message.debounce = std::time::Duration::from_secs(60);
        world.sessions.ingest(ada.id, message).await
    };
    let wait = "select round(extract(epoch from l.ready_at - min(i.accepted_at)))::bigint
                from session.session_lease l join session.inbox i using (session_id)
                where not coalesce((i.body->>'silent')::boolean, false) group by l.ready_at";
    let age = |seconds| {
        format!(
            "with lease as (
                 update session.session_lease
                 set ready_at = ready_at - interval '1 second' * {seconds})
             update session.inbox set accepted_at = accepted_at - interval '1 second' * {seconds}"
        )
    };
    // Chatter from before is not what is gathered.
    let mut silent = ada.message("s", "k0", "chatter");
    silent.body = Body { silent: true, ..silent.body };
    world.sessions.ingest(ada.id, silent).await?;
    world.admin(&age(10_000)).await?;

    say("k1").await?;
    world.admin(&age(50)).await?;
    say("k2").await?;
    assert_eq!(world.number(wait).await?, 110);
    world.admin(&age(520)).await?;
    say("k3").await?;

    assert_eq!(world.number(wait).await?, 600);
    Ok(())
}
