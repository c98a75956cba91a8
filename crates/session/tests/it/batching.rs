//! Messages for many sessions at once are accepted like single ones.

use std::time::Duration;

use futures::future::try_join_all;
use holdfast_session::{Acceptance, Error, MessageWithSettings, TurnOutcome};
use holdfast_types::{QueueMode, SessionSettings, Source, Thinking, Wait};

use crate::world::{Tenant, World};

fn openings(tenant: &Tenant<'_>, names: impl Iterator<Item = String>) -> Vec<MessageWithSettings> {
    names
        .map(|name| MessageWithSettings {
            message: tenant.message(&name, &name, "hello"),
            settings: SessionSettings::default(),
        })
        .collect()
}

fn named(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("s{n:04}"))
}

async fn all(
    world: &World,
    tenant: &Tenant<'_>,
    openings: &[MessageWithSettings],
) -> anyhow::Result<Vec<Acceptance>> {
    let answers = world.sessions.ingest_many(tenant.id, openings).await?;
    Ok(answers.into_iter().collect::<Result<_, _>>()?)
}

#[tokio::test]
async fn each_has_its_own_session_and_no_more_are_admitted_than_the_tenant_may()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();

    let accepted = all(&world, &ada, &openings(&ada, named(1200))).await?;

    assert!(accepted.iter().all(|one| one.seq == 1 && !one.duplicate));
    assert_eq!(accepted.iter().filter(|one| one.wake.is_some()).count(), 64);
    let sessions = "select count(distinct session_id) from session.inbox";
    assert_eq!(world.number(sessions).await?, 1200);
    assert_eq!(world.number("select sum(in_flight)::bigint from session.tenant_flight").await?, 64);
    let ready = "select count(*) from session.session_lease where state = 'READY'";
    assert_eq!(world.number(ready).await?, 1200);
    // Their fair keys are consecutive.
    let places = "select count(distinct fair_key) from session.session_lease";
    assert_eq!(world.number(places).await?, 64);
    // The results are in the order of the messages.
    let first = accepted[7].session.as_uuid();
    let key = format!(
        "select count(*) from session.sessions where session_id = '{first}' and key like '%s0007%'"
    );
    assert_eq!(world.number(&key).await?, 1);
    Ok(())
}

#[tokio::test]
async fn what_came_before_is_answered_with_its_first_place_and_the_rest_is_taken()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let first = all(&world, &ada, &openings(&ada, named(20))).await?;

    let again = all(&world, &ada, &openings(&ada, named(40))).await?;

    for (one, other) in first.iter().zip(&again) {
        assert!(other.duplicate);
        assert_eq!((one.message, one.session, one.seq), (other.message, other.session, other.seq));
    }
    assert!(again[20..].iter().all(|one| !one.duplicate));
    assert_eq!(world.number("select count(*) from session.inbox").await?, 40);
    assert_eq!(world.number("select sum(next_in)::bigint from session.session_lease").await?, 80);
    let known = world
        .sessions
        .views()
        .find_accepted(ada.id, &Source::Internal("test".to_owned()), "s0003")
        .await?;
    assert_eq!(known.map(|one| one.message), Some(first[3].message));
    Ok(())
}

#[tokio::test]
async fn a_key_that_comes_with_another_text_is_refused_and_takes_nobody_with_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    all(&world, &ada, &openings(&ada, named(1))).await?;
    let mut given = openings(&ada, named(3));
    given[0].message = ada.message("s0000", "s0000", "good bye");

    let answers = world.sessions.ingest_many(ada.id, &given).await?;

    assert!(matches!(&answers[0], Err(Error::RequestReused(key)) if key == "s0000"));
    assert!(answers[1].is_ok() && answers[2].is_ok());
    Ok(())
}

#[tokio::test]
async fn two_for_one_session_keep_their_order() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut given = openings(&ada, named(2));
    for key in ["a", "b"] {
        let message = ada.message("s0000", key, key);
        given.push(MessageWithSettings { message, settings: SessionSettings::default() });
    }

    let accepted = all(&world, &ada, &given).await?;

    let places: Vec<i64> = accepted.iter().map(|one| one.seq).collect();
    assert_eq!(places, [1, 1, 2, 3]);
    assert_eq!(accepted[0].session, accepted[3].session);
    Ok(())
}

#[tokio::test]
async fn a_session_that_is_made_is_set_and_one_that_is_there_keeps_its_settings()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let set = |thinking| SessionSettings { thinking: Some(thinking), ..SessionSettings::default() };
    let mut given = openings(&ada, named(1));
    given[0].settings = set(Thinking::High);
    let session = all(&world, &ada, &given).await?[0].session;

    let message = ada.message("s0000", "again", "hello");
    all(&world, &ada, &[MessageWithSettings { message, settings: set(Thinking::Low) }]).await?;

    let settings = world.sessions.settings().get(ada.id, session).await?;
    assert_eq!(settings.thinking, Some(Thinking::High));
    Ok(())
}

