//! Memory service: stores what agents know and searches it.
//!
//! ```text
//!  gateway, runner ──gRPC──▶ grpc ──▶ service ──▶ store (Postgres, schema `memory`)
//!                                        │            ▲
//!                        question ──▶ embedder        │ vectors
//!                                        ▲            │
//!                                        └── worker ──┘ takes what waits from memory.queue
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `grpc` | parses requests, calls operations, converts results |
//! | `who`, `given` | the agent and user in whose name a call is made; validation of fields |
//! | `keep` | operations on items, turns, documents and articles |
//! | `find` | keyword search, vector search, ranking |
//! | `unit`, `words` | searchable units and their terms |
//! | `store` | all SQL queries |
//! | `eraser` | erases data about sessions and agents that were deleted elsewhere |
//! | `worker` | embeds queued units, again when the model changes; builds indexes |
//! | `space`, `embedders` | search settings of a tenant; embedding models |
//! | `app`, `config`, `error` | composition, settings, errors |
//!
//! A stored unit is found by keywords immediately and by embedding as soon as the worker has
//! processed it: within a second on an idle machine. The queue is a table, so units are embedded
//! even if a process crashes.

mod app;
mod config;
mod embedders;
mod eraser;
mod error;
mod find;
mod grpc;
mod operations;
mod space;
mod store;
mod unit;
mod validation;
mod viewer;
mod words;
mod worker;

pub use app::App;
pub use config::{Config, Embedding, Engine, Memory};
pub use error::Error;
/// Reads a document and exits, if the program was started for that. Must come first in `main`.
pub use holdfast_documents::run_document_reader;
