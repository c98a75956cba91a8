//! Reads of a list of 10,000 todos, against one of 100: in a database of its own, alternately.

use std::time::Duration;

use holdfast_session::{NewMessage, Sessions};
use holdfast_types::{
    AgentId, AgentName, Body, NewTodo, QueueMode, SessionId, SessionKey, Source, TenantId,
    TodoInit, TodoOperation, TodoStatus,
};
use holdfast_work::{Actor, ActorKind, Place, TodoFilter, Work};
use tokio::time::Instant;

use crate::{
    Pace,
    mesh::Mesh,
    report::{Line, Unit},
    stats::Samples,
};

const SMALL: u32 = 100;
const LARGE: u32 = 10_000;

/// Todos of a page, as the gateway returns them.
const PAGE: u32 = 32;

/// Budget of the list in a prompt.
const RENDER_TOKENS: usize = 1_600;

/// A list of which the first half is done.
#[derive(Debug, Clone, Copy)]
struct List {
    id: SessionId,
    tenant: TenantId,
    agent: AgentId,
    todos: u32,
}

#[derive(Debug, Clone, Copy)]
enum Use {
    /// A page of all todos, from the middle of the list.
    List,
    /// A page of the todos that are not finished.
    Pending,
    Next,
    Render,
    /// A todo is begun, and reset.
    Change,
}

impl Use {
    const ALL: [(Self, &str); 5] = [
        (Self::List, "list"),
        (Self::Pending, "list of unfinished ones"),
        (Self::Next, "next"),
        (Self::Render, "render"),
        (Self::Change, "change of one"),
    ];
}

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let (_database, pools) = mesh.empty_database().await?;
    let (sessions, work) = (Sessions::new(pools.clone()), Work::new(pools));
    let (tenant, agent) = (TenantId::generate(), AgentId::generate());
    let mut lists = Vec::new();
    for todos in [SMALL, LARGE] {
        let key = SessionKey::main(&AgentName::new(&format!("todos-{todos}")));
        let id = sessions.ingest(tenant, message(key, agent)).await?.session;
        let list = List { id, tenant, agent, todos };
        make(&work, list).await?;
        lists.push(list);
    }
    let count = pace.count(500, 20);
    let mut lines = Vec::new();
    for (what, name) in Use::ALL {
        let mut times = [Vec::new(), Vec::new()];
        // A few more at the beginning, which prepare the statements.
        for nth in 0..count + 5 {
            for (times, list) in times.iter_mut().zip(&lists) {
                let took = time(&work, *list, what, nth).await?;
                if nth >= 5 {
                    times.push(took);
                }
            }
        }
        let [small, large] = times.map(|times| times.into_iter().collect::<Samples>().median());
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        lines.extend([
            Line::millis(format!("{name}, {SMALL} todos, p50"), small),
            Line::millis(format!("{name}, {LARGE} todos, p50"), large)
                .note(format!("{count} times each")),
            Line::new(format!("{name}: {LARGE} / {SMALL}"), ratio, Unit::Ratio).at_most(2.0),
        ]);
    }
    Ok(lines)
}

async fn make(work: &Work, list: List) -> anyhow::Result<()> {
    let items = (1..=list.todos).map(|number| NewTodo {
        title: format!("part {number} of the work"),
        ..Default::default()
    });
    let plan = TodoOperation::Init { mode: TodoInit::Replace, items: items.collect() };
    let done = (1..=list.todos / 2).map(|number| update(number, TodoStatus::Done));
    let operations: Vec<TodoOperation> = std::iter::once(plan).chain(done).collect();
    apply(work, list, "plan", &operations).await
}

async fn time(work: &Work, list: List, what: Use, nth: usize) -> anyhow::Result<Duration> {
    let List { id, tenant, todos, .. } = list;
    let middle = format!("T{:03}", todos / 2);
    let begun = Instant::now();
    match what {
        Use::List | Use::Pending => {
            let is_list = matches!(what, Use::List);
            let filter = if is_list { TodoFilter::All } else { TodoFilter::Pending };
            let after = Some(&*middle).filter(|_| is_list);
            let page = work.todos(tenant, id, filter, (after, PAGE)).await?;
            anyhow::ensure!(page.todos.len() == 32, "a page has {} todos", page.todos.len());
        }
        Use::Next => {
            let view = work.view(tenant, id).await?;
            anyhow::ensure!(view.next_ready().is_some(), "no todo is ready");
        }
        Use::Render => {
            let text = work.view(tenant, id).await?.render(RENDER_TOKENS);
            anyhow::ensure!(!text.is_empty(), "no todo is shown");
        }
        Use::Change => {
            let status =
                if nth.is_multiple_of(2) { TodoStatus::InProgress } else { TodoStatus::Wait };
            let operation = [update(todos / 2 + 1, status)];
            apply(work, list, &format!("change-{nth}"), &operation).await?;
        }
    }
    Ok(begun.elapsed())
}

async fn apply(
    work: &Work,
    list: List,
    key: &str,
    operations: &[TodoOperation],
) -> anyhow::Result<()> {
    let place = Place::outside(list.id, list.agent);
    let user = Actor {
        kind: ActorKind::User,
        name: "bench".to_owned(),
        role: None,
        has_outside_text: false,
    };
    for result in work.apply(list.tenant, &place, &user, (key, operations)).await? {
        result?;
    }
    Ok(())
}

fn update(number: u32, to_status: TodoStatus) -> TodoOperation {
    TodoOperation::Update {
        code: format!("T{number:03}"),
        to_status: Some(to_status),
        priority: None,
        reason: "as planned".to_owned(),
    }
}

fn message(key: SessionKey, agent: AgentId) -> NewMessage {
    NewMessage {
        // One message for each list.
        idem_key: key.to_string(),
        key,
        agent,
        label: None,
        source: Source::Internal("bench".to_owned()),
        body: Body::text("hello"),
        target: None,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: None,
    }
}
