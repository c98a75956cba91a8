//! Models that a tenant uses are compared with what their providers list.

use holdfast_directory::{Actor, NewAgent, NewProvider, ProviderKind};
use holdfast_proto::gateway::v1::{
    CheckModelsRequest, ListModelsRequest, models_client::ModelsClient,
};
use holdfast_testkit::FakeModel;
use holdfast_types::AgentName;
use serde_json::json;

use crate::world::World;

/// A provider of the fake model, with a default model of that name.
async fn provider(world: &World, name: &str, model: &FakeModel, default: Option<&str>) {
    let new = NewProvider {
        name: name.to_owned(),
        kind: ProviderKind::OpenAi,
        base_url: model.url(),
        api_key: Some("sk-anna".into()),
        default_model: default.map(str::to_owned),
        ..NewProvider::default()
    };
    world.directory.providers().put(world.anna.id, Actor::Operator, new).await.unwrap();
}

async fn agent(world: &World, name: &str, model: &str) {
    let model = Some(model.to_owned());
    let new = NewAgent { name: AgentName::new(name), model, ..NewAgent::default() };
    world.directory.agents().create(world.anna.id, Actor::Operator, new).await.unwrap();
}

#[tokio::test]
async fn models_in_use_are_compared_with_what_their_providers_list() {
    let allow = |config: &mut gateway::Config| config.egress.allow.push("127.0.0.1".to_owned());
    let world = World::start_with(allow).await.unwrap();
    let model = FakeModel::start().await.unwrap();
    let pricing = json!({"prompt": "0.000002", "completion": "0.00001"});
    model.list([
        json!({"id": "claude-sonnet-5-5", "pricing": pricing}),
        json!({"id": "gpt-5.6-sol", "pricing": pricing}),
    ]);
    provider(&world, "fake", &model, Some("claude-sonnet-5-5")).await;
    provider(&world, "deepseek", &model, None).await;
    agent(&world, "dear", "fake:gpt-5.6-sol").await;
    agent(&world, "gone", "deepseek:deepseek-chat").await;
    agent(&world, "lost", "nowhere:x").await;
    agent(&world, "odd", "fake:mine").await;
    agent(&world, "too", "fake:claude-sonnet-5-5").await;
    let mut models = ModelsClient::new(world.channel().await.unwrap());

    let checked = models.check_models(world.anna.request(CheckModelsRequest {})).await.unwrap();

    let checked = checked.into_inner().models;
    let states: Vec<_> =
        checked.iter().map(|model| (model.model.as_str(), model.state.as_str())).collect();
    assert_eq!(
        states,
        [
            ("deepseek:deepseek-chat", "retired"),
            ("fake:claude-sonnet-5-5", "ok"),
            ("fake:gpt-5.6-sol", "ok"),
            ("fake:mine", "unknown"),
            ("nowhere:x", "no_provider"),
        ]
    );
    let [gone, default, dear, mine, lost] = checked.as_slice() else { panic!("{checked:?}") };
    assert_eq!(gone.successor, "deepseek:deepseek-flash");
    assert_eq!(gone.retired_on, "2026-07-24");
    assert_eq!((default.is_default, default.agents.as_slice()), (true, &["too".to_owned()][..]));
    assert!(default.prices.is_empty() && default.is_known, "{default:?}");
    let prices: Vec<_> =
        dear.prices.iter().map(|price| (price.kind.as_str(), price.listed, price.known)).collect();
    assert_eq!(prices, [("input", 2_000, Some(4_000)), ("output", 10_000, Some(20_000))]);
    assert!(!mine.is_known && lost.agents == ["lost"], "{mine:?} {lost:?}");
    let of_ben = models.check_models(world.ben.request(CheckModelsRequest {})).await.unwrap();
    assert!(of_ben.into_inner().models.is_empty());
}

#[tokio::test]
async fn a_list_that_cannot_be_read_leaves_models_unchecked() {
    let world = World::start().await.unwrap();
    let model = FakeModel::start().await.unwrap();
    // The operator allows no private address.
    provider(&world, "fake", &model, Some("one")).await;
    let mut models = ModelsClient::new(world.channel().await.unwrap());

    let checked = models.check_models(world.anna.request(CheckModelsRequest {})).await.unwrap();

    let checked = checked.into_inner().models;
    assert_eq!((checked.len(), checked[0].state.as_str()), (1, "unchecked"));
    assert!(!checked[0].detail.is_empty() && !checked[0].detail.contains("sk-anna"));
}

#[tokio::test]
async fn the_list_of_models_has_good_defaults_and_those_that_end() {
    let world = World::start().await.unwrap();
    let mut models = ModelsClient::new(world.channel().await.unwrap());

    let all = models.list_models(world.anna.request(ListModelsRequest { own: false })).await;
    let own = models.list_models(world.anna.request(ListModelsRequest { own: true })).await;

    let (all, own) = (all.unwrap().into_inner(), own.unwrap().into_inner());
    let is_known = |model: &String| all.models.iter().any(|known| known.model == *model);
    let openai = all.suggested.iter().find(|model| model.starts_with("openai:")).unwrap();
    assert!(is_known(openai), "{openai}");
    let gone = all.retired.iter().find(|one| one.model == "deepseek:deepseek-chat").unwrap();
    assert!(gone.is_off && is_known(&gone.successor), "{gone:?}");
    assert!(own.models.is_empty() && own.retired.is_empty() && own.suggested.is_empty());
}
