//! Hit points and wallets: charged and paid once, whichever runner dies; rest and disabling.

use std::time::Duration;

use agent_runner::Config;
use holdfast_directory::Actor;
use holdfast_pg::Pools;
use holdfast_session::{Acceptance, ApprovalFilter, NewMessage, TurnOutcome};
use holdfast_testkit::Reply;
use holdfast_tools::{Call, Tool, ToolError};
use holdfast_types::{
    ApprovalDecision, ApprovalState, Effect, Entry, HitPointSettings, Money, WorkAmounts,
};
use holdfast_work::{WalletRules, Work};
use serde_json::{Value, json};

use crate::world::{LONG, World, place};

/// A tool with an effect on the outside world.
struct Fly;

/// Fly a balloon.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct FlyInput {}

impl Tool for Fly {
    const NAME: &'static str = "fly";
    const EFFECT: Effect = Effect::Acts;
    type Input = FlyInput;

    async fn call(&self, _: Call, _: FlyInput) -> Result<String, ToolError> {
        Ok("it flies".to_owned())
    }
}

/// Settings with which another runner soon takes over.
fn impatient(world: &World) -> Config {
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(1);
    config.runner.sweep = Duration::from_millis(100);
    config
}

fn work(world: &World) -> anyhow::Result<Work> {
    Ok(Work::new(Pools::lazy(&world.config().database, "test")?))
}

async fn use_hit_points(world: &World, settings: HitPointSettings) -> anyhow::Result<()> {
    world.change_agent(|agent| agent.settings.hit_points = Some(settings)).await?;
    Ok(())
}

async fn level(world: &World, settings: &HitPointSettings) -> anyhow::Result<u64> {
    let found = work(world)?.hit_points(world.tenant, world.agent.id, settings).await?;
    Ok(found.level_milli)
}

/// Hit points as of now, in thousandths.
pub async fn set_level(world: &World, milli: u64) -> anyhow::Result<()> {
    let (tenant, agent) = (world.tenant.as_uuid(), world.agent.id.as_uuid());
    world
        .admin(&format!(
            "insert into work.hit_points (tenant_id, agent_id, level, at)
             values ('{tenant}', '{agent}', {milli}, clock_timestamp())
             on conflict (tenant_id, agent_id) do update
                 set level = excluded.level, at = excluded.at"
        ))
        .await?;
    Ok(())
}

/// What the journal of a session costs.
pub fn cost(settings: &HitPointSettings, journal: &[Entry]) -> u64 {
    let mut amounts = WorkAmounts::default();
    for entry in journal {
        match entry {
            Entry::Thought { usage, .. } => amounts.tokens += usage.input + usage.output,
            Entry::Called { effect: Effect::Acts, .. } => amounts.actions += 1,
            Entry::Returned { .. } => amounts.tool_results += 1,
            _ => {}
        }
    }
    settings.cost_milli(&amounts)
}

async fn entries(world: &World, sent: &Acceptance) -> anyhow::Result<i64> {
    let id = sent.session.as_uuid();
    world.number(&format!("select count(*) from session.entries where session_id = '{id}'")).await
}

/// Kills a runner after this entry of the journal, and lets another one finish the turn.
async fn finish_after_kill(
    world: &World,
    (name, text): (&str, &str),
    count: i64,
) -> anyhow::Result<Acceptance> {
    let runner = world.runner_with(impatient(world), |app| app.with_tool(Fly)).await?;
    let sent = world.say(name, text).await?;
    let started = tokio::time::Instant::now();
    while entries(world, &sent).await? < count {
        anyhow::ensure!(started.elapsed() < LONG, "entry {count} is not written");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    runner.kill();
    let other = world.runner_with(impatient(world), |app| app.with_tool(Fly)).await?;
    world.text(&sent).await?;
    other.kill();
    Ok(sent)
}

#[tokio::test]
async fn work_is_charged_once_whichever_runner_dies() -> anyhow::Result<()> {
    let world = World::start().await?;
    // No recovery that the test could notice, and no rounding of bytes.
    let settings = HitPointSettings {
        max: 100_000_000,
        recovery_milli: 1,
        per_io_milli: 0,
        ..HitPointSettings::default()
    };
    use_hit_points(&world, settings).await?;
    world.model.answer(|asked| match asked.tool_results().last().map(|(id, _)| id.as_str()) {
        None => Reply::call("a", "fly", "{}"),
        Some("a") => {
            let note = json!({"path": "note.txt", "content": "it flies"});
            Reply::call("b", "write", note.to_string())
        }
        _ => Reply::text("done"),
    });
    let mut charged = 0;
    for count in 1..=6 {
        let name = format!("s{count}");
        let sent = finish_after_kill(&world, (&name, "go"), count).await?;

        let journal = world.journal(sent.session).await?;
        let expected = cost(&settings, &journal);
        assert!(expected > 3_000, "{expected}");
        let id = sent.session.as_uuid();
        let sql = format!(
            "select coalesce(sum(amount), 0)::bigint from work.ledger
             where kind = 'hit_points' and session_id = '{id}'"
        );
        assert_eq!(world.number(&sql).await?.unsigned_abs(), expected, "after entry {count}");
        charged += expected;
    }
    let spent = settings.max_milli() - level(&world, &settings).await?;
    assert!((charged.saturating_sub(1_000)..=charged).contains(&spent), "{spent} of {charged}");
    Ok(())
}

#[tokio::test]
async fn an_agent_below_the_floor_rests_tells_it_once_and_goes_on_by_itself() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let settings = HitPointSettings {
        max: 1_000,
        floor: 100,
        recovery_milli: 1_000,
        ..HitPointSettings::default()
    };
    use_hit_points(&world, settings).await?;
    world.model.answer(|_| Reply::text("I am back"));
    let _runner = world.runner().await?;
    // 15 s of rest.
    set_level(&world, 85_000).await?;

    let on_channel =
        |text: &str| NewMessage { target: Some(place("chat")), ..world.message("s", text) };
    let begun = tokio::time::Instant::now();
    let sent = world.send(on_channel("are you there?")).await?;
    world
        .until("the rest is told", async || {
            world.number("select count(*) from session.deliveries").await.is_ok_and(|all| all == 1)
        })
        .await?;
    // A second message does not end the rest, and is told nothing.
    let second = world.send(on_channel("hello?")).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.model.count(), 0);
    let told = world.texts("select body from session.deliveries").await?;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("rest for about 1 minute"), "{told:?}");

    assert_eq!(world.text(&sent).await?, "I am back");
    world.text(&second).await?;
    assert!(begun.elapsed() >= Duration::from_millis(3_000), "{:?}", begun.elapsed());
    let attempts = "select max(attempts)::bigint from session.session_lease";
    assert_eq!(world.number(attempts).await?, 0);
    assert_eq!(world.number("select count(*) from session.runs").await?, 1);
    Ok(())
}

