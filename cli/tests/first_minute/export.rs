//! A tenant as resources: printed, and applied from a file.

use std::fs;

use holdfast_testkit::FakeModel;
use serde_json::Value;

use crate::installation::{CommandOutput, Installation};

const SECRET: &str = "a secret of the webhook that is long enough";

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_exported_without_its_secrets() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let changes = ["--description", "helps", "--thinking", "high"];
    installation.run(&[&["agents", "update", "main"][..], &changes].concat()).ok();
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
    assert_eq!(of("Agent")["spec"]["thinking"], "high");
    assert_eq!(of("ModelProvider")["spec"]["defaultModel"], "fake:one");
    assert_eq!(of("Channel")["spec"]["secrets"]["secret"]["key"], "secret");
    assert!(exported.starts_with("# Needs: kubectl create secret generic "), "{exported}");
    assert!(!exported.contains(SECRET), "{exported}");
    let bare = installation.run(&["export", "dev"]).ok().out;
    assert!(!bare.contains("weight:"), "{bare}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_makes_the_tenant_and_changes_nothing_the_second_time() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let file = installation.dir.join("family.yaml");
    fs::write(
        &file,
        r#"
apiVersion: v1
kind: Secret
metadata: {name: shop}
stringData: {secret: "${SHOP_SECRET}", bot: xoxb-1, app: xapp-1}
---
apiVersion: holdfast.dev/v1alpha1
kind: Agent
metadata: {name: coach}
spec:
  instructions: Ask before you give a solution.
  model: "fake:one"
  default: true
  thinking: low
  behaviors: {default: plan}
  behaviorDocuments:
    plan: |
      process_rule: Plan.
---
apiVersion: holdfast.dev/v1alpha1
kind: Channel
metadata: {name: shop}
spec: {type: webhook, settings: {allow: [anna]}, secret: {name: shop, key: secret}}
---
apiVersion: holdfast.dev/v1alpha1
kind: Channel
metadata: {name: team}
spec:
  type: slack
  settings: {allow: [U012AB3CD]}
  secrets:
    bot_token: {name: shop, key: bot}
    app_token: {name: shop, key: app}
---
apiVersion: holdfast.dev/v1alpha1
kind: Routing
metadata: {name: routing}
spec:
  bindings: [{channel: webhook, account: shop, agent: main}]
  rules: [{pattern: homework, agent: coach}]
  identities: [{channel: webhook, peer: anna, canonical: anna}]
"#,
    )?;
    let path = file.to_str().unwrap();
    let results = |applied: &Value| -> Vec<String> {
        let rows = applied.as_array().unwrap().iter();
        rows.map(|row| row["result"].as_str().unwrap().to_owned()).collect()
    };

    let unset = installation.run(&["apply", "--file", path]).exits_with(2);
    assert!(unset.err.contains("the variable `SHOP_SECRET` is not set"), "{}", unset.err);
    let with_secret = |line: &[&str]| {
        let mut command = installation.command(&[line, &["--output", "json"]].concat());
        let output = command.env("SHOP_SECRET", SECRET).output().unwrap();
        CommandOutput::new(output, line).ok().json()
    };
    let planned = with_secret(&["apply", "--file", path, "--dry-run"]);
    assert_eq!(results(&planned)[..2], ["to be created", "to be created"]);
    let agents = installation.json(&["agents", "list"]);
    assert!(agents.as_array().unwrap().iter().all(|agent| agent["name"] != "coach"), "{agents}");

    let applied = with_secret(&["apply", "--file", path]);
    assert_eq!(
        results(&applied),
        ["created", "created", "created", "changed", "changed", "changed"]
    );
    let again = with_secret(&["apply", "--file", path]);
    assert_eq!(results(&again), ["unchanged"; 6]);

    let channels = installation.json(&["channels", "list", "--channel", "slack"]);
    assert_eq!(channels[0]["settings"]["allow"][0], "U012AB3CD");
    let own = installation.json(&["behaviors", "show", "plan", "--agent", "coach"]);
    assert_eq!((&own["layer"], &own["source"]), (&"agent".into(), &"process_rule: Plan.\n".into()));
    let exported = installation.run(&["export", "dev"]).ok().out;
    assert!(exported.contains("behaviorDocuments:"), "{exported}");
    let text = fs::read_to_string(&file)?;
    let broken = installation.dir.join("broken.yaml");
    for (from, to, told) in [
        ("    app_token:", "    app_tokem:", "`secrets.app_tokem` is no secret of a slack account"),
        ("type: slack", "type: fax", "`fax` is not a type of channel: use one of telegram, "),
        ("    app_token: {name: shop, key: app}\n", "", "mode `socket` needs `secrets.app_token`"),
    ] {
        fs::write(&broken, text.replace(from, to).replace("${SHOP_SECRET}", SECRET))?;
        let refused = installation.run(&["apply", "--file", broken.to_str().unwrap()]);
        assert!(refused.err.contains(told), "{}", refused.err);
    }

    let agents = installation.json(&["agents", "list"]);
    let coach = agents.as_array().unwrap().iter().find(|agent| agent["name"] == "coach").unwrap();
    assert_eq!((&coach["is_default"], &coach["thinking"]), (&true.into(), &"low".into()));
    let routed = installation.json(&[
        "routing",
        "explain",
        "--channel",
        "webhook",
        "--account",
        "shop",
        "--user",
        "1",
    ]);
    assert_eq!(
        (&routed["agent"], &routed["matched_by"]),
        (&"main".into(), &"binding.account".into())
    );
    let routed = installation.json(&[
        "routing",
        "explain",
        "--channel",
        "x",
        "--user",
        "1",
        "--text",
        "homework",
    ]);
    assert_eq!(routed["agent"], "coach");
    Ok(())
}
