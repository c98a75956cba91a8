//! An agent that works by behaviours: it routes, plans, does, checks, adjusts, and tells the user.

mod crashes;
mod delegating;
mod limits;
mod prompts;
mod results;
mod roles;
mod rollback;
mod routing;
pub mod script;
mod tokens;
mod upkeep;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use holdfast_bus::DeltaBody;
use holdfast_directory::{Actor, BehaviorSettings};
use holdfast_session::{Acceptance, ApprovalFilter, NewMessage, SessionFilter, TurnOutcome};
use holdfast_testkit::{Reply, model::Request};
use holdfast_types::{
    ApprovalDecision, ApprovalState, Body, Entry, MessageFilter, SessionId, SessionState,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use self::script::{behavior_of, input, play, result, shown};
use crate::{
    approvals::Launch,
    shell::{exec, owner, returned, walled},
    world::{LONG, World, place},
};

impl World {
    /// The agent works by the built-in behaviours.
    pub async fn use_behaviors(
        &self,
        change: impl FnOnce(&mut BehaviorSettings),
    ) -> anyhow::Result<()> {
        let mut settings = BehaviorSettings::default();
        change(&mut settings);
        self.change_agent(|agent| agent.settings.behaviors = Some(settings)).await?;
        Ok(())
    }

    /// A message from a channel, so that replies are deliveries.
    fn on_channel(&self, session: &str, text: &str) -> NewMessage {
        NewMessage { target: Some(place(session)), ..self.message(session, text) }
    }

    /// Deliveries of a session, in order.
    async fn told_in(&self, session: SessionId) -> anyhow::Result<Vec<String>> {
        let session = session.as_uuid();
        let sql = format!(
            "select body from session.deliveries where session_id = '{session}' order by out_seq"
        );
        self.texts(&sql).await
    }

    /// Code and status of each todo of a session.
    async fn todos(&self, session: SessionId) -> anyhow::Result<Vec<String>> {
        let session = session.as_uuid();
        let sql = format!(
            "select number || ' ' || kind || ' ' || status from work.todos \
             where list_id = '{session}' order by number"
        );
        self.texts(&sql).await
    }

    async fn behavior_state(&self, session: SessionId) -> anyhow::Result<Value> {
        let found = self.sessions.behaviors().get(self.tenant, session).await?;
        found.ok_or_else(|| anyhow::anyhow!("the session has no state of behaviours"))
    }

    async fn state_of(&self, session: SessionId) -> anyhow::Result<SessionState> {
        Ok(self.sessions.views().session(self.tenant, session).await?.state)
    }

    async fn outcome(&self, sent: &Acceptance) -> anyhow::Result<Option<TurnOutcome>> {
        Ok(self.answer(sent).await?.outcome)
    }

    /// Outcome of a message that may not have one yet.
    async fn outcome_now(&self, sent: &Acceptance) -> anyhow::Result<Option<TurnOutcome>> {
        Ok(self.sessions.views().answer(self.tenant, sent.message).await?.outcome)
    }

    fn asked_as(&self, behavior: &str) -> Vec<Arc<Request>> {
        let requests = self.model.requests().into_iter();
        requests.filter(|asked| behavior_of(asked) == behavior).collect()
    }
}

#[tokio::test]
async fn a_request_is_planned_done_checked_repaired_and_told_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(play);
    let _runner = world.runner().await?;

    let sent = world.send(world.on_channel("s", "write the text and the note")).await?;

    assert_eq!(world.text(&sent).await?, "All is done.");
    assert_eq!(world.told_in(sent.session).await?, ["On it.", "All is done."]);
    assert_eq!(world.todos(sent.session).await?, ["1 task DONE", "2 task DONE", "3 bench DONE"]);
    assert_eq!(world.file("people/api=s/out.txt").await?.as_deref(), Some("final"));
    let steps = "select behavior || ' ' || step || ' ' || commit_state from work.worklog
                 where type = 'StepSummary.v1' order by seq";
    let expected = [
        "resolve_router 0",
        "PLAN 0",
        "DO:todo=T001 0",
        "DO:todo=T001 1",
        "DO:todo=T002 0",
        "CHECK 0",
        "ADJUST:todo=T001 0",
        "DO:todo=T001 0",
        "CHECK 0",
    ];
    assert_eq!(world.texts(steps).await?, expected.map(|step| format!("{step} COMMITTED")));
    // Nine steps, and two rounds of a check that reads.
    let requests = "select count(*) from work.ledger where kind = 'model'";
    assert_eq!(world.number(requests).await?, 11);
    assert_eq!(world.model.count(), 11);
    let state = world.behavior_state(sent.session).await?;
    assert_eq!((&state["ended"], &state["behavior"]), (&json!(true), &json!("resolve_router")));
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn a_step_is_shown_its_message_its_todo_and_the_step_before() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(play);
    let _runner = world.runner().await?;

    world.text(&world.send(world.on_channel("s", "write the text and the note")).await?).await?;

    // What the router only passed on is still new to the plan.
    let plan = &world.asked_as("plan")[0];
    assert!(input(plan).contains("write the text and the note"), "{}", input(plan));
    let works = world.asked_as("do");
    assert!(input(&works[0]).contains("<current_todo>\nT001 WAIT: write the text"));
    assert!(!input(&works[0]).contains("write the text and the note"));
    assert!(shown(&works[0]).contains("user: write the text and the note"));
    assert!(input(&works[1]).contains("Step 0 of DO:todo=T001"), "{}", input(&works[1]));
    let check = &world.asked_as("check")[0];
    assert!(input(check).contains("<result tool=\"write\" state=\"ok\">"), "{}", input(check));
    assert!(check.tool_names().contains(&"read"));
    Ok(())
}

