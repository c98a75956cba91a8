//! Old rows are deleted and their idempotency keys are kept.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use holdfast_session::{Archive, Error, Retention, RetentionDays};
use holdfast_types::TenantId;

use crate::world::{Tenant, World};

fn at_once() -> Retention {
    Retention { inbox: Duration::ZERO, runs: Duration::ZERO, ..Retention::default() }
}

#[tokio::test]
async fn a_pruned_message_is_still_known_when_it_comes_again() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let first = ada.say("s", "k1", "hello").await?;
    world.answer(&world.claim_one().await?, "hi").await?;
    world.enroll(ada).await?;

    world.prune(&at_once()).await?;
    assert_eq!(world.number("select count(*) from session.inbox").await?, 0);
    let again = ada.say("s", "k1", "hello").await?;
    let other = ada.say("s", "k1", "another").await;

    assert_eq!((again.message, again.duplicate), (first.message, true));
    assert!(matches!(other, Err(Error::RequestReused(_))));
    assert_eq!(world.number("select count(*) from session.inbox").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_deleted_session_is_gone_with_all_that_was_said() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let sent = ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    world.sessions.delete(ada.id, sent.session).await?;

    assert!(world.answer(&claim, "too late").await.unwrap_err().is_fenced());
    for table in ["sessions", "session_lease", "inbox", "entries", "runs", "deliveries"] {
        let rows = world.number(&format!("select count(*) from session.{table}")).await?;
        assert_eq!(rows, 0, "{table}");
    }
    // The erasure of its memories is scheduled, under the session id that the memory service uses.
    let forgotten = format!(
        "select count(*) from memory.erasures where what = 'session' and subject = '{}'",
        sent.session
    );
    assert_eq!(world.number(&forgotten).await?, 1);
    assert_eq!(
        world
            .number("select coalesce(sum(in_flight), 0)::bigint from session.tenant_flight")
            .await?,
        0
    );
    Ok(())
}

#[tokio::test]
async fn the_session_of_a_jobs_run_goes_once_it_was_at_rest_for_long_and_no_other_does()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    world.enroll(ada).await?;
    for session in ["old", "kept", "new", "waits"] {
        ada.say(session, session, "hello").await?;
        world.answer(&world.claim_one().await?, "hi").await?;
    }
    ada.say("waits", "again", "hello").await?;
    // Keys as a scheduler makes them; one is a user's conversation, and one has no answer yet.
    world
        .admin(
            "update session.sessions set kind = 'cron', key = replace(key, ':main', ':cron:job:1')
             where key not like 'agent:kept:%'",
        )
        .await?;
    world
        .admin(
            "update session.sessions
             set created_at = now() - interval '91 days', updated_at = now() - interval '91 days'
             where key not like 'agent:new:%'",
        )
        .await?;

    let pruned = world.prune(&Retention::default()).await?;

    assert_eq!(pruned.sessions, 1);
    let left = "select count(*) from session.sessions where key like 'agent:old:%'";
    assert_eq!(world.number(left).await?, 0);
    assert_eq!(world.number("select count(*) from session.sessions").await?, 3);
    assert_eq!(
        world.number("select count(distinct session_id) from session.entries").await?,
        3,
        "their journals"
    );
    Ok(())
}

