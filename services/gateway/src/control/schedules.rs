//! The service `Schedules`: jobs, and (in `reminders.rs`) reminders.

mod calendar;
mod convert;
mod reminders;
mod times;

use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, AddJobRequest, AddJobResponse, AddReminderRequest, AddReminderResponse,
    BackfillJobRequest, BackfillJobResponse, CancelReminderRequest, CancelReminderResponse,
    DeleteJobRequest, DeleteJobResponse, GetJobRequest, GetJobResponse, GetScheduleStatusRequest,
    GetScheduleStatusResponse, ListCalendarRequest, ListCalendarResponse, ListJobRunsRequest,
    ListJobRunsResponse, ListJobsRequest, ListJobsResponse, ListNextTimesRequest,
    ListNextTimesResponse, ListRemindersRequest, ListRemindersResponse, PauseJobRequest,
    PauseJobResponse, ResumeJobRequest, ResumeJobResponse, RunJobRequest, RunJobResponse,
    UpdateJobRequest, UpdateJobResponse, WakeAgentRequest, WakeAgentResponse,
    schedules_server::Schedules as Service,
};
use holdfast_schedule::store::{
    Changes, Editor, Job, JobFilter, JobKind, Jobs, NewJob, Rules, RunMode, RunRequestOutcome,
};
use holdfast_schedule::{JobPatch, NewJob as JobFields, Payload, check_id};
use holdfast_session::NewSystemEvent;
use holdfast_types::{AgentId, JobId, SessionKey, TenantId};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use self::convert::{JobNames, job_of};
pub(super) use self::times::moment;
use super::{State, invalid, non_empty, page_size, timestamp};
use crate::{
    Error, audit,
    ingest::of_caller,
    permissions::rights::{self, ConversationRight},
    permissions::{Permission, require},
};

/// Authors by whom jobs are filtered: the names of one person.
const MAX_AUTHORS: usize = 200;

/// Implements `holdfast.gateway.v1.Schedules`.
#[derive(Debug, Clone)]
pub struct Schedules {
    pub state: State,
    pub jobs: Jobs,
    /// Limits of jobs and reminders.
    pub rules: Rules,
}

/// Adds the service to `routes`.
#[must_use]
pub fn add_service(
    routes: tonic::service::Routes,
    service: Schedules,
    body_limit: usize,
) -> tonic::service::Routes {
    use holdfast_proto::gateway::v1::schedules_server::SchedulesServer;
    routes.add_service(SchedulesServer::new(service).max_decoding_message_size(body_limit))
}

#[tonic::async_trait]
impl Service for Schedules {
    async fn get_schedule_status(
        &self,
        request: Request<GetScheduleStatusRequest>,
    ) -> Result<Response<GetScheduleStatusResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let counts = self.jobs.counts(caller.tenant).await.map_err(Error::from)?;

