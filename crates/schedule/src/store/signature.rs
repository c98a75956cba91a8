//! Messages of jobs, and the signatures by which their authors are known (decision 0130).
//!
//! A scheduler writes the message of a firing, and may write any row of `schedule.jobs`. So a message
//! has its author's rights only with an HMAC over the author and what the message says, by a key that
//! gateways and runners have. They sign a job when they add or change it, and the runner verifies the
//! message that a firing became.
//!
//! ## What can go wrong
//!
//! The HMAC is over a [`Body`] as JSON: a change of its fields, of their order, or of the texts of
//! reminders makes jobs from before count as unsigned. A test knows a signature of each kind by heart.

use std::{fmt, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_types::{
    AgentId, Author, Body, JobDestination, JobFiring, JobId, JobSignature, MainSessionPost,
    SessionKey, SessionKind, SignedAuthor, Target, TenantId,
};
use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use sha2::Sha256;
use tokio::{sync::SetOnce, time::timeout};

use crate::{
    AgentTurn, Isolation, Payload, PostMode,
    reminder::Locale,
    store::{Error, Job, JobKind, NewJob, Reminder},
};

/// Time in which the keys are read after the start of a service.
const KEY_TIMEOUT: Duration = Duration::from_secs(10);

/// Purpose and version of the signed content.
const PURPOSE: &str = "holdfast job 1";

/// Name of the event of a job's message in a session that people take part in.
const CRON_EVENT: &str = "cron";

/// Name of the event of a reminder.
const REMINDER_EVENT: &str = "reminder";

/// Keys that sign jobs: the first one, and during a rotation another one that is accepted.
pub struct JobKeys(Vec<Hmac<Sha256>>);

impl JobKeys {
    pub fn new(keys: impl IntoIterator<Item = [u8; 32]>) -> Self {
        let keys = keys.into_iter().map(|key| {
            // HMAC's block size is larger than the key.
            let mut block = [0; 64];
            block[..32].copy_from_slice(&key);
            Hmac::<Sha256>::new(&block.into())
        });
        Self(keys.collect())
    }

    fn sign(&self, content: &SignedContent<'_>) -> Result<String, Error> {
        let key = self.0.first().ok_or(Error::NoSigningKeys)?;
        let mac = key.clone().chain_update(content.to_bytes()?).finalize().into_bytes();
        Ok(BASE64_URL_SAFE_NO_PAD.encode(mac))
    }

    fn is_signed(&self, content: &SignedContent<'_>, mac: &str) -> bool {
        let (Ok(content), Ok(mac)) = (content.to_bytes(), BASE64_URL_SAFE_NO_PAD.decode(mac))
        else {
            return false;
        };
        // The comparison takes constant time.
        self.0.iter().any(|key| key.clone().chain_update(&content).verify_slice(&mac).is_ok())
    }

    /// Returns the signature of a job; `None` for a heartbeat, whose text is the runner's.
    pub(crate) fn sign_job(
        &self,
        tenant: TenantId,
        job: &JobFields<'_>,
    ) -> Result<Option<String>, Error> {
        if job.kind == JobKind::Heartbeat {
            return Ok(None);
        }
        self.sign(&JobMessage::of(job)?.content(tenant, job)).map(Some)
    }

    /// Whether a service that has the keys signed the job as it is.
    pub(crate) fn is_job_signed(&self, job: &Job) -> bool {
        let fields = JobFields::from(job);
        let (Ok(message), Some(mac)) = (JobMessage::of(&fields), &job.signature) else {
            return false;
        };
        self.is_signed(&message.content(job.tenant, &fields), mac)
    }

    /// Whether a message is what a signed job says: its author is the job's, and so are its text and
    /// its other fields.
    #[must_use]
    pub fn verify(&self, message: &FiredMessage<'_>) -> bool {
        let FiredMessage { tenant, agent, key, body, target } = *message;
        let Some(signature) = body.job_signature.as_deref() else { return false };
        if target.is_some_and(|target| !signature.destination.allows(target)) {
            return false;
        }
        let is_there = match &signature.session {
            Some(session) => {
                session.parse::<SessionKey>().is_ok_and(|session| session.as_str() == key.as_str())
            }
            None if body.event.is_some() => key.kind() == SessionKind::Main,
            None => is_run_of(key, signature.job),
        };
        // Only reminders say when they are set that their text is from outside.
        let outside = body.outside && body.event.as_deref() == Some(REMINDER_EVENT);
        let mut signed = Body { job_signature: None, outside, ..body.clone() };
        if let Some(fired) = &mut signed.fired {
            fired.at_ms = 0;
        }
        let content = SignedContent {
            purpose: PURPOSE,
            tenant,
            job: signature.job,
            agent: signature.session.is_none().then_some(agent),
            session: signature.session.as_deref(),
            destination: &signature.destination,
            body: &signed,
        };
        is_there && self.is_signed(&content, &signature.mac)
    }

    /// Whether a text that waits for a session's next turn is what a signed job says.
    #[must_use]
    pub fn verify_event(
        &self,
        (tenant, agent): (TenantId, AgentId),
        key: &SessionKey,
        text: &str,
        signed: &SignedAuthor,
    ) -> bool {
        let job = signed.signature.job;
        let body = Body {
            job_signature: Some(Box::new(signed.signature.clone())),
            ..event_body(job, signed.author.clone(), text.to_owned())
        };
        self.verify(&FiredMessage { tenant, agent, key, body: &body, target: None })
    }
}

impl fmt::Debug for JobKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKeys")
    }
}

