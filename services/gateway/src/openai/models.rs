//! A tenant's agents in the form of OpenAI's models.

use holdfast_grpc::Caller;
use holdfast_llm::{ModelCard, ThinkingForm};
use holdfast_types::AgentId;
use serde::Serialize;

use super::{OpenAi, conversation::MODEL_PREFIX};
use crate::api_error::ApiError;

#[derive(Debug, Serialize)]
pub struct Model {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    abilities: Vec<&'static str>,
    /// Maximum tokens of input and output together; `None` if the agent's model is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_length: Option<u64>,
    /// Maximum tokens of an answer; as `context_length`.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
}

/// What every agent can do over this API.
const ABILITIES: [&str; 4] = ["chat.completions", "responses", "streaming", "structured_output"];

/// What the model of an agent can do. One that is not known is assumed to call tools, and nothing
/// else.
fn model_abilities(card: Option<&ModelCard>) -> impl Iterator<Item = &'static str> {
    let thinks = card.is_some_and(|card| card.thinking.by != ThinkingForm::No);
    [
        ("tools", card.is_none_or(|card| card.tools)),
        ("image_input", card.is_some_and(|card| card.images)),
        ("reasoning", thinks),
    ]
    .into_iter()
    .filter_map(|(name, can)| can.then_some(name))
}

#[derive(Debug, Serialize)]
pub struct Models {
    object: &'static str,
    data: Vec<Model>,
}

impl Models {
    pub fn data(&self) -> &[Model] {
        &self.data
    }
}

/// Lists the default agent as `holdfast`, and every agent by its own name.
pub async fn list_models(api: &OpenAi, caller: &Caller) -> Result<Models, ApiError> {
    let default = api.ingest.agent(caller, "").await?;
    let agents = api.ingest.agents(caller).await?;
    let cards = api.ingest.model_cards(caller.tenant).await?;
    let model = |name: String, agent: AgentId| Model::new(name, agent, cards.get(&agent));
    let own = agents.iter().map(|agent| model(format!("{MODEL_PREFIX}/{}", agent.name), agent.id));
    let data = [model(MODEL_PREFIX.to_owned(), default.id)].into_iter().chain(own).collect();
    Ok(Models { object: "list", data })
}

/// Finds an agent by a name, and shows it under the name that the client gave.
pub async fn find_model(
    api: &OpenAi,
    caller: &Caller,
    given: String,
    name: &str,
) -> Result<Model, ApiError> {
    let agent = api.agent_of(caller, name).await?;
    let cards = api.ingest.model_cards(caller.tenant).await?;
    Ok(Model::new(given, agent.id, cards.get(&agent.id)))
}

impl Model {
    fn new(id: String, agent: AgentId, card: Option<&ModelCard>) -> Self {
        Self {
            id,
            object: "model",
            created: super::sse::created_at(agent.as_uuid()),
            owned_by: MODEL_PREFIX,
            abilities: ABILITIES.into_iter().chain(model_abilities(card)).collect(),
            context_length: card.map(|card| card.context),
            max_output_tokens: card.map(|card| card.max_output),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Time of creation, in seconds since 1970.
    pub const fn created(&self) -> u64 {
        self.created
    }

    /// Maximum tokens of input and output together, and of an answer; `None` if they are not known.
    pub fn limits(&self) -> Option<(u64, u32)> {
        self.context_length.zip(self.max_output_tokens)
    }
}
