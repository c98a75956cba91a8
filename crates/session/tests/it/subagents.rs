//! A subagent does its task once, and its end reaches the requester once.

use std::time::Duration;

use holdfast_session::{
    Acceptance, Cleanup, Completion, Error, NewMessage, NewSubagent, Subagent, SubagentAccess,
    SubagentOutcome,
};
use holdfast_types::{AgentName, RunId, SessionId, SessionKey, TenantId, Wait};

use crate::world::{Tenant, World, completion, thought};

fn told(ended: &Subagent) -> String {
    format!("{} {:?} {} {}", ended.label, ended.outcome, ended.result, ended.error)
}

/// Creates a session that has answered, and that requests a subagent.
async fn parent(world: &World, ada: &Tenant<'_>) -> anyhow::Result<SessionId> {
    let target = Some(ada.target());
    let asked = NewMessage { target: target.clone(), ..ada.message("s", "k", "go") };
    let accepted = world.sessions.ingest(ada.id, asked).await?;
    let claim = world.claim_one().await?;
    let run = RunId::from(accepted.message);
    let answered = Completion {
        entries: vec![thought("I will")],
        done: vec![1],
        last_target: target,
        ..completion(run)
    };
    world.sessions.complete(&claim, answered).await?;
    Ok(accepted.session)
}

fn wanted(ada: &Tenant<'_>, parent: SessionId, id: &str) -> anyhow::Result<NewSubagent> {
    Ok(NewSubagent {
        parent,
        key: SessionKey::subagent(&AgentName::new("s"), id)?,
        agent: ada.agent,
        label: "count".into(),
        task: "count the stars".into(),
        outside: false,
        model: None,
        thinking: None,
        cleanup: Cleanup::Keep,
        max_duration: Duration::from_secs(3600),
        max_steps: Some(7),
        max_tokens: None,
        most: 2,
        given: SubagentAccess::default(),
        await_timeout: None,
        place: None,
        trace: None,
    })
}

#[tokio::test]
async fn its_task_is_given_once_and_its_end_announced_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let parent = parent(&world, &ada).await?;

    let (child, first) =
        world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "a")?).await?;
    let (same, again) =
        world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "a")?).await?;
    assert_eq!((same, again.message, again.duplicate), (child, first.message, true));
    assert!(world.sessions.subagents().ended(None, 9).await?.is_empty());
    assert!(world.sessions.subagents().announce(ada.id, child, told).await?.is_none());

    let claim = world.claim_one().await?;
    assert_eq!(claim.session, child);
    world.answer(&claim, "about seven").await?;
    assert_eq!(world.sessions.subagents().ended(None, 9).await?, [(ada.id, child)]);
    let announced = world.sessions.subagents().announce(ada.id, child, told).await?.unwrap();
    let accepted = announced.accepted.unwrap();
    // State after a crash between storing the announcement and recording it.
    world.admin("update session.subagents set announced_at = null").await?;
    let repeated = world.sessions.subagents().announce(ada.id, child, told).await?.unwrap();

    assert!(repeated.accepted.unwrap().duplicate);
    assert_eq!(accepted.session, parent);
    let claim = world.claim_one().await?;
    let loaded = world.sessions.load(&claim, 10).await?;
    let [waiting] = loaded.waiting.as_slice() else { panic!("{:?}", loaded.waiting) };
    assert_eq!(waiting.body.event.as_deref(), Some("subagent"));
    assert_eq!(waiting.body.text, "count Some(Ok) about seven ");
    assert!(waiting.body.outside && waiting.target.is_some());
    assert!(world.sessions.subagents().ended(None, 9).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn an_end_before_that_of_the_requesters_first_turn_is_told_where_its_message_came_from()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let target = Some(ada.target());
    let asked = NewMessage { target: target.clone(), ..ada.message("s", "k", "go") };
    let parent = world.sessions.ingest(ada.id, asked).await?.session;
    let open = world.claim_one().await?;
    let (child, _) = world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "a")?).await?;
    let claim = world.claim_one().await?;
    world.answer(&claim, "about seven").await?;

    world.sessions.subagents().announce(ada.id, child, told).await?.unwrap();

    let loaded = world.sessions.load(&open, 10).await?;
    let targets: Vec<_> = loaded.waiting.into_iter().map(|message| message.target).collect();
    assert_eq!(targets, [target.clone(), target]);
    Ok(())
}

