//! Model fallback: the models and keys that an agent's requests are tried with, in order (spec
//! AUT-005, AUT-009, AGT-003, AGT-015).
//!
//! | failure | reaction |
//! |---|---|
//! | key refused, rate limited, or out of credit | the key gets a cooldown, and the next key is tried; at most three keys |
//! | no key usable, or server trouble | the agent's next model is tried |
//! | request refused or too long | nothing else is tried: it would be refused again |
//!
//! A key of the installation serves many tenants, and one of them causes most refusals by what it asks:
//! the model, its content, its size. So only a refusal of the key itself (401) puts such a key aside for
//! all of them, and any other failure for the tenant whose request failed (decision 0120).
//!
//! A conversation stays with the key it used before, so that the provider's cache remains useful. A
//! single key of a single model is tried even in its cooldown: skipping it would leave the agent
//! without a model.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use holdfast_llm::{
    Candidate, Cooldowns, Delta, Error, Fallback, Model, ModelCard, OnDelta, Reason, ReplyFuture,
    Request,
    credentials::{Order, Profile, Stats, order, sticky},
};
use holdfast_types::{ModelId, Reply, TenantId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agents::key_health::{
    HealthSubject, KeyHealth, TenantSubject, now_ms, platform_keys_owner,
};

/// Keys of one model that are tried for one answer.
const MAX_KEYS_PER_ANSWER: usize = 3;

#[derive(Debug)]
pub(crate) struct ChainModel {
    pub(crate) id: ModelId,
    pub(crate) card: Arc<ModelCard>,
    /// Owner of the keys' health records: the tenant, or the installation.
    pub(crate) key_owner: TenantId,
    /// Keys of the model; empty if it needs none.
    pub(crate) profiles: Vec<Profile>,
    /// Ids of the keys to use, if configured.
    pub(crate) order: Option<Vec<String>>,
    /// Whether `order` is followed exactly.
    pub(crate) strict: bool,
    /// Clients by key id; for a model without keys, under the empty id.
    pub(crate) models: BTreeMap<String, Arc<dyn Model>>,
}

/// Models of an agent, the preferred one first.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) tenant: TenantId,
    pub(crate) models: Vec<ChainModel>,
    pub(crate) health: Arc<KeyHealth>,
}

/// A model that tries the chain on behalf of one conversation.
#[derive(Debug)]
pub(crate) struct ChainRequest {
    chain: Arc<Chain>,
    /// The conversation's last key, as `provider/key`.
    before: Option<String>,
    used: Arc<Mutex<Option<String>>>,
}

impl Chain {
    /// Returns a model for a conversation; `before` is the key that it used last, as
    /// `provider/key`.
    pub(crate) fn for_conversation(self: &Arc<Self>, before: Option<String>) -> ChainRequest {
        ChainRequest { chain: Arc::clone(self), before, used: Arc::default() }
    }

    /// Whether there is another key or model to try.
    pub(crate) fn has_alternatives(&self) -> bool {
        self.models.len() > 1 || self.models.iter().any(|link| link.profiles.len() > 1)
    }
}

impl ChainRequest {
    /// The key that answered, as `provider/key`; `None` if its provider has only one.
    pub(crate) fn used_key(&self) -> Option<String> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn key_rotation(&self, at: usize) -> KeyRotation {
        KeyRotation {
            chain: Arc::clone(&self.chain),
            index: at,
            before: self.before.clone(),
            used: Arc::clone(&self.used),
        }
    }
}

impl Model for ChainRequest {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        Box::pin(async move {
            let links = &self.chain.models;
            if links.len() == 1 {
                return self.key_rotation(0).ask(request, on_delta, cancelled).await;
            }
            let candidates = links.iter().enumerate().map(|(at, link)| Candidate {
                id: link.id.clone(),
                model: Arc::new(self.key_rotation(at)),
                card: Some(Arc::clone(&link.card)),
            });
            let fallback = Fallback::new(candidates, ChainCooldowns(Arc::clone(&self.chain)));
            fallback.reply(request, on_delta, cancelled).await
        })
    }
}

/// One model of the chain, which tries its keys in order.
#[derive(Debug)]
struct KeyRotation {
    chain: Arc<Chain>,
    index: usize,
    before: Option<String>,
    used: Arc<Mutex<Option<String>>>,
}

