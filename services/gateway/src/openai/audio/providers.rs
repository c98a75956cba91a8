//! Choice of a provider for sound, what it may cost, and the record of what it has cost.

use std::{cmp::min, sync::Arc};

use holdfast_directory::{Budget, Directory, ModelChoice, PlanLimits, ProviderAccess};
use holdfast_egress::Guard;
use holdfast_grpc::Caller;
use holdfast_llm::audio::{AudioConfig, AudioError};
use holdfast_session::{Charge, DirectRequest, Sessions, Spending, WriteCost};
use holdfast_types::{AgentId, FailureClass, ModelId, TenantId, Usage};
use jiff::Timestamp;

use crate::{
    Error,
    api_error::ApiError,
    ingest,
    openai::{MODEL_PREFIX, OpenAi},
};

/// What the handlers need of the tenant's providers. Clones share it.
#[derive(Debug, Clone)]
pub struct AudioProviders {
    directory: Directory,
    sessions: Sessions,
    guard: Guard,
    config: Arc<AudioConfig>,
}

/// Access to a caller's providers within their budgets.
pub(super) struct AudioAccess {
    tenant: TenantId,
    agent: AgentId,
    person: Option<String>,
    access: ProviderAccess,
    sessions: Sessions,
    pub(super) guard: Guard,
    pub(super) config: Arc<AudioConfig>,
    started_at: Timestamp,
}

/// A model by its name in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NamedModel {
    /// The usual one.
    Usual,
    /// A model of a provider.
    OfProvider { provider: String, model: String },
    /// A model of the first provider that can.
    Plain(String),
}

impl AudioProviders {
    #[must_use]
    pub fn new(
        directory: Directory,
        sessions: Sessions,
        guard: Guard,
        config: AudioConfig,
    ) -> Self {
        Self { directory, sessions, guard, config: Arc::new(config) }
    }
}

impl NamedModel {
    /// Reads the field `model`.
    pub(super) fn parse(name: &str) -> Result<Self, ApiError> {
        let name = name.trim();
        if name.is_empty() {
            return Err(ApiError::invalid_field("model", "`model` is missing: write `holdfast`"));
        }
        if name.len() > 200 || name.chars().any(char::is_control) {
            return Err(ApiError::invalid_field("model", "`model` is the name of no model"));
        }
        Ok(match name.split_once(':') {
            _ if name == MODEL_PREFIX => Self::Usual,
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                Self::OfProvider { provider: provider.to_owned(), model: model.to_owned() }
            }
            Some(_) | None => Self::Plain(name.to_owned()),
        })
    }
}

impl OpenAi {
    /// Opens the caller's providers.
    ///
    /// # Errors
    ///
    /// If a budget of the caller's agent or the limit of the tenant's plan is spent.
    pub(super) async fn audio_access(&self, caller: &Caller) -> Result<AudioAccess, ApiError> {
        let agent = self.agent_of(caller, MODEL_PREFIX).await?.id;
        let AudioProviders { directory, sessions, guard, config } = self.audio.clone();
        let tenant = caller.tenant;
        let access = directory.models().providers(tenant, agent).await.map_err(Error::from)?;
        let budgets = effective_budgets(&access.budgets, &access.limits);
        if !budgets.is_empty() {
            let owners: Vec<_> = budgets.iter().map(|budget| budget.agent).collect();
            let spending = sessions.usage().today(tenant, &owners).await.map_err(Error::from)?;
            check_budgets(&budgets, access.limits.micros_per_month, &spending)?;
        }
        let access = ProviderAccess { budgets, ..access };
        let person = ingest::of_caller(caller).map(|author| author.id);
        let started_at = Timestamp::now();
        Ok(AudioAccess { tenant, agent, person, access, sessions, guard, config, started_at })
    }
}

impl AudioAccess {
    /// Returns the provider of a model: the named one, or the first for which `can` returns something.
    /// `rank` orders providers, the lowest first.
    pub(super) fn choose<T>(
        &self,
        named: &NamedModel,
        can: impl Fn(&ModelChoice) -> Option<T>,
        rank: impl Fn(&ModelChoice, &T) -> usize,
    ) -> Option<(&ModelChoice, T)> {
        let is_wanted = |choice: &&ModelChoice| match named {
            NamedModel::OfProvider { provider, .. } => choice.model.provider() == provider,
            NamedModel::Usual | NamedModel::Plain(_) => true,
        };
        let choices = self.access.choices.iter().filter(is_wanted);
        let able = choices.filter_map(|choice| Some((choice, can(choice)?)));
        able.min_by_key(|(choice, found)| rank(choice, found))
    }

    /// Records a request that a provider has answered, and charges it. `seconds` is the length of a
    /// recording, where no tokens are counted.
    pub(super) async fn record(
        &self,
        (choice, model): (&ModelChoice, &str),
        usage: Usage,
        seconds: u64,
    ) -> Result<(), ApiError> {
        let name = format!("{}:{model}", choice.model.provider());
        let id = name.parse::<ModelId>().ok();
        let prices = id.and_then(|id| self.access.catalogue.card(&id).prices);
        let cost = prices.map_or(0, |prices| {
            prices.cost(&usage).div_ceil(1_000).saturating_add(prices.sound_micros(seconds))
        });
        let request = DirectRequest {
            agent: self.agent,
            model: name,
            usage,
            started_at: self.started_at,
            person: self.person.clone(),
        };
        let tokens = usage.input.saturating_add(usage.output);
        let spent = WriteCost {
            run_micros: cost,
            charge: Charge { tokens, micros: cost, platform_micros: 0 },
            budgets: self.access.budgets.iter().map(|budget| budget.agent).collect(),
            ..WriteCost::default()
        };
        let usage = self.sessions.usage();
        Ok(usage.record_direct(self.tenant, &request, &spent).await.map_err(Error::from)?)
    }
}

