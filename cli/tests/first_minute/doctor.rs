//! `holdfast doctor` on installations that work, and on those that do not.

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
    let text = installation.run(&["doctor", "--gateway", "http://127.0.0.1:1"]).exits_with(1);
    assert!(text.out.contains("cannot reach the gateway"), "{text:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_security_audit_reports_what_exposes_a_tenant() -> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    let mut installation = Installation::with_model(&model).await?;
    let audit =
        |installation: &Installation| installation.run(&["security", "audit", "--output", "json"]);
    let about = |findings: &Value, severity: &str, about: &str| {
        findings.as_array().unwrap().iter().any(|one| {
            one["severity"] == severity && one["about"].as_str().unwrap().contains(about)
        })
    };
    let before = audit(&installation).json();
    assert!(!about(&before, "warning", "agent main"), "{before}");
    assert!(!about(&before, "critical", ""), "{before}");

    let settings = r#"{"allow": ["*"], "url": "https://example.com/replies"}"#;
    let secret = "a secret of the webhook that is long enough";
    let line = ["channels", "add", "webhook", "--settings", settings, "--secret", secret];
    installation.run(&line).ok();
    installation.run(&["providers", "put", "mine", "--base-url", &model.url()]).ok();
    let small = ["agents", "update", "main", "--dm-scope", "main", "--model", "mine:tiny-3b"];
    installation.run(&small).ok();
    installation.wait_for_tools();
    let found = audit(&installation).json();
    for (severity, text) in [("warning", "webhook default"), ("warning", "agent main")] {
        assert!(about(&found, severity, text), "{text}: {found}");
    }
    let text = found.to_string();
    assert!(text.contains("are one conversation") && text.contains("mine:tiny-3b"), "{text}");

    installation.vars.push(("HOLDFAST_GATEWAY__HTTP", "192.0.2.1:18789".to_owned()));
    let open = audit(&installation).exits_with(1);
    assert!(about(&open.json(), "critical", "gateway.http"), "{}", open.out);
    Ok(())
}
