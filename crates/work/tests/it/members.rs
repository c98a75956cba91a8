//! Lists of workspaces: shared by the sessions that work there, and deleted with the workspace.

use holdfast_types::{BehaviorRole, RunId, SessionId, TodoStatus};
use holdfast_work::{
    JoinedList, Place, TodoFilter, Wakeups, join_list, leave_list, record_step, todo_page,
    worklog_page, worklog_text,
};
use uuid::Uuid;

use crate::{
    steps::step,
    world::{World, agent, init, task, update, user},
};

impl World {
    async fn join(&self, session: SessionId, workspace: Uuid) -> anyhow::Result<JoinedList> {
        let mut tx = self.tx().await?;
        let joined = join_list(&mut tx, self.agent, session, workspace).await?;
        tx.commit().await?;
        Ok(joined)
    }

    /// Titles and states of a session's todos.
    async fn todos_of(&self, session: SessionId) -> anyhow::Result<Vec<(String, TodoStatus)>> {
        let mut tx = self.tx().await?;
        let page = todo_page(&mut tx, session, TodoFilter::All, (None, 9)).await?;
        tx.finish_reading();
        Ok(page.todos.into_iter().map(|todo| (todo.title, todo.status)).collect())
    }

    async fn add_root(&self) -> anyhow::Result<SessionId> {
        let session = SessionId::generate();
        self.add_session(self.tenant, session).await?;
        Ok(session)
    }

    async fn record(&self, session: SessionId, summary: &str) -> anyhow::Result<()> {
        let mut tx = self.tx().await?;
        let run = Some(RunId::from(Uuid::now_v7()));
        let behavior = "DO".to_owned();
        let place = Place { run, behavior, ..Place::outside(session, self.agent) };
        record_step(&mut tx, &place, &step(summary)).await?;
        Ok(tx.commit().await?)
    }
}

#[tokio::test]
async fn a_second_session_goes_on_with_the_list_of_the_workspace() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (first, second) = (world.list, world.add_root().await?);
    let workspace = world.add_workspace().await?;
    world.plan(1).await?;

    assert_eq!(world.join(first, workspace).await?, JoinedList::New);
    assert_eq!(world.join(second, workspace).await?, JoinedList::Existing);
    assert_eq!(world.join(second, workspace).await?, JoinedList::Existing);
    let begun = update("T001", TodoStatus::InProgress);
    let place = Place::outside(second, world.agent);
    let results = world.apply_at(&place, &agent(BehaviorRole::Do), "begin", &[begun]).await?;
    assert_eq!(results, [Ok(())]);

    let shared =
        [("task 1".to_owned(), TodoStatus::InProgress), ("all of it".to_owned(), TodoStatus::Wait)];
    assert_eq!(world.todos_of(first).await?, shared);
    assert_eq!(world.todos_of(second).await?, shared);
    let pending = Wakeups::new(world.pools.clone()).pending(world.tenant).await?;
    let last = pending.last().expect("a change");
    let mut roots = last.roots.clone();
    roots.sort();
    let mut expected = vec![first, second];
    expected.sort();
    assert_eq!(roots, expected);

    // A session that leaves has a list of its own again, and the workspace keeps its own.
    let mut tx = world.tx().await?;
    leave_list(&mut tx, first).await?;
    tx.commit().await?;
    assert_eq!(world.todos_of(first).await?, []);
    world.apply(&user(), "new", &[init(vec![task("its own")])]).await?;
    assert_eq!(world.todos_of(first).await?, [("its own".to_owned(), TodoStatus::Wait)]);
    assert_eq!(world.todos_of(second).await?, shared);

    // Its list stays its own where the workspace has one, and is there when it leaves again.
    world.join(first, workspace).await?;
    assert_eq!(world.todos_of(first).await?, shared);
    Ok(())
}

#[tokio::test]
async fn the_worklog_of_a_workspace_has_all_of_its_sessions_and_a_prompt_only_its_own()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (first, second) = (world.list, world.add_root().await?);
    let workspace = world.add_workspace().await?;
    world.record(first, "before").await?;
    world.join(first, workspace).await?;
    world.join(second, workspace).await?;
    world.record(first, "dug").await?;
    world.record(second, "watered").await?;

    let mut tx = world.tx().await?;
    let page = worklog_page(&mut tx, second, (None, 100)).await?;
    let texts =
        [worklog_text(&mut tx, first, 4_000).await?, worklog_text(&mut tx, second, 4_000).await?]
            .map(|worklog| worklog.text);
    tx.finish_reading();

    let details: Vec<_> = page.iter().map(|one| one.detail.as_str()).collect();
    for summary in ["before", "dug", "watered"] {
        assert!(details.contains(&summary), "{summary}: {details:?}");
    }
    assert_eq!(page[0].scope, "workspace");
    let has = |text: &String, words: [&str; 3]| words.map(|word| text.contains(word));
    let words = ["before", "dug", "watered"];
    assert_eq!(has(&texts[0], words), [true, true, false], "{}", texts[0]);
    assert_eq!(has(&texts[1], words), [false, false, true], "{}", texts[1]);
    Ok(())
}

#[tokio::test]
async fn a_deleted_session_takes_its_records_along_and_a_deleted_workspace_its_list()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (first, second) = (world.list, world.add_root().await?);
    let workspace = world.add_workspace().await?;
    world.plan(1).await?;
    world.join(first, workspace).await?;
    world.join(second, workspace).await?;
    world.record(first, "dug").await?;
    world.record(second, "watered").await?;
    let count = async |table: &str, session: SessionId| {
        let session = session.as_uuid();
        let sql = format!("select count(*) from work.{table} where session_id = '{session}'");
        world.number(&sql).await
    };
    assert!(count("worklog", first).await? > 1);

    let first_id = first.as_uuid();
    world.admin(&format!("delete from session.sessions where session_id = '{first_id}'")).await?;

    assert_eq!(count("worklog", first).await?, 0);
    assert!(count("worklog", second).await? > 1);
    assert_eq!(world.todos_of(second).await?.len(), 2);

    world.admin("delete from workspace.named").await?;

    assert_eq!(world.todos_of(second).await?, []);
    for table in ["lists", "todos", "todo_ops", "worklog", "list_members"] {
        assert_eq!(
            world.number(&format!("select count(*) from work.{table}")).await?,
            0,
            "{table}"
        );
    }
    Ok(())
}