/// The budgets of an agent and its tenant. What the plan limits is a budget of the whole tenant.
fn effective_budgets(budgets: &[Budget], limits: &PlanLimits) -> Vec<Budget> {
    let mut budgets = budgets.to_vec();
    let tokens = limits.tokens_per_day;
    if tokens.is_some() || limits.micros_per_month.is_some() {
        match budgets.iter_mut().find(|budget| budget.agent.is_none()) {
            Some(own) => own.tokens = own.tokens.into_iter().chain(tokens).min(),
            None => budgets.push(Budget { agent: None, tokens, micros: None }),
        }
    }
    budgets
}

/// Checks that something is left of each budget. Nothing is reserved: the price of a request is known
/// only with its answer.
fn check_budgets(
    budgets: &[Budget],
    micros_per_month: Option<u64>,
    spending: &Spending,
) -> Result<(), ApiError> {
    let is_spent = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
    for budget in budgets {
        let used = spending.used.iter().find(|(agent, _)| *agent == budget.agent);
        let used = used.map(|(_, used)| *used).unwrap_or_default();
        if is_spent(budget.tokens, used.tokens) || is_spent(budget.micros, used.micros) {
            let whose = match budget.agent {
                Some(_) => "the agent's budget",
                None => "the budget that all agents share",
            };
            let minutes = spending.renews_in.as_secs().div_ceil(60);
            let message = format!(
                "{whose} for today is spent: it renews at midnight UTC, in {minutes} min; an owner \
                 can raise it"
            );
            return Err(ApiError::of_class(FailureClass::BudgetSpent, message));
        }
    }
    if is_spent(micros_per_month, spending.month_micros) {
        let days = min(spending.month_renews_in.as_secs().div_ceil(86_400), 31);
        let message = format!(
            "what the tenant's plan allows in a month is spent: it renews in {days} days; whoever \
             operates the installation can change the plan"
        );
        return Err(ApiError::of_class(FailureClass::BudgetSpent, message));
    }
    Ok(())
}

/// Error for a provider that has not answered.
pub(super) fn provider_error(provider: &str, error: &AudioError) -> ApiError {
    let message = format!("the provider `{provider}`: {error}");
    let class = match error {
        AudioError::Format(_) => return ApiError::invalid_field("file", message),
        AudioError::TooLarge(_) => {
            return ApiError::too_large(holdfast_llm::audio::MAX_RECORDING_BYTES);
        }
        AudioError::Setup(error) => error.class().parse().unwrap_or(FailureClass::Setup),
        AudioError::Key => FailureClass::Auth,
        AudioError::RateLimited => FailureClass::RateLimited,
        AudioError::Refused { status: 400..=499, .. } => FailureClass::BadRequest,
        AudioError::Refused { .. } | AudioError::Unreachable => FailureClass::Unavailable,
        AudioError::Timeout => FailureClass::Timeout,
        AudioError::Unreadable => FailureClass::Malformed,
    };
    ApiError::of_class(class, message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_model_is_named_alone_or_with_its_provider() {
        let plain = |name: &str| NamedModel::Plain(name.to_owned());

        assert_eq!(NamedModel::parse("holdfast"), Ok(NamedModel::Usual));
        assert_eq!(NamedModel::parse(" whisper-1"), Ok(plain("whisper-1")));
        assert_eq!(NamedModel::parse(":x"), Ok(plain(":x")));
        let (provider, model) = ("groq".to_owned(), "whisper-large-v3".to_owned());
        let named = NamedModel::OfProvider { provider, model };
        assert_eq!(NamedModel::parse("groq:whisper-large-v3"), Ok(named));
        assert!(NamedModel::parse("").is_err());
        assert!(NamedModel::parse("a\nb").is_err());
    }

    #[test]
    fn nothing_is_asked_when_a_budget_or_the_plan_is_spent() {
        let limits = PlanLimits { micros_per_month: Some(100), ..PlanLimits::default() };
        let own = Budget { agent: None, tokens: None, micros: Some(50) };
        let budgets = effective_budgets(&[own], &limits);
        let spending = |micros, month_micros| Spending {
            used: vec![(None, Charge { tokens: 0, micros, platform_micros: 0 })],
            renews_in: Duration::from_secs(60),
            month_micros,
            ..Spending::default()
        };

        assert!(check_budgets(&budgets, limits.micros_per_month, &spending(49, 99)).is_ok());
        assert!(check_budgets(&budgets, limits.micros_per_month, &spending(50, 50)).is_err());
        assert!(check_budgets(&budgets, limits.micros_per_month, &spending(0, 100)).is_err());
        let plan = PlanLimits { tokens_per_day: Some(5), ..PlanLimits::default() };
        assert_eq!(effective_budgets(&[], &plan)[0].tokens, Some(5));
        assert!(effective_budgets(&[], &PlanLimits::default()).is_empty());
    }
}