impl KeyRotation {
    async fn ask(
        &self,
        request: &Request,
        on_delta: OnDelta<'_>,
        cancelled: &CancellationToken,
    ) -> Result<Reply, Error> {
        let (chain, link) = (&self.chain, &self.chain.models[self.index]);
        if link.profiles.is_empty() {
            let model = link.models.get("").ok_or(Error::Setup("it has no key"))?;
            return model.reply(request, on_delta, cancelled).await;
        }
        let provider = link.id.provider();
        let stats = link.stats(chain);
        let keys = link.usable_keys(chain, &stats, self.before.as_deref())?;
        let has_several = link.profiles.len() > 1;
        let mut last = Error::Auth;
        let mut said = false;
        for key in keys.into_iter().take(MAX_KEYS_PER_ANSWER) {
            let Some(model) = link.models.get(&key) else { continue };
            if said {
                on_delta(Delta::Restarted);
                said = false;
            }
            let mut note = |delta| {
                said = true;
                on_delta(delta);
            };
            let answer = model.reply(request, &mut note, cancelled).await;
            let error = match answer {
                Ok(reply) => {
                    if has_several {
                        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
                        *used = Some(format!("{provider}/{key}"));
                    }
                    if chain.has_alternatives()
                        || stats.get(&key).is_some_and(|s| s.error_count > 0)
                    {
                        link.record_success(chain, &key).await;
                    }
                    return Ok(reply);
                }
                Err(error) => error,
            };
            if !is_key_failure(error.reason()) || cancelled.is_cancelled() {
                return Err(error);
            }
            link.record_failure(chain, &key, &error).await;
            last = error;
            if Instant::now() >= request.deadline {
                break;
            }
        }
        Err(last)
    }
}

impl Model for KeyRotation {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        Box::pin(self.ask(request, on_delta, cancelled))
    }
}

impl ChainModel {
    /// Health records of a key: that of its owner, and for a key of the installation that of the tenant.
    pub(crate) fn health_subjects(
        &self,
        tenant: TenantId,
        key: &str,
    ) -> (TenantSubject, Option<TenantSubject>) {
        let (provider, key) = (self.id.provider().to_owned(), key.to_owned());
        let of_tenant = (self.key_owner == platform_keys_owner())
            .then(|| (tenant, HealthSubject::PlatformKey(provider.clone(), key.clone())));
        ((self.key_owner, HealthSubject::Key(provider, key)), of_tenant)
    }

    /// Statistics of the keys as this tenant may use them, by key id.
    fn stats(&self, chain: &Chain) -> BTreeMap<String, Stats> {
        let (health, now) = (&chain.health, now_ms());
        let of_key = |profile: &Profile| {
            let ((owner, key), of_tenant) = self.health_subjects(chain.tenant, &profile.id);
            let shared = health.stats(owner, &key);
            let stats = match of_tenant {
                Some((tenant, key)) => shared.or_longer(health.stats(tenant, &key), now),
                None => shared,
            };
            (profile.id.clone(), stats)
        };
        self.profiles.iter().map(of_key).collect()
    }

    async fn record_success(&self, chain: &Chain, key: &str) {
        let ((owner, key), of_tenant) = self.health_subjects(chain.tenant, key);
        chain.health.record_success(owner, &key).await;
        if let Some((tenant, key)) = of_tenant
            && chain.health.stats(tenant, &key).error_count > 0
        {
            chain.health.record_success(tenant, &key).await;
        }
    }

    /// Puts a key aside: that of a tenant for the tenant, and one of the installation for all tenants only
    /// if the provider does not know it.
    async fn record_failure(&self, chain: &Chain, key: &str, error: &Error) {
        let ((owner, key), of_tenant) = self.health_subjects(chain.tenant, key);
        let reason = error.reason();
        match of_tenant.filter(|_| !matches!(error, Error::Auth)) {
            Some((tenant, own)) => {
                // An hour at most, also without credit: the operator may top it up, or replace the key.
                let own_reason = match reason {
                    Reason::Billing => Reason::RateLimit,
                    other => other,
                };
                chain.health.record_failure(tenant, &own, own_reason).await;
                // Operators see it in the list of keys.
                chain.health.record_request_failure(owner, &key, reason).await;
            }
            None => chain.health.record_failure(owner, &key, reason).await,
        }
    }

