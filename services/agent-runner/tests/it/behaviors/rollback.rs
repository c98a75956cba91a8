//! Rollback of the last step: what it restores, what it leaves, and what comes after.

use holdfast_grpc::{MemoryClient, Mesh, Signer};
use holdfast_pg::Pools;
use holdfast_proto::memory::v1 as pb;
use holdfast_rollback::{
    FileConflict, RollbackMode, RollbackReport, RollbackRequest, RollbackResult, StepRollback,
};
use holdfast_session::Acceptance;
use holdfast_testkit::{Reply, model::Request};
use holdfast_types::{SessionId, SessionState, TodoOperation};
use holdfast_work::{Actor, ActorKind, Ledger, Place, Work};
use holdfast_workspace::{Base, ChangeAuthor, Edit};
use serde_json::{Value, json};

use super::script::{input, play, result, tool_count};
use crate::{
    shell::{owner, walled},
    world::{Remembers, World, mesh},
};

/// Behaviour and step, text of the file, todos, and the paths that were restored.
type Expected<'a> = (&'a str, u64, Option<&'a str>, &'a [&'a str], &'a [&'a str]);

fn pools(world: &World) -> anyhow::Result<Pools> {
    Pools::lazy(&world.config().database, "test")
}

fn client(memory: &Remembers) -> anyhow::Result<MemoryClient> {
    Ok(MemoryClient::new(&memory.url, Mesh::new(Signer::new(&mesh())?, "gateway"))?)
}

fn request(session: SessionId) -> RollbackRequest {
    RollbackRequest {
        session,
        step: None,
        mode: RollbackMode::Make,
        again: false,
        by: "anna".to_owned(),
        author: "anna".to_owned(),
    }
}

impl World {
    fn rollback(&self, memory: Option<&Remembers>) -> anyhow::Result<StepRollback> {
        let (pools, memory) = (pools(self)?, memory.map(client).transpose()?);
        Ok(StepRollback::new(pools, self.sessions.clone(), self.workspaces.clone(), memory))
    }

    async fn roll_back(&self, request: &RollbackRequest) -> anyhow::Result<RollbackResult> {
        let done = self.rollback(None)?.roll_back(self.tenant, request).await?;
        if done.wake {
            self.bus.wake_run(0);
        }
        Ok(done)
    }

    async fn put(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let content = text.as_bytes().to_vec();
        let edit = Edit::Put { path: path.parse()?, content, base: Base::Any };
        let by = ChangeAuthor::new("ben", "by hand");
        self.workspaces.commit(self.tenant, self.agent.id, &by, vec![edit]).await?;
        Ok(())
    }

    /// Changes the todo list as a person does.
    async fn plan_by_hand(
        &self,
        session: SessionId,
        key: &str,
        operations: Value,
    ) -> anyhow::Result<()> {
        let operations: Vec<TodoOperation> = serde_json::from_value(operations)?;
        let place = Place::outside(session, self.agent.id);
        let actor = Actor {
            kind: ActorKind::User,
            name: "ben".to_owned(),
            role: None,
            has_outside_text: false,
        };
        let work = Work::new(pools(self)?);
        let results = work.apply(self.tenant, &place, &actor, (key, &operations)).await?;
        anyhow::ensure!(results.iter().all(Result::is_ok), "{results:?}");
        Ok(())
    }

    /// Behaviour and step that follow.
    async fn position(&self, session: SessionId) -> anyhow::Result<(String, u64)> {
        let state = self.behavior_state(session).await?;
        let behavior = state["behavior"].as_str().unwrap_or_default().to_owned();
        Ok((behavior, state["step"].as_u64().unwrap_or_default()))
    }

    /// Type, behaviour and state of the worklog's records.
    async fn records(&self, kind: &str) -> anyhow::Result<Vec<String>> {
        let sql = format!(
            "select behavior || ' ' || step || ' ' || commit_state from work.worklog
             where type = '{kind}' order by seq"
        );
        self.texts(&sql).await
    }
}

async fn settled(world: &World, sent: &Acceptance) -> anyhow::Result<()> {
    world
        .until("the session rests", async || {
            world
                .state_of(sent.session)
                .await
                .is_ok_and(|state| !matches!(state, SessionState::Running | SessionState::Ready))
        })
        .await
}

#[tokio::test]
async fn the_steps_of_a_session_are_rolled_back_one_by_one_to_before_its_first()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(play);
    let _runner = world.runner().await?;
    let sent = world.send(world.on_channel("s", "write the text and the note")).await?;
    assert_eq!(world.text(&sent).await?, "All is done.");
    let ledger = "select count(*) from work.ledger where kind <> 'rollback'";
    let spent = world.number(ledger).await?;

    let out = "people/api=s/out.txt";
    let note = "people/api=s/note.txt";
    let expected: [Expected<'_>; 9] = [
        ("CHECK", 0, Some("final"), &["1 task COMPLETE", "2 task COMPLETE", "3 bench WAIT"], &[]),
        (
            "DO:todo=T001",
            0,
            Some("draft"),
            &["1 task WAIT", "2 task COMPLETE", "3 bench WAIT"],
            &[out],
        ),
        (
            "ADJUST:todo=T001",
            0,
            Some("draft"),
            &["1 task CHECK_FAILED", "2 task COMPLETE", "3 bench WAIT"],
            &[],
        ),
        ("CHECK", 0, Some("draft"), &["1 task COMPLETE", "2 task COMPLETE", "3 bench WAIT"], &[]),
        (
            "DO:todo=T002",
            0,
            Some("draft"),
            &["1 task COMPLETE", "2 task WAIT", "3 bench WAIT"],
            &[note],
        ),
        ("DO:todo=T001", 1, None, &["1 task IN_PROGRESS", "2 task WAIT", "3 bench WAIT"], &[out]),
        ("DO:todo=T001", 0, None, &["1 task WAIT", "2 task WAIT", "3 bench WAIT"], &[]),
        ("PLAN", 0, None, &[], &[]),
        ("resolve_router", 0, None, &[], &[]),
    ];
    for (number, (behavior, step, text, todos, files)) in expected.into_iter().enumerate() {
        let RollbackReport { files: restored, file_conflicts, .. } =
            world.roll_back(&request(sent.session)).await?.report;
        let at = format!("rollback {number}");
        assert_eq!(world.position(sent.session).await?, (behavior.to_owned(), step), "{at}");
        assert_eq!(world.file(out).await?.as_deref(), text, "{at}");
        assert_eq!(world.todos(sent.session).await?, todos, "{at}");
        assert_eq!(
            (restored.as_slice(), file_conflicts.len()),
            (files.iter().map(ToString::to_string).collect::<Vec<_>>().as_slice(), 0),
            "{at}"
        );
    }
    assert_eq!(world.file(note).await?, None);
    let none = world.roll_back(&request(sent.session)).await.unwrap_err();
    assert!(none.to_string().contains("no step that can be rolled back"), "{none}");

    let summaries = world.records("StepSummary.v1").await?;
    assert!(summaries.iter().all(|one| one.ends_with("ABORTED")), "{summaries:?}");
    assert_eq!(world.records("StepRolledBack.v1").await?.len(), 9);
    assert!(world.records("StepRolledBack.v1").await?.iter().all(|one| one.ends_with("COMMITTED")));
    // What was spent stays in the ledger, which has an entry for each rollback and is whole.
    assert_eq!(world.number(ledger).await?, spent);
    let entries = "select count(*) from work.ledger where kind = 'rollback'";
    assert_eq!(world.number(entries).await?, 9);
    let ledger = Ledger::new(pools(&world)?);
    while ledger.verify(world.tenant).await?.unchained > 0 {
        ledger.chain(world.tenant, 100).await?;
    }
    assert_eq!(ledger.verify(world.tenant).await?.broken_at, None);

    // Then everything is done once more.
    let sent = world.send(world.on_channel("s", "write the text and the note")).await?;
    assert_eq!(world.text(&sent).await?, "All is done.");
    assert_eq!(world.todos(sent.session).await?, ["1 task DONE", "2 task DONE", "3 bench DONE"]);
    Ok(())
}

fn update(code: &str, to: &str) -> Value {
    json!({"op": "update", "code": code, "to_status": to, "reason": "as it is"})
}

/// Changes files, todos and a title in one step, by calls, commands and its result.
fn work(asked: &Request) -> Reply {
    match tool_count(asked) {
        _ if input(asked).contains("Look at the files before you go on") => {
            result(&json!({"reply": "I see.", "next_behavior": "END"}))
        }
        0 => Reply::call("w", "write", json!({"path": "kept.txt", "content": "new"}).to_string()),
        1 => {
            let command = "echo made > made.txt; echo more >> old.txt";
            Reply::call("e", "exec", json!({ "command": command }).to_string())
        }
        _ => result(&json!({
            "todo_delta": [update("T001", "IN_PROGRESS"), update("T001", "COMPLETE")],
            "session_delta": {"title": "Digging", "tags": ["garden"]},
            "reply": "It is dug.",
            "next_behavior": "WAIT_FOR_MSG",
            "wait_details": {"filter": {"contains": "yes"}},
        })),
    }
}

#[tokio::test]
async fn a_step_is_undone_as_far_as_nobody_changed_it_since_and_what_acted_outside_is_told()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    world.put("old.txt", "old\n").await?;
    world.put("kept.txt", "before").await?;
    world.model.answer(work);
    let sent = world.send(owner(&world, "dig")).await?;
    world
        .plan_by_hand(sent.session, "plan", json!([{"op": "init", "items": [{"title": "dig"}]}]))
        .await?;
    let _runner = world.runner_with(walled(&world), |app| app).await?;
    assert_eq!(world.text(&sent).await?, "It is dug.");
    assert_eq!(world.file("old.txt").await?.as_deref(), Some("old\nmore\n"));
    assert_eq!(world.file("made.txt").await?.as_deref(), Some("made\n"));
    assert_eq!(world.state_of(sent.session).await?, SessionState::WaitForMsg);
    world.put("kept.txt", "ben was here").await?;

    let look = RollbackRequest { mode: RollbackMode::Look, ..request(sent.session) };
    let looked = world.roll_back(&look).await?;
    assert_eq!(world.file("made.txt").await?.as_deref(), Some("made\n"));
    assert_eq!(world.todos(sent.session).await?, ["1 task COMPLETE"]);
    // What a person has added meanwhile is kept.
    let note = json!([{"op": "note", "code": "T001", "kind": "note", "text": "deep enough"}]);
    world.plan_by_hand(sent.session, "note", note).await?;
    let done = world.roll_back(&request(sent.session)).await?;

    assert_eq!(looked.report, done.report);
    assert_eq!(done.report.files, ["made.txt", "old.txt"]);
    let conflict = FileConflict { path: "kept.txt".into(), changed_by: "ben".into() };
    assert_eq!(done.report.file_conflicts, [conflict]);
    assert_eq!((done.report.todo_operations, done.report.refused_todo_operations.len()), (2, 0));
    let kept: Vec<&str> = done.report.not_undone.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(kept, ["exec", "reply"]);
    assert_eq!(world.file("old.txt").await?.as_deref(), Some("old\n"));
    assert_eq!(world.file("made.txt").await?, None);
    assert_eq!(world.file("kept.txt").await?.as_deref(), Some("ben was here"));
    assert_eq!(world.todos(sent.session).await?, ["1 task WAIT"]);
    let notes = "select body->'notes'->0->>'text' from work.todos";
    assert_eq!(world.texts(notes).await?, ["deep enough"]);
    assert_eq!(world.state_of(sent.session).await?, SessionState::Wait);
    let label = "select count(*) from session.sessions where given_label is not null";
    assert_eq!(world.number(label).await?, 0);
    assert_eq!(world.behavior_state(sent.session).await?["tags"], json!([]));

    // A repetition with the id changes nothing.
    let again =
        RollbackRequest { step: Some(done.report.step_id.parse()?), ..request(sent.session) };
    let repeated = world.roll_back(&again).await?;
    assert_eq!((repeated.report, repeated.repeated), (done.report, true));

    // The next step is told, and the message needs to match no wait.
    let next = world.send(owner(&world, "go on")).await?;
    assert_eq!(world.text(&next).await?, "I see.");
    let told = input(world.model.requests().last().unwrap());
    assert!(told.contains("anna has rolled back your last step, step 0 of `do`"), "{told}");
    assert!(told.contains("changed by others since and left: kept.txt"), "{told}");
    assert!(told.contains("done and not undone: exec, reply"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_step_that_is_run_again_gets_the_same_messages_and_answers_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(play);
    let _runner = world.runner().await?;
    let sent = world.send(world.on_channel("s", "write the text and the note")).await?;
    assert_eq!(world.text(&sent).await?, "All is done.");
    settled(&world, &sent).await?;
    let asked = world.asked_as("check").len();

    // The check has read no message; the plan has read what the router passed on.
    let again = RollbackRequest { again: true, ..request(sent.session) };
    let done = world.roll_back(&again).await?;
    assert_eq!(done.report.behavior, "CHECK");
    let told = async || world.told_in(sent.session).await.unwrap_or_default();
    world.until("the check runs again", async || told().await.len() == 3).await?;
    assert_eq!(told().await, ["On it.", "All is done.", "All is done."]);
    assert_eq!(world.asked_as("check").len(), asked + 2);
    settled(&world, &sent).await?;
    let repeated = RollbackRequest { step: Some(done.report.step_id.parse()?), ..again.clone() };
    assert!(world.roll_back(&repeated).await?.repeated);
    settled(&world, &sent).await?;
    assert_eq!(world.asked_as("check").len(), asked + 2);

    for _ in 0..7 {
        world.roll_back(&request(sent.session)).await?;
    }
    let done = world.roll_back(&again).await?;
    assert_eq!(done.report.behavior, "PLAN");
    world.until("it is done again", async || told().await.len() == 4).await?;
    let plan = world.asked_as("plan");
    assert_eq!(plan.len(), 2);
    assert!(input(&plan[1]).contains("write the text and the note"), "{}", input(&plan[1]));
    assert_eq!(world.todos(sent.session).await?, ["1 task DONE", "2 task DONE", "3 bench DONE"]);
    Ok(())
}

#[tokio::test]
async fn a_session_that_runs_is_not_rolled_back_nor_one_that_has_no_step() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    world.model.queue([
        result(&json!({"reply": "first", "next_behavior": "END"})),
        Reply::hang(std::time::Duration::from_secs(300)),
    ]);
    let runner = world.runner().await?;
    let sent = world.say("s", "begin").await?;
    assert_eq!(world.text(&sent).await?, "first");
    world.say("s", "and more").await?;
    world.until("the second turn runs", async || world.model.count() == 2).await?;

    let running = world.roll_back(&request(sent.session)).await.unwrap_err();
    runner.kill();

    assert!(running.to_string().contains("the session runs"), "{running}");
    assert_eq!(world.position(sent.session).await?.0, "do");
    let other = world.roll_back(&request(SessionId::generate())).await.unwrap_err();
    assert!(other.to_string().contains("there is no session"), "{other}");
    Ok(())
}

#[tokio::test]
async fn values_of_the_memory_are_set_back_unless_somebody_has_set_them_since() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    let memory = world.memory().await?;
    let set = |values: Value| {
        result(&json!({"set_memory": values, "reply": "noted", "next_behavior": "END"}))
    };
    world.model.queue([
        set(json!({"tea": "green", "milk": "none"})),
        set(json!({"tea": "black", "milk": "oat", "sugar": "two"})),
    ]);
    let _runner = world.runner_with(world.config_with(&memory), |app| app).await?;
    let sent = world.say("s", "I drink green tea").await?;
    world.text(&sent).await?;
    assert_eq!(world.ask("s", "black, with oat milk").await?, "noted");
    let values = "select subject || ' ' || content from memory.items
                  where kind = 2 and superseded_at is null order by subject";
    assert_eq!(world.texts(values).await?, [r#"milk "oat""#, r#"sugar "two""#, r#"tea "black""#]);
    // Somebody sets one of them.
    let user = world.texts("select distinct user_id from memory.items").await?.remove(0);
    let milk = pb::NewItem {
        kind: pb::Kind::Value.into(),
        content: r#""soy""#.to_owned(),
        subject: "milk".to_owned(),
        provenance: Some(pb::Provenance {
            kind: pb::SourceKind::User.into(),
            name: "ben".to_owned(),
            ..pb::Provenance::default()
        }),
        ..pb::NewItem::default()
    };
    let agent = world.agent.id.to_string();
    let put = pb::PutItemsRequest {
        who: Some(pb::Who { agent, user, ..pb::Who::default() }),
        items: vec![milk],
        ..pb::PutItemsRequest::default()
    };
    client(&memory)?.put_items(world.tenant, put).await?;

    let refused = world.rollback(None)?.roll_back(world.tenant, &request(sent.session)).await;
    assert!(refused.unwrap_err().to_string().contains("no memory service"));
    let rollback = world.rollback(Some(&memory))?;
    let done = rollback.roll_back(world.tenant, &request(sent.session)).await?.report;

    assert_eq!(
        (done.values.as_slice(), done.value_conflicts.as_slice()),
        (&["sugar".to_owned(), "tea".to_owned()][..], &["milk".to_owned()][..])
    );
    assert_eq!(world.texts(values).await?, [r#"milk "soy""#, "sugar null", r#"tea "green""#]);
    Ok(())
}