#[tokio::test]
async fn an_end_that_was_announced_in_other_words_is_not_announced_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let parent = parent(&world, &ada).await?;
    let (child, _) = world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "a")?).await?;
    let claim = world.claim_one().await?;
    world.answer(&claim, "about seven").await?;
    world.sessions.subagents().announce(ada.id, child, told).await?.unwrap();
    // State after a crash between storing the announcement and recording it.
    world.admin("update session.subagents set announced_at = null").await?;

    let other = |ended: &Subagent| format!("{} and its changes", told(ended));
    let repeated = world.sessions.subagents().announce(ada.id, child, other).await?.unwrap();

    assert!(repeated.accepted.is_none(), "{repeated:?}");
    assert!(world.sessions.subagents().ended(None, 9).await?.is_empty());
    let told = "select count(*) from session.inbox where body->>'event' = 'subagent'";
    assert_eq!(world.number(told).await?, 1);
    Ok(())
}

#[tokio::test]
async fn one_that_takes_too_long_is_said_to_and_ends() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let parent = parent(&world, &ada).await?;
    let (child, _) = world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "a")?).await?;
    let claim = world.claim_one().await?;
    world.admin("update session.subagents set deadline_at = clock_timestamp()").await?;
    assert!(world.sessions.subagents().announce(ada.id, child, told).await?.is_none());
    assert!(world.sessions.subagents().ended(None, 9).await?.is_empty(), "announced at its limit");
    world.admin("update session.subagents set deadline_at = now() - interval '5 seconds'").await?;

    assert_eq!(world.sessions.subagents().ended(None, 9).await?, [(ada.id, child)]);
    let announced = world.sessions.subagents().announce(ada.id, child, told).await?.unwrap();

    assert!(announced.running.is_some());
    let parent = world.claim_one().await?;
    let loaded = world.sessions.load(&parent, 10).await?;
    assert_eq!(loaded.waiting[0].body.text, "count Some(Timeout)  ");
    assert!(world.sessions.load(&claim, 10).await?.cancel_upto >= 1);
    let ended = world.sessions.subagents().get(ada.id, child).await?.unwrap();
    assert_eq!(ended.outcome, Some(SubagentOutcome::Timeout));
    Ok(())
}

#[tokio::test]
async fn one_that_fails_or_is_gone_is_not_said_to_have_done_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let parent = parent(&world, &ada).await?;
    let (failed, _) = world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "a")?).await?;
    let (gone, _) = world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "b")?).await?;
    world
        .admin(
            "update session.inbox set state = 'dead', outcome = 'dead', reason = 'it would not'
             where body->>'text' = 'count the stars'",
        )
        .await?;
    world.sessions.delete(ada.id, gone).await?;

    let mut ended = world.sessions.subagents().ended(None, 9).await?;
    ended.sort_by_key(|(_, session)| *session != failed);
    assert_eq!(ended, [(ada.id, failed), (ada.id, gone)]);

    for (session, expected) in
        [(failed, "count Some(Error)  it would not"), (gone, "count Some(Unknown)  ")]
    {
        world.sessions.subagents().announce(ada.id, session, told).await?.unwrap();
        assert_eq!(
            told(&world.sessions.subagents().get(ada.id, session).await?.unwrap()),
            expected
        );
    }
    // Deleting the requester deletes the records of its subagents.
    world.sessions.delete(ada.id, parent).await?;
    assert_eq!(world.number("select count(*) from session.subagents").await?, 0);
    Ok(())
}

