//! `holdfast setup`: with options, with questions, and what it leaves after a failure.

use holdfast_testkit::{FakeModel, Reply};
use serde_json::json;

use crate::{installation::Installation, terminal::Terminal};

async fn installed() -> anyhow::Result<(Installation, FakeModel)> {
    let (installation, model) = (Installation::new().await?, FakeModel::start().await?);
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    Ok((installation, model))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_set_up_with_options_after_a_real_call() -> anyhow::Result<()> {
    let (installation, model) = installed().await?;
    let url = model.url();
    let line = ["setup", "--provider", "openrouter", "--base-url", &url, "--model", "openai/gpt-5"];
    let with_key = |key: &'static str| [&line[..], &["--api-key", key]].concat();

    model.answer(|_| Reply::status(401));
    let refused = installation.run(&with_key("wrong")).exits_with(1);
    assert!(refused.err.contains("refuses the key"), "{}", refused.err);
    assert!(refused.err.contains("nothing was changed"), "{}", refused.err);
    let providers = installation.json(&["providers", "list"]);
    assert!(!providers.to_string().contains("openrouter"), "{providers}");

    model.answer(|_| Reply::text("yes"));
    let key = installation.root.join("key.txt");
    std::fs::write(&key, "sk-right\n")?;
    let file = format!("@{}", key.display());
    let done = installation.json(&[&line[..], &["--api-key", &file]].concat());
    assert_eq!(done["model"], "openrouter:openai/gpt-5");
    let last = model.requests().last().unwrap().clone();
    assert_eq!(last.key.as_deref(), Some("sk-right"));
    assert_eq!(last.body["model"], "openai/gpt-5");
    installation.run(&["chat", "hello"]).ok();
    assert_eq!(model.requests().last().unwrap().last_user_text(), "hello");
    let sessions = installation.json(&["sessions", "list"]);
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");

    // A new key that fails leaves the default model, and says which key is stored.
    model.answer(|_| Reply::status(401));
    let refused = installation.run(&with_key("worse")).exits_with(1);
    assert!(refused.err.contains("has the new key"), "{}", refused.err);
    let providers = installation.json(&["providers", "list"]);
    assert!(providers.to_string().contains("openrouter:openai/gpt-5"), "{providers}");

    let missing = installation.run(&["setup", "--provider", "anthropic"]).exits_with(2);
    assert!(missing.err.contains("ANTHROPIC_API_KEY"), "{}", missing.err);
    let unnamed = installation.run(&["setup"]).exits_with(2);
    assert!(unnamed.err.contains("openai, anthropic, gemini"), "{}", unnamed.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bots_whose_tokens_are_in_the_environment_are_set_up_once() -> anyhow::Result<()> {
    let mut installation = Installation::new().await?;
    let nowhere = "http://127.0.0.1:1".to_owned();
    installation.vars.push(("HOLDFAST_BRIDGE__TELEGRAM__API_BASE", nowhere));
    installation.vars.push(("TELEGRAM_BOT_TOKEN", "no token".to_owned()));
    let up = ["up", "--detach", "--port-base", "0"];
    let refused = installation.run(&up).exits_with(1);
    assert!(refused.err.contains("TELEGRAM_BOT_TOKEN"), "{}", refused.err);
    assert!(!refused.err.contains("no token"), "{}", refused.err);

    installation.vars.pop();
    installation.vars.push(("TELEGRAM_BOT_TOKEN", "123456:ABC-DEF".to_owned()));
    installation.vars.push(("TELEGRAM_ALLOW", "@anna, 42".to_owned()));
    installation.run(&up).ok();
    let made = installation.json(&["channels", "list"]);
    assert_eq!(made[0]["channel"], "telegram", "{made}");
    assert_eq!(made[0]["settings"]["allow"], serde_json::json!(["@anna", "42"]), "{made}");

    let id = made[0]["id"].as_str().unwrap();
    installation.run(&["channels", "update", id, "--enabled", "false"]).ok();
    installation.run(&["down"]).ok();
    installation.vars.retain(|(name, _)| *name != "TELEGRAM_ALLOW");
    installation.run(&up).ok();
    let kept = installation.json(&["channels", "list"]);
    assert_eq!(kept.as_array().map(Vec::len), Some(1), "{kept}");
    assert_eq!((&kept[0]["id"], &kept[0]["enabled"]), (&made[0]["id"], &false.into()), "{kept}");
    assert_eq!(kept[0]["settings"], made[0]["settings"], "{kept}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_asked_and_the_key_is_not_shown() -> anyhow::Result<()> {
    let (installation, model) = installed().await?;
    model.answer(|_| Reply::text("yes"));

    let mut terminal = Terminal::start(&installation, &["setup", "--base-url", &model.url()]);
    terminal.wait_for("Which provider of models?");
    terminal.wait_for("Provider [1]:");
    terminal.type_text("4\r");
    terminal.wait_for("API key of openrouter");
    // A server of one's own may need no key, but has one here.
    terminal.type_text("sk-geheim\r");
    terminal.wait_for("Model [openai/gpt-6.1-terra]:");
    terminal.type_text("small\r");
    let shown = terminal.wait_for("openrouter:small is the default model");

    assert!(!shown.contains("geheim"), "{shown}");
    assert_eq!(model.requests().last().unwrap().key.as_deref(), Some("sk-geheim"));
    assert_eq!(terminal.end(), Some(0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_server_on_this_machine_is_set_up_by_its_name_alone() -> anyhow::Result<()> {
    let mut installation = Installation::new().await?;
    installation.vars.retain(|(name, _)| *name != "HOLDFAST_EGRESS__ALLOW");
    let model = FakeModel::start().await?;
    let owned_by = |owner: &str| json!({ "id": "qwen3-8b", "owned_by": owner });
    model.answer(|_| Reply::text("yes"));
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    let (url, line) = (model.url(), ["setup", "--provider", "lmstudio", "--base-url"]);
    let line = [&line[..], &[&url]].concat();

    model.list([owned_by("acme")]);
    let other = installation.run(&line).exits_with(2);
    assert!(other.err.contains("--model"), "{}", other.err);

    model.list([owned_by("organization_owner")]);
    let done = installation.json(&line);
    assert_eq!((&done["model"], &done["checked"]), (&"lmstudio:qwen3-8b".into(), &true.into()));

    let webhook = ["events", "webhooks", "add", "w", "http://127.0.0.1:9/x"];
    let refused = installation.run(&webhook).err;
    assert!(refused.contains(r#"HOLDFAST_EGRESS__ALLOW='["127.0.0.1:9"]'"#), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_model_server_on_the_machine_is_allowed_where_tenants_are_hosted() -> anyhow::Result<()>
{
    let mut installation = Installation::new().await?;
    installation.vars.retain(|(name, _)| *name != "HOLDFAST_EGRESS__ALLOW");
    installation.vars.push(("HOLDFAST_RUNNER__SANDBOX__HOSTED", "true".to_owned()));
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();

    let line = ["setup", "--provider", "ollama", "--model", "qwen3", "--base-url"];
    let refused = installation.run(&[&line[..], &["http://127.0.0.1:11434"]].concat());

    assert_ne!(refused.code, Some(0));
    let setting = r#"HOLDFAST_EGRESS__ALLOW='["127.0.0.1:11434"]'"#;
    assert!(refused.err.contains(setting), "{}", refused.err);
    Ok(())
}
