//! Times that were measured, and what they say.

use std::time::Duration;

/// Times, in order of their size.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The time that so many of a thousand do not exceed; zero if there are none.
    pub fn permille(&self, permille: usize) -> Duration {
        let rank = (self.0.len() * permille).div_ceil(1000).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// The time in the middle.
    pub fn median(&self) -> Duration {
        self.permille(500)
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_unstable();
        Self(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_samples_does_not_exceed_its_time() {
        let samples: Samples = (1..=200).rev().map(Duration::from_millis).collect();

        let millis = |permille| samples.permille(permille).as_millis();
        assert_eq!((millis(0), millis(500), millis(950), millis(990)), (1, 100, 190, 198));
        assert_eq!(millis(1000), 200);
        assert_eq!(Samples::default().median(), Duration::ZERO);
    }
}
