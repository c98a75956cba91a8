//! Round trips of keys, models and budgets: returned as they were stored, without secrets.

use holdfast_proto::gateway::v1::{
    self as pb, agents_server::Agents as _, budgets_server::Budgets as _,
    credentials_server::Credentials as _, models_server::Models as _,
    providers_server::Providers as _,
};
use holdfast_types::TenantId;
use tonic::Code;

use super::{World, admin, code};
use crate::control::{
    agents::Agents, budgets::Budgets, credentials::Credentials, models::Models,
    providers::Providers,
};

async fn with_provider(world: &World) -> TenantId {
    let tenant = world.tenant("acme").await;
    let provider =
        pb::Provider { name: "openai".into(), kind: "openai".into(), ..Default::default() };
    let put = pb::PutProviderRequest {
        provider: Some(provider),
        api_key: "sk-first".into(),
        ..Default::default()
    };
    Providers(world.state.clone()).put_provider(admin(tenant, put)).await.unwrap();
    tenant
}

#[tokio::test]
async fn a_provider_on_a_private_address_or_without_tls_is_refused_when_it_is_set() {
    let world = World::new().await;
    let tenant = with_provider(&world).await;
    let providers = Providers(world.state.clone());
    for url in ["http://10.0.0.7/v1", "https://[::1]/v1", "http://models.example/v1"] {
        let provider = pb::Provider {
            name: "inner".into(),
            kind: "openai".into(),
            base_url: url.into(),
            ..Default::default()
        };
        let put = pb::PutProviderRequest {
            provider: Some(provider),
            api_key: "sk".into(),
            ..Default::default()
        };
        let refused = providers.put_provider(admin(tenant, put)).await.unwrap_err();

        assert_eq!(refused.code(), Code::InvalidArgument, "{url}");
        assert!(refused.message().contains("`egress.allow`"), "{refused}");
    }
    let mut renewed = credential("work", "oauth");
    let at = renewed.credential.as_mut().unwrap();
    (at.token_url, at.client_id) = ("https://169.254.169.254/token".into(), "id".into());
    let refused = Credentials(world.state.clone()).put_credential(admin(tenant, renewed)).await;
    assert!(refused.unwrap_err().message().contains("is not on the public internet"));
}

