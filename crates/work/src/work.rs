//! Todos, worklogs and tasks for callers without a transaction of their own.

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{AgentId, HitPointSettings, Money, SessionId, TenantId, TodoOperation};
use uuid::Uuid;

use crate::{
    Actor, Error, HitPoints, Ledger, ModelCall, PaymentOrder, PaymentRecord, Place, Receipt,
    SelfUpdate, Task, Todo, TodoError, TodoFilter, TodoList, TodoPage, TodoView, Wakeups, Wallet,
    WalletProvider, WalletRules, WorklogRecord, apply_todos, enable_agent, exhausted_agents,
    hit_points, join_list, leave_list, ledger, payments, read::whole_list, receive,
    record_self_update, set_wallet_rules, step, tasks_of, todo, todo_page, todo_view,
    tokens_of_day, wallet, worklog_page,
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

    /// See [`join_list`].
    pub async fn join_list(
        &self,
        tenant: TenantId,
        agent: AgentId,
        root: SessionId,
        workspace: Uuid,
    ) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        join_list(&mut tx, agent, root, workspace).await?;
        tx.commit().await?;
        Ok(())
    }

    /// See [`leave_list`].
    pub async fn leave_list(&self, tenant: TenantId, root: SessionId) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        leave_list(&mut tx, root).await?;
        Ok(tx.commit().await?)
    }

    /// See [`todo_view`].
    pub async fn view(&self, tenant: TenantId, root: SessionId) -> Result<TodoView, Error> {
        let mut tx = self.begin(tenant).await?;
        let view = todo_view(&mut tx, root).await?;
        tx.finish_reading();
        Ok(view)
    }

    /// See [`todo`](crate::todo).
    pub async fn todo(&self, tenant: TenantId, root: SessionId, code: &str) -> Result<Todo, Error> {
        let mut tx = self.begin(tenant).await?;
        let found = todo(&mut tx, root, code).await?;
        tx.finish_reading();
        Ok(found)
    }

    /// See [`todo_page`].
    pub async fn todos(
        &self,
        tenant: TenantId,
        root: SessionId,
        filter: TodoFilter,
        page: (Option<&str>, u32),
    ) -> Result<TodoPage, Error> {
        let mut tx = self.begin(tenant).await?;
        let todos = todo_page(&mut tx, root, filter, page).await?;
        tx.finish_reading();
        Ok(todos)
    }

    /// See [`worklog_page`].
    pub async fn worklog(
        &self,
        tenant: TenantId,
        root: SessionId,
        page: (Option<i64>, u32),
    ) -> Result<Vec<WorklogRecord>, Error> {
        let mut tx = self.begin(tenant).await?;
        let records = worklog_page(&mut tx, root, page).await?;
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

    /// See [`hit_points`](crate::hit_points).
    pub async fn hit_points(
        &self,
        tenant: TenantId,
        agent: AgentId,
        settings: &HitPointSettings,
    ) -> Result<HitPoints, Error> {
        let mut tx = self.begin(tenant).await?;
        let found = hit_points(&mut tx, agent, settings).await?;
        tx.finish_reading();
        Ok(found)
    }

    /// See [`tokens_of_day`](crate::tokens_of_day).
    pub async fn tokens_of_day(&self, tenant: TenantId, session: SessionId) -> Result<u64, Error> {
        let mut tx = self.begin(tenant).await?;
        let tokens = tokens_of_day(&mut tx, session).await?;
        tx.finish_reading();
        Ok(tokens)
    }

    /// See [`exhausted_agents`].
    pub async fn exhausted_agents(&self, tenant: TenantId) -> Result<Vec<AgentId>, Error> {
        let mut tx = self.begin(tenant).await?;
        let found = exhausted_agents(&mut tx).await?;
        tx.finish_reading();
        Ok(found)
    }

    /// See [`enable_agent`].
    pub async fn enable_agent(
        &self,
        tenant: TenantId,
        agent: AgentId,
        settings: &HitPointSettings,
    ) -> Result<HitPoints, Error> {
        let mut tx = self.begin(tenant).await?;
        enable_agent(&mut tx, agent, settings).await?;
        let found = hit_points(&mut tx, agent, settings).await?;
        tx.commit().await?;
        Ok(found)
    }

    /// Pays from the wallet of the place's agent, once for the order's key. The inner error tells why
    /// the payment is refused.
    pub async fn pay(
        &self,
        tenant: TenantId,
        place: &Place,
        provider: &dyn WalletProvider,
        order: &PaymentOrder,
    ) -> Result<Result<Receipt, String>, Error> {
        let mut tx = self.begin(tenant).await?;
        let paid = wallet::pay(&mut tx, place, provider, order).await?;
        match paid {
            Ok(_) => tx.commit().await?,
            Err(_) => tx.rollback().await?,
        }
        Ok(paid)
    }

    /// See [`wallet`](crate::wallet()).
    pub async fn wallet(&self, tenant: TenantId, agent: AgentId) -> Result<Wallet, Error> {
        let mut tx = self.begin(tenant).await?;
        let found = wallet::wallet(&mut tx, agent).await?;
        tx.finish_reading();
        Ok(found)
    }

    /// See [`set_wallet_rules`].
    pub async fn set_wallet_rules(
        &self,
        tenant: TenantId,
        agent: AgentId,
        rules: &WalletRules,
    ) -> Result<Wallet, Error> {
        let mut tx = self.begin(tenant).await?;
        set_wallet_rules(&mut tx, agent, rules).await?;
        let found = wallet::wallet(&mut tx, agent).await?;
        tx.commit().await?;
        Ok(found)
    }

    /// See [`receive`].
    pub async fn receive(
        &self,
        tenant: TenantId,
        agent: AgentId,
        source: (&str, &str),
        amount: Money,
    ) -> Result<Money, Error> {
        let mut tx = self.begin(tenant).await?;
        let balance = receive(&mut tx, agent, source, amount).await?;
        tx.commit().await?;
        Ok(balance)
    }

    /// See [`payments`].
    pub async fn payments(
        &self,
        tenant: TenantId,
        agent: AgentId,
        limit: u32,
    ) -> Result<Vec<PaymentRecord>, Error> {
        let mut tx = self.begin(tenant).await?;
        let found = payments(&mut tx, agent, limit).await?;
        tx.finish_reading();
        Ok(found)
    }

    /// See [`record_self_update`].
    pub async fn record_self_update(
        &self,
        tenant: TenantId,
        place: &Place,
        key: &str,
        update: &SelfUpdate,
    ) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        record_self_update(&mut tx, place, key, update).await?;
        Ok(tx.commit().await?)
    }

    /// Adds a request to a model that no session has made to the ledger.
    pub async fn record_model_call(
        &self,
        tenant: TenantId,
        agent: AgentId,
        call: &ModelCall,
    ) -> Result<(), Error> {
        let mut tx = self.begin(tenant).await?;
        let entry = step::model_entry(call, None);
        ledger::insert_of(&mut tx, agent, (None, None), &[entry]).await?;
        Ok(tx.commit().await?)
    }

    /// A session's whole list, to apply operations to it without storing them.
    pub async fn whole_list(&self, tenant: TenantId, list: SessionId) -> Result<TodoList, Error> {
        let mut tx = self.begin(tenant).await?;
        let found = whole_list(&mut tx, list).await?;
        tx.finish_reading();
        Ok(found)
    }

    async fn begin(&self, tenant: TenantId) -> Result<TenantTx, Error> {
        Ok(self.pools.tenant(tenant).await?)
    }
}
