//! Property test: the log of operations gives the list, which is that of a simple model.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::{
    BehaviorRole, NewTodo, SessionId, TodoInit, TodoKind, TodoNoteKind, TodoOperation, TodoStatus,
};
use holdfast_work::{Actor, ActorKind, Place, Todo, TodoFilter, TodoList, apply_todos, todo_page};
use jiff::Timestamp;
use proptest::{prelude::*, test_runner::TestRunner};
use sqlx::types::Json;

use crate::world::{World, init, task};

const STATUSES: [TodoStatus; 6] = [
    TodoStatus::Wait,
    TodoStatus::InProgress,
    TodoStatus::Complete,
    TodoStatus::Failed,
    TodoStatus::Done,
    TodoStatus::CheckFailed,
];

type Call = (Actor, Vec<TodoOperation>);

pub fn actor() -> impl Strategy<Value = Actor> {
    let role = prop_oneof![
        Just(BehaviorRole::Plan),
        Just(BehaviorRole::Do),
        Just(BehaviorRole::Check),
        Just(BehaviorRole::Adjust),
        Just(BehaviorRole::Other),
        Just(BehaviorRole::Route),
    ];
    let kind = prop_oneof![
        4 => Just(ActorKind::RootAgent),
        1 => Just(ActorKind::SubAgent),
        2 => Just(ActorKind::User),
        1 => Just(ActorKind::System),
    ];
    (kind, prop::option::weighted(0.7, role)).prop_map(|(kind, role)| {
        let role = role.filter(|_| !matches!(kind, ActorKind::User | ActorKind::System));
        Actor { kind, name: "painter".to_owned(), role, has_outside_text: false }
    })
}

pub fn item() -> impl Strategy<Value = NewTodo> {
    (0_u8..4, prop::option::weighted(0.3, prop::collection::vec(1_u32..6, 0..3)), any::<bool>())
        .prop_map(|(kind, deps, is_assigned)| NewTodo {
            kind: if kind == 0 { TodoKind::Bench } else { TodoKind::Task },
            deps: deps.map(|deps| deps.iter().map(|dep| format!("T{dep:03}")).collect()),
            assignee: is_assigned.then(|| "painter".to_owned()),
            ..task("something")
        })
}

pub fn operation() -> impl Strategy<Value = TodoOperation> {
    let code = || (1_u32..8).prop_map(|number| format!("T{number:03}"));
    let items = prop::collection::vec(item(), 0..4);
    let mode = prop_oneof![1 => Just(TodoInit::Replace), 3 => Just(TodoInit::Merge)];
    prop_oneof![
        2 => (mode, items).prop_map(|(mode, items)| TodoOperation::Init { mode, items }),
        12 => (code(), 0_usize..6).prop_map(|(code, to)| TodoOperation::Update {
            code,
            to_status: Some(STATUSES[to]),
            priority: None,
            reason: "as it is".to_owned(),
        }),
        3 => (code(), -2_i32..3, any::<bool>()).prop_map(|(code, priority, is_done)| {
            TodoOperation::Update {
                code,
                to_status: is_done.then_some(TodoStatus::Done),
                priority: Some(priority),
                reason: "as it is".to_owned(),
            }
        }),
        2 => (code(), "[ -~é]{0,5}").prop_map(|(code, text)| TodoOperation::Note {
            code,
            kind: TodoNoteKind::Result,
            text,
        }),
    ]
}

/// A todo of the model: kind, status, what it waits for, whether a subagent does it, attempts.
#[derive(Debug, Clone, PartialEq)]
struct Item {
    kind: TodoKind,
    status: TodoStatus,
    deps: BTreeSet<u32>,
    is_assigned: bool,
    priority: i32,
    attempts: u32,
    notes: usize,
}

type Model = BTreeMap<u32, Item>;

fn number(code: &str) -> u32 {
    code[1..].parse().unwrap_or_default()
}

/// Does the operation to the model. Returns whether it may be done.
fn expect(model: &mut Model, actor: &Actor, operation: &TodoOperation) -> bool {
    let is_user = matches!(actor.kind, ActorKind::User | ActorKind::System);
    match operation {
        TodoOperation::Init { mode, items } => {
            let is_planner = actor.kind == ActorKind::RootAgent
                && matches!(actor.role, None | Some(BehaviorRole::Plan));
            if !is_user && !is_planner {
                return false;
            }
            let mut after = if *mode == TodoInit::Replace { Model::new() } else { model.clone() };
            for item in items {
                let own = u32::try_from(after.len()).unwrap_or_default() + 1;
                let last = after.iter().rfind(|(_, item)| item.kind == TodoKind::Task);
                let deps = match &item.deps {
                    Some(deps) => deps.iter().map(|code| number(code)).collect::<BTreeSet<_>>(),
                    None if item.kind == TodoKind::Task => {
                        last.map(|(at, _)| *at).into_iter().collect()
                    }
                    None => BTreeSet::new(),
                };
                if deps.iter().any(|dep| *dep >= own) {
                    return false;
                }
                let is_assigned = item.assignee.is_some();
                let (kind, status) = (item.kind, TodoStatus::Wait);
                let (priority, attempts, notes) = (item.priority, 0, 0);
                let item = Item { kind, status, deps, is_assigned, priority, attempts, notes };
                after.insert(own, item);
            }
            *model = after;
            true
        }
        TodoOperation::Note { code, text, .. } => {
            let Some(item) = model.get_mut(&number(code)) else { return false };
            let is_theirs = actor.kind != ActorKind::SubAgent || item.is_assigned;
            let may = is_theirs && !text.trim().is_empty();
            item.notes += usize::from(may);
            may
        }
        TodoOperation::Update { code, to_status, priority, .. } => {
            let own = number(code);
            let Some(item) = model.get(&own).cloned() else { return false };
            let may_set = to_status.is_none_or(|to| match actor.kind {
                ActorKind::User | ActorKind::System => item.status != to,
                ActorKind::RootAgent => agent_may(model, own, actor.role, to),
                ActorKind::SubAgent => {
                    let role = actor.role.unwrap_or(BehaviorRole::Do);
                    item.is_assigned && agent_may(model, own, Some(role), to)
                }
            });
            let may_prioritize = actor.kind != ActorKind::SubAgent
                && (is_user
                    || matches!(
                        actor.role,
                        None | Some(BehaviorRole::Plan | BehaviorRole::Adjust)
                    ));
            let may = may_set && (priority.is_none() || may_prioritize);
            if may && let Some(item) = model.get_mut(&own) {
                item.status = to_status.unwrap_or(item.status);
                item.priority = priority.unwrap_or(item.priority);
                item.attempts += u32::from(*to_status == Some(TodoStatus::InProgress));
            }
            may
        }
    }
}

