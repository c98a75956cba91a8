//! Todos, worklogs, tasks and the ledger over gRPC, with permissions of their own.

use holdfast_proto::gateway::v1::{
    self as pb, ApplyTodosRequest, ApplyTodosResponse, GetTaskTreeRequest, GetTodoRequest,
    GetTodoViewRequest, ListLedgerRequest, ListTodosRequest, ListWorklogRequest,
    VerifyLedgerRequest, work_client::WorkClient,
};
use holdfast_types::{RunId, SessionId, Usage};
use holdfast_work::{ActionRecord, ModelCall, Place, StepRecord, Work, record_step};
use serde_json::{Value, json};
use tonic::{Code, Status, transport::Channel};

use crate::world::{Tenant, World, message};

async fn client(world: &World) -> WorkClient<Channel> {
    WorkClient::new(world.channel().await.unwrap())
}

async fn apply(
    world: &World,
    by: &Tenant,
    session: &str,
    operations: Value,
    request_id: &str,
) -> Result<ApplyTodosResponse, Status> {
    let request = ApplyTodosRequest {
        session: session.to_owned(),
        operations: operations.to_string(),
        request_id: request_id.to_owned(),
    };
    Ok(client(world).await.apply_todos(by.request(request)).await?.into_inner())
}

async fn session(world: &World) -> String {
    world.stream(&world.anna, message("hi")).await.unwrap()[0].session_id.clone()
}

fn plan() -> Value {
    let items = json!([
        {"title": "dig", "description": "deep", "skills": ["shovel"]},
        {"title": "plant", "assignee": "gardener", "deps": []},
        {"title": "is it green?", "type": "bench"},
    ]);
    json!([{"op": "init", "mode": "replace", "items": items}])
}

