//! Limits and life of tenants as runners see to them.

use std::time::Duration;

use agent_runner::Config;
use futures::StreamExt as _;
use holdfast_directory::{
    Actor, NewPlan, PlanLimits, SignIn, TenantChanges, TenantEventFilter, TenantState,
};
use holdfast_llm::{ModelCard, Prices};
use holdfast_sandbox::BackendChoice;
use holdfast_session::TurnOutcome;
use holdfast_testkit::{
    Reply,
    model::{Gate, Usage},
};
use holdfast_types::{Entry, SessionKey, TenantRole};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::world::{LONG, World};

impl World {
    /// Gives the tenant a plan with these limits.
    async fn plan(&self, limits: PlanLimits) -> anyhow::Result<()> {
        let plan = NewPlan { name: "plan".into(), limits, ..NewPlan::default() };
        self.directory.plans().put(&plan).await?;
        let plan = Some(Some("plan".to_owned()));
        self.change(TenantChanges { plan, ..TenantChanges::default() }).await?;
        self.sessions.usage().open_budget(self.tenant, None).await?;
        Ok(())
    }

    async fn change(&self, changes: TenantChanges) -> anyhow::Result<()> {
        self.directory.tenants().update(self.tenant, Actor::Operator, changes).await?;
        Ok(())
    }

    async fn set_state(&self, state: TenantState) -> anyhow::Result<()> {
        self.change(TenantChanges { state: Some(state), ..TenantChanges::default() }).await
    }

    /// Kinds and details of the tenant's events, without those of its creation and its plan.
    async fn tenant_events(&self) -> anyhow::Result<Vec<(String, Value)>> {
        let filter = TenantEventFilter { tenant: Some(self.tenant), after: 0, limit: 100 };
        let events = self.directory.tenant_events().list(filter).await?;
        let events = events.into_iter().map(|event| (event.kind, event.detail));
        Ok(events.filter(|(kind, _)| kind != "tenant.created" && kind != "plan.changed").collect())
    }
}

/// A runner that looks after tenants several times in a second.
fn watchful(world: &World) -> Config {
    let mut config = world.config();
    config.runner.tenant_limits = Duration::from_millis(100);
    config.runner.relay = Duration::from_millis(100);
    config
}

#[tokio::test]
async fn messages_of_a_suspended_tenant_wait_and_are_answered_when_it_is_active_again()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let early = world.say("a", "before").await?;
    world.set_state(TenantState::Suspended).await?;
    let late = world.say("b", "after").await?;
    let _runner = world.runner().await?;

    tokio::time::sleep(Duration::from_millis(2_500)).await;
    for waits in [&early, &late] {
        let message = world.sessions.views().answer(world.tenant, waits.message).await?;
        assert_eq!(message.outcome, None, "{message:?}");
    }
    let held = "select coalesce(sum(in_flight), 0)::bigint from session.tenant_flight";
    assert_eq!(world.number(held).await?, 0);

    world.set_state(TenantState::Active).await?;
    world.text(&early).await?;
    world.text(&late).await?;
    world.until("no slot is held", async || world.number(held).await.unwrap() == 0).await?;
    Ok(())
}

#[tokio::test]
async fn a_turn_that_runs_ends_and_starts_no_other_of_its_suspended_tenant() -> anyhow::Result<()> {
    let world = World::start().await?;
    let gate = Gate::default();
    world.model.queue([Reply::text("first").behind(&gate)]);
    let _runner = world.runner().await?;
    let running = world.say("a", "hello").await?;
    world.until("the model is asked", async || !world.model.requests().is_empty()).await?;
    world.set_state(TenantState::Suspended).await?;
    let next = world.say("a", "and more").await?;
    let other = world.say("b", "hello").await?;

    gate.open();

    world.text(&running).await?;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let waits = world.sessions.views().answer(world.tenant, other.message).await?;
    assert_eq!(waits.outcome, None, "{waits:?}");
    world.set_state(TenantState::Active).await?;
    world.text(&next).await?;
    world.text(&other).await?;
    Ok(())
}

