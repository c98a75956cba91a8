//! Agents as turns use them: snapshots of their settings, with models, budgets and skills.
//!
//! | file | contents |
//! |---|---|
//! | `snapshots.rs` | cache of snapshots |
//! | `fallback.rs`, `key_health.rs` | model fallback; cooldowns of keys and models |
//! | `token_renewal.rs` | access tokens of providers and their renewal |
//! | `budget.rs` | prices, budgets and reservations |
//! | `prompts.rs` | cache of the stable parts of prompts |
//! | `selections.rs` | cache of models' choices among skills |
//! | `notes.rs` | notes that the prompt contains |
//! | `skills.rs` | skills and their secrets |
//! | `behaviors.rs` | compiled behaviours |
//! | `preferences.rs` | time zones and languages that users have chosen |

mod behaviors;
pub(crate) mod budget;
pub(crate) mod fallback;
pub(crate) mod key_health;
pub(crate) mod notes;
pub(crate) mod preferences;
pub(crate) mod prompts;
pub(crate) mod selections;
pub(crate) mod skills;
pub(crate) mod snapshots;
mod token_renewal;
