//! Keys that fail are left alone by all runners, and others are asked in their place.

use holdfast_directory::{
    Actor, CredentialKind, NewCredential, NewProvider, ProviderKind, TokenEndpoint,
};
use holdfast_llm::Reason;
use holdfast_session::TurnOutcome;
use holdfast_testkit::{FakeModel, Reply};

use crate::world::World;

#[tokio::test]
async fn a_provider_on_a_private_address_is_asked_only_if_the_operator_lists_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.egress.allow.clear();
    let _runner = world.runner_with(config, |app| app).await?;

    let answer = world.answer(&world.say("s", "hello").await?).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Failed));
    assert!(answer.text.contains("is not set up rightly"), "{}", answer.text);
    assert_eq!(world.model.count(), 0, "nothing reaches the address");
    Ok(())
}

fn key(name: &str, secret: &str) -> NewCredential {
    NewCredential {
        provider: "fake".into(),
        name: name.into(),
        kind: CredentialKind::ApiKey,
        secret: secret.into(),
        refresh: None,
        expires: None,
        renewed_at: TokenEndpoint::default(),
    }
}

impl World {
    /// The provider has this key besides the one called `key`.
    async fn with_key(&self, name: &str, secret: &str) -> anyhow::Result<()> {
        let new = key(name, secret);
        Ok(self.directory.credentials().put(self.tenant, Actor::Operator, &new).await?)
    }

    /// With which keys the model was asked.
    fn asked_with(&self) -> Vec<String> {
        let requests = self.model.requests();
        requests.iter().map(|request| request.key.clone().unwrap_or_default()).collect()
    }

    /// Another provider, whose model stands in for the first one's.
    pub async fn with_fallback(&self) -> anyhow::Result<FakeModel> {
        let other = FakeModel::start().await?;
        let provider = NewProvider {
            name: "spare".to_owned(),
            kind: ProviderKind::OpenAi,
            base_url: other.url(),
            api_key: Some("spare-key".into()),
            default_model: None,
            ..NewProvider::default()
        };
        self.directory.providers().put(self.tenant, Actor::Operator, provider).await?;
        self.change_agent(|agent| agent.settings.fallbacks = vec!["spare:two".into()]).await?;
        Ok(other)
    }
}

#[tokio::test]
async fn a_refused_key_is_left_alone_by_every_runner_and_the_next_one_answers() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.with_key("second", "other-key").await?;
    world.model.answer(|request| match request.key.as_deref() {
        Some("key") => Reply::status(401),
        _ => Reply::text("well"),
    });
    let first = world.runner().await?;

    assert_eq!(world.ask("a", "hello").await?, "well");
    assert_eq!(world.asked_with(), ["key", "other-key"]);
    first.stop().await?;
    // The other runner knows nothing but what it is told.
    let _second = world.runner().await?;
    assert_eq!(world.ask("b", "hello").await?, "well");
    assert_eq!(world.ask("a", "again").await?, "well");

    assert_eq!(world.asked_with()[2..], ["other-key", "other-key"]);
    let cards = world.directory.credentials().list(world.tenant).await?;
    let refused = cards.iter().find(|card| card.name == "default").unwrap();
    assert_eq!(refused.stats.failure_counts, [(Reason::Auth, 1)].into());
    assert!(refused.stats.cooldown_until.is_some());
    Ok(())
}

#[tokio::test]
async fn a_key_whose_account_is_empty_stays_out_of_use_when_redis_has_lost_everything()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.with_key("second", "other-key").await?;
    world.model.answer(|request| match request.key.as_deref() {
        Some("key") => Reply::status(402),
        _ => Reply::text("well"),
    });
    let first = world.runner().await?;
    assert_eq!(world.ask("a", "hello").await?, "well");
    first.stop().await?;

    assert!(world.flush_redis().await? > 0, "redis knew nothing");
    let _second = world.runner().await?;
    assert_eq!(world.ask("b", "hello").await?, "well");

    assert_eq!(world.asked_with(), ["key", "other-key", "other-key"]);
    let cards = world.directory.credentials().list(world.tenant).await?;
    let broke = cards.iter().find(|card| card.name == "default").unwrap();
    let hours = broke.stats.disabled_until.unwrap() - jiff::Timestamp::now().as_millisecond();
    assert!((4 * 3_600_000..=5 * 3_600_000).contains(&hours), "{broke:?}");

    // Somebody has paid.
    let by = Actor::Operator;
    world.directory.credentials().enable(world.tenant, by, "fake", "default").await?;
    world.model.answer(|request| Reply::text(request.key.clone().unwrap_or_default()));
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    assert_eq!(world.ask("c", "hello").await?, "key");
    Ok(())
}

