//! Workspaces: folders and repositories in which sessions work, one at a time.

use std::{path::Path, process::Command, sync::Arc};

use holdfast_pg::Pools;
use holdfast_session::{Acceptance, NewMessage, WorkspaceBinding};
use holdfast_testkit::{Reply, model::Request};
use holdfast_types::{SessionId, SessionKey, TodoOperation, TreePath};
use holdfast_work::{Actor, ActorKind, Place, Work};
use holdfast_workspace::{
    Base, ChangeAuthor, ChangeStep, DiffBody, Edit, LogFilter, NewWorkspace, Revision,
    WorkspaceKind, WorkspaceLock, WorkspaceOwner,
};
use serde_json::{Value, json};

use crate::{
    behaviors::script::{behavior_of, input, result, shown},
    shell::{is_below, returned, take_away, walled},
    world::World,
};

const PROGRAM: &str = "echo $(($1 - $2))\n";

const TEST: &str = "sum=$(sh calc.sh 2 3)\n\
                    [ \"$sum\" = 5 ] || { echo \"failed: 2 + 3 is $sum\"; exit 1; }\n\
                    echo passed\n";

/// Outputs of the calls of the current step, oldest first.
fn outputs(asked: &Request) -> Vec<String> {
    let tools = asked.messages().iter().filter(|message| message["role"] == "tool");
    tools.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
}

fn exec(command: &str) -> Reply {
    Reply::call("e", "exec", json!({ "command": command }).to_string())
}

fn update(code: &str, to: &str) -> Value {
    json!({"op": "update", "code": code, "to_status": to, "reason": "as it is"})
}

fn owners(world: &World, text: &str) -> NewMessage {
    NewMessage { key: SessionKey::main(&world.agent.name), ..world.message("s", text) }
}

/// Paths and contents of a folder's files.
fn files_below(root: &Path, folder: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(root, &path)?);
        } else {
            files.push((path.strip_prefix(root)?.display().to_string(), std::fs::read(&path)?));
        }
    }
    Ok(files)
}

fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let done = Command::new("git")
        .args(["-c", "user.name=anna", "-c", "user.email=anna@example.com"])
        .args(arguments)
        .current_dir(folder)
        .output()?;
    anyhow::ensure!(done.status.success(), "{done:?}");
    Ok(())
}

impl World {
    /// Puts a repository with one commit into a folder of the agent's files: a program, and its
    /// test, which fails.
    async fn add_repository(&self, folder: &str) -> anyhow::Result<()> {
        let made = tempfile::tempdir()?;
        git(made.path(), &["init", "--quiet", "--template=", "--initial-branch=main"])?;
        for (name, text) in [
            ("calc.sh", PROGRAM),
            ("test.sh", TEST),
            ("to_agent.md", "Run `sh test.sh` before each commit.\n"),
        ] {
            std::fs::write(made.path().join(name), text)?;
        }
        git(made.path(), &["config", "user.name", "main"])?;
        git(made.path(), &["config", "user.email", "main@example.com"])?;
        git(made.path(), &["add", "--all"])?;
        git(made.path(), &["commit", "--quiet", "--message", "a calculator"])?;
        let edits = files_below(made.path(), made.path())?.into_iter().map(|(name, content)| {
            let path: TreePath = format!("{folder}/{name}").parse()?;
            Ok(Edit::Put { path, content, base: Base::Absent })
        });
        let edits = edits.collect::<anyhow::Result<Vec<Edit>>>()?;
        let by = ChangeAuthor::new("anna", "a repository");
        self.workspaces.commit(self.tenant, self.agent.id, &by, edits).await?;
        Ok(())
    }

    /// Changes a file as a person does.
    async fn change_by_hand(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let edit =
            Edit::Put { path: path.parse()?, content: text.as_bytes().to_vec(), base: Base::Any };
        let by = ChangeAuthor::new("anna", "by hand");
        self.workspaces.commit(self.tenant, self.agent.id, &by, vec![edit]).await?;
        Ok(())
    }

