//! The tools that an agent has.

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin};

use holdfast_types::{Effect, ToolSpec};
use serde_json::Value;

use crate::{Call, Tool, ToolError, tool};

/// The most that a tool may tell the model at once, in bytes; the rest is cut off.
pub const MOST_OUTPUT: usize = 64 * 1024;

/// Tools by name.
#[derive(Default)]
pub struct Registry {
    tools: BTreeMap<&'static str, Box<dyn Erased>>,
}

impl Registry {
    /// Adds a tool; it takes the place of one with the same name.
    #[must_use]
    pub fn with<T: Tool>(mut self, tool: T) -> Self {
        self.tools.insert(T::NAME, Box::new(tool));
        self
    }

    /// What the model is told of them, in the order of their names.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.values().map(|tool| tool.spec()).collect()
    }

    /// What a call of this tool may change; of one that is not here, anything.
    #[must_use]
    pub fn effect(&self, name: &str) -> Effect {
        self.tools.get(name).map_or(Effect::Acts, |tool| tool.effect())
    }

    /// Calls a tool with an input as the model wrote it.
    ///
    /// # Errors
    ///
    /// `Tell` if there is no such tool, if the input is not what it takes, or if
    /// the tool says so; `Broken` if the tool failed for no fault of the model.
    pub async fn call(&self, call: Call, name: &str, input: &str) -> Result<String, ToolError> {
        let Some(tool) = self.tools.get(name) else {
            let names: Vec<&str> = self.tools.keys().copied().collect();
            let name = cut(name, 64);
            return Err(ToolError::Tell(match names.as_slice() {
                [] => format!("there is no tool `{name}`; there are none"),
                names => format!("there is no tool `{name}`; there are: {}", names.join(", ")),
            }));
        };
        let input = match input.trim() {
            "" => Value::Object(serde_json::Map::new()),
            text => serde_json::from_str(text)
                .map_err(|error| ToolError::Tell(format!("the input is not JSON: {error}")))?,
        };
        match tool.call(call, input).await {
            Ok(output) => Ok(capped(output)),
            Err(ToolError::Tell(text)) => Err(ToolError::Tell(capped(text))),
            Err(ToolError::Broken(error)) => Err(ToolError::Broken(error)),
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
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

type Answer<'a> = Pin<Box<dyn Future<Output = Result<String, ToolError>> + Send + 'a>>;

/// A [`Tool`] whose type is forgotten.
trait Erased: Send + Sync {
    fn effect(&self) -> Effect;
    fn spec(&self) -> ToolSpec;
    fn call(&self, call: Call, input: Value) -> Answer<'_>;
}

impl<T: Tool> Erased for T {
    fn effect(&self) -> Effect {
        T::EFFECT
    }

    fn spec(&self) -> ToolSpec {
        tool::spec::<T>()
    }

    fn call(&self, call: Call, input: Value) -> Answer<'_> {
        Box::pin(async move {
            let input = serde_json::from_value(input)
                .map_err(|error| ToolError::Tell(format!("the input is not right: {error}")))?;
            Tool::call(self, call, input).await
        })
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::mesh::tests::call;

    /// Say something again and again.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct RepeatInput {
        /// What to say.
        text: String,
        /// How often.
        #[serde(default)]
        times: usize,
    }

    struct Repeat;

    impl Tool for Repeat {
        const NAME: &'static str = "repeat";
        const EFFECT: Effect = Effect::Reads;
        type Input = RepeatInput;

        async fn call(&self, _: Call, input: RepeatInput) -> Result<String, ToolError> {
            match input.times {
                0 => Err(anyhow::anyhow!("the parrot is ill").into()),
                times => Ok(input.text.repeat(times)),
            }
        }
    }

    async fn told(name: &str, input: &str) -> String {
        match Registry::default().with(Repeat).call(call(), name, input).await {
            Err(ToolError::Tell(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_model_that_errs_is_told_how() {
        assert_eq!(told("repet", "{}").await, "there is no tool `repet`; there are: repeat");
        assert_eq!(told("repeat", "").await, "the input is not right: missing field `text`");
        assert_eq!(
            told("repeat", r#"{"text":"a","loud":true}"#).await,
            "the input is not right: unknown field `loud`, expected `text` or `times`"
        );
        let text = told("repeat", r#"{"text":"a"#).await;
        assert!(text.starts_with("the input is not JSON: EOF while parsing"), "{text}");
    }

    #[tokio::test]
    async fn a_tool_that_is_broken_is_not_the_models_fault() {
        let tools = Registry::default().with(Repeat);

        let answer = tools.call(call(), "repeat", r#"{"text":"a"}"#).await;

        assert!(matches!(answer, Err(ToolError::Broken(_))));
    }

    #[tokio::test]
    async fn a_long_answer_is_cut_between_characters_and_says_so() {
        let tools = Registry::default().with(Repeat);

        let answer = tools.call(call(), "repeat", r#"{"text":"語","times":30000}"#).await.unwrap();

        assert!(answer.ends_with("語\n[cut off: 90000 bytes, and 65536 are the most]"));
        assert!(answer.len() < MOST_OUTPUT + 100);
    }

    #[test]
    fn what_is_not_here_acts() {
        let tools = Registry::default().with(Repeat);

        assert_eq!(tools.effect("repeat"), Effect::Reads);
        assert_eq!(tools.effect("other"), Effect::Acts);
    }

    #[test]
    fn the_model_reads_the_doc_comments() {
        let [spec] = Registry::default().with(Repeat).specs().try_into().unwrap();

        assert_eq!(spec.description, "Say something again and again.");
        assert_eq!(spec.input["properties"]["times"]["description"], "How often.");
        assert_eq!(spec.input["additionalProperties"], false);
        assert_eq!(spec.input.get("title"), None);
    }
}
