//! Test kit: real backends with a namespace for each test, fakes of external services, and fault
//! injection.
//!
//! | module | contents |
//! |---|---|
//! | [`backends`] | which Postgres, NATS and Redis to use; private ones for tests that crash them |
//! | [`postgres`], [`nats`], [`redis`] | a database, a subject prefix, a key prefix for each test |
//! | [`certificates`], [`tls_proxy`] | authorities and certificates; TLS in front of a server without it |
//! | [`collector`] | a collector of traces |
//! | [`replicated`] | three NATS servers; two Redis servers with Sentinels |
//! | [`openapi`] | the description of the HTTP API, to compare answers with |
//! | [`pooler`] | PgBouncer in front of Postgres |
//! | [`ports`] | ports for servers that a test starts later, or again |
//! | [`proxy`] | a TCP proxy that cuts, refuses, stalls, and loses answers |
//! | [`model`] | a scripted model behind the Chat Completions API |
//! | [`oidc`] | an identity provider |
//! | [`matrix`], [`platforms`], [`slack`], [`telegram`], [`webhook`] | fake platforms that send and receive messages |
//! | [`faults`] | faults of those platforms, injected on request |
//! | [`generated`] | parts of documents that tests generate |
//! | [`inputs`] | hostile inputs for parsers |
//! | [`statements`] | a check that a service may execute the statements that it contains |
//! | [`process`] | a service as a child process, to be killed or paused |

pub mod backends;
pub mod certificates;
pub mod collector;
pub mod faults;
pub mod generated;
mod http;
pub mod inputs;
pub mod matrix;
pub mod model;
pub mod nats;
pub mod oidc;
pub mod openapi;
pub mod platforms;
pub mod pooler;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod replicated;
mod scratch;
pub mod slack;
pub mod statements;
pub mod telegram;
pub mod tls_proxy;
pub mod webhook;

pub use backends::{Backends, OwnBackends};
pub use certificates::{Authority, Certificate, CertificateFiles};
pub use collector::Collector;
pub use faults::{Fault, Faults};
pub use matrix::FakeMatrix;
pub use model::{FakeModel, Reply, Request};
pub use oidc::{FakeIssuer, SigningKey};
pub use platforms::{FakeDiscord, FakeMail};
pub use pooler::Pooler;
pub use ports::free_address;
pub use postgres::Database;
pub use process::Process;
pub use proxy::Proxy;
pub use replicated::{NatsCluster, RedisGroup};
pub use slack::FakeSlack;
pub use telegram::FakeTelegram;
pub use tls_proxy::{TlsProxy, TlsStart};
pub use webhook::FakeReceiver;