    /// Names of the workspaces that sessions are bound to.
    async fn bindings(&self) -> anyhow::Result<Vec<String>> {
        let sql = "select n.name from session.session_lease l
                   join workspace.named n on n.workspace_id::text = l.workspace";
        self.texts(sql).await
    }

    async fn is_ready(&self, session: SessionId) -> bool {
        let session = session.as_uuid();
        let sql = format!(
            "select count(*) from session.session_lease
             where session_id = '{session}' and state = 'READY' and workspace is not null"
        );
        self.number(&sql).await.is_ok_and(|ready| ready == 1)
    }
}

/// Plans, repairs the program, and checks it.
fn repair(asked: &Request) -> Reply {
    let outputs = outputs(asked);
    match (behavior_of(asked), outputs.len()) {
        ("plan", 0) if !shown(asked).contains("You work in the workspace `calc`") => {
            result(&json!({"session_delta": {"workspace": {"name": "calc", "kind": "git"}}}))
        }
        ("plan", 0) => exec("sh test.sh; echo x > calc.sh"),
        ("plan", _) => result(&json!({
            "thinking": outputs[0],
            "todo_delta": [{"op": "init", "items": [
                {"title": "repair the sum"}, {"title": "the test passes", "type": "bench"},
            ]}],
            "next_behavior": "DO:todo=T001",
        })),
        ("do", 0) => exec("git status --short && cat calc.sh"),
        ("do", 1) => {
            let edit = json!({"path": "workspaces/calc/calc.sh", "content": "echo $(($1 + $2))\n"});
            Reply::call("w", "write", edit.to_string())
        }
        ("do", 2) => exec("sh test.sh && git commit --quiet --all --message 'add the numbers'"),
        ("do", _) => result(&json!({
            "todo_delta": [update("T001", "IN_PROGRESS"), update("T001", "COMPLETE")],
            "next_behavior": "CHECK",
        })),
        ("check", 0) => exec("sh test.sh && git status --short && git log --format=%an:%s"),
        ("check", _) => result(&json!({
            "todo_delta": [update("T001", "DONE"), update("T002", "DONE")],
            "reply": outputs[0],
            "next_behavior": "END",
        })),
        _ => Reply::text("this is no behaviour"),
    }
}

#[tokio::test]
async fn a_failing_test_in_a_repository_is_repaired_checked_and_committed() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    world.add_repository("workspaces/calc").await?;
    world.model.answer(repair);
    let _runner = world.runner_with(walled(&world), |app| app).await?;

    let sent = world.send(owners(&world, "the sums are wrong")).await?;
    let told = world.text(&sent).await?;

    // The check has run the test, on a clean tree with the new commit.
    assert!(told.contains("\npassed\nmain:add the numbers\nanna:a calculator"), "{told}");
    let calc = world.file("workspaces/calc/calc.sh").await?;
    assert_eq!(calc.as_deref(), Some("echo $(($1 + $2))\n"));
    let returned = returned(&world, &sent).await?;
    assert!(returned.iter().any(|one| one.contains("failed: 2 + 3 is -1")), "{returned:?}");
    assert!(returned.iter().any(|one| one.contains("this step only reads files")), "{returned:?}");
    assert!(!returned.iter().any(|one| one.contains(".git/")), "{returned:?}");
    assert_eq!(world.bindings().await?, ["calc"]);
    let works = world.model.requests();
    let work = works.iter().find(|asked| behavior_of(asked) == "do").expect("a step that works");
    assert!(work.messages()[0].to_string().contains("Run `sh test.sh` before each commit."));
    let held = "select count(*) from session.workspace_lease where session_id is not null";
    assert_eq!(world.number(held).await?, 0);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    a_change_names_its_step(&world, sent.session).await
}

