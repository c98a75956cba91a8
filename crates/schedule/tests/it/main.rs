//! Tests of the job store, each on a Postgres database of its own.

mod adding;
mod changing;
mod claiming;
mod deciding;
mod firing;
mod hearts;
mod isolation;
mod settling;
mod signing;
mod sweeping;
mod world;