#[tokio::test]
async fn a_session_that_another_runner_deleted_does_not_end_the_pruning() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    world.enroll(ada).await?;
    for session in ["a", "b"] {
        ada.say(session, session, "hello").await?;
        world.answer(&world.claim_one().await?, "hi").await?;
    }
    world
        .admin(
            "update session.sessions
             set kind = 'cron', created_at = now() - interval '91 days',
                 updated_at = now() - interval '91 days'",
        )
        .await?;

    // The other runner deletes the first session while this one waits for its row.
    let mut other = world.hold_sessions().await?;
    let deletion = async {
        sqlx::query("delete from session.sessions where key like 'agent:a:%'")
            .execute(&mut other)
            .await?;
        sqlx::query("commit").execute(&mut other).await?;
        Ok(())
    };
    let keep = Retention::default();
    let (pruned, deleted) = tokio::join!(world.prune(&keep), world.after_waiting(1, deletion));
    deleted?;

    assert_eq!(pruned?.sessions, 1);
    assert_eq!(world.number("select count(*) from session.sessions").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_session_that_is_used_again_while_it_is_pruned_is_kept() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    world.enroll(ada).await?;
    for session in ["a", "b"] {
        ada.say(session, session, "hello").await?;
        world.answer(&world.claim_one().await?, "hi").await?;
    }
    world
        .admin("update session.sessions set kind = 'cron', created_at = '2020-01-01', updated_at = '2020-01-01'")
        .await?;

    // A message is accepted in one session while pruning waits for the lease's row.
    let mut sender = world.hold_sessions().await?;
    let accept = async {
        sqlx::query(
            "update session.session_lease set next_in = next_in + 1 where session_id = (
                 select session_id from session.sessions where key like 'agent:a:%')",
        )
        .execute(&mut sender)
        .await?;
        sqlx::query("commit").execute(&mut sender).await?;
        Ok(())
    };
    let keep = Retention::default();
    let (pruned, accepted) = tokio::join!(world.prune(&keep), world.after_waiting(1, accept));
    accepted?;

    assert_eq!(pruned?.sessions, 1);
    let kept = "select count(*) from session.sessions where key like 'agent:a:%'";
    assert_eq!(world.number(kept).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_paused_session_with_an_accepted_message_is_kept() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    world.enroll(ada).await?;
    let first = ada.say("s", "k1", "hello").await?;
    world.answer(&world.claim_one().await?, "hi").await?;
    world.sessions.pause(ada.id, first.session).await?;
    ada.say("s", "k2", "are you there?").await?;
    world
        .admin("update session.sessions set kind = 'cron', created_at = '2020-01-01', updated_at = '2020-01-01'")
        .await?;

    assert_eq!(world.prune(&Retention::default()).await?.sessions, 0);

    assert!(world.sessions.resume(ada.id, first.session).await?.wake);
    assert_eq!(world.claim().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_pruned_keeps_nothing_else() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());
    for tenant in [ada, eve] {
        world.enroll(tenant).await?;
        tenant.say("s", "k", "hello").await?;
        world.answer(&world.claim_one().await?, "hi").await?;
    }
    for tenant in [ada, eve] {
        world
            .admin(&format!(
                "insert into session.spending (tenant_id, scope, day, tokens, micros)
                 values ('{0}', '{0}', '2020-01-01', 1, 1)",
                tenant.id.as_uuid(),
            ))
            .await?;
    }
    // Runs, the messages' records, cannot be deleted; what comes before and after them can.
    world
        .admin(
            "create function session.refuse() returns trigger language plpgsql
                as $$ begin raise exception 'a defect'; end $$",
        )
        .await?;
    world
        .admin(
            "create trigger refuse before delete on session.runs
                for each row execute function session.refuse()",
        )
        .await?;

    let pruned = world.sessions.upkeep().prune(&at_once()).await;

    assert!(pruned.failure.is_some());
    assert_eq!(pruned.done.rows, 4, "what was deleted is counted");
    assert_eq!(world.number("select count(*) from session.runs").await?, 2);
    assert_eq!(world.number("select count(*) from session.inbox").await?, 0);
    assert_eq!(world.number("select count(*) from session.spending").await?, 0);
    Ok(())
}

#[tokio::test]
async fn pruning_waits_for_no_row_that_another_runner_deletes() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    world.enroll(ada).await?;
    for n in 0..3 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
        world.answer(&world.claim_one().await?, "hi").await?;
    }
    let mut other = world.hold_sessions().await?;
    for table in ["inbox", "runs"] {
        let sql = format!(
            "delete from session.{table} where ctid = (select min(ctid) from session.{table})"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut other).await?;
    }

    let pruned = world.prune(&at_once()).await?;

    assert_eq!(pruned.rows, 4);
    sqlx::query("rollback").execute(&mut other).await?;
    assert_eq!(world.number("select count(*) from session.inbox").await?, 1);
    Ok(())
}

#[tokio::test]
async fn more_old_rows_than_one_batch_has_are_all_deleted() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    world.enroll(ada).await?;
    let sent = ada.say("s", "k", "hello").await?;
    world
        .admin(&format!(
            "insert into session.tombstones
                 (tenant_id, source, idem_key, hash, session_id, seq, message_id, until)
             select '{}', 'test', n::text, '', '{}', n, gen_random_uuid(), '2020-01-01'
             from generate_series(1, 2500) n",
            ada.id.as_uuid(),
            sent.session.as_uuid()
        ))
        .await?;

    let pruned = world.prune(&Retention::default()).await?;

    assert_eq!(pruned.rows, 2500);
    Ok(())
}

