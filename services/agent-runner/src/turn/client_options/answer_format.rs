//! Answers in a form that the client asked for: JSON, or JSON by a schema.
//!
//! Not every provider enforces a form, and none does beside tools in every case. So the model is
//! told the form, its answer is checked, and it gets one correction.

use std::fmt::Write as _;

use holdfast_types::{AnswerFormat, Chat, ChatMessage, Reply, StopReason};

/// Instructions for the model, at the end of the prompt.
pub(crate) fn instructions(format: &AnswerFormat) -> String {
    let mut text = "\n\n## Form of the answer\n\nYour final answer is read by a program: one JSON \
                    value and nothing else, without a code fence."
        .to_owned();
    match format {
        AnswerFormat::JsonObject => text.push_str(" It is an object."),
        AnswerFormat::JsonSchema(named) => {
            // Writing to a string cannot fail.
            let _ = write!(text, " It is valid by this JSON schema, named `{}`", named.name);
            if let Some(description) = &named.description {
                let _ = write!(text, " ({description})");
            }
            let _ = write!(text, ":\n\n{}", named.schema.as_value());
        }
    }
    text
}

/// Returns what is wrong with a final answer. One that its output limit cut off is not checked: it
/// is returned as it is, and the client is told.
pub(crate) fn find_error(format: &AnswerFormat, reply: &Reply) -> Option<String> {
    if matches!(reply.stop, StopReason::MaxTokens | StopReason::ContextWindow) {
        return None;
    }
    format.check(&reply.text).err()
}

/// Asks for a correction of an answer.
pub(crate) fn push_correction(chat: &mut Chat, answer: String, error: &str) {
    chat.messages.push(ChatMessage::assistant(answer, Vec::new()));
    chat.messages.push(ChatMessage::user(format!(
        "This answer cannot be used: {error}. Answer again, with the corrected JSON only."
    )));
}