#[tokio::test]
async fn the_money_of_a_month_is_spent_across_days_and_users_are_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    let prices = Prices { input: 1_000, output: 10_000, ..Prices::default() };
    let card = ModelCard { max_output: 1_000, prices: Some(prices), ..ModelCard::default() };
    let model = "fake:one".parse()?;
    world.directory.models().put(world.tenant, Actor::Operator, &model, &card).await?;
    let usage = Usage { prompt: 10_000, cached: 0, completion: 1_000 };
    world.model.answer(move |_| Reply::text("well").usage(usage));
    // An answer costs 20,000 millionths. What is left after three is too little for a short one.
    let limits = PlanLimits { micros_per_month: Some(61_000), ..PlanLimits::default() };
    world.plan(limits).await?;
    let _runner = world.runner_with(watchful(&world), |app| app).await?;
    for session in ["a", "b"] {
        assert_eq!(world.ask(session, "hello").await?, "well");
    }
    // What was used on other days of the month counts; what was used before does not.
    world
        .admin(
            "insert into session.spending (tenant_id, scope, day, tokens, micros)
             select tenant_id, scope, day - 40, tokens, 1000000 from session.spending",
        )
        .await?;
    assert_eq!(world.ask("c", "hello").await?, "well");

    let refused = world.answer(&world.say("d", "hello").await?).await?;

    assert_eq!(refused.outcome, Some(TurnOutcome::Failed), "{refused:?}");
    assert!(refused.text.contains("$0.061 a month, is spent"), "{}", refused.text);
    let warned = (
        "quota.warning".to_owned(),
        json!({
            "limit": "micros_per_month", "used": 60_000, "allowed": 61_000,
        }),
    );
    world
        .until("a warning is told", async || world.tenant_events().await.unwrap().contains(&warned))
        .await?;
    // Once, however often it is looked at.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.tenant_events().await?, [warned]);
    Ok(())
}

#[tokio::test]
async fn tokens_of_the_plan_hold_beside_a_larger_budget_of_the_tenant() -> anyhow::Result<()> {
    let world = World::start().await?;
    let usage = Usage { prompt: 7_000, cached: 0, completion: 1_000 };
    world.model.answer(move |_| Reply::text("well").usage(usage));
    let own = holdfast_directory::Budget { agent: None, tokens: Some(1_000_000), micros: None };
    world.directory.budgets().put(world.tenant, Actor::Operator, &own).await?;
    world.plan(PlanLimits { tokens_per_day: Some(8_000), ..PlanLimits::default() }).await?;
    let _runner = world.runner_with(watchful(&world), |app| app).await?;
    assert_eq!(world.ask("a", "hello").await?, "well");

    let refused = world.answer(&world.say("b", "hello").await?).await?;

    assert!(refused.text.contains("8000 tokens a day, is spent"), "{}", refused.text);
    let exceeded = async || {
        let told = world.tenant_events().await.unwrap();
        told.iter()
            .any(|(kind, detail)| kind == "quota.exceeded" && detail["limit"] == "tokens_per_day")
    };
    world.until("the limit is told", exceeded).await
}