#[tokio::test]
async fn an_agent_without_hit_points_is_disabled_until_a_person_enables_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let settings = HitPointSettings {
        max: 100,
        floor: 1,
        recovery_milli: 1_000,
        ..HitPointSettings::default()
    };
    use_hit_points(&world, settings).await?;
    world.model.answer(|_| Reply::text("hello"));
    set_level(&world, 2_000).await?;
    let dear = HitPointSettings { per_token_milli: 10_000, ..settings };
    use_hit_points(&world, dear).await?;
    let _runner = world.runner().await?;

    assert_eq!(world.ask("s", "hi").await?, "hello");
    let asked = world.model.count();
    // Time does not enable it.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for _ in 0..2 {
        let refused = world.answer(&world.say("s", "hi again").await?).await?;
        assert_eq!(refused.outcome, Some(TurnOutcome::Failed));
        assert!(refused.text.contains("is disabled"), "{}", refused.text);
    }
    assert_eq!(world.model.count(), asked);
    let outcomes = "select outcome from work.ledger where kind = 'hit_points'";
    assert_eq!(world.texts(outcomes).await?, ["disabled"]);

    let events = format!(
        "select kind || ' ' || (detail->>'reason') from control.tenant_events
         where detail->>'agent' = '{}' and kind like 'agent.%abled' order by event_id",
        world.agent.id
    );
    assert_eq!(world.texts(&events).await?, ["agent.disabled hit_points"]);

    let enabled = work(&world)?.enable_agent(world.tenant, world.agent.id, &dear).await?;
    assert_eq!(enabled.disabled_at, None);
    assert!(enabled.level_milli >= dear.floor_milli());
    use_hit_points(&world, settings).await?;
    set_level(&world, 50_000).await?;
    tokio::time::sleep(holdfast_directory::AGENT_CACHE_TTL).await;
    assert_eq!(world.ask("s", "hi").await?, "hello");
    assert_eq!(
        world.texts(&events).await?,
        ["agent.disabled hit_points", "agent.enabled hit_points"]
    );
    Ok(())
}

fn payment(amount: &str) -> Value {
    json!({
        "action": "pay", "payee": "print-shop", "amount": amount, "purpose": "500 flyers",
        "alternatives": "the copy shop, which takes 20", "expected_saving": "8", "risk": "late",
    })
}

async fn fund(world: &World, change: impl FnOnce(&mut WalletRules)) -> anyhow::Result<Work> {
    let work = work(world)?;
    let money = |text: &str| text.parse::<Money>();
    let mut rules = WalletRules {
        is_authorized: true,
        per_payment: money("15")?,
        per_day: money("1000")?,
        per_task: money("20")?,
        per_subagent: Money::default(),
        payees: vec!["print-shop".to_owned()],
    };
    change(&mut rules);
    work.set_wallet_rules(world.tenant, world.agent.id, &rules).await?;
    let source = ("fund", "owner");
    work.receive(world.tenant, world.agent.id, source, money("500")?).await?;
    Ok(work)
}

async fn without_approvals(world: &World) -> anyhow::Result<()> {
    let document = json!({"approvals": {"tools": {"wallet": "never"}}});
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &document).await?;
    Ok(())
}

