//! The port to language models.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use holdfast_types::{
    AnswerFormat, AnswerOptions, Chat, Effort, ModelId, NamedSchema, Reply, Thinking, ToolChoice,
};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Catalogue, Error, FailureLog, ModelCard, ThinkingForm};

/// Language model. The runner keeps many, so the trait is made for `dyn`.
pub trait Model: fmt::Debug + Send + Sync {
    /// Answers: calls `on_delta` with each piece as it arrives, and returns the whole reply.
    ///
    /// The returned reply counts; the pieces are for people who watch. Fails with
    /// [`Error::Timeout`] at the request's deadline and with [`Error::Cancelled`] when `cancelled`
    /// is.
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a>;
}

pub type ReplyFuture<'a> = BoxFuture<'a, Result<Reply, Error>>;

/// Callback for each piece of a reply. It must not block.
pub type OnDelta<'a> = &'a mut (dyn FnMut(Delta) + Send);

#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub model: ModelId,
    pub chat: Chat,
    /// Output limit in tokens; `None` leaves it to the provider, or to the catalogue where the
    /// provider requires a number.
    pub max_output: Option<u32>,
    /// Randomness of the reply, from 0 to 1; `None` leaves it to the provider. Sent only if the
    /// model does not think and its catalogue entry says that it accepts one.
    pub temperature: Option<f64>,
    pub thinking: Thinking,
    /// What the client asked for. It is sent as it is, or refused by its name; only the output limit
    /// is in `max_output`, and the effort also in `thinking`.
    pub options: Option<Box<AnswerOptions>>,
    /// Whether the reply should contain the model's thinking, if the provider shows it.
    pub shows_thinking: bool,
    /// Key shared by requests with the same beginning, for providers with a prompt cache: an
    /// agent's or a session's id.
    pub cache_key: Option<String>,
    /// `None` uses the built-in catalogue.
    pub card: Option<Arc<ModelCard>>,
    /// Time at which the answer is no longer wanted, retries included.
    pub deadline: Instant,
    /// Each failed attempt is added here. Clones of the request have the same log.
    pub failures: FailureLog,
}

impl Request {
    /// Creates a request with the defaults.
    #[must_use]
    pub fn new(model: ModelId, chat: Chat, deadline: Instant) -> Self {
        Self {
            model,
            chat,
            max_output: None,
            temperature: None,
            thinking: Thinking::Off,
            options: None,
            shows_thinking: false,
            cache_key: None,
            card: None,
            deadline,
            failures: FailureLog::default(),
        }
    }

    /// Temperature to send.
    pub(crate) fn accepted_temperature(&self) -> Option<f64> {
        let asked =
            self.options.as_ref().and_then(|options| options.temperature.as_ref()?.as_f64());
        // Some models refuse both: a client's `top_p` comes before our own temperature.
        let has_top_p = self.options.as_ref().is_some_and(|options| options.top_p.is_some());
        let own = self.temperature.filter(|_| self.card().temperature && !has_top_p);
        asked.or_else(|| own.filter(|_| self.thinking == Thinking::Off))
    }

    /// Effort that the client asked for.
    pub(crate) fn asked_effort(&self) -> Option<Effort> {
        self.options.as_ref()?.effort
    }

    pub(crate) fn format(&self) -> Option<&AnswerFormat> {
        self.options.as_ref()?.format.as_ref()
    }

    /// Schema that the provider may enforce while it writes.
    pub(crate) fn strict_schema(&self) -> Option<&NamedSchema> {
        match self.format() {
            Some(AnswerFormat::JsonSchema(named)) if named.strict => Some(named),
            Some(AnswerFormat::JsonSchema(_) | AnswerFormat::JsonObject) | None => None,
        }
    }

    /// The client's demand for a call; there is none in a request without tools.
    pub(crate) fn forced_call(&self) -> Option<&ToolChoice> {
        let choice = self.options.as_ref()?.tool_choice.as_ref()?;
        Some(choice).filter(|choice| choice.is_forced() && !self.chat.tools.is_empty())
    }

    /// Whether the model should make one call at a time.
    pub(crate) fn calls_singly(&self) -> bool {
        let parallel = self.options.as_ref().and_then(|options| options.parallel_tool_calls);
        parallel == Some(false) && !self.chat.tools.is_empty()
    }

    /// Whether the provider should hold calls of a tool to its schema: the client's strict tools.
    pub(crate) fn is_strict(&self, tool: &str) -> bool {
        let tools = self.options.as_ref().map_or(&[][..], |options| &options.tools);
        tools.iter().any(|known| known.strict && known.name == tool)
    }

