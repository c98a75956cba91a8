//! A tenant's catalogue of models applies wherever a model is named.

use holdfast_directory::Actor;
use holdfast_llm::{Catalogue, ModelCard};

use crate::world::World;

#[tokio::test]
async fn an_alias_is_as_good_as_the_model_it_stands_for() -> anyhow::Result<()> {
    let world = World::start().await?;
    let by = Actor::Operator;
    world.directory.models().put_alias(world.tenant, by, "quick", "fake:small").await?;
    world.change_agent(|agent| agent.model = Some("quick".into())).await?;
    let _runner = world.runner().await?;

    world.ask("a", "hello").await?;
    let shown = world.ask("a", "/model").await?;
    world.directory.models().put_alias(world.tenant, by, "clever", "fake:large").await?;
    let taken = world.ask("a", "/model clever").await?;
    world.ask("a", "hello").await?;
    let wrong = world.ask("a", "/model nonsense").await?;

    let models: Vec<_> = world.model.requests().iter().map(|r| r.body["model"].clone()).collect();
    assert_eq!(models, ["small", "large"]);
    assert_eq!(shown, "Model: fake:small");
    assert!(taken.starts_with("Model: fake:large"), "{taken}");
    assert!(wrong.contains("or an alias"), "{wrong}");
    let refused = world.change_agent(|agent| agent.model = Some("nonsense".into())).await;
    assert!(refused.unwrap_err().to_string().contains("or an alias"));
    Ok(())
}

#[tokio::test]
async fn a_model_that_cannot_be_told_how_much_to_think_says_so() -> anyhow::Result<()> {
    let world = World::start().await?;
    let model = "fake:one".parse()?;
    let by = Actor::Operator;
    world.directory.models().put(world.tenant, by, &model, &ModelCard::default()).await?;
    let _runner = world.runner().await?;

    let refused = world.ask("a", "/think high").await?;
    let off = world.ask("a", "/think off").await?;

    assert!(refused.starts_with("fake:one cannot be told"), "{refused}");
    assert_eq!(off, "Thinking: off");
    Ok(())
}

#[tokio::test]
async fn a_small_window_is_kept_to_as_the_tenant_says_it_is() -> anyhow::Result<()> {
    let world = World::start().await?;
    let model = "fake:one".parse()?;
    let card = ModelCard { context: 6_000, max_output: 500, ..ModelCard::default() };
    world.directory.models().put(world.tenant, Actor::Operator, &model, &card).await?;
    let _runner = world.runner().await?;

    for n in 0..6 {
        world.ask("a", &format!("{n} {}", "word ".repeat(700))).await?;
    }

    let notes = "select count(*) from session.entries where body->>'note' = 'summary'";
    assert!(world.number(notes).await? > 0, "nothing was summarised");
    Ok(())
}

#[tokio::test]
async fn what_one_tenant_knows_another_does_not() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let by = Actor::Operator;
    world.directory.models().put_alias(world.tenant, by, "quick", "fake:small").await?;
    let card = ModelCard { context: 5_000, max_output: 100, ..ModelCard::default() };
    world.directory.models().put(world.tenant, by, &"fake:one".parse()?, &card).await?;

    let own = world.directory.models().known(world.tenant).await?;
    let theirs = world.directory.models().known(other.id).await?;

    assert!(own.iter().any(|known| known.is_own && known.aliases.contains(&"quick".to_owned())));
    assert_eq!(theirs.len(), Catalogue::built_in().models().count().max(theirs.len()));
    assert!(theirs.iter().all(|known| !known.is_own && known.model.provider() != "fake"));
    for done in [
        world.directory.models().delete_alias(other.id, by, "quick").await,
        world.directory.models().delete(other.id, by, "fake:one").await,
    ] {
        assert!(done.unwrap_err().to_string().starts_with("there is no "));
    }
    Ok(())
}
