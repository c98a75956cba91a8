//! The promises of the agents' trees, each on a real Postgres of its own.

mod archives;
mod branching;
mod changing;
mod history;
mod isolation;
mod limits;
mod reading;
mod replaying;
mod scratching;
mod seeding;
mod skills;
mod world;