#[tokio::test]
async fn a_tenants_own_retention_is_applied_to_its_rows_alone() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());
    for tenant in [ada, eve] {
        world.enroll(tenant).await?;
        tenant.say("s", "k", "hello").await?;
        world.answer(&world.claim_one().await?, "hi").await?;
    }
    world.admin("update session.inbox set finished_at = now() - interval '10 days'").await?;
    world.admin("update session.runs set finished_at = now() - interval '100 days'").await?;
    let days = RetentionDays { messages: Some(7), runs: Some(200), ..RetentionDays::default() };
    world.sessions.queues().set_retention(ada.id, days).await?;

    world.prune(&Retention::default()).await?;

    assert_eq!(world.sessions.queues().retention(ada.id).await?, days);
    assert_eq!(world.sessions.queues().retention(eve.id).await?, RetentionDays::default());
    let left = async |table: &str, tenant: TenantId| {
        let tenant = tenant.as_uuid();
        let sql = format!("select count(*) from session.{table} where tenant_id = '{tenant}'");
        world.number(&sql).await
    };
    assert_eq!((left("inbox", ada.id).await?, left("runs", ada.id).await?), (0, 1));
    assert_eq!((left("inbox", eve.id).await?, left("runs", eve.id).await?), (1, 0));
    Ok(())
}

#[tokio::test]
async fn journals_are_kept_unless_their_tenant_limits_them() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    world.enroll(ada).await?;
    for session in ["done", "open"] {
        ada.say(session, session, "hello").await?;
        world.answer(&world.claim_one().await?, "hi").await?;
    }
    ada.say("open", "again", "hello").await?;
    world
        .admin("update session.entries set created_at = now() - interval '400 days' where seq = 1")
        .await?;
    let entries = "select count(*) from session.entries";

    world.prune(&Retention::default()).await?;
    assert_eq!(world.number(entries).await?, 4);
    let days = RetentionDays { journals: Some(365), ..RetentionDays::default() };
    world.sessions.queues().set_retention(ada.id, days).await?;
    let pruned = world.prune(&Retention::default()).await?;

    assert_eq!(pruned.rows, 1, "a session with an unfinished message keeps its journal");
    assert_eq!(world.number(entries).await?, 3);
    // The session goes on.
    ada.say("done", "more", "hello").await?;
    for claim in world.claim().await? {
        world.answer(&claim, "hi").await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_is_deleted_for_its_age_is_archived_before() -> anyhow::Result<()> {
    let (world, folder) = (World::start().await?, tempfile::tempdir()?);
    let ada = archived_tenant(&world).await?;
    let archive = Archive::new(folder.path().to_owned());

    let upkeep = world.sessions.upkeep().archiving_to(Some(&archive));
    let pruned = upkeep.prune(&at_once()).await;

    assert!(pruned.failure.is_none(), "{:?}", pruned.failure);
    let archived = |table: &str| -> anyhow::Result<Vec<serde_json::Value>> {
        let mut rows = Vec::new();
        for file in fs::read_dir(folder.path().join(ada.id.to_string()).join(table))? {
            let path = file?.path();
            assert_eq!(path.extension().and_then(|end| end.to_str()), Some("jsonl"));
            assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
            for line in fs::read_to_string(path)?.lines() {
                rows.push(serde_json::from_str(line)?);
            }
        }
        Ok(rows)
    };
    let messages = archived("inbox")?;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["body"]["text"], "hello");
    assert_eq!(messages[0]["tenant_id"], ada.id.as_uuid().to_string());
    let entries = archived("entries")?;
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_eq!(archived("runs")?.len(), 1);
    let left = "select (select count(*) from session.inbox) + (select count(*) from session.runs)
                     + (select count(*) from session.entries)";
    assert_eq!(world.number(left).await?, 0);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_archived_is_kept() -> anyhow::Result<()> {
    let (world, folder) = (World::start().await?, tempfile::tempdir()?);
    archived_tenant(&world).await?;
    let rows = "select (select count(*) from session.inbox) + (select count(*) from session.runs)
                     + (select count(*) from session.entries)";
    let before = world.number(rows).await?;
    // A file is in the place of the folder.
    let file = folder.path().join("archive");
    fs::write(&file, "")?;
    let archive = Archive::new(file.clone());

    let upkeep = world.sessions.upkeep().archiving_to(Some(&archive));
    let pruned = upkeep.prune(&at_once()).await;

    let failure = pruned.failure.map(|error| error.to_string()).unwrap_or_default();
    assert!(failure.contains(&file.display().to_string()), "{failure}");
    assert_eq!(pruned.done.rows, 0);
    assert_eq!(world.number(rows).await?, before);
    Ok(())
}

/// A tenant with one old message, its turn and its journal.
async fn archived_tenant(world: &World) -> anyhow::Result<Tenant<'_>> {
    let ada = world.tenant();
    world.enroll(ada).await?;
    ada.say("s", "k", "hello").await?;
    world.answer(&world.claim_one().await?, "hi").await?;
    let days = RetentionDays { journals: Some(1), ..RetentionDays::default() };
    world.sessions.queues().set_retention(ada.id, days).await?;
    world.admin("update session.entries set created_at = now() - interval '2 days'").await?;
    Ok(ada)
}
