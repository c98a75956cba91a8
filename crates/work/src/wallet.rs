//! Wallets: what an agent may spend, checked, reserved, paid and settled in one transaction.
//!
//! Payments of one wallet are serial: each locks the wallet's row first. A payment is made once for
//! its key; a repetition gets the first receipt. Everything is refused by default: the agent must be
//! authorised, the payee listed, and each limit above zero.

use std::{fmt, future::Future, pin::Pin};

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, Money, RunId, SessionId};
use jiff::Timestamp;
use serde_json::json;
use sqlx::FromRow;
use uuid::Uuid;

use crate::{
    Error, Place,
    ledger::{self, LedgerKind, NewEntry},
    to_column,
    worklog::{self, NewRecord, PAYMENT},
};

/// Maximum length of a part of the explanation, in characters.
const MAX_EXPLANATION_CHARS: usize = 2_000;

/// What the agent may spend. Zero is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalletRules {
    /// Whether the agent may spend at all.
    pub is_authorized: bool,
    pub per_payment: Money,
    /// In a UTC day.
    pub per_day: Money,
    /// In one run: what a message, a job or a subagent's task asks for.
    pub per_task: Money,
    /// In each session of a subagent; zero is no wallet for subagents.
    pub per_subagent: Money,
    pub payees: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wallet {
    pub balance: Money,
    pub rules: WalletRules,
}

/// A payment that an agent wants to make, with its explanation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PaymentOrder {
    /// Idempotency key.
    pub key: String,
    pub payee: String,
    pub amount: Money,
    pub purpose: String,
    pub alternatives: String,
    pub expected_saving: String,
    pub risk: String,
    /// Whether the session is that of a subagent.
    pub by_subagent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Text of the provider.
    pub receipt: String,
    /// After the payment.
    pub balance: Money,
}

/// Receipt of a provider, or why it refuses.
pub type ProviderFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Result<String, String>, Error>> + Send + 'a>>;

/// Moves the money of a reserved payment.
pub trait WalletProvider: fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// Pays, within the transaction in which the payment is reserved and settled. It must pay once
    /// for the same `payment`.
    fn pay<'a>(
        &'a self,
        tx: &'a mut TenantTx,
        agent: AgentId,
        payment: Uuid,
        order: &'a PaymentOrder,
    ) -> ProviderFuture<'a>;
}

/// Currency of the mesh itself: the balance of the wallet, and entries of the ledger.
#[derive(Debug, Clone, Copy)]
pub struct InternalCurrency;

impl WalletProvider for InternalCurrency {
    fn name(&self) -> &'static str {
        "internal"
    }

    fn pay<'a>(
        &'a self,
        tx: &'a mut TenantTx,
        agent: AgentId,
        payment: Uuid,
        order: &'a PaymentOrder,
    ) -> ProviderFuture<'a> {
        const SQL: &str = "
            update work.wallets set balance = balance - $3
            where tenant_id = $1 and agent_id = $2 and balance >= $3";
        Box::pin(async move {
            let tenant = tx.tenant().as_uuid();
            let query = holdfast_pg::query(SQL).bind(tenant).bind(agent.as_uuid());
            let paid = query.bind(to_column(order.amount.micros())).execute(tx.conn()).await?;
            Ok(match paid.rows_affected() {
                0 => Err("the balance is too small".to_owned()),
                _ => Ok(format!("internal:{payment}")),
            })
        })
    }
}

#[derive(FromRow)]
struct WalletRow {
    is_authorized: bool,
    balance: i64,
    per_payment: i64,
    per_day: i64,
    per_task: i64,
    per_subagent: i64,
    payees: Vec<String>,
}

fn money(column: i64) -> Money {
    Money::from_micros(column.unsigned_abs())
}

impl WalletRow {
    fn read(self) -> Wallet {
        Wallet {
            balance: money(self.balance),
            rules: WalletRules {
                is_authorized: self.is_authorized,
                per_payment: money(self.per_payment),
                per_day: money(self.per_day),
                per_task: money(self.per_task),
                per_subagent: money(self.per_subagent),
                payees: self.payees,
            },
        }
    }
}

