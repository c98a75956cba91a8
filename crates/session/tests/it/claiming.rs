//! A session has one runner at a time, and each tenant its fair share.

use std::collections::HashSet;

use holdfast_session::{
    Claim, ClassSlots, FreeSlots, NewMessage, RenewalResult, SUSPECT_ATTEMPTS, Sessions,
    ShareChanges, StepWrite, TenantSlots, TurnClass, WorkspaceBinding,
};
use holdfast_types::{AgentName, Fault as _, Kind, RunId, RunnerId, SessionKey, Source, Wait};

use crate::world::{World, completion, thought};

#[tokio::test]
async fn a_session_is_claimed_by_one_of_many_runners() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for n in 0..40 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }

    let runners = (0..8).map(|_| world.sessions.claim(RunnerId::generate(), 10));
    let claims: Vec<_> =
        futures::future::try_join_all(runners).await?.into_iter().flatten().collect();
    let rest = world.claim().await?;

    let sessions: HashSet<_> = claims.iter().chain(&rest).map(|claim| claim.session).collect();
    assert_eq!(sessions.len(), claims.len() + rest.len());
    assert_eq!(sessions.len(), 40);
    Ok(())
}

#[tokio::test]
async fn a_quiet_tenant_is_next_however_many_the_noisy_one_has_waiting() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (noisy, quiet) = (world.tenant(), world.tenant());
    for n in 0..60 {
        noisy.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    quiet.say("s", "k", "hello").await?;

    let first_two = world.sessions.claim(world.runner, 2).await?;

    assert!(first_two.iter().any(|claim| claim.tenant == quiet.id));
    Ok(())
}

#[tokio::test]
async fn a_tenant_over_its_cap_waits_in_its_own_queue_and_moves_up_as_others_end()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    world
        .sessions
        .queues()
        .set_share(ada.id, ShareChanges { cap: Some(2), ..ShareChanges::default() })
        .await?;
    for n in 0..5 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }

    let mut served = Vec::new();
    while let Some(claim) = world.claim().await?.into_iter().next() {
        assert!(
            world
                .number("select coalesce(sum(in_flight), 0)::bigint from session.tenant_flight")
                .await?
                <= 2
        );
        world.answer(&claim, "hi").await?;
        served.push(claim.session);
    }

    // The second session of each claimed pair is still running.
    assert!(!served.is_empty());
    assert_eq!(world.number("select count(*) from session.session_lease where state = 'READY' and fair_key is null").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_lowered_cap_holds_as_soon_as_turns_have_ended_and_nothing_is_lost() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    let cap = async |cap| {
        let share = ShareChanges { cap: Some(cap), ..ShareChanges::default() };
        world.sessions.queues().set_share(ada.id, share).await
    };
    cap(4).await?;
    for n in 0..8 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    let running = world.sessions.claim(world.runner, 10).await?;
    assert_eq!(running.len(), 4);

    cap(1).await?;
    for claim in &running {
        world.answer(claim, "hi").await?;
    }

    let mut served = running.len();
    for _ in 0..20 {
        world.sweep().await?;
        let claims = world.sessions.claim(world.runner, 10).await?;
        assert!(claims.len() <= 1, "{claims:?}");
        for claim in &claims {
            world.answer(claim, "hi").await?;
        }
        served += claims.len();
    }
    assert_eq!(served, 8);
    Ok(())
}

#[tokio::test]
async fn twice_the_weight_is_twice_the_share() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (heavy, light) = (world.tenant(), world.tenant());
    let weight = |weight| ShareChanges { weight: Some(weight), ..ShareChanges::default() };
    world.sessions.queues().set_share(heavy.id, weight(2)).await?;
    world.sessions.queues().set_share(light.id, weight(1)).await?;
    for n in 0..30 {
        heavy.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
        light.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }

    let claims = world.sessions.claim(world.runner, 30).await?;

    let heavy = claims.iter().filter(|claim| claim.tenant == heavy.id).count();
    assert!((19..=21).contains(&heavy), "{heavy} of 30");
    Ok(())
}

