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
    /// Text that is sent to the user at once, if any.
    pub for_user: Option<String>,
    /// Content other than text, in order.
    pub parts: Vec<Part>,
    /// Details that are stored in the ledger of calls and shown to no model. No texts of messages,
    /// pages or files; dropped if they are longer than 16 KiB as JSON.
    pub details: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Part {
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