    /// Writes the client's options into a body, under the names that the provider has for them.
    pub(crate) fn write_options(&self, names: &OptionNames, body: &mut Map<String, Value>) {
        let Some(options) = &self.options else { return };
        let number = |number: &Option<serde_json::Number>| number.clone().map(Value::Number);
        let stop = Some(&options.stop).filter(|stop| !stop.is_empty());
        let given = [
            (names.top_p, number(&options.top_p)),
            (names.stop, stop.map(|stop| stop.clone().into())),
            (names.seed, options.seed.map(Value::from)),
            (names.frequency_penalty, number(&options.frequency_penalty)),
            (names.presence_penalty, number(&options.presence_penalty)),
        ];
        for (name, value) in given {
            if let (Some(name), Some(value)) = (name, value) {
                body.insert(name.to_owned(), value);
            }
        }
    }

    /// Refuses options of the client for which the provider has no name.
    pub(crate) fn check_options(&self, names: &OptionNames) -> Result<(), Error> {
        let Some(options) = &self.options else { return Ok(()) };
        let lacking = [
            ("top_p", names.top_p, options.top_p.is_some()),
            ("stop", names.stop, !options.stop.is_empty()),
            ("seed", names.seed, options.seed.is_some()),
            ("frequency_penalty", names.frequency_penalty, options.frequency_penalty.is_some()),
            ("presence_penalty", names.presence_penalty, options.presence_penalty.is_some()),
        ];
        let lacking = lacking.iter().find(|(_, name, given)| *given && name.is_none());
        if let Some((option, ..)) = lacking {
            return Err(Error::UnsupportedOption(option));
        }
        if !names.has_tool_choice && self.forced_call().is_some() {
            return Err(Error::UnsupportedOption("tool_choice"));
        }
        if let Some(effort) = options.effort
            && !names.has_effort
            && !self.has_level(effort)
        {
            return Err(Error::UnsupportedOption("reasoning_effort"));
        }
        Ok(())
    }

    /// Whether the model thinks exactly as much as an effort says, by its own levels.
    fn has_level(&self, effort: Effort) -> bool {
        let thinking = &self.card().thinking;
        match (effort, thinking.by) {
            (Effort::Minimal | Effort::Xhigh, _) => false,
            (Effort::None, ThinkingForm::No | ThinkingForm::Switch | ThinkingForm::Marks) => true,
            (Effort::None, _) => thinking.off.is_some(),
            (Effort::Low | Effort::Medium | Effort::High, by) => by != ThinkingForm::No,
        }
    }

    /// Catalogue entry of the model.
    pub(crate) fn card(&self) -> &ModelCard {
        match &self.card {
            Some(card) => card,
            None => Catalogue::built_in().card(&self.model),
        }
    }
}

/// A provider's names for what a client may ask for; `None` is refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionNames {
    pub(crate) top_p: Option<&'static str>,
    pub(crate) stop: Option<&'static str>,
    pub(crate) seed: Option<&'static str>,
    pub(crate) frequency_penalty: Option<&'static str>,
    pub(crate) presence_penalty: Option<&'static str>,
    /// OpenAI's words for efforts are sent as they are; others must be a level of the model.
    pub(crate) has_effort: bool,
    /// A call can be demanded.
    pub(crate) has_tool_choice: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    Text(String),
    Thought(String),
    ToolCallStarted {
        id: String,
        name: String,
    },
    /// The reply starts again: earlier pieces are void.
    Restarted,
}

/// Emits a whole reply as pieces: thinking, words, then calls.
pub(crate) fn say(reply: &Reply, on_delta: OnDelta<'_>) {
    if !reply.thinking.is_empty() {
        on_delta(Delta::Thought(reply.thinking.clone()));
    }
    for word in reply.text.split_inclusive(char::is_whitespace) {
        on_delta(Delta::Text(word.to_owned()));
    }
    for call in &reply.calls {
        on_delta(Delta::ToolCallStarted { id: call.id.clone(), name: call.tool.clone() });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Options of all kinds, and the schema of their form.
    pub(crate) fn options() -> (Option<Box<AnswerOptions>>, Value) {
        let schema = json!({"type": "object", "additionalProperties": false});
        let options = json!({
            "temperature": 0.25,
            "top_p": 0.5,
            "stop": ["END"],
            "seed": 7,
            "frequency_penalty": -1,
            "presence_penalty": 1.5,
            "effort": "low",
            "format": {"type": "json_schema", "name": "number", "schema": schema, "strict": true},
        });
        (Some(Box::new(serde_json::from_value(options).unwrap())), schema)
    }
}
