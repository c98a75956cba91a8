//! Replies are delivered in order. A delivery whose outcome a crash hid is sent again with its key
//! or flagged, depending on the channel.

use std::time::Duration;

use holdfast_session::{
    DeliveryFilter, DeliveryProgress, HANDOVER_TIMEOUT, NewDelivery, SendCapacity, SendResult,
    StepWrite,
};
use holdfast_types::{
    AccountId, ChannelAction, DeliveryClass, DeliveryId, RunId, RunnerId, Target,
};

use crate::world::World;

/// Returns the remaining lease of the only delivery, in milliseconds.
const LEFT: &str = "
    select (extract(epoch from lease_until - clock_timestamp()) * 1000)::bigint
    from session.deliveries";

/// What happens to a row of deliveries when a bridge changes it, as if between two of its steps.
async fn whenever(world: &World, condition: &str, then: &str) -> anyhow::Result<()> {
    world
        .admin(&format!(
            "create or replace function session.meddle() returns trigger language plpgsql as
             $$ begin {then}; return new; end $$"
        ))
        .await?;
    world
        .admin(&format!(
            "create or replace trigger meddle before update on session.deliveries
             for each row when ({condition}) execute function session.meddle()"
        ))
        .await?;
    Ok(())
}

async fn never_again(world: &World) -> anyhow::Result<()> {
    world.admin("drop trigger meddle on session.deliveries").await?;
    Ok(())
}

async fn replies(world: &World, texts: &[&str]) -> anyhow::Result<holdfast_types::TenantId> {
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    let deliveries = texts
        .iter()
        .map(|text| NewDelivery {
            target: ada.target(),
            text: (*text).to_owned(),
            act: None,
            id: DeliveryId::generate(),
            delay: Duration::ZERO,
        })
        .collect();
    let append = StepWrite { run: Some(RunId::generate()), deliveries, ..StepWrite::default() };
    world.sessions.append(&claim, append).await?;
    Ok(ada.id)
}

async fn lose(world: &World) -> anyhow::Result<()> {
    world
        .admin("update session.deliveries set lease_until = clock_timestamp() - interval '1 s' where state = 'sending'")
        .await?;
    Ok(())
}

fn yes() -> SendResult {
    SendResult::Sent { platform_id: "m1".into() }
}

/// All deliveries of a test.
fn all() -> DeliveryFilter {
    DeliveryFilter { limit: 10, ..DeliveryFilter::default() }
}

#[tokio::test]
async fn replies_and_their_parts_go_out_one_after_the_other() -> anyhow::Result<()> {
    let world = World::start().await?;
    let bridge = RunnerId::generate();
    replies(&world, &["a b", "c"]).await?;
    let claim = async || {
        world
            .sessions
            .deliveries()
            .claim(
                "webhook",
                DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) },
                bridge,
                &SendCapacity::slots(10),
            )
            .await
    };

    let mut said = Vec::new();
    loop {
        let due = claim().await?;
        let [delivery] = due.as_slice() else { break };
        assert!(claim().await?.is_empty());
        let mut text = delivery.text.clone();
        if !delivery.split {
            let parts: Vec<String> = text.split(' ').map(str::to_owned).collect();
            world.sessions.deliveries().split(delivery, bridge, &parts).await?;
            text.clone_from(&parts[0]);
        }
        said.push(text);
        world.sessions.deliveries().record_result(delivery, bridge, yes()).await?;
    }

    assert_eq!(said, ["a", "b", "c"]);
    Ok(())
}

#[tokio::test]
async fn what_was_being_sent_when_its_bridge_died_is_unknown_on_a_plain_channel()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (lost, next) = (RunnerId::generate(), RunnerId::generate());
    let tenant = replies(&world, &["a"]).await?;
    let sending = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, lost, &SendCapacity::slots(10))
        .await?;
    lose(&world).await?;

    let again = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, next, &SendCapacity::slots(10))
        .await?;
    assert!(again.is_empty());
    let state = async || -> anyhow::Result<String> {
        Ok(world.sessions.deliveries().list(tenant, all()).await?[0].state.clone())
    };
    assert_eq!(state().await?, "unknown");

    // The bridge was only slow: its result is the true one.
    world.sessions.deliveries().record_result(&sending[0], lost, yes()).await?;
    assert_eq!(state().await?, "sent");
    Ok(())
}