#[tokio::test]
async fn a_conversation_stays_with_its_key_and_new_ones_take_the_one_that_rested()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.with_key("second", "other-key").await?;
    world.model.answer(|request| Reply::text(request.key.clone().unwrap_or_default()));
    let runner = world.runner().await?;

    let a = world.ask("a", "hello").await?;
    let b = world.ask("b", "hello").await?;
    runner.stop().await?;
    let _other = world.runner().await?;

    assert_ne!(a, b);
    assert_eq!(world.ask("b", "again").await?, b);
    assert_eq!(world.ask("a", "again").await?, a);
    assert_eq!(world.ask("b", "once more").await?, b);
    Ok(())
}

#[tokio::test]
async fn a_limited_rate_is_not_waited_for_where_another_key_can_be_asked() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.with_key("second", "other-key").await?;
    let by = Actor::Operator;
    let order = ["second".to_owned(), "default".to_owned()];
    world.directory.credentials().set_order(world.tenant, by, "fake", (&order, true)).await?;
    world.model.answer(|request| match request.key.as_deref() {
        Some("other-key") => Reply::rate_limited(std::time::Duration::from_secs(60)),
        _ => Reply::text("well"),
    });
    let _runner = world.runner().await?;

    // `ask` waits half as long as the rate limit lasts.
    assert_eq!(world.ask("a", "hello").await?, "well");

    assert_eq!(world.asked_with(), ["other-key", "key"]);
    Ok(())
}

#[tokio::test]
async fn when_no_key_can_be_used_it_is_told_who_can_act() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.with_key("second", "other-key").await?;
    world.model.answer(|_| Reply::status(401));
    let _runner = world.runner().await?;

    let refused = world.answer(&world.say("a", "hello").await?).await?;
    let again = world.answer(&world.say("b", "hello").await?).await?;

    for answer in [refused, again] {
        assert_eq!(answer.outcome, Some(TurnOutcome::Failed));
        assert!(answer.text.contains("refused the key"), "{}", answer.text);
    }
    assert_eq!(world.model.count(), 2, "keys that are left alone are not asked");
    Ok(())
}

#[tokio::test]
async fn another_model_answers_for_one_that_is_overloaded_and_the_run_says_which()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let spare = world.with_fallback().await?;
    world.model.answer(|_| Reply::status(503));
    let runner = world.runner().await?;

    let sent = world.say("a", "hello").await?;
    assert_eq!(world.text(&sent).await?, "echo: hello");
    let asked = world.model.count();
    assert_eq!(world.ask("b", "hello").await?, "echo: hello");

    let models = world.texts("select model from session.runs order by finished_at").await?;
    assert_eq!(models, ["spare:two", "spare:two"]);
    assert_eq!((asked, world.model.count(), spare.count()), (3, 3, 2), "it is left alone then");

    // Cooldowns of models are in Redis only: another runner reads them there.
    runner.stop().await?;
    let _other = world.runner().await?;
    assert_eq!(world.ask("d", "hello").await?, "echo: hello");
    assert_eq!((world.model.count(), spare.count()), (3, 3));

    // No key is left.
    spare.answer(|_| Reply::status(401));
    let failed = world.answer(&world.say("c", "hello").await?).await?;
    assert!(failed.text.contains("neither is any that stands in"), "{}", failed.text);
    Ok(())
}

#[tokio::test]
async fn another_tenant_knows_nothing_of_keys_and_no_secret_is_in_the_tables() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.with_key("second", "sk-very-secret").await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let by = Actor::Operator;

    assert!(world.directory.credentials().list(other.id).await?.is_empty());
    for done in [
        world.directory.credentials().delete(other.id, by, "fake", "second").await,
        world.directory.credentials().enable(other.id, by, "fake", "second").await,
        world.directory.credentials().put(other.id, by, &key("mine", "k")).await,
    ] {
        assert!(done.unwrap_err().to_string().starts_with("there is no "));
    }
    let dump = "select encode(secret, 'escape') || a::text from control.auth_profiles a
                union all select s::text from control.audit s";
    let dumped = world.texts(dump).await?.concat();
    assert!(dumped.contains("second") && !dumped.contains("very-secret"), "{dumped}");
    Ok(())
}