#[tokio::test]
async fn followers_are_told_each_step_that_begins_and_what_the_work_has_cost() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.card(1_000).await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(play);
    let mut deltas = world.bus.subscribe_tenant_deltas(world.tenant).await?;
    world.bus.flush().await;
    let _runner = world.runner().await?;

    world.ask("s", "write the text and the note").await?;

    let (mut told, mut costs) = (Vec::new(), Vec::new());
    loop {
        let (_, delta) = timeout(LONG, deltas.next()).await?.expect("the bus is there");
        match delta.body {
            DeltaBody::StepProgress(progress) => {
                told.push(progress.to_string());
                costs.push(progress.cost_micros);
            }
            DeltaBody::Done { .. } => break,
            _ => {}
        }
    }
    let expected = [
        "step 0 of resolve_router",
        "step 0 of PLAN",
        "step 0 of DO, T001, 0 of 3 done",
        "step 1 of DO, T001, 0 of 3 done",
        "step 0 of DO, T002, 0 of 3 done",
        "step 0 of CHECK, 0 of 3 done",
        "step 0 of ADJUST, T001, 0 of 3 done",
        "step 0 of DO, T001, 0 of 3 done",
        "step 0 of CHECK, 0 of 3 done",
    ];
    assert_eq!(told, expected);
    assert!(costs[0] == 0 && costs.is_sorted_by(|a, b| a < b), "{costs:?}");
    Ok(())
}

#[tokio::test]
async fn an_api_client_gets_the_last_thing_that_was_said() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(play);
    let _runner = world.runner().await?;

    assert_eq!(world.ask("s", "write the text and the note").await?, "All is done.");

    world.model.answer(|asked| match behavior_of(asked) {
        "route" => play(asked),
        _ => result(&json!({"next_behavior": "END"})),
    });
    assert_eq!(world.ask("s", "again").await?, "On it.");
    Ok(())
}

#[tokio::test]
async fn a_behaviour_that_only_reads_cannot_write_whatever_its_model_wants() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    let write = || json!({"path": "x.txt", "content": "x"});
    world.model.answer(move |asked| match asked.tool_results().is_empty() {
        true => Reply::call("w", "write", write().to_string()),
        false => result(&json!({
            "actions": [{"tool": "write", "input": write()}],
            "reply": "it was refused",
            "next_behavior": "END",
        })),
    });
    let _runner = world.runner().await?;

    let sent = world.say("s", "plan this").await?;

    assert_eq!(world.text(&sent).await?, "it was refused");
    assert_eq!(world.file("people/api=s/x.txt").await?, None);
    let failed = world.journal(sent.session).await?.into_iter().filter(
        |entry| matches!(entry, Entry::Returned { failed: true, output, .. } if output.contains("nowhere")),
    );
    assert_eq!(failed.count(), 2);
    Ok(())
}

