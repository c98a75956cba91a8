//! A message is stored once, in order, and a refusal gives its reason.

use holdfast_session::{Error, MessageWithSettings, ShareChanges};
use holdfast_types::SessionSettings;

use crate::world::World;

#[tokio::test]
async fn a_message_sent_again_is_stored_once_and_answered_with_its_first_place()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();

    let first = ada.say("s", "k1", "hello").await?;
    let again = ada.say("s", "k1", "hello").await?;

    assert!(again.duplicate && !first.duplicate);
    assert_eq!((again.message, again.seq, again.session), (first.message, 1, first.session));
    assert_eq!(world.number("select count(*) from session.inbox").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_key_that_comes_with_another_text_is_refused() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;

    let other_text = ada.say("s", "k1", "good bye").await;
    let other_session = ada.say("t", "k1", "hello").await;

    assert!(matches!(other_text, Err(Error::RequestReused(key)) if key == "k1"));
    assert!(matches!(other_session, Err(Error::RequestReused(_))));
    assert_eq!(world.number("select count(*) from session.inbox").await?, 1);
    Ok(())
}

#[tokio::test]
async fn fifty_senders_at_once_get_fifty_places_in_a_row() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();

    let keys: Vec<String> = (0..50).map(|n| format!("k{}", n / 2)).collect();
    let sent = keys.iter().map(|key| ada.say("s", key, "hello"));
    let accepted = futures::future::try_join_all(sent).await?;

    let mut places: Vec<i64> =
        accepted.iter().filter(|one| !one.duplicate).map(|one| one.seq).collect();
    places.sort_unstable();
    assert_eq!(places, (1..=25).collect::<Vec<i64>>());
    assert_eq!(world.number("select next_in from session.session_lease").await?, 26);
    Ok(())
}

#[tokio::test]
async fn a_full_session_refuses_what_is_new_and_still_knows_what_it_has() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let messages = (0..200).map(|n| ada.message("s", &format!("k{n}"), "hello")).collect();
    for accepted in world.sessions.ingest_batch(ada.id, messages).await {
        accepted?;
    }

    let more = ada.say("s", "one too many", "hello").await;
    let known = ada.say("s", "k7", "hello").await?;

    assert!(matches!(more, Err(Error::SessionFull { waiting: 200, limit: 200, .. })));
    assert_eq!((known.seq, known.duplicate), (8, true));
    Ok(())
}

#[tokio::test]
async fn a_batch_with_a_repetition_stores_what_is_new_without_a_gap() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "one").await?;

    let batch = ["k0", "k1", "k2"].map(|key| ada.message("s", key, "one")).into();
    let answers = world.sessions.ingest_batch(ada.id, batch).await;

    let places: Vec<(i64, bool)> = answers
        .into_iter()
        .map(|answer| answer.map(|accepted| (accepted.seq, accepted.duplicate)))
        .collect::<Result<_, _>>()?;
    assert_eq!(places, [(2, false), (1, true), (3, false)]);
    assert_eq!(world.number("select next_in from session.session_lease").await?, 4);
    Ok(())
}

#[tokio::test]
async fn a_key_of_no_bytes_or_too_many_is_refused() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();

    assert!(matches!(ada.say("s", "", "hello").await, Err(Error::InvalidIdemKey(0))));
    assert!(matches!(
        ada.say("s", &"k".repeat(257), "hello").await,
        Err(Error::InvalidIdemKey(257))
    ));
    Ok(())
}

#[tokio::test]
async fn a_tenant_with_as_many_sessions_as_it_may_gets_no_more_and_keeps_using_those()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());
    let changes = ShareChanges { max_sessions: Some(2), ..ShareChanges::default() };
    world.sessions.queues().set_share(ada.id, changes).await?;
    ada.say("s1", "k1", "hello").await?;
    let second = ada.say("s2", "k2", "hello").await?.session;

    let refused = ada.say("s3", "k3", "hello").await.unwrap_err();
    assert!(matches!(refused, Error::TooManySessions { limit: 2 }), "{refused}");
    assert_eq!(ada.say("s2", "k4", "hello").await?.session, second);
    eve.say("s3", "k3", "hello").await?;

    world.sessions.delete(ada.id, second).await?;
    let given = ["s1", "s3", "s4"].map(|session| MessageWithSettings {
        message: ada.message(session, session, "hello"),
        settings: SessionSettings::default(),
    });
    let accepted = world.sessions.ingest_many(ada.id, &given).await?;

    let accepted: Vec<bool> = accepted.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, true, false]);
    Ok(())
}
