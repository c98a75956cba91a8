//! Which key of which provider is used.

use std::{fs, time::Duration};

use holdfast_testkit::FakeModel;

use crate::installation::Installation;

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_holds_at_once_and_a_model_without_a_provider_is_refused() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    installation.run(&["chat", "hello"]).ok();

    installation.run(&["budgets", "set", "--tokens", "1"]).ok();
    let spent = installation.run(&["chat", "hello again"]).exits_with(1);
    let unknown =
        installation.run(&["agents", "update", "main", "--model", "nobody:one"]).exits_with(3);
    let created = installation.run(&["agents", "create", "Bad Name!"]).ok();

    assert!(spent.err.contains("budget"), "{}", spent.err);
    assert_eq!(model.count(), 1);
    assert!(unknown.err.contains("needs the provider `nobody`"), "{}", unknown.err);
    assert!(created.err.contains("the name is `bad-name`"), "{}", created.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_and_the_key_of_another_provider_are_not_used() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let token = installation.root.join("token.txt");
    fs::write(&token, "expired-token")?;
    let secret = format!("@{}", token.display());
    let add = ["credentials", "add", "fake", "old", "--kind", "token", "--secret", &secret];
    installation.run(&[&add[..], &["--expires", "2020-01-01T00:00:00Z"]].concat()).ok();
    installation.run(&["credentials", "order", "fake", "old", "default", "--strict"]).ok();
    let empty = ["credentials", "add", "fake", "empty", "--secret", "@/dev/null"];
    let refused = installation.run(&empty);
    assert_ne!(refused.code, Some(0), "{refused:?}");

    installation.run(&["chat", "hello"]).ok();
    let key = |model: &FakeModel| model.requests().last().unwrap().key.clone();
    assert_eq!(key(&model).as_deref(), Some("k"));
    let credentials = installation.json(&["credentials", "list"]);
    let old = credentials.as_array().unwrap().iter().find(|key| key["name"] == "old").unwrap();
    assert_eq!(old["state"], "expired", "{old}");

    // The name of the first provider is the beginning of the second one's.
    let second = ["providers", "put", "fake2", "--base-url", &model.url(), "--api-key", "k2"];
    installation.run(&[&second[..], &["--model", "fake2:one"]].concat()).ok();
    // A runner caches an agent for a second.
    std::thread::sleep(Duration::from_millis(1_100));
    installation.run(&["chat", "hello"]).ok();
    assert_eq!(key(&model).as_deref(), Some("k2"));
    installation.run(&["agents", "update", "main", "--model", "fake:one"]).ok();
    std::thread::sleep(Duration::from_millis(1_100));
    installation.run(&["chat", "hello"]).ok();
    assert_eq!(key(&model).as_deref(), Some("k"));
    Ok(())
}
