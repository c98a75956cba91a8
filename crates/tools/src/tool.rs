//! Interface of a tool.

use std::{any::Any, fmt, future::Future, sync::Arc, time::Duration};

use holdfast_types::{AgentId, AgentName, Effect, RunId, SessionId, TenantId, ToolSpec};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{AllowedHosts, AllowedTools, Approval, Destination};

/// Function that a model can call.
///
/// A tool is an input type and a function. The model reads the input's doc comments: the type's is
/// the tool's description, a field's is the argument's. Write them for a reader who sees nothing
/// else.
///
/// A tool returns a text, or the type after its name: `Tool<Output>` returns an
/// [`Output`](crate::Output).
pub trait Tool<A: Send = String>: Send + Sync + 'static {
    /// Name by which the model calls it, in `snake_case`.
    const NAME: &'static str;

    const EFFECT: Effect;

    /// Timeout of a call; `None` means the default one.
    const TIMEOUT: Option<Duration> = None;

    type Input: DeserializeOwned + JsonSchema + Send;

    /// Returns the approval that this call needs. Called again right before the call: it must
    /// change nothing, and return the same for the same call.
    ///
    /// # Errors
    ///
    /// Those of [`call`](Self::call); the call is then not made.
    fn approval(
        &self,
        call: &Call,
        input: &Self::Input,
    ) -> impl Future<Output = Result<Approval, ToolError>> + Send {
        let _: (&Call, &Self::Input) = (call, input);
        std::future::ready(Ok(Approval::Never))
    }

    /// Returns where this call sends what the model wrote, if only the tool knows it. In a conversation
    /// that has read text from outside, a person decides about such a call. It must change nothing.
    ///
    /// # Errors
    ///
    /// Those of [`call`](Self::call); the call is then not made.
    fn destination(
        &self,
        call: &Call,
        input: &Self::Input,
    ) -> impl Future<Output = Result<Option<Destination>, ToolError>> + Send {
        let _: (&Call, &Self::Input) = (call, input);
        std::future::ready(Ok(None))
    }

    /// Executes the call; returns the answer for the model.
    fn call(
        &self,
        call: Call,
        input: Self::Input,
    ) -> impl Future<Output = Result<A, ToolError>> + Send;

    /// Finds the outcome of a call that acts and whose runner crashed. It must only read. `None` if
    /// the outcome is unknown, as it is for most tools.
    fn find_outcome(
        &self,
        call: &Call,
        input: &Self::Input,
    ) -> impl Future<Output = Option<A>> + Send {
        let _: (&Call, &Self::Input) = (call, input);
        std::future::ready(None)
    }
}

/// Context of a tool call.
#[derive(Debug, Clone)]
pub struct Call {
    /// The only source of the tenant for a tool.
    pub tenant: TenantId,
    pub agent: AgentId,
    pub agent_name: AgentName,
    pub session: SessionId,
    pub run: RunId,
    /// Idempotency key, the same for each repetition of the call: `session:turn:step:call`.
    pub key: String,
    /// Tools that the caller may use.
    pub allowed: AllowedTools,
    /// Hosts that the web tools may reach for the caller.
    pub hosts: AllowedHosts,
    /// Cancelled when the result is no longer wanted.
    pub cancelled: CancellationToken,
    pub host: HostContext,
}

/// Value that the process which makes a call attaches to it for its own adapters. Tools pass it on
/// and do not look inside.
#[derive(Clone, Default)]
pub struct HostContext(Option<Arc<dyn Any + Send + Sync>>);

impl HostContext {
    #[must_use]
    pub fn new<T: Any + Send + Sync>(value: T) -> Self {
        Self(Some(Arc::new(value)))
    }

    /// Returns the attached value, or `None` if there is none of this type.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for HostContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostContext").field("is_set", &self.0.is_some()).finish()
    }
}

/// Reason why a call has no result, divided by who can react.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The model can react: it gets this text.
    #[error("{0}")]
    Tell(String),
    /// An internal failure: the turn ends, and the run may be retried later.
    #[error(transparent)]
    Broken(#[from] anyhow::Error),
}

/// Builds the specification that the model gets.
pub(crate) fn spec<I: JsonSchema>(name: &str) -> ToolSpec {
    let mut input = schemars::schema_for!(I).to_value();
    let mut description = String::new();
    if let Some(schema) = input.as_object_mut() {
        schema.remove("title");
        schema.remove("$schema");
        if let Some(Value::String(text)) = schema.remove("description") {
            description = text;
        }
        // Some providers refuse an object without `properties`.
        schema.entry("properties").or_insert_with(|| json!({}));
    }
    strip_schema(&mut input);
    ToolSpec { name: name.to_owned(), description, input }
}

/// Removes parts of a schema that are useless to a model: Rust's integer formats, and empty
/// defaults. The schema is sent with every request.
fn strip_schema(schema: &mut Value) {
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
            ("properties" | "$defs", Value::Object(named)) => {
                named.values_mut().for_each(strip_schema)
            }
            ("anyOf" | "oneOf" | "allOf", Value::Array(some)) => {
                some.iter_mut().for_each(strip_schema)
            }
            ("items" | "additionalProperties", inner) => strip_schema(inner),
            _ => {}
        }
    }
}
