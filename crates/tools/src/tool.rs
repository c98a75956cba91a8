//! What a tool is.

use std::{future::Future, time::Duration};

use holdfast_types::{AgentId, AgentName, Effect, RunId, SessionId, TenantId, ToolSpec};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Allowed, Approval};

/// Something an agent can do besides talk.
///
/// A tool is an input type and a function. The model reads the input's doc
/// comments: the type's is the tool's description, a field's is the argument's.
/// Write them for a reader who sees nothing else.
///
/// It answers with a text, or with what is said after its name: `Tool<Output>`
/// answers with an [`Output`](crate::Output).
pub trait Tool<A: Send = String>: Send + Sync + 'static {
    /// The name the model calls it by, in `snake_case`.
    const NAME: &'static str;

    /// What a call may change.
    const EFFECT: Effect;

    /// How long a call may take, if that is not as long as any other.
    const TIMEOUT: Option<Duration> = None;

    /// What the model must say to use it.
    type Input: DeserializeOwned + JsonSchema + Send;

    /// Whether a person must be asked before this call is made. Asked again right before the call:
    /// it changes nothing, and says the same of the same call.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call)'s; the call is not made then.
    fn approval(
        &self,
        call: &Call,
        input: &Self::Input,
    ) -> impl Future<Output = Result<Approval, ToolError>> + Send {
        let _: (&Call, &Self::Input) = (call, input);
        std::future::ready(Ok(Approval::Never))
    }

    /// Does it, and answers the model.
    fn call(
        &self,
        call: Call,
        input: Self::Input,
    ) -> impl Future<Output = Result<A, ToolError>> + Send;

    /// What came of a call that acts, asked after whoever made it has died: it looks, and does
    /// nothing. `None` if that cannot be known, as of most.
    fn recall(&self, call: &Call, input: &Self::Input) -> impl Future<Output = Option<A>> + Send {
        let _: (&Call, &Self::Input) = (call, input);
        std::future::ready(None)
    }
}

/// In whose name, and for how long, a tool is called.
#[derive(Debug, Clone)]
pub struct Call {
    /// The tenant. A tool has no other way to learn of one.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// The agent's name.
    pub agent_name: AgentName,
    /// The conversation.
    pub session: SessionId,
    /// The turn.
    pub run: RunId,
    /// The same for the same call, however often it is made: `session:turn:step:call`.
    pub key: String,
    /// Which tools may be used in its place.
    pub allowed: Allowed,
    /// Cancelled when the answer is no longer wanted.
    pub cancelled: CancellationToken,
}

/// Why a call has no result. The distinction is who can do something about it.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The model can: it is told this, and may try another way.
    #[error("{0}")]
    Tell(String),
    /// Only we can: the turn ends, and the run may be tried again later.
    #[error(transparent)]
    Broken(#[from] anyhow::Error),
}

/// What the model is told of a tool.
pub(crate) fn spec<I: JsonSchema>(name: &str) -> ToolSpec {
    let mut input = schemars::schema_for!(I).to_value();
    let mut description = String::new();
    if let Some(schema) = input.as_object_mut() {
        schema.remove("title");
        schema.remove("$schema");
        if let Some(Value::String(text)) = schema.remove("description") {
            description = text;
        }
        // Some providers refuse an object that does not say which properties it has.
        schema.entry("properties").or_insert_with(|| json!({}));
    }
    lean(&mut input);
    ToolSpec { name: name.to_owned(), description, input }
}

/// Takes out of a schema what tells a model nothing: Rust's widths of numbers, and defaults that
/// are what one leaves out anyway. It is sent with every request.
fn lean(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    if schema.get("format").and_then(Value::as_str).is_some_and(|format| format.contains("int")) {
        schema.remove("format");
    }
    let nothing = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => false,
    };
    if schema.get("default").is_some_and(nothing) {
        schema.remove("default");
    }
    for (key, value) in schema {
        match (key.as_str(), value) {
            ("properties" | "$defs", Value::Object(named)) => named.values_mut().for_each(lean),
            ("anyOf" | "oneOf" | "allOf", Value::Array(some)) => some.iter_mut().for_each(lean),
            ("items" | "additionalProperties", inner) => lean(inner),
            _ => {}
        }
    }
}
