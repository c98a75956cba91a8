//! The service `Heartbeats`.

use holdfast_agent::person::OWNER;
use holdfast_directory::{Agent, NewAgent};
use holdfast_proto::gateway::v1::{
    self as pb, GetHeartbeatRequest, GetHeartbeatResponse, ListHeartbeatEventsRequest,
    ListHeartbeatEventsResponse, RunHeartbeatRequest, RunHeartbeatResponse, SetHeartbeatRequest,
    SetHeartbeatResponse, heartbeats_server::Heartbeats as Service,
};
use holdfast_schedule::store::{HeartbeatLine, JobState, RunMode, RunRequestOutcome};
use holdfast_schedule::{
    Zone,
    heartbeat::{
        ActiveHours, AgentFacts, AskDecision, HeartbeatConfig, HeartbeatTarget, Zones, decide_ask,
    },
};
use holdfast_session::ChannelConversation;
use holdfast_types::{AgentId, Author, SessionKey, SessionKind, TenantId};
use jiff::{SignedDuration, Timestamp};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{
    State, actor, invalid, non_empty, page_size, parse_word_or_default, timestamp, word_of,
};
use crate::{Error, audit, ingest};

/// Default and maximum number of next times.
const NEXT_TIMES_LIMITS: (u32, u32) = (5, 50);

/// Default and maximum number of events.
const EVENT_LIMITS: (u32, u32) = (20, 100);

/// Implements `holdfast.gateway.v1.Heartbeats`.
#[derive(Debug)]
pub struct Heartbeats(pub State);

impl State {
    /// Conversation in which an agent's owner last wrote: the main session, or else the only direct
    /// conversation if all its authors are owners. The scheduler uses the same rule.
    pub(super) async fn owner_conversation(
        &self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Option<ChannelConversation>, Error> {
        let Some(place) = self.sessions.views().last_conversation(tenant, agent).await? else {
            return Ok(None);
        };
        if place.key.kind() == SessionKind::Main {
            return Ok(Some(place));
        }
        let are = self.are_owners(tenant, agent, &place.speakers).await?;
        Ok(are.then_some(place))
    }

    /// Whether all authors own the agent; `false` if there are none.
    pub(super) async fn are_owners(
        &self,
        tenant: TenantId,
        agent: AgentId,
        speakers: &[Author],
    ) -> Result<bool, Error> {
        ingest::are_owners(&self.directory, tenant, agent, speakers).await
    }
}

impl Heartbeats {
    async fn agent(&self, tenant: TenantId, named: &str) -> Result<Agent, Error> {
        let directory = &self.0.directory;
        Ok(match named {
            "" => directory.agents().default_agent(tenant).await?,
            named => directory.agents().get(tenant, named).await?,
        })
    }

    async fn status(
        &self,
        tenant: TenantId,
        agent: Agent,
        next: usize,
    ) -> Result<GetHeartbeatResponse, Error> {
        let State { jobs, workspaces, sessions, .. } = &self.0;
        let config = &agent.settings.heartbeat;
        let path = "HEARTBEAT.md".parse().map_err(|_| Error::MissingField("path"))?;
        let file = workspaces.read(tenant, agent.id, &path, None).await?;
        let (job, lines) = (
            jobs.heartbeat(tenant, agent.id).await?,
            jobs.heartbeat_lines(tenant, agent.id, 1).await?,
        );
        let place = self.0.owner_conversation(tenant, agent.id).await?;
        let is_main = place.as_ref().is_some_and(|place| place.key.kind().as_str() == "main");
        let place = place.filter(|_| is_main || config.target == HeartbeatTarget::Last);
        let main = SessionKey::main(&agent.name);
        let told = place.as_ref().map_or(&main, |place| &place.key);
        let user = sessions.settings().zone_of(tenant, told, agent.id, Some(OWNER)).await?;
        let user = user.and_then(|name| name.parse().ok());
        let local: Zone = agent.settings.time_zone.parse().unwrap_or_default();
        let zones = Zones { user, local };
        let content = file.as_ref().map(|file| String::from_utf8_lossy(&file.content));
        let facts = AgentFacts { in_flight: false, file: content.as_deref() };
        let quiet = match decide_ask(config, Timestamp::now(), &zones, facts) {
            AskDecision::Quiet { reason, .. } => reason.to_owned(),
            AskDecision::Ask { .. } => String::new(),
        };
        let job = job.filter(|job| job.state == JobState::Active);
        let mut times = Vec::new();
        if let Some((spec, mut at)) =
            job.as_ref().and_then(|job| Some((job.spec().ok()?, job.next_slot?)))
        {
            while times.len() < next {
                times.push(timestamp(at));
                match spec.schedule.next_after(at) {
                    Some(after) => at = after,
                    None => break,
                }
            }
        }
        Ok(GetHeartbeatResponse {
            agent: agent.name.to_string(),
            enabled: config.enabled,
            every: config.every.clone(),
            beats: job.is_some(),
            quiet,
            channel: match &place {
                Some(place) => place.target.channel.clone(),
                None => "session".to_owned(),
            },
            to: place.map(|place| place.target.chat).unwrap_or_default(),
            time_zone: agent.settings.time_zone,
            last: lines.into_iter().next().map(event_of),
            next: times,
        })
    }