#[tokio::test]
async fn what_a_command_writes_in_a_step_that_only_reads_is_not_kept() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    world.model.queue([
        exec("echo made > planned.txt && cat planned.txt"),
        result(&json!({"next_behavior": "DO"})),
        exec("echo made > done.txt"),
        result(&json!({"reply": "both ran", "next_behavior": "END"})),
    ]);
    let _runner = world.runner_with(walled(&world), |app| app).await?;

    let sent = world.send(owner(&world, "do this")).await?;

    assert_eq!(world.text(&sent).await?, "both ran");
    let told = returned(&world, &sent).await?.remove(0);
    assert!(told.contains("made") && told.contains("were not kept"), "{told}");
    assert_eq!(world.file("planned.txt").await?, None);
    assert_eq!(world.file("done.txt").await?.as_deref(), Some("made\n"));
    Ok(())
}

#[tokio::test]
async fn an_action_of_a_step_waits_for_its_approval_and_is_made_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    world.model.answer(|asked| match input(asked).contains("launched rocket") {
        false => result(&json!({"actions": [{"tool": "launch", "input": {"what": "rocket"}}]})),
        true => result(&json!({"reply": "it flies", "next_behavior": "END"})),
    });
    let launch = Launch::default();
    let shared = launch.clone();
    let _runner = world.runner_with(world.config(), |app| app.with_tool(shared)).await?;

    let sent = world.send(world.on_channel("s", "launch it")).await?;
    let pending = ApprovalFilter {
        state: Some(ApprovalState::Pending),
        session: None,
        person: None,
        limit: 5,
        after: None,
    };
    let list = async || world.sessions.approvals().list(world.tenant, pending).await;
    world.until("somebody is asked", async || list().await.is_ok_and(|all| all.len() == 1)).await?;
    assert_eq!(world.state_of(sent.session).await?, SessionState::WaitForEvent);
    assert_eq!((world.model.count(), launch.made().len()), (1, 0));
    let (id, once) = (list().await?[0].id, ApprovalDecision::Once);
    if world
        .sessions
        .approvals()
        .resolve(world.tenant, id, holdfast_session::NewDecision::new(once, "key_test"))
        .await?
        .wake
    {
        world.bus.wake_run(0);
    }

    assert_eq!(world.text(&sent).await?, "it flies");
    assert_eq!(launch.made(), ["rocket"]);
    assert_eq!(world.model.count(), 2);
    Ok(())
}

#[tokio::test]
async fn a_session_that_waits_for_a_message_is_woken_by_that_one_only_and_asks_no_model_before()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    world.model.answer(|asked| match input(asked).contains("yes") {
        false => result(&json!({
            "reply": "Really?",
            "next_behavior": "WAIT_FOR_MSG",
            "wait_details": {"filter": {"contains": "yes"}},
        })),
        true => result(&json!({"reply": "Then so be it.", "next_behavior": "END"})),
    });
    let _runner = world.runner().await?;

    let first = world.say("s", "delete all").await?;
    assert_eq!(world.text(&first).await?, "Really?");
    assert_eq!(world.state_of(first.session).await?, SessionState::WaitForMsg);
    let other = world.say("s", "hm").await?;
    let silent = Body { silent: true, ..Body::text("psst") };
    world.send(NewMessage { body: silent, ..world.message("s", "") }).await?;
    assert_eq!(world.ask("t", "yes, another one").await?, "Then so be it.");
    assert_eq!(world.model.count(), 2);
    assert_eq!(world.state_of(first.session).await?, SessionState::WaitForMsg);

    let yes = world.say("s", "yes").await?;
    assert_eq!(world.text(&yes).await?, "Then so be it.");
    assert_eq!(world.outcome(&other).await?, Some(TurnOutcome::Completed));
    assert_eq!(world.model.count(), 3);
    Ok(())
}

#[tokio::test]
async fn a_wait_ends_with_its_deadline_and_the_step_is_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    world.model.answer(|asked| match input(asked).contains("the wait is over") {
        false => result(&json!({
            "next_behavior": "WAIT",
            "wait_details": {"deadline_ms": 300, "filter": {"contains": "answer"}, "note": "ada's word"},
        })),
        true => result(&json!({"reply": "Nobody said anything.", "next_behavior": "END"})),
    });
    let _runner = world.runner().await?;

    let sent = world.send(world.on_channel("s", "ask ada")).await?;
    world.text(&sent).await?;

    world
        .until("the deadline passes", async || {
            world.told_in(sent.session).await.is_ok_and(|told| told == ["Nobody said anything."])
        })
        .await?;
    assert_eq!(world.model.count(), 2);
    assert!(input(&world.model.requests()[1]).contains("the wait is over: ada's word"));
    Ok(())
}