#[tokio::test]
async fn renewing_returns_what_is_still_held_and_nothing_else() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    ada.say("t", "k2", "hello").await?;
    let held = world.claim().await?;
    world.answer(&held[0], "hi").await?;

    let renewed = world.sessions.renew(world.runner, &held).await?;
    let stranger = world.sessions.renew(RunnerId::generate(), &held).await?;

    let sessions = renewed.renewed.iter().map(|one| one.session).collect::<Vec<_>>();
    assert_eq!((sessions, renewed.locked), (vec![held[1].session], vec![]));
    assert_eq!(stranger, RenewalResult::default());
    Ok(())
}

#[tokio::test]
async fn a_released_session_goes_on_elsewhere_at_once_without_a_charge() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;

    world.sessions.release(&claim).await?;
    let next = world.claim_one().await?;

    assert_eq!((next.attempts, next.epoch > claim.epoch), (1, true));
    assert!(world.answer(&claim, "too late").await.unwrap_err().is_fenced());
    Ok(())
}

#[tokio::test]
async fn of_two_sessions_in_one_workspace_only_one_runs() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    ada.say("t", "k2", "hello").await?;
    world.admin("update session.session_lease set workspace = 'w'").await?;

    let first = world.claim().await?;
    let none = world.claim().await?;
    world.answer(&first[0], "done").await?;
    let second = world.claim().await?;

    assert_eq!((first.len(), none.len(), second.len()), (1, 0, 1));
    assert_ne!(first[0].session, second[0].session);
    Ok(())
}

#[tokio::test]
async fn a_session_whose_runner_died_goes_on_in_its_workspace_before_the_others()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    ada.say("t", "k2", "hello").await?;
    world.admin("update session.session_lease set workspace = 'w'").await?;
    let first = world.claim_one().await?;

    world.lapse().await?;
    world.sweep().await?;
    let next = world.claim().await?;

    assert_eq!(next.len(), 1);
    assert_eq!((next[0].session, next[0].epoch > first.epoch), (first.session, true));
    assert!(world.answer(&first, "too late").await.unwrap_err().is_fenced());
    Ok(())
}

#[tokio::test]
async fn a_session_that_runs_is_bound_by_its_own_steps_only() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    let binding = WorkspaceBinding { workspace: "w".to_owned(), drains: false };
    let bind =
        async || world.sessions.bind_workspace(claim.tenant, claim.session, Some(&binding)).await;

    assert_eq!(bind().await.unwrap_err().kind(), Kind::Conflict);
    world.answer(&claim, "done").await?;
    bind().await?;

    let view = world.sessions.views().session(claim.tenant, claim.session).await?;
    assert_eq!(view.workspace.as_deref(), Some("w"));
    Ok(())
}

#[tokio::test]
async fn a_runner_has_one_session_at_a_time_that_lost_two_before() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for n in 0..5 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    // Three sessions, and the first in the order is among them.
    suspect(&world, 3).await?;

    let first = world.claim().await?;
    let none = world.claim().await?;
    let other = world.sessions.claim(RunnerId::generate(), 100).await?;
    let lost = |claims: &[Claim]| claims.iter().filter(|c| c.attempts > SUSPECT_ATTEMPTS).count();
    assert_eq!((first.len(), lost(&first), none.len()), (3, 1, 0));
    assert_eq!((other.len(), lost(&other)), (1, 1));

    // After progress the session is not a suspect any more.
    let thought = StepWrite {
        run: Some(RunId::generate()),
        entries: vec![thought("hm")],
        ..StepWrite::default()
    };
    let claim = first.iter().find(|claim| claim.attempts > SUSPECT_ATTEMPTS).unwrap();
    world.sessions.append(claim, thought).await?;
    let last = world.claim().await?;
    assert_eq!((last.len(), lost(&last)), (1, 1));
    Ok(())
}

#[tokio::test]
async fn those_behind_suspects_do_not_wait_for_them() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for n in 0..4 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    suspect(&world, 3).await?;

    let suspect = world.claim_one().await?;
    let behind = world.claim_one().await?;

    assert_eq!((suspect.attempts, behind.attempts), (SUSPECT_ATTEMPTS + 1, 1));
    Ok(())
}

