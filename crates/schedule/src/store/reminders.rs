//! Reminders of users: the same operations for tools and for the API (spec REM).

use std::collections::HashMap;

use crate::{
    Schedule, Zone,
    reminder::{
        Limits, Locale, Refused, ReminderCheck, ReminderMatch, Renewal, TimeError, match_reminder,
        parse_time,
    },
};
use holdfast_types::{AgentId, Author, JobId, SessionKey, Target, TenantId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::store::{Error, Job, JobFilter, JobKind, JobState, Jobs, NewJob, Reminder};

/// Page size when all reminders of a user are read.
const PAGE_SIZE: u32 = 200;

#[derive(Debug, Clone)]
pub struct NewReminder<'a> {
    /// Client-generated id; the same id sets one reminder.
    pub id: JobId,
    pub agent: AgentId,
    /// User to remind. From the caller's credentials, never from a model's text.
    pub user: &'a str,
    pub session: &'a SessionKey,
    /// Target of the reminder; `None` means where the session was last active.
    pub target: Option<Target>,
    pub content: &'a str,
    /// Time in the user's words.
    pub time: &'a str,
    pub zone: &'a Zone,
    pub locale: Locale,
    /// Whether the agent runs a turn when the reminder fires.
    pub auto_continue: bool,
    /// Who sets it; `None` if the agent does by itself.
    pub author: Option<Author>,
    /// The reminder whose turn sets this one.
    pub renewal: Option<Renewal>,
    /// Whether the content may repeat text from outside, and no person has approved it.
    pub outside: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReminderRefusal {
    #[error(transparent)]
    Time(#[from] TimeError),
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl ReminderRefusal {
    /// Returns the message for the user.
    #[must_use]
    pub fn user_message(&self, locale: Locale) -> String {
        match self {
            Self::Time(error) => locale.bad_time(error),
            Self::Refused(refused) => locale.refused(*refused),
        }
    }
}

impl ReminderRefusal {
    /// Returns whether a limit on the number of reminders is the reason.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(
            self,
            Self::Refused(Refused::TooMany { .. } | Refused::NoRoom | Refused::Unanswered { .. })
        )
    }
}

/// Reminder that is still to fire.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingReminder {
    pub at: Timestamp,
    pub what: Reminder,
    pub job: Job,
}

