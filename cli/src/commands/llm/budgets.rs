//! `holdfast budgets`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    Budget, GetAgentRequest, ListBudgetsRequest, SetBudgetRequest, UnsetBudgetRequest,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 6] = ["agent", "tokens", "used_tokens", "usd", "used_usd", "renews_at"];

#[derive(Debug, Subcommand)]
pub enum Budgets {
    /// List budgets and today's usage
    List,
    /// Limit the usage per day (UTC); a limit that is not given stays unchanged
    Set {
        #[command(flatten)]
        of: BudgetOwner,
        /// Maximum number of tokens, input and output together; 0 for any number
        #[arg(long, required_unless_present = "usd")]
        tokens: Option<u64>,
        /// Maximum cost in US dollars, by the prices that `models list` shows; 0 for any cost
        #[arg(long)]
        usd: Option<f64>,
    },
    /// Remove the limit of an agent or the tenant
    Unset {
        #[command(flatten)]
        of: BudgetOwner,
    },
}

/// The owner of a budget
#[derive(Debug, Args)]
pub struct BudgetOwner {
    /// Name or id of the agent [default: the whole tenant]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
}

impl Budgets {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListBudgetsRequest {});
                let listed = client.answer(client.budgets().list_budgets(request).await)?;
                let renews_at = time(listed.renews_at.as_ref());
                let rows = listed.budgets.iter().map(|budget| view(budget, &renews_at));
                screen.list(&COLUMNS, rows.collect())
            }
            Self::Set { of, tokens, usd } => {
                let before = current(client, &of.agent).await?;
                let tokens = tokens.unwrap_or(before.tokens);
                let micros = match usd {
                    Some(0.0) => 0,
                    Some(usd) => micros(usd)?,
                    None => before.micros,
                };
                let set = json!({"agent": of.agent, "tokens": tokens, "micros": micros});
                let request = SetBudgetRequest { agent: of.agent, tokens, micros };
                let request = client.request(request);
                client.answer(client.budgets().set_budget(request).await)?;
                screen.done("set", &set)
            }
            Self::Unset { of } => {
                let unset = json!({"unset": of.agent});
                let request = client.request(UnsetBudgetRequest { agent: of.agent });
                client.answer(client.budgets().unset_budget(request).await)?;
                screen.done("unset", &unset)
            }
        }
    }
}

/// Returns the budget of an agent or the tenant; without limits if it has none.
async fn current(client: &Client, agent: &str) -> Result<Budget, Error> {
    let name = match agent {
        "" => String::new(),
        agent => {
            let request = client.request(GetAgentRequest { agent: agent.to_owned() });
            let agent = client.answer(client.agents().get_agent(request).await)?.agent;
            agent.unwrap_or_default().name
        }
    };
    let request = client.request(ListBudgetsRequest {});
    let listed = client.answer(client.budgets().list_budgets(request).await)?.budgets;
    Ok(listed.into_iter().find(|budget| budget.agent == name).unwrap_or_default())
}

/// Converts US dollars to millionths of a dollar.
pub fn micros(dollars: f64) -> Result<u64, Error> {
    let micros = format!("{:.0}", dollars * 1_000_000.0);
    let wrong = || Error::Usage(format!("{dollars} is no amount: write US dollars, as 2.50"));
    micros.parse().ok().filter(|micros| *micros > 0).ok_or_else(wrong)
}

/// Formats millionths of a dollar as US dollars, with at least two decimals.
pub fn dollars(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let cents = text.len() - 4;
    format!("{}{}", &text[..cents], text[cents..].trim_end_matches('0'))
}

fn view(budget: &Budget, renews_at: &Value) -> Value {
    let limit = |amount: u64, value: Value| if amount == 0 { Value::Null } else { value };
    json!({
        "agent": budget.agent,
        "tokens": limit(budget.tokens, budget.tokens.into()),
        "used_tokens": budget.used_tokens,
        "usd": limit(budget.micros, dollars(budget.micros).into()),
        "used_usd": dollars(budget.used_micros),
        "renews_at": renews_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_and_shown_in_dollars() {
        assert_eq!(micros(2.5).unwrap(), 2_500_000);
        assert!(micros(0.0).is_err() && micros(-1.0).is_err() && micros(f64::NAN).is_err());
        for (amount, shown) in [(0, "0.00"), (2_500_000, "2.50"), (22_001, "0.022001")] {
            assert_eq!(dollars(amount), shown);
        }
    }
}
