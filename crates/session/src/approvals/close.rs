//! Telling channels that a request can no longer be answered, so that they remove its buttons.

use holdfast_pg::TenantTx;
use holdfast_types::{ApprovalId, ChannelAction, DeliveryId, RunId, SessionId, Target};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Error, NewDelivery, protocol::append::insert_deliveries};

/// Sends an [`Act::Close`] for each of these requests that went to a channel. The session's lease
/// row must be locked.
pub(super) async fn close(
    tx: &mut TenantTx,
    session: SessionId,
    approvals: &[Uuid],
) -> Result<(), Error> {
    const REQUESTS: &str = "
        select approval_id, run_id, target from session.deliveries
        where tenant_id = $1 and session_id = $2 and approval_id = any($3) and act is null
          and part = 0
        order by out_seq";
    const ALLOCATE_OUT_SEQS: &str = "
        update session.session_lease set next_out = next_out + $3
        where tenant_id = $1 and session_id = $2 returning next_out - $3";

    if approvals.is_empty() {
        return Ok(());
    }
    let tenant = tx.tenant();
    let requests: Vec<(Uuid, Uuid, Json<Target>)> = holdfast_pg::query_as(REQUESTS)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(approvals)
        .fetch_all(tx.conn())
        .await?;
    let Some((_, run, _)) = requests.first() else { return Ok(()) };
    let run = RunId::from(*run);
    let first: i64 = holdfast_pg::query_scalar(ALLOCATE_OUT_SEQS)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(i64::try_from(requests.len()).unwrap_or(i64::MAX))
        .fetch_one(tx.conn())
        .await?;
    let close = |(approval, _, target): (Uuid, Uuid, Json<Target>)| NewDelivery {
        target: target.0,
        text: String::new(),
        act: Some(ChannelAction::Close { approval: ApprovalId::from(approval), message: None }),
        id: DeliveryId::generate(),
        delay: std::time::Duration::ZERO,
    };
    let deliveries: Vec<NewDelivery> = requests.into_iter().map(close).collect();
    insert_deliveries(tx, session, run, first, &deliveries).await
}