/// Makes the first ready sessions suspects, as if they had lost that many runners.
async fn suspect(world: &World, count: u32) -> anyhow::Result<()> {
    world
        .admin(&format!(
            "update session.session_lease set attempts = {SUSPECT_ATTEMPTS} where session_id in (
                 select session_id from session.session_lease order by fair_key limit {count})"
        ))
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_locked_lease_delays_the_renewal_of_no_other() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let locked = ada.say("locked", "k1", "hello").await?.session;
    let free = ada.say("free", "k2", "hello").await?.session;
    let held = world.claim().await?;
    let until = "select (extract(epoch from lease_until) * 1000)::bigint
                 from session.session_lease where session_id <> ";
    let until = format!("{until}'{}'", locked.as_uuid());
    let before = world.number(&until).await?;

    // A client is frozen in a transaction that has locked one of the leases.
    let mut frozen = world.hold_session(locked).await?;
    let renewed = world.sessions.renew(world.runner, &held).await?;

    assert_eq!(renewed.renewed.iter().map(|one| one.session).collect::<Vec<_>>(), [free]);
    assert_eq!(renewed.locked, [locked]);
    assert!(world.number(&until).await? > before);

    sqlx::query("commit").execute(&mut frozen).await?;
    let renewed = world.sessions.renew(world.runner, &held).await?;
    assert_eq!((renewed.renewed.len(), renewed.locked.len()), (2, 0));
    Ok(())
}

#[tokio::test]
async fn leases_are_renewed_while_all_connections_are_in_use() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let held = world.claim().await?;
    let pools = world.pools()?;
    let sessions = Sessions::new(pools.clone());
    // Claims and sweeps have taken all connections of the system role.
    let _busy = (pools.system_connection().await?, pools.system_connection().await?);

    let renewed = sessions.renew(world.runner, &held).await?;

    assert_eq!(renewed.renewed.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_runner_is_refused_with_the_epoch_of_another() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    // As after a failover that lost a claim: two runners have counted the same epoch.
    let other = Claim { runner: RunnerId::generate(), ..claim.clone() };
    let write = StepWrite {
        run: Some(RunId::generate()),
        entries: vec![thought("one")],
        ..StepWrite::default()
    };

    let run = RunId::generate();
    let refused = [
        world.sessions.load(&other, 10).await.map(drop),
        world.sessions.append(&other, write.clone()).await.map(drop),
        world.sessions.complete(&other, completion(run)).await.map(drop),
        world.sessions.release(&other).await,
        world.sessions.yield_session(&other, Wait::Anything).await.map(drop),
    ];

    for refused in refused {
        assert!(refused.unwrap_err().is_fenced());
    }
    assert_eq!(world.number("select count(*) from session.entries").await?, 0);
    world.sessions.append(&claim, write).await?;
    world.answer(&claim, "hi").await?;
    Ok(())
}

/// Claims sessions one at a time; returns the first letters of their keys' kinds.
async fn claim_all(world: &World) -> anyhow::Result<String> {
    let mut kinds = String::new();
    while let Some(claim) = world.sessions.claim(world.runner, 1).await?.first() {
        let key = world.sessions.views().session(claim.tenant, claim.session).await?.key;
        let kind = key.parse::<SessionKey>()?.kind();
        kinds.push_str(&kind.as_str()[..1]);
    }
    Ok(kinds)
}

#[tokio::test]
async fn people_come_first_then_subagents_then_jobs_and_none_starves() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, agent) = (world.tenant(), AgentName::new("s"));
    for n in 0..4 {
        let id = n.to_string();
        for key in [SessionKey::cron(&agent, "job", &id)?, SessionKey::subagent(&agent, &id)?] {
            let message = NewMessage { key, ..ada.message("x", &format!("{n}"), "go") };
            let source = Source::Internal(message.key.as_str().to_owned());
            world.sessions.ingest(ada.id, NewMessage { source, ..message }).await?;
        }
    }
    for n in 0..4 {
        ada.say(&format!("a{n}"), &format!("k{n}"), "hello").await?;
    }

    // Every fourth claim takes the session that waits longest.
    assert_eq!(claim_all(&world).await?, "mmmcmsscsscc");
    Ok(())
}