        Ok(Response::new(GetScheduleStatusResponse {
            jobs_count: counts.all,
            active_count: counts.active,
            running_count: counts.running,
            next_run_at: counts.next.map(timestamp),
            next_job: counts.next_name,
        }))
    }

    async fn list_jobs(
        &self,
        request: Request<ListJobsRequest>,
    ) -> Result<Response<ListJobsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = page_size(request.limit, 50, 200)?;
        let agent = match non_empty(request.agent) {
            Some(named) => Some(self.agent(caller.tenant, &named).await?.id),
            None => None,
        };
        let after: Option<JobId> = match non_empty(request.after) {
            Some(after) => Some(after.parse().map_err(Error::from)?),
            None => None,
        };
        let kinds = kinds(&request.kind)?;
        let kind = match kinds {
            [only] => Some(*only),
            _ => None,
        };
        let limit = u32::try_from(most).unwrap_or(u32::MAX);
        let authors = request.authors;
        if authors.len() > MAX_AUTHORS {
            return Err(invalid(format!("`authors` has at most {MAX_AUTHORS} entries")).into());
        }
        let filter = JobFilter { agent, kind, authors, after, limit, ..JobFilter::default() };

        let page = self.jobs.list(caller.tenant, &filter).await.map_err(Error::from)?;

        let next = page.last().filter(|_| page.len() == limit as usize);
        let next = next.map(|last| last.id.to_string()).unwrap_or_default();
        let listed: Vec<Job> = page.into_iter().filter(|job| kinds.contains(&job.kind)).collect();
        let names = self.names(caller.tenant, &listed).await?;
        let jobs = listed.iter().map(|job| job_of(job, &names)).collect();
        Ok(Response::new(ListJobsResponse { jobs, next }))
    }

    async fn get_job(
        &self,
        request: Request<GetJobRequest>,
    ) -> Result<Response<GetJobResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let job = self.job(caller.tenant, &request.job).await?;

        Ok(Response::new(GetJobResponse { job: Some(self.job_with_names(&job).await?) }))
    }

    async fn add_job(
        &self,
        request: Request<AddJobRequest>,
    ) -> Result<Response<AddJobResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let AddJobRequest { job, agent, id: own_id, request_id } = request;
        let what = JobFields::from_json(parse_json("job", &job)?).map_err(invalid_schedule)?;
        let named = non_empty(agent).or_else(|| what.agent_id.clone());
        let agent = self.agent(caller.tenant, named.as_deref().unwrap_or_default()).await?;
        what.payload.check_session(&agent.name).map_err(invalid_schedule)?;
        check_payload(&caller, &what.payload)?;
        let (id, now) = (id_for_request(caller.tenant, "AddJob", &request_id), Timestamp::now());
        let external_id = match non_empty(own_id) {
            Some(own) => {
                check_id(&own).map_err(invalid_schedule)?;
                own
            }
            None => generated_external_id(id),
        };
        let what = JobFields { agent_id: None, ..what };

        let new = NewJob::cron(id, agent.id, None, what, now, self.rules.allowed());
        let (external_id, author) = (Some(external_id), of_caller(&caller));
        let new = NewJob { external_id, author, ..new.map_err(invalid_schedule)? };
        let added = self.jobs.add(caller.tenant, new).await.map_err(Error::from)?;

        self.state.bus.wake_schedule();
        let job = Some(self.job_with_names(&added.into_job()).await?);
        Ok(Response::new(AddJobResponse { job }))
    }

    async fn update_job(
        &self,
        request: Request<UpdateJobRequest>,
    ) -> Result<Response<UpdateJobResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.job);
        let patch =
            JobPatch::from_json(parse_json("patch", &request.patch)?).map_err(invalid_schedule)?;
        let job = self.changeable_job(caller.tenant, &request.job).await?;
        let has_payload = patch.payload.is_some();
        let seen = Some(request.version).filter(|version| *version != 0);

        let changes = Changes::of(&job, patch, Timestamp::now(), self.rules.allowed());
        let changes = changes.map_err(|error| match error {
            holdfast_schedule::store::PatchError::Wrong(error) => invalid_schedule(error),
            holdfast_schedule::store::PatchError::Stored(error) => error.into(),
        })?;
        if has_payload {
            let agent = self.state.directory.agents().by_id(caller.tenant, job.agent).await;
            let agent = agent.map_err(Error::from)?;
            changes.check_session(&agent.name).map_err(invalid_schedule)?;
            let payload = changes.payload.clone().map(serde_json::from_value::<Payload>);
            if let Some(Ok(payload)) = payload {
                check_payload(&caller, &payload)?;
            }
        }
        let editor = self.editor(&caller, job.agent).await?;
        let changes = Changes { editor, ..changes };
        // The changes were checked against the version read above.
        let version = seen.unwrap_or(job.version);
        let job = self.jobs.update(caller.tenant, job.id, Some(version), changes).await;

        self.state.bus.wake_schedule();
        let job = Some(self.job_with_names(&job.map_err(Error::from)?).await?);
        Ok(Response::new(UpdateJobResponse { job }))
    }

    async fn delete_job(
        &self,
        request: Request<DeleteJobRequest>,
    ) -> Result<Response<DeleteJobResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.job);
        let job = match self.changeable_job(caller.tenant, &request.job).await {
            Err(Error::NoJob(_)) => return Ok(Response::new(DeleteJobResponse { existed: false })),
            found => found?,
        };

        self.jobs.remove(caller.tenant, job.id).await.map_err(Error::from)?;

        Ok(Response::new(DeleteJobResponse { existed: true }))
    }

    async fn pause_job(
        &self,
        request: Request<PauseJobRequest>,
    ) -> Result<Response<PauseJobResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.job);
        let job = self.job(caller.tenant, &request.job).await?;

        let job = self.jobs.pause(caller.tenant, job.id).await.map_err(Error::from)?;

        Ok(Response::new(PauseJobResponse { job: Some(self.job_with_names(&job).await?) }))
    }

    async fn resume_job(
        &self,
        request: Request<ResumeJobRequest>,
    ) -> Result<Response<ResumeJobResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.job);
        let job = self.job(caller.tenant, &request.job).await?;

        let job = self.jobs.resume(caller.tenant, job.id).await.map_err(Error::from)?;

        self.state.bus.wake_schedule();
        Ok(Response::new(ResumeJobResponse { job: Some(self.job_with_names(&job).await?) }))
    }

    async fn run_job(
        &self,
        request: Request<RunJobRequest>,
    ) -> Result<Response<RunJobResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let mode = match request.mode.as_str() {
            "" | "due" => RunMode::Due,
            "force" => RunMode::Force,
            other => return Err(unknown_value("mode", other, "`due` or `force`").into()),
        };
        let job = self.job(caller.tenant, &request.job).await?;
        let id = id_for_request(caller.tenant, "RunJob", &request.request_id).as_uuid();

        let ran = self.jobs.run_now(caller.tenant, job.id, id, mode).await.map_err(Error::from)?;

        self.state.bus.wake_schedule();
        let (status, reason) = match ran {
            RunRequestOutcome::Fired(_) | RunRequestOutcome::Due => ("started", ""),
            RunRequestOutcome::Skipped(reason) => ("skipped", reason),
        };
        Ok(Response::new(RunJobResponse { status: status.into(), reason: reason.into() }))
    }

    async fn list_job_runs(
        &self,
        request: Request<ListJobRunsRequest>,
    ) -> Result<Response<ListJobRunsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = u32::try_from(page_size(request.limit, 20, 100)?).unwrap_or(100);
        let job = self.job(caller.tenant, &request.job).await?;

        let runs = self.jobs.runs(caller.tenant, job.id, most).await.map_err(Error::from)?;

        let runs = runs.into_iter().map(convert::run_of).collect();
        Ok(Response::new(ListJobRunsResponse { runs }))
    }

    async fn backfill_job(
        &self,
        request: Request<BackfillJobRequest>,
    ) -> Result<Response<BackfillJobResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.job);
        let from = request.from.ok_or(Error::MissingField("from"))?;
        let from = moment("from", &from)?;
        let now = Timestamp::now();
        let until = match &request.until {
            Some(until) => moment("until", until)?.min(now),
            None => now,
        };
        let job = self.job(caller.tenant, &request.job).await?;
        let spec = job.spec().map_err(Error::from)?;
        let slots = times::slots_between(&spec.schedule, from, until)?;

        let count = self.jobs.backfill(caller.tenant, job.id, &slots).await;

        self.state.bus.wake_schedule();
        Ok(Response::new(BackfillJobResponse { count: count.map_err(Error::from)? }))
    }

    async fn list_next_times(
        &self,
        request: Request<ListNextTimesRequest>,
    ) -> Result<Response<ListNextTimesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let count = page_size(request.count, 5, 100)?;
        let (tenant, zone) = (caller.tenant, non_empty(request.time_zone));
        let (schedule, zone) = match (non_empty(request.job), non_empty(request.schedule)) {
            (Some(job), None) => {
                let job = self.job(tenant, &job).await?;
                let zone = match zone {
                    Some(zone) => zone,
                    None => self.zone_of(tenant, &job).await?,
                };
                (job.spec().map_err(Error::from)?.schedule, zone)
            }
            (None, Some(schedule)) => {
                let schedule = serde_json::from_value(parse_json("schedule", &schedule)?)
                    .map_err(|error| invalid(format!("the schedule cannot be read: {error}")))?;
                let agent = self.agent(tenant, "").await?;
                (schedule, zone.unwrap_or(agent.settings.time_zone))
            }
            (None, None) => return Err(Error::MissingField("job").into()),
            (Some(_), Some(_)) => {
                return Err(invalid("give a job or a schedule, and not both".to_owned()).into());
            }
        };
        let zone = zone.parse().map_err(invalid_schedule)?;

        let count = usize::try_from(count).unwrap_or(0);
        let times = times::next_times(&schedule, &zone, Timestamp::now(), count);

        Ok(Response::new(ListNextTimesResponse { times }))
    }

    async fn list_calendar(
        &self,
        request: Request<ListCalendarRequest>,
    ) -> Result<Response<ListCalendarResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let range = calendar::range(&request, Timestamp::now())?;
        let agent = match non_empty(request.agent) {
            Some(named) => Some(self.agent(caller.tenant, &named).await?.id),
            None => None,
        };
        let kinds = kinds(&request.kind)?;
        let names = self.state.agent_names(caller.tenant).await?;

        let jobs = calendar::active_jobs(&self.jobs, caller.tenant, agent, kinds).await?;

        Ok(Response::new(calendar::list(&jobs, range, &names)))
    }

    async fn wake_agent(
        &self,
        request: Request<WakeAgentRequest>,
    ) -> Result<Response<WakeAgentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let WakeAgentRequest { agent, text, mode, request_id } = request;
        if text.trim().is_empty() {
            return Err(Error::MissingField("text").into());
        }
        let most = holdfast_session::MAX_EVENT_CHARS;
        if text.chars().count() > most {
            let told = format!("`text` is longer than {most} characters: say it in fewer");
            return Err(invalid(told).into());
        }
        let agent = self.agent(caller.tenant, &agent).await?;
        let idem_key = id_for_request(caller.tenant, "WakeAgent", &request_id).to_string();
        let key = SessionKey::main(&agent.name);

        let duplicate = match mode.as_str() {
            "" | "next-heartbeat" => {
                // An owner's words are the owner's own; those of others are not.
                let outside = !rights::reaches_all(&caller, ConversationRight::Write);
                let event = NewSystemEvent { key, idem_key, text, outside, signed: None };
                let added = self.state.sessions.add_system_event(caller.tenant, &event).await;
                !added.map_err(Error::from)?
            }
            "now" => self.wake_now(&caller, agent.id, key, idem_key, text).await?,
            other => return Err(unknown_value("mode", other, "`now` or `next-heartbeat`").into()),
        };

        Ok(Response::new(WakeAgentResponse { duplicate }))
    }

    async fn list_reminders(
        &self,
        request: Request<ListRemindersRequest>,
    ) -> Result<Response<ListRemindersResponse>, Status> {
        self.reminders_of_user(request).await
    }

    async fn add_reminder(
        &self,
        request: Request<AddReminderRequest>,
    ) -> Result<Response<AddReminderResponse>, Status> {
        self.create_reminder(request).await
    }

    async fn cancel_reminder(
        &self,
        request: Request<CancelReminderRequest>,
    ) -> Result<Response<CancelReminderResponse>, Status> {
        self.delete_reminder(request).await
    }
}

