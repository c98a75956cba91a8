//! Registry of an agent's tools.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    marker::PhantomData,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use holdfast_types::{Effect, ToolSpec};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    AllowedTools, Approval, Call, Destination, DynamicTool, DynamicTools, MAX_OUTPUT_BYTES, Output,
    Tool, ToolError, UnavailableSource,
    alias::{ALIASES, Alias},
    disclosure::{self, DESCRIBE_TOOL, SEARCH_TOOL},
    tool,
};

/// Answer to a call of a tool that the caller may not use.
pub const TOOL_NOT_ALLOWED: &str = "this tool is not one of yours; use those that you were given";

/// Minimum similarity of a suggested tool name, from 0 to 1.
const MIN_NAME_SIMILARITY: f64 = 0.8;

/// Tools by name. Clones share them.
#[derive(Clone, Default)]
pub struct Registry {
    tools: BTreeMap<Cow<'static, str>, Arc<RegisteredTool>>,
    /// Names of the tools that the model gets from the start; `None` means all.
    direct: Option<BTreeSet<String>>,
    /// Sources whose tools are unavailable now.
    unavailable: Vec<UnavailableSource>,
    /// Whether there may be more tools, because a source was not read yet.
    is_incomplete: bool,
}

struct RegisteredTool {
    spec: ToolSpec,
    tool: Box<dyn ErasedTool>,
}

/// Tools as offered to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// Tools with their schemas, ordered by name.
    pub tools: Vec<ToolSpec>,
    /// Names of the other tools, which the model finds with `tool_search`.
    pub searchable: Vec<String>,
}