#[tokio::test]
async fn jobs_never_take_the_slots_that_are_reserved_for_people() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, agent) = (world.tenant(), AgentName::new("s"));
    let share = ShareChanges { cap: Some(8), ..ShareChanges::default() };
    world.sessions.queues().set_share(ada.id, share).await?;
    for n in 0..20 {
        let key = SessionKey::cron(&agent, "job", &n.to_string())?;
        let message = NewMessage { key, ..ada.message("x", &format!("job {n}"), "go") };
        world.sessions.ingest(ada.id, message).await?;
    }

    // Of the tenant's eight, six; of the runner's, what it gives to such turns.
    let few = FreeSlots { background: 2, ..FreeSlots::from(8) };
    let some = world.sessions.claim(world.runner, few).await?;
    let jobs = world.sessions.claim(world.runner, 100).await?;
    assert_eq!((some.len(), jobs.len()), (2, 4));
    assert!(jobs.iter().all(|claim| claim.class == TurnClass::Job));
    let person = ada.say("a", "k", "hello").await?;
    assert!(person.wake.is_some(), "there is a slot at once");
    let none_for_jobs = FreeSlots { background: 0, ..FreeSlots::from(8) };
    let claimed = world.sessions.claim(world.runner, none_for_jobs).await?;
    assert_eq!(claimed.iter().map(|claim| claim.session).collect::<Vec<_>>(), [person.session]);

    // The reserved quarter stays free: with the person's turn there is room for five jobs.
    for job in some.iter().chain(&jobs) {
        world.answer(job, "done").await?;
    }
    world.sweep().await?;
    assert_eq!(world.sessions.claim(world.runner, 100).await?.len(), 5);
    Ok(())
}

/// Stores messages for sessions of jobs, subagents and people, whose cap none of them reaches.
async fn flood(world: &World, jobs: u32, subagents: u32, people: u32) -> anyhow::Result<()> {
    let (ada, agent) = (world.tenant(), AgentName::new("s"));
    let share = ShareChanges { cap: Some(1000), ..ShareChanges::default() };
    world.sessions.queues().set_share(ada.id, share).await?;
    for n in 0..jobs {
        let key = SessionKey::cron(&agent, "job", &n.to_string())?;
        let message = NewMessage { key, ..ada.message("x", &format!("job {n}"), "go") };
        world.sessions.ingest(ada.id, message).await?;
    }
    for n in 0..subagents {
        let key = SessionKey::subagent(&agent, &n.to_string())?;
        let message = NewMessage { key, ..ada.message("x", &format!("child {n}"), "go") };
        let source = Source::Internal(message.key.as_str().to_owned());
        world.sessions.ingest(ada.id, NewMessage { source, ..message }).await?;
    }
    for n in 0..people {
        ada.say(&format!("a{n}"), &format!("k{n}"), "hello").await?;
    }
    Ok(())
}

/// Number of claimed sessions of people, subagents and jobs.
fn count_classes(claims: &[Claim]) -> (usize, usize, usize) {
    let of = |class| claims.iter().filter(|claim| claim.class == class).count();
    (of(TurnClass::Interactive), of(TurnClass::Subagent), of(TurnClass::Job))
}

#[tokio::test]
async fn a_flood_of_one_class_does_not_take_the_shares_of_the_others() -> anyhow::Result<()> {
    let world = World::start().await?;
    flood(&world, 20, 20, 20).await?;
    let class = |first| ClassSlots { free: 5, first };
    let free = |all| FreeSlots {
        background: 6,
        interactive: ClassSlots { free: all, first: 2 },
        subagents: class(1),
        jobs: class(1),
        ..FreeSlots::from(all)
    };

    let few = world.sessions.claim(world.runner, free(4)).await?;
    let many = world.sessions.claim(world.runner, free(8)).await?;
    assert_eq!(count_classes(&few), (2, 1, 1));
    assert_eq!(count_classes(&many), (6, 1, 1));
    // Shares that are taken already give no precedence.
    let taken = FreeSlots { jobs: class(0), ..free(4) };
    assert_eq!(count_classes(&world.sessions.claim(world.runner, taken).await?), (3, 1, 0));
    Ok(())
}