impl Jobs {
    /// Sets a reminder, once per id.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] if the user's name is too long, [`Error::Taken`] if the id belongs to a job
    /// of another kind. The inner error says why the reminder is not allowed.
    pub async fn set_reminder(
        &self,
        tenant: TenantId,
        remind: NewReminder<'_>,
        limits: Limits,
    ) -> Result<Result<PendingReminder, ReminderRefusal>, Error> {
        match self.get(tenant, remind.id).await {
            // Do not parse again: the same words mean another time by now.
            Ok(there) if there.kind == JobKind::Reminder => return read(there).map(Ok),
            Ok(there) => return Err(Error::Taken(there.external_id)),
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let now = Timestamp::now();
        let at = match parse_time(remind.time, now, remind.zone) {
            Ok(at) => at,
            Err(error) => return Ok(Err(error.into())),
        };
        let active = self.reminders(tenant, remind.user).await?.len();
        let asked = ReminderCheck { content: remind.content, at, active, renewal: remind.renewal };
        let renewals = match limits.check(asked) {
            Ok(renewals) => renewals,
            Err(refused) => return Ok(Err(refused.into())),
        };
        let Ok(schedule) = Schedule::at(at.as_millisecond()) else {
            return Ok(Err(TimeError::TooFar(at.to_string()).into()));
        };
        let what = Reminder {
            content: remind.content.trim().to_owned(),
            session: remind.session.to_string(),
            auto_continue: remind.auto_continue,
            locale: remind.locale.tag().to_owned(),
            target: remind.target,
            renewals,
            author: remind.author,
            outside: remind.outside,
        };
        let user = remind.user.to_owned();
        let new = NewJob::reminder(remind.id, remind.agent, user, schedule, &what);
        // The job is kept for a while after it fired, so that a repeated request after a crash
        // finds it.
        let new = NewJob { delete_after_run: false, ..new };
        match self.add(tenant, new).await {
            Ok(added) => read(added.into_job()).map(Ok),
            Err(Error::TooMany { what: "reminders", limit, .. }) => {
                Ok(Err(Refused::TooMany { most: usize::try_from(limit).unwrap_or(0) }.into()))
            }
            Err(Error::TooMany { .. }) => Ok(Err(Refused::NoRoom.into())),
            Err(error) => Err(error),
        }
    }

    /// Returns a user's reminders that are still to fire, earliest first, including failed ones
    /// that will be retried.
    pub async fn reminders(
        &self,
        tenant: TenantId,
        user: &str,
    ) -> Result<Vec<PendingReminder>, Error> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let filter = JobFilter {
                owner: Some(user.to_owned()),
                kind: Some(JobKind::Reminder),
                after,
                limit: PAGE_SIZE,
                ..JobFilter::default()
            };
            let page = self.list(tenant, &filter).await?;
            let is_last = page.len() < PAGE_SIZE as usize;
            after = page.last().map(|job| job.id);
            found.extend(page.into_iter().filter(|job| job.state == JobState::Active));
            if is_last {
                break;
            }
        }
        let again = self.retry_times(tenant, &found).await?;
        let mut waiting = Vec::with_capacity(found.len());
        for job in found {
            // A job without a slot is running now or waits for a retry.
            let (again, is_due) = (again.get(&job.id).copied(), job.next_slot.is_some());
            if is_due || again.is_some() {
                let one = read(job)?;
                let at = again.filter(|_| !is_due).unwrap_or(one.at);
                waiting.push(PendingReminder { at, ..one });
            }
        }
        waiting.sort_by_key(|one| (one.at, one.job.id));
        Ok(waiting)
    }

    /// Returns the times of the next retries, for the jobs that have no slot left.
    async fn retry_times(
        &self,
        tenant: TenantId,
        jobs: &[Job],
    ) -> Result<HashMap<JobId, Timestamp>, Error> {
        const SQL: &str = "
            select job_id, min(coalesce(offer_at, slot_at)) from schedule.firings
            where tenant_id = $1 and job_id = any($2) and state = 'pending' and not held
            group by job_id";

        let jobs: Vec<Uuid> =
            jobs.iter().filter(|job| job.next_slot.is_none()).map(|job| job.id.as_uuid()).collect();
        if jobs.is_empty() {
            return Ok(HashMap::new());
        }
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(Uuid, jiff_sqlx::Timestamp)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(jobs)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(|(job, at)| (job.into(), at.to_jiff())).collect())
    }

    /// Deletes a user's reminder, named by its id or by the part of it that lists show. Returns its
    /// id. The inner error says that no reminder or several match.
    pub async fn cancel_reminder(
        &self,
        tenant: TenantId,
        user: &str,
        id: &str,
    ) -> Result<Result<String, ReminderMatch>, Error> {
        let own = self.reminders(tenant, user).await?;
        match match_reminder(id, own.iter().map(|one| one.job.external_id.as_str())) {
            ReminderMatch::One(at) => {
                let Some(one) = own.get(at) else { return Ok(Err(ReminderMatch::None)) };
                self.remove(tenant, one.job.id).await?;
                Ok(Ok(one.job.external_id.clone()))
            }
            named => Ok(Err(named)),
        }
    }
}

fn read(job: Job) -> Result<PendingReminder, Error> {
    let what = job.payload()?;
    let once = job.spec()?.schedule.next_after(Timestamp::MIN);
    let at = job.next_slot.or(once).unwrap_or(job.created_at);
    Ok(PendingReminder { at, what, job })
}
