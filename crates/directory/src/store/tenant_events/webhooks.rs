//! `control.event_webhooks`.

use holdfast_pg::TenantTx;
use uuid::Uuid;

use crate::{EventWebhook, NewEventWebhook};

#[derive(sqlx::FromRow)]
pub(crate) struct Row {
    webhook_id: Uuid,
    name: String,
    url: String,
    types: Vec<String>,
    agent_id: Option<Uuid>,
    session_id: Option<Uuid>,
    channel: Option<String>,
    include_content: bool,
    state: String,
    reason: String,
    created_at: jiff_sqlx::Timestamp,
    pub secret: Vec<u8>,
    /// Secret before a rotation, while it signs too.
    pub old_secret: Option<Vec<u8>>,
}

impl From<Row> for EventWebhook {
    fn from(row: Row) -> Self {
        Self {
            id: row.webhook_id,
            settings: NewEventWebhook {
                name: row.name,
                url: row.url,
                types: row.types,
                agent: row.agent_id.map(Into::into),
                session: row.session_id.map(Into::into),
                channel: row.channel,
                include_content: row.include_content,
            },
            is_active: row.state == "active",
            reason: row.reason,
            created_at: row.created_at.to_jiff(),
        }
    }
}

/// Webhooks of the tenant by name; with `id`, only that one.
pub(crate) async fn read(tx: &mut TenantTx, id: Option<Uuid>) -> sqlx::Result<Vec<Row>> {
    const SQL: &str = "
        select webhook_id, name, url, types, agent_id, session_id, channel, include_content, state,
               reason, created_at, secret,
               case when old_secret_until > now() then old_secret end as old_secret
        from control.event_webhooks
        where tenant_id = $1 and ($2::uuid is null or webhook_id = $2) order by name";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).bind(id).fetch_all(tx.conn()).await
}

/// Inserts a webhook, or changes the settings of the one with this id.
pub(crate) async fn put(
    tx: &mut TenantTx,
    id: Uuid,
    settings: &NewEventWebhook,
    (secret, state): (&[u8], &str),
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.event_webhooks as w (tenant_id, webhook_id, name, url, secret, types,
            agent_id, session_id, channel, include_content, state)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        on conflict (tenant_id, webhook_id) do update
        set name = excluded.name, url = excluded.url, types = excluded.types,
            agent_id = excluded.agent_id, session_id = excluded.session_id,
            channel = excluded.channel, include_content = excluded.include_content,
            state = excluded.state,
            reason = case when excluded.state = w.state then w.reason else '' end";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(id)
        .bind(&settings.name)
        .bind(&settings.url)
        .bind(secret)
        .bind(&settings.types)
        .bind(settings.agent.map(|agent| agent.as_uuid()))
        .bind(settings.session.map(|session| session.as_uuid()))
        .bind(&settings.channel)
        .bind(settings.include_content)
        .bind(state)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Replaces the secret; the former one signs too for a day.
pub(crate) async fn rotate(tx: &mut TenantTx, id: Uuid, secret: &[u8]) -> sqlx::Result<()> {
    const SQL: &str = "
        update control.event_webhooks
        set old_secret = secret, old_secret_until = now() + interval '1 day', secret = $3
        where tenant_id = $1 and webhook_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(id).bind(secret).execute(tx.conn()).await?;
    Ok(())
}

/// Disables an active webhook. Returns whether it was active.
pub(crate) async fn disable(tx: &mut TenantTx, id: Uuid, reason: &str) -> sqlx::Result<bool> {
    const SQL: &str = "
        update control.event_webhooks set state = 'disabled', reason = $3
        where tenant_id = $1 and webhook_id = $2 and state = 'active'";
    let tenant = tx.tenant().as_uuid();
    let done =
        holdfast_pg::query(SQL).bind(tenant).bind(id).bind(reason).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}

pub(crate) async fn delete(tx: &mut TenantTx, id: Uuid) -> sqlx::Result<()> {
    const SQL: &str = "delete from control.event_webhooks where tenant_id = $1 and webhook_id = $2";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(id).execute(tx.conn()).await?;
    Ok(())
}
