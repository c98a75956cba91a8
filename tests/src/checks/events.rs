//! Judgement of what a subscriber to events received.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use sqlx::{Connection as _, PgConnection};

use crate::mesh::Mesh;

/// An event of a tenant's log. Positions are of the tenant, so the session tells tenants apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    pub position: i64,
    pub session: String,
    pub kind: String,
}

impl LogPosition {
    /// Reads what a subscriber is shown of an event.
    ///
    /// # Errors
    ///
    /// If the id has another form.
    pub fn parse(id: &str, session: &str, kind: &str) -> anyhow::Result<Self> {
        let digits = id.strip_prefix("evc1_").context("an id of an event has another form")?;
        let position = i64::from_str_radix(digits, 16)?;
        Ok(Self { position, session: session.to_owned(), kind: kind.to_owned() })
    }
}

/// Reads the whole log of a tenant from its table.
pub async fn event_log(mesh: &Mesh, tenant: usize) -> anyhow::Result<Vec<LogPosition>> {
    const SQL: &str = "
        select l.first + e.place - 1, coalesce(e.event->>'session', ''), e.event->>'type'
        from session.event_log l, jsonb_array_elements(l.events) with ordinality e (event, place)
        where l.tenant_id = $1::uuid order by 1";
    let mut admin = PgConnection::connect(&mesh.admin_url()).await?;
    let tenant = mesh.tenants[tenant].id.as_uuid();
    let rows: Vec<(i64, String, String)> =
        sqlx::query_as(SQL).bind(tenant).fetch_all(&mut admin).await?;
    let read = |(position, session, kind)| LogPosition { position, session, kind };
    Ok(rows.into_iter().map(read).collect())
}

/// What is wrong with what a subscriber received.
///
/// It must have each event of the log up to a position at least once and no event that the log
/// lacks, and the events of a session first in the order of the log.
#[must_use]
pub fn judge_received(
    subscriber: &str,
    (log, end): (&[LogPosition], i64),
    received: &[LogPosition],
) -> Vec<String> {
    let mut broken = Vec::new();
    let logged: BTreeSet<&LogPosition> = log.iter().collect();
    let mut seen: BTreeSet<&LogPosition> = BTreeSet::new();
    let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
    for event in received {
        if !logged.contains(event) {
            broken
                .push(format!("{subscriber} got an event that its tenant's log lacks: {event:?}"));
        }
        if !seen.insert(event) {
            continue;
        }
        let before = newest.insert(&event.session, event.position).unwrap_or_default();
        if !event.session.is_empty() && before > event.position {
            broken.push(format!("{subscriber} got events of a session out of order: {event:?}"));
        }
    }
    for missing in logged.difference(&seen).filter(|event| event.position <= end) {
        broken.push(format!("{subscriber} missed an event: {missing:?}"));
    }
    // A few tell as much as all.
    if broken.len() > 5 {
        let more = broken.split_off(5).len();
        broken.push(format!("{subscriber}: {more} more"));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(position: i64, session: &str) -> LogPosition {
        LogPosition { position, session: session.to_owned(), kind: "run.ended".to_owned() }
    }

    #[test]
    fn repetitions_are_accepted_and_what_is_missing_foreign_or_late_is_not() {
        let log = [event(1, "ses_a"), event(2, "ses_b"), event(3, "ses_a")];
        let [one, two, three] = &log;
        let judge = |received: &[&LogPosition]| {
            let received: Vec<LogPosition> = received.iter().copied().cloned().collect();
            judge_received("s", (&log, 3), &received)
        };

        assert_eq!(judge(&[one, two, one, three, two]), Vec::<String>::new());
        // Sessions go on without each other.
        assert_eq!(judge(&[two, one, three]), Vec::<String>::new());
        assert!(judge(&[one, three])[0].contains("missed"));
        // What is logged when the storm is over need not have come.
        let until_two = [one.clone(), two.clone()];
        assert_eq!(judge_received("s", (&log, 2), &until_two), Vec::<String>::new());
        assert!(judge(&[three, one, two])[0].contains("out of order"));
        let foreign = event(2, "ses_of_another_tenant");
        assert!(judge(&[one, two, three, &foreign])[0].contains("lacks"));
    }
}
