//! Test setup: a database, a tenant with a session, and short constructors for operations.

use std::time::Duration;

use holdfast_pg::{Config, Pools, TenantTx};
use holdfast_testkit::Database;
use holdfast_types::{
    AgentId, BehaviorRole, NewTodo, RunId, SessionId, TenantId, TodoInit, TodoKind, TodoOperation,
    TodoStatus,
};
use holdfast_work::{
    Actor, ActorKind, Error, Ledger, Place, TodoError, TodoErrorKind, apply_todos,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use uuid::Uuid;

pub struct World {
    pub pools: Pools,
    pub tenant: TenantId,
    pub agent: AgentId,
    /// Root session.
    pub list: SessionId,
    pub ledger: Ledger,
    database: Database,
}

impl World {
    pub async fn start() -> anyhow::Result<Self> {
        let database =
            Database::create_from(&holdfast_pg::fingerprint(), async |admin_url: String| {
                holdfast_pg::migrate(&admin_url).await?;
                Ok(())
            })
            .await?;
        // A stall of the machine is waited for.
        let acquire_timeout = Duration::from_secs(20);
        let config = Config { url: database.url().into(), acquire_timeout, ..Config::default() };
        let pools = Pools::lazy(&config, "test")?;
        let ledger = Ledger::new(pools.clone());
        let (tenant, agent) = (TenantId::generate(), AgentId::generate());
        let list = SessionId::generate();
        let world = Self { pools, tenant, agent, list, ledger, database };
        world.add_session(tenant, list).await?;
        Ok(world)
    }

    pub async fn add_session(&self, tenant: TenantId, session: SessionId) -> anyhow::Result<()> {
        self.admin(&format!(
            "insert into session.sessions (tenant_id, session_id, key, kind, agent_id)
             values ('{}', '{}', 'agent:main:work:{session}', 'work', '{}')",
            tenant.as_uuid(),
            session.as_uuid(),
            self.agent.as_uuid()
        ))
        .await?;
        Ok(())
    }

    /// Makes a workspace of the agent.
    pub async fn add_workspace(&self) -> anyhow::Result<Uuid> {
        let id = Uuid::now_v7();
        self.admin(&format!(
            "insert into workspace.named
                 (tenant_id, workspace_id, agent_id, name, folder, kind, owner_kind, owner)
             values ('{}', '{id}', '{}', 'w', 'workspaces/{id}', 'folder', 'agent', 'main')",
            self.tenant.as_uuid(),
            self.agent.as_uuid()
        ))
        .await?;
        Ok(id)
    }

    /// Makes the agent, for rows that refer to it.
    pub async fn add_agent(&self) -> anyhow::Result<()> {
        let (tenant, agent) = (self.tenant.as_uuid(), self.agent.as_uuid());
        self.admin(&format!(
            "insert into control.tenants (tenant_id, name, data_key) values ('{tenant}', 't', '')"
        ))
        .await?;
        self.admin(&format!(
            "insert into control.agents (tenant_id, agent_id, name)
             values ('{tenant}', '{agent}', 'main')"
        ))
        .await?;
        Ok(())
    }

    /// Reads one number as the owner, whom row-level security does not bind.
    pub async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
    }

    /// Changes something as the owner.
    pub async fn admin(&self, sql: &str) -> anyhow::Result<u64> {
        let mut connection = PgConnection::connect(&self.database.admin_url()).await?;
        Ok(sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await?.rows_affected())
    }

    pub async fn tx(&self) -> anyhow::Result<TenantTx> {
        Ok(self.pools.tenant(self.tenant).await?)
    }

    /// Place of a step of the root session's run.
    pub fn step(&self, run: RunId, behavior: &str, step: u32) -> Place {
        Place {
            run: Some(run),
            behavior: behavior.to_owned(),
            step,
            ..Place::outside(self.list, self.agent)
        }
    }

    /// Applies operations in a transaction of their own, outside of a run.
    pub async fn apply(
        &self,
        actor: &Actor,
        op_id: &str,
        ops: &[TodoOperation],
    ) -> anyhow::Result<Vec<Result<(), TodoError>>> {
        self.apply_at(&Place::outside(self.list, self.agent), actor, op_id, ops).await
    }

    pub async fn apply_at(
        &self,
        place: &Place,
        actor: &Actor,
        op_id: &str,
        ops: &[TodoOperation],
    ) -> anyhow::Result<Vec<Result<(), TodoError>>> {
        let mut tx = self.tx().await?;
        let results = apply_todos(&mut tx, place, actor, op_id, ops).await?;
        tx.commit().await.map_err(Error::from)?;
        Ok(results)
    }

    /// Makes a list of so many tasks and a bench behind them.
    pub async fn plan(&self, tasks: usize) -> anyhow::Result<()> {
        let mut items: Vec<NewTodo> = (1..=tasks).map(|n| task(&format!("task {n}"))).collect();
        items.push(NewTodo { kind: TodoKind::Bench, ..task("all of it") });
        let results = self.apply(&agent(BehaviorRole::Plan), "plan", &[init(items)]).await?;
        anyhow::ensure!(results == [Ok(())], "{results:?}");
        Ok(())
    }
}

pub fn task(title: &str) -> NewTodo {
    NewTodo { title: title.to_owned(), ..NewTodo::default() }
}

pub fn init(items: Vec<NewTodo>) -> TodoOperation {
    TodoOperation::Init { mode: TodoInit::Replace, items }
}

pub fn update(code: &str, to_status: TodoStatus) -> TodoOperation {
    TodoOperation::Update {
        code: code.to_owned(),
        to_status: Some(to_status),
        priority: None,
        reason: "as planned".to_owned(),
    }
}

/// The root agent, working by a behaviour.
pub fn agent(role: BehaviorRole) -> Actor {
    Actor {
        kind: ActorKind::RootAgent,
        name: "main".to_owned(),
        role: Some(role),
        has_outside_text: false,
    }
}

pub fn user() -> Actor {
    Actor { kind: ActorKind::User, name: "anna".to_owned(), role: None, has_outside_text: false }
}

pub fn kinds(results: &[Result<(), TodoError>]) -> Vec<Option<TodoErrorKind>> {
    results.iter().map(|result| result.as_ref().err().map(|error| error.kind)).collect()
}
