//! An approved script runs unchanged: a script that was modified since needs a new approval.

use std::time::Duration;

use holdfast_bus::RunnerReport;
use holdfast_directory::Actor;
use holdfast_sandbox::BackendChoice;
use holdfast_session::{Acceptance, Approval, ApprovalFilter, NewMessage};
use holdfast_testkit::Reply;
use holdfast_types::{ApprovalDecision, ApprovalState, Entry, SessionKey};
use holdfast_workspace::{Base, ChangeAuthor, Edit};
use serde_json::json;

use crate::world::World;

impl World {
    /// The agent's script says this from now on.
    async fn script(&self, text: &str) -> anyhow::Result<()> {
        let (path, content) = ("run.sh".parse()?, text.as_bytes().to_vec());
        let edit = Edit::Put { path, content, base: Base::Any };
        let by = ChangeAuthor::new("ada", "wrote it");
        self.workspaces.commit(self.tenant, self.agent.id, &by, vec![edit]).await?;
        Ok(())
    }

    async fn go(&self) -> anyhow::Result<Acceptance> {
        self.model.queue([
            Reply::call("a", "exec", json!({"command": "sh run.sh"}).to_string()),
            Reply::text("done"),
        ]);
        let key = SessionKey::main(&self.agent.name);
        self.send(NewMessage { key, ..self.message("s", "go") }).await
    }

    /// The pending approval.
    async fn asked(&self) -> anyhow::Result<Approval> {
        let all = ApprovalFilter {
            state: Some(ApprovalState::Pending),
            session: None,
            person: None,
            limit: 50,
            after: None,
        };
        let is_there = async || {
            self.sessions
                .approvals()
                .list(self.tenant, all)
                .await
                .is_ok_and(|found| found.len() == 1)
        };
        self.until("somebody is asked", is_there).await?;
        let found = self.sessions.approvals().list(self.tenant, all).await?.pop();
        found.ok_or_else(|| anyhow::anyhow!("nobody is asked"))
    }

    async fn allow(&self, asked: &Approval, verdict: ApprovalDecision) -> anyhow::Result<()> {
        let by = "key_test";
        let told = self
            .sessions
            .approvals()
            .resolve(self.tenant, asked.id, holdfast_session::NewDecision::new(verdict, by))
            .await?;
        if told.wake {
            self.bus.wake_run(0);
        }
        Ok(())
    }

    async fn told(&self, sent: &Acceptance) -> anyhow::Result<String> {
        self.text(sent).await?;
        let journal = self.journal(sent.session).await?.into_iter().rev();
        let told = journal.into_iter().find_map(|entry| match entry {
            Entry::Returned { output, .. } => Some(output),
            _ => None,
        });
        told.ok_or_else(|| anyhow::anyhow!("nothing was told"))
    }
}

#[tokio::test]
async fn a_script_that_was_changed_since_is_not_run_and_always_is_for_the_one_that_was_seen()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let document = json!({"exec": {"security": "full", "ask": "always"}});
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &document).await?;
    let mut config = world.config();
    config.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let _runner = world.runner_with(config, |app| app).await?;
    world.script("echo one").await?;

    let sent = world.go().await?;
    let asked = world.asked().await?;
    let shown = "command: sh run.sh\n";
    assert!(asked.subject.contains(shown), "{}", asked.subject);
    assert!(asked.subject.ends_with("file: run.sh\ncontent: echo one"), "{}", asked.subject);
    assert_eq!(asked.pattern, None);
    world.script("echo evil").await?;
    world.allow(&asked, ApprovalDecision::Once).await?;
    let told = world.told(&sent).await?;
    assert!(told.starts_with("what this call would do has changed"), "{told}");

    let sent = world.go().await?;
    world.allow(&world.asked().await?, ApprovalDecision::Always).await?;
    assert!(world.told(&sent).await?.contains("evil"));
    let again = world.go().await?;
    assert!(world.told(&again).await?.contains("evil"));

    world.script("echo two").await?;
    let sent = world.go().await?;
    world.allow(&world.asked().await?, ApprovalDecision::Once).await?;
    assert!(world.told(&sent).await?.contains("two"));
    Ok(())
}

#[tokio::test]
async fn a_runner_says_where_commands_run_or_why_none_do() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut walled = world.config();
    walled.runner.sandbox.backend = BackendChoice::Bubblewrap;
    let mut broken = walled.clone();
    broken.runner.sandbox.bwrap = Some("/nowhere/bwrap".into());
    let _one = world.runner_with(walled, |app| app).await?;
    let _two = world.runner_with(broken, |app| app).await?;
    let _three = world.runner().await?;

    let all = async || {
        let all = world.bus.runner_reports(Duration::from_millis(300)).await.ok()?;
        (all.len() == 3).then_some(all)
    };
    let mut about = world.until_some("all answer", all).await?;
    about.sort_by(|one: &RunnerReport, other| one.no_commands.cmp(&other.no_commands));

    let RunnerReport { sandbox, no_commands } = &about[0];
    assert!(sandbox.starts_with("bubblewrap, limits: "), "{sandbox}");
    assert_eq!(no_commands, "");
    assert!(about[1].no_commands.contains("is `none`"), "{about:?}");
    assert!(about[2].no_commands.contains("install the package bubblewrap"), "{about:?}");
    Ok(())
}
