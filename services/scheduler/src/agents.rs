//! Cache of agents by id. A session key contains the agent's name, and a job its id.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use holdfast_directory::{Directory, Error, RoutedAgent};
use holdfast_types::{AgentId, TenantId};
use tokio::time::Instant;

/// Period for which a tenant's agents are cached.
const CACHE_TTL: Duration = Duration::from_secs(2);

/// Maximum number of cached tenants. At this size the cache is cleared.
const MAX_CACHED_TENANTS: usize = 10_000;

type Cards = Arc<HashMap<AgentId, RoutedAgent>>;

/// Agents of tenants, at most two seconds old.
#[derive(Debug)]
pub struct Agents {
    directory: Directory,
    known: Mutex<HashMap<TenantId, (Instant, Cards)>>,
}

impl Agents {
    pub fn new(directory: Directory) -> Self {
        Self { directory, known: Mutex::default() }
    }

    /// Returns a tenant's agents by id.
    pub async fn of(&self, tenant: TenantId) -> Result<Cards, Error> {
        let known = |known: &HashMap<TenantId, (Instant, Cards)>| {
            known
                .get(&tenant)
                .filter(|(at, _)| at.elapsed() < CACHE_TTL)
                .map(|known| known.1.clone())
        };
        if let Some(cards) = known(&self.known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(cards);
        }
        let at = Instant::now();
        let cards = self.directory.agents().routed(tenant).await?;
        let cards: Cards = Arc::new(cards.into_iter().map(|card| (card.id, card)).collect());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CACHED_TENANTS {
            known.clear();
        }
        known.insert(tenant, (at, cards.clone()));
        Ok(cards)
    }
}