impl Registry {
    /// Adds a tool; replaces one with the same name.
    #[must_use]
    pub fn with<T: Tool<A>, A: Into<Output> + Send + 'static>(mut self, tool: T) -> Self {
        let spec = tool::spec::<T::Input>(T::NAME);
        let kept = RegisteredTool { spec, tool: Box::new(TypedTool(tool, PhantomData)) };
        self.tools.insert(T::NAME.into(), Arc::new(kept));
        self
    }

    /// Adds dynamic tools. They never replace a tool, nor take one of its aliases.
    #[must_use]
    pub fn with_dynamic_tools(&self, brought: DynamicTools) -> Self {
        let mut joined = self.clone();
        for tool in brought.tools {
            let spec = tool.spec();
            let is_ours = [SEARCH_TOOL, DESCRIBE_TOOL].contains(&spec.name.as_str())
                || joined.canonical(&spec.name).is_some()
                || Alias::find(&spec.name).is_some();
            if !is_ours {
                let name = Cow::Owned(spec.name.clone());
                joined.tools.insert(
                    name,
                    Arc::new(RegisteredTool { spec, tool: Box::new(DynamicToolAdapter(tool)) }),
                );
            }
        }
        joined.unavailable.extend(brought.unavailable);
        joined.is_incomplete |= brought.is_incomplete;
        joined
    }

    /// Offers only these tools from the start; the model finds the others with `tool_search`.
    /// [`DIRECT`](crate::DEFAULT_DIRECT_TOOLS) is a good choice.
    #[must_use]
    pub fn with_direct_tools<'a>(mut self, direct: impl IntoIterator<Item = &'a str>) -> Self {
        self.direct = Some(direct.into_iter().map(str::to_owned).collect());
        self
    }

    /// Returns all specifications, ordered by name.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.values().map(|kept| kept.spec.clone()).collect()
    }

    /// Returns the tools that a model gets, ordered by name: the direct ones that it may use, and
    /// the two lookup tools if there are others.
    ///
    /// Tools that the agent looked up (`sought`, by any of their names) are included: providers
    /// reject calls to tools that are missing from the request.
    #[must_use]
    pub fn offered(&self, allowed: &AllowedTools, sought: &[&str]) -> Offer {
        let sought: Vec<&str> = sought.iter().filter_map(|name| self.canonical(name)).collect();
        let mut offer = Offer::default();
        for spec in self.tools.values().map(|kept| &kept.spec) {
            if !allowed.allows(&spec.name) {
                continue;
            }
            if self.is_direct(&spec.name) || sought.contains(&spec.name.as_str()) {
                offer.tools.push(spec.clone());
            } else {
                offer.searchable.push(spec.name.clone());
            }
        }
        if !offer.searchable.is_empty() || self.is_incomplete {
            offer.tools.extend(disclosure::specs());
            offer.tools.sort_by(|one, other| one.name.cmp(&other.name));
        }
        offer
    }

    fn is_direct(&self, name: &str) -> bool {
        self.direct.as_ref().is_none_or(|direct| direct.contains(name))
    }

    /// Returns the canonical name of a tool, by any of its names; `None` if it does not exist.
    #[must_use]
    pub fn canonical(&self, name: &str) -> Option<&str> {
        if let Some((name, _)) = self.tools.get_key_value(name) {
            return Some(name);
        }
        if self.direct.is_some()
            && let Some(meta) = [SEARCH_TOOL, DESCRIBE_TOOL].into_iter().find(|meta| *meta == name)
        {
            return Some(meta);
        }
        let alias = Alias::find(name)?;
        self.tools.get_key_value(alias.tool).map(|(name, _)| name.as_ref())
    }

    /// Whether a tool is dynamic.
    #[must_use]
    pub fn is_brought(&self, name: &str) -> bool {
        self.tools.get(name).is_some_and(|kept| kept.tool.is_brought())
    }

    /// Returns the effect of a tool; of an unknown one, the strongest.
    #[must_use]
    pub fn effect(&self, name: &str) -> Effect {
        match self.canonical(name) {
            Some(SEARCH_TOOL | DESCRIBE_TOOL) => Effect::Reads,
            Some(name) => self.tools.get(name).map_or(Effect::Acts, |kept| kept.tool.effect()),
            None => Effect::Acts,
        }
    }

    /// Returns the fields of a tool's input, by any of its names; `None` if it accepts others too.
    #[must_use]
    pub fn fields(&self, name: &str) -> Option<Vec<&str>> {
        let schema = &self.tools.get(self.canonical(name)?)?.spec.input;
        let properties = schema.get("properties").and_then(Value::as_object)?;
        let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        is_closed.then(|| properties.keys().map(String::as_str).collect())
    }

    /// Returns the timeout of a tool, if it has one of its own.
    #[must_use]
    pub fn timeout(&self, name: &str) -> Option<Duration> {
        self.tools.get(self.canonical(name)?)?.tool.timeout()
    }

    /// Calls a tool by any of its names, with the input as the model wrote it.
    ///
    /// # Errors
    ///
    /// `Tell` if the tool does not exist, may not be used, panicked or refuses, or if the input is
    /// invalid; `Broken` on an internal failure.
    pub async fn call(&self, call: Call, name: &str, input: &str) -> Result<Output, ToolError> {
        let (known, input) = self.resolve(&call.allowed, name, input)?;
        let made = match self.tools.get(known) {
            Some(kept) => {
                let made = AssertUnwindSafe(kept.tool.call(call, input)).catch_unwind().await;
                made.unwrap_or_else(|_| Err(panic_error(known, kept.tool.effect())))
            }
            None => self.disclose(&call.allowed, known, input).map(Output::from),
        };
        match made {
            Ok(output) => Ok(Output { for_llm: capped(output.for_llm), ..output }),
            Err(ToolError::Tell(text)) => Err(ToolError::Tell(capped(text))),
            Err(ToolError::Broken(error)) => Err(ToolError::Broken(error)),
        }
    }

    /// Returns the approval that this call needs. The lookup tools never need one.
    ///
    /// # Errors
    ///
    /// Those of [`call`](Self::call); the call would fail in the same way.
    pub async fn approval(
        &self,
        call: &Call,
        name: &str,
        input: &str,
    ) -> Result<Approval, ToolError> {
        let (known, input) = self.resolve(&call.allowed, name, input)?;
        let Some(kept) = self.tools.get(known) else { return Ok(Approval::Never) };
        let asked = AssertUnwindSafe(kept.tool.approval(call, input)).catch_unwind().await;
        // The approval check changes nothing, so the call may be repeated.
        asked.unwrap_or_else(|_| Err(panic_error(known, Effect::Reads)))
    }

    /// Returns where this call sends what the model wrote, as far as only the tool knows it.
    ///
    /// # Errors
    ///
    /// Those of [`call`](Self::call); the call would fail in the same way.
    pub async fn destination(
        &self,
        call: &Call,
        name: &str,
        input: &str,
    ) -> Result<Option<Destination>, ToolError> {
        let (known, input) = self.resolve(&call.allowed, name, input)?;
        let Some(kept) = self.tools.get(known) else { return Ok(None) };
        let asked = AssertUnwindSafe(kept.tool.destination(call, input)).catch_unwind().await;
        asked.unwrap_or_else(|_| Err(panic_error(known, Effect::Reads)))
    }

    /// Returns the tool of a call with the input as the tool gets it; `None` if the call would fail.
    #[must_use]
    pub fn parse_call(&self, name: &str, input: &str) -> Option<(&str, Value)> {
        self.resolve(&AllowedTools::matching(|_| true), name, input).ok()
    }

    /// Finds the outcome of a call that acts and whose runner crashed, if its tool can.
    pub async fn find_outcome(&self, call: &Call, name: &str, input: &str) -> Option<Output> {
        let (known, input) = self.resolve(&call.allowed, name, input).ok()?;
        let kept = self.tools.get(known)?;
        let found = AssertUnwindSafe(kept.tool.recall(call, input)).catch_unwind().await;
        let output = found.ok().flatten()?;
        Some(Output { for_llm: capped(output.for_llm), ..output })
    }

    /// Finds the tool, and parses the input.
    fn resolve<'a>(
        &'a self,
        allowed: &AllowedTools,
        name: &str,
        input: &str,
    ) -> Result<(&'a str, Value), ToolError> {
        let Some(known) = self.canonical(name) else {
            return Err(self.unknown_tool_error(name, allowed));
        };
        let is_meta = matches!(known, SEARCH_TOOL | DESCRIBE_TOOL);
        if !is_meta && !allowed.allows(known) {
            return Err(ToolError::Tell(TOOL_NOT_ALLOWED.to_owned()));
        }
        let input = match input.trim() {
            "" => Value::Object(serde_json::Map::new()),
            text => serde_json::from_str(text)
                .map_err(|error| ToolError::Tell(format!("the input is not JSON: {error}")))?,
        };
        // A list would fill the fields of a tool's input in their order, and the policy, which looks
        // for them by name, would see none.
        if !input.is_object() {
            return Err(ToolError::Tell("the input is no JSON object".to_owned()));
        }
        let input = match Alias::find(name) {
            Some(alias) if known != name => alias.input(input),
            _ => input,
        };
        Ok((known, input))
    }

    fn disclose(
        &self,
        allowed: &AllowedTools,
        name: &str,
        input: Value,
    ) -> Result<String, ToolError> {
        if name == SEARCH_TOOL {
            let specs: Vec<&ToolSpec> = self.tools.values().map(|kept| &kept.spec).collect();
            let mut found = disclosure::search(&specs, allowed, &parsed(input)?)?;
            for away in &self.unavailable {
                found.push_str(&format!("\nNot to be had now: {}", away.reason));
            }
            return Ok(found);
        }
        let disclosure::DescribeInput { name } = parsed(input)?;
        self.canonical(&name)
            .filter(|known| allowed.allows(known))
            .and_then(|known| self.tools.get(known))
            .map(|kept| disclosure::describe(&kept.spec))
            .ok_or_else(|| self.unknown_tool_error(&name, allowed))
    }

    /// Error for an unknown tool: names similar tools, or all.
    fn unknown_tool_error(&self, name: &str, allowed: &AllowedTools) -> ToolError {
        if let Some(away) = self.unavailable.iter().find(|away| name.starts_with(&away.prefix)) {
            return ToolError::Tell(away.reason.clone());
        }
        let names: Vec<&str> =
            self.tools.keys().map(AsRef::as_ref).filter(|name| allowed.allows(name)).collect();
        let others = ALIASES.iter().filter(|alias| names.contains(&alias.tool));
        let like: BTreeSet<&str> = names
            .iter()
            .map(|name| (*name, *name))
            .chain(others.map(|alias| (alias.name, alias.tool)))
            .filter(|(known, _)| strsim::jaro_winkler(known, cut(name, 64)) >= MIN_NAME_SIMILARITY)
            .map(|(_, canonical)| canonical)
            .collect();
        let name = crate::untrusted::one_line(cut(name, 64));
        let like: Vec<&str> = like.into_iter().collect();
        ToolError::Tell(match (names.as_slice(), like.as_slice()) {
            ([], _) => format!("there is no tool `{name}`; there are none"),
            (names, []) => format!("there is no tool `{name}`; there are: {}", names.join(", ")),
            (_, like) => {
                format!("there is no tool `{name}`; did you mean: {}?", like.join(", "))
            }
        })
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

fn panic_error(name: &str, effect: Effect) -> ToolError {
    let outcome = match effect {
        Effect::Reads | Effect::Writes => "it may be tried once more",
        Effect::Acts => "whether it did what it should is not known: look before you try again",
    };
    ToolError::Tell(format!("`{name}` broke down, which is a fault of ours; {outcome}"))
}

fn parsed<I: DeserializeOwned>(input: Value) -> Result<I, ToolError> {
    serde_json::from_value(input)
        .map_err(|error| ToolError::Tell(format!("the input is not right: {error}")))
}

/// Longest prefix of at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn capped(output: String) -> String {
    if output.len() <= MAX_OUTPUT_BYTES {
        return output;
    }
    let total = output.len();
    let mut output = output;
    output.truncate(cut(&output, MAX_OUTPUT_BYTES).len());
    output.push_str(&format!("\n[cut off: {total} bytes, and {MAX_OUTPUT_BYTES} are the most]"));
    output
}

