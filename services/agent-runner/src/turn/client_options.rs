//! What the client of an API asks for beside an answer: its form, and calls of the client's tools.

pub(crate) mod answer_format;
pub(crate) mod client_tools;
