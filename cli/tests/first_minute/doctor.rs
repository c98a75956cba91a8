//! `holdfast doctor` on installations that work, and on those that do not.

use std::process::Stdio;

use holdfast_testkit::{FakeModel, Reply};
use serde_json::Value;

use crate::installation::{Installation, eventually};

/// State and text of the finding about this.
fn finding<'f>(findings: &'f Value, about: &str) -> (&'f str, &'f str) {
    let found = findings.as_array().unwrap().iter().find(|found| found["about"] == about);
    let found = found.unwrap_or_else(|| panic!("nothing about {about}: {findings}"));
    (found["state"].as_str().unwrap(), found["found"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_what_works_and_what_does_not() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;

    let findings = installation.json(&["doctor", "--ask"]);
    for about in ["gateway", "runners", "credential", "models", "channels", "jobs", "an answer"] {
        let (state, found) = finding(&findings, about);
        assert_eq!(state, "ok", "{about}: {found}");
    }
    assert_eq!(model.count(), 1);
    let sessions = installation.json(&["sessions", "list"]);
    assert_eq!(sessions.as_array().map(Vec::len), Some(0), "{sessions}");

    let called = installation.json(&["doctor", "--models"]);
    let (state, found) = finding(&called, "model");
    assert!(state == "ok" && found.starts_with("fake:one: answers"), "{found}");
    assert_eq!(model.count(), 2);

    // A job that does not know where its answer goes.
    let job = ["cron", "add", "news", "--at", "in 1 second", "-m", "look", "--channel", "slack"];
    let id = installation.json(&job)["id"].as_str().unwrap().to_owned();
    eventually("the job fails", || {
        let findings = installation.json(&["doctor"]);
        let (state, found) = finding(&findings, "jobs");
        (state == "warning" && found.contains(&format!("{id} news (no_account)"))).then_some(())
    });

    // A model that fails, a tenant without a provider, a key without the right, no gateway.
    model.answer(|_| Reply::status(401));
    let ill = installation.run(&["doctor", "--ask", "--output", "json"]).exits_with(1);
    assert_eq!(finding(&ill.json(), "an answer").0, "failure");
    let tenant = installation.json(&["tenants", "create", "new"]);
    let key = tenant["secret"].as_str().unwrap();
    let empty = installation.run(&["doctor", "--key", key, "--output", "json"]).exits_with(1);
    assert_eq!(finding(&empty.json(), "models"), ("failure", "there is no provider"));
    let chat = installation.json(&["keys", "create", "reader", "--scope", "read"]);
    let key = chat["secret"].as_str().unwrap();
    let reader = installation.run(&["doctor", "--key", key, "--output", "json"]).ok();
    assert_eq!(finding(&reader.json(), "models").0, "unknown");
    let nowhere = ["doctor", "--gateway", "http://127.0.0.1:1", "--key", key];
    let text = installation.run(&nowhere).exits_with(1);
    assert!(text.out.contains("cannot reach the gateway"), "{text:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_security_check_reports_what_is_open_with_the_command_that_mends_it()
-> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let installation = Installation::with_model(&model).await?;
    let check =
        |installation: &Installation| installation.run(&["security", "check", "--output", "json"]);
    let has = |findings: &Value, id: &str, about: &str| {
        findings
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["id"] == id && one["about"].as_str().unwrap().contains(about))
    };
    let before = check(&installation).ok().json();
    assert!(!has(&before, "direct-messages-shared", ""), "{before}");
    assert!(has(&before, "key-never-expires", "API key"), "{before}");
    // Of the installation: these tests set it so.
    assert!(has(&before, "secret-in-environment", "database.url"), "{before}");

    let settings = r#"{"allow": ["*"], "url": "https://example.com/replies"}"#;
    let secret = "a secret of the webhook that is long enough";
    let line = ["channels", "add", "webhook", "--settings", settings, "--secret", secret];
    installation.run(&line).ok();
    installation.run(&["providers", "put", "mine", "--base-url", &model.url()]).ok();
    let small = ["agents", "update", "main", "--dm-scope", "main", "--model", "mine:tiny-3b"];
    installation.run(&small).ok();
    installation.run(&["policy", "put", r#"{"sandbox_mode": "off"}"#]).ok();
    installation.wait_for_tools();
    let open = check(&installation).exits_with(1);
    let found = open.json();
    for (id, about) in [
        ("channel-open", "webhook default"),
        ("direct-messages-shared", "agent main"),
        ("agent-small-model-reads-web", "agent main"),
        ("sandbox-off", "policy"),
    ] {
        assert!(has(&found, id, about), "{id}: {found}");
    }
    assert_eq!(found[0]["severity"], "critical", "{found}");

    let text = installation.run(&["security", "check"]).exits_with(1).out;
    let mend = "holdfast agents update main --dm-scope per-channel-peer";
    assert!(text.contains("agent main [direct-messages-shared]\n"), "{text}");
    assert!(text.contains(&format!("\n  {mend}\n")), "{text}");
    let short = installation.run(&["security", "check", "--json"]).exits_with(1);
    assert_eq!(short.json(), found);
    let reader = installation.json(&["keys", "create", "reader", "--scope", "read"]);
    let key = reader["secret"].as_str().unwrap();
    installation.run(&["security", "check", "--key", key]).exits_with(4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_and_status_say_why_messages_wait_and_what_to_do() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    model.answer(|_| Reply::text("done"));
    let installation = Installation::with_model(&model).await?;
    installation.run(&["chat", "hello", "--session", "held"]).ok();
    let sessions = installation.json(&["sessions", "list"]);
    let key = sessions[0]["key"].as_str().unwrap();
    installation.run(&["sessions", "pause", key]).ok();
    installation.run(&["agents", "create", "coach"]).ok();
    installation.run(&["agents", "disable", "coach"]).ok();

    let waiting = [&["--session", "held"][..], &["--agent", "coach"][..]].map(|more| {
        let line = [&["chat", "are you there?"][..], more].concat();
        installation.command(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    let text = eventually("two reasons", || {
        let told = installation.run(&["doctor"]).ok().out;
        let is_whole = told.contains("is paused") && told.contains("coach is disabled");
        is_whole.then(|| told + &installation.run(&["doctor"]).err)
    });
    let status = installation.run(&["status"]).ok().out;
    for mut chat in waiting {
        chat.kill()?;
        chat.wait()?;
    }

    assert!(text.contains(&format!("`holdfast sessions resume {key}`")), "{text}");
    assert!(text.contains("`holdfast agents enable coach`"), "{text}");
    assert!(!text.contains("start more runners"), "{text}");
    assert!(status.contains(&format!("{key} is paused")), "{status}");
    installation.run(&["sessions", "resume", key]).ok();
    installation.run(&["agents", "enable", "coach"]).ok();
    eventually("the answers", || {
        let status = installation.json(&["status"]);
        (status["waiting_messages"] == 0 && status["waits"] == "").then_some(())
    });
    Ok(())
}