/// Calls `wallet` with what was said, and repeats what came of it.
fn pay_what_is_said(world: &World) {
    world.model.answer(|asked| match asked.tool_results().first() {
        Some((_, told)) => Reply::text(told.clone()),
        None => Reply::call("c", "wallet", asked.last_user_text()),
    });
}

async fn paid(world: &World) -> anyhow::Result<i64> {
    world.number("select count(*) from work.payments where kind = 'payment'").await
}

#[tokio::test]
async fn a_payment_is_made_once_whichever_runner_dies() -> anyhow::Result<()> {
    let world = World::start().await?;
    without_approvals(&world).await?;
    let work = fund(&world, |_| {}).await?;
    pay_what_is_said(&world);
    for count in 1..=4 {
        let name = format!("s{count}");
        let pay = payment("12.50").to_string();
        let sent = finish_after_kill(&world, (&name, &pay), count).await?;

        let answer = world.text(&sent).await?;
        assert!(answer.starts_with("Paid 12.50 to print-shop."), "{answer}");
        assert_eq!(paid(&world).await?, count, "after entry {count}");
        let id = sent.session.as_uuid();
        let digests = world
            .texts(&format!(
                "select digest from work.worklog where list_id = '{id}' and type = 'Payment.v1'"
            ))
            .await?;
        assert_eq!(digests, ["paid 12.50 to print-shop: 500 flyers"]);
    }
    let wallet = work.wallet(world.tenant, world.agent.id).await?;
    assert_eq!(wallet.balance.to_string(), "450.00");
    let ledger =
        "select sum(amount)::bigint from work.ledger where kind = 'wallet' and outcome = 'paid'";
    assert_eq!(world.number(ledger).await?, 50_000_000);
    Ok(())
}

#[tokio::test]
async fn a_payment_waits_for_a_person_and_is_made_once_somebody_allows_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    fund(&world, |_| {}).await?;
    pay_what_is_said(&world);
    let _runner = world.runner().await?;

    let shown = world.ask("s", &json!({"action": "show"}).to_string()).await?;
    assert!(shown.starts_with("Balance: 500.00. Limits: 15.00 for a payment"), "{shown}");
    for (verdict, count, told) in
        [(ApprovalDecision::Deny, 0, "Paid"), (ApprovalDecision::Once, 1, "denied")]
    {
        let sent = world.say("s", &payment("1").to_string()).await?;
        let pending = ApprovalFilter {
            state: Some(ApprovalState::Pending),
            session: None,
            person: None,
            limit: 5,
            after: None,
        };
        let list = async || world.sessions.approvals().list(world.tenant, pending).await;
        world
            .until("somebody is asked", async || list().await.is_ok_and(|all| all.len() == 1))
            .await?;
        assert_eq!(paid(&world).await?, 0);
        let record = list().await?.remove(0);
        assert!(record.subject.contains("print-shop"), "{}", record.subject);
        let resolved = world
            .sessions
            .approvals()
            .resolve(
                world.tenant,
                record.id,
                holdfast_session::NewDecision::new(verdict, "key_test"),
            )
            .await?;
        if resolved.wake {
            world.bus.wake_run(0);
        }
        let answer = world.text(&sent).await?;
        assert!(!answer.contains(told), "{answer}");
        assert_eq!(paid(&world).await?, count);
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_that_nobody_authorised_and_a_subagent_without_a_budget_pay_nothing()
-> anyhow::Result<()> {
    let world = World::start().await?;
    without_approvals(&world).await?;
    fund(&world, |rules| rules.is_authorized = false).await?;
    world.model.answer(|asked| {
        let results = asked.tool_results();
        let told = || results.last().map(|(_, told)| told.clone()).unwrap_or_default();
        match (asked.last_user_text().as_str(), results.len()) {
            ("pay", 0) | ("pay as a subagent", 0) => {
                Reply::call("c", "wallet", payment("1").to_string())
            }
            ("pay", _) | ("pay as a subagent", _) => Reply::text(told()),
            ("delegate", 0) => {
                let task = json!({"task": "pay as a subagent", "label": "buyer"});
                Reply::call("s", "sessions_spawn", task.to_string())
            }
            _ => Reply::text("well"),
        }
    });
    let _runner = world.runner().await?;

    let refused = world.ask("a", "pay").await?;
    assert!(refused.contains("nobody has authorised this agent"), "{refused}");
    fund(&world, |_| {}).await?;
    for (number, budget, told) in
        [(1, "0", "the limit of a subagent's task is 0.00"), (2, "1", "Paid 1.00 to print-shop.")]
    {
        fund(&world, |rules| rules.per_subagent = budget.parse().unwrap()).await?;
        world.text(&world.say(&format!("d{number}"), "delegate").await?).await?;
        let ended = format!(
            "select count(*) = {number} from session.subagents where announced_at is not null"
        );
        let ended = format!("select ({ended})::int::bigint");
        world
            .until("the subagent has ended", async || {
                world.number(&ended).await.is_ok_and(|ended| ended == 1)
            })
            .await?;
        let results =
            world.texts("select result from session.subagents order by started_at").await?;
        assert!(results.last().is_some_and(|result| result.contains(told)), "{results:?}");
    }
    assert_eq!(paid(&world).await?, 1);
    Ok(())
}
