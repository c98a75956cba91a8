//! Random choices of a test, all of them from one seed.
//!
//! Each actor (a conversation, a fault, a process) draws from a stream of its own, so the choices of
//! one do not depend on how often another draws. The seed fixes what is done and with which delays;
//! how processes and the network interleave is not fixed. Ports are not drawn from it: two tests
//! with one seed would take the same.

use std::io::Write as _;
use std::sync::LazyLock;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use sha2::{Digest as _, Sha256};

/// Variable that sets the seed.
const SEED_VARIABLE: &str = "HOLDFAST_CHAOS_SEED";

static SEED: LazyLock<u64> = LazyLock::new(|| {
    let given = std::env::var(SEED_VARIABLE).ok().filter(|text| !text.is_empty());
    let seed = given.map_or_else(rand::random, |text| parse(&text));
    // At once, since a test that hangs reports nothing at its end.
    let _: Result<(), _> = writeln!(std::io::stderr(), "repeat with {SEED_VARIABLE}={seed}");
    seed
});

/// Seed of this process.
///
/// # Panics
///
/// If `HOLDFAST_CHAOS_SEED` is set and is no number.
#[must_use]
pub fn seed() -> u64 {
    *SEED
}

/// Stream of random numbers of this actor.
#[must_use]
pub fn stream(actor: &str) -> StdRng {
    stream_of(seed(), actor)
}

fn stream_of(seed: u64, actor: &str) -> StdRng {
    let digest = Sha256::new().chain_update(seed.to_be_bytes()).chain_update(actor).finalize();
    StdRng::from_seed(digest.into())
}

#[expect(clippy::panic, reason = "a test with another seed than the one asked for proves nothing")]
fn parse(text: &str) -> u64 {
    text.trim().parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE} is no number: `{text}`"))
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;

    use super::*;

    fn draws(mut stream: StdRng) -> Vec<u32> {
        (0..8).map(|_| stream.random_range(0..1000)).collect()
    }

    #[test]
    fn the_same_seed_and_actor_make_the_same_choices() {
        assert_eq!(draws(stream_of(7, "kill")), draws(stream_of(7, "kill")));
        assert_ne!(draws(stream_of(7, "kill")), draws(stream_of(8, "kill")));
        assert_ne!(draws(stream_of(7, "kill")), draws(stream_of(7, "pause")));
    }

    #[test]
    fn a_seed_that_was_printed_can_be_given_again() {
        assert_eq!(parse(&format!("{}\n", u64::MAX)), u64::MAX);
    }

    #[test]
    #[should_panic(expected = "HOLDFAST_CHAOS_SEED is no number")]
    fn a_seed_that_cannot_be_read_is_refused() {
        parse("lucky");
    }
}
