//! Keys of the installation: for tenants whose plan allows them, and nobody else.

use holdfast_directory::{
    CredentialStats, Error, ModelChoice, NewPlan, NewPlatformKey, NewProvider, TenantChanges,
};
use holdfast_llm::{
    ModelCard, Prices, Reason,
    credentials::{Credential, Stats},
};
use holdfast_types::TenantId;
use secrecy::ExposeSecret as _;

use crate::world::{BY, World, provider};

/// A model that has a price in the catalogue.
pub const MODEL: &str = "openai:gpt-6.1-terra";

pub fn key(name: &str, secret: &str) -> NewPlatformKey {
    NewPlatformKey {
        provider: "openai".into(),
        name: name.into(),
        key: secret.into(),
        kind: None,
        base_url: None,
        default_model: Some(MODEL.into()),
    }
}

impl World {
    /// Gives a tenant a plan with these providers of the platform.
    pub async fn give_plan(&self, tenant: TenantId, providers: &[&str]) {
        let platform_providers = providers.iter().map(|&name| name.to_owned()).collect();
        let plan = NewPlan { name: "basic".into(), platform_providers, ..NewPlan::default() };
        self.directory.plans().put(&plan).await.unwrap();
        self.set_plan(tenant, Some("basic")).await;
    }

    async fn set_plan(&self, tenant: TenantId, plan: Option<&str>) {
        let plan = Some(plan.map(str::to_owned));
        let changes = TenantChanges { plan, ..TenantChanges::default() };
        self.directory.tenants().update(tenant, BY, changes).await.unwrap();
    }

    /// The choice of the default agent's model.
    async fn choice(&self, tenant: TenantId, model: Option<&str>) -> Result<ModelChoice, Error> {
        let mut agent = self.directory.agents().default_agent(tenant).await.unwrap();
        agent.model = model.map(str::to_owned);
        self.directory.models().of_agent(tenant, &agent).await
    }
}

/// Names and texts of a choice's API keys.
fn secrets(choice: &ModelChoice) -> Vec<(&str, &str)> {
    let named = choice.keys.profiles.iter().map(|profile| (&*profile.id, &profile.credential));
    named.filter_map(|(id, credential)| Some((id, api_key(credential)?))).collect()
}

fn api_key(credential: &Credential) -> Option<&str> {
    match credential {
        Credential::ApiKey { key } => Some(key.expose_secret()),
        Credential::Token { .. } | Credential::OAuth { .. } => None,
    }
}

