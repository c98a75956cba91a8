//! The Model Context Protocol, both sides.
//!
//! | | |
//! |---|---|
//! | [`Client`] | uses a server: over streamable HTTP, or over the pipes of a process |
//! | [`Tool`], [`Answer`] | what a server offers, and what it answers |
//! | [`Serve`], [`service`] | offers tools to others, over streamable HTTP |
//!
//! The protocol is the official SDK's (`rmcp`), which is named here and nowhere else. Who may be
//! reached, where processes run and who may call is decided by those who use this crate: it is
//! handed an HTTP client, pipes, and callers who were let in.
//!
//! **What can go wrong.** All that comes from a server was written by a stranger: names,
//! descriptions, schemas, results, errors. It is bounded here ([`tool`], [`Answer`]) and marked as
//! foreign where it is shown to a model. A server asks nothing back: sampling, elicitation and
//! roots are refused.

mod answer;
mod client;
mod error;
mod server;
mod tool;

pub use answer::{Answer, Content};
pub use client::Client;
pub use error::Error;
pub use server::{About, Context, Door, Offered, Serve, Service, service};
pub use tool::{Tool, names};
