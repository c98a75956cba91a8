//! Conversations that wait although all slots of a runner are taken (spec STM-018).

use holdfast_types::RunnerId;

use crate::{Error, Sessions, TurnClass, queues::runner_pools::is_of_pool};

impl Sessions {
    /// Counts conversations of people and programs that this runner could claim, and that no runner
    /// has taken for half a second; at most `limit`.
    pub async fn waiting_conversations(&self, runner: RunnerId, limit: u32) -> Result<u32, Error> {
        const SQL: &str = concat!(
            "select count(*) from (
                select from session.session_lease l
                where l.state = 'READY' and l.fair_key is not null and l.paused is null
                  and l.priority = $1
                  and l.ready_at <= clock_timestamp() - interval '500 milliseconds'
                  and (l.holder is null or l.holder = $2)
                  and (l.workspace is null or not exists (
                      select from session.workspace_lease w
                      where w.tenant_id = l.tenant_id and w.workspace = l.workspace
                        and w.session_id <> l.session_id and w.lease_until > clock_timestamp()))
                  and ",
            is_of_pool!(3),
            " limit $4) waiting"
        );
        let mut once = self.pools.system_connection().await?;
        let count: i64 = holdfast_pg::query_scalar(SQL)
            .bind(TurnClass::Interactive.priority())
            .bind(runner.as_uuid())
            .bind(self.pool_name())
            .bind(i64::from(limit))
            .fetch_one(once.conn())
            .await?;
        once.done();
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }
}