#[tokio::test]
async fn a_command_beyond_the_plan_is_not_run_and_the_model_is_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(PlanLimits { commands_per_day: Some(1), ..PlanLimits::default() }).await?;
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let _runner = world.runner_with(config, |app| app).await?;
    let exec = |id: &str, command: &str| {
        Reply::call(id, "exec", json!({ "command": command }).to_string())
    };
    world.model.queue([exec("a", "echo first"), exec("b", "echo second"), Reply::text("done")]);

    let key = SessionKey::main(&world.agent.name);
    let sent = world.send(holdfast_session::NewMessage { key, ..world.message("s", "go") }).await?;
    world.text(&sent).await?;

    let journal = world.journal(sent.session).await?;
    let outputs: Vec<String> = journal
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Returned { output, .. } => Some(output),
            _ => None,
        })
        .collect();
    assert!(outputs[0].contains("first"), "{outputs:?}");
    assert!(outputs[1].contains("1 commands a day of the tenant's plan"), "{outputs:?}");
    let counted = "select sum(commands)::bigint from session.command_counts";
    assert_eq!(world.number(counted).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_tenant_whose_time_is_over_is_suspended_and_told_of() -> anyhow::Result<()> {
    let world = World::start().await?;
    let soon = jiff::Timestamp::now() + Duration::from_secs(1);
    world.change(TenantChanges { expires_at: Some(Some(soon)), ..Default::default() }).await?;
    let _runner = world.runner_with(watchful(&world), |app| app).await?;

    let state = async || {
        world.directory.tenants().get(&world.tenant.to_string()).await.map(|found| found.state)
    };
    let early = state().await?;
    if jiff::Timestamp::now() < soon {
        assert_eq!(early, TenantState::Active);
    }
    world
        .until("it is suspended", async || {
            state().await.is_ok_and(|state| state == TenantState::Suspended)
        })
        .await?;

    let kinds = async || -> anyhow::Result<Vec<String>> {
        Ok(world.tenant_events().await?.into_iter().map(|(kind, _)| kind).collect())
    };
    assert_eq!(kinds().await?, ["config.changed", "tenant.expired"]);
    // Whoever makes it active again is not overruled a moment later.
    world.set_state(TenantState::Active).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(state().await?, TenantState::Active);
    Ok(())
}

#[tokio::test]
async fn events_of_tenants_are_published_in_order_and_wait_while_nats_is_away() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let config = world.config().nats;
    let (url, prefix) = (config.url.expose_secret().to_owned(), config.prefix);
    let nats = holdfast_testkit::nats::connect(&url).await?;
    let subject = |rest: &str| format!("{prefix}.evt.{rest}");
    let tenant = world.tenant.as_uuid().simple().to_string();
    let mut published = nats.subscribe(subject(&format!("{tenant}.>"))).await?;
    nats.flush().await?;
    world.set_state(TenantState::Suspended).await?;
    world.set_state(TenantState::Active).await?;
    // Nobody publishes yet.
    let waiting = "select count(*) from control.tenant_events where published_at is null";
    assert!(world.number(waiting).await? >= 3);

    let _runner = world.runner_with(watchful(&world), |app| app).await?;

    for kind in ["tenant.created", "tenant.suspended", "tenant.activated"] {
        let event = tokio::time::timeout(LONG, published.next()).await?;
        let event = event.ok_or_else(|| anyhow::anyhow!("no event"))?;
        assert_eq!(event.subject.as_str(), subject(&format!("{tenant}.{kind}")));
        let told: Value = serde_json::from_slice(&event.payload)?;
        assert_eq!(told["kind"], kind);
        assert_eq!(told["tenant"], world.tenant.to_string());
        assert!(told["id"].is_i64() && told["at"].is_string(), "{told}");
    }
    world.until("all are marked", async || world.number(waiting).await.unwrap() == 0).await
}

#[tokio::test]
async fn gateways_are_woken_when_a_person_has_signed_in_with_a_lower_role() -> anyhow::Result<()> {
    let world = World::start().await?;
    let bus = holdfast_bus::Bus::connect(&world.config().nats, "test").await?;
    let mut wakes = bus.access_wakes().await?;
    bus.flush().await;
    for role in [TenantRole::Owner, TenantRole::Viewer] {
        let said = SignIn {
            tenant: world.tenant.to_string(),
            issuer: "https://id.example.com".to_owned(),
            subject: "7".to_owned(),
            name: "Anna".to_owned(),
            role,
        };
        world.directory.people().sign_in(&said).await?;
    }

    let _runner = world.runner_with(watchful(&world), |app| app).await?;

    let woken = tokio::time::timeout(LONG, wakes.next()).await?;
    assert_eq!(woken, Some(vec![world.tenant]));
    Ok(())
}

#[tokio::test]
async fn a_changed_plan_reaches_tenants_that_were_missed() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(PlanLimits { parallel_runs: Some(7), ..PlanLimits::default() }).await?;
    // The process that changed the plan ended before it told the tenants.
    let limits = PlanLimits { parallel_runs: Some(2), ..PlanLimits::default() };
    let plan = NewPlan { name: "plan".into(), limits, ..NewPlan::default() };
    world.directory.plans().put(&plan).await?;
    let cap = async || world.sessions.queues().share(world.tenant).await.unwrap().cap;
    assert_eq!(cap().await, 7);

    let _runner = world.runner_with(watchful(&world), |app| app).await?;

    world.until("the plan is in effect", async || cap().await == 2).await?;
    world
        .until("it is told", async || {
            world.tenant_events().await.unwrap().iter().any(|(kind, _)| kind == "limits.changed")
        })
        .await
}