/// Returns the wallet of an agent; one that nobody has set up is empty and allows nothing.
pub async fn wallet(tx: &mut TenantTx, agent: AgentId) -> Result<Wallet, Error> {
    const SQL: &str = "select * from work.wallets where tenant_id = $1 and agent_id = $2";
    read_wallet(tx, SQL, agent).await.map(Option::unwrap_or_default)
}

async fn read_wallet(
    tx: &mut TenantTx,
    sql: &'static str,
    agent: AgentId,
) -> Result<Option<Wallet>, Error> {
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_as(sql).bind(tenant).bind(agent.as_uuid());
    let found: Option<WalletRow> = query.fetch_optional(tx.conn()).await?;
    Ok(found.map(WalletRow::read))
}

/// Replaces what an agent may spend. For people only.
pub async fn set_wallet_rules(
    tx: &mut TenantTx,
    agent: AgentId,
    rules: &WalletRules,
) -> Result<(), Error> {
    const SQL: &str = "
        insert into work.wallets
            (tenant_id, agent_id, is_authorized, per_payment, per_day, per_task, per_subagent, payees)
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict (tenant_id, agent_id) do update
            set is_authorized = excluded.is_authorized, per_payment = excluded.per_payment,
                per_day = excluded.per_day, per_task = excluded.per_task,
                per_subagent = excluded.per_subagent, payees = excluded.payees,
                updated_at = clock_timestamp()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(agent.as_uuid())
        .bind(rules.is_authorized)
        .bind(to_column(rules.per_payment.micros()))
        .bind(to_column(rules.per_day.micros()))
        .bind(to_column(rules.per_task.micros()))
        .bind(to_column(rules.per_subagent.micros()))
        .bind(&rules.payees)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Adds an income to the wallet, once for its key, with an entry of the ledger. Returns the balance.
pub async fn receive(
    tx: &mut TenantTx,
    agent: AgentId,
    (key, payer): (&str, &str),
    amount: Money,
) -> Result<Money, Error> {
    const WALLET: &str = "
        insert into work.wallets as w (tenant_id, agent_id) values ($1, $2)
        on conflict (tenant_id, agent_id) do update set updated_at = clock_timestamp()
        returning balance";
    const SQL: &str = "
        with income as (
            insert into work.payments
                (tenant_id, payment_id, agent_id, key, kind, party, amount, provider, state, balance)
            values ($1, $3, $2, $4, 'income', $5, $6, 'internal', 'settled', $7)
            on conflict (tenant_id, agent_id, key) do nothing
            returning amount)
        update work.wallets w set balance = w.balance + income.amount
        from income where w.tenant_id = $1 and w.agent_id = $2
        returning w.balance";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_scalar(WALLET).bind(tenant).bind(agent.as_uuid());
    let before: i64 = query.fetch_one(tx.conn()).await?;
    let after = before.checked_add(to_column(amount.micros()));
    let after = after.ok_or(Error::Refused("the wallet cannot hold that much".to_owned()))?;
    let added: Option<i64> = holdfast_pg::query_scalar(SQL)
        .bind(tenant)
        .bind(agent.as_uuid())
        .bind(Uuid::now_v7())
        .bind(key)
        .bind(payer)
        .bind(to_column(amount.micros()))
        .bind(after)
        .fetch_optional(tx.conn())
        .await?;
    let Some(balance) = added else { return Ok(money(before)) };
    let entry = NewEntry::of_amount(LedgerKind::Wallet, payer, "income", amount.micros());
    ledger::insert_of(tx, agent, (None, None), &[entry]).await?;
    Ok(money(balance))
}

/// Pays: checks the rules, reserves, lets the provider pay, and settles, with an entry of the ledger
/// and the explanation in the worklog. If the payment is refused, the transaction must be rolled
/// back.
pub(crate) async fn pay(
    tx: &mut TenantTx,
    place: &Place,
    provider: &dyn WalletProvider,
    order: &PaymentOrder,
) -> Result<Result<Receipt, String>, Error> {
    const LOCK: &str =
        "select * from work.wallets where tenant_id = $1 and agent_id = $2 for update";
    let Some(wallet) = read_wallet(tx, LOCK, place.agent).await? else {
        return Ok(Err("this agent has no wallet".to_owned()));
    };
    if let Some(earlier) = earlier_payment(tx, place.agent, order).await? {
        return Ok(earlier);
    }
    let spent = spent(tx, place).await?;
    if let Err(refused) = check(&wallet, &spent, order) {
        return Ok(Err(refused));
    }
    let payment = reserve(tx, place, provider, order).await?;
    let receipt = match provider.pay(tx, place.agent, payment, order).await? {
        Ok(receipt) => receipt,
        Err(refused) => return Ok(Err(refused)),
    };
    let balance = settle(tx, place.agent, payment, &receipt).await?;
    let amount = order.amount.micros();
    let entry = NewEntry::of_amount(LedgerKind::Wallet, &order.payee, "paid", amount);
    ledger::insert(tx, place, &[entry]).await?;
    worklog::append(tx, place, &[record(order, payment)]).await?;
    Ok(Ok(Receipt { receipt, balance }))
}

/// Sums of earlier payments.
#[derive(FromRow)]
struct PaymentSums {
    day: i64,
    task: i64,
    session: i64,
}

async fn spent(tx: &mut TenantTx, place: &Place) -> Result<PaymentSums, Error> {
    const SQL: &str = "
        select coalesce(sum(amount) filter (
                   where created_at >= date_trunc('day', clock_timestamp(), 'utc')), 0)::bigint as day,
               coalesce(sum(amount) filter (where run_id = $3), 0)::bigint as task,
               coalesce(sum(amount) filter (where session_id = $4), 0)::bigint as session
        from work.payments
        where tenant_id = $1 and agent_id = $2 and kind = 'payment'";
    let tenant = tx.tenant().as_uuid();
    Ok(holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(place.agent.as_uuid())
        .bind(place.run.map(RunId::as_uuid))
        .bind(place.session.as_uuid())
        .fetch_one(tx.conn())
        .await?)
}

/// Checks a payment against the rules. The error is a text for the model.
fn check(wallet: &Wallet, spent: &PaymentSums, order: &PaymentOrder) -> Result<(), String> {
    let rules = &wallet.rules;
    if !rules.is_authorized {
        return Err("nobody has authorised this agent to spend: ask the user".to_owned());
    }
    for (name, text) in [
        ("purpose", &order.purpose),
        ("alternatives", &order.alternatives),
        ("expected_saving", &order.expected_saving),
        ("risk", &order.risk),
    ] {
        if !(1..=MAX_EXPLANATION_CHARS).contains(&text.trim().chars().count()) {
            return Err(format!(
                "`{name}` explains the payment, in 1 to {MAX_EXPLANATION_CHARS} characters"
            ));
        }
    }
    if order.amount.micros() == 0 {
        return Err("the amount is above 0".to_owned());
    }
    if !rules.payees.contains(&order.payee) {
        return Err("the payee is not among those that this agent may pay".to_owned());
    }
    let amount = order.amount.micros();
    let subagent = Some(("a subagent's task", spent.session, rules.per_subagent));
    let limits = [
        Some(("a payment", 0, rules.per_payment)),
        Some(("a day", spent.day, rules.per_day)),
        Some(("a task", spent.task, rules.per_task)),
        subagent.filter(|_| order.by_subagent),
    ];
    for (what, earlier, limit) in limits.into_iter().flatten() {
        if earlier.unsigned_abs().saturating_add(amount) > limit.micros() {
            let earlier = money(earlier);
            return Err(format!(
                "the limit of {what} is {limit}, and {earlier} of it is spent: {} is too much",
                order.amount
            ));
        }
    }
    Ok(())
}

/// Returns the receipt of the payment that was made with the same key.
async fn earlier_payment(
    tx: &mut TenantTx,
    agent: AgentId,
    order: &PaymentOrder,
) -> Result<Option<Result<Receipt, String>>, Error> {
    const SQL: &str = "
        select party, amount, coalesce(receipt, ''), balance from work.payments
        where tenant_id = $1 and agent_id = $2 and key = $3";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_as(SQL).bind(tenant).bind(agent.as_uuid()).bind(&order.key);
    let found: Option<(String, i64, String, i64)> = query.fetch_optional(tx.conn()).await?;
    Ok(found.map(|(party, amount, receipt, balance)| {
        if party != order.payee || money(amount) != order.amount {
            return Err("another payment was made with this key".to_owned());
        }
        Ok(Receipt { receipt, balance: money(balance) })
    }))
}

async fn reserve(
    tx: &mut TenantTx,
    place: &Place,
    provider: &dyn WalletProvider,
    order: &PaymentOrder,
) -> Result<Uuid, Error> {
    const SQL: &str = "
        insert into work.payments
            (tenant_id, payment_id, agent_id, session_id, run_id, key, kind, party, amount, purpose,
             alternatives, expected_saving, risk, provider, state, balance)
        values ($1, $2, $3, $4, $5, $6, 'payment', $7, $8, $9, $10, $11, $12, $13, 'reserved', 0)";
    let (tenant, payment) = (tx.tenant().as_uuid(), Uuid::now_v7());
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(payment)
        .bind(place.agent.as_uuid())
        .bind(place.session.as_uuid())
        .bind(place.run.map(RunId::as_uuid))
        .bind(&order.key)
        .bind(&order.payee)
        .bind(to_column(order.amount.micros()))
        .bind(&order.purpose)
        .bind(&order.alternatives)
        .bind(&order.expected_saving)
        .bind(&order.risk)
        .bind(provider.name())
        .execute(tx.conn())
        .await?;
    Ok(payment)
}

/// Settles a reserved payment. Returns the balance.
async fn settle(
    tx: &mut TenantTx,
    agent: AgentId,
    payment: Uuid,
    receipt: &str,
) -> Result<Money, Error> {
    const SQL: &str = "
        update work.payments p set state = 'settled', receipt = $4, balance = w.balance
        from work.wallets w
        where p.tenant_id = $1 and p.payment_id = $3 and p.state = 'reserved'
          and w.tenant_id = $1 and w.agent_id = $2
        returning w.balance";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_scalar(SQL).bind(tenant).bind(agent.as_uuid()).bind(payment);
    let balance: i64 = query.bind(receipt).fetch_one(tx.conn()).await?;
    Ok(money(balance))
}

/// Explanation of a payment, for the worklog.
fn record(order: &PaymentOrder, payment: Uuid) -> NewRecord {
    let digest = format!("paid {} to {}: {}", order.amount, order.payee, order.purpose);
    let payload = json!({
        "payment": payment,
        "payee": order.payee,
        "amount": order.amount.to_string(),
        "purpose": order.purpose,
        "alternatives": order.alternatives,
        "expected_saving": order.expected_saving,
        "risk": order.risk,
    });
    // The money is spent, whether or not the step is saved.
    NewRecord { is_saved: true, ..NewRecord::new(PAYMENT, payload, crate::todo::shown(&digest)) }
}

/// A payment or an income, as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentRecord {
    pub id: Uuid,
    pub at: Timestamp,
    /// `payment` or `income`.
    pub kind: String,
    pub party: String,
    pub amount: Money,
    /// After it.
    pub balance: Money,
    pub purpose: String,
    pub alternatives: String,
    pub expected_saving: String,
    pub risk: String,
    pub session: Option<SessionId>,
}

