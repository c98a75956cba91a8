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
//! | module | subject |
//! |---|---|
//! | `account`, `accounts` | reasons why an account cannot be served; the served accounts |
//! | `adapter`, `telegram`, `webhook` | interface of a channel; the channels |
//! | `ingest` | hand-over of messages to the gateway, and the time when a platform may forget them |
//! | `deliver`, `share`, `outcome` | sending of replies; limit per account; retries |
//! | `split` | splitting of a reply into parts that a platform takes |
//! | `guard` | addresses that a tenant must not make us call |
//! | `http`, `app`, `config`, `meter` | endpoints, composition, options, metrics |
//!
//! A message is acknowledged to its platform only after the gateway has committed it; a reply is
//! `sending` in the database before its platform is called. docs/channels.md describes the
//! consequences on each channel.

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
pub use config::{Bridge, Config, Telegram};
pub use outcome::Outcome;