#[tokio::test]
async fn the_same_is_sent_again_with_its_key_on_a_keyed_channel() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (lost, next) = (RunnerId::generate(), RunnerId::generate());
    replies(&world, &["a"]).await?;
    let first = world
        .sessions
        .deliveries()
        .claim(
            "webhook",
            DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) },
            lost,
            &SendCapacity::slots(10),
        )
        .await?;
    lose(&world).await?;

    let again = world
        .sessions
        .deliveries()
        .claim(
            "webhook",
            DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) },
            next,
            &SendCapacity::slots(10),
        )
        .await?;

    assert_eq!((again[0].id, again[0].attempt), (first[0].id, 2));
    Ok(())
}

#[tokio::test]
async fn a_key_is_used_only_while_the_platform_remembers_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (lost, next) = (RunnerId::generate(), RunnerId::generate());
    let tenant = replies(&world, &["a"]).await?;
    let slots = SendCapacity::slots(10);
    let claim = async |owner, secs| {
        let class = DeliveryClass::Keyed { window: Duration::from_secs(secs) };
        world.sessions.deliveries().claim("webhook", class, owner, &slots).await
    };

    assert_eq!(claim(lost, 100).await?[0].unsure_for, None);
    lose(&world).await?;
    let again = claim(next, 100).await?.remove(0);
    // A lost send began a minute before its lease ended.
    let unsure_for = again.unsure_for.unwrap().as_secs();
    assert!((60..90).contains(&unsure_for), "{unsure_for} s");
    let unsure = SendResult::Unsure { after: Duration::ZERO, reason: "lost".into() };
    world.sessions.deliveries().record_result(&again, next, unsure).await?;
    let third = claim(next, 100).await?.remove(0);
    assert!(third.unsure_for.unwrap() >= again.unsure_for.unwrap(), "the first attempt counts");
    lose(&world).await?;

    assert!(claim(next, 30).await?.is_empty());
    let delivery = world.sessions.deliveries().list(tenant, all()).await?.remove(0);
    assert_eq!(delivery.state, "unknown");
    // What a person sends again is not unsure any more.
    world.sessions.deliveries().resend(tenant, delivery.id).await?;
    assert_eq!(claim(next, 30).await?[0].unsure_for, None);
    Ok(())
}

#[tokio::test]
async fn a_lost_send_on_a_reconcilable_channel_is_due_again_and_known_as_unsure()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (lost, next) = (RunnerId::generate(), RunnerId::generate());
    replies(&world, &["a"]).await?;
    let (class, slots) = (DeliveryClass::Reconcilable, SendCapacity::slots(10));
    world.sessions.deliveries().claim("webhook", class, lost, &slots).await?;
    lose(&world).await?;

    let again = world.sessions.deliveries().claim("webhook", class, next, &slots).await?;

    assert!(again[0].unsure_for.is_some());
    Ok(())
}

#[tokio::test]
async fn what_another_bridge_sends_is_not_claimed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let bridge = RunnerId::generate();
    replies(&world, &["a"]).await?;
    let class = DeliveryClass::Plain;
    let claim = async |slots: SendCapacity| {
        world.sessions.deliveries().claim("webhook", class, bridge, &slots).await
    };
    let account = {
        let due = claim(SendCapacity::slots(10)).await?.remove(0);
        let account = due.target.account;
        let again = SendResult::Retry { after: Duration::ZERO, reason: "away".into() };
        world.sessions.deliveries().record_result(&due, bridge, again).await?;
        account
    };

    let elsewhere = SendCapacity { elsewhere: vec![account], ..SendCapacity::slots(10) };
    assert!(claim(elsewhere).await?.is_empty());
    assert_eq!(claim(SendCapacity::slots(10)).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_bridge_that_lost_a_delivery_cannot_settle_it_otherwise() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (lost, next) = (RunnerId::generate(), RunnerId::generate());
    let tenant = replies(&world, &["a"]).await?;
    let stale = world
        .sessions
        .deliveries()
        .claim(
            "webhook",
            DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) },
            lost,
            &SendCapacity::slots(10),
        )
        .await?;
    lose(&world).await?;
    let owned = world
        .sessions
        .deliveries()
        .claim(
            "webhook",
            DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) },
            next,
            &SendCapacity::slots(10),
        )
        .await?;

    let refused = SendResult::Rejected { reason: "no".into() };
    world.sessions.deliveries().record_result(&stale[0], lost, refused).await?;
    assert!(
        world
            .sessions
            .deliveries()
            .split(&stale[0], lost, &["x".into()])
            .await
            .unwrap_err()
            .is_fenced()
    );
    world.sessions.deliveries().record_result(&owned[0], next, yes()).await?;

    assert_eq!(world.sessions.deliveries().list(tenant, all()).await?[0].state, "sent");
    Ok(())
}

