//! An agent uses its own model, else its tenant's, else the built-in one.

use holdfast_directory::{Error, NewAgent, NewProvider, ProviderKind};
use holdfast_llm::ModelCard;
use holdfast_types::{Fault as _, Kind};
use secrecy::ExposeSecret as _;
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
async fn where_the_demonstration_does_not_answer_an_agent_without_a_model_has_none() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let main = world.directory.agents().default_agent(tenant.id).await.unwrap();
    let hosted = world.directory.clone().without_demo_model();

    let none = hosted.models().of_agent(tenant.id, &main).await.unwrap_err();
    let demo = NewAgent { model: Some("demo:demo".into()), ..agent("coder") };
    let coder = world.directory.agents().create(tenant.id, BY, demo).await.unwrap();
    let chosen = hosted.models().of_agent(tenant.id, &coder).await.unwrap_err();
    let new = provider("openai", Some("sk-1"), Some("m"));
    world.directory.providers().put(tenant.id, BY, new).await.unwrap();
    let model = hosted.models().of_agent(tenant.id, &main).await.unwrap().model;

    assert!(none.to_string().contains("holdfast setup"), "{none}");
    assert_eq!((none.reason(), chosen.reason()), ("MODEL_NOT_SET", "MODEL_NOT_SET"));
    assert_eq!(model.to_string(), "openai:m");
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

#[tokio::test]
async fn headers_of_a_provider_are_sealed_kept_and_bound_to_its_address() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let put = async |new| world.directory.providers().put(tenant.id, BY, new).await;
    let plain = || provider("openai", Some("sk-1"), Some("gpt-5"));
    let headers = Some([("x-team".to_owned(), "blue".into())].into());
    let fields = |text: &str| Some(serde_json::from_str(text).unwrap());

    put(NewProvider { headers, extra_body: fields(r#"{"top_k":40}"#), ..plain() }).await.unwrap();
    let kept = put(plain()).await.unwrap();
    let main = world.directory.agents().default_agent(tenant.id).await.unwrap();
    let choice = world.directory.models().of_agent(tenant.id, &main).await.unwrap();
    let moved = NewProvider { base_url: "https://other.example/v1".into(), ..plain() };
    let moved = put(moved).await.unwrap_err();
    let reserved = Some([("Authorization".to_owned(), "x".into())].into());
    let reserved = put(NewProvider { headers: reserved, ..plain() }).await.unwrap_err();
    let own_field = put(NewProvider { extra_body: fields(r#"{"model":"x"}"#), ..plain() }).await;
    let removed = NewProvider {
        headers: Some(Default::default()),
        extra_body: Some(Default::default()),
        ..plain()
    };
    let removed = put(removed).await.unwrap();

    assert_eq!(kept.header_names, ["x-team"]);
    assert_eq!(choice.extras.headers["x-team"].expose_secret(), "blue");
    assert_eq!(choice.extras.body["top_k"], 40);
    assert!(!format!("{choice:?}").contains("blue"));
    assert!(moved.to_string().contains("another `base_url`"), "{moved}");
    assert!(reserved.to_string().contains("`authorization` is set by Holdfast"), "{reserved}");
    assert!(own_field.unwrap_err().to_string().contains("`model`"));
    assert!(removed.header_names.is_empty() && removed.extra_body.is_empty());
}

#[tokio::test]
async fn a_kept_key_does_not_go_to_the_address_of_another_kind() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let put = async |new| world.directory.providers().put(tenant.id, BY, new).await;
    let bare = |kind, key| {
        let base_url = String::new();
        NewProvider { kind, base_url, ..provider("mine", key, None) }
    };

    put(bare(ProviderKind::OpenAi, Some("sk-1"))).await.unwrap();
    let kept = put(bare(ProviderKind::OpenAi, None)).await.unwrap();
    let lured = put(bare(ProviderKind::Anthropic, None)).await.unwrap_err().to_string();
    let given = put(bare(ProviderKind::Anthropic, Some("sk-2"))).await.unwrap();

    assert!(kept.has_key && given.has_key);
    assert!(lured.contains("stored API key was given for another `base_url` or kind"), "{lured}");
}
