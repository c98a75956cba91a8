//! Client and server side of the Model Context Protocol.
//!
//! | | |
//! |---|---|
//! | [`Client`] | connection to a server over streamable HTTP or the pipes of a process |
//! | [`Tool`], [`ToolResult`] | tools of a server, and results of its calls |
//! | [`ToolProvider`], [`http_service`] | server that offers tools over streamable HTTP |
//!
//! The protocol is implemented by the official SDK (`rmcp`), which no other crate uses. The users
//! of this crate decide which hosts are reached, where processes run and who may call: they pass an
//! HTTP client, pipes, and authenticated callers.
//!
//! **What can go wrong.** Everything from a server is untrusted: names, descriptions, schemas,
//! results, errors. Sizes are limited here ([`Tool`], [`ToolResult`]); callers mark the text as
//! untrusted before a model sees it. Requests from a server are refused: sampling, elicitation and
//! roots.

mod client;
mod error;
mod server;
mod tool;
mod tool_result;

pub use client::Client;
pub use error::Error;
pub use server::{
    CallContext, HttpSettings, OfferedTool, ServerDescription, Service, ToolProvider, http_service,
};
pub use tool::{OmitReason, OmittedTool, Tool, ToolList, assign_tool_names};
pub use tool_result::{Content, ToolResult};
