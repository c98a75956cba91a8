//! `holdfast hp` and `holdfast wallet`, and the hit points of an agent's settings.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    self as pb, Agent, EnableAgentRequest, FundWalletRequest, GetHitPointsRequest,
    GetWalletRequest, ListPaymentsRequest, Payment, SetWalletLimitsRequest,
};
use holdfast_types::HitPointSettings;
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const HIT_POINT_COLUMNS: [&str; 5] = ["agent", "state", "level", "max", "rest_s"];
const WALLET_COLUMNS: [&str; 4] = ["agent", "is_authorized", "balance", "payees"];
const PAYMENT_COLUMNS: [&str; 6] = ["at", "kind", "party", "amount", "balance", "purpose"];

#[derive(Debug, Subcommand)]
pub enum Hp {
    /// Show the hit points of an agent, and whether it rests or is disabled
    Show {
        /// Name or id of the agent
        agent: String,
    },
    /// Enable an agent again that had no hit points left
    Enable {
        /// Name or id of the agent
        agent: String,
    },
}

impl Hp {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let found = match self {
            Self::Show { agent } => {
                let request = client.request(GetHitPointsRequest { agent });
                client.answer(client.economy().get_hit_points(request).await)?.hit_points
            }
            Self::Enable { agent } => {
                let request = client.request(EnableAgentRequest { agent });
                client.answer(client.economy().enable_agent(request).await)?.hit_points
            }
        };
        let found = found.unwrap_or_default();
        screen.one(&HIT_POINT_COLUMNS, &hit_points(&found))?;
        if !found.is_on {
            screen.note("work costs this agent no hit points: `holdfast agents update AGENT --hit-points on` changes that")?;
        }
        Ok(())
    }
}

#[derive(Debug, Subcommand)]
pub enum Wallet {
    /// Show the balance of an agent's wallet, and what it may spend
    Show {
        /// Name or id of the agent
        agent: String,
    },
    /// Add money of the internal currency to a wallet
    Fund {
        /// Name or id of the agent
        agent: String,
        /// Decimal number, for example 25.00
        amount: String,
        /// Where it comes from
        #[arg(long, default_value = "funding")]
        source: String,
        /// Id of the request: with the same id the money is added once
        #[arg(long, default_value = "", hide_default_value = true)]
        request_id: String,
    },
    /// Change what an agent may spend; options that are not given stay unchanged
    Limits {
        /// Name or id of the agent
        agent: String,
        #[command(flatten)]
        changes: LimitChanges,
    },
    /// List payments and incomes with their explanations, newest first
    Payments {
        /// Name or id of the agent
        agent: String,
        /// Maximum number of payments to list, at most 500
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
}

#[derive(Debug, Args)]
pub struct LimitChanges {
    /// Whether the agent may spend at all
    #[arg(long, value_name = "yes|no", value_parser = ["yes", "no"])]
    authorize: Option<String>,
    /// Most for one payment
    #[arg(long, value_name = "AMOUNT")]
    per_payment: Option<String>,
    /// Most in a day
    #[arg(long, value_name = "AMOUNT")]
    per_day: Option<String>,
    /// Most for what one message or job asks for
    #[arg(long, value_name = "AMOUNT")]
    per_task: Option<String>,
    /// Most in each session of a subagent; 0 is no wallet for subagents
    #[arg(long, value_name = "AMOUNT")]
    per_subagent: Option<String>,
    /// Who may be paid, separated by commas; `none` for nobody
    #[arg(long, value_delimiter = ',')]
    payees: Option<Vec<String>>,
}

impl LimitChanges {
    fn apply(self, limits: &mut pb::WalletLimits) {
        if let Some(word) = self.authorize {
            limits.is_authorized = word == "yes";
        }
        for (field, given) in [
            (&mut limits.per_payment, self.per_payment),
            (&mut limits.per_day, self.per_day),
            (&mut limits.per_task, self.per_task),
            (&mut limits.per_subagent, self.per_subagent),
        ] {
            if let Some(given) = given {
                *field = given;
            }
        }
        if let Some(payees) = self.payees {
            limits.payees = if payees == ["none"] { Vec::new() } else { payees };
        }
    }
}

impl Wallet {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let wallet = match self {
            Self::Show { agent } => get_wallet(client, agent).await?,
            Self::Fund { agent, amount, source, request_id } => {
                let request =
                    client.request(FundWalletRequest { agent, amount, source, request_id });
                let funded = client.answer(client.economy().fund_wallet(request).await)?;
                funded.wallet.unwrap_or_default()
            }
            Self::Limits { agent, changes } => {
                let mut limits =
                    get_wallet(client, agent.clone()).await?.limits.unwrap_or_default();
                changes.apply(&mut limits);
                let request = SetWalletLimitsRequest { agent, limits: Some(limits) };
                let request = client.request(request);
                let set = client.answer(client.economy().set_wallet_limits(request).await)?;
                set.wallet.unwrap_or_default()
            }
            Self::Payments { agent, limit } => {
                let request = client.request(ListPaymentsRequest { agent, limit });
                let listed = client.answer(client.economy().list_payments(request).await)?;
                return screen
                    .list(&PAYMENT_COLUMNS, listed.payments.iter().map(payment).collect());
            }
        };
        screen.one(&WALLET_COLUMNS, &wallet_view(&wallet))
    }
}

