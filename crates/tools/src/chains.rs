//! The `chain_run` tool: several agents work on a task, in sequence and in parallel.
//!
//! A call only stores the request, under the call's key: it writes, and does not act.

use std::{future::Future, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Call, Tool, ToolError};

/// Access of the tool to chains. An error is an internal failure: the turn ends and may be retried.
pub trait Chains: Send + Sync + 'static {
    /// Starts a chain, once for the same `call.key`. Without a name, lists the chains. The inner
    /// error is a reason for the model.
    fn chain(
        &self,
        call: &Call,
        name: Option<String>,
        input: String,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>> + Send;
}

/// Have a chain of agents work on something large in the background: a planner, workers at the same
/// time, a reviewer, or as its owner wrote it. You are told by an event when it has ended.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainRunInput {
    /// The chain's name; without one you are told which there are.
    #[serde(default)]
    chain: Option<String>,
    /// What is asked of it. It sees nothing of this conversation: say all that it needs.
    #[serde(default)]
    input: String,
}

#[derive(Debug)]
pub struct ChainRun<S>(pub Arc<S>);

impl<S: Chains> Tool for ChainRun<S> {
    const NAME: &'static str = "chain_run";
    const EFFECT: Effect = Effect::Writes;
    type Input = ChainRunInput;

    async fn call(&self, call: Call, input: ChainRunInput) -> Result<String, ToolError> {
        let name = input.chain.filter(|name| !name.trim().is_empty());
        let began = self.0.chain(&call, name, input.input).await?;
        began.map_err(ToolError::Tell)
    }
}
