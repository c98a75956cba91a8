//! `control.tools`: tools that runners announced.

use holdfast_pg::SystemTx;

use crate::policy::KnownTool;

/// Returns the tools that were announced in the last three days.
pub(crate) async fn all(tx: &mut SystemTx) -> sqlx::Result<Vec<KnownTool>> {
    const SQL: &str = "select name, summary from control.tools \
                       where seen_at > now() - interval '3 days' order by name";
    let rows: Vec<(String, String)> = holdfast_pg::query_as(SQL).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(|(name, summary)| KnownTool { name, summary }).collect())
}

/// Stores announced tools. Known and recently stored tools are not written again.
pub(crate) async fn announce(tx: &mut SystemTx, tools: &[KnownTool]) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.tools as t (name, summary) \
                       select * from unnest($1::text[], $2::text[]) \
                       on conflict (name) do update set summary = excluded.summary, \
                       seen_at = now() \
                       where t.summary <> excluded.summary \
                       or t.seen_at < now() - interval '6 hours'";
    const DELETE_STALE: &str =
        "delete from control.tools where seen_at < now() - interval '30 days'";
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let summaries: Vec<&str> = tools.iter().map(|tool| tool.summary.as_str()).collect();
    holdfast_pg::query(SQL).bind(names).bind(summaries).execute(tx.conn()).await?;
    holdfast_pg::query(DELETE_STALE).execute(tx.conn()).await?;
    Ok(())
}
