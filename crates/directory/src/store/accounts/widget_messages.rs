//! `control.widget_messages`.

use holdfast_pg::TenantTx;
use holdfast_types::AccountId;

use crate::{NewWidgetMessage, WidgetMessage};

/// Number of messages of a visitor that are kept.
const MAX_KEPT_MESSAGES: i64 = 500;

/// Stores a message, unless its key is known, and returns its number. Deletes the visitor's oldest
/// messages beyond those that are kept.
pub(crate) async fn add(
    tx: &mut TenantTx,
    id: AccountId,
    new: NewWidgetMessage<'_>,
) -> sqlx::Result<i64> {
    const ADD: &str = "insert into control.widget_messages as m \
                           (tenant_id, account_id, visitor, key, from_visitor, text) \
                       values ($1, $2, $3, $4, $5, $6) \
                       on conflict (tenant_id, account_id, visitor, key) \
                           do update set text = m.text \
                       returning seq";
    const FORGET: &str = "delete from control.widget_messages \
                          where tenant_id = $1 and account_id = $2 and visitor = $3 and seq < \
                              (select seq from control.widget_messages \
                               where tenant_id = $1 and account_id = $2 and visitor = $3 \
                               order by seq desc offset $4 limit 1)";
    let tenant = tx.tenant().as_uuid();
    let seq = holdfast_pg::query_scalar(ADD)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(new.visitor)
        .bind(new.key)
        .bind(new.from_visitor)
        .bind(new.text)
        .fetch_one(tx.conn())
        .await?;
    holdfast_pg::query(FORGET)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(new.visitor)
        .bind(MAX_KEPT_MESSAGES)
        .execute(tx.conn())
        .await?;
    Ok(seq)
}

/// Returns the newest messages of a visitor after `seq`, the oldest of them first.
pub(crate) async fn after(
    tx: &mut TenantTx,
    id: AccountId,
    visitor: &str,
    seq: i64,
) -> sqlx::Result<Vec<WidgetMessage>> {
    const SQL: &str = "select seq, key, from_visitor, text from \
                           (select seq, key, from_visitor, text from control.widget_messages \
                            where tenant_id = $1 and account_id = $2 and visitor = $3 and seq > $4 \
                            order by seq desc limit 200) newest \
                       order by seq";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<(i64, String, bool, String)> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(id.as_uuid())
        .bind(visitor)
        .bind(seq)
        .fetch_all(tx.conn())
        .await?;
    let read = |(seq, key, from_visitor, text)| WidgetMessage { seq, key, from_visitor, text };
    Ok(rows.into_iter().map(read).collect())
}
