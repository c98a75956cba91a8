//! The gateway: who may, which agent, which session. The only door for callers.
//!
//! | file | what |
//! |---|---|
//! | `config.rs`, `app.rs` | what an operator may choose; how it is put together |
//! | `edge.rs`, `auth.rs`, `calls.rs` | what every call passes: a span, its key, its rate, its place |
//! | `ingest.rs` | accepting messages |
//! | `routing.rs` | who answers a message from a channel, and in which session |
//! | `follow.rs` | following one to its answer |
//! | `control.rs`, `sessions.rs`, `operations.rs` | what a tenant has, and how it stands |
//! | `nodes.rs` | people's own machines, and their connections |
//! | `grpc.rs` | the gRPC door |
//! | `http.rs`, `openai.rs` | the HTTP door, and the API that OpenAI's clients speak |
//! | `mcp.rs` | the mesh as an MCP server, at the same door |
//!
//! Nothing that matters is kept here: a message is accepted when Postgres has
//! it, and whoever follows it may do so at any gateway.

mod app;
mod auth;
mod calls;
mod config;
mod control;
mod edge;
mod error;
mod follow;
mod grpc;
mod http;
mod ingest;
mod mcp;
mod nodes;
mod openai;
mod operations;
mod routing;
mod sessions;

pub use app::App;
pub use config::{Config, Gateway};
pub use error::Error;
