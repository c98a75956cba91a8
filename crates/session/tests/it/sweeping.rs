//! The sweep recovers everything that a crash left, and a poison message becomes a dead letter.

use std::time::Duration;

use holdfast_session::{
    DeadLetterFilter, DeliveryFilter, Error, MAX_ATTEMPTS, SUSPECT_ATTEMPTS, ShareChanges,
    StepWrite, TurnOutcome,
};
use holdfast_types::{Entry, Note, RunnerId, Wait};

use crate::world::{World, thought};

/// Returns the database's clock, in milliseconds.
const NOW: &str = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";

#[tokio::test]
async fn an_orphan_is_ready_at_once_the_first_time_and_backed_off_after() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;

    world.claim_one().await?;
    world.lapse().await?;
    assert_eq!(world.sweep().await?.orphaned, 1);
    world.claim_one().await?;
    world.lapse().await?;
    let before = world.number(NOW).await?;
    world.sweep().await?;
    let after = world.number(NOW).await?;

    let ready = "select (extract(epoch from ready_at) * 1000)::bigint from session.session_lease";
    let ready = world.number(ready).await?;
    assert!((before + 199..=after + 401).contains(&ready), "{before} {ready} {after}");
    // Holds however long this test takes.
    world.admin("update session.session_lease set ready_at = ready_at + interval '1 hour'").await?;
    assert!(world.claim().await?.is_empty());
    assert!(world.sessions.next_ready().await?.after.unwrap().as_secs() > 3_000);
    Ok(())
}

#[tokio::test]
async fn a_poison_message_dies_with_its_reason_and_the_next_one_runs() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut poison = ada.message("s", "k1", "poison");
    poison.target = Some(ada.target());
    let poison = world.sessions.ingest(ada.id, poison).await?;
    let next = ada.say("s", "k2", "fine").await?;

    for _ in 0..MAX_ATTEMPTS {
        world.admin("update session.session_lease set ready_at = clock_timestamp()").await?;
        world.claim_one().await?;
        world.lapse().await?;
        world.sweep().await?;
    }

    let answer = world.sessions.views().answer(ada.id, poison.message).await?;
    assert_eq!(answer.outcome, Some(TurnOutcome::Dead));
    assert!(answer.reason.unwrap().contains("5 attempts"));
    assert_eq!(
        world
            .sessions
            .deliveries()
            .list(ada.id, DeliveryFilter { limit: 10, ..DeliveryFilter::default() })
            .await?
            .len(),
        1
    );

    let claim = world.claim_one().await?;
    assert_eq!(claim.attempts, 1);
    world.answer(&claim, "hi").await?;
    let answer = world.sessions.views().answer(ada.id, next.message).await?;
    assert_eq!(answer.outcome, Some(TurnOutcome::Completed));
    Ok(())
}

#[tokio::test]
async fn a_poison_message_takes_no_other_along() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut innocent = Vec::new();
    for n in 0..3 {
        innocent.push(ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?.message);
    }
    let poison = ada.say("poison", "k", "poison").await?;
    for n in 3..7 {
        innocent.push(ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?.message);
    }

    // One runner after the other, each with room for all sessions, and no backoff between them.
    let mut most = 0;
    for _ in 0..20 {
        let runner = RunnerId::generate();
        let claims = world.sessions.claim(runner, 10).await?;
        let good = claims.iter().filter(|claim| claim.session != poison.session);
        most = good.clone().map(|claim| claim.attempts).max().unwrap_or(0).max(most);
        if claims.iter().all(|claim| claim.session != poison.session) {
            for claim in good {
                world.answer(claim, "hi").await?;
            }
        }
        world.lapse().await?;
        world.sweep().await?;
        world.admin("update session.session_lease set ready_at = clock_timestamp()").await?;
    }

    let outcome = async |message| -> anyhow::Result<_> {
        Ok(world.sessions.views().answer(ada.id, message).await?.outcome)
    };
    assert_eq!(outcome(poison.message).await?, Some(TurnOutcome::Dead));
    for message in innocent {
        assert_eq!(outcome(message).await?, Some(TurnOutcome::Completed));
    }
    assert_eq!(most, SUSPECT_ATTEMPTS + 1);
    Ok(())
}