/// Refuses what would speak with the owner's voice: a text for the agent's main session is acted on
/// with the rights of the agent's owner.
fn check_payload(caller: &Caller, payload: &Payload) -> Result<(), Error> {
    match payload {
        Payload::SystemEvent { .. } => require(caller, Permission::Own),
        Payload::AgentTurn(_) | Payload::Message(_) | Payload::Timer(_) => Ok(()),
    }
}

impl Schedules {
    /// Finds a job by its id, external id or short id.
    async fn job(&self, tenant: TenantId, named: &str) -> Result<Job, Error> {
        if named.is_empty() {
            return Err(Error::MissingField("job"));
        }
        match self.jobs.find(tenant, named, None).await {
            Err(holdfast_schedule::store::Error::NotFound(named)) => {
                Err(Error::NoJob(no_job_message(&named)))
            }
            found => Ok(found?),
        }
    }

    /// As [`job`](Self::job), but refuses jobs of kinds that cannot be changed here.
    async fn changeable_job(&self, tenant: TenantId, named: &str) -> Result<Job, Error> {
        let job = self.job(tenant, named).await?;
        match job.kind {
            JobKind::Cron | JobKind::Every | JobKind::At | JobKind::Timer => Ok(job),
            JobKind::Reminder => {
                Err(invalid("this job is a reminder: cancel it, and add another".to_owned()))
            }
            JobKind::Heartbeat => Err(invalid(
                "this job is the agent's own: change it where the agent is set up".to_owned(),
            )),
        }
    }