#[tokio::test]
async fn what_surely_was_not_sent_is_tried_again_later() -> anyhow::Result<()> {
    let world = World::start().await?;
    let bridge = RunnerId::generate();
    replies(&world, &["a"]).await?;
    let due = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, bridge, &SendCapacity::slots(10))
        .await?;

    let again = SendResult::Retry { after: Duration::from_secs(60), reason: "busy".into() };
    world.sessions.deliveries().record_result(&due[0], bridge, again).await?;

    let none = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, bridge, &SendCapacity::slots(10))
        .await?;
    assert!(none.is_empty());
    world.admin("update session.deliveries set next_at = clock_timestamp()").await?;
    let due = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, bridge, &SendCapacity::slots(10))
        .await?;
    assert_eq!((due.len(), due[0].attempt), (1, 2));
    Ok(())
}

#[tokio::test]
async fn only_what_is_unknown_or_dead_is_sent_again_by_hand() -> anyhow::Result<()> {
    let world = World::start().await?;
    let bridge = RunnerId::generate();
    let tenant = replies(&world, &["a"]).await?;
    let due = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, bridge, &SendCapacity::slots(10))
        .await?;
    assert!(world.sessions.deliveries().resend(tenant, due[0].id).await.is_err());

    world
        .sessions
        .deliveries()
        .record_result(&due[0], bridge, SendResult::Unknown { reason: "?".into() })
        .await?;
    assert_eq!(world.sessions.deliveries().resend(tenant, due[0].id).await?, "webhook");

    let again = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, bridge, &SendCapacity::slots(10))
        .await?;
    assert_eq!(again.len(), 1);
    // A late result of the first send does not settle the second one.
    let late = SendResult::Rejected { reason: "the chat is gone".into() };
    world.sessions.deliveries().record_result(&due[0], bridge, late).await?;
    let list = world.sessions.deliveries().list(tenant, all()).await?;
    assert_eq!(list[0].state, "sending");
    assert_eq!((again[0].attempt, again[0].tries), (2, 1));
    Ok(())
}

#[tokio::test]
async fn what_was_claimed_and_not_begun_is_due_again_soon_as_if_nothing_had_been()
-> anyhow::Result<()> {
    for class in [
        DeliveryClass::Plain,
        DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) },
    ] {
        let world = World::start().await?;
        let (lost, next) = (RunnerId::generate(), RunnerId::generate());
        replies(&world, &["a"]).await?;
        // The bridge crashes right after its claim.
        whenever(&world, "new.state = 'sending'", "raise exception 'lost'").await?;
        world
            .sessions
            .deliveries()
            .claim("webhook", class, lost, &SendCapacity::slots(10))
            .await
            .unwrap_err();
        never_again(&world).await?;

        assert!(
            world
                .sessions
                .deliveries()
                .claim("webhook", class, next, &SendCapacity::slots(10))
                .await?
                .is_empty()
        );
        let left = world.number(LEFT).await?;
        assert!(left > 0 && u128::try_from(left)? <= HANDOVER_TIMEOUT.as_millis(), "{left} ms");

        world.admin("update session.deliveries set lease_until = clock_timestamp()").await?;
        let due = world
            .sessions
            .deliveries()
            .claim("webhook", class, next, &SendCapacity::slots(10))
            .await?;
        assert_eq!((due.len(), due[0].attempt), (1, 1));
        assert!(world.number(LEFT).await? > i64::try_from(HANDOVER_TIMEOUT.as_millis())?);
    }
    Ok(())
}

#[tokio::test]
async fn a_bridge_that_took_too_long_from_claim_to_send_does_not_send() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (slow, next) = (RunnerId::generate(), RunnerId::generate());
    let tenant = replies(&world, &["a"]).await?;
    let late = "new.lease_until = clock_timestamp()";
    whenever(&world, "new.state = 'pending' and new.owner is not null", late).await?;

    let begun = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, slow, &SendCapacity::slots(10))
        .await?;
    never_again(&world).await?;

    assert!(begun.is_empty());
    let state = world.sessions.deliveries().list(tenant, all()).await?.remove(0);
    assert_eq!((state.state.as_str(), state.attempt), ("pending", 0));
    let due = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, next, &SendCapacity::slots(10))
        .await?;
    assert_eq!(due.len(), 1);
    Ok(())
}