#[tokio::test]
async fn a_dead_letter_is_listed_and_requeued_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let poison = ada.say("s", "k1", "poison").await?;
    for _ in 0..MAX_ATTEMPTS {
        world.admin("update session.session_lease set ready_at = clock_timestamp()").await?;
        world.claim_one().await?;
        world.lapse().await?;
        world.sweep().await?;
    }

    let list = async || {
        let filter = DeadLetterFilter { limit: 10, ..DeadLetterFilter::default() };
        world.sessions.dead_letters().list(ada.id, filter).await
    };
    let letters = list().await?;
    let first = world.sessions.dead_letters().requeue(ada.id, poison.message).await?;
    let again = world.sessions.dead_letters().requeue(ada.id, poison.message).await?;

    assert_eq!((letters.len(), letters[0].body.text.as_str()), (1, "poison"));
    assert_eq!((first.message, again.duplicate), (again.message, true));
    // It is a record, and waits for nobody any more.
    assert_eq!(list().await?.len(), 0);
    world.sessions.dead_letters().get(ada.id, poison.message).await?;
    assert_eq!(world.sessions.queues().counts(ada.id).await?.dead, 0);
    assert_eq!(world.sessions.views().inbox_counts(ada.id).await?.dead_letters, 0);
    world.answer(&world.claim_one().await?, "better now").await?;
    let answer = world.sessions.views().answer(ada.id, first.message).await?;
    assert_eq!(answer.text, "better now");
    Ok(())
}

#[tokio::test]
async fn a_wait_past_its_deadline_is_ready_and_told_what_it_waited_for() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let wait = Wait::Message {
        filter: holdfast_types::MessageFilter {
            contains: Some("yes".into()),
            ..Default::default()
        },
        deadline_ms: Some(60_000),
        note: String::new(),
    };
    let claim = world.claim_one().await?;
    world.finish(&claim, vec![1], "sure?", wait.clone()).await?;
    assert!(world.claim().await?.is_empty());

    world.admin("update session.session_lease set wait_until = clock_timestamp()").await?;
    assert_eq!(world.sweep().await?.overdue, 1);

    let claim = world.claim_one().await?;
    assert_eq!(world.sessions.load(&claim, 10).await?.wait, wait);
    Ok(())
}

#[tokio::test]
async fn an_idle_mesh_writes_no_row() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for n in 0..10 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    for claim in world.claim().await? {
        world.answer(&claim, "hi").await?;
    }
    world.log_events().await?;
    let before = versions(&world).await?;

    for _ in 0..20 {
        assert!(world.claim().await?.is_empty());
        assert!(!world.sweep().await?.needs_wake_up());
        world.log_events().await?;
        world.sessions.queues().gauges().await?;
        world.sessions.next_ready().await?;
    }

    assert_eq!(versions(&world).await?, before);
    ada.say("s1", "one more", "hello").await?;
    assert_ne!(versions(&world).await?, before);
    Ok(())
}

/// Returns a number per table that changes with every version and every lock of any of its rows.
async fn versions(world: &World) -> anyhow::Result<Vec<i64>> {
    let tables = [
        "sessions",
        "session_lease",
        "inbox",
        "entries",
        "runs",
        "deliveries",
        "events",
        "tenant_queue",
        "tenant_flight",
        "workspace_lease",
        "tombstones",
    ];
    let mut versions = Vec::new();
    for table in tables {
        let sql = format!(
            "select coalesce(sum(hashtext(ctid::text || xmin::text || xmax::text)::bigint), 0)::bigint
             from session.{table}"
        );
        versions.push(world.number(&sql).await?);
    }
    Ok(versions)
}

#[tokio::test]
async fn a_message_that_fails_for_a_while_and_then_five_times_more_is_given_up()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.tenant().say("s", "k", "hello").await?;
    let fail = async || {
        world.admin("update session.session_lease set ready_at = clock_timestamp()").await?;
        let claim = world.claim_one().await?;
        world.sessions.release_after_failure(&claim).await?;
        anyhow::Ok(world.sweep().await?.dead)
    };

    // Ten minutes of failures are not charged.
    for _ in 0..25 + MAX_ATTEMPTS - 1 {
        assert_eq!(fail().await?, 0);
    }

    assert_eq!(fail().await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_session_that_cannot_be_written_keeps_no_other_from_being_swept() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let wait = Wait::Message {
        filter: holdfast_types::MessageFilter::default(),
        deadline_ms: Some(60_000),
        note: String::new(),
    };
    for session in ["bad-wait", "waits", "bad-claim", "dies", "orphan"] {
        ada.say(session, session, "hello").await?;
    }
    for claim in world.claim().await? {
        let key = world.sessions.load(&claim, 1).await?.key;
        if key.contains("wait") {
            world.finish(&claim, vec![1], "sure?", wait.clone()).await?;
        }
    }
    world.lapse().await?;
    let of = |keys: &str| {
        format!(
            "session_id in (select session_id from session.sessions where key similar to '{keys}')"
        )
    };
    for sql in [
        format!(
            "update session.session_lease set wait_until = clock_timestamp() where {}",
            of("%wait%")
        ),
        format!(
            "update session.session_lease set attempts = {MAX_ATTEMPTS} where {}",
            of("%(bad-claim|dies)%")
        ),
    ] {
        assert_eq!(world.admin(&sql).await?, 2);
    }
    world
        .admin(
            "create function public.refuse() returns trigger language plpgsql security definer as $$
             begin
                 if exists (select from session.sessions s
                            where s.session_id = old.session_id and s.key like 'agent:bad-%') then
                     raise exception 'this row cannot be written';
                 end if;
                 return new;
             end $$",
        )
        .await?;
    world
        .admin(
            "create trigger refuse before update on session.session_lease
                 for each row execute function public.refuse()",
        )
        .await?;

    let swept = world.sessions.sweep().await;

    assert!(matches!(swept.failure, Some(Error::Session { .. })), "{:?}", swept.failure);
    // What succeeded is counted, so that runners are woken for it.
    let counts = swept.done;
    assert_eq!((counts.dead, counts.overdue, counts.orphaned), (1, 1, 1));
    assert_eq!(world.number("select count(*) from session.inbox where state = 'dead'").await?, 1);
    let ready = "select count(*) from session.session_lease where state = 'READY'";
    assert_eq!(world.number(ready).await?, 2, "the wait that is over, and the orphan");
    Ok(())
}

