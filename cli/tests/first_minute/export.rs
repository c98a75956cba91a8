//! A tenant as Kubernetes resources.

use std::fs;

use holdfast_testkit::FakeModel;
use serde_json::Value;

use crate::installation::Installation;

const SECRET: &str = "a secret of the webhook that is long enough";

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_exported_without_its_secrets() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    installation.run(&["agents", "update", "main", "--description", "helps"]).ok();
    installation.run(&["channels", "add", "webhook", "--secret", SECRET]).ok();
    let key = fs::read_to_string(installation.dir.join("dev.key"))?;

    let line = ["export", "dev", "--platform-key", key.trim()];
    let exported = installation.run(&line).ok().out;

    let documents = exported.split("---\n").skip(1);
    let documents: Vec<Value> = documents.map(serde_saphyr::from_str).collect::<Result<_, _>>()?;
    let of = |kind: &str| documents.iter().find(|one| one["kind"] == kind).unwrap();
    assert_eq!(of("Tenant")["spec"]["name"], "dev");
    assert_eq!(of("Tenant")["spec"]["weight"], 1);
    assert!(of("Tenant")["spec"].get("rate").is_none(), "the default is no limit of its own");
    assert_eq!(of("Agent")["spec"]["description"], "helps");
    assert_eq!(of("ModelProvider")["spec"]["defaultModel"], "fake:one");
    assert_eq!(of("Channel")["spec"]["secret"]["key"], "secret");
    assert!(exported.starts_with("# Needs: kubectl create secret generic "), "{exported}");
    assert!(!exported.contains(SECRET), "{exported}");
    let bare = installation.run(&["export", "dev"]).ok().out;
    assert!(!bare.contains("weight:"), "{bare}");
    Ok(())
}