#[tokio::test]
async fn an_event_wakes_whoever_waits_for_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    let filter = MessageFilter { event: Some("todo.*".to_owned()), ..MessageFilter::default() };
    world.model.answer(move |asked| match input(asked).contains("[event todo.changed]") {
        false => result(&json!({
            "next_behavior": "WAIT_FOR_EVENT", "wait_details": {"filter": filter}
        })),
        true => result(&json!({"reply": "I see.", "next_behavior": "END"})),
    });
    let _runner = world.runner().await?;
    world.text(&world.say("s", "watch the todos").await?).await?;

    let event = |name: &str| Body { event: Some(name.to_owned()), ..Body::text("T001 is done") };
    // Neither another event nor a message ends the wait, and none of them asks a model.
    let other =
        world.send(NewMessage { body: event("mail.new"), ..world.message("s", "") }).await?;
    world.say("s", "hello?").await?;
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    assert_eq!(world.state_of(other.session).await?, SessionState::WaitForEvent);
    assert_eq!((world.outcome_now(&other).await?, world.model.count()), (None, 1));

    let body = event("todo.changed");
    let told = world.send(NewMessage { body, ..world.message("s", "") }).await?;

    assert_eq!(world.text(&told).await?, "I see.");
    assert_eq!(world.outcome(&other).await?, Some(TurnOutcome::Completed));
    assert_eq!(world.model.count(), 2);
    Ok(())
}

#[tokio::test]
async fn a_wait_for_an_event_ends_with_its_deadline() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    world.model.answer(|asked| match input(asked).contains("the wait is over") {
        false => result(&json!({
            "next_behavior": "WAIT_FOR_EVENT",
            "wait_details": {
                "deadline_ms": 2_000, "filter": {"event": "todo.changed"}, "note": "the painter",
            },
        })),
        true => result(&json!({"reply": "Nothing came.", "next_behavior": "END"})),
    });
    let _runner = world.runner().await?;

    let begun = std::time::Instant::now();
    let sent = world.send(world.on_channel("s", "wait for the painter")).await?;
    world.text(&sent).await?;
    let state = world.state_of(sent.session).await?;
    // On a slow machine the deadline may be over.
    if begun.elapsed() < std::time::Duration::from_secs(2) {
        assert_eq!(state, SessionState::WaitForEvent);
    }

    world
        .until("the deadline passes", async || {
            world.told_in(sent.session).await.is_ok_and(|told| told == ["Nothing came."])
        })
        .await?;
    assert_eq!(world.model.count(), 2);
    assert!(input(&world.model.requests()[1]).contains("the wait is over: the painter"));
    assert_eq!(world.state_of(sent.session).await?, SessionState::Wait);
    Ok(())
}

#[tokio::test]
async fn the_router_opens_a_session_for_work_which_answers_where_the_message_came_from()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(|asked| match behavior_of(asked) {
        "route" => result(&json!({
            "next_behavior": "PLAN", "reply": "I open a session for this.", "memory_queries": [],
            "new_session": {"title": "The text", "description": "Write the text and the note."},
        })),
        _ => play(asked),
    });
    let _runner = world.runner().await?;

    let sent = world.send(world.on_channel("s", "write the text and the note")).await?;
    assert_eq!(world.text(&sent).await?, "I open a session for this.");
    // The two sessions write side by side, so their deliveries are in no certain order.
    let all = "select body from session.deliveries order by body";
    world
        .until("the work is done", async || {
            world.texts(all).await.is_ok_and(|told| told.iter().any(|text| text == "All is done."))
        })
        .await?;

    assert_eq!(world.texts(all).await?, ["All is done.", "I open a session for this."]);
    let work = "select key from session.sessions where kind = 'work'";
    assert_eq!(world.texts(work).await?.len(), 1);
    assert_eq!(world.asked_as("route").len(), 1);
    assert!(input(&world.asked_as("plan")[0]).contains("Write the text and the note."));
    Ok(())
}