type CallFuture<'a, T = Output> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;
type OutcomeFuture<'a> = Pin<Box<dyn Future<Output = Option<Output>> + Send + 'a>>;

/// Type-erased [`Tool`].
trait ErasedTool: Send + Sync {
    fn is_brought(&self) -> bool {
        false
    }
    fn effect(&self) -> Effect;
    fn timeout(&self) -> Option<Duration>;
    fn approval<'a>(&'a self, call: &'a Call, input: Value) -> CallFuture<'a, Approval>;
    fn destination<'a>(
        &'a self,
        call: &'a Call,
        input: Value,
    ) -> CallFuture<'a, Option<Destination>>;
    fn call(&self, call: Call, input: Value) -> CallFuture<'_>;
    /// Dynamic tools cannot find the outcome of earlier calls.
    fn recall<'a>(&'a self, call: &'a Call, input: Value) -> OutcomeFuture<'a> {
        let _: (&Call, Value) = (call, input);
        Box::pin(std::future::ready(None))
    }
}

/// Tool with its output type.
struct TypedTool<T, A>(T, PhantomData<fn() -> A>);

impl<T: Tool<A>, A: Into<Output> + Send + 'static> ErasedTool for TypedTool<T, A> {
    fn effect(&self) -> Effect {
        T::EFFECT
    }

    fn timeout(&self) -> Option<Duration> {
        T::TIMEOUT
    }

    fn approval<'a>(&'a self, call: &'a Call, input: Value) -> CallFuture<'a, Approval> {
        Box::pin(async move {
            let input = parsed(input)?;
            self.0.approval(call, &input).await
        })
    }

    fn destination<'a>(
        &'a self,
        call: &'a Call,
        input: Value,
    ) -> CallFuture<'a, Option<Destination>> {
        Box::pin(async move {
            let input = parsed(input)?;
            self.0.destination(call, &input).await
        })
    }

    fn call(&self, call: Call, input: Value) -> CallFuture<'_> {
        Box::pin(async move {
            let input = parsed(input)?;
            self.0.call(call, input).await.map(Into::into)
        })
    }

    fn recall<'a>(&'a self, call: &'a Call, input: Value) -> OutcomeFuture<'a> {
        Box::pin(async move {
            let input = parsed(input).ok()?;
            self.0.find_outcome(call, &input).await.map(Into::into)
        })
    }
}

/// [`Dynamic`] tool in a registry.
struct DynamicToolAdapter(Arc<dyn DynamicTool>);

impl ErasedTool for DynamicToolAdapter {
    fn is_brought(&self) -> bool {
        true
    }

    fn effect(&self) -> Effect {
        self.0.effect()
    }

    fn timeout(&self) -> Option<Duration> {
        self.0.timeout()
    }

    /// Only the policy decides about dynamic tools.
    fn approval<'a>(&'a self, _: &'a Call, _: Value) -> CallFuture<'a, Approval> {
        Box::pin(std::future::ready(Ok(Approval::Never)))
    }

    fn destination<'a>(&'a self, _: &'a Call, _: Value) -> CallFuture<'a, Option<Destination>> {
        Box::pin(std::future::ready(Ok(self.0.destination())))
    }

    fn call(&self, call: Call, input: Value) -> CallFuture<'_> {
        self.0.call(call, input)
    }
}

#[cfg(test)]
mod tests;
