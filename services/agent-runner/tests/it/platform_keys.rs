//! Keys of the installation serve tenants whose plan allows them: shared, rotated and billed.

use std::time::Duration;

use holdfast_directory::{
    Actor, NewPlan, NewPlatformKey, NewProvider, PlanLimits, ProviderKind, TenantChanges,
};
use holdfast_llm::{ModelCard, Prices, Reason};
use holdfast_session::{NewMessage, TurnOutcome};
use holdfast_testkit::{FakeModel, Reply, model::Usage};
use holdfast_types::SessionKey;

use crate::world::World;

/// A model that has a price in the catalogue.
const MODEL: &str = "openai:gpt-6.1-terra";

impl World {
    /// Adds a key of the installation, which goes to the fake model.
    async fn put_platform_key(&self, name: &str, secret: &str) -> anyhow::Result<()> {
        let new = NewPlatformKey {
            provider: "openai".into(),
            name: name.into(),
            key: secret.into(),
            kind: None,
            base_url: Some(self.model.url()),
            default_model: Some(MODEL.into()),
        };
        self.directory.platform_keys().put(&new).await?;
        Ok(())
    }

    /// Takes the tenant's own provider away, and gives it a plan with these limits that allows the
    /// installation's.
    async fn use_platform_keys(&self, limits: PlanLimits) -> anyhow::Result<()> {
        self.directory.providers().delete(self.tenant, Actor::Operator, "fake").await?;
        let platform_providers = vec!["openai".to_owned()];
        let name = "basic".to_owned();
        let plan = NewPlan { name, limits, platform_providers, ..NewPlan::default() };
        self.directory.plans().put(&plan).await?;
        self.set_plan(Some("basic")).await?;
        Ok(self.sessions.usage().open_budget(self.tenant, None).await?)
    }

    async fn set_plan(&self, plan: Option<&str>) -> anyhow::Result<()> {
        let plan = Some(plan.map(str::to_owned));
        let changes = TenantChanges { plan, ..TenantChanges::default() };
        self.directory.tenants().update(self.tenant, Actor::Operator, changes).await?;
        // An agent's settings are cached for a second.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        Ok(())
    }

    /// With which keys the model was asked.
    fn keys_seen(&self) -> Vec<String> {
        let requests = self.model.requests();
        requests.iter().map(|request| request.key.clone().unwrap_or_default()).collect()
    }

    /// Cost of all runs, and the part of it by keys of the installation.
    async fn costs(&self) -> anyhow::Result<(i64, i64)> {
        let cost = self.number("select sum(cost_micros)::bigint from session.runs").await?;
        let platform = "select sum(platform_micros)::bigint from session.runs";
        Ok((cost, self.number(platform).await?))
    }
}

#[tokio::test]
async fn a_tenant_without_a_key_is_answered_while_its_plan_allows_the_platform_s_keys()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let usage = Usage { prompt: 10_000, cached: 0, completion: 1_000 };
    world.model.answer(move |_| Reply::text("well").usage(usage));
    world.put_platform_key("main", "platform-key").await?;
    world.use_platform_keys(PlanLimits::default()).await?;
    let _runner = world.runner().await?;

    assert_eq!(world.ask("a", "hello").await?, "well");
    assert_eq!(world.keys_seen(), ["platform-key"]);
    let (cost, platform) = world.costs().await?;
    assert!(cost > 0 && platform == cost, "{platform} of {cost}");

    world.change_agent(|agent| agent.model = Some(MODEL.to_owned())).await?;
    world.set_plan(None).await?;
    let refused = world.answer(&world.say("a", "again").await?).await?;
    assert_eq!(refused.outcome, Some(TurnOutcome::Failed), "{refused:?}");
    assert_eq!(world.model.count(), 1, "nothing is asked without a plan");

    // With a key of its own the tenant pays its provider itself.
    let own = NewProvider {
        name: "openai".into(),
        kind: ProviderKind::OpenAi,
        base_url: world.model.url(),
        api_key: Some("own-key".into()),
        ..NewProvider::default()
    };
    world.directory.providers().put(world.tenant, Actor::Operator, own).await?;
    world.set_plan(Some("basic")).await?;
    assert_eq!(world.ask("b", "hello").await?, "well");
    assert_eq!(world.keys_seen(), ["platform-key", "own-key"]);
    let (more, same) = world.costs().await?;
    assert!(more > cost && same == platform, "{same} of {more}");
    Ok(())
}