#[tokio::test]
async fn what_was_begun_is_sent_although_another_tenants_could_not_be() -> anyhow::Result<()> {
    let world = World::start().await?;
    let bridge = RunnerId::generate();
    let mut tenants = [replies(&world, &["a"]).await?, replies(&world, &["b"]).await?];
    tenants.sort_unstable_by_key(|tenant| tenant.as_uuid());
    let fails = format!("new.state = 'sending' and new.tenant_id = '{}'", tenants[1].as_uuid());
    whenever(&world, &fails, "raise exception 'lost'").await?;

    let begun = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, bridge, &SendCapacity::slots(10))
        .await?;
    never_again(&world).await?;
    world
        .admin(
            "update session.deliveries set lease_until = clock_timestamp() where state = 'pending'",
        )
        .await?;
    let rest = world
        .sessions
        .deliveries()
        .claim("webhook", DeliveryClass::Plain, bridge, &SendCapacity::slots(10))
        .await?;

    let whose = |found: &[holdfast_session::Delivery]| -> Vec<_> {
        found.iter().map(|delivery| delivery.tenant).collect()
    };
    assert_eq!((whose(&begun), whose(&rest)), (vec![tenants[0]], vec![tenants[1]]));
    Ok(())
}

#[tokio::test]
async fn what_a_turn_said_has_arrived_once_it_was_sent_and_is_lost_once_it_was_given_up()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let bridge = RunnerId::generate();
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    let (said, pinned) = (RunId::generate(), RunId::generate());
    let delivery = |text: &str, act| NewDelivery {
        target: ada.target(),
        text: text.to_owned(),
        act,
        id: DeliveryId::generate(),
        delay: Duration::ZERO,
    };
    for (run, deliveries) in [
        (said, vec![delivery("a", None), delivery("b", None)]),
        (pinned, vec![delivery("", Some(ChannelAction::Pin { message: "m0".to_owned() }))]),
    ] {
        let append = StepWrite { run: Some(run), deliveries, ..StepWrite::default() };
        world.sessions.append(&claim, append).await?;
    }
    let turns = [said, pinned, RunId::generate()].map(|run| (ada.id, claim.session, run));
    let far = async || world.sessions.deliveries().progress(&turns).await;
    let settle = async |sent: SendResult| {
        let due = world
            .sessions
            .deliveries()
            .claim(
                "webhook",
                DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) },
                bridge,
                &SendCapacity::slots(1),
            )
            .await?;
        world.sessions.deliveries().record_result(&due[0], bridge, sent).await
    };
    let refused = || SendResult::Rejected { reason: "no such chat".into() };

    assert_eq!(
        far().await?,
        [DeliveryProgress::Pending, DeliveryProgress::Pending, DeliveryProgress::Delivered]
    );
    settle(refused()).await?;
    assert_eq!(far().await?[0], DeliveryProgress::Pending);
    settle(yes()).await?;
    settle(refused()).await?;
    assert_eq!(
        far().await?,
        [DeliveryProgress::Failed, DeliveryProgress::Delivered, DeliveryProgress::Delivered]
    );

    let strangers = turns.map(|(_, session, run)| (world.tenant().id, session, run));
    assert_eq!(
        world.sessions.deliveries().progress(&strangers).await?,
        [DeliveryProgress::Delivered; 3]
    );
    Ok(())
}

#[tokio::test]
async fn a_backlog_of_one_account_does_not_delay_the_replies_of_another() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bridge) = (world.tenant(), RunnerId::generate());
    let (busy, quiet) = (AccountId::generate(), AccountId::generate());
    // Ten conversations of one account, and then two of another.
    for n in 0..12 {
        let account = if n < 10 { busy } else { quiet };
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
        let claim = world.claim_one().await?;
        let reply = NewDelivery {
            target: Target { account, ..ada.target() },
            text: "hi".to_owned(),
            act: None,
            id: DeliveryId::generate(),
            delay: Duration::ZERO,
        };
        let run = Some(RunId::generate());
        let append = StepWrite { run, deliveries: vec![reply], ..StepWrite::default() };
        world.sessions.append(&claim, append).await?;
    }
    let accounts = async |capacity| -> anyhow::Result<Vec<AccountId>> {
        let deliveries = world.sessions.deliveries();
        let due = deliveries
            .claim(
                "webhook",
                DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) },
                bridge,
                &capacity,
            )
            .await?;
        let mut accounts: Vec<_> = due.iter().map(|due| due.target.account).collect();
        accounts.sort_by_key(|account| *account == quiet);
        Ok(accounts)
    };

    let first = SendCapacity { per_account: 2, ..SendCapacity::slots(3) };
    let used = |count: i64, quiets: i64| {
        let tenant = ada.id;
        vec![(tenant, busy, count), (tenant, quiet, quiets)]
    };
    let next = SendCapacity { per_account: 4, used: used(2, 1), ..SendCapacity::slots(2) };
    let full = SendCapacity { per_account: 3, used: used(3, 2), ..SendCapacity::slots(9) };
    let rest = SendCapacity::slots(9);

    assert_eq!(accounts(first).await?, [busy, busy, quiet]);
    assert_eq!(accounts(next).await?, [busy, quiet]);
    assert!(accounts(full).await?.is_empty());
    assert_eq!(accounts(rest).await?, [busy; 7]);
    Ok(())
}

