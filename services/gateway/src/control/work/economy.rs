//! The service `Economy`: hit points and wallets of agents.

use holdfast_directory::Agent;
use holdfast_proto::gateway::v1::{
    self as pb, EnableAgentRequest, EnableAgentResponse, FundWalletRequest, FundWalletResponse,
    GetHitPointsRequest, GetHitPointsResponse, GetWalletRequest, GetWalletResponse,
    ListPaymentsRequest, ListPaymentsResponse, SetWalletLimitsRequest, SetWalletLimitsResponse,
    economy_server::Economy as Service,
};
use holdfast_types::{HitPointSettings, Money, TenantId};
use holdfast_work::{HitPoints, PaymentRecord, Wallet, WalletRules};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::page_limit;
use crate::{
    Error, audit,
    control::{State, invalid, non_empty, timestamp},
};

const DEFAULT_PAYMENTS: u32 = 50;
const MAX_PAYMENTS: u32 = 500;
const MAX_PAYEES: usize = 100;
const MAX_NAME_BYTES: usize = 256;

/// Implements `holdfast.gateway.v1.Economy`.
#[derive(Debug)]
pub struct Economy(pub State);

#[tonic::async_trait]
impl Service for Economy {
    async fn get_hit_points(
        &self,
        request: Request<GetHitPointsRequest>,
    ) -> Result<Response<GetHitPointsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let settings = agent.settings.hit_points.unwrap_or_default();

        let found = self.0.work.hit_points(caller.tenant, agent.id, &settings).await;

        let hit_points = Some(hit_points(&agent, found.map_err(Error::from)?));
        Ok(Response::new(GetHitPointsResponse { hit_points }))
    }

    async fn enable_agent(
        &self,
        request: Request<EnableAgentRequest>,
    ) -> Result<Response<EnableAgentResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let settings = agent.settings.hit_points.unwrap_or_default();

        let found = self.0.work.enable_agent(caller.tenant, agent.id, &settings).await;

        let hit_points = Some(hit_points(&agent, found.map_err(Error::from)?));
        Ok(Response::new(EnableAgentResponse { hit_points }))
    }

    async fn get_wallet(
        &self,
        request: Request<GetWalletRequest>,
    ) -> Result<Response<GetWalletResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let found = self.0.work.wallet(caller.tenant, agent.id).await.map_err(Error::from)?;

        Ok(Response::new(GetWalletResponse { wallet: Some(wallet(&agent, found)) }))
    }

    async fn set_wallet_limits(
        &self,
        request: Request<SetWalletLimitsRequest>,
    ) -> Result<Response<SetWalletLimitsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let rules = wallet_rules(request.limits.unwrap_or_default())?;
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let set = self.0.work.set_wallet_rules(caller.tenant, agent.id, &rules).await;

        let wallet = Some(wallet(&agent, set.map_err(Error::from)?));
        Ok(Response::new(SetWalletLimitsResponse { wallet }))
    }

    async fn fund_wallet(
        &self,
        request: Request<FundWalletRequest>,
    ) -> Result<Response<FundWalletResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let amount = amount("amount", &request.amount)?;
        if amount == Money::default() {
            return Err(invalid("`amount` is above 0".to_owned()).into());
        }
        let source = name("source", non_empty(request.source).as_deref().unwrap_or("funding"))?;
        let id = non_empty(request.request_id).unwrap_or_else(|| Uuid::now_v7().to_string());
        // Keys of calls begin otherwise.
        let key = format!("user:{}", name("request_id", &id)?);
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let work = &self.0.work;
        let funded = work.receive(caller.tenant, agent.id, (&key, &source), amount).await;
        funded.map_err(Error::from)?;

        let found = work.wallet(caller.tenant, agent.id).await.map_err(Error::from)?;
        Ok(Response::new(FundWalletResponse { wallet: Some(wallet(&agent, found)) }))
    }

    async fn list_payments(
        &self,
        request: Request<ListPaymentsRequest>,
    ) -> Result<Response<ListPaymentsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let limit = page_limit(request.limit, DEFAULT_PAYMENTS, MAX_PAYMENTS)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let found = self.0.work.payments(caller.tenant, agent.id, limit).await;

        let payments = found.map_err(Error::from)?.into_iter().map(payment).collect();
        Ok(Response::new(ListPaymentsResponse { payments }))
    }
}

