//! The tools that an agent has.

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
    Allowed, Approval, Away, Brought, Call, Dynamic, Output, Tool, ToolError,
    alias::{ALIASES, Alias},
    disclosure::{self, DESCRIBE, SEARCH},
    tool,
};

/// The most that a tool may tell the model at once, in bytes; the rest is cut off.
pub const MOST_OUTPUT: usize = 64 * 1024;

/// What a model is told of a tool that it may not use here.
pub const NOT_YOURS: &str = "this tool is not one of yours; use those that you were given";

/// How alike two names are that may be meant for each other, from 0 to 1.
const LIKE: f64 = 0.8;

/// Tools by name. Cloning shares them.
#[derive(Clone, Default)]
pub struct Registry {
    tools: BTreeMap<Cow<'static, str>, Arc<Kept>>,
    /// Those that the model is told of from the start; `None` is all.
    direct: Option<BTreeSet<String>>,
    /// Whose tools should be here and are not.
    away: Vec<Away>,
    /// There may be more tools than are known.
    unseen: bool,
}

struct Kept {
    spec: ToolSpec,
    tool: Box<dyn Erased>,
}

/// What a model is told of its tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// Those that it sees whole, in the order of their names.
    pub tools: Vec<ToolSpec>,
    /// The names of those that it has besides and finds with `tool_search`.
    pub more: Vec<String>,
}

