//! Clients of language models.
//!
//! | module | contents |
//! |---|---|
//! | `model` | the port: a [`Request`] in, [`Delta`]s and a reply out |
//! | `models` | the configured providers, by name: [`Models`] |
//! | `openai` | Chat Completions, of OpenAI and of every compatible server |
//! | `responses` | OpenAI's Responses |
//! | `anthropic` | Anthropic's Messages |
//! | `gemini` | Google's generateContent |
//! | `ollama` | Ollama's own chat |
//! | `http` | HTTP transport and its formats: server-sent events, JSON lines, dates |
//! | `reply_builder`, `refusal`, `wire_text`, `carry` | code that the codecs share |
//! | `plain_history` | conversations without what a provider may refuse |
//! | `marks` | thinking that a model writes into its text |
//! | `servers` | compatible servers by name |
//! | `catalogue` | limits, prices and abilities of each model |
//! | `fallback` | several models asked in turn |
//! | `credentials` | selection among several keys |
//! | `demo` | the built-in offline model |
//! | `scripted_model` | a model for tests |
//! | `retry` | retries of one request |
//! | `observe` | a span and metrics for each request |
//!
//! Codecs do no I/O: they are tested on recorded streams cut at every byte.

mod anthropic;
mod carry;
mod catalogue;
pub mod credentials;
mod demo;
mod error;
mod fallback;
mod gemini;
mod http;
mod marks;
mod model;
mod models;
mod observe;
mod ollama;
mod openai;
mod plain_history;
mod refusal;
mod reply_builder;
mod responses;
mod retry;
mod scripted_model;
pub mod servers;
#[cfg(test)]
mod streams;
mod wire_text;

pub use anthropic::Anthropic;
pub use catalogue::{
    Catalogue, LongRequestPrices, ModelCard, Prices, RetiredModel, Supplement, ThinkingControl,
    ThinkingForm,
};
pub use demo::Demo;
pub use error::{Error, FailedCandidate, Reason};
pub use fallback::{Candidate, Cooldowns, Fallback};
pub use gemini::Gemini;
pub use model::{Delta, Model, OnDelta, ReplyFuture, Request};
pub use models::{Models, Provider, ProviderKind};
pub use ollama::Ollama;
pub use openai::OpenAi;
pub use responses::Responses;
pub use retry::{Alternatives, RetryingModel};
pub use scripted_model::ScriptedModel;