/// Keys of this process, which are read after its start. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct JobSigner(Arc<SetOnce<JobKeys>>);

impl JobSigner {
    /// Sets the keys, unless they are set.
    pub fn set_keys(&self, keys: impl IntoIterator<Item = [u8; 32]>) {
        // Keys that are set stay: both are those of the installation.
        drop(self.0.set(JobKeys::new(keys)));
    }

    /// Returns the keys as soon as they are read.
    ///
    /// # Errors
    ///
    /// [`Error::NoSigningKeys`] if they are not within 10 seconds.
    pub async fn keys(&self) -> Result<&JobKeys, Error> {
        timeout(KEY_TIMEOUT, self.0.wait()).await.map_err(|_| Error::NoSigningKeys)
    }
}

/// A message that claims to be the firing of a job, as the runner reads it.
#[derive(Debug, Clone, Copy)]
pub struct FiredMessage<'a> {
    pub tenant: TenantId,
    /// Agent of the session.
    pub agent: AgentId,
    pub key: &'a SessionKey,
    pub body: &'a Body,
    pub target: Option<&'a Target>,
}

/// What a signature covers.
#[derive(Serialize)]
struct SignedContent<'a> {
    purpose: &'a str,
    tenant: TenantId,
    job: JobId,
    /// `None` if the job names a session, which has an agent.
    agent: Option<AgentId>,
    session: Option<&'a str>,
    destination: &'a JobDestination,
    /// Without the time of the firing.
    body: &'a Body,
}

impl SignedContent<'_> {
    fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(self).map_err(|_| Error::Corrupt("job"))
    }
}

/// Fields of a job that decide what it says, and for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobFields<'a> {
    pub id: JobId,
    pub kind: JobKind,
    pub agent: AgentId,
    pub owner: Option<&'a str>,
    pub author: Option<&'a Author>,
    pub name: &'a str,
    pub payload: &'a Value,
    pub isolation: Option<&'a Value>,
}

impl<'a> From<&'a Job> for JobFields<'a> {
    fn from(job: &'a Job) -> Self {
        Self {
            id: job.id,
            kind: job.kind,
            agent: job.agent,
            owner: job.owner.as_deref(),
            author: job.author.as_ref(),
            name: &job.name,
            payload: &job.payload,
            isolation: job.isolation.as_ref(),
        }
    }
}

impl<'a> From<&'a NewJob> for JobFields<'a> {
    fn from(job: &'a NewJob) -> Self {
        Self {
            id: job.id,
            kind: job.kind,
            agent: job.agent,
            owner: job.owner.as_deref(),
            author: job.author.as_ref(),
            name: &job.name,
            payload: &job.payload,
            isolation: job.isolation.as_ref(),
        }
    }
}

/// Message of a job's firings, without the time of the firing.
#[derive(Debug, PartialEq, Eq)]
struct JobMessage {
    body: Body,
    /// Session that the job names.
    session: Option<String>,
    destination: JobDestination,
}

impl JobMessage {
    fn of(job: &JobFields<'_>) -> Result<Self, Error> {
        match job.kind {
            JobKind::Cron | JobKind::Every | JobKind::At | JobKind::Timer => {
                Self::of_payload(job, read(job.payload, "payload")?)
            }
            JobKind::Reminder => Ok(Self::of_reminder(job, read(job.payload, "payload")?)),
            JobKind::Heartbeat => Err(Error::Corrupt("payload")),
        }
    }