#[tokio::test]
async fn a_list_is_planned_changed_and_shown_over_grpc() {
    let world = World::start().await.unwrap();
    let session = session(&world).await;
    let mut work = client(&world).await;

    let first = apply(&world, &world.anna, &session, plan(), "plan").await.unwrap();
    let again = apply(&world, &world.anna, &session, plan(), "plan").await.unwrap();
    let change = json!([
        {"op": "update", "code": "T001", "to_status": "DONE", "reason": "dug by hand"},
        {"op": "note", "id": "T002", "kind": "result", "text": "roses"},
        {"op": "update", "code": "T009", "to_status": "DONE", "reason": "x"},
        {"op": "update", "code": "T002", "to_status": "DONE"},
        {"op": "init", "mode": "merge", "items": [{"title": "x".repeat(257)}]},
        {"op": "update", "code": "T003", "priority": -1},
    ]);
    let changed = apply(&world, &world.anna, &session, change, "").await.unwrap();

    assert!(first.results[0].applied);
    assert_eq!(first, again);
    let errors: Vec<&str> = changed.results.iter().map(|result| result.error.as_str()).collect();
    assert_eq!(errors, ["", "", "NOT_FOUND", "INVALID", "INVALID", ""]);

    let list = ListTodosRequest { session: session.clone(), ..Default::default() };
    let listed = work.list_todos(world.anna.request(list.clone())).await.unwrap().into_inner();
    let todos: Vec<(&str, &str, &str)> = listed
        .todos
        .iter()
        .map(|todo| (todo.code.as_str(), todo.status.as_str(), todo.r#type.as_str()))
        .collect();
    assert_eq!(
        todos,
        [("T001", "DONE", "task"), ("T002", "WAIT", "task"), ("T003", "WAIT", "bench")]
    );
    assert_eq!(
        (listed.todos[0].skills.as_slice(), listed.next.as_str()),
        (&["shovel".into()][..], "")
    );
    // The most urgent first: the column that orders them has the new priority, too.
    let urgent = ListTodosRequest { status: "WAIT".into(), ..list.clone() };
    let urgent = work.list_todos(world.anna.request(urgent)).await.unwrap().into_inner().todos;
    let urgent: Vec<(&str, i32)> =
        urgent.iter().map(|todo| (todo.code.as_str(), todo.priority)).collect();
    assert_eq!(urgent, [("T003", -1), ("T002", 0)]);
    let page = ListTodosRequest { limit: 1, pending: true, ..list.clone() };
    let page = work.list_todos(world.anna.request(page)).await.unwrap().into_inner();
    assert_eq!((page.todos[0].code.as_str(), page.next.as_str()), ("T002", "T002"));
    let get = GetTodoRequest { session: session.clone(), code: "T002".into() };
    let found = work.get_todo(world.anna.request(get)).await.unwrap().into_inner();
    assert!(found.details.contains("result by"), "{}", found.details);
    assert_eq!(found.todo.unwrap().notes[0].text, "roses");

    let view = GetTodoViewRequest { session: session.clone(), budget_tokens: 0 };
    let view = work.get_todo_view(world.anna.request(view)).await.unwrap().into_inner();
    // The gardener's todo is nothing for the agent itself.
    assert_eq!((view.next.as_str(), view.ready_bench.as_str()), ("", ""));
    assert!(view.text.contains("- T002 WAIT: plant (assigned to gardener)"), "{}", view.text);

    for (wrong, code) in [
        (ListTodosRequest { limit: 129, ..list.clone() }, Code::InvalidArgument),
        (ListTodosRequest { status: "done".into(), ..list.clone() }, Code::InvalidArgument),
        (ListTodosRequest { after: "none".into(), ..list.clone() }, Code::NotFound),
        (ListTodosRequest { session: String::new(), ..list }, Code::InvalidArgument),
    ] {
        let refused = work.list_todos(world.anna.request(wrong)).await.unwrap_err();
        assert_eq!(refused.code(), code, "{}", refused.message());
    }
    let refused = apply(&world, &world.anna, &session, json!({"op": "init"}), "").await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn what_a_step_did_is_listed_as_worklog_tree_and_ledger_and_each_needs_its_permission() {
    let world = World::start().await.unwrap();
    let session = session(&world).await;
    let id: SessionId = session.parse().unwrap();
    let agent = world.directory.agents().default_agent(world.anna.id).await.unwrap();
    let place = Place {
        run: Some(RunId::from(id.as_uuid())),
        behavior: "DO".to_owned(),
        step: 2,
        ..Place::outside(id, agent.id)
    };
    let step = StepRecord {
        summary: "dug a hole".to_owned(),
        model_calls: vec![ModelCall {
            model: "demo".to_owned(),
            usage: Usage { input: 10, output: 5, ..Usage::default() },
            micros: 42,
            ..ModelCall::default()
        }],
        actions: vec![ActionRecord { tool: "exec".to_owned(), ..ActionRecord::default() }],
        ..StepRecord::default()
    };
    let mut tx = world.pools.tenant(world.anna.id).await.unwrap();
    record_step(&mut tx, &place, &step).await.unwrap();
    tx.commit().await.unwrap();
    let mut work = client(&world).await;

    let list = ListWorklogRequest { session: session.clone(), ..Default::default() };
    let listed = work.list_worklog(world.anna.request(list)).await.unwrap().into_inner();
    let newest = &listed.records[0];
    assert_eq!(newest.digest, "DO step 2 (OK, 15 tokens, $0.000042): dug a hole");
    assert_eq!((newest.agent.as_str(), newest.commit_state.as_str()), ("main", "COMMITTED"));
    let tree = GetTaskTreeRequest { session: session.clone(), steps: 0 };
    let tree = work.get_task_tree(world.anna.request(tree)).await.unwrap().into_inner();
    let kinds: Vec<&str> = tree.tasks.iter().map(|task| task.kind.as_str()).collect();
    assert_eq!(kinds, ["step", "model", "tool", "result"]);
    assert!(tree.tasks[1..].iter().all(|task| task.parent_id == tree.tasks[0].id));
    assert_eq!(tree.tasks[1].cost_micros, 42);
    let ledger = Work::new(world.pools.clone()).ledger();
    ledger.chain(world.anna.id, 10).await.unwrap();
    let list = ListLedgerRequest { session: session.clone(), ..Default::default() };
    let listed = work.list_ledger(world.anna.request(list.clone())).await.unwrap().into_inner();
    let names: Vec<&str> = listed.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["exec", "demo"]);
    let check = work.verify_ledger(world.anna.request(VerifyLedgerRequest {})).await;
    let check = check.unwrap().into_inner();
    assert_eq!((check.entries, check.unchained, check.broken_at), (2, 0, 0));
    assert_eq!(check.head, listed.entries[0].hash);

    // Who reads conversations reads worklogs, and not the ledger; who reads changes no todos.
    let reader = world.key(&world.anna, &["read"], None).await.unwrap();
    let reader = world.anna.by(&reader);
    let read = ListWorklogRequest { session: session.clone(), ..Default::default() };
    work.list_worklog(reader.request(read)).await.unwrap();
    let refused = work.list_ledger(reader.request(list)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let refused = work.verify_ledger(reader.request(VerifyLedgerRequest {})).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let refused = apply(&world, &reader, &session, plan(), "").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_changed_list_is_an_event_of_its_session() {
    let world = World::start().await.unwrap();
    let session = session(&world).await;
    apply(&world, &world.anna, &session, plan(), "").await.unwrap();
    crate::events::log_events(&world).await;

    let filter = pb::EventFilter { types: vec!["todo.".into()], ..Default::default() };
    let request = crate::events::earliest(filter);
    let events = crate::events::read(&world, &world.anna, request).await.unwrap();

    let event = &events[0];
    assert_eq!(
        (event.r#type.as_str(), event.session_id.as_str()),
        ("todo.changed", session.as_str())
    );
    let data: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!(data, json!({"todos": "T001,T002,T003", "changes": 1, "by": "user"}));
}