impl Registry {
    /// Adds a tool; it takes the place of one with the same name.
    #[must_use]
    pub fn with<T: Tool<A>, A: Into<Output> + Send + 'static>(mut self, tool: T) -> Self {
        let spec = tool::spec::<T::Input>(T::NAME);
        let kept = Kept { spec, tool: Box::new(Typed(tool, PhantomData)) };
        self.tools.insert(T::NAME.into(), Arc::new(kept));
        self
    }

    /// The same tools, and those that others bring. None of them takes the place of one that is
    /// here, by any of its names.
    #[must_use]
    pub fn joined_by(&self, brought: Brought) -> Self {
        let mut joined = self.clone();
        for tool in brought.tools {
            let spec = tool.spec();
            let is_ours = [SEARCH, DESCRIBE].contains(&spec.name.as_str())
                || joined.canonical(&spec.name).is_some()
                || Alias::find(&spec.name).is_some();
            if !is_ours {
                let name = Cow::Owned(spec.name.clone());
                joined.tools.insert(name, Arc::new(Kept { spec, tool: Box::new(Foreign(tool)) }));
            }
        }
        joined.away.extend(brought.away);
        joined.unseen |= brought.unseen;
        joined
    }

    /// The same tools, of which the model is told these from the start, and finds the others with
    /// `tool_search`; [`DIRECT`](crate::DIRECT) is a good choice.
    #[must_use]
    pub fn disclosing<'a>(mut self, direct: impl IntoIterator<Item = &'a str>) -> Self {
        self.direct = Some(direct.into_iter().map(str::to_owned).collect());
        self
    }

    /// What there is to tell of them all, in the order of their names.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.values().map(|kept| kept.spec.clone()).collect()
    }

    /// What a model is told of from the start, in the order of the names: those of the chosen
    /// tools that it may use, and how to find the others, if there are any.
    ///
    /// Those that it looked up (`sought`, by any of their names) are told of too: a provider's
    /// model calls nothing that is not among its request's tools.
    #[must_use]
    pub fn offered(&self, allowed: &Allowed, sought: &[&str]) -> Offer {
        let sought: Vec<&str> = sought.iter().filter_map(|name| self.canonical(name)).collect();
        let mut offer = Offer::default();
        for spec in self.tools.values().map(|kept| &kept.spec) {
            if !allowed.allows(&spec.name) {
                continue;
            }
            if self.is_direct(&spec.name) || sought.contains(&spec.name.as_str()) {
                offer.tools.push(spec.clone());
            } else {
                offer.more.push(spec.name.clone());
            }
        }
        if !offer.more.is_empty() || self.unseen {
            offer.tools.extend(disclosure::specs());
            offer.tools.sort_by(|one, other| one.name.cmp(&other.name));
        }
        offer
    }

    fn is_direct(&self, name: &str) -> bool {
        self.direct.as_ref().is_none_or(|direct| direct.contains(name))
    }

    /// The name under which a tool is known here, by any of its names; `None` if it is not here.
    #[must_use]
    pub fn canonical(&self, name: &str) -> Option<&str> {
        if let Some((name, _)) = self.tools.get_key_value(name) {
            return Some(name);
        }
        if self.direct.is_some()
            && let Some(meta) = [SEARCH, DESCRIBE].into_iter().find(|meta| *meta == name)
        {
            return Some(meta);
        }
        let alias = Alias::find(name)?;
        self.tools.get_key_value(alias.of).map(|(name, _)| name.as_ref())
    }

    /// Whether a tool is one that others bring.
    #[must_use]
    pub fn is_brought(&self, name: &str) -> bool {
        self.tools.get(name).is_some_and(|kept| kept.tool.is_brought())
    }

    /// What a call of this tool may change; of one that is not here, anything.
    #[must_use]
    pub fn effect(&self, name: &str) -> Effect {
        match self.canonical(name) {
            Some(SEARCH | DESCRIBE) => Effect::Reads,
            Some(name) => self.tools.get(name).map_or(Effect::Acts, |kept| kept.tool.effect()),
            None => Effect::Acts,
        }
    }

    /// The fields that a tool takes, by any of its names, if it takes no others.
    #[must_use]
    pub fn fields(&self, name: &str) -> Option<Vec<&str>> {
        let schema = &self.tools.get(self.canonical(name)?)?.spec.input;
        let properties = schema.get("properties").and_then(Value::as_object)?;
        let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        is_closed.then(|| properties.keys().map(String::as_str).collect())
    }

    /// How long a call of this tool may take, if the tool says so itself.
    #[must_use]
    pub fn timeout(&self, name: &str) -> Option<Duration> {
        self.tools.get(self.canonical(name)?)?.tool.timeout()
    }

    /// Calls a tool by any of its names, with an input as the model wrote it.
    ///
    /// # Errors
    ///
    /// `Tell` if there is no such tool, if this call may not use it, if the input is not what it
    /// takes, if it panicked, or if the tool says so; `Broken` if the tool failed for no fault of
    /// the model.
    pub async fn call(&self, call: Call, name: &str, input: &str) -> Result<Output, ToolError> {
        let (known, input) = self.understand(&call.allowed, name, input)?;
        let made = match self.tools.get(known) {
            Some(kept) => {
                let made = AssertUnwindSafe(kept.tool.call(call, input)).catch_unwind().await;
                made.unwrap_or_else(|_| Err(panicked(known, kept.tool.effect())))
            }
            None => self.disclose(&call.allowed, known, input).map(Output::from),
        };
        match made {
            Ok(output) => Ok(Output { for_llm: capped(output.for_llm), ..output }),
            Err(ToolError::Tell(text)) => Err(ToolError::Tell(capped(text))),
            Err(ToolError::Broken(error)) => Err(ToolError::Broken(error)),
        }
    }

    /// Whether a person must be asked before this call is made; what the mesh itself answers
    /// never needs it.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call)'s; the call would fail in the same way.
    pub async fn approval(
        &self,
        call: &Call,
        name: &str,
        input: &str,
    ) -> Result<Approval, ToolError> {
        let (known, input) = self.understand(&call.allowed, name, input)?;
        let Some(kept) = self.tools.get(known) else { return Ok(Approval::Never) };
        let asked = AssertUnwindSafe(kept.tool.approval(call, input)).catch_unwind().await;
        // Nothing was done yet.
        asked.unwrap_or_else(|_| Err(panicked(known, Effect::Reads)))
    }

    /// What came of a call that acts and whose maker has died, if its tool can find out.
    pub async fn recall(&self, call: &Call, name: &str, input: &str) -> Option<Output> {
        let (known, input) = self.understand(&call.allowed, name, input).ok()?;
        let kept = self.tools.get(known)?;
        let found = AssertUnwindSafe(kept.tool.recall(call, input)).catch_unwind().await;
        let output = found.ok().flatten()?;
        Some(Output { for_llm: capped(output.for_llm), ..output })
    }

    /// Which tool is meant, and with which input.
    fn understand<'a>(
        &'a self,
        allowed: &Allowed,
        name: &str,
        input: &str,
    ) -> Result<(&'a str, Value), ToolError> {
        let Some(known) = self.canonical(name) else {
            return Err(self.unknown(name, allowed));
        };
        let is_meta = matches!(known, SEARCH | DESCRIBE);
        if !is_meta && !allowed.allows(known) {
            return Err(ToolError::Tell(NOT_YOURS.to_owned()));
        }
        let input = match input.trim() {
            "" => Value::Object(serde_json::Map::new()),
            text => serde_json::from_str(text)
                .map_err(|error| ToolError::Tell(format!("the input is not JSON: {error}")))?,
        };
        let input = match Alias::find(name) {
            Some(alias) if known != name => alias.input(input),
            _ => input,
        };
        Ok((known, input))
    }

    fn disclose(&self, allowed: &Allowed, name: &str, input: Value) -> Result<String, ToolError> {
        if name == SEARCH {
            let specs: Vec<&ToolSpec> = self.tools.values().map(|kept| &kept.spec).collect();
            let mut found = disclosure::search(&specs, allowed, &parsed(input)?)?;
            for away in &self.away {
                found.push_str(&format!("\nNot to be had now: {}", away.why));
            }
            return Ok(found);
        }
        let disclosure::DescribeInput { name } = parsed(input)?;
        self.canonical(&name)
            .filter(|known| allowed.allows(known))
            .and_then(|known| self.tools.get(known))
            .map(|kept| disclosure::describe(&kept.spec))
            .ok_or_else(|| self.unknown(&name, allowed))
    }

    /// What to tell a model that named a tool which is not here: those it may have meant, or all.
    fn unknown(&self, name: &str, allowed: &Allowed) -> ToolError {
        if let Some(away) = self.away.iter().find(|away| name.starts_with(&away.prefix)) {
            return ToolError::Tell(away.why.clone());
        }
        let names: Vec<&str> =
            self.tools.keys().map(AsRef::as_ref).filter(|name| allowed.allows(name)).collect();
        let others = ALIASES.iter().filter(|alias| names.contains(&alias.of));
        let like: BTreeSet<&str> = names
            .iter()
            .map(|name| (*name, *name))
            .chain(others.map(|alias| (alias.name, alias.of)))
            .filter(|(known, _)| strsim::jaro_winkler(known, cut(name, 64)) >= LIKE)
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

fn panicked(name: &str, effect: Effect) -> ToolError {
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

/// The longest text of at most `most` bytes that a text begins with.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn capped(output: String) -> String {
    if output.len() <= MOST_OUTPUT {
        return output;
    }
    let total = output.len();
    let mut output = output;
    output.truncate(cut(&output, MOST_OUTPUT).len());
    output.push_str(&format!("\n[cut off: {total} bytes, and {MOST_OUTPUT} are the most]"));
    output
}

type Answer<'a, T = Output> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;
type Found<'a> = Pin<Box<dyn Future<Output = Option<Output>> + Send + 'a>>;

/// A [`Tool`] whose type is forgotten.
trait Erased: Send + Sync {
    fn is_brought(&self) -> bool {
        false
    }
    fn effect(&self) -> Effect;
    fn timeout(&self) -> Option<Duration>;
    fn approval<'a>(&'a self, call: &'a Call, input: Value) -> Answer<'a, Approval>;
    fn call(&self, call: Call, input: Value) -> Answer<'_>;
    /// Others' tools know nothing of calls that nobody waits for.
    fn recall<'a>(&'a self, call: &'a Call, input: Value) -> Found<'a> {
        let _: (&Call, Value) = (call, input);
        Box::pin(std::future::ready(None))
    }
}

/// A tool, and what it answers with.
struct Typed<T, A>(T, PhantomData<fn() -> A>);

impl<T: Tool<A>, A: Into<Output> + Send + 'static> Erased for Typed<T, A> {
    fn effect(&self) -> Effect {
        T::EFFECT
    }

    fn timeout(&self) -> Option<Duration> {
        T::TIMEOUT
    }

    fn approval<'a>(&'a self, call: &'a Call, input: Value) -> Answer<'a, Approval> {
        Box::pin(async move {
            let input = parsed(input)?;
            self.0.approval(call, &input).await
        })
    }

    fn call(&self, call: Call, input: Value) -> Answer<'_> {
        Box::pin(async move {
            let input = parsed(input)?;
            self.0.call(call, input).await.map(Into::into)
        })
    }

    fn recall<'a>(&'a self, call: &'a Call, input: Value) -> Found<'a> {
        Box::pin(async move {
            let input = parsed(input).ok()?;
            self.0.recall(call, &input).await.map(Into::into)
        })
    }
}

/// A [`Dynamic`] tool.
struct Foreign(Arc<dyn Dynamic>);

impl Erased for Foreign {
    fn is_brought(&self) -> bool {
        true
    }

    fn effect(&self) -> Effect {
        self.0.effect()
    }

    fn timeout(&self) -> Option<Duration> {
        self.0.timeout()
    }

    /// Others' tools are asked for by the policy alone.
    fn approval<'a>(&'a self, _: &'a Call, _: Value) -> Answer<'a, Approval> {
        Box::pin(std::future::ready(Ok(Approval::Never)))
    }

    fn call(&self, call: Call, input: Value) -> Answer<'_> {
        self.0.call(call, input)
    }
}

#[cfg(test)]
mod tests;
