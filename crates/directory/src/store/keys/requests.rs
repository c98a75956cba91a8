//! `control.request_key`.

use holdfast_pg::SystemTx;

/// Returns the secret from which the keys of requests follow.
pub(crate) async fn secret(tx: &mut SystemTx) -> sqlx::Result<Vec<u8>> {
    const SQL: &str = "select secret from control.request_key";
    holdfast_pg::query_scalar(SQL).fetch_one(tx.conn()).await
}
