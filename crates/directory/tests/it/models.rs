//! An agent uses its own model, else its tenant's, else the built-in one.

use holdfast_directory::{Error, NewAgent, NewProvider, ProviderKind};
use holdfast_llm::ModelCard;
use holdfast_types::{Fault as _, Kind};
use sqlx::AssertSqlSafe;

use crate::world::{BY, World, agent, provider};

#[tokio::test]
async fn a_provider_of_each_kind_can_be_set_up() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let others = ProviderKind::ALL.into_iter().filter(|kind| *kind != ProviderKind::Demo);

    for kind in others {
        let name = format!("my-{}", kind.as_str());
        let new = NewProvider { kind, ..provider(&name, Some("k"), Some("m")) };
        world.directory.providers().put(tenant.id, BY, new).await.unwrap();

        let main = world.directory.agents().default_agent(tenant.id).await.unwrap();
        let chosen = world.directory.models().of_agent(tenant.id, &main).await.unwrap();
        assert_eq!((chosen.kind, chosen.model.to_string()), (kind, format!("{name}:m")));
    }
}

#[tokio::test]
async fn a_fresh_tenant_has_the_built_in_model_and_then_the_one_it_chose() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let main = world.directory.agents().default_agent(tenant.id).await.unwrap();
    let chosen = async || world.directory.models().of_agent(tenant.id, &main).await.unwrap();
    let put = async |new| world.directory.providers().put(tenant.id, BY, new).await.unwrap();

    let fresh = chosen().await;
    put(provider("ollama", None, Some("qwen3:4b"))).await;
    let first = chosen().await;
    put(provider("openai", Some("sk-1"), Some("gpt-5"))).await;
    let second = chosen().await;

    assert_eq!((fresh.model.to_string().as_str(), fresh.kind), ("demo:demo", ProviderKind::Demo));
    assert_eq!(first.model.to_string(), "ollama:qwen3:4b");
    assert!(first.api_key.is_none());
    assert_eq!(second.model.to_string(), "openai:gpt-5");
    assert_eq!(second.base_url, "https://models.example/v1");
    // There is only one default model.
    let defaults: Vec<_> = world
        .directory
        .providers()
        .list(tenant.id)
        .await
        .unwrap()
        .into_iter()
        .map(|provider| (provider.name, provider.has_key, provider.default_model))
        .collect();
    assert_eq!(
        defaults,
        [
            ("ollama".to_owned(), false, None),
            ("openai".to_owned(), true, Some("openai:gpt-5".to_owned())),
        ]
    );
}

#[tokio::test]
async fn a_model_of_a_provider_that_is_not_there_says_which() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let new = NewAgent { model: Some("openai:gpt-5".into()), ..agent("coder") };
    let coder = world.directory.agents().create(tenant.id, BY, new).await.unwrap();

    let missing = world.directory.models().of_agent(tenant.id, &coder).await.unwrap_err();
    world.directory.providers().put(tenant.id, BY, provider("openai", None, None)).await.unwrap();
    let found = world.directory.models().of_agent(tenant.id, &coder).await.unwrap();
    world.directory.providers().delete(tenant.id, BY, "openai").await.unwrap();

    assert!(matches!(missing, Error::NoProvider { .. }), "{missing}");
    assert_eq!(missing.kind(), Kind::NotFound);
    assert_eq!(found.model.to_string(), "openai:gpt-5");
    assert!(world.directory.models().of_agent(tenant.id, &coder).await.is_err());
}

#[tokio::test]
async fn a_tenant_at_the_limit_of_models_replaces_what_it_has_and_adds_nothing() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let mut admin = world.admin().await;
    for (table, columns, values) in [
        ("models", "model, card", "'lab:m' || n, '{}'::jsonb"),
        ("model_aliases", "alias, model", "'a' || n, 'lab:m1'"),
    ] {
        let sql = format!(
            "insert into control.{table} (tenant_id, {columns}) \
             select $1, {values} from generate_series(1, 250) n"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.id.as_uuid());
        query.execute(&mut admin).await.unwrap();
    }
    let lab = provider("lab", Some("sk-hush"), None);
    world.directory.providers().put(tenant.id, BY, lab).await.unwrap();
    let models = world.directory.models();
    let card = ModelCard { context: 4_096, ..ModelCard::default() };

    models.put(tenant.id, BY, &"lab:m1".parse().unwrap(), &card).await.unwrap();
    models.put_alias(tenant.id, BY, "a1", "lab:m2").await.unwrap();
    let model = models.put(tenant.id, BY, &"lab:new".parse().unwrap(), &card).await;
    let alias = models.put_alias(tenant.id, BY, "new", "lab:m2").await;

    assert!(matches!(model, Err(Error::TooMany { limit: 500, .. })), "{model:?}");
    assert!(matches!(alias, Err(Error::TooMany { limit: 500, .. })), "{alias:?}");
    let known = models.known(tenant.id).await.unwrap();
    let of = |name: &str| known.iter().find(|known| known.model.to_string() == name).unwrap();
    assert_eq!(of("lab:m1").card.context, 4_096);
    assert_eq!(of("lab:m2").aliases, ["a1"]);
}
