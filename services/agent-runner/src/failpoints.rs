//! Failpoints for tests.
//!
//! Compiled only with the feature `failpoints`. Then
//! `HOLDFAST_FAILPOINTS="name=kill:0.1,second=die:3,third=pause:40"` aborts the process at the
//! point `name` with a probability of 0.1, at `second` when points with `die` are reached for the
//! third time, and delays every caller at `third` for 40 s. Points are on both sides of each commit
//! and each external call. With `HOLDFAST_FAILPOINTS_SEED=7` the n-th draw of the process is the same
//! in each run.

/// Does nothing without the feature.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub(crate) fn point(_name: &'static str) -> std::future::Ready<()> {
    std::future::ready(())
}

#[cfg(feature = "failpoints")]
pub(crate) use armed::point;

#[cfg(feature = "failpoints")]
mod armed {
    use std::{
        collections::HashMap,
        process,
        sync::{
            LazyLock, Mutex, PoisonError,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
    use tracing::error;

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Failure {
        Kill(f64),
        Die(u64),
        Pause(Duration),
    }

    /// Number of times that a point with `die` was reached.
    static DIE_POINT_HITS: AtomicU64 = AtomicU64::new(0);

    static PLAN: LazyLock<HashMap<String, Failure>> =
        LazyLock::new(|| plan(&std::env::var("HOLDFAST_FAILPOINTS").unwrap_or_default()));

    static DRAWS: LazyLock<Mutex<StdRng>> = LazyLock::new(|| {
        let given = std::env::var("HOLDFAST_FAILPOINTS_SEED").ok().and_then(|s| s.parse().ok());
        Mutex::new(StdRng::seed_from_u64(given.unwrap_or_else(rand::random)))
    });

    /// Whether something with this probability happens now.
    fn happens(probability: f64) -> bool {
        DRAWS.lock().unwrap_or_else(PoisonError::into_inner).random::<f64>() < probability
    }

    /// Fails here if the plan says so.
    pub(crate) async fn point(name: &'static str) {
        match PLAN.get(name) {
            Some(Failure::Kill(chance)) if happens(*chance) => {
                error!(name, "ending at a failpoint");
                process::abort();
            }
            Some(Failure::Die(at)) if DIE_POINT_HITS.fetch_add(1, Ordering::Relaxed) + 1 == *at => {
                error!(name, "ending at a failpoint");
                process::abort();
            }
            Some(Failure::Pause(time)) => tokio::time::sleep(*time).await,
            Some(Failure::Kill(_) | Failure::Die(_)) | None => {}
        }
    }

    fn plan(text: &str) -> HashMap<String, Failure> {
        text.split(',').filter_map(entry).collect()
    }

    /// Parses one entry. Logs an invalid one and skips it.
    fn entry(text: &str) -> Option<(String, Failure)> {
        let text = text.trim();
        let parsed = text.split_once('=').and_then(|(name, fault)| {
            let (what, number) = fault.split_once(':')?;
            if what == "die" {
                return Some((name.to_owned(), Failure::Die(number.parse().ok()?)));
            }
            let number: f64 = number.parse().ok()?;
            let fault = match what {
                "kill" => Failure::Kill(number),
                "pause" => Failure::Pause(Duration::try_from_secs_f64(number).ok()?),
                _ => return None,
            };
            Some((name.to_owned(), fault))
        });
        if parsed.is_none() && !text.is_empty() {
            error!(
                entry = text,
                "not a failpoint: write `name=kill:0.1`, `name=die:3` or `name=pause:40`"
            );
        }
        parsed
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_plan_is_read_and_nonsense_is_left_out() {
            let plan = plan("a=kill:0.25, b=pause:1.5,c=explode:1,d,,e=kill:x,f=die:3,g=die:0.5");

            assert_eq!(plan.len(), 3);
            assert_eq!(plan["a"], Failure::Kill(0.25));
            assert_eq!(plan["b"], Failure::Pause(Duration::from_millis(1_500)));
            assert_eq!(plan["f"], Failure::Die(3));
        }
    }
}
