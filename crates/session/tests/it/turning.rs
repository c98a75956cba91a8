//! A turn is written by its owner only, completes the messages that it saw once, and its answer can
//! be read.

use holdfast_session::{Completion, DeliveryFilter, Error, NewDelivery, StepWrite, TurnOutcome};
use holdfast_types::{CallRecord, DeliveryId, Entry, Fault as _, Media, RunId, Wait};

use crate::world::{World, completion, thought};

#[tokio::test]
async fn an_answer_is_found_by_the_message_that_asked() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let asked = ada.say("s", "k1", "hello").await?;
    assert_eq!(world.sessions.views().answer(ada.id, asked.message).await?.outcome, None);

    world.answer(&world.claim_one().await?, "hi there").await?;

    let answer = world.sessions.views().answer(ada.id, asked.message).await?;
    assert_eq!((answer.outcome, answer.text.as_str()), (Some(TurnOutcome::Completed), "hi there"));
    assert_eq!(answer.run, Some(RunId::from(asked.message)));
    assert_eq!((answer.usage.input, answer.model.as_str()), (3, "test:one"));
    assert!(world.claim().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_runner_that_lost_its_session_writes_nothing() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let stale = world.claim_one().await?;
    world.lapse().await?;
    world.sweep().await?;
    let owner = world.claim_one().await?;

    let run = RunId::generate();
    let append =
        StepWrite { run: Some(run), entries: vec![thought("stale")], ..StepWrite::default() };
    let appended = world.sessions.append(&stale, append).await;
    let completed = world.sessions.complete(&stale, completion(run)).await;
    let released = world.sessions.release(&stale).await;
    let loaded = world.sessions.load(&stale, 10).await;

    assert!(appended.unwrap_err().is_fenced());
    assert!(completed.unwrap_err().is_fenced());
    assert!(released.unwrap_err().is_fenced());
    assert!(loaded.unwrap_err().is_fenced());
    world.answer(&owner, "mine").await?;
    assert_eq!(world.number("select count(*) from session.runs").await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_write_that_an_earlier_one_went_before_is_told_and_nothing_is_written()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    let run = RunId::generate();
    let append = StepWrite {
        run: Some(run),
        at: Some(world.sessions.load(&claim, 10).await?.next_entry),
        entries: vec![thought("once")],
        ..StepWrite::default()
    };
    world.sessions.append(&claim, append.clone()).await?;

    // A repeated write whose response was lost.
    let appended = world.sessions.append(&claim, append.clone()).await.unwrap_err();
    let end = Completion { at: append.at, entries: append.entries, ..completion(run) };
    let ended = world.sessions.complete(&claim, end.clone()).await.unwrap_err();
    let done = Completion { done: vec![1], ..end };
    let completed = world.sessions.complete(&claim, done).await.unwrap_err();

    for error in [appended, ended, completed] {
        assert!(matches!(error, Error::JournalMoved), "{error}");
        assert!(error.kind().is_transient());
    }
    assert_eq!(world.number("select count(*) from session.entries").await?, 1);
    assert_eq!(world.number("select next_entry from session.session_lease").await?, 2);
    assert_eq!(world.number("select count(*) from session.inbox where state = 'new'").await?, 1);
    assert_eq!(world.number("select count(*) from session.runs").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_repetition_and_a_turn_that_writes_wait_for_each_other_in_one_order() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    let run = RunId::generate();

    // In each round the repetition waits for the session's row first, and the turn second.
    let mut holder = world.hold_sessions().await?;
    let append = StepWrite {
        run: Some(run),
        seen: vec![1],
        entries: vec![thought("one")],
        ..StepWrite::default()
    };
    let (first, appended, let_go) = tokio::join!(
        ada.say("s", "k1", "hello"),
        world.after_waiting(1, world.sessions.append(&claim, append)),
        world.let_go_after(2, &mut holder),
    );
    let mut holder = world.hold_sessions().await?;
    let end = Completion { entries: vec![thought("two")], done: vec![1], ..completion(run) };
    let (second, completed, let_go_again) = tokio::join!(
        ada.say("s", "k1", "hello"),
        world.after_waiting(1, world.sessions.complete(&claim, end)),
        world.let_go_after(2, &mut holder),
    );

    assert!(first?.duplicate && second?.duplicate);
    appended.and(let_go)?;
    completed.and(let_go_again)?;
    Ok(())
}

#[tokio::test]
async fn what_comes_during_a_turn_is_told_and_makes_the_session_ready_again() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "one").await?;
    let claim = world.claim_one().await?;
    let loaded = world.sessions.load(&claim, 10).await?;

    let second = ada.say("s", "k2", "two").await?;
    assert_eq!(second.running.map(|running| running.owner), Some(world.runner));
    let append = StepWrite {
        run: Some(loaded.waiting[0].message.into()),
        entries: vec![Entry::Heard { seq: 1, body: loaded.waiting[0].body.clone() }],
        seen: vec![1],
        ..StepWrite::default()
    };
    let appended = world.sessions.append(&claim, append).await?;
    assert!(appended.next_in > loaded.next_in);
    world.finish(&claim, vec![1], "first", Wait::Anything).await?;

    let again = world.claim_one().await?;
    assert_eq!(again.session, claim.session);
    assert_eq!(world.sessions.load(&again, 10).await?.waiting.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_reply_that_is_enqueued_twice_under_one_id_is_one_delivery() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;

    let reply = NewDelivery {
        target: ada.target(),
        text: "hi".into(),
        act: None,
        id: DeliveryId::generate(),
        delay: std::time::Duration::ZERO,
    };
    for _ in 0..2 {
        let append = StepWrite {
            run: Some(RunId::generate()),
            deliveries: vec![reply.clone()],
            ..StepWrite::default()
        };
        world.sessions.append(&claim, append).await?;
    }

    assert_eq!(
        world
            .sessions
            .deliveries()
            .list(ada.id, DeliveryFilter { limit: 10, ..DeliveryFilter::default() })
            .await?
            .len(),
        1
    );
    Ok(())
}

#[tokio::test]
async fn attempts_are_counted_from_the_last_progress() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    world.claim_one().await?;
    world.lapse().await?;
    world.sweep().await?;
    let second = world.claim_one().await?;
    assert_eq!(second.attempts, 2);

    let append = StepWrite {
        run: Some(RunId::generate()),
        entries: vec![thought("a step")],
        ..StepWrite::default()
    };
    world.sessions.append(&second, append).await?;
    world.lapse().await?;
    world.sweep().await?;

    assert_eq!(world.claim_one().await?.attempts, 1);
    Ok(())
}

