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
//! | `azure` | Chat Completions of Azure OpenAI |
//! | `vertex` | generateContent and Anthropic's Messages on Vertex AI |
//! | `bedrock` | Converse of Amazon Bedrock, with the feature `bedrock` |
//! | `audio` | recordings that are transcribed, texts that are spoken |
//! | `http` | HTTP transport and its formats: server-sent events, JSON lines, dates |
//! | `reply_builder`, `refusal`, `wire_text`, `carry` | code that the codecs share |
//! | `failure_log`, `provider_text` | failed attempts of a request, and the providers' words about them |
//! | `extras` | headers and fields that a provider's settings add to its requests |
//! | `authorize`, `google`, `identity` | credentials that are made for a request, renewed, or given by the cloud |
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
pub mod audio;
mod authorize;
mod azure;
#[cfg(feature = "bedrock")]
mod bedrock;
mod carry;
mod catalogue;
pub mod credentials;
mod demo;
mod error;
mod extras;
mod failure_log;
mod fallback;
mod gemini;
mod google;
mod http;
mod identity;
mod listing;
mod marks;
mod model;
mod models;
mod observe;
mod ollama;
mod openai;
mod plain_history;
mod provider_text;
mod refusal;
mod reply_builder;
mod responses;
mod retry;
mod scripted_model;
pub mod servers;
#[cfg(test)]
mod streams;
mod vertex;
mod wire_text;

pub use anthropic::Anthropic;
pub use azure::Azure;
#[cfg(feature = "bedrock")]
pub use bedrock::Bedrock;
pub use catalogue::{
    Catalogue, LongRequestPrices, ModelCard, Prices, RetiredModel, Supplement, ThinkingControl,
    ThinkingForm,
};
pub use demo::Demo;
pub use error::{Error, FailedCandidate, Reason};
pub use extras::{InvalidExtras, RequestExtras, check_body};
pub use failure_log::FailureLog;
pub use fallback::{Candidate, Cooldowns, Fallback};
pub use gemini::Gemini;
pub use identity::{AwsIdentityConfig, WorkloadIdentity, WorkloadIdentityConfig};
pub use listing::{ListedModel, list_models};
pub use model::{Delta, Model, OnDelta, ReplyFuture, Request};
pub use models::{Models, Provider, ProviderKind};
pub use ollama::Ollama;
pub use openai::OpenAi;
pub use responses::Responses;
pub use retry::{Alternatives, RetryingModel};
pub use scripted_model::ScriptedModel;
pub use vertex::Vertex;
