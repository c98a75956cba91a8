//! Todos, worklogs and tasks for callers without a transaction of their own.

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{SessionId, TenantId, TodoOperation};

use crate::{
    Actor, Error, Ledger, Place, Task, Todo, TodoError, TodoFilter, TodoPage, TodoView, Wakeups,
    WorklogRecord, apply_todos, tasks_of, todo, todo_page, todo_view, worklog_page,
};

#[derive(Debug, Clone)]
pub struct Work {
    pools: Pools,
}

impl Work {
    #[must_use]
    pub const fn new(pools: Pools) -> Self {
        Self { pools }
    }

    #[must_use]
    pub fn ledger(&self) -> Ledger {
        Ledger::new(self.pools.clone())
    }

    #[must_use]
    pub fn wakeups(&self) -> Wakeups {
        Wakeups::new(self.pools.clone())
    }

    /// See [`apply_todos`].
    pub async fn apply(
        &self,
        tenant: TenantId,
        place: &Place,
        actor: &Actor,
        (op_id, ops): (&str, &[TodoOperation]),
    ) -> Result<Vec<Result<(), TodoError>>, Error> {
        let mut tx = self.begin(tenant).await?;
        let results = apply_todos(&mut tx, place, actor, op_id, ops).await?;
        tx.commit().await?;
        Ok(results)
    }

    /// See [`todo_view`].
    pub async fn view(&self, tenant: TenantId, list: SessionId) -> Result<TodoView, Error> {
        let mut tx = self.begin(tenant).await?;
        let view = todo_view(&mut tx, list).await?;
        tx.finish_reading();
        Ok(view)
    }

    /// See [`todo`](crate::todo).
    pub async fn todo(&self, tenant: TenantId, list: SessionId, code: &str) -> Result<Todo, Error> {
        let mut tx = self.begin(tenant).await?;
        let found = todo(&mut tx, list, code).await?;
        tx.finish_reading();
        Ok(found)
    }

    /// See [`todo_page`].
    pub async fn todos(
        &self,
        tenant: TenantId,
        list: SessionId,
        filter: TodoFilter,
        page: (Option<&str>, u32),
    ) -> Result<TodoPage, Error> {
        let mut tx = self.begin(tenant).await?;
        let todos = todo_page(&mut tx, list, filter, page).await?;
        tx.finish_reading();
        Ok(todos)
    }

    /// See [`worklog_page`].
    pub async fn worklog(
        &self,
        tenant: TenantId,
        list: SessionId,
        page: (Option<i64>, u32),
    ) -> Result<Vec<WorklogRecord>, Error> {
        let mut tx = self.begin(tenant).await?;
        let records = worklog_page(&mut tx, list, page).await?;
        tx.finish_reading();
        Ok(records)
    }

    /// See [`tasks_of`].
    pub async fn tasks(
        &self,
        tenant: TenantId,
        session: SessionId,
        steps: u32,
    ) -> Result<Vec<Task>, Error> {
        let mut tx = self.begin(tenant).await?;
        let tasks = tasks_of(&mut tx, session, steps).await?;
        tx.finish_reading();
        Ok(tasks)
    }

    async fn begin(&self, tenant: TenantId) -> Result<TenantTx, Error> {
        Ok(self.pools.tenant(tenant).await?)
    }
}
