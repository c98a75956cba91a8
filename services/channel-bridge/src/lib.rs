//! channel-bridge: speaks each platform's protocol, in and out, and decides nothing else.
//!
//! ```text
//!  telegram ──poll, webhook──▶ telegram::{poll, judge} ─┐
//!  programs ──signed POST────▶ http, webhook::inbound ──┴─▶ ingest ──gRPC──▶ gateway
//!
//!  deliveries (Postgres) ──claim──▶ deliver ──▶ split ──▶ adapter ──▶ telegram, programs
//!       ▲                                                   │
//!       └──────────────── settle ◀── outcome ◀──────────────┘
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `account`, `accounts` | why one cannot be served; which are |
//! | `adapter`, `telegram`, `webhook` | what the bridge asks of a channel; the channels |
//! | `ingest` | handing messages to the gateway, and when a platform may forget them |
//! | `deliver`, `share`, `outcome` | sending replies; whose turn it is; what follows from how it went |
//! | `split` | cutting a reply to what a platform takes |
//! | `guard` | which addresses a tenant may make us call |
//! | `http`, `app`, `config`, `meter` | doors, composition, settings, numbers |
//!
//! A message is acknowledged to its platform only after the gateway has
//! committed it; a reply is `sending` in the database before its platform is
//! called. What that means on each channel is in docs/channels.md.

mod account;
mod accounts;
mod adapter;
mod app;
mod config;
mod deliver;
mod guard;
mod http;
mod ingest;
mod meter;
mod outcome;
mod share;
mod split;
mod telegram;
mod webhook;

pub use adapter::ChannelAdapter;
pub use app::App;
pub use config::{Bridge, Config, Telegram, Webhook};
pub use outcome::Outcome;
