//! Log of a job: one line for each firing that ended and for skipped slots.

use holdfast_pg::Connection;
use uuid::Uuid;

use crate::store::{Error, Origin, Outcome};

/// Number of log lines kept per job.
pub const MAX_LOG_LINES: i64 = 100;

pub(crate) struct Line {
    pub tenant: Uuid,
    pub job: Uuid,
    pub n: i64,
    pub slot: Option<String>,
    pub at: jiff_sqlx::Timestamp,
    pub last: jiff_sqlx::Timestamp,
    pub slots: Option<i32>,
    pub origin: Origin,
    pub outcome: Outcome,
    pub class: Option<String>,
    pub millis: Option<i64>,
    pub run: Option<Uuid>,
}

/// Inserts lines; the jobs' rows must be locked.
pub(crate) async fn write(conn: &mut Connection, lines: &[Line]) -> Result<(), Error> {
    const SQL: &str = "
        insert into schedule.runs
            (tenant_id, job_id, n, slot, slot_at, slot_last, slots, origin, status, class,
             duration_ms, run_id)
        select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::timestamptz[],
                             $6::timestamptz[], $7::integer[], $8::text[], $9::text[], $10::text[],
                             $11::bigint[], $12::uuid[])";

    if lines.is_empty() {
        return Ok(());
    }
    holdfast_pg::query(SQL)
        .bind(column(lines, |line| line.tenant))
        .bind(column(lines, |line| line.job))
        .bind(column(lines, |line| line.n))
        .bind(column(lines, |line| line.slot.clone()))
        .bind(column(lines, |line| line.at))
        .bind(column(lines, |line| line.last))
        .bind(column(lines, |line| line.slots))
        .bind(column(lines, |line| line.origin.as_str()))
        .bind(column(lines, |line| line.outcome.as_str()))
        .bind(column(lines, |line| line.class.clone()))
        .bind(column(lines, |line| line.millis))
        .bind(column(lines, |line| line.run))
        .execute(conn)
        .await?;
    Ok(())
}

/// Deletes lines beyond the last [`KEPT`], and their firings. `newest` has tenant, job and number
/// of the last line.
pub(crate) async fn prune(
    conn: &mut Connection,
    newest: &[(Uuid, Uuid, i64)],
) -> Result<(), Error> {
    const SQL: &str = "
        with newest as (
            select * from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as k (tenant_id, job_id, n)),
        old as (
            delete from schedule.runs r using newest k
            where r.job_id = k.job_id and r.tenant_id = k.tenant_id and r.n <= k.n - $4
            returning r.tenant_id, r.job_id, r.slot)
        delete from schedule.firings f using old
        where f.job_id = old.job_id and f.slot = old.slot and f.tenant_id = old.tenant_id
          and f.state in ('done', 'refused')";

    let long: Vec<_> = newest.iter().filter(|(_, _, n)| *n > MAX_LOG_LINES).copied().collect();
    if long.is_empty() {
        return Ok(());
    }
    holdfast_pg::query(SQL)
        .bind(column(&long, |job| job.0))
        .bind(column(&long, |job| job.1))
        .bind(column(&long, |job| job.2))
        .bind(MAX_LOG_LINES)
        .execute(conn)
        .await?;
    Ok(())
}

/// Collects one field of all rows, for an array parameter.
pub(crate) fn column<T, U>(rows: &[T], of: impl Fn(&T) -> U) -> Vec<U> {
    rows.iter().map(of).collect()
}

/// Restricts a class to the characters of the log's format; its text may come from a library.
pub(crate) fn class(text: &str) -> String {
    let clean = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '_' | '.' | '-') => c,
        _ => '_',
    };
    let class: String = text.chars().take(64).map(clean).collect();
    if class.starts_with(|c: char| c.is_ascii_lowercase()) { class } else { "other".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_a_word_whatever_it_was_made_from() {
        let long = "x".repeat(100);

        assert_eq!(class("quiet-hours"), "quiet-hours");
        assert_eq!(class("Timed Out: \"secret\""), "timed_out___secret_");
        assert_eq!(class(""), "other");
        assert_eq!(class("500"), "other");
        assert_eq!(class(&long).len(), 64);
    }
}
