//! Test kit for the whole mesh: its processes, message senders, and checks of its guarantees.
//!
//! | module | contents |
//! |---|---|
//! | [`mesh`] | gateways, runners and bridges as processes, over backends behind proxies |
//! | [`node`], [`program`] | one process that can be killed, paused, drained and restarted; its binary |
//! | [`tenant`] | test tenants with keys, a bot, a webhook and a model |
//! | [`script`] | the fake model's behaviour |
//! | [`history`] | what clients, models and receivers saw, and the judge of it |
//! | [`dice`] | random choices from one seed |
//! | [`load`] | senders on every channel; each message is sent one to three times |
//! | [`platforms`] | the storm's platforms with one account each |
//! | [`person`] | a client in Telegram or by gRPC that waits for replies |
//! | [`clockwork`] | schedulers as processes, and jobs whose every slot is checked |
//! | [`checks`] | the guarantees I1 to I8, checked in the tables and the platforms' logs |
//! | [`websocket`] | a client of the WebSocket gateway |
//! | [`console`] | open consoles, without a browser |
//! | [`growth`] | slope of measured values, for the soak |
//! | [`turnstile`] | lock that runs one heavy test at a time |
//!
//! docs/chaos.md lists the faults that the tests inject.

pub mod checks;
pub mod clockwork;
pub mod console;
pub mod dice;
pub mod growth;
pub mod history;
pub mod load;
pub mod mesh;
pub mod node;
pub mod person;
pub mod platforms;
pub mod program;
pub mod script;
pub mod tenant;
pub mod turnstile;
pub mod websocket;
pub mod work;