#[tokio::test]
async fn what_only_decorates_a_message_holds_up_no_reply() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bridge) = (world.tenant(), RunnerId::generate());
    let target = ada.target();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    let react = |emoji: &str| ChannelAction::React { message: "m1".into(), emoji: emoji.into() };
    let deliveries = [("", Some(react("👍"))), ("", Some(react(""))), ("hi", None)]
        .map(|(text, act)| NewDelivery {
            target: target.clone(),
            text: text.to_owned(),
            act,
            id: DeliveryId::generate(),
            delay: Duration::ZERO,
        })
        .to_vec();
    let append = StepWrite { run: Some(RunId::generate()), deliveries, ..StepWrite::default() };
    world.sessions.append(&claim, append).await?;
    let claim = async || {
        let (deliveries, class) = (world.sessions.deliveries(), DeliveryClass::Plain);
        let mut due = deliveries.claim("webhook", class, bridge, &SendCapacity::slots(10)).await?;
        due.sort_by_key(|due| due.out_seq);
        anyhow::Ok(due)
    };

    let due = claim().await?;
    let seqs: Vec<i64> = due.iter().map(|due| due.out_seq).collect();
    assert_eq!(seqs, [1, 3], "decorations keep their own order");
    let again = SendResult::Retry { after: Duration::from_secs(60), reason: "away".into() };
    world.sessions.deliveries().record_result(&due[0], bridge, again).await?;

    assert!(claim().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn accounts_that_wait_for_a_later_attempt_do_not_hide_a_due_reply() -> anyhow::Result<()> {
    let world = World::start().await?;
    let bridge = RunnerId::generate();
    // 500 accounts whose platform is away, and then one that was answered just now.
    let insert = |from: i32, to: i32, rows: i32, next_at: &str| {
        format!(
            "insert into session.deliveries
                 (tenant_id, session_id, out_seq, delivery_id, run_id, channel, account_id, target,
                  body, next_at)
             select lpad(n::text, 32, '0')::uuid, gen_random_uuid(), 1, gen_random_uuid(),
                    gen_random_uuid(), 'webhook', lpad(n::text, 32, '0')::uuid,
                    jsonb_build_object('channel', 'webhook', 'account', 'acc_' || n, 'chat', 'c'),
                    'hi', {next_at}
             from generate_series({from}, {to}) n, generate_series(1, {rows})"
        )
    };
    world.admin(&insert(1, 500, 1, "now() + interval '1 hour'")).await?;
    world.admin(&insert(900, 900, 1, "now()")).await?;
    let claimed = "select count(*) from session.deliveries
                   where owner is not null and account_id = lpad('900', 32, '0')::uuid";
    let claim = async |slots: i64| {
        // The targets cannot be read; that the parts are claimed is enough.
        let slots = SendCapacity::slots(slots);
        drop(
            world
                .sessions
                .deliveries()
                .claim("webhook", DeliveryClass::Plain, bridge, &slots)
                .await,
        );
        world.number(claimed).await
    };

    assert_eq!(claim(1).await?, 1, "a due reply is found at once");

    // The backlog of one account is older than the reply, and more than a claim looks at.
    world.admin("update session.deliveries set owner = null, lease_until = null").await?;
    world.admin(&insert(1, 1, 300, "now() - interval '1 hour'")).await?;
    let mut found = 0;
    for _ in 0..4 {
        found = claim(2).await?;
        if found > 0 {
            break;
        }
    }
    assert_eq!(found, 1, "the accounts are looked at in turns");
    Ok(())
}
