//! Budgets: an amount is reserved before a model is asked and charged with its answer.
//!
//! Without budgets none of this happens. Used amounts are in the database; Redis holds only the
//! reservations of answers in progress, so that parallel answers cannot exceed a budget. Without
//! Redis each answer is checked against what is left, so parallel answers can exceed the budget
//! together, by at most what is in progress.
//!
//! **What can go wrong.** A runner crashes during an answer: its reservation expires, and what the
//! provider charges for that answer is in no budget.

use std::{fmt::Write as _, time::Duration};

use holdfast_agent::tokens::{CjkAware, Tokenizer as _};
use holdfast_directory::{Budget, PlanLimits, TenantCatalogue};
use holdfast_llm::{ModelCard, Prices, Request};
use holdfast_lock::Amount;
use holdfast_lock::Locks;
use holdfast_session::Sessions;
use holdfast_session::{Charge, Spending};
use holdfast_types::{AgentId, Chat, ChatMessage, ModelId, TenantId, Usage};

use crate::error::Error;

/// Shortest answer worth starting, in tokens.
const MIN_ANSWER_TOKENS: u64 = 256;

/// Estimated tokens of an image.
const IMAGE_TOKENS: usize = 1_600;

/// Prices of models and budgets of an agent.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) catalogue: TenantCatalogue,
    pub(crate) budgets: Vec<Budget>,
    /// Cost of the whole tenant in a UTC month that its plan allows, in millionths of a US dollar.
    pub(crate) micros_per_month: Option<u64>,
    /// Models that are asked with keys of the installation.
    platform_models: Vec<ModelId>,
}

/// A reservation for one answer.
#[derive(Debug)]
pub(crate) struct Reservation {
    names: Vec<String>,
    id: String,
    /// Charge for the input, if the answer never comes.
    pub(crate) input_charge: Charge,
}

impl Ledger {
    /// Prices, with the budgets of the tenant and its agent and the limits of its plan. What the plan
    /// limits is a budget of the whole tenant.
    pub(crate) fn new(
        catalogue: TenantCatalogue,
        mut budgets: Vec<Budget>,
        limits: PlanLimits,
    ) -> Self {
        let PlanLimits { tokens_per_day: tokens, micros_per_month, .. } = limits;
        if tokens.is_some() || micros_per_month.is_some() {
            match budgets.iter_mut().find(|budget| budget.agent.is_none()) {
                Some(own) => own.tokens = own.tokens.into_iter().chain(tokens).min(),
                None => budgets.push(Budget { agent: None, tokens, micros: None }),
            }
        }
        Self { catalogue, budgets, micros_per_month, platform_models: Vec::new() }
    }

    /// Sets the models that are asked with keys of the installation.
    #[must_use]
    pub(crate) fn with_platform_models(self, platform_models: Vec<ModelId>) -> Self {
        Self { platform_models, ..self }
    }

    /// What an answer of a model is charged with.
    pub(crate) fn charge(&self, model: &str, usage: &Usage) -> Charge {
        let tokens = usage.input.saturating_add(usage.output);
        let micros = self.micros(model, usage);
        let is_platform = model.parse().is_ok_and(|model| self.is_platform(&model));
        Charge { tokens, micros, platform_micros: if is_platform { micros } else { 0 } }
    }

    /// Whether a model is asked with keys of the installation.
    fn is_platform(&self, model: &ModelId) -> bool {
        self.platform_models.contains(model)
    }

    /// Cost of an answer, in millionths of a US dollar, rounded up.
    pub(crate) fn micros(&self, model: &str, usage: &Usage) -> u64 {
        let Ok(model) = model.parse() else { return 0 };
        micros(self.catalogue.card(&model), usage)
    }

    /// Agents that the budgets apply to; `None` is the whole tenant.
    pub(crate) fn owners(&self) -> Vec<Option<AgentId>> {
        self.budgets.iter().map(|budget| budget.agent).collect()
    }
}

