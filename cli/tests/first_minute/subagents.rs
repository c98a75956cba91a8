//! Subagents as people see them.

use holdfast_testkit::{FakeModel, Reply};
use serde_json::Value;

use crate::installation::{Installation, eventually};

const TASK: &str = "count the stars of the northern sky in this very night";

fn subagents(installation: &Installation) -> Vec<Value> {
    installation.json(&["agents", "runs", "list"]).as_array().unwrap().clone()
}

fn state(installation: &Installation, session: &Value) -> String {
    let shown = installation.json(&["sessions", "show", session.as_str().unwrap()]);
    shown["state"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn subagents_are_announced_paused_with_their_requester_and_deleted_if_asked_for()
-> anyhow::Result<()> {
    let model = FakeModel::start().await?;
    model.answer(|request| {
        let asked = request.last_user_text();
        let cleanup = asked.strip_prefix("please count, then ").map(str::to_owned);
        match cleanup.filter(|_| request.tool_results().is_empty()) {
            Some(cleanup) => {
                let task = serde_json::json!({"task": TASK, "cleanup": cleanup});
                Reply::call("a", "sessions_spawn", task.to_string())
            }
            None => Reply::text("noted"),
        }
    });
    let installation = Installation::with_model(&model).await?;
    let announcements = || {
        let requests = model.requests();
        let texts = requests.iter().map(|request| request.last_user_text());
        texts.filter(|text| text.contains("just completed")).collect::<Vec<_>>()
    };

    installation.run(&["chat", "please count, then keep"]).ok();
    eventually("the first announcement", || (!announcements().is_empty()).then_some(()));
    assert!(announcements()[0].contains("[Stats: duration="), "{:?}", announcements());
    installation.run(&["chat", "please count, then keep"]).ok();
    eventually("two ended subagents", || {
        let listed = subagents(&installation);
        (listed.len() == 2 && listed.iter().all(|one| one["status"] == "ok")).then_some(())
    });
    let children = subagents(&installation);
    let label: String = TASK.chars().take(50).chain("...".chars()).collect();
    assert!(children.iter().all(|one| one["label"] == label.as_str()), "{children:?}");

    let (by_hand, with_parent) = (&children[0]["session_id"], &children[1]["session_id"]);
    let idle = state(&installation, with_parent);
    installation.run(&["sessions", "pause", by_hand.as_str().unwrap()]).ok();
    installation.run(&["sessions", "pause", "agent:main:main"]).ok();
    assert_eq!(state(&installation, with_parent), state(&installation, by_hand));
    assert_ne!(state(&installation, with_parent), idle);
    installation.run(&["sessions", "resume", "agent:main:main"]).ok();
    assert_eq!(state(&installation, with_parent), idle);
    assert_ne!(state(&installation, by_hand), idle);

    installation.run(&["chat", "please count, then delete"]).ok();
    eventually("the third announcement", || (announcements().len() >= 3).then_some(()));
    let kept: Vec<&Value> = vec![by_hand, with_parent];
    eventually("the deletion of the third session", || {
        let sessions = installation.json(&["sessions", "list", "--kind", "subagent"]);
        let ids: Vec<Value> =
            sessions.as_array().unwrap().iter().map(|session| session["id"].clone()).collect();
        (ids.len() == 2 && kept.iter().all(|id| ids.contains(*id))).then_some(())
    });
    assert_eq!(model.violations(), Vec::<String>::new());
    Ok(())
}
