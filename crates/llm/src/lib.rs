//! What a model is, and how each provider's is reached.
//!
//! | module | what |
//! |---|---|
//! | `model` | the port: a [`Request`] in, [`Delta`]s and a reply out |
//! | `models` | the configured providers, by name: [`Models`] |
//! | `openai` | Chat Completions, of OpenAI and of every server that is compatible |
//! | `demo` | the built-in model: offline, and honest about what it is |
//! | `scripted` | a model for tests |
//! | `retry` | what is tried again, when, and how often |
//! | `observe` | a span and numbers for each request |
//! | `sse`, `http_date` | two formats |
//!
//! Codecs do no I/O: they are tested on recorded streams cut at every byte.

mod demo;
mod error;
mod http_date;
mod model;
mod models;
mod observe;
mod openai;
mod retry;
mod scripted;
mod sse;

pub use demo::Demo;
pub use error::Error;
pub use model::{Delta, Model, OnDelta, Replying, Request};
pub use models::{Models, Provider, ProviderKind};
pub use openai::OpenAi;
pub use retry::Retrying;
pub use scripted::Scripted;
