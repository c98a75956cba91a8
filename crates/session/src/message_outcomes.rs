//! Outcomes of messages, for many messages at once.

use std::time::Duration;

use holdfast_types::{RunId, SessionId, TenantId};
use uuid::Uuid;

use crate::{Error, TurnOutcome, Views};

/// Outcome of a finished message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageOutcome {
    /// Index in the list that was asked for.
    pub place: usize,
    pub outcome: TurnOutcome,
    /// Run that handled the message.
    pub run: Option<RunId>,
    /// Duration of the run, or, if the run is not recorded, the time from acceptance to finish.
    pub took: Duration,
}

impl Views<'_> {
    /// Returns those of the messages that are finished. A message is named by its tenant, session
    /// and `seq`. The content is not read.
    pub async fn message_outcomes(
        self,
        of: &[(TenantId, SessionId, i64)],
    ) -> Result<Vec<MessageOutcome>, Error> {
        const SQL: &str = "
            select k.place, i.outcome, i.run_id,
                   (extract(epoch from coalesce(r.took, i.took)) * 1000)::bigint
            from unnest($1::uuid[], $2::uuid[], $3::bigint[])
                 with ordinality as k (tenant_id, session_id, seq, place)
            cross join lateral (
                select outcome, run_id, finished_at - accepted_at as took from session.inbox i
                where i.tenant_id = k.tenant_id and i.session_id = k.session_id and i.seq = k.seq
                  and i.state in ('done', 'dead')
                limit 1) i
            left join lateral (
                select finished_at - started_at as took from session.runs r
                where r.tenant_id = k.tenant_id and r.run_id = i.run_id
                limit 1) r on true";
        type Row = (i64, Option<String>, Option<Uuid>, Option<i64>);

        if of.is_empty() {
            return Ok(Vec::new());
        }
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(of.iter().map(|one| one.0.as_uuid()).collect::<Vec<_>>())
            .bind(of.iter().map(|one| one.1.as_uuid()).collect::<Vec<_>>())
            .bind(of.iter().map(|one| one.2).collect::<Vec<_>>())
            .fetch_all(once.conn())
            .await?;
        once.done();
        Ok(rows
            .into_iter()
            .filter_map(|(place, outcome, run, took)| {
                Some(MessageOutcome {
                    place: usize::try_from(place - 1).ok()?,
                    outcome: outcome
                        .map_or(TurnOutcome::Completed, |word| TurnOutcome::parse(&word)),
                    run: run.map(RunId::from),
                    took: Duration::from_millis(u64::try_from(took.unwrap_or(0)).unwrap_or(0)),
                })
            })
            .collect())
    }
}
