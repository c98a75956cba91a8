//! Commands for language models: providers, their keys, models, budgets, usage.

pub mod budgets;
pub mod check;
pub mod credentials;
pub mod local_servers;
pub mod models;
pub mod platform_keys;
pub mod providers;
pub mod setup;
pub mod usage;
