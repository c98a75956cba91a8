//! Promises of the bridge, tested with real backends, a fake platform and a fake gateway.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod acting;
mod contract;
mod delivering;
mod forged_mail;
mod gateway;
mod irc_server;
mod polling;
mod posting;
mod programs;
mod silence;
mod widget;
mod world;