async fn get_wallet(client: &Client, agent: String) -> Result<pb::Wallet, Error> {
    let request = client.request(GetWalletRequest { agent });
    let found = client.answer(client.economy().get_wallet(request).await)?;
    Ok(found.wallet.unwrap_or_default())
}

fn hit_points(found: &pb::HitPoints) -> Value {
    json!({
        "agent": found.agent,
        "is_on": found.is_on,
        "state": if found.is_on { found.state.as_str() } else { "off" },
        "level": thousandths(found.level_milli),
        "max": found.settings.as_ref().map(|settings| settings.max),
        "floor": found.settings.as_ref().map(|settings| settings.floor),
        "rest_s": found.rest_s,
        "disabled_at": time(found.disabled_at.as_ref()),
    })
}

fn thousandths(milli: i64) -> String {
    format!("{}.{:03}", milli / 1_000, milli % 1_000)
}

fn wallet_view(wallet: &pb::Wallet) -> Value {
    let limits = wallet.limits.clone().unwrap_or_default();
    json!({
        "agent": wallet.agent,
        "balance": wallet.balance,
        "is_authorized": limits.is_authorized,
        "per_payment": limits.per_payment,
        "per_day": limits.per_day,
        "per_task": limits.per_task,
        "per_subagent": limits.per_subagent,
        "payees": limits.payees,
    })
}

fn payment(payment: &Payment) -> Value {
    json!({
        "id": payment.id,
        "at": time(payment.at.as_ref()),
        "kind": payment.kind,
        "party": payment.party,
        "amount": payment.amount,
        "balance": payment.balance,
        "purpose": payment.purpose,
        "alternatives": payment.alternatives,
        "expected_saving": payment.expected_saving,
        "risk": payment.risk,
        "session_id": payment.session_id,
    })
}

/// Applies the option `--hit-points` of an agent.
pub fn apply(agent: &mut Agent, given: Option<&str>) -> Result<(), Error> {
    let settings = match given {
        None => return Ok(()),
        Some("off") => {
            agent.hit_points = None;
            return Ok(());
        }
        Some("on") => HitPointSettings::default(),
        Some(json) => serde_json::from_str(json).map_err(|error| {
            Error::Usage(format!(
                "`--hit-points` is `on`, `off` or JSON, as in docs/economy.md: {error}"
            ))
        })?,
    };
    agent.hit_points = Some(pb::HitPointSettings {
        max: settings.max,
        floor: settings.floor,
        rates: Some(pb::HitPointRates {
            per_token_milli: settings.per_token_milli,
            per_action_milli: settings.per_action_milli,
            per_tool_milli: settings.per_tool_milli,
            per_io_milli: settings.per_io_milli,
            recovery_milli: settings.recovery_milli,
        }),
    });
    Ok(())
}

pub fn settings_view(agent: &Agent) -> Value {
    let Some(settings) = &agent.hit_points else { return Value::Null };
    let rates = settings.rates.unwrap_or_default();
    json!({
        "max": settings.max,
        "floor": settings.floor,
        "per_token_milli": rates.per_token_milli,
        "per_action_milli": rates.per_action_milli,
        "per_tool_milli": rates.per_tool_milli,
        "per_io_milli": rates.per_io_milli,
        "recovery_milli": rates.recovery_milli,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hit_points_are_turned_on_changed_and_off() {
        let mut agent = Agent::default();
        apply(&mut agent, None).unwrap();
        assert_eq!(settings_view(&agent), Value::Null);

        apply(&mut agent, Some("on")).unwrap();
        assert_eq!((settings_view(&agent)["max"].as_u64()), Some(10_000));
        apply(&mut agent, Some(r#"{"max": 50, "per_tool_milli": 7}"#)).unwrap();
        let view = settings_view(&agent);
        assert_eq!((view["max"].as_u64(), view["per_tool_milli"].as_u64()), (Some(50), Some(7)));
        assert_eq!(view["per_token_milli"].as_u64(), Some(1));
        assert!(apply(&mut agent, Some("maybe")).is_err());

        apply(&mut agent, Some("off")).unwrap();
        assert!(agent.hit_points.is_none());
    }

    #[test]
    fn limits_that_are_not_given_stay() {
        let given = |limits: LimitChanges| {
            let mut before = pb::WalletLimits {
                is_authorized: true,
                per_day: "5.00".to_owned(),
                payees: vec!["shop".to_owned()],
                ..pb::WalletLimits::default()
            };
            limits.apply(&mut before);
            before
        };
        let none = || LimitChanges {
            authorize: None,
            per_payment: None,
            per_day: None,
            per_task: None,
            per_subagent: None,
            payees: None,
        };
        let changed = given(LimitChanges { per_payment: Some("1".to_owned()), ..none() });
        assert_eq!((changed.per_payment.as_str(), changed.per_day.as_str()), ("1", "5.00"));
        assert!(changed.is_authorized);
        let refused = given(LimitChanges {
            authorize: Some("no".to_owned()),
            payees: Some(vec!["none".to_owned()]),
            ..none()
        });
        assert!(!refused.is_authorized && refused.payees.is_empty());
    }
}