/// The history of the program names the step and the todo that changed it, and the difference.
async fn a_change_names_its_step(world: &World, session: SessionId) -> anyhow::Result<()> {
    let path: TreePath = "workspaces/calc/calc.sh".parse()?;
    let filter = LogFilter { path: Some(path), before: None, limit: 1 };
    let log = world.workspaces.log(world.tenant, world.agent.id, &filter).await?;
    let step = ChangeStep {
        session,
        behavior: "DO:todo=T001".to_owned(),
        step: 0,
        todo: Some("T001".to_owned()),
    };
    assert_eq!(log[0].step, Some(step));
    let (to, from) = (log[0].revision, Revision::from(log[0].revision.number() - 1));
    let diff = world.workspaces.diff(world.tenant, world.agent.id, from, to, None).await?;
    let DiffBody::Text { hunks, .. } = &diff.files[0].body else {
        anyhow::bail!("no text: {diff:?}");
    };
    assert!(hunks.contains("-echo $(($1 - $2))\n+echo $(($1 + $2))\n"), "{hunks}");
    Ok(())
}

#[tokio::test]
async fn a_repository_that_an_agent_makes_takes_commits() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    world.model.answer(|asked| match outputs(asked).len() {
        0 if !shown(asked).contains("You work in the workspace `new`, a Git repository") => {
            result(&json!({"session_delta": {"workspace": {"name": "new", "kind": "git"}}}))
        }
        0 => exec("echo a > a.txt && git add --all && git commit --quiet --message one"),
        1 => exec("git log --format=%an:%s && git status --short && git fsck && ls"),
        _ => result(&json!({"reply": outputs(asked)[1], "next_behavior": "END"})),
    });
    let _runner = world.runner_with(walled(&world), |app| app).await?;

    let sent = world.say("s", "go").await?;
    let told = world.text(&sent).await?;

    assert!(told.ends_with("\nmain:one\na.txt\nto_agent.md"), "{told}");
    let folder = "people/api=s/workspaces/new";
    assert_eq!(world.file(&format!("{folder}/a.txt")).await?.as_deref(), Some("a\n"));
    Ok(())
}

/// Adds a line to a file and waits before that until a file is taken away.
const ADD_LINE: &str = "touch wait; while [ -e wait ]; do sleep 0.05; done; \
                        echo $HOLDFAST_SESSION >> log.txt";

const MERGE: &str = "cat log.txt.conflict-* >> log.txt && rm log.txt.conflict-* && cat log.txt";

fn add_line(asked: &Request) -> Reply {
    if !shown(asked).contains("You work in the workspace `shared`") {
        return result(&json!({"session_delta": {"workspace": "shared"}}));
    }
    match outputs(asked).last() {
        None => {
            let input = json!({ "command": ADD_LINE, "yield_ms": 60_000 });
            Reply::call("e", "exec", input.to_string())
        }
        Some(told) if told.contains("merge them") => exec(MERGE),
        Some(_) => result(&json!({"reply": "It is in.", "next_behavior": "END"})),
    }
}

#[tokio::test]
async fn of_two_sessions_in_a_workspace_one_works_and_a_conflict_is_told_and_resolved()
-> anyhow::Result<()> {
    const LOG: &str = "people/api=s/workspaces/shared/log.txt";
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    world.model.answer(add_line);
    let _runner = world.runner_with(walled(&world), |app| app).await?;

    let first = world.say("s", "add a line").await?;
    world.until("the first works", async || is_below(world.scratch.path(), "wait")).await?;
    let second = world.say("s/other", "add a line").await?;
    world
        .until("the second is bound and waits", async || world.is_ready(second.session).await)
        .await?;
    let asked = world.model.count();
    // Longer than the poll, after which a session that is free is claimed.
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    assert_eq!(world.model.count(), asked);
    assert!(world.is_ready(second.session).await);

    take_away(&world, "wait").await?;
    assert_eq!(world.text(&first).await?, "It is in.");
    // By itself, with what the first has written.
    world.until("the second works", async || is_below(world.scratch.path(), "wait")).await?;
    let line = |sent: &Acceptance| format!("{}\n", sent.session);
    assert_eq!(world.file(LOG).await?, Some(line(&first)));
    world.change_by_hand(LOG, "anna was here\n").await?;
    take_away(&world, "wait").await?;
    assert_eq!(world.text(&second).await?, "It is in.");

    let told = returned(&world, &second).await?;
    let conflict = "`workspaces/shared/log.txt` was changed meanwhile by anna";
    assert!(told.iter().any(|one| one.contains(conflict)), "{told:?}");
    let merged = format!("anna was here\n{}{}", line(&first), line(&second));
    assert_eq!(world.file(LOG).await?, Some(merged));
    let paths = world.workspaces.list(world.tenant, world.agent.id, None, None).await?;
    assert!(!paths.iter().any(|file| file.path.as_str().contains("conflict")), "{paths:?}");
    assert_eq!(world.bindings().await?, ["shared", "shared"]);
    Ok(())
}

