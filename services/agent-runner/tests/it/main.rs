//! The runner against real backends of its own, and a model that does as it is told.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is how a test fails, in its helpers too"
)]

mod agent_states;
mod answer_options;
mod answering;
mod approvals;
mod behavior_layers;
mod behaviors;
mod blocks;
mod budgets;
mod bundles;
mod canvas;
mod catalogue;
mod chains;
mod client_tools;
mod command_rights;
mod commands;
mod compacting;
mod connected;
mod contexts;
mod dials;
mod dispatched;
mod economy;
mod events;
mod failing;
mod file_watches;
mod files_of_people;
mod first_run;
mod flushing;
mod gated;
mod heartbeats;
mod held_state;
mod holding;
mod hostile_text;
mod idling;
mod job_authors;
mod keys;
mod linking;
mod mcp;
mod media;
mod model_questions;
mod model_records;
mod outages;
mod outside_text;
mod patches;
mod pods;
mod policy;
mod private_addresses;
mod prompts;
mod proposals;
mod queueing;
mod quoting;
mod remembering;
mod reminding;
mod renewing;
mod routed;
mod runner_pools;
mod schedules;
mod scripted;
mod self_changes;
mod shares;
mod shell;
mod shortening;
mod skill_env;
mod skills;
mod studio;
mod subagents;
mod summarising;
mod surviving;
mod tenant_deletion;
mod tenant_limits;
mod todos;
mod tool_arguments;
mod tools;
mod tracing;
mod turn_index;
mod vendors;
mod watching;
mod workspaces;
mod world;
