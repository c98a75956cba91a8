//! What the sandbox promises, attacked from within.
//!
//! Every attack is small, so that it does no harm where a wall fails, and every test leaves
//! nothing running.

mod world;

mod background;
mod choice;
mod ends;
mod kernel;
mod limits;
mod network;
mod parent;
mod piped;
mod root;
mod scope;
mod secrets;
mod walls;
