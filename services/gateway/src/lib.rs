//! The gateway: authenticates callers, routes messages to agents and sessions. The only entry point
//! for callers.
//!
//! | file | contents |
//! |---|---|
//! | `config.rs`, `app.rs` | settings; the composition root |
//! | `edge.rs`, `auth.rs`, `calls.rs`, `bodies.rs` | every call: span, key, rate limit, limits on open calls and bodies |
//! | `permissions.rs` | which scope or role each call needs |
//! | `oidc.rs` | tokens of people who signed in at an identity provider |
//! | `audit.rs` | the audit of administrative calls |
//! | `ingest.rs` | accepting messages |
//! | `routing.rs` | choosing the agent and the session of a message from a channel |
//! | `events.rs` | subscriptions to a tenant's events |
//! | `follow.rs` | following a message to its answer |
//! | `control.rs` | a tenant's settings, conversations and state |
//! | `nodes.rs` | nodes and their connections |
//! | `grpc.rs` | the gRPC server |
//! | `http.rs`, `openai.rs`, `api_error.rs` | the HTTP server, the OpenAI-compatible API, its errors |
//! | `agui.rs`, `anthropic.rs` | the same conversations for clients of the AG-UI protocol and of Anthropic's API |
//! | `mcp.rs` | the platform as an MCP server, over HTTP |
//! | `console/` | the web console |
//! | `ws.rs` | the WebSocket gateway: OpenClaw's and LurkBot's protocols |
//!
//! The gateway holds no state that must survive: a message is accepted when Postgres has stored it,
//! and it can be followed through any gateway.

mod agui;
mod anthropic;
mod api_error;
mod app;
mod audit;
mod auth;
mod bodies;
mod calls;
mod config;
mod console;
mod control;
mod cors;
mod edge;
mod error;
mod events;
mod follow;
mod grpc;
mod http;
mod ingest;
mod mcp;
mod nodes;
mod oidc;
mod openai;
mod permissions;
mod routing;
mod ws;

pub use app::App;
pub use config::{Config, Gateway};
pub use error::Error;
pub use oidc::config::{ConsoleClient, Issuer, Oidc};
