//! Sessions that wait for a change of their agent's files.

use std::time::Duration;

use holdfast_testkit::{Reply, model::Request};
use holdfast_workspace::{Base, ChangeAuthor, Edit};
use serde_json::json;

use crate::{
    behaviors::script::{input, result},
    world::World,
};

impl World {
    async fn put_by_hand(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let content = text.as_bytes().to_vec();
        let edit = Edit::Put { path: path.parse()?, content, base: Base::Any };
        let by = ChangeAuthor::new("anna", "by hand");
        self.workspaces.commit(self.tenant, self.agent.id, &by, vec![edit]).await?;
        Ok(())
    }
}

/// Writes a file of its own, and waits for a change of the plan.
fn watch(asked: &Request) -> Reply {
    let is_told = input(asked).contains("[event file_changed]");
    let outputs = asked.messages().iter().filter(|message| message["role"] == "tool").count();
    match (is_told, outputs) {
        (false, 0) => {
            let own = json!({"path": "own-plan.md", "content": "mine"}).to_string();
            Reply::call("w", "write", own)
        }
        _ => result(&json!({
            "reply": input(asked),
            "next_behavior": "WAIT_FOR_EVENT",
            "wait_details": {"filter": {"event": "file_changed", "contains": "Plan.md"}},
        })),
    }
}

#[tokio::test]
async fn a_session_that_waits_is_woken_by_the_files_that_it_sees_and_no_others()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    world.model.answer(watch);
    let _runner = world.runner().await?;
    let woken = async || {
        world.number("select count(*) from session.inbox where source = 'file_changed'").await
    };

    let sent = world.say("s", "watch the plan").await?;
    world.text(&sent).await?;
    // Its own change, another file, and a file of the owner.
    world.put_by_hand("people/api=s/other.md", "x").await?;
    world.put_by_hand("plan.md", "secret").await?;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(woken().await?, 0);

    world.put_by_hand("people/api=s/garden/plan.md", "dig").await?;
    world.until("the session is woken", async || woken().await.is_ok_and(|n| n == 1)).await?;
    world.until("it has been told", async || world.model.count() == 3).await?;
    let told = input(&world.model.requests()[2]);
    assert!(told.contains("Files were changed:\ngarden/plan.md"), "{told}");
    assert!(!told.contains("other.md") && !told.contains("people/"), "{told}");

    // It waits again, and is not told of the same change twice.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!((woken().await?, world.model.count()), (1, 3));
    world.put_by_hand("people/api=s/garden/plan.md", "sow").await?;
    world.until("it is woken again", async || woken().await.is_ok_and(|n| n == 2)).await?;
    Ok(())
}
