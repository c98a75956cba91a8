//! What the sandbox promises, attacked from within.
//!
//! Every attack is small, so that it does no harm where a wall fails, and every test leaves
//! nothing running.

mod world;

mod ends;
mod walls;
