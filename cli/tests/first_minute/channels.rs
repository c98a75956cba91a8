//! Texts that are sent to an address on a channel, and tenants whose pool has no runner.

use std::{fs, time::Duration};

use holdfast_testkit::{FakeModel, FakeReceiver};
use serde_json::json;

use crate::installation::{Installation, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_sent_by_a_command_arrives_once() -> anyhow::Result<()> {
    let (model, receiver) = (FakeModel::start().await?, FakeReceiver::start().await?);
    let installation = Installation::with_model(&model).await?;
    let settings = json!({"allow": ["*"], "url": receiver.url()}).to_string();
    let secret = "a secret of the webhook that is long enough";
    let line = ["channels", "add", "webhook", "--settings", &settings, "--secret", secret];
    installation.run(&line).ok();

    let line =
        ["channels", "send", "--channel", "webhook", "--to", "anna", "--text", "It is over."];
    let line = [&line[..], &["--request-id", "r1"]].concat();
    let sent = installation.json(&line);
    let again = installation.json(&line);

    assert_eq!((&sent["duplicate"], &again["duplicate"]), (&false.into(), &true.into()));
    assert_eq!(sent["delivery"], again["delivery"]);
    let is_sent = || {
        let listed = installation.json(&["deliveries", "list", "--state", "sent"]);
        (listed[0]["id"] == sent["delivery"]).then_some(())
    };
    eventually("the text is sent", is_sent);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let posts = receiver.unique();
    assert_eq!(posts.len(), 1);
    assert!(String::from_utf8_lossy(&posts[0].body).contains("It is over."));
    let unknown = ["channels", "send", "--channel", "webhook", "--account", "x", "--to", "anna"];
    let refused = installation.run(&[&unknown[..], &["--text", "hi"]].concat());
    assert!(refused.err.contains("`webhook/x`"), "{}", refused.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_pool_has_no_runner_is_told_of() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let key = fs::read_to_string(installation.dir.join("dev.key"))?;
    let platform = ["--key", key.trim()];

    let update = ["tenants", "update", "dev", "--pool", "acme"];
    let updated = installation.run(&[&update[..], &platform].concat()).ok();
    assert!(updated.err.contains("no runner of the pool `acme` is alive"), "{}", updated.err);
    let doctor = installation.run(&["doctor"]);
    assert_ne!(doctor.code, Some(0));
    assert!(
        doctor.err.contains("start an agent-runner with `runner.pool = \"acme\"`"),
        "{}",
        doctor.err
    );

    let bad = ["tenants", "update", "dev", "--pool", "Acme Pool"];
    let bad = installation.run(&[&bad[..], &platform].concat());
    assert!(bad.err.contains("1 to 40 characters"), "{}", bad.err);
    let back = ["tenants", "update", "dev", "--no-pool"];
    let back = installation.run(&[&back[..], &platform].concat()).ok();
    assert!(back.err.is_empty(), "{}", back.err);
    installation.run(&["doctor"]).ok();
    Ok(())
}