#[tokio::test]
async fn a_session_that_does_not_see_a_workspace_works_without_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    world.model.answer(|asked| match outputs(asked).len() {
        0 => exec("pwd; ls"),
        _ => result(&json!({"reply": outputs(asked)[0], "next_behavior": "END"})),
    });
    let new = NewWorkspace {
        name: "secret".to_owned(),
        within: None,
        kind: WorkspaceKind::Folder,
        owner: WorkspaceOwner::Person("anna".to_owned()),
        lock: WorkspaceLock::Session,
    };
    let made = world.workspaces.create_named(world.tenant, world.agent.id, &new).await?;
    let sent = world.say("s", "look").await?;
    let binding = WorkspaceBinding { workspace: made.id.to_string(), drains: false };
    world.sessions.bind_workspace(world.tenant, sent.session, Some(&binding)).await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;

    let told = world.text(&sent).await?;

    assert!(told.ends_with("\n/workspace"), "{told}");
    let first: Arc<Request> = world.model.requests()[0].clone();
    assert!(!input(&first).contains("secret") && !shown(&first).contains("secret"));
    // Nor is the list of the workspace its own.
    assert_eq!(world.number("select count(*) from work.list_members").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_workspace_that_drains_is_kept_until_the_todos_of_its_session_are_finished()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    let new = NewWorkspace {
        name: "shared".to_owned(),
        within: Some("people/api=s".parse()?),
        kind: WorkspaceKind::Folder,
        owner: WorkspaceOwner::Person("anna".to_owned()),
        lock: WorkspaceLock::TodoDrain,
    };
    world.workspaces.create_named(world.tenant, world.agent.id, &new).await?;
    world.model.answer(|asked| {
        if !shown(asked).contains("You work in the workspace `shared`") {
            return result(&json!({"session_delta": {"workspace": "shared"}}));
        }
        let items = json!([{"title": "dig"}]);
        result(&json!({
            "todo_delta": [{"op": "init", "items": items}], "reply": "planned",
            "next_behavior": "WAIT",
        }))
    });
    let _runner = world.runner().await?;

    let first = world.say("s", "plan").await?;
    assert_eq!(world.text(&first).await?, "planned");
    let second = world.say("s/other", "plan").await?;
    world
        .until("the second is bound and waits", async || world.is_ready(second.session).await)
        .await?;
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    assert!(world.is_ready(second.session).await);

    let done = update("T001", "DONE");
    let (place, actor) = (
        Place::outside(first.session, world.agent.id),
        Actor {
            kind: ActorKind::User,
            name: "anna".to_owned(),
            role: None,
            has_outside_text: false,
        },
    );
    let done: TodoOperation = serde_json::from_value(done)?;
    let work = Work::new(Pools::lazy(&world.config().database, "test")?);
    work.apply(world.tenant, &place, &actor, ("by hand", &[done])).await?;

    assert_eq!(world.text(&second).await?, "planned");
    // The second has gone on with the list of the first.
    let lists = (
        work.view(world.tenant, first.session).await?,
        work.view(world.tenant, second.session).await?,
    );
    assert_eq!(lists.0, lists.1);
    assert!(lists.0.counts.wait > 0);
    Ok(())
}