    async fn run(
        &self,
        tenant: TenantId,
        agent: Agent,
        request: Uuid,
    ) -> Result<RunRequestOutcome, Error> {
        let jobs = &self.0.jobs;
        let job = match jobs.heartbeat(tenant, agent.id).await? {
            Some(job) => job,
            // Without a job the agent never had a heartbeat file. Create the job; its first step
            // checks whether there is something to do now.
            None => {
                let config = &agent.settings.heartbeat;
                jobs.update_heartbeat_job(tenant, agent.id, config, true, SignedDuration::ZERO)
                    .await?;
                jobs.mark_heartbeat(tenant, agent.id).await?;
                let made = jobs.heartbeat(tenant, agent.id).await?;
                made.ok_or_else(|| Error::NoAgent(agent.name.to_string()))?
            }
        };
        let ran = jobs.run_now(tenant, job.id, request, RunMode::Force).await?;
        self.0.bus.wake_schedule();
        Ok(ran)
    }
}

#[tonic::async_trait]
impl Service for Heartbeats {
    async fn get_heartbeat(
        &self,
        request: Request<GetHeartbeatRequest>,
    ) -> Result<Response<GetHeartbeatResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let next =
            usize::try_from(page_size(request.next, NEXT_TIMES_LIMITS.0, NEXT_TIMES_LIMITS.1)?)
                .unwrap_or(0);
        let agent = self.agent(caller.tenant, &request.agent).await?;

        Ok(Response::new(self.status(caller.tenant, agent, next).await?))
    }

    async fn list_heartbeat_events(
        &self,
        request: Request<ListHeartbeatEventsRequest>,
    ) -> Result<Response<ListHeartbeatEventsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = u32::try_from(page_size(request.limit, EVENT_LIMITS.0, EVENT_LIMITS.1)?)
            .unwrap_or(EVENT_LIMITS.0);
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let lines = self.0.jobs.heartbeat_lines(caller.tenant, agent.id, most).await;

        let events = lines.map_err(Error::from)?.into_iter().map(event_of).collect();
        Ok(Response::new(ListHeartbeatEventsResponse { events }))
    }

    async fn run_heartbeat(
        &self,
        request: Request<RunHeartbeatRequest>,
    ) -> Result<Response<RunHeartbeatResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let id = match request.request_id.as_str() {
            "" => Uuid::now_v7(),
            given => Uuid::try_parse(given).map_err(|_| {
                invalid("`request_id` is no UUID: write one, or nothing".to_owned())
            })?,
        };
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let ran = self.run(caller.tenant, agent, id).await?;

        Ok(Response::new(match ran {
            RunRequestOutcome::Fired(_) | RunRequestOutcome::Due => {
                RunHeartbeatResponse { ran: true, reason: String::new() }
            }
            RunRequestOutcome::Skipped(reason) => {
                RunHeartbeatResponse { ran: false, reason: reason.to_owned() }
            }
        }))
    }

    async fn set_heartbeat(
        &self,
        request: Request<SetHeartbeatRequest>,
    ) -> Result<Response<SetHeartbeatResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let (id, mut settings) = (agent.id.to_string(), agent.settings);
        settings.heartbeat.enabled = request.enabled;
        let new = NewAgent {
            name: agent.name,
            description: agent.description,
            instructions: agent.instructions,
            model: agent.model,
            is_default: agent.is_default,
            settings,
        };

        let set = self.0.directory.agents().update(caller.tenant, actor(&caller), &id, new).await;

        set.map_err(Error::from)?;
        self.0.bus.wake_schedule();
        Ok(Response::new(SetHeartbeatResponse {}))
    }
}