    async fn agent(
        &self,
        tenant: TenantId,
        named: &str,
    ) -> Result<holdfast_directory::Agent, Error> {
        Ok(match named {
            "" => self.state.directory.agents().default_agent(tenant).await?,
            named => self.state.directory.agents().get(tenant, named).await?,
        })
    }

    /// Author of a caller's changes to a job of an agent; `None` for a service of the mesh.
    async fn editor(&self, caller: &Caller, agent: AgentId) -> Result<Option<Editor>, Error> {
        let Some(author) = of_caller(caller) else { return Ok(None) };
        let authors = std::slice::from_ref(&author);
        let is_owner = self.state.are_owners(caller.tenant, agent, authors).await?;
        Ok(Some(Editor { author, is_owner }))
    }

    /// Time zone of a job's agent.
    async fn zone_of(&self, tenant: TenantId, job: &Job) -> Result<String, Error> {
        let agent = self.state.directory.agents().by_id(tenant, job.agent).await?;
        Ok(agent.settings.time_zone)
    }

    async fn job_with_names(&self, job: &Job) -> Result<pb::Job, Error> {
        let names = self.names(job.tenant, std::slice::from_ref(job)).await?;
        Ok(job_of(job, &names))
    }

    /// Names that the jobs refer to.
    async fn names(&self, tenant: TenantId, jobs: &[Job]) -> Result<JobNames, Error> {
        let authors = jobs.iter().filter_map(|job| Some(job.author.as_ref()?.id.as_str()));
        Ok(JobNames {
            agents: self.state.agent_names(tenant).await?,
            authors: self.state.author_names(tenant, authors).await?,
        })
    }
}

