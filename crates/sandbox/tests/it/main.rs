//! Guarantees of the sandbox, attacked from within.
//!
//! Every attack is small, so that it does no harm if the isolation fails, and no test leaves a
//! process running.

mod world;

mod background;
mod choice;
mod ends;
mod isolation;
mod kernel;
mod limits;
mod network;
mod parent;
mod piped;
mod scope;
mod secrets;