fn micros(card: &ModelCard, usage: &Usage) -> u64 {
    card.prices.map_or(0, |prices| prices.cost(usage).div_ceil(1_000))
}

pub(crate) struct ReservationRequest<'a> {
    pub(crate) tenant: TenantId,
    /// Identifies the reservation in Redis.
    pub(crate) id: String,
    /// Time after which an unreleased reservation expires.
    pub(crate) expires_after: Duration,
    pub(crate) card: &'a ModelCard,
    pub(crate) ledger: &'a Ledger,
}

/// Spending in the database, and reservations in Redis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BudgetStore<'a> {
    pub(crate) sessions: &'a Sessions,
    pub(crate) locks: &'a Locks,
}

impl BudgetStore<'_> {
    /// Reserves the cost of an answer, or returns why not enough is left. May lower `max_output`.
    pub(crate) async fn reserve(
        &self,
        asking: ReservationRequest<'_>,
        request: &mut Request,
    ) -> Result<Result<Reservation, String>, Error> {
        let ReservationRequest { tenant, id, expires_after: lasts, card, ledger } = asking;
        let output = request.max_output.unwrap_or(card.max_output).into();
        let asks = RequestCost { card, input: count_input_tokens(&request.chat), output };
        let names: Vec<String> =
            ledger.budgets.iter().map(|budget| budget_name(tenant, budget.agent)).collect();
        let locks = self.locks;
        // Reservations before usage: an answer charged between the two reads counts twice rather
        // than not at all.
        let others = locks.reserve(&names, &id, asks.amount(asks.output), lasts).await;
        let others = others.unwrap_or_else(|_| vec![Amount::default(); names.len()]);
        let micros = asks.amount(0).micros;
        let platform_micros = if ledger.is_platform(&request.model) { micros } else { 0 };
        let read = Charge { tokens: asks.input, micros, platform_micros };
        let reserved = Reservation { names, id, input_charge: read };
        let spending = match self.sessions.usage().today(tenant, &ledger.owners()).await {
            Ok(spending) => spending,
            Err(error) => {
                self.release(reserved).await;
                return Err(error.into());
            }
        };
        match asks.check(ledger, &spending, &others) {
            BudgetCheck::Fits(output) if output >= asks.output => Ok(Ok(reserved)),
            BudgetCheck::Fits(output) => {
                request.max_output = u32::try_from(output).ok();
                let Reservation { names, id, .. } = &reserved;
                // On failure too much stays reserved for a moment.
                let _ = locks.reserve(names, id, asks.amount(output), lasts).await;
                Ok(Ok(reserved))
            }
            BudgetCheck::Spent(text) | BudgetCheck::Reserved(text) => {
                self.release(reserved).await;
                Ok(Err(text))
            }
        }
    }

    pub(crate) async fn release(&self, reserved: Reservation) {
        // On failure the reservation expires.
        let _ = self.locks.unreserve(&reserved.names, &reserved.id).await;
    }
}

/// Redis name of a budget, the same on all runners.
fn budget_name(tenant: TenantId, agent: Option<AgentId>) -> String {
    let tenant = tenant.as_uuid();
    match agent {
        Some(agent) => format!("{}:{}", tenant.simple(), agent.as_uuid().simple()),
        None => format!("{}:all", tenant.simple()),
    }
}

/// Estimated input tokens of a chat.
fn count_input_tokens(chat: &Chat) -> u64 {
    let pictures: usize = chat
        .messages
        .iter()
        .map(|message| match message {
            ChatMessage::User { images, .. } => images.len() * IMAGE_TOKENS,
            ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => 0,
        })
        .sum();
    let said = chat.messages.iter().map(|message| match message {
        ChatMessage::User { text, .. } => CjkAware.count(text),
        ChatMessage::Assistant { text, calls, .. } => {
            CjkAware.count(text)
                + calls.iter().map(|call| CjkAware.count(&call.input)).sum::<usize>()
        }
        ChatMessage::Tool { output, .. } => CjkAware.count(output),
    });
    let tools = chat
        .tools
        .iter()
        .map(|tool| CjkAware.count(&tool.description) + CjkAware.count(&tool.input.to_string()));
    let told: usize = said.chain(tools).sum();
    let system = CjkAware.count(&chat.stable) + CjkAware.count(&chat.dynamic);
    u64::try_from(told + system + pictures).unwrap_or(u64::MAX)
}