#[tokio::test]
async fn no_address_or_header_of_a_tenant_gets_the_platform_s_key() -> anyhow::Result<()> {
    let (world, foreign) = (World::start().await?, FakeModel::start().await?);
    world.model.answer(|_| Reply::text("well"));
    foreign.answer(|_| Reply::text("foreign"));
    world.put_platform_key("main", "platform-key").await?;
    world.use_platform_keys(PlanLimits::default()).await?;
    world.change_agent(|agent| agent.model = Some(MODEL.to_owned())).await?;
    let put = async |base_url: String| {
        let provider = NewProvider {
            name: "openai".into(),
            kind: ProviderKind::OpenAi,
            base_url,
            headers: Some([("x-team".to_owned(), "tenant".into())].into()),
            extra_body: serde_json::from_str(r#"{"service_tier": "priority"}"#)?,
            ..NewProvider::default()
        };
        world.directory.providers().put(world.tenant, Actor::Operator, provider).await?;
        anyhow::Ok(())
    };
    put(foreign.url()).await?;
    let _runner = world.runner().await?;

    assert_eq!(world.ask("a", "hello").await?, "foreign");
    let asked = foreign.requests();
    assert!(asked.iter().all(|request| request.key.is_none()), "{asked:?}");

    put(String::new()).await?;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(world.ask("b", "hello").await?, "well");
    let asked = world.model.requests();
    assert_eq!(asked[0].key.as_deref(), Some("platform-key"));
    assert!(asked[0].body.get("service_tier").is_none(), "{}", asked[0].body);
    assert_eq!(foreign.count(), 1);
    Ok(())
}

#[tokio::test]
async fn a_refused_platform_key_is_put_aside_for_all_runners_and_the_next_one_answers()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.put_platform_key("first", "refused-key").await?;
    world.put_platform_key("second", "good-key").await?;
    world.use_platform_keys(PlanLimits::default()).await?;
    world.model.answer(|request| match request.key.as_deref() {
        Some("good-key") => Reply::text("well"),
        _ => Reply::status(401),
    });
    let first = world.runner().await?;

    assert_eq!(world.ask("a", "hello").await?, "well");
    first.stop().await?;
    let _second = world.runner().await?;
    assert_eq!(world.ask("b", "hello").await?, "well");

    assert_eq!(world.keys_seen().last().map(String::as_str), Some("good-key"));
    let refused = world.keys_seen().iter().filter(|key| *key == "refused-key").count();
    assert_eq!(refused, 1, "{:?}", world.keys_seen());
    let provider = world.directory.platform_keys().list().await?.remove(0);
    let [first, second] = &provider.keys[..] else { panic!("{provider:?}") };
    assert_eq!(
        first.stats.failure_counts.get(&Reason::Auth).copied().unwrap_or(0) as usize,
        refused
    );
    assert!(second.stats.failure_counts.is_empty(), "{second:?}");
    let own = world.directory.credentials().list(world.tenant).await?;
    assert!(own.is_empty(), "{own:?}");
    Ok(())
}

#[tokio::test]
async fn a_refusal_that_one_tenant_causes_takes_the_platform_s_key_from_no_other()
-> anyhow::Result<()> {
    for status in [402, 403, 429] {
        let world = World::start().await?;
        world.put_platform_key("first", "one-key").await?;
        world.put_platform_key("second", "other-key").await?;
        world.use_platform_keys(PlanLimits::default()).await?;
        let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
        let plan = Some(Some("basic".to_owned()));
        let changes = TenantChanges { plan, ..TenantChanges::default() };
        world.directory.tenants().update(other.id, Actor::Operator, changes).await?;
        world.sessions.usage().open_budget(other.id, None).await?;
        let theirs = world.directory.agents().default_agent(other.id).await?;
        world.model.answer(move |request| {
            match request.last_user_text().contains("something bad") {
                true => Reply::status(status),
                false => Reply::text("well"),
            }
        });
        let _runner = world.runner().await?;

        let refused = world.answer(&world.say("a", "something bad").await?).await?;
        let key = SessionKey::api(&theirs.name, "b")?;
        let message = NewMessage { key, agent: theirs.id, ..world.message("b", "hello") };
        let answered = world.answer_in(other.id, message).await?;

        assert_eq!(refused.outcome, Some(TurnOutcome::Failed), "{status}: {refused:?}");
        assert_eq!(answered.text, "well", "{status}");
        // The tenant itself waits, and operators see what failed.
        let asked = world.model.count();
        let again = world.answer(&world.say("c", "hello").await?).await?;
        assert_eq!(again.outcome, Some(TurnOutcome::Failed), "{status}: {again:?}");
        assert_eq!(world.model.count(), asked, "{status}");
        let now = jiff::Timestamp::now().as_millisecond();
        for key in world.directory.platform_keys().list().await?.remove(0).keys {
            assert_eq!(key.stats.unusable_until(now), None, "{status}: {key:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_money_of_a_plan_holds_whatever_a_tenant_says_that_a_model_costs() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let usage = Usage { prompt: 10_000, cached: 0, completion: 1_000 };
    world.model.answer(move |_| Reply::text("well").usage(usage));
    world.put_platform_key("main", "platform-key").await?;
    let card = ModelCard { prices: Some(Prices::default()), ..ModelCard::default() };
    let model = MODEL.parse()?;
    world.directory.models().put(world.tenant, Actor::Operator, &model, &card).await?;
    let limits = PlanLimits { micros_per_month: Some(1), ..PlanLimits::default() };
    world.use_platform_keys(limits).await?;
    let _runner = world.runner().await?;

    let refused = world.answer(&world.say("a", "hello").await?).await?;

    assert_eq!(refused.outcome, Some(TurnOutcome::Failed), "{refused:?}");
    assert!(refused.text.contains("a month, is spent"), "{}", refused.text);
    assert_eq!(world.model.count(), 0);
    Ok(())
}
