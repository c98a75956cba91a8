//! An agent uses its own model, else its tenant's, else the built-in one.

use holdfast_directory::{Error, NewAgent, NewProvider, ProviderKind};
use holdfast_types::{Fault as _, Kind};

use crate::world::{BY, World, agent, provider};

#[tokio::test]
async fn a_provider_of_each_kind_can_be_set_up() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let others = ProviderKind::ALL.into_iter().filter(|kind| *kind != ProviderKind::Demo);

    for kind in others {
        let name = format!("my-{}", kind.as_str());
        let new = NewProvider { kind, ..provider(&name, Some("k"), Some("m")) };
        world.directory.put_provider(tenant.id, BY, new).await.unwrap();

        let main = world.directory.default_agent(tenant.id).await.unwrap();
        let chosen = world.directory.model(tenant.id, &main).await.unwrap();
        assert_eq!((chosen.kind, chosen.model.to_string()), (kind, format!("{name}:m")));
    }
}

#[tokio::test]
async fn a_fresh_tenant_has_the_built_in_model_and_then_the_one_it_chose() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let main = world.directory.default_agent(tenant.id).await.unwrap();
    let chosen = async || world.directory.model(tenant.id, &main).await.unwrap();
    let put = async |new| world.directory.put_provider(tenant.id, BY, new).await.unwrap();

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
        .providers(tenant.id)
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
    let coder = world.directory.create_agent(tenant.id, BY, new).await.unwrap();

    let missing = world.directory.model(tenant.id, &coder).await.unwrap_err();
    world.directory.put_provider(tenant.id, BY, provider("openai", None, None)).await.unwrap();
    let found = world.directory.model(tenant.id, &coder).await.unwrap();
    world.directory.delete_provider(tenant.id, BY, "openai").await.unwrap();

    assert!(matches!(missing, Error::NoProvider { .. }), "{missing}");
    assert_eq!(missing.kind(), Kind::NotFound);
    assert_eq!(found.model.to_string(), "openai:gpt-5");
    assert!(world.directory.model(tenant.id, &coder).await.is_err());
}
