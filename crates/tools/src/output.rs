//! What came of a call.

use holdfast_types::StoredFile;
use serde_json::Value;

/// What came of a call: what the model reads, and what is besides.
///
/// Most tools answer with a text, which becomes one of these by itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// What the model reads.
    pub for_llm: String,
    /// What the person reads at once, if that is not left to the model.
    pub for_user: Option<String>,
    /// Whether the person is to see nothing of the call, `for_user` included.
    pub silent: bool,
    /// What is more than text, in its order.
    pub parts: Vec<Part>,
    /// What is kept with the record of the call, and shown to no model.
    pub details: Option<Value>,
}

/// A part of an output.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A text.
    Text(String),
    /// Something to be read by a program.
    Json(Value),
    /// A picture.
    Image {
        /// Its media type, as in `image/png`.
        media_type: String,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// A file.
    Document {
        /// Its name, without a directory.
        name: String,
        /// Its media type, as in `application/pdf`.
        media_type: String,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// A picture of the agent's files, for the model to see.
    Shown(StoredFile),
    /// A file of the agent's, that goes with its answer.
    Attached(StoredFile),
}

impl Output {
    /// An output of which the person sees nothing.
    #[must_use]
    pub fn silent(for_llm: impl Into<String>) -> Self {
        Self { for_llm: for_llm.into(), silent: true, ..Self::default() }
    }

    /// The same, with a text for the person.
    #[must_use]
    pub fn tell_user(mut self, text: impl Into<String>) -> Self {
        self.for_user = Some(text.into());
        self
    }

    /// The same, with one more part.
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// The same, with what is kept of the call.
    #[must_use]
    pub fn record(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// What the person is to be shown now: nothing if the output is silent.
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