/// Job kinds that a list shows.
fn kinds(word: &str) -> Result<&'static [JobKind], Error> {
    match word {
        "" => Ok(&[JobKind::Cron, JobKind::Every, JobKind::At, JobKind::Timer]),
        "all" => Ok(JobKind::ALL),
        word => {
            let at = JobKind::ALL.iter().position(|kind| kind.as_str() == word);
            let found = at.and_then(|at| JobKind::ALL.get(at..=at));
            found.ok_or_else(|| {
                unknown_value("kind", word, "cron, every, at, heartbeat, reminder, timer or all")
            })
        }
    }
}

/// Id derived from the request, so that a repeated request gets the same; random without a request
/// id.
fn id_for_request(tenant: TenantId, method: &str, request: &str) -> JobId {
    if request.is_empty() {
        return JobId::generate();
    }
    let digest = Sha256::digest(format!("{tenant}:{method}:{request}"));
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    let id: Uuid = uuid::Builder::from_bytes(bytes).with_version(uuid::Version::Custom).into_uuid();
    id.into()
}

/// External id of a new job (CRN-003).
fn generated_external_id(id: JobId) -> String {
    let digits = id.as_uuid().simple().to_string();
    format!("cron_{}", &digits[digits.len() - 8..])
}

/// Error message that the specification prescribes (CRN-005).
fn no_job_message(named: &str) -> String {
    format!("Job not found: {named}")
}

fn parse_json(field: &'static str, text: &str) -> Result<Value, Error> {
    if text.is_empty() {
        return Err(Error::MissingField(field));
    }
    serde_json::from_str(text).map_err(|error| invalid(format!("`{field}` is not JSON: {error}")))
}

fn invalid_schedule(error: holdfast_schedule::Error) -> Error {
    invalid(error.to_string())
}

fn unknown_value(field: &'static str, given: &str, wanted: &'static str) -> Error {
    Error::UnknownValue { field, given: given.chars().take(80).collect(), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_is_the_same_job_and_none_is_a_new_one() {
        let (one, other) = (TenantId::generate(), TenantId::generate());
        assert_eq!(id_for_request(one, "m", "a"), id_for_request(one, "m", "a"));
        assert_ne!(id_for_request(one, "m", "a"), id_for_request(one, "m", "b"));
        assert_ne!(id_for_request(one, "m", "a"), id_for_request(other, "m", "a"));
        assert_ne!(id_for_request(one, "m", "a"), id_for_request(one, "n", "a"));
        assert_ne!(id_for_request(one, "m", ""), id_for_request(one, "m", ""));
        let name = generated_external_id(id_for_request(one, "m", "a"));
        assert!(name.starts_with("cron_") && name.len() == 13, "{name}");
    }

    #[test]
    fn a_list_has_the_kinds_that_are_asked_for() {
        assert_eq!(kinds("").unwrap().len(), 4);
        assert_eq!(kinds("all").unwrap(), JobKind::ALL);
        assert_eq!(kinds("reminder").unwrap(), [JobKind::Reminder]);
        assert!(kinds("tea").is_err());
    }
}
