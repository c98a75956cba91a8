//! Guarantees of the directory, tested on a real Postgres.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod accounts;
mod audit;
mod behaviors;
mod connections;
mod forgetting;
mod isolation;
mod keys;
mod mcp;
mod models;
mod nodes;
mod people;
mod platform_keys;
mod policies;
mod pool_logins;
mod routing;
mod sealing;
mod service_roles;
mod skill_env;
mod stolen_parts;
mod tenants;
mod world;
