//! Output of a tool call.

use holdfast_types::StoredFile;
use serde_json::Value;

/// Maximum size of a tool's output for the model, in bytes; the rest is cut off.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// Output of a tool call: the model's text, and additional parts.
///
/// A tool that returns a text needs no conversion.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// Text that the model reads.
    pub for_llm: String,
    /// Text that is shown to the user at once, if any.
    pub for_user: Option<String>,
    /// Whether nothing of the call is shown to the user, `for_user` included.
    pub silent: bool,
    /// Content other than text, in order.
    pub parts: Vec<Part>,
    /// Details that are stored with the record of the call, and shown to no model.
    pub details: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Text(String),
    Json(Value),
    Image {
        /// Media type, as in `image/png`.
        media_type: String,
        data: Vec<u8>,
    },
    Document {
        /// File name, without its directory.
        name: String,
        /// Media type, as in `application/pdf`.
        media_type: String,
        data: Vec<u8>,
    },
    /// File that is stored among the agent's files, and sent with its answer.
    Enclosed {
        /// File name, without its directory.
        name: String,
        data: Vec<u8>,
    },
    /// Picture among the agent's files, shown to the model.
    Shown(StoredFile),
    /// File of the agent, sent with its answer.
    Attached(StoredFile),
}

impl Output {
    /// Output of which the user sees nothing.
    #[must_use]
    pub fn silent(for_llm: impl Into<String>) -> Self {
        Self { for_llm: for_llm.into(), silent: true, ..Self::default() }
    }

    /// Sets the text for the user.
    #[must_use]
    pub fn tell_user(mut self, text: impl Into<String>) -> Self {
        self.for_user = Some(text.into());
        self
    }

    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    #[must_use]
    pub fn record(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Text to show to the user now; `None` if the output is silent.
    #[must_use]
    pub fn shown(&self) -> Option<&str> {
        self.for_user.as_deref().filter(|_| !self.silent)
    }
}

impl From<String> for Output {
    fn from(for_llm: String) -> Self {
        Self { for_llm, ..Self::default() }
    }
}

impl From<&str> for Output {
    fn from(for_llm: &str) -> Self {
        for_llm.to_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_for_the_model_alone() {
        let output = Output::from("seen".to_owned());

        assert_eq!(output.for_llm, "seen");
        assert_eq!(output.shown(), None);
    }

    #[test]
    fn a_silent_output_shows_the_person_nothing() {
        let loud = Output::from("done").tell_user("Done!");
        let silent = Output { silent: true, ..loud.clone() };

        assert_eq!(loud.shown(), Some("Done!"));
        assert_eq!(silent.shown(), None);
        assert_eq!(Output::silent("x"), Output { silent: true, ..Output::from("x") });
    }
}