#[tokio::test]
async fn work_of_another_conversation_cannot_be_routed_to() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    let routed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&routed);
    world.model.answer(move |asked| {
        if behavior_of(asked) != "route" || input(asked).contains("no session for work") {
            return result(&json!({
                "next_behavior": "END", "reply": "There is none.", "memory_queries": []
            }));
        }
        count.fetch_add(1, Ordering::SeqCst);
        result(&json!({
            "next_behavior": null, "reply": null, "memory_queries": [],
            "route_session_id": "agent:main:work:of-somebody-else",
        }))
    });
    let _runner = world.runner().await?;

    assert_eq!(world.ask("s", "go on").await?, "There is none.");

    assert_eq!(routed.load(Ordering::SeqCst), 1);
    let work = "select count(*) from session.sessions where kind = 'work'";
    assert_eq!(world.number(work).await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_step_remembers_looks_up_and_names_its_session() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    let memory = world.memory().await?;
    world.model.answer(|asked| match input(asked).contains("memory_search") {
        false => result(&json!({
            "set_memory": {"tea": "green"},
            "memory_queries": ["what tea does she drink"],
            "session_delta": {"title": "About tea", "tags": [" tea\n", "tea", "a".repeat(65)]},
        })),
        true => result(&json!({"reply": "noted", "next_behavior": "END"})),
    });
    let _runner = world.runner_with(world.config_with(&memory), |app| app).await?;

    let sent = world.say("s", "I drink green tea").await?;

    assert_eq!(world.text(&sent).await?, "noted");
    let values = "select subject || ' ' || content from memory.items where subject = 'tea'";
    assert_eq!(world.texts(values).await?, [r#"tea "green""#]);
    let label = "select given_label from session.sessions where given_label is not null";
    assert_eq!(world.texts(label).await?, ["About tea"]);
    let tags = ["tea".to_owned(), "a".repeat(64)];
    assert_eq!(world.behavior_state(sent.session).await?["tags"], json!(tags));
    let filter =
        SessionFilter { tag: Some("tea".to_owned()), limit: 10, ..SessionFilter::default() };
    let listed = world.sessions.views().sessions(world.tenant, filter).await?;
    assert_eq!(listed.iter().map(|one| one.id).collect::<Vec<_>>(), [sent.session]);
    assert_eq!(listed[0].tags, tags);
    let told = input(&world.model.requests()[1]);
    assert!(told.contains("<result tool=\"memory_search\""), "{told}");
    Ok(())
}

#[tokio::test]
async fn after_a_reset_the_conversation_begins_with_its_first_behaviour() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(|asked| match behavior_of(asked) {
        "route" => play(asked),
        _ => result(&json!({"reply": "Which text?", "next_behavior": "WAIT"})),
    });
    let _runner = world.runner().await?;
    let sent = world.say("s", "write the text").await?;
    assert_eq!(world.text(&sent).await?, "Which text?");
    assert_eq!(world.behavior_state(sent.session).await?["behavior"], json!("PLAN"));

    world.text(&world.send(world.owners_reset("s")).await?).await?;

    assert!(world.behavior_state(sent.session).await.is_err());
    assert_eq!(world.ask("s", "another one").await?, "Which text?");
    assert_eq!(world.asked_as("route").len(), 2);
    Ok(())
}

impl World {
    fn owners_reset(&self, session: &str) -> NewMessage {
        self.message(session, "/reset")
    }
}

#[tokio::test]
async fn a_policy_of_the_tenant_goes_before_the_toolbox_of_a_behaviour() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "do".to_owned()).await?;
    let document = json!({"deny": ["write"]});
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &document).await?;
    world.model.answer(|asked| match input(asked).contains("<result tool=\"write\"") {
        false => result(&json!({
            "actions": [{"tool": "write", "input": {"path": "x.txt", "content": "x"}}]
        })),
        true => result(&json!({"reply": "refused", "next_behavior": "END"})),
    });
    let _runner = world.runner().await?;

    assert_eq!(world.ask("s", "write").await?, "refused");

    assert_eq!(world.file("people/api=s/x.txt").await?, None);
    assert!(!world.model.requests()[0].tool_names().contains(&"write"));
    Ok(())
}