/// Tokens of a request and the price of its model.
pub(crate) struct RequestCost<'a> {
    pub(crate) card: &'a ModelCard,
    pub(crate) input: u64,
    pub(crate) output: u64,
}

pub(crate) enum BudgetCheck {
    /// Longest answer that fits, in tokens.
    Fits(u64),
    /// The budget is used up.
    Spent(String),
    /// The rest of the budget is reserved for other answers.
    Reserved(String),
}

impl RequestCost<'_> {
    /// Checks the daily budgets, and what the tenant's plan allows in a month.
    pub(crate) fn check(
        &self,
        ledger: &Ledger,
        spending: &Spending,
        others: &[Amount],
    ) -> BudgetCheck {
        let fits = match self.check_budgets(&ledger.budgets, spending, others) {
            BudgetCheck::Fits(output) => output,
            spent => return spent,
        };
        let Some(limit) = ledger.micros_per_month else { return BudgetCheck::Fits(fits) };
        let of_tenant = |(budget, _): &(&Budget, &Amount)| budget.agent.is_none();
        let held = ledger.budgets.iter().zip(others).find(of_tenant);
        let held = held.map_or(0, |(_, held)| held.micros);
        let unused =
            Amount { tokens: u64::MAX, micros: limit.saturating_sub(spending.month_micros) };
        let left = Amount { micros: unused.micros.saturating_sub(held), ..unused };
        match (self.longest_answer(left), self.longest_answer(unused)) {
            (Some(length), _) => BudgetCheck::Fits(fits.min(length)),
            (None, Some(_)) => BudgetCheck::Reserved(MONTH_RESERVED.to_owned()),
            (None, None) => BudgetCheck::Spent(month_spent_text(limit, spending.month_renews_in)),
        }
    }

    /// Amount of the request with an answer of this length.
    fn amount(&self, output: u64) -> Amount {
        let cost = |prices: Prices| prices.highest_cost(self.input, output).div_ceil(1_000);
        let micros = self.card.prices.map_or(0, cost);
        Amount { tokens: self.input.saturating_add(output), micros }
    }

    pub(crate) fn check_budgets(
        &self,
        budgets: &[Budget],
        spending: &Spending,
        others: &[Amount],
    ) -> BudgetCheck {
        let mut most = self.output;
        for (budget, held) in budgets.iter().zip(others) {
            let used = spending.used.iter().find(|(agent, _)| *agent == budget.agent);
            let used = used.map(|(_, used)| *used).unwrap_or_default();
            let unused = Amount {
                tokens: budget.tokens.map_or(u64::MAX, |most| most.saturating_sub(used.tokens)),
                micros: budget.micros.map_or(u64::MAX, |most| most.saturating_sub(used.micros)),
            };
            let left = Amount {
                tokens: unused.tokens.saturating_sub(held.tokens),
                micros: unused.micros.saturating_sub(held.micros),
            };
            match (self.longest_answer(left), self.longest_answer(unused)) {
                (Some(length), _) => most = most.min(length),
                (None, Some(_)) => return BudgetCheck::Reserved(reserved_text(budget)),
                (None, None) => return BudgetCheck::Spent(spent_text(budget, spending.renews_in)),
            }
        }
        BudgetCheck::Fits(most)
    }

    /// Longest answer that fits an amount; `None` if it would be too short to be useful.
    fn longest_answer(&self, left: Amount) -> Option<u64> {
        let shortest = self.output.min(MIN_ANSWER_TOKENS);
        let needs = self.amount(shortest);
        if left.tokens < needs.tokens || left.micros < needs.micros {
            return None;
        }
        let by_tokens = left.tokens.saturating_sub(self.input);
        let by_money = match self.card.prices.map(|prices| prices.for_input(self.input).output) {
            Some(price) if price > 0 => {
                let left = left.micros.saturating_sub(self.amount(0).micros);
                left.saturating_mul(1_000) / price
            }
            Some(_) | None => u64::MAX,
        };
        Some(by_tokens.min(by_money).min(self.output).max(shortest))
    }
}

