//! Cache of the time zones that users have set.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use holdfast_schedule::Zone;
use holdfast_session::Sessions;
use holdfast_types::{AgentId, TenantId};

use crate::error::Error;

/// Time for which a user's zone is cached.
const ZONE_TTL: Duration = Duration::from_secs(20);

/// Users whose zones are cached. When full, all are cleared.
const MAX_CACHED_USERS: usize = 20_000;

/// Tenant, agent and user.
pub(crate) type UserKey = (TenantId, AgentId, String);

/// Cache of the time zones that users have set.
#[derive(Debug, Default)]
pub(crate) struct UserZones {
    cache: Mutex<HashMap<UserKey, (Instant, Option<Zone>)>>,
}

impl UserZones {
    pub(crate) async fn of(
        &self,
        sessions: &Sessions,
        whose: UserKey,
    ) -> Result<Option<Zone>, Error> {
        if let Some((read, zone)) = self.known().get(&whose)
            && read.elapsed() < ZONE_TTL
        {
            return Ok(zone.clone());
        }
        let (tenant, agent, person) = &whose;
        let said = sessions.settings().persons_zone(*tenant, *agent, person).await?;
        let zone = said.and_then(|name| name.parse().ok());
        self.store(whose, zone.clone());
        Ok(zone)
    }

    pub(crate) fn store(&self, whose: UserKey, zone: Option<Zone>) {
        let mut known = self.known();
        if known.len() >= MAX_CACHED_USERS {
            known.clear();
        }
        known.insert(whose, (Instant::now(), zone));
    }

    /// Forgets what is cached of a person, with all agents.
    pub(crate) fn forget(&self, tenant: TenantId, person: &str) {
        self.known().retain(|(of, _, who), _| *of != tenant || who != person);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<UserKey, (Instant, Option<Zone>)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
