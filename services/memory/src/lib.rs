//! memory: keeps what agents know, and finds it again.
//!
//! ```text
//!  gateway, runner ──gRPC──▶ grpc ──▶ service ──▶ store (Postgres, schema `memory`)
//!                                        │            ▲
//!                        question ──▶ embedder        │ vectors
//!                                        ▲            │
//!                                        └── worker ──┘ takes what waits from memory.queue
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `grpc` | the contract: reads requests, writes answers, decides nothing |
//! | `who`, `given` | in whose name a call is made; what may be in a request |
//! | `keep`, `turns`, `articles` | things, turns and documents, the knowledge base |
//! | `find` | the question, the two searches, one order |
//! | `unit`, `words` | what is found, and the terms it is found by |
//! | `store` | every query |
//! | `eraser` | forgets sessions and agents that were deleted elsewhere |
//! | `worker` | embeds what waits, again when the model changes; makes indexes |
//! | `space`, `embedders` | how a tenant is searched; which model |
//! | `app`, `config`, `error` | composition, settings, failures |
//!
//! Whatever is kept is found by its words at once and by its meaning as soon as the worker has been
//! there, within a second on an idle machine. The queue is a table: what was put is embedded
//! whoever dies meanwhile.

mod app;
mod config;
mod embedders;
mod eraser;
mod error;
mod find;
mod given;
mod grpc;
mod keep;
mod space;
mod store;
mod unit;
mod who;
mod words;
mod worker;

pub use app::App;
pub use config::{Config, Embedding, Engine, Memory};
pub use error::Error;
/// Reads a PDF and ends, if the program was started for that; first thing in `main`.
pub use holdfast_pdf::as_child as read_pdf;