impl Economy {
    async fn agent(&self, tenant: TenantId, named: &str) -> Result<Agent, Error> {
        if named.is_empty() {
            return Err(Error::MissingField("agent"));
        }
        Ok(self.0.directory.agents().get(tenant, named).await?)
    }
}

/// Hit points of an agent; those of one without settings are at the maximum.
fn hit_points(agent: &Agent, found: HitPoints) -> pb::HitPoints {
    let settings = agent.settings.hit_points.unwrap_or_default();
    let rest = settings.rest(found.level_milli);
    let state = match found.disabled_at {
        Some(_) => "disabled",
        None if !rest.is_zero() => "resting",
        None => "enabled",
    };
    pb::HitPoints {
        agent: agent.name.to_string(),
        is_on: agent.settings.hit_points.is_some(),
        level_milli: i64::try_from(found.level_milli).unwrap_or(i64::MAX),
        state: state.to_owned(),
        disabled_at: found.disabled_at.map(timestamp),
        rest_s: u32::try_from(rest.as_secs()).unwrap_or(u32::MAX),
        settings: Some(settings_to_proto(settings)),
    }
}

pub(in crate::control) fn settings_to_proto(settings: HitPointSettings) -> pb::HitPointSettings {
    pb::HitPointSettings {
        max: settings.max,
        floor: settings.floor,
        rates: Some(pb::HitPointRates {
            per_token_milli: settings.per_token_milli,
            per_action_milli: settings.per_action_milli,
            per_tool_milli: settings.per_tool_milli,
            per_io_milli: settings.per_io_milli,
            recovery_milli: settings.recovery_milli,
        }),
    }
}

pub(in crate::control) fn settings_from_proto(given: pb::HitPointSettings) -> HitPointSettings {
    let usual = HitPointSettings::default();
    let max = if given.max == 0 { usual.max } else { given.max };
    match given.rates {
        None => HitPointSettings { max, floor: given.floor, ..usual },
        Some(rates) => HitPointSettings {
            max,
            floor: given.floor,
            per_token_milli: rates.per_token_milli,
            per_action_milli: rates.per_action_milli,
            per_tool_milli: rates.per_tool_milli,
            per_io_milli: rates.per_io_milli,
            recovery_milli: rates.recovery_milli,
        },
    }
}

fn wallet(agent: &Agent, found: Wallet) -> pb::Wallet {
    let rules = found.rules;
    pb::Wallet {
        agent: agent.name.to_string(),
        balance: found.balance.to_string(),
        limits: Some(pb::WalletLimits {
            is_authorized: rules.is_authorized,
            per_payment: rules.per_payment.to_string(),
            per_day: rules.per_day.to_string(),
            per_task: rules.per_task.to_string(),
            per_subagent: rules.per_subagent.to_string(),
            payees: rules.payees,
        }),
    }
}

fn wallet_rules(given: pb::WalletLimits) -> Result<WalletRules, Error> {
    if given.payees.len() > MAX_PAYEES {
        return Err(invalid(format!("`payees` has {MAX_PAYEES} entries at most")));
    }
    let payees = given.payees.iter().map(|payee| name("payees", payee));
    Ok(WalletRules {
        is_authorized: given.is_authorized,
        per_payment: amount("per_payment", &given.per_payment)?,
        per_day: amount("per_day", &given.per_day)?,
        per_task: amount("per_task", &given.per_task)?,
        per_subagent: amount("per_subagent", &given.per_subagent)?,
        payees: payees.collect::<Result<_, _>>()?,
    })
}

fn amount(field: &str, text: &str) -> Result<Money, Error> {
    match text {
        "" => Ok(Money::default()),
        text => text.parse().map_err(|error| invalid(format!("`{field}`: {error}"))),
    }
}

/// Checks a name that is stored and shown.
fn name(field: &str, text: &str) -> Result<String, Error> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_NAME_BYTES || text.contains(char::is_control) {
        return Err(invalid(format!(
            "`{field}` has 1 to {MAX_NAME_BYTES} bytes, and no control characters"
        )));
    }
    Ok(text.to_owned())
}

fn payment(record: PaymentRecord) -> pb::Payment {
    pb::Payment {
        id: record.id.to_string(),
        at: Some(timestamp(record.at)),
        kind: record.kind,
        party: record.party,
        amount: record.amount.to_string(),
        balance: record.balance.to_string(),
        purpose: record.purpose,
        alternatives: record.alternatives,
        expected_saving: record.expected_saving,
        risk: record.risk,
        session_id: record.session.map(|session| session.to_string()).unwrap_or_default(),
    }
}