#[tokio::test]
async fn one_that_is_waited_for_is_announced_only_where_the_call_has_not_heard_of_its_end()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let parent = parent(&world, &ada).await?;
    let waited = |id| {
        anyhow::Ok(NewSubagent { await_timeout: Some(Duration::ZERO), ..wanted(&ada, parent, id)? })
    };
    let (heard, _) = world.sessions.subagents().spawn(ada.id, waited("a")?).await?;
    let (left, _) = world.sessions.subagents().spawn(ada.id, waited("b")?).await?;
    assert!(world.sessions.subagents().await_end(ada.id, heard).await?.is_none());
    for claim in [world.claim_one().await?, world.claim_one().await?] {
        world.answer(&claim, "about seven").await?;
    }

    assert!(world.sessions.subagents().ended(None, 9).await?.is_empty());
    let end = world.sessions.subagents().await_end(ada.id, heard).await?.unwrap();
    assert_eq!(end.result, "about seven");
    world.sessions.subagents().stop_awaiting(ada.id, left).await?;
    assert_eq!(world.sessions.subagents().ended(None, 9).await?, [(ada.id, left)]);
    let announced = world.sessions.subagents().announce(ada.id, left, told).await?.unwrap();
    assert!(announced.accepted.is_some());

    // After the time in which the call must have stored the result, its end counts as handled.
    world.admin("update session.subagents set heard_at = heard_at - interval '3 minutes'").await?;
    assert_eq!(world.sessions.subagents().ended(None, 9).await?, [(ada.id, heard)]);
    let settled = world.sessions.subagents().announce(ada.id, heard, told).await?.unwrap();
    assert!(settled.accepted.is_none(), "the call has told of it");
    assert!(world.sessions.subagents().ended(None, 9).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn no_more_run_at_once_than_may_and_other_tenants_see_none() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, ben) = (world.tenant(), world.tenant());
    let parent = parent(&world, &ada).await?;
    let (child, _) = world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "a")?).await?;
    world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "b")?).await?;

    let third = world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "c")?).await;
    let same: Result<(SessionId, Acceptance), Error> =
        world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "a")?).await;

    assert!(matches!(third, Err(Error::Conflict(_))), "{third:?}");
    assert!(same?.1.duplicate);
    assert_eq!(world.sessions.subagents().children(ada.id, parent).await?.len(), 2);
    let foreign: TenantId = ben.id;
    assert_eq!(world.sessions.subagents().get(foreign, child).await?, None);
    assert!(world.sessions.subagents().children(foreign, parent).await?.is_empty());
    assert!(world.sessions.subagents().announce(foreign, child, told).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn spawns_at_the_same_time_count_each_other() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let parent = parent(&world, &ada).await?;
    let spawn = async |id: &str| {
        let new = NewSubagent { most: 1, ..wanted(&ada, parent, id)? };
        anyhow::Ok(world.sessions.subagents().spawn(ada.id, new).await)
    };

    let mut holder = world.hold_sessions().await?;
    let (first, second, let_go) =
        tokio::join!(spawn("a"), spawn("b"), world.let_go_after(2, &mut holder));
    let_go?;

    let results = [first?, second?];
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert!(results.iter().any(|result| matches!(result, Err(Error::Conflict(_)))), "{results:?}");
    assert_eq!(world.sessions.subagents().children(ada.id, parent).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn one_that_was_for_once_goes_although_it_runs_at_its_timeout() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let parent = parent(&world, &ada).await?;
    let new = NewSubagent { cleanup: Cleanup::Delete, ..wanted(&ada, parent, "a")? };
    let (child, _) = world.sessions.subagents().spawn(ada.id, new).await?;
    let claim = world.claim_one().await?;
    world.admin("update session.subagents set deadline_at = now() - interval '5 seconds'").await?;

    let announced = world.sessions.subagents().announce(ada.id, child, told).await?.unwrap();

    assert!(announced.running.is_some());
    let view = world.sessions.views().session(ada.id, child).await;
    assert!(matches!(view, Err(Error::NotFound { .. })), "{view:?}");
    assert!(world.answer(&claim, "too late").await.unwrap_err().is_fenced());
    assert_eq!(world.claim_one().await?.session, parent);
    Ok(())
}

#[tokio::test]
async fn one_that_was_for_once_goes_when_its_end_was_announced() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let parent = parent(&world, &ada).await?;
    let new = NewSubagent { cleanup: Cleanup::Delete, ..wanted(&ada, parent, "a")? };
    let (child, _) = world.sessions.subagents().spawn(ada.id, new).await?;
    let claim = world.claim_one().await?;
    world.finish(&claim, vec![1], "done", Wait::Anything).await?;

    world.sessions.subagents().announce(ada.id, child, told).await?.unwrap();

    let view = world.sessions.views().session(ada.id, child).await;
    assert!(matches!(view, Err(Error::NotFound { .. })));
    let claim = world.claim_one().await?;
    assert_eq!(claim.session, parent);
    Ok(())
}

#[tokio::test]
async fn an_end_that_cannot_be_announced_is_tried_less_and_less_often() -> anyhow::Result<()> {
    const NOW: &str = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";
    const DUE: &str =
        "select (extract(epoch from announce_at) * 1000)::bigint from session.subagents";
    const LATER: &str =
        "update session.subagents set announce_at = announce_at + interval '1 hour'";
    let world = World::start().await?;
    let ada = world.tenant();
    let parent = parent(&world, &ada).await?;
    let (child, _) = world.sessions.subagents().spawn(ada.id, wanted(&ada, parent, "a")?).await?;
    let claim = world.claim_one().await?;
    world.answer(&claim, "about seven").await?;

    for delay in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
        assert_eq!(world.sessions.subagents().ended(None, 9).await?, [(ada.id, child)]);
        let before = world.number(NOW).await?;
        world.sessions.subagents().postpone(ada.id, child).await?;
        let (after, due) = (world.number(NOW).await?, world.number(DUE).await?);
        let expected = before + delay * 1000 - 1..=after + delay * 1000 + 1;
        assert!(expected.contains(&due), "{delay} s: {due} is not in {expected:?}");
        // However long this test takes, it is not due.
        world.admin(LATER).await?;
        assert!(world.sessions.subagents().ended(None, 9).await?.is_empty());
        world.admin("update session.subagents set announce_at = clock_timestamp()").await?;
    }
    Ok(())
}
