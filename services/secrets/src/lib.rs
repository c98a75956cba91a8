//! Secrets service: seals and opens the secrets of an installation for its other services, which do not
//! have the key-encryption key.
//!
//! ```text
//!  gateway, runner, bridge ──gRPC──▶ grpc ──▶ access   which service may do that?
//!                                     │
//!                                     └─────▶ LocalSeal (holdfast-directory), with the key
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `grpc` | parses requests, checks access, seals and opens, logs each opening |
//! | `access` | table of the services that may seal or open for a purpose |
//! | `app`, `config` | composition, settings |
//!
//! The service has no database: callers bring the sealed values. It keeps nothing, so any number of
//! replicas can run. Data keys never leave it.

mod access;
mod app;
mod config;
mod grpc;

pub use app::App;
pub use config::{Config, SecretsService};
