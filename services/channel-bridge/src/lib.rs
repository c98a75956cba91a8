//! channel-bridge: speaks each platform's protocol, in and out, and decides nothing else.
//!
//! ```text
//!  platforms ──connection──▶ connection ─┐
//!  platforms ──calls───────▶ http ───────┴▶ a channel's judge ▶ inbound ▶ ingest ──gRPC──▶ gateway
//!
//!  deliveries (Postgres) ──claim──▶ deliver ──▶ split ──▶ a channel's `send` ──▶ platforms
//!       ▲                                                   │
//!       └──────────────── settle ◀── outcome ◀──────────────┘
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `channel`, `channels` | interface of a channel; the channels |
//! | `account`, `accounts` | what each served account has, and its status; the served accounts |
//! | `keeper`, `connection` | one connection for each account, however many bridges run; how one ends |
//! | `inbound`, `ingest` | verdicts about messages; hand-over of messages to the gateway, and the time when a platform may forget them |
//! | `deliver`, `share`, `outcome` | sending of replies; limit per account; retries |
//! | `split` | splitting of a reply into parts that a platform takes |
//! | `buttons`, `call`, `html`, `media`, `websocket` | parts that several channels use |
//! | `guard` | addresses that a tenant must not make us call |
//! | `notices` | people who may not write are told, rarely |
//! | `router`, `http`, `app`, `config`, `meter` | endpoints, composition, options, metrics |
//!
//! A message is acknowledged to its platform only after the gateway has committed it; a reply is
//! `sending` in the database before its platform is called. docs/channels.md describes the
//! consequences on each channel.

mod account;
mod accounts;
mod app;
mod buttons;
mod call;
mod channel;
mod channels;
mod config;
mod connection;
mod deliver;
mod guard;
mod html;
mod http;
mod inbound;
mod ingest;
mod keeper;
mod media;
mod meter;
mod notices;
mod outcome;
mod router;
mod share;
mod split;
mod websocket;

pub use app::App;
pub use config::{Bridge, Config, Discord, Slack, Telegram};
pub use outcome::Outcome;