/// Describes a budget's limits.
fn limit_text(budget: &Budget) -> String {
    let mut words = String::new();
    if let Some(tokens) = budget.tokens {
        let _ = write!(words, "{tokens} tokens");
    }
    if let Some(micros) = budget.micros {
        let and = if words.is_empty() { "" } else { " and " };
        let (dollars, rest) = (micros / 1_000_000, micros % 1_000_000);
        let cents = format!("{rest:06}");
        let cents = cents.trim_end_matches('0');
        let _ = match cents.len() {
            0 => write!(words, "{and}${dollars}"),
            1 | 2 => write!(words, "{and}${dollars}.{cents:0<2}"),
            _ => write!(words, "{and}${dollars}.{cents}"),
        };
    }
    words
}

fn owner_text(budget: &Budget) -> &'static str {
    match budget.agent {
        Some(_) => "this assistant's budget",
        None => "the budget that all assistants here share",
    }
}

fn spent_text(budget: &Budget, renews_in: Duration) -> String {
    let minutes = renews_in.as_secs().div_ceil(60);
    let when = match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    };
    format!(
        "{}, {} a day, is spent. It renews at midnight UTC, in {when}; whoever set this assistant \
         up can raise it.",
        owner_text(budget),
        limit_text(budget)
    )
}

const MONTH_RESERVED: &str = "what is left of the plan's money for this month is set aside for \
     answers that are being written. Please try again in a moment.";

fn month_spent_text(limit: u64, renews_in: Duration) -> String {
    let money = Budget { agent: None, tokens: None, micros: Some(limit) };
    let days = renews_in.as_secs().div_ceil(86_400);
    format!(
        "the money of the plan that all assistants here share, {} a month, is spent. It renews on \
         the first of the month (UTC), in {days} {}; whoever runs this installation can change the \
         plan.",
        limit_text(&money),
        if days == 1 { "day" } else { "days" }
    )
}

fn reserved_text(budget: &Budget) -> String {
    format!(
        "what is left today of {}, {} a day, is set aside for answers that are being written. \
         Please try again in a moment.",
        owner_text(budget),
        limit_text(budget)
    )
}

#[cfg(test)]
mod tests {
    use holdfast_llm::Catalogue;

    use super::*;

    fn budget(tokens: Option<u64>, micros: Option<u64>) -> Budget {
        Budget { agent: None, tokens, micros }
    }

    fn used(tokens: u64, micros: u64) -> Spending {
        Spending {
            used: vec![(None, Charge { tokens, micros, ..Charge::default() })],
            renews_in: Duration::from_secs(3_601),
            renews_at: None,
            month_micros: 0,
            month_renews_in: Duration::from_secs(86_401),
        }
    }

    /// $1 for a million tokens read and $10 for a million written.
    fn card() -> ModelCard {
        let prices = Prices { input: 1_000, output: 10_000, ..Prices::default() };
        ModelCard { max_output: 1_000, prices: Some(prices), ..ModelCard::default() }
    }

    fn room(budget: &Budget, spending: &Spending, others: Amount) -> Result<u64, String> {
        let card = card();
        let asks = RequestCost { card: &card, input: 100, output: 1_000 };
        match asks.check_budgets(std::slice::from_ref(budget), spending, &[others]) {
            BudgetCheck::Fits(output) => Ok(output),
            BudgetCheck::Spent(text) => Err(format!("spent: {text}")),
            BudgetCheck::Reserved(text) => Err(format!("taken: {text}")),
        }
    }

