//! Requests to models that belong to no session: a person tries a behaviour.
//!
//! They are charged to the budgets of the tenant and of the agent, and are in the ledger. Nothing
//! that the model answers is done.

use std::sync::Arc;

use holdfast_bus::{ModelAnswer, ModelQuestion};
use holdfast_llm::{Delta, Request};
use holdfast_session::WriteCost;
use holdfast_types::{AgentId, Reply, TenantId, ToolSpec};
use holdfast_work::ModelCall;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use crate::{
    agents::{
        budget::{Ledger, ReservationRequest},
        snapshots::{AgentLookup, AgentSnapshot},
    },
    error::Error,
    worker::Worker,
};

pub(crate) async fn answer_model_question(
    worker: Arc<Worker>,
    question: ModelQuestion,
) -> ModelAnswer {
    match Box::pin(ask_model(&worker, question)).await {
        Ok(Ok((reply, micros))) => ModelAnswer::Replied { reply: Box::new(reply), micros },
        Ok(Err(error)) => ModelAnswer::Failed { error },
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, "a model was not asked");
            ModelAnswer::Failed { error: "the runner cannot ask a model just now".to_owned() }
        }
    }
}

/// Returns the reply and its cost, or why there is none.
async fn ask_model(
    worker: &Worker,
    question: ModelQuestion,
) -> Result<Result<(Reply, u64), String>, Error> {
    let snapshot = match find_agent(worker, &question).await? {
        AgentLookup::Ready(snapshot) => snapshot,
        AgentLookup::NoAgent => return Ok(Err("there is no such agent".to_owned())),
        AgentLookup::NoModel(None) => {
            return Ok(Err("the agent has no model, and the tenant no default one".to_owned()));
        }
        AgentLookup::NoModel(Some(model)) => {
            return Ok(Err(format!("the model `{model}` cannot be used")));
        }
    };
    let ModelQuestion { tenant, agent, mut chat, temperature, max_output, deadline, .. } = question;
    chat.tools = own_tools(worker, &chat.tools);
    let lasts = deadline.min(worker.config.model_timeout);
    let began = Instant::now();
    let mut request = Request {
        card: Some(Arc::clone(&snapshot.card)),
        temperature,
        max_output: max_output.filter(|most| *most < snapshot.card.max_output),
        ..Request::new(snapshot.model_id.clone(), chat, began + lasts)
    };
    let AgentSnapshot { card, ledger, .. } = &*snapshot;
    let mut reserved = None;
    if !ledger.budgets.is_empty() {
        let id = format!("question:{}", Uuid::now_v7());
        let asking = ReservationRequest { tenant, id, expires_after: lasts, card, ledger };
        match worker.budgets().reserve(asking, &mut request).await? {
            Ok(reservation) => reserved = Some(reservation),
            Err(spent) => return Ok(Err(spent)),
        }
    }
    let cancelled = CancellationToken::new();
    let mut pass_over = |_: Delta| {};
    let replied = snapshot.model.reply(&request, &mut pass_over, &cancelled).await;
    let replied = match replied {
        Ok(reply) => {
            let call = ModelCall {
                model: reply.model.clone(),
                usage: reply.usage,
                micros: ledger.micros(&reply.model, &reply.usage),
                error: None,
                duration: began.elapsed(),
            };
            charge(worker, (tenant, agent), ledger, &call).await;
            Ok((reply, call.micros))
        }
        Err(error) => Err(error.to_string()),
    };
    if let Some(reserved) = reserved {
        // Only after the usage is stored.
        worker.budgets().release(reserved).await;
    }
    Ok(replied)
}

/// Charges the budgets, and adds the request to the ledger of the tenant.
async fn charge(
    worker: &Worker,
    (tenant, agent): (TenantId, AgentId),
    ledger: &Ledger,
    call: &ModelCall,
) {
    let spent = WriteCost {
        charge: ledger.charge(&call.model, &call.usage),
        budgets: ledger.owners(),
        ..WriteCost::default()
    };
    let charged = worker.sessions.usage().charge_budgets(tenant, &spent).await;
    let recorded = worker.work.record_model_call(tenant, agent, call).await;
    if let Err(error) = charged {
        warn!(error = &error as &dyn std::error::Error, "a request to a model is not charged");
    }
    if let Err(error) = recorded {
        warn!(
            error = &error as &dyn std::error::Error,
            "a request to a model is not in the ledger"
        );
    }
}

/// The agent with the first of the question's models that can be used, or with its own.
async fn find_agent(worker: &Worker, question: &ModelQuestion) -> Result<AgentLookup, Error> {
    let (tenant, agent) = (question.tenant, question.agent);
    for model in &question.models {
        let found = worker.agents.find(tenant, agent, Some(model.clone())).await?;
        match found {
            AgentLookup::Ready(_) | AgentLookup::NoAgent => return Ok(found),
            AgentLookup::NoModel(_) => warn!(model, "a model of a behaviour cannot be used"),
        }
    }
    worker.agents.find(tenant, agent, None).await
}

/// This runner's tools of these names.
fn own_tools(worker: &Worker, named: &[ToolSpec]) -> Vec<ToolSpec> {
    let mut tools = worker.tools.registry().specs();
    tools.retain(|tool| named.iter().any(|named| named.name == tool.name));
    tools
}
