//! Rollback of a step over gRPC: who may, what it says, and that a repetition changes nothing.

use holdfast_proto::gateway::v1::{
    ListAuditEventsRequest, ListWorklogRequest, RollBackStepRequest, RollBackStepResponse,
    VerifyLedgerRequest, audit_client::AuditClient, sessions_client::SessionsClient,
    work_client::WorkClient,
};
use holdfast_session::{NewStep, StepId, store_behavior, store_step};
use holdfast_types::{BehaviorRole, RunId, SessionId, TodoOperation};
use holdfast_work::{
    ActionRecord, Actor, ActorKind, ImpactLevel, Place, StepRecord, Work, apply_todos, record_step,
};
use holdfast_workspace::{Base, ChangeAuthor, Edit, Workspaces};
use serde_json::json;
use tonic::{Code, Status};

use crate::world::{Tenant, World, message};

/// Saves a step as a runner does: it has written a file, planned todos and sent a message.
async fn save_step(world: &World, session: SessionId) -> anyhow::Result<StepId> {
    let agent = world.directory.agents().default_agent(world.anna.id).await?;
    let run = RunId::generate();
    let place =
        Place { run: Some(run), behavior: "PLAN".to_owned(), ..Place::outside(session, agent.id) };
    let (path, content) = ("plan.md".parse()?, b"a plan".to_vec());
    let by = ChangeAuthor { run: Some(run), ..ChangeAuthor::new("main", "write") };
    let by = by.with_key(&format!("{session}:{run}:0:a"));
    let edit = Edit::Put { path, content, base: Base::Absent };
    let workspaces = Workspaces::new(world.pools.clone());
    workspaces.commit(world.anna.id, agent.id, &by, vec![edit]).await?;

    let mut tx = world.pools.tenant(world.anna.id).await?;
    let planner = Actor {
        kind: ActorKind::RootAgent,
        name: "main".to_owned(),
        role: Some(BehaviorRole::Plan),
        has_outside_text: false,
    };
    let todos: Vec<TodoOperation> =
        serde_json::from_value(json!([{"op": "init", "items": [{"title": "dig"}]}]))?;
    let operation = format!("{session}:{run}:2");
    apply_todos(&mut tx, &place, &planner, &operation, &todos).await?;
    let action = |tool: &str, impact| ActionRecord {
        tool: tool.to_owned(),
        impact,
        ..ActionRecord::default()
    };
    let record = StepRecord {
        summary: "planned".to_owned(),
        actions: vec![
            action("write", ImpactLevel::Internal),
            action("message", ImpactLevel::Internal),
            action("read", ImpactLevel::None),
        ],
        ..StepRecord::default()
    };
    let newest = record_step(&mut tx, &place, &record).await?;
    let id = StepId { run, first_thought: 0 };
    let state = json!({"behavior": "PLAN", "step": 0});
    let step = NewStep { id, behavior: "PLAN".to_owned(), step: 0, first_entry: 1, state };
    store_step(&mut tx, session, &step, newest).await?;
    store_behavior(&mut tx, session, &json!({"behavior": "DO", "step": 0})).await?;
    tx.commit().await?;
    Ok(id)
}

async fn roll_back(
    world: &World,
    by: &Tenant,
    request: RollBackStepRequest,
) -> Result<RollBackStepResponse, Status> {
    let mut sessions = SessionsClient::new(world.channel().await.unwrap());
    Ok(sessions.roll_back_step(by.request(request)).await?.into_inner())
}

#[tokio::test]
async fn a_step_is_rolled_back_once_by_whoever_may_manage_and_the_ledger_stays_whole() {
    let world = World::start().await.unwrap();
    let session = world.stream(&world.anna, message("hi")).await.unwrap()[0].session_id.clone();
    let request = RollBackStepRequest { session: session.clone(), ..Default::default() };
    let none = roll_back(&world, &world.anna, request.clone()).await.unwrap_err();
    assert_eq!(none.code(), Code::Aborted, "{none:?}");
    let id = save_step(&world, session.parse().unwrap()).await.unwrap();
    let todos = "select count(*) from work.todos";

    // Who talks to agents does not take back what they did.
    let member = world.key(&world.anna, &["chat", "read"], None).await.unwrap();
    let refused = roll_back(&world, &world.anna.by(&member), request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let wrong = RollBackStepRequest { step_id: "run_1.x".into(), ..request.clone() };
    assert_eq!(roll_back(&world, &world.anna, wrong).await.unwrap_err().code(), Code::NotFound);
    let other = StepId { run: RunId::generate(), first_thought: 0 };
    let other = RollBackStepRequest { step_id: other.to_string(), ..request.clone() };
    assert_eq!(roll_back(&world, &world.anna, other).await.unwrap_err().code(), Code::Aborted);
    let look = RollBackStepRequest { dry_run: true, ..request.clone() };
    let looked = roll_back(&world, &world.anna, look).await.unwrap();
    assert_eq!(world.number(todos).await.unwrap(), 1);

    let done = roll_back(&world, &world.anna, request.clone()).await.unwrap();

    assert_eq!(looked, done);
    assert_eq!((done.step_id.as_str(), done.behavior.as_str()), (&*id.to_string(), "PLAN"));
    assert_eq!((done.files.as_slice(), done.todo_operations), (&["plan.md".to_owned()][..], 1));
    let kept: Vec<&str> = done.not_undone.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(kept, ["message"]);
    assert_eq!(world.number(todos).await.unwrap(), 0);
    let state = "select state->>'behavior' from session.behaviors";
    assert_eq!(world.texts(state).await.unwrap(), ["PLAN"]);
    let again = RollBackStepRequest { step_id: id.to_string(), ..request };
    let repeated = roll_back(&world, &world.anna, again).await.unwrap();
    assert_eq!(repeated, RollBackStepResponse { repeated: true, ..done });

    let mut work = WorkClient::new(world.channel().await.unwrap());
    let list = ListWorklogRequest { session, ..Default::default() };
    let records = work.list_worklog(world.anna.request(list)).await.unwrap().into_inner().records;
    let states: Vec<(&str, &str)> = records
        .iter()
        .map(|record| (record.r#type.as_str(), record.commit_state.as_str()))
        .collect();
    assert_eq!(states[0], ("StepRolledBack.v1", "COMMITTED"));
    assert!(states[1..].iter().all(|(_, state)| *state == "ABORTED"), "{states:?}");
    assert!(records[0].digest.contains("done and not undone: message"), "{}", records[0].digest);
    let ledger = Work::new(world.pools.clone()).ledger();
    while ledger.chain(world.anna.id, 100).await.unwrap() > 0 {}
    let check = work.verify_ledger(world.anna.request(VerifyLedgerRequest {})).await;
    let check = check.unwrap().into_inner();
    assert_eq!((check.entries, check.unchained, check.broken_at), (4, 0, 0));
    let mut audit = AuditClient::new(world.channel().await.unwrap());
    let events = audit.list_audit_events(world.anna.request(ListAuditEventsRequest::default()));
    let events = events.await.unwrap().into_inner().events;
    assert!(events.iter().any(|event| event.method == "Sessions/RollBackStep"), "{events:?}");
}
