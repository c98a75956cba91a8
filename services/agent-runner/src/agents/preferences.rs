//! Cache of users' preferences for their conversations: time zone and language.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use holdfast_schedule::Zone;
use holdfast_session::Sessions;
use holdfast_types::{AgentId, TenantId};

use crate::error::Error;

/// Time for which a user's preferences are cached.
const PREFERENCES_TTL: Duration = Duration::from_secs(20);

/// Users whose preferences are cached. When full, all are cleared.
const MAX_CACHED_USERS: usize = 20_000;

/// Key of the cache: tenant, agent and user.
pub(crate) type UserKey = (TenantId, AgentId, String);

/// Preferences of a user for their conversations.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct UserPreferences {
    pub(crate) zone: Option<Zone>,
    /// A language tag.
    pub(crate) language: Option<String>,
}

/// Cache of preferences, by user.
#[derive(Debug, Default)]
pub(crate) struct PreferenceCache {
    cache: Mutex<HashMap<UserKey, (Instant, UserPreferences)>>,
}

impl PreferenceCache {
    pub(crate) async fn of(
        &self,
        sessions: &Sessions,
        whose: UserKey,
    ) -> Result<UserPreferences, Error> {
        if let Some((read, known)) = self.known().get(&whose)
            && read.elapsed() < PREFERENCES_TTL
        {
            return Ok(known.clone());
        }
        let (tenant, agent, person) = &whose;
        let said = sessions.settings().preferences(*tenant, *agent, person).await?;
        let zone = said.zone.and_then(|name| name.parse().ok());
        let found = UserPreferences { zone, language: said.language };
        let mut known = self.known();
        if known.len() >= MAX_CACHED_USERS {
            known.clear();
        }
        known.insert(whose, (Instant::now(), found.clone()));
        Ok(found)
    }

    /// Forgets what is cached of a person, with all agents.
    pub(crate) fn forget(&self, tenant: TenantId, person: &str) {
        self.known().retain(|(of, _, who), _| *of != tenant || who != person);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<UserKey, (Instant, UserPreferences)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
