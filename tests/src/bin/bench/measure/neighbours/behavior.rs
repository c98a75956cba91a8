//! What each behaviour of the hostile tenant needs: its target, and counts of what it gets.

use std::{cell::Cell, collections::VecDeque, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use futures::{StreamExt as _, stream::FuturesUnordered};
use holdfast_directory::PlanLimits;
use holdfast_types::{AccountId, AgentId, TenantId};
use secrecy::SecretString;
use tokio::time::{MissedTickBehavior, interval};

use super::neighbour::{Neighbour, WebhookAccount};
use crate::{mesh::Mesh, models::Model};

/// Calls of a behaviour that may be open at once. Further ones are left out.
const MAX_OPEN: usize = 64;

/// Calls a minute of a tenant without a plan.
const DEFAULT_CALLS_PER_MINUTE: u64 = 6000;

/// The gateway's `rate_window` is 10 s.
const WINDOWS_PER_MINUTE: u64 = 6;

/// Multiple of the tenant's rate at which it floods.
const FLOOD_FACTOR: u64 = 2;

/// What the hostile tenant knows of the mesh, and of itself.
#[derive(Debug)]
pub struct Target {
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    pub bridge: SocketAddr,
    pub tenant: TenantId,
    pub key: SecretString,
    /// The default agent.
    pub agent: AgentId,
    pub webhook: WebhookAccount,
    pub widget: AccountId,
    /// Calls that the tenant may make at once, after a pause.
    pub burst: usize,
    /// Posts a second of a flood: a multiple of the tenant's rate.
    pub flood_rate: f64,
    /// Where the fake model that answers at once is told what to answer.
    pub script_url: String,
}

impl Target {
    pub fn new(mesh: &Mesh, hostile: &Neighbour, plan: Option<PlanLimits>) -> anyhow::Result<Self> {
        let rate = plan.and_then(|plan| plan.calls_per_minute).unwrap_or(DEFAULT_CALLS_PER_MINUTE);
        let instant = mesh.models.all().find(|(model, _)| *model == Model::Instant);
        let (_, url) = instant.context("the instant model does not run")?;
        Ok(Self {
            http: mesh.http(),
            grpc: mesh.grpc(),
            bridge: mesh.bridge(),
            tenant: hostile.tenant.id,
            key: hostile.tenant.key.clone(),
            agent: hostile.agent,
            webhook: hostile.webhook.clone(),
            widget: hostile.widget,
            burst: usize::try_from(rate / WINDOWS_PER_MINUTE)?,
            flood_rate: f64::from(u32::try_from(rate * FLOOD_FACTOR)?) / 60.0,
            script_url: url.replace("/v1", "/script"),
        })
    }
}

/// What a behaviour got, as it goes on.
#[derive(Debug, Default)]
pub struct Counts {
    accepted: Cell<usize>,
    refused: Cell<usize>,
}

impl Counts {
    /// Numbers of accepted and of refused calls.
    pub fn get(&self) -> (usize, usize) {
        (self.accepted.get(), self.refused.get())
    }

    pub fn add(&self, is_accepted: bool) {
        let counter = if is_accepted { &self.accepted } else { &self.refused };
        counter.set(counter.get() + 1);
    }

    /// Calls something at a steady rate, for ever, and counts what succeeds as accepted. What its calls
    /// return stays open until `keep` later ones have succeeded.
    pub async fn repeat<T>(
        &self,
        (per_second, keep): (f64, usize),
        call: impl AsyncFn(usize) -> anyhow::Result<T>,
    ) {
        let mut clock = interval(Duration::from_secs_f64(1.0 / per_second));
        clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut calls, mut kept) = (FuturesUnordered::new(), VecDeque::new());
        let mut nth = 0;
        loop {
            tokio::select! {
                _ = clock.tick() => if calls.len() < MAX_OPEN {
                    calls.push(call(nth));
                    nth += 1;
                },
                Some(returned) = calls.next() => {
                    self.add(returned.is_ok());
                    kept.extend(returned.ok());
                    while kept.len() > keep {
                        kept.pop_front();
                    }
                }
            }
        }
    }
}