    fn of_payload(job: &JobFields<'_>, payload: Payload) -> Result<Self, Error> {
        let author = || job.author.cloned();
        let fired = JobFiring::new(job.id, 0);
        let to_anybody = JobDestination { is_delivered: true, ..JobDestination::default() };
        Ok(match payload {
            Payload::AgentTurn(turn) => {
                let post = match job.isolation.filter(|_| turn.deliver) {
                    Some(isolation) => Some(main_session_post(read(isolation, "isolation")?)),
                    None => None,
                };
                let fired = post.map(|post| Box::new(JobFiring { post: Some(post), ..fired }));
                Self {
                    destination: destination_of(&turn),
                    body: Body { fired, author: author(), ..Body::text(turn.message) },
                    session: None,
                }
            }
            Payload::SystemEvent { message } => Self {
                body: event_body(job.id, author(), message.trim().to_owned()),
                session: None,
                destination: JobDestination::default(),
            },
            Payload::Message(fixed) => Self {
                body: Body {
                    event: Some(CRON_EVENT.to_owned()),
                    fired: Some(Box::new(JobFiring { as_is: true, ..fired })),
                    author: author(),
                    ..Body::text(fixed.message)
                },
                session: fixed.session,
                destination: to_anybody,
            },
            Payload::Timer(timer) => Self {
                body: Body {
                    event: Some(timer.event_name()),
                    silent: true,
                    author: author(),
                    ..Body::text(job.name)
                },
                session: timer.session,
                destination: JobDestination::default(),
            },
        })
    }

    fn of_reminder(job: &JobFields<'_>, reminder: Reminder) -> Self {
        let locale = Locale::of(&reminder.locale);
        let text = match reminder.auto_continue {
            true => locale.fired(&reminder.content),
            false => locale.push(&reminder.content),
        };
        let fired = JobFiring {
            as_is: !reminder.auto_continue,
            owner: job.owner.map(str::to_owned),
            chain: reminder.renewals,
            ..JobFiring::new(job.id, 0)
        };
        let (channel, chat) = reminder.target.map(|to| (to.channel, to.chat)).unzip();
        Self {
            body: Body {
                event: Some(REMINDER_EVENT.to_owned()),
                fired: Some(Box::new(fired)),
                author: reminder.author,
                outside: reminder.outside,
                ..Body::text(text)
            },
            session: Some(reminder.session),
            destination: JobDestination { is_delivered: true, channel, chat },
        }
    }

    fn content(&self, tenant: TenantId, job: &JobFields<'_>) -> SignedContent<'_> {
        SignedContent {
            purpose: PURPOSE,
            tenant,
            job: job.id,
            agent: self.session.is_none().then_some(job.agent),
            session: self.session.as_deref(),
            destination: &self.destination,
            body: &self.body,
        }
    }
}

impl Job {
    /// Returns the message of a firing at this time, with the job's signature. Not for heartbeats,
    /// whose text the runner makes.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn message(&self, at: Timestamp) -> Result<Body, Error> {
        let JobMessage { mut body, session, destination } = JobMessage::of(&self.into())?;
        if let Some(fired) = &mut body.fired {
            fired.at_ms = at.as_millisecond();
        }
        let (job, mac) = (self.id, self.signature.clone());
        body.job_signature =
            mac.map(|mac| Box::new(JobSignature { job, session, destination, mac }));
        Ok(body)
    }
}

/// Message of a job in the agent's main session. The text is trimmed, as that of a system event is.
fn event_body(job: JobId, author: Option<Author>, text: String) -> Body {
    Body {
        event: Some(CRON_EVENT.to_owned()),
        fired: Some(Box::new(JobFiring::new(job, 0))),
        author,
        ..Body::text(text)
    }
}

fn destination_of(turn: &AgentTurn) -> JobDestination {
    let is_any = turn.channel == AgentTurn::LAST_CHANNEL;
    JobDestination {
        is_delivered: turn.deliver,
        channel: (!is_any).then(|| turn.channel.clone()),
        chat: turn.to.clone(),
    }
}

/// The part of the answer that is copied to the agent's main conversation (CRN-009).
fn main_session_post(isolation: Isolation) -> MainSessionPost {
    MainSessionPost {
        prefix: isolation.post_to_main_prefix,
        full: isolation.post_to_main_mode == PostMode::Full,
        max_chars: isolation.post_to_main_max_chars,
    }
}

/// Whether a session is that of a job's run.
fn is_run_of(key: &SessionKey, job: JobId) -> bool {
    let parts: Vec<&str> = key.as_str().splitn(5, ':').collect();
    key.kind() == SessionKind::Cron && parts.get(3) == Some(&job.to_string().as_str())
}

fn read<T: DeserializeOwned>(json: &Value, name: &'static str) -> Result<T, Error> {
    T::deserialize(json).map_err(|_| Error::Corrupt(name))
}

#[cfg(test)]
mod tests;