#[tokio::test]
async fn a_locked_session_does_not_delay_the_sweep_of_others() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let wait = Wait::Message {
        filter: holdfast_types::MessageFilter::default(),
        deadline_ms: Some(60_000),
        note: String::new(),
    };
    for session in ["wait-1", "wait-2", "dies-1", "dies-2"] {
        ada.say(session, session, "hello").await?;
    }
    for claim in world.claim().await? {
        if world.sessions.load(&claim, 1).await?.key.contains("wait") {
            world.finish(&claim, vec![1], "sure?", wait.clone()).await?;
        }
    }
    world.lapse().await?;
    let past = "clock_timestamp() - interval '1 second'";
    for set in [
        format!("wait_until = {past} where state <> 'RUNNING'"),
        format!("attempts = {MAX_ATTEMPTS} where state = 'RUNNING'"),
    ] {
        assert_eq!(world.admin(&format!("update session.session_lease set {set}")).await?, 2);
    }
    // A client is frozen in a transaction that has locked one session of each kind.
    let mut frozen = world.begin().await?;
    sqlx::query(
        "select from session.session_lease where session_id in (
             select session_id from session.sessions where key like '%-1:%') for update",
    )
    .execute(&mut frozen)
    .await?;

    let swept = world.sweep().await?;

    assert_eq!((swept.dead, swept.overdue), (1, 1));
    // Meanwhile the locked session has begun another wait.
    sqlx::query(
        "update session.session_lease set wait_until = clock_timestamp() + interval '1 hour'
         where state <> 'RUNNING' and session_id in (
             select session_id from session.sessions where key like '%-1:%')",
    )
    .execute(&mut frozen)
    .await?;
    sqlx::query("commit").execute(&mut frozen).await?;
    let swept = world.sweep().await?;
    assert_eq!((swept.dead, swept.overdue), (1, 0));
    Ok(())
}

#[tokio::test]
async fn a_sweep_locks_the_counters_of_paused_sessions_in_order() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for n in 0..40 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    assert_eq!(world.claim().await?.len(), 40);
    world.admin("update session.session_lease set paused = 'user'").await?;
    world.lapse().await?;
    // The rows lie in the table from the last to the first.
    world
        .admin(
            "with old as (delete from session.tenant_flight returning *)
             insert into session.tenant_flight select * from old order by shard desc",
        )
        .await?;
    let mut first = world.begin().await?;
    sqlx::query("select from session.tenant_flight order by shard limit 1 for update")
        .execute(&mut first)
        .await?;

    let let_go = async {
        world
            .after_waiting(1, async {
                // The sweep waits for the first, and has locked no other.
                let rest = "select count(*) from (
                    select from session.tenant_flight for update skip locked) free";
                let all = "select count(*) from session.tenant_flight";
                Ok((world.number(rest).await, world.number(all).await))
            })
            .await
            .and_then(|(rest, all)| Ok((rest?, all?)))
    };
    let swept = async { anyhow::Ok(world.sweep().await?) };
    let (counted, swept) = tokio::join!(
        async {
            let counted = let_go.await;
            sqlx::query("commit").execute(&mut first).await?;
            counted
        },
        swept
    );
    let (rest, all) = counted?;

    assert!(all > 3, "{all} shards");
    assert_eq!(rest, all - 1);
    assert_eq!(swept?.orphaned, 40);
    Ok(())
}