#[tokio::test]
async fn a_session_that_waits_is_woken_by_what_it_waits_for_and_one_that_runs_is_told()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    all(&world, &ada, &openings(&ada, ["asks", "runs"].map(str::to_owned).into_iter())).await?;
    let mut claims = world.claim().await?;
    let asks = claims.swap_remove(0);
    let filter =
        holdfast_types::MessageFilter { contains: Some("yes".into()), ..Default::default() };
    let wait = Wait::Message { filter, deadline_ms: None, note: String::new() };
    world.finish(&asks, vec![1], "shall I?", wait).await?;

    let say = |name: &str, key: &str, text: &str| MessageWithSettings {
        message: ada.message(name, key, text),
        settings: SessionSettings::default(),
    };
    let no = all(&world, &ada, &[say("asks", "1", "no"), say("runs", "2", "and?")]).await?;
    let yes = all(&world, &ada, &[say("asks", "3", "yes")]).await?;

    assert_eq!((no[0].wake, yes[0].wake), (None, Some(Duration::ZERO)));
    assert_eq!(no[1].running.map(|running| running.owner), Some(world.runner));
    Ok(())
}

#[tokio::test]
async fn whoever_sends_the_same_at_the_same_time_each_message_is_there_once() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    let given = openings(&ada, named(150));

    // The first client goes forward, the second backward, the third one by one.
    let back: Vec<MessageWithSettings> = given.iter().rev().cloned().collect();
    let one_by_one = async {
        let each = given.iter().map(|one| world.sessions.ingest(ada.id, one.message.clone()));
        Ok::<_, anyhow::Error>(try_join_all(each).await?)
    };
    let (front, back, single) =
        tokio::join!(all(&world, &ada, &given), all(&world, &ada, &back), one_by_one);
    let (front, mut back, single) = (front?, back?, single?);
    back.reverse();

    for at in 0..given.len() {
        let ids = [front[at].message, back[at].message, single[at].message];
        assert!(ids.iter().all(|id| *id == ids[0]), "{at}");
        let new = [&front[at], &back[at], &single[at]].map(|one| u32::from(!one.duplicate));
        assert_eq!(new.iter().sum::<u32>(), 1, "{at}");
    }
    assert_eq!(world.number("select count(*) from session.inbox").await?, 150);
    Ok(())
}

#[tokio::test]
async fn another_tenant_s_sessions_of_the_same_names_are_others() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());
    let hers = all(&world, &ada, &openings(&ada, named(10))).await?;

    let others = all(&world, &eve, &openings(&eve, named(10))).await?;

    for (one, other) in hers.iter().zip(&others) {
        assert!(!other.duplicate && one.session != other.session);
    }
    let source = Source::Internal("test".to_owned());
    let found = world.sessions.views().find_accepted(eve.id, &source, "s0000").await?;
    assert_eq!(found.map(|one| one.session), Some(others[0].session));
    Ok(())
}

#[tokio::test]
async fn a_full_session_refuses_and_its_neighbours_are_taken() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let full = (0..200).map(|n| ada.message("full", &format!("k{n}"), "x")).collect();
    for accepted in world.sessions.ingest_batch(ada.id, full).await {
        accepted?;
    }

    let names = ["full", "free"].map(str::to_owned).into_iter();
    let answers = world.sessions.ingest_many(ada.id, &openings(&ada, names)).await?;

    assert!(matches!(&answers[0], Err(Error::SessionFull { waiting: 200, .. })));
    assert!(answers[1].is_ok());
    Ok(())
}

#[tokio::test]
async fn what_collects_waits_for_more() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut given = openings(&ada, named(2));
    given[0].message.mode = QueueMode::Collect;
    given[0].message.debounce = Duration::from_secs(60);

    let accepted = all(&world, &ada, &given).await?;

    assert_eq!(accepted[0].wake, Some(Duration::from_secs(60)));
    assert_eq!(world.claim().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn ends_are_told_of_those_that_have_ended_and_of_no_others() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let accepted = all(&world, &ada, &openings(&ada, named(3))).await?;
    let claims = world.claim().await?;
    let second = claims.iter().find(|claim| claim.session == accepted[1].session);
    world.answer(second.ok_or_else(|| anyhow::anyhow!("not claimed"))?, "done").await?;

    let asked: Vec<_> = accepted.iter().map(|one| (ada.id, one.session, one.seq)).collect();
    let ends = world.sessions.views().message_outcomes(&asked).await?;

    assert_eq!(ends.len(), 1);
    assert_eq!((ends[0].place, ends[0].outcome), (1, TurnOutcome::Completed));
    assert_eq!(ends[0].run.map(|run| run.as_uuid()), Some(accepted[1].message.as_uuid()));
    // A position in another tenant's session is ignored.
    let foreign = (world.tenant().id, accepted[1].session, 1);
    assert_eq!(world.sessions.views().message_outcomes(&[foreign]).await?, []);
    Ok(())
}