fn credential(name: &str, kind: &str) -> pb::PutCredentialRequest {
    let credential = pb::Credential {
        provider: "openai".into(),
        name: name.into(),
        kind: kind.into(),
        ..Default::default()
    };
    pb::PutCredentialRequest {
        credential: Some(credential),
        secret: "sk-hush".into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn keys_are_listed_in_their_order_without_their_secrets() {
    let world = World::new().await;
    let tenant = with_provider(&world).await;
    let keys = Credentials(world.state.clone());

    keys.put_credential(admin(tenant, credential("work", ""))).await.unwrap();
    keys.put_credential(admin(tenant, credential("token", "token"))).await.unwrap();
    let order = pb::OrderCredentialsRequest {
        provider: "openai".into(),
        names: vec!["work".into(), "default".into()],
        strict: true,
    };
    keys.order_credentials(admin(tenant, order.clone())).await.unwrap();
    let unknown = pb::OrderCredentialsRequest { names: vec!["nobody".into()], ..order };
    let unknown = keys.order_credentials(admin(tenant, unknown)).await;
    let wrong = keys.put_credential(admin(tenant, credential("default", ""))).await;

    let listed = keys.list_credentials(admin(tenant, Default::default())).await.unwrap();
    let listed = listed.into_inner().credentials;
    let seen: Vec<_> = listed
        .iter()
        .map(|key| (key.name.as_str(), key.kind.as_str(), key.state.as_str(), key.place))
        .collect();
    assert_eq!(
        seen,
        [
            ("work", "api_key", "ready", 1),
            ("default", "api_key", "ready", 2),
            ("token", "token", "ready", 0),
        ]
    );
    assert!(!format!("{listed:?}").contains("sk-"));
    assert_eq!((code(unknown), code(wrong)), (Code::NotFound, Code::InvalidArgument));

    for name in ["work", "default"] {
        let (provider, name) = ("openai".to_owned(), name.to_owned());
        let delete = pb::DeleteCredentialRequest { provider, name };
        keys.delete_credential(admin(tenant, delete.clone())).await.unwrap();
        assert_eq!(code(keys.delete_credential(admin(tenant, delete)).await), Code::NotFound);
    }
    let listed = keys.list_credentials(admin(tenant, Default::default())).await.unwrap();
    assert_eq!(listed.into_inner().credentials.len(), 1);
}

#[tokio::test]
async fn a_model_and_its_alias_are_put_and_an_agent_may_be_given_either() {
    let world = World::new().await;
    let tenant = with_provider(&world).await;
    let models = Models(world.state.clone());
    let card = r#"{"context": 9000, "prices": {"input": 2500, "output": 10000}}"#.to_owned();
    let own = || admin(tenant, pb::ListModelsRequest { own: true });

    let put = pb::PutModelRequest { model: "openai:mine".into(), card };
    models.put_model(admin(tenant, put)).await.unwrap();
    let alias = pb::PutAliasRequest { alias: "quick".into(), model: "openai:mine".into() };
    models.put_alias(admin(tenant, alias)).await.unwrap();
    let lost = pb::PutAliasRequest { alias: "lost".into(), model: "nowhere:x".into() };
    let lost = models.put_alias(admin(tenant, lost)).await.unwrap_err();
    assert!(lost.message().contains("`nowhere`"), "{lost}");
    let wrong = pb::PutModelRequest { model: "openai:mine".into(), card: r#"{"x": 1}"#.into() };
    let wrong = models.put_model(admin(tenant, wrong)).await;

    let listed = models.list_models(own()).await.unwrap().into_inner().models;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].model.as_str(), listed[0].aliases.as_slice()),
        ("openai:mine", &["quick".to_owned()][..])
    );
    assert!(listed[0].card.contains("9000") && listed[0].card.contains("2500"));
    assert_eq!(code(wrong), Code::InvalidArgument);

    let agents = Agents(world.state.clone());
    let agent = |fallback: &str| pb::Agent {
        name: "coach".into(),
        model: "quick".into(),
        fallbacks: vec!["openai:other".into(), fallback.into()],
        ..Default::default()
    };
    let create =
        |fallback: &str| admin(tenant, pb::CreateAgentRequest { agent: Some(agent(fallback)) });
    assert_eq!(code(agents.create_agent(create("nonsense")).await), Code::InvalidArgument);
    let made = agents.create_agent(create("quick")).await.unwrap().into_inner().agent.unwrap();
    assert_eq!((made.model.as_str(), made.fallbacks.len()), ("quick", 2));

    let delete = pb::DeleteAliasRequest { alias: "quick".into() };
    models.delete_alias(admin(tenant, delete)).await.unwrap();
    let delete = pb::DeleteModelRequest { model: "openai:mine".into() };
    models.delete_model(admin(tenant, delete)).await.unwrap();
    assert!(models.list_models(own()).await.unwrap().into_inner().models.is_empty());
}

#[tokio::test]
async fn a_budget_is_set_shown_with_what_was_used_and_unset() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let budgets = Budgets(world.state.clone());
    let set = |agent: &str, tokens, micros| {
        admin(tenant, pb::SetBudgetRequest { agent: agent.into(), tokens, micros })
    };

    budgets.set_budget(set("", 5_000, 0)).await.unwrap();
    budgets.set_budget(set("main", 0, 1_500_000)).await.unwrap();
    budgets.set_budget(set("", 6_000, 7)).await.unwrap();
    let nothing = budgets.set_budget(set("main", 0, 0)).await;
    let nobody = budgets.set_budget(set("nobody", 1, 0)).await;

    let listed = budgets.list_budgets(admin(tenant, Default::default())).await.unwrap();
    let listed = listed.into_inner();
    let seen: Vec<_> =
        listed.budgets.iter().map(|one| (one.agent.as_str(), one.tokens, one.micros)).collect();
    assert_eq!(seen, [("", 6_000, 7), ("main", 0, 1_500_000)]);
    assert_eq!(listed.renews_at.unwrap().seconds % 86_400, 0);
    assert_eq!((code(nothing), code(nobody)), (Code::InvalidArgument, Code::NotFound));

    let unset = pb::UnsetBudgetRequest { agent: "main".into() };
    budgets.unset_budget(admin(tenant, unset.clone())).await.unwrap();
    assert_eq!(code(budgets.unset_budget(admin(tenant, unset)).await), Code::NotFound);
    let many = pb::GetUsageRequest { days: 91, ..Default::default() };
    assert_eq!(code(budgets.get_usage(admin(tenant, many)).await), Code::InvalidArgument);
}