#[tokio::test]
async fn a_wait_that_is_over_does_not_begin_again_when_its_turn_is_given_up() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let wait = Wait::Message {
        filter: holdfast_types::MessageFilter::default(),
        deadline_ms: Some(60_000),
        note: String::new(),
    };
    let claim = world.claim_one().await?;
    world.finish(&claim, vec![1], "sure?", wait).await?;
    world.admin("update session.session_lease set wait_until = clock_timestamp()").await?;
    world.sweep().await?;

    for _ in 0..MAX_ATTEMPTS {
        world.admin("update session.session_lease set ready_at = clock_timestamp()").await?;
        world.claim_one().await?;
        world.lapse().await?;
        world.sweep().await?;
    }

    let idle = "select count(*) from session.session_lease
                where state = 'WAIT' and wait is null and wait_until is null";
    assert_eq!(world.number(idle).await?, 1);
    Ok(())
}

#[tokio::test]
async fn entries_of_a_newer_version_are_read_and_left_alone() -> anyhow::Result<()> {
    const NEWER: &str = r#"{"kind": "noted", "note": "from_the_future", "text": "t", "more": [1]}"#;
    let world = World::start().await?;
    let ada = world.tenant();
    let poison = ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    let write = StepWrite {
        run: Some(poison.message.into()),
        entries: vec![thought("one"), Entry::noted(Note::Routed, "t")],
        ..StepWrite::default()
    };
    world.sessions.append(&claim, write).await?;
    let newer = format!("update session.entries set body = '{NEWER}' where seq = 2");
    world.admin(&newer).await?;

    let loaded = world.sessions.load(&claim, 10).await?;
    world.admin(&format!("update session.session_lease set attempts = {MAX_ATTEMPTS}")).await?;
    world.lapse().await?;
    assert_eq!(world.sweep().await?.dead, 1);

    let entry = &loaded.entries[1].2;
    assert!(matches!(entry, Entry::Noted { note: Note::Unknown, .. }), "{entry:?}");
    let same = format!("select count(*) from session.entries where seq = 2 and body = '{NEWER}'");
    assert_eq!(world.number(&same).await?, 1);
    Ok(())
}

#[tokio::test]
async fn one_of_four_sweeps_admits_the_session_that_waits_longest() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let share = ShareChanges { cap: Some(1), ..ShareChanges::default() };
    world.sessions.queues().set_share(ada.id, share).await?;
    for n in 0..4 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    // A job's session waits longest, behind people's conversations.
    world
        .admin(
            "update session.session_lease l
             set priority = 2, fair_key = null, ready_at = now() - interval '1 hour'
             from session.sessions s where s.session_id = l.session_id and s.key like 'agent:s3:%'",
        )
        .await?;
    world.admin("update session.session_lease set fair_key = null").await?;

    // Each sweep finds room for one session.
    let mut places = Vec::new();
    for _ in 0..4 {
        world.admin("update session.tenant_flight set in_flight = 0").await?;
        assert_eq!(world.sweep().await?.promoted, 1);
        let job = "select count(*) from session.session_lease
                   where priority = 2 and fair_key is not null";
        places.push(world.number(job).await?);
    }

    assert_eq!(places, [0, 0, 0, 1]);
    Ok(())
}

#[tokio::test]
async fn the_upkeep_is_one_runners_until_it_is_lost() -> anyhow::Result<()> {
    const LEASE: Duration = Duration::from_secs(60);
    let world = World::start().await?;
    let (first, second) = (RunnerId::generate(), RunnerId::generate());
    let version = "select xmin::text::bigint from session.duties";

    assert!(world.sessions.upkeep().hold(first, LEASE).await?);
    let written = world.number(version).await?;
    assert!(!world.sessions.upkeep().hold(second, LEASE).await?);
    assert!(world.sessions.upkeep().hold(first, LEASE).await?);
    assert_eq!(
        world.number(version).await?,
        written,
        "nothing is written while the lease is fresh"
    );
    // In its second half the lease is renewed.
    world.admin("update session.duties set until = until - interval '40 seconds'").await?;
    assert!(world.sessions.upkeep().hold(first, LEASE).await?);
    assert!(!world.sessions.upkeep().hold(second, LEASE).await?);

    world.admin("update session.duties set until = clock_timestamp()").await?;
    assert!(world.sessions.upkeep().hold(second, LEASE).await?);
    assert!(!world.sessions.upkeep().hold(first, LEASE).await?);

    world.sessions.upkeep().leave(first).await?;
    assert!(!world.sessions.upkeep().hold(first, LEASE).await?);
    world.sessions.upkeep().leave(second).await?;
    assert!(world.sessions.upkeep().hold(first, LEASE).await?);
    Ok(())
}

#[tokio::test]
async fn one_of_many_runners_takes_an_expired_upkeep() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.sessions.upkeep().hold(RunnerId::generate(), Duration::from_secs(60)).await?;
    world.admin("update session.duties set until = clock_timestamp()").await?;

    let take = (0..8).map(|_| async {
        world.sessions.upkeep().hold(RunnerId::generate(), Duration::from_secs(60)).await
    });
    let taken = futures::future::try_join_all(take).await?;

    assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
    Ok(())
}
