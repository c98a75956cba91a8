//! `holdfast doctor` on installations that work, and on those that do not.

use holdfast_testkit::{FakeModel, Reply};
use serde_json::Value;

use crate::installation::Installation;

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
    for about in ["gateway", "runners", "credential", "models", "channels", "an answer"] {
        let (state, found) = finding(&findings, about);
        assert_eq!(state, "ok", "{about}: {found}");
    }
    assert_eq!(model.count(), 1);
    let sessions = installation.json(&["sessions", "list"]);
    assert_eq!(sessions.as_array().map(Vec::len), Some(0), "{sessions}");

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