#[tokio::test]
async fn a_tenant_with_its_share_of_turns_leaves_the_reserved_slots_to_others() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let (busy, quiet) = (world.tenant(), world.tenant());
    for n in 0..12 {
        busy.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    // Of a runner with eight slots.
    let claim = async |all: u32, busy_turns: u32, quiet_turns: u32| {
        let running = vec![(busy.id, busy_turns), (quiet.id, quiet_turns)];
        let tenants = TenantSlots { reserved: 2, share: 2, running };
        let slots = FreeSlots { tenants, ..FreeSlots::from(all) };
        let claims = world.sessions.claim(world.runner, slots).await?;
        let of_quiet = claims.iter().filter(|claim| claim.tenant == quiet.id).count();
        anyhow::Ok((claims.len() - of_quiet, of_quiet))
    };

    // Nobody else has ever spoken.
    assert_eq!(claim(4, 4, 0).await?, (4, 0));
    for n in 0..4 {
        quiet.say(&format!("q{n}"), &format!("k{n}"), "hello").await?;
    }
    let (of_busy, of_quiet) = claim(4, 4, 0).await?;
    assert!(of_busy <= 2 && of_quiet >= 1, "{of_busy} and {of_quiet}");
    // Only reserved slots are free.
    assert_eq!(claim(2, 6, 0).await?.0, 0);
    assert_eq!(claim(2, 6, 2).await?, (0, 0));
    // The share itself needs no reserved slot.
    assert_eq!(claim(2, 1, 5).await?, (1, 0));
    Ok(())
}

#[tokio::test]
async fn sessions_beyond_their_share_leave_no_slot_idle() -> anyhow::Result<()> {
    let world = World::start().await?;
    flood(&world, 20, 20, 8).await?;
    // The fourth claim is the one that ignores priorities: the background rows are the oldest.
    for _ in 0..3 {
        let none = FreeSlots { background: 0, ..FreeSlots::from(1) };
        world.sessions.claim(world.runner, none).await?;
    }
    let free = ClassSlots { free: 2, first: 0 };
    let slots = FreeSlots { background: 3, jobs: free, subagents: free, ..FreeSlots::from(8) };

    let claimed = count_classes(&world.sessions.claim(world.runner, slots).await?);

    assert_eq!(claimed, (5, 1, 2));
    Ok(())
}

#[tokio::test]
async fn a_session_of_a_version_without_priorities_gets_its_class() -> anyhow::Result<()> {
    let world = World::start().await?;
    flood(&world, 1, 1, 1).await?;
    world.admin("update session.session_lease set priority = 0").await?;

    let claimed = world.sessions.claim(world.runner, 10).await?;

    assert_eq!(count_classes(&claimed), (1, 1, 1));
    let wrong = "select count(*) from session.session_lease l join session.sessions s
                 using (tenant_id, session_id)
                 where l.priority <> case s.kind when 'cron' then 2 when 'subagent' then 1 else 0 end";
    assert_eq!(world.number(wrong).await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_person_gets_the_next_slot_of_a_tenant_whose_jobs_hold_all() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, agent) = (world.tenant(), AgentName::new("s"));
    let share = ShareChanges { cap: Some(2), ..ShareChanges::default() };
    world.sessions.queues().set_share(ada.id, share).await?;
    for n in 0..10 {
        let key = SessionKey::cron(&agent, "job", &n.to_string())?;
        let message = NewMessage { key, ..ada.message("x", &format!("job {n}"), "go") };
        world.sessions.ingest(ada.id, message).await?;
    }
    // The first turn is not one of those whose end ignores priorities.
    world
        .admin(
            "update session.session_lease
             set epoch = 8 - get_byte(uuid_send(session_id), 15) % 4",
        )
        .await?;
    let jobs = world.claim().await?;
    let person = ada.say("a", "k", "hello").await?;

    world.answer(&jobs[0], "done").await?;

    let next = world.claim().await?;
    assert_eq!(next.iter().map(|claim| claim.session).collect::<Vec<_>>(), [person.session]);
    Ok(())
}

#[tokio::test]
async fn a_locked_session_keeps_no_other_from_being_claimed_or_swept() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let locked = ada.say("locked", "k1", "hello").await?.session;
    let free = ada.say("free", "k2", "hello").await?.session;

    // A client is frozen in a transaction that has locked one of the sessions.
    let mut frozen = world.hold_session(locked).await?;
    let claimed = world.sessions.claim(world.runner, 10).await?;
    assert_eq!(claimed.iter().map(|claim| claim.session).collect::<Vec<_>>(), [free]);
    sqlx::query("commit").execute(&mut frozen).await?;

    assert_eq!(world.claim_one().await?.session, locked);
    world.lapse().await?;
    let _frozen = world.hold_session(locked).await?;
    let swept = world.sweep().await?;
    assert_eq!(swept.orphaned, 1);
    Ok(())
}
