//! Election of the operator that acts, by a Lease.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Error,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;

/// One operator that wants to lead.
#[derive(Debug)]
pub struct Candidate {
    api: Api<Lease>,
    lease: String,
    identity: String,
    duration: Duration,
    /// The lease as another holder last wrote it, and when this was noticed: clocks of machines
    /// are not compared.
    seen: Option<(String, Instant)>,
}

impl Candidate {
    pub const fn new(api: Api<Lease>, lease: String, identity: String, duration: Duration) -> Self {
        Self { api, lease, identity, duration, seen: None }
    }

    /// Interval between attempts and renewals.
    pub fn retry_interval(&self) -> Duration {
        self.duration / 3
    }

    /// Time after the last renewal after which this operator stops, before another may take over.
    pub fn renewal_deadline(&self) -> Duration {
        self.duration * 2 / 3
    }

    /// Takes or renews the lease; `false` if another holds it.
    ///
    /// # Errors
    ///
    /// If the API server refuses or does not answer.
    pub async fn try_lead(&mut self) -> Result<bool, Error> {
        let Some(lease) = self.api.get_opt(&self.lease).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.lease.clone()), ..ObjectMeta::default() },
                spec: Some(self.spec(Some(MicroTime(Timestamp::now())), 0)),
            };
            return won(self.api.create(&PostParams::default(), &lease).await);
        };
        let held = lease.spec.clone().unwrap_or_default();
        let holder = held.holder_identity.clone().unwrap_or_default();
        let transitions = held.lease_transitions.unwrap_or_default();
        if holder == self.identity {
            let spec = self.spec(held.acquire_time, transitions);
            return self.replace(lease, spec).await;
        }
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => self.seen.insert((version, Instant::now())).1,
        };
        let seconds = held.lease_duration_seconds.unwrap_or_default().max(0).unsigned_abs();
        let is_expired = since.elapsed() > Duration::from_secs(seconds.into());
        if !holder.is_empty() && !is_expired {
            return Ok(false);
        }
        let spec = self.spec(Some(MicroTime(Timestamp::now())), transitions.saturating_add(1));
        self.replace(lease, spec).await
    }

    /// Gives the lease up, so that another takes it at once.
    pub async fn release(&mut self) -> Result<(), Error> {
        let Some(lease) = self.api.get_opt(&self.lease).await? else { return Ok(()) };
        let mut spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_deref() == Some(&*self.identity) {
            spec.holder_identity = None;
            self.replace(lease, spec).await?;
        }
        Ok(())
    }

    /// Replaces the lease that was read; a write of another in between is a defeat.
    async fn replace(&self, lease: Lease, spec: LeaseSpec) -> Result<bool, Error> {
        let lease = Lease { spec: Some(spec), ..lease };
        won(self.api.replace(&self.lease, &PostParams::default(), &lease).await)
    }

    fn spec(&self, acquired: Option<MicroTime>, transitions: i32) -> LeaseSpec {
        let seconds = i32::try_from(self.duration.as_secs().max(1)).unwrap_or(i32::MAX);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            acquire_time: acquired,
            renew_time: Some(MicroTime(Timestamp::now())),
            lease_duration_seconds: Some(seconds),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

fn won(outcome: Result<Lease, Error>) -> Result<bool, Error> {
    match outcome {
        Ok(_) => Ok(true),
        Err(Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