#[tokio::test]
async fn only_a_tenant_whose_plan_allows_them_has_the_platform_s_keys() {
    let world = World::new().await;
    let ((acme, _), (other, _)) = (world.tenant("acme").await, world.tenant("other").await);
    let keys = world.directory.platform_keys();
    for (name, secret) in [("b", "sk-b"), ("a", "sk-a")] {
        keys.put(&key(name, secret)).await.unwrap();
    }
    let refused = async |tenant| world.choice(tenant, Some(MODEL)).await.unwrap_err();

    assert!(matches!(refused(acme.id).await, Error::NoProvider { .. }));
    world.give_plan(acme.id, &["anthropic"]).await;
    assert!(matches!(refused(acme.id).await, Error::NoProvider { .. }));

    world.give_plan(acme.id, &["openai"]).await;
    let choice = world.choice(acme.id, Some(MODEL)).await.unwrap();
    assert_eq!(secrets(&choice), [("platform:a", "sk-a"), ("platform:b", "sk-b")]);
    assert!(choice.is_platform && choice.api_key.is_none() && choice.base_url.is_empty());
    // Its default model is that of the platform, while it has none of its own.
    assert_eq!(world.choice(acme.id, None).await.unwrap().model.to_string(), MODEL);
    assert!(matches!(refused(other.id).await, Error::NoProvider { .. }));

    world.set_plan(acme.id, None).await;
    assert!(matches!(refused(acme.id).await, Error::NoProvider { .. }));
    world.give_plan(acme.id, &["openai"]).await;
    for name in ["a", "b"] {
        keys.delete("openai", name).await.unwrap();
    }
    assert!(matches!(refused(acme.id).await, Error::NoProvider { .. }));
    assert!(keys.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_tenant_s_own_key_and_own_server_come_first_and_no_setting_reaches_the_platform_s_key() {
    let world = World::new().await;
    let (acme, _) = world.tenant("acme").await;
    world.directory.platform_keys().put(&key("a", "sk-platform")).await.unwrap();
    world.give_plan(acme.id, &["openai"]).await;
    let providers = world.directory.providers();
    let put = async |new| providers.put(acme.id, BY, new).await.unwrap();

    put(provider("openai", Some("sk-own"), None)).await;
    let own = world.choice(acme.id, Some(MODEL)).await.unwrap();
    assert_eq!(secrets(&own), [("default", "sk-own")]);
    assert!(!own.is_platform);

    providers.delete(acme.id, BY, "openai").await.unwrap();
    put(provider("openai", None, None)).await;
    let server = world.choice(acme.id, Some(MODEL)).await.unwrap();
    assert_eq!(server.base_url, "https://models.example/v1");
    assert!(server.keys.profiles.is_empty() && !server.is_platform, "{server:?}");

    let extras = NewProvider {
        base_url: String::new(),
        headers: Some([("x-team".to_owned(), "s3cret".into())].into()),
        extra_body: serde_json::from_str(r#"{"service_tier": "priority"}"#).unwrap(),
        ..provider("openai", None, None)
    };
    put(extras).await;
    let pooled = world.choice(acme.id, Some(MODEL)).await.unwrap();
    assert_eq!(secrets(&pooled), [("platform:a", "sk-platform")]);
    assert!(pooled.extras.headers.is_empty() && pooled.extras.body.is_empty(), "{pooled:?}");
}

#[tokio::test]
async fn models_of_the_platform_have_its_prices_and_one_without_a_price_is_refused() {
    let world = World::new().await;
    let (acme, _) = world.tenant("acme").await;
    world.directory.platform_keys().put(&key("a", "sk-platform")).await.unwrap();
    world.give_plan(acme.id, &["openai"]).await;
    let (model, free) = (MODEL.parse().unwrap(), Some(Prices::default()));
    let card = ModelCard { prices: free, ..ModelCard::default() };
    world.directory.models().put(acme.id, BY, &model, &card).await.unwrap();
    let agent = world.directory.agents().default_agent(acme.id).await.unwrap();

    let setup = world.directory.models().setup(acme.id, &agent).await.unwrap();
    let unknown = world.choice(acme.id, Some("openai:nobody-knows-it")).await.unwrap_err();

    assert!(setup.catalogue.card(&model).prices.unwrap().input > 0);
    assert!(unknown.to_string().contains("has no price"), "{unknown}");
}

#[tokio::test]
async fn statistics_of_a_platform_key_are_kept_until_it_is_replaced() {
    let world = World::new().await;
    let (acme, _) = world.tenant("acme").await;
    let keys = world.directory.platform_keys();
    keys.put(&key("a", "sk-a")).await.unwrap();
    world.give_plan(acme.id, &["openai"]).await;
    let stats = Stats::default().after_failure(Reason::Auth, 1_000);
    let newer = CredentialStats { changed: i64::MAX - 1, stats: stats.clone() };

    keys.store_stats("openai", "platform:a", &newer).await.unwrap();
    let older = CredentialStats { changed: 1, stats: Stats::default() };
    keys.store_stats("openai", "platform:a", &older).await.unwrap();
    let choice = world.choice(acme.id, Some(MODEL)).await.unwrap();
    assert_eq!(choice.keys.stats["platform:a"], newer);
    assert_eq!(keys.list().await.unwrap()[0].keys[0].stats, stats);

    keys.put(&key("a", "sk-new")).await.unwrap();
    assert_eq!(keys.list().await.unwrap()[0].keys[0].stats, Stats::default());
    let choice = world.choice(acme.id, Some(MODEL)).await.unwrap();
    assert_eq!(secrets(&choice), [("platform:a", "sk-new")]);
    assert!(choice.keys.stats["platform:a"].changed > newer.changed);
}
