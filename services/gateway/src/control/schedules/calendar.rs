//! Times of all jobs in a range.

use holdfast_proto::gateway::v1::{self as pb, ListCalendarRequest, ListCalendarResponse};
use holdfast_schedule::store::{Job, JobFilter, JobKind, JobState, Jobs};
use holdfast_types::{AgentId, TenantId};
use jiff::{SignedDuration, Timestamp};

use super::{
    super::{AgentNames, invalid, timestamp},
    times::moment,
};
use crate::Error;

/// Longest range, and the usual one.
const MAX_RANGE: SignedDuration = SignedDuration::from_hours(62 * 24);
const USUAL_RANGE: SignedDuration = SignedDuration::from_hours(24);

const MAX_ENTRIES: usize = 2_000;
const MAX_ENTRIES_PER_JOB: usize = 200;

/// Jobs that are read, and those of one page.
const MAX_JOBS: usize = 2_000;
const JOBS_PER_PAGE: u32 = 200;

/// First and last moment of a request; the last one is excluded.
pub(super) fn range(
    request: &ListCalendarRequest,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Error> {
    let from = request.from.as_ref().map(|from| moment("from", from)).transpose()?.unwrap_or(now);
    let until = match &request.until {
        Some(until) => moment("until", until)?,
        None => from
            .saturating_add(USUAL_RANGE)
            .map_err(|_| invalid("`from` is too late".to_owned()))?,
    };
    match until.duration_since(from) {
        length if length > MAX_RANGE => {
            Err(invalid("a calendar has 62 days at most: choose a shorter time".to_owned()))
        }
        length if length.is_negative() => Err(invalid("`until` is before `from`".to_owned())),
        _ => Ok((from, until)),
    }
}

/// Active jobs of these kinds.
pub(super) async fn active_jobs(
    jobs: &Jobs,
    tenant: TenantId,
    agent: Option<AgentId>,
    kinds: &[JobKind],
) -> Result<Vec<Job>, Error> {
    let mut found = Vec::new();
    let mut filter = JobFilter { agent, limit: JOBS_PER_PAGE, ..JobFilter::default() };
    while found.len() < MAX_JOBS {
        let page = jobs.list(tenant, &filter).await?;
        filter.after = page.last().map(|last| last.id);
        let is_last = page.len() < JOBS_PER_PAGE as usize;
        let is_shown = |job: &Job| job.state == JobState::Active && kinds.contains(&job.kind);
        found.extend(page.into_iter().filter(is_shown));
        if is_last {
            break;
        }
    }
    Ok(found)
}

/// The times of the jobs in a range, in the order of time.
pub(super) fn list(
    jobs: &[Job],
    (from, until): (Timestamp, Timestamp),
    names: &AgentNames,
) -> ListCalendarResponse {
    let mut entries: Vec<(Timestamp, &Job)> = Vec::new();
    let mut is_cut = jobs.len() >= MAX_JOBS;
    for job in jobs {
        let schedule = job.spec().ok().map(|spec| spec.schedule);
        // The next slot is known exactly; those after it follow from the schedule.
        let after = |at: Timestamp| schedule.as_ref().and_then(|schedule| schedule.next_after(at));
        let first = job.next_slot.map(|next| match next < from {
            true => after(from.saturating_sub(SignedDuration::from_millis(1)).unwrap_or(from)),
            false => Some(next),
        });
        let times = std::iter::successors(first.flatten(), |at| after(*at));
        let mut times = times.take_while(|at| *at < until);
        entries.extend(times.by_ref().take(MAX_ENTRIES_PER_JOB).map(|at| (at, job)));
        is_cut |= times.next().is_some();
    }
    entries.sort_by_key(|(at, job)| (*at, job.id));
    is_cut |= entries.len() > MAX_ENTRIES;
    entries.truncate(MAX_ENTRIES);
    let entries = entries.into_iter().map(|(at, job)| pb::CalendarEntry {
        job: job.external_id.clone(),
        name: job.name.clone(),
        agent: names.of(job.agent),
        kind: job.kind.as_str().to_owned(),
        at: Some(timestamp(at)),
    });
    ListCalendarResponse { entries: entries.collect(), is_cut }
}