#[derive(FromRow)]
struct PaymentRow {
    payment_id: Uuid,
    created_at: jiff_sqlx::Timestamp,
    kind: String,
    party: String,
    amount: i64,
    balance: i64,
    purpose: String,
    alternatives: String,
    expected_saving: String,
    risk: String,
    session_id: Option<Uuid>,
}

/// Returns the newest payments and incomes of an agent.
pub async fn payments(
    tx: &mut TenantTx,
    agent: AgentId,
    limit: u32,
) -> Result<Vec<PaymentRecord>, Error> {
    const SQL: &str = "
        select * from work.payments where tenant_id = $1 and agent_id = $2
        order by created_at desc, payment_id desc limit $3";
    let tenant = tx.tenant().as_uuid();
    let query = holdfast_pg::query_as(SQL).bind(tenant).bind(agent.as_uuid());
    let rows: Vec<PaymentRow> = query.bind(i64::from(limit)).fetch_all(tx.conn()).await?;
    let read = |row: PaymentRow| PaymentRecord {
        id: row.payment_id,
        at: row.created_at.to_jiff(),
        kind: row.kind,
        party: row.party,
        amount: money(row.amount),
        balance: money(row.balance),
        purpose: row.purpose,
        alternatives: row.alternatives,
        expected_saving: row.expected_saving,
        risk: row.risk,
        session: row.session_id.map(SessionId::from),
    };
    Ok(rows.into_iter().map(read).collect())
}
