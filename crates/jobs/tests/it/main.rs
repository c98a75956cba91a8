//! The promises of the store of jobs, each on a real Postgres of its own.

mod adding;
mod changing;
mod claiming;
mod deciding;
mod firing;
mod hearts;
mod isolation;
mod settling;
mod sweeping;
mod world;
