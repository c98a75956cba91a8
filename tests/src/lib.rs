//! What tests of the whole mesh stand on: its processes, those who talk to it, and the checks of
//! its promises.
//!
//! | module | what |
//! |---|---|
//! | [`mesh`] | gateways, runners and bridges as processes, over backends behind proxies |
//! | [`node`], [`program`] | one process that is killed, paused, drained and started again; its binary |
//! | [`tenant`] | who uses the mesh: keys, a bot, a webhook, a model |
//! | [`script`] | what the model answers |
//! | [`load`] | who talks, through every door, each message once to three times |
//! | [`person`] | one who talks, in Telegram or by gRPC, and waits for what is said |
//! | [`clockwork`] | schedulers as processes, and jobs whose every slot is accounted for |
//! | [`checks`] | the promises I1 to I8, asked of the tables and of the platforms' own logs |
//! | [`turnstile`] | one heavy test at a time |
//!
//! docs/chaos.md says what is done to the mesh with them.

pub mod checks;
pub mod clockwork;
pub mod load;
pub mod mesh;
pub mod node;
pub mod person;
pub mod program;
pub mod script;
pub mod tenant;
pub mod turnstile;
pub mod work;