    #[test]
    fn an_answer_is_as_long_as_what_is_left_allows_or_is_not_begun() {
        let none = Amount::default();
        let tokens = budget(Some(2_000), None);

        assert_eq!(room(&tokens, &used(0, 0), none), Ok(1_000));
        assert_eq!(room(&tokens, &used(1_500, 0), none), Ok(400));
        let spent = room(&tokens, &used(1_700, 0), none).unwrap_err();
        assert!(
            spent.contains("2000 tokens a day, is spent") && spent.contains("1 h 1 min"),
            "{spent}"
        );
        let held = Amount { tokens: 1_700, micros: 0 };
        assert!(room(&tokens, &used(0, 0), held).unwrap_err().starts_with("taken"));
        assert!(room(&tokens, &used(2_001, 0), held).unwrap_err().starts_with("spent"));
    }

    #[test]
    fn money_is_counted_by_the_prices_of_the_catalogue() {
        // 100 read cost 100 millionths, and each token written 10.
        let money = budget(None, Some(10_100));

        assert_eq!(room(&money, &used(0, 0), Amount::default()), Ok(1_000));
        assert_eq!(room(&money, &used(0, 5_000), Amount::default()), Ok(500));
        let spent = room(&money, &used(0, 10_000), Amount::default()).unwrap_err();
        assert!(spent.contains("$0.0101 a day"), "{spent}");
        assert!(limit_text(&budget(Some(5), Some(1_500_000))).ends_with("5 tokens and $1.50"));
        assert_eq!(limit_text(&budget(None, Some(2_000_000))), "$2");
    }

    #[test]
    fn a_plan_limits_the_day_and_the_month_beside_budgets_of_the_tenant() {
        let card = card();
        let asks = RequestCost { card: &card, input: 100, output: 1_000 };
        let catalogue = || TenantCatalogue::Owned(Catalogue::default());
        let plan = |tokens, micros| PlanLimits {
            tokens_per_day: tokens,
            micros_per_month: micros,
            ..PlanLimits::default()
        };
        // The smaller number of tokens counts, whoever set it.
        let both = Ledger::new(catalogue(), vec![budget(Some(2_000), None)], plan(Some(500), None));
        assert_eq!(both.budgets, [budget(Some(500), None)]);
        let own = Ledger::new(catalogue(), vec![budget(Some(300), None)], plan(Some(500), None));
        assert_eq!(own.budgets, [budget(Some(300), None)]);

        let monthly = Ledger::new(catalogue(), Vec::new(), plan(None, Some(10_100)));
        assert_eq!(monthly.owners(), [None]);
        let check = |month_micros, held| {
            let spending = Spending { month_micros, ..used(0, 0) };
            match asks.check(&monthly, &spending, &[Amount { tokens: 0, micros: held }]) {
                BudgetCheck::Fits(output) => Ok(output),
                BudgetCheck::Spent(text) | BudgetCheck::Reserved(text) => Err(text),
            }
        };
        assert_eq!(check(0, 0), Ok(1_000));
        assert_eq!(check(5_000, 0), Ok(500));
        let spent = check(10_000, 0).unwrap_err();
        assert!(spent.contains("$0.0101 a month, is spent") && spent.contains("2 days"), "{spent}");
        assert!(check(0, 10_000).unwrap_err().contains("set aside"));
    }

    #[test]
    fn a_part_of_a_millionth_counts_as_a_whole_one() {
        let usage = Usage { input: 1, output: 0, ..Usage::default() };
        let cheap = Prices { input: 1, output: 1, ..Prices::default() };
        assert_eq!(micros(&ModelCard { prices: Some(cheap), ..ModelCard::default() }, &usage), 1);
        assert_eq!(micros(&ModelCard::default(), &usage), 0);
    }
}