fn agent_may(model: &Model, own: u32, role: Option<BehaviorRole>, to: TodoStatus) -> bool {
    use BehaviorRole as R;
    use TodoStatus as S;
    let item = &model[&own];
    let has = |wanted: R| role.is_none_or(|role| role == wanted);
    let is_open = |at: &u32| !matches!(model[at].status, S::Complete | S::Done);
    let waits = item.deps.iter().any(is_open)
        || item.kind == TodoKind::Bench
            && model.range(..own).any(|(at, other)| other.kind == TodoKind::Task && is_open(at));
    match (item.kind, item.status, to) {
        (TodoKind::Task, S::Wait | S::InProgress | S::CheckFailed, S::InProgress) => {
            has(R::Do) && !waits
        }
        (TodoKind::Task, S::InProgress, S::Complete) => has(R::Do),
        (TodoKind::Task, S::InProgress, S::Failed) => has(R::Do) && item.attempts >= 2,
        (TodoKind::Task, S::Complete, S::Done | S::CheckFailed) => has(R::Check),
        (TodoKind::Bench, S::Wait, S::Done | S::CheckFailed) => has(R::Check) && !waits,
        (_, S::Failed | S::CheckFailed, S::Wait) => has(R::Adjust),
        _ => false,
    }
}

/// Makes the list again from its log.
async fn replayed(world: &World, list: SessionId) -> anyhow::Result<TodoList> {
    const SQL: &str = "
        select actor, ops, (extract(epoch from at) * 1000000)::bigint from work.todo_ops
        where tenant_id = $1 and list_id = $2 order by seq";
    let mut tx = world.tx().await?;
    let log: Vec<(Json<Actor>, Json<Vec<TodoOperation>>, i64)> = holdfast_pg::query_as(SQL)
        .bind(world.tenant.as_uuid())
        .bind(list.as_uuid())
        .fetch_all(tx.conn())
        .await?;
    let mut again = TodoList::default();
    for (Json(actor), Json(ops), at) in log {
        for op in &ops {
            drop(again.apply(&actor, op, Timestamp::from_microsecond(at)?));
        }
    }
    Ok(again)
}

async fn check(world: &World, calls: &[Call]) -> anyhow::Result<()> {
    let list = SessionId::generate();
    world.add_session(world.tenant, list).await?;
    let place = Place::outside(list, world.agent);
    let mut model = Model::new();
    for (at, (actor, ops)) in calls.iter().enumerate() {
        let wanted: Vec<bool> = ops.iter().map(|op| expect(&mut model, actor, op)).collect();
        let mut tx = world.tx().await?;
        let results = apply_todos(&mut tx, &place, actor, &at.to_string(), ops).await?;
        tx.commit().await?;
        let got: Vec<bool> = results.iter().map(Result::is_ok).collect();
        anyhow::ensure!(got == wanted, "{actor:?} {ops:?}: {results:?}, wanted {wanted:?}");
    }
    let mut tx = world.tx().await?;
    let page = todo_page(&mut tx, list, TodoFilter::All, (None, 1_000)).await?;
    tx.finish_reading();
    let stored: Model = page.todos.iter().map(|todo| (todo.number, to_item(todo))).collect();
    anyhow::ensure!(stored == model, "{stored:?}, wanted {model:?}");
    let again = replayed(world, list).await?;
    anyhow::ensure!(again.todos().eq(page.todos.iter()), "the log gives {again:?}");
    anyhow::ensure!(page.counts.total() as usize == model.len());
    Ok(())
}

fn to_item(todo: &Todo) -> Item {
    Item {
        kind: todo.kind,
        status: todo.status,
        deps: todo.deps.iter().copied().collect(),
        is_assigned: todo.assignee.is_some(),
        priority: todo.priority,
        attempts: todo.attempts,
        notes: todo.notes.len(),
    }
}

#[test]
fn the_log_of_any_operations_gives_the_list_and_the_list_is_that_of_the_model() -> anyhow::Result<()>
{
    let runtime = tokio::runtime::Runtime::new()?;
    let world = runtime.block_on(World::start())?;
    let items = prop::collection::vec(item(), 1..6);
    let calls = prop::collection::vec((actor(), prop::collection::vec(operation(), 1..4)), 1..20);
    let config =
        ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&(items, calls), |(items, mut calls)| {
        let user = Actor {
            kind: ActorKind::User,
            name: "anna".to_owned(),
            role: None,
            has_outside_text: false,
        };
        calls.insert(0, (user, vec![init(items)]));
        let checked = runtime.block_on(check(&world, &calls));
        checked.map_err(|error| TestCaseError::fail(format!("{error:#}")))
    })?;
    Ok(())
}