    /// Ids of the usable keys, in order; an error if there is none.
    fn usable_keys(
        &self,
        chain: &Chain,
        stats: &BTreeMap<String, Stats>,
        before: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        let (provider, now) = (self.id.provider(), now_ms());
        let how = Order {
            explicit: self.order.as_deref(),
            respect_explicit: self.strict,
            preferred: None,
        };
        let ordered = order(provider, &self.profiles, stats, how, now);
        let until = |key: &str| stats.get(key).and_then(|stats| stats.unusable_until(now));
        let mut usable: Vec<&str> = match chain.has_alternatives() {
            true => ordered.iter().copied().filter(|key| until(key).is_none()).collect(),
            false => ordered.clone(),
        };
        if usable.is_empty() {
            return Err(no_usable_key_error(ordered.iter().filter_map(|key| stats.get(*key)), now));
        }
        let before = before.and_then(|used| used.strip_prefix(provider)?.strip_prefix('/'));
        if let Some(first) = sticky(&usable, before, stats, now)
            && let Some(at) = usable.iter().position(|key| *key == first)
        {
            let first = usable.remove(at);
            usable.insert(0, first);
        }
        Ok(usable.into_iter().map(str::to_owned).collect())
    }
}

/// Error for the user when no key is usable: the reason of the key that is usable soonest.
fn no_usable_key_error<'s>(stats: impl Iterator<Item = &'s Stats>, now: i64) -> Error {
    let mut soonest: Option<(i64, &Stats)> = None;
    for stats in stats {
        if let Some(until) = stats.unusable_until(now)
            && soonest.is_none_or(|(at, _)| until < at)
        {
            soonest = Some((until, stats));
        }
    }
    // No key is valid.
    let Some((until, stats)) = soonest else { return Error::Auth };
    if stats.disabled_until.is_some_and(|until| now < until) {
        return Error::Quota;
    }
    if stats.failure_counts.contains_key(&Reason::Auth) {
        return Error::Auth;
    }
    let wait = u64::try_from(until.saturating_sub(now)).unwrap_or_default();
    Error::RateLimited { retry_after: Some(std::time::Duration::from_millis(wait)) }
}

/// Whether trying another key may help.
const fn is_key_failure(reason: Reason) -> bool {
    match reason {
        Reason::Auth | Reason::RateLimit | Reason::Billing => true,
        Reason::Timeout | Reason::Format | Reason::Overloaded | Reason::Unknown => false,
    }
}

/// Cooldowns of a chain's models.
#[derive(Debug)]
struct ChainCooldowns(Arc<Chain>);

impl ChainCooldowns {
    fn link(&self, model: &ModelId) -> Option<&ChainModel> {
        self.0.models.iter().find(|link| link.id == *model)
    }
}

impl Cooldowns for ChainCooldowns {
    fn is_cooling<'a>(&'a self, model: &'a ModelId) -> BoxFuture<'a, bool> {
        let (chain, now) = (&self.0, now_ms());
        let own = chain.health.stats(chain.tenant, &HealthSubject::Model(model.to_string()));
        let keys = self.link(model).is_some_and(|link| {
            !link.profiles.is_empty() && link.usable_keys(chain, &link.stats(chain), None).is_err()
        });
        Box::pin(std::future::ready(own.unusable_until(now).is_some() || keys))
    }

    fn failed<'a>(&'a self, model: &'a ModelId, reason: Reason) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let has_keys = self.link(model).is_some_and(|link| !link.profiles.is_empty());
            // The failure is already recorded for the key.
            if !(has_keys && is_key_failure(reason)) {
                let of = HealthSubject::Model(model.to_string());
                self.0.health.record_failure(self.0.tenant, &of, reason).await;
            }
        })
    }

    fn succeeded<'a>(&'a self, model: &'a ModelId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let of = HealthSubject::Model(model.to_string());
            // Successes are only recorded to clear failures.
            if self.0.health.stats(self.0.tenant, &of).error_count > 0 {
                self.0.health.record_success(self.0.tenant, &of).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_act_is_told_by_the_key_that_soonest_can_be_used_again() {
        let failed = |reason| Stats::default().after_failure(reason, 1_000);
        let (auth, limited, broke) =
            (failed(Reason::Auth), failed(Reason::RateLimit), failed(Reason::Billing));
        let later =
            Stats::default().after_failure(Reason::Auth, 1_000).after_failure(Reason::Auth, 1_000);
        let why = |stats: &[&Stats]| no_usable_key_error(stats.iter().copied(), 2_000).class();

        assert_eq!(why(&[]), "auth");
        assert_eq!(why(&[&auth]), "auth");
        assert_eq!(why(&[&broke]), "quota");
        assert_eq!(why(&[&broke, &limited]), "rate_limited");
        assert_eq!(why(&[&later, &limited]), "rate_limited");
    }
}
