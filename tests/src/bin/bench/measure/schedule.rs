//! Delay of jobs: 10,000 that are due in one instant, and some that are spread. One scheduler in a
//! database of its own; no runner processes the messages.

use std::time::Duration;

use anyhow::ensure;
use holdfast_tests::clockwork::SchedulerMesh;
use jiff::Timestamp;
use sqlx::PgConnection;
use tokio::time::sleep;

use crate::{Pace, mesh::Mesh, report::Line, stats::Samples};

const TENANTS: usize = 20;
/// How often is looked at what there is.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// What takes longer is broken.
const FIRING_TIMEOUT: Duration = Duration::from_secs(60);

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let program = mesh.program().to_owned();
    let urls = mesh.backends().urls();
    let mut clockwork = SchedulerMesh::prepare_on(urls, program, 1, TENANTS).await?;
    clockwork.replicas[0].start().await?;
    clockwork.replicas[0].ready(START_TIMEOUT).await?;

    let count = pace.count(10_000, 1_000);
    let (recorded, delivered) = at_once(&mut clockwork, count).await?;
    let (late, inboxes) = spread(&mut clockwork, pace.count(400, 50)).await?;
    let note = format!("{count} due in one instant, of {TENANTS} tenants, one scheduler");
    Ok(vec![
        Line::millis("due at once: recorded, p50", recorded.median()),
        Line::millis("due at once: recorded, p99", recorded.permille(990))
            .at_most(500.0)
            .note(note),
        Line::millis("due at once: in its inbox, p50", delivered.median()),
        Line::millis("due at once: in the last inbox", delivered.permille(1000)).at_most(3000.0),
        Line::millis("spread: recorded, p50", late.median())
            .at_most(20.0)
            .note(format!("{}, 20 a second", late.count())),
        Line::millis("spread: recorded, p99", late.permille(990)),
        Line::millis("spread: in its inbox, p50", inboxes.median()),
    ])
}

/// How late each was recorded, and in its inbox, as others see it: what is not committed is not
/// there.
async fn at_once(
    clockwork: &mut SchedulerMesh,
    count: usize,
) -> anyhow::Result<(Samples, Samples)> {
    const SEEN: &str = "
        select (select count(*) from schedule.firings), (select count(*) from session.inbox)";
    let at = Timestamp::from_millisecond(Timestamp::now().as_millisecond() + 5_000)?;
    clockwork.add_many(&vec![at; count]).await?;
    let mut admin = clockwork.admin().await?;
    let left = Duration::try_from(at.duration_since(Timestamp::now()));
    ensure!(left.is_ok(), "making the jobs took longer than five seconds");
    sleep(left.unwrap_or_default()).await;

    let (mut recorded, mut delivered) = (Vec::new(), Vec::new());
    while delivered.len() < count {
        let (fired, arrived): (i64, i64) = sqlx::query_as(SEEN).fetch_one(&mut admin).await?;
        let late = Duration::try_from(Timestamp::now().duration_since(at)).unwrap_or_default();
        ensure!(late < FIRING_TIMEOUT, "{arrived} of {count} arrived within {FIRING_TIMEOUT:?}");
        recorded.resize(usize::try_from(fired)?, late);
        delivered.resize(usize::try_from(arrived)?, late);
        sleep(POLL_INTERVAL).await;
    }
    Ok((recorded.into_iter().collect(), delivered.into_iter().collect()))
}

async fn spread(clockwork: &mut SchedulerMesh, count: usize) -> anyhow::Result<(Samples, Samples)> {
    let begin = Timestamp::now().as_millisecond() + 1_000;
    let times: Vec<Timestamp> = (0..i64::try_from(count)?)
        .map(|n| Timestamp::from_millisecond(begin + n * 50 + rand::random_range(0..50)))
        .collect::<Result<_, _>>()?;
    clockwork.add_many(&times).await?;
    let mut admin = clockwork.admin().await?;
    let since = times.first().copied().unwrap_or_default();
    let due = "select count(*) from schedule.jobs where due_at is not null";
    while clockwork.number(due).await? > 0 {
        sleep(Duration::from_millis(200)).await;
    }
    sleep(Duration::from_secs(1)).await;
    Ok((lateness(&mut admin, RECORDED, since).await?, lateness(&mut admin, ARRIVED, since).await?))
}

const RECORDED: &str = "
    select (extract(epoch from created_at - slot_at) * 1000000)::bigint
    from schedule.firings where slot_at >= $1";
const ARRIVED: &str = "
    select (extract(epoch from i.accepted_at - f.slot_at) * 1000000)::bigint
    from schedule.firings f
    join session.inbox i on i.session_id = f.session_id and i.seq = f.seq and i.tenant_id = f.tenant_id
    where f.slot_at >= $1";

async fn lateness(
    admin: &mut PgConnection,
    sql: &'static str,
    since: Timestamp,
) -> anyhow::Result<Samples> {
    let micros: Vec<i64> =
        sqlx::query_scalar(sql).bind(jiff_sqlx::Timestamp::from(since)).fetch_all(admin).await?;
    Ok(micros
        .into_iter()
        .map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
        .collect())
}