fn event_of(line: HeartbeatLine) -> pb::HeartbeatEvent {
    let event = line.event;
    pb::HeartbeatEvent {
        ts: event.ts,
        status: word_of(&event.status),
        to: event.to.unwrap_or_default(),
        preview: event.preview.unwrap_or_default(),
        duration_ms: event.duration_ms,
        has_media: event.has_media,
        reason: event.reason.unwrap_or_default(),
        channel: event.channel.unwrap_or_default(),
        silent: event.silent,
        indicator_type: word_of(&event.indicator_type),
        run_id: line.run.map(|run| run.to_string()).unwrap_or_default(),
    }
}

/// Converts the settings of a heartbeat to the proto.
pub(super) fn settings_of(config: HeartbeatConfig) -> pb::HeartbeatSettings {
    pb::HeartbeatSettings {
        enabled: Some(config.enabled),
        every: config.every,
        prompt: config.prompt.unwrap_or_default(),
        target: word_of(&config.target),
        model: config.model.unwrap_or_default(),
        ack_max_chars: Some(u32::try_from(config.ack_max_chars).unwrap_or(u32::MAX)),
        session: config.session.unwrap_or_default(),
        active_hours: config.active_hours.map(|hours| pb::ActiveHours {
            start: hours.start,
            end: hours.end,
            time_zone: hours.timezone.to_string(),
        }),
        include_reasoning: config.include_reasoning,
    }
}

/// Converts the settings of a heartbeat; absent and empty mean the default.
pub(super) fn settings(given: Option<pb::HeartbeatSettings>) -> Result<HeartbeatConfig, Error> {
    let Some(given) = given else { return Ok(HeartbeatConfig::default()) };
    let usual = HeartbeatConfig::default();
    let hours = |hours: pb::ActiveHours| {
        let timezone = hours.time_zone.parse().map_err(|error: holdfast_schedule::Error| {
            invalid(format!("`heartbeat.active_hours.time_zone`: {error}"))
        })?;
        Ok::<_, Error>(ActiveHours { start: hours.start, end: hours.end, timezone })
    };
    Ok(HeartbeatConfig {
        enabled: given.enabled.unwrap_or(usual.enabled),
        every: non_empty(given.every).unwrap_or(usual.every),
        prompt: non_empty(given.prompt),
        target: match given.target.as_str() {
            "" => HeartbeatTarget::Last,
            target => parse_word_or_default("heartbeat.target", target, "main or last")?,
        },
        model: non_empty(given.model),
        ack_max_chars: match given.ack_max_chars {
            Some(most) => usize::try_from(most).unwrap_or(usize::MAX),
            None => usual.ack_max_chars,
        },
        session: non_empty(given.session),
        active_hours: given.active_hours.map(hours).transpose()?,
        include_reasoning: given.include_reasoning,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_of_a_heartbeat_is_as_usual_and_what_is_said_comes_back() {
        assert_eq!(settings(None).unwrap(), HeartbeatConfig::default());
        assert_eq!(settings(Some(Default::default())).unwrap(), HeartbeatConfig::default());

        let said = pb::HeartbeatSettings {
            enabled: Some(false),
            every: "1h".into(),
            prompt: "Look.".into(),
            target: "main".into(),
            model: "demo:demo".into(),
            ack_max_chars: Some(0),
            session: "main".into(),
            active_hours: Some(pb::ActiveHours {
                start: "08:00".into(),
                end: "24:00".into(),
                time_zone: "Europe/Oslo".into(),
            }),
            include_reasoning: true,
        };
        assert_eq!(settings_of(settings(Some(said.clone())).unwrap()), said);
    }

    #[test]
    fn a_zone_or_a_target_that_is_none_is_refused_with_what_to_write() {
        let target = pb::HeartbeatSettings { target: "all".into(), ..Default::default() };
        let hours = pb::ActiveHours { time_zone: "Mars".into(), ..Default::default() };
        let zone = pb::HeartbeatSettings { active_hours: Some(hours), ..Default::default() };

        assert!(settings(Some(target)).unwrap_err().to_string().contains("write main or last"));
        assert!(settings(Some(zone)).unwrap_err().to_string().contains("`Mars`"));
    }
}
