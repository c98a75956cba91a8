//! Integration tests of the gateway, with real Postgres, NATS and Redis.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what tests share may fail as tests do"
)]

mod agent_states;
mod agui;
mod approvals;
mod arrivals;
mod audio;
mod audit;
mod bad_input;
mod behaviors;
mod bound_keys;
mod branches;
mod callers;
mod chat;
mod client_tools;
mod console;
mod conversations_of_people;
mod durability;
mod economy;
mod events;
mod files;
mod following;
mod foreign;
mod heartbeats;
mod held;
mod housekeeping;
mod keys;
mod lost_nats;
mod mcp;
mod memories;
mod mesh;
mod messages;
mod models;
mod nodes;
mod openapi;
mod operators;
mod own_things;
mod people;
mod plans;
mod policies;
mod proposals;
mod responses;
mod retries;
mod rights;
mod roles;
mod rollback;
mod runner;
mod runs;
mod schedules;
mod security;
mod sending;
mod sent;
mod session_keys;
mod skills;
mod stopping;
mod stored_responses;
mod subagents;
mod tags;
mod tenants;
mod wait_reasons;
mod websocket;
mod work;
mod workspaces;
mod world;