#[tokio::test]
async fn a_journal_reads_the_same_however_much_of_it_was_read_before() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for n in 0..9 {
        ada.say("s", &format!("k{n}"), &format!("hello {n}")).await?;
        world.answer(&world.claim_one().await?, &format!("hi {n}")).await?;
        // Another process answers in some rounds.
        if n % 3 == 1 {
            ada.say("s", &format!("other{n}"), "hello").await?;
            let claim = world.claim_one().await?;
            let other = holdfast_session::Sessions::new(world.pools()?);
            let run = other.load(&claim, 100).await?.waiting[0].message.into();
            let done = vec![other.load(&claim, 100).await?.waiting[0].seq];
            let entries = vec![thought("from elsewhere")];
            let end = holdfast_session::Completion { entries, done, ..completion(run) };
            other.complete(&claim, end).await?;
        }
    }
    ada.say("s", "last", "hello").await?;
    let claim = world.claim_one().await?;

    for history in [100, 4, 1] {
        let fresh = holdfast_session::Sessions::new(world.pools()?);
        let read = fresh.load(&claim, history).await?.entries;
        assert_eq!(world.sessions.load(&claim, history).await?.entries, read);
        assert_eq!(world.sessions.load(&claim, history).await?.entries, read);
    }
    assert!(world.sessions.load(&claim, 0).await?.entries.is_empty());

    // After a restore from a backup the database has less than was read.
    world.admin("delete from session.entries where seq > 5").await?;
    world.admin("update session.session_lease set next_entry = 6").await?;
    assert_eq!(world.sessions.load(&claim, 100).await?.entries.len(), 5);

    // After a failover that lost an entry, another one has its place.
    let replace =
        "update session.entries set body = body || '{\"text\": \"another\"}' where seq = 5";
    world.admin(replace).await?;
    let last = world.sessions.load(&claim, 100).await?.entries.pop();
    assert!(matches!(last, Some((5, _, Entry::Thought { text, .. })) if text == "another"));
    Ok(())
}

#[tokio::test]
async fn a_nul_character_fails_no_write_and_is_replaced() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut message = ada.message("s", "k\0", "find\0me");
    message.target = Some(ada.target());
    let sent = world.sessions.ingest(ada.id, message.clone()).await?;
    let claim = world.claim_one().await?;
    let run = RunId::from(sent.message);
    let record = CallRecord {
        details: Some(serde_json::json!({"file\0": "a\0b", "escaped": "\\u0000"})),
        ..CallRecord::default()
    };
    let returned = Entry::Returned {
        call: "c\0".to_owned(),
        output: "one\0two\0".to_owned(),
        failed: true,
        media: Media::default(),
        record,
    };
    let delivery = |text: &str| NewDelivery {
        target: ada.target(),
        text: text.to_owned(),
        act: None,
        id: DeliveryId::generate(),
        delay: std::time::Duration::ZERO,
    };
    let write = StepWrite {
        run: Some(run),
        entries: vec![thought("x\0y"), returned],
        deliveries: ["first\0", "plain"].map(delivery).into(),
        ..StepWrite::default()
    };

    world.sessions.append(&claim, write).await?;
    let end = Completion {
        entries: vec![Entry::summary("sum\0", 0), thought("\0bye")],
        done: vec![1],
        reason: Some("why\0".to_owned()),
        model: "test:\0".to_owned(),
        ..completion(run)
    };
    world.sessions.complete(&claim, end).await?;

    assert!(world.sessions.ingest(ada.id, message).await?.duplicate);
    let journal = world.sessions.views().history(ada.id, sent.session, 10, None).await?;
    let told = serde_json::to_string(&journal.iter().map(|view| &view.entry).collect::<Vec<_>>())?;
    for text in ["x\u{fffd}y", "one\u{fffd}two\u{fffd}", "a\u{fffd}b", r"\\u0000", "\u{fffd}bye"] {
        assert!(told.contains(text), "{text}: {told}");
    }
    let stored = "select count(*) from session.deliveries where body in (U&'first\\FFFD', 'plain')";
    assert_eq!(world.number(stored).await?, 2);
    Ok(())
}
