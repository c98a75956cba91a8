//! Growth of a measured value over time, for soak tests: the slope of its regression line.

use std::time::Duration;

/// One value, measured again and again.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Seconds since the begin, and the value then.
    samples: Vec<(f64, f64)>,
}

/// Growth that is no leak.
#[derive(Debug, Clone, Copy)]
pub struct GrowthLimit {
    /// In percent of the mean value, in an hour.
    pub percent_per_hour: f64,
    /// In the value's unit over the whole measurement, whatever the percentage: less is noise.
    pub noise: f64,
}

impl Series {
    pub fn add(&mut self, at: Duration, value: f64) {
        self.samples.push((at.as_secs_f64(), value));
    }

    #[must_use]
    pub fn mean(&self) -> f64 {
        mean(self.samples.iter().map(|(_, value)| *value))
    }

    /// Growth over the whole measurement, along the regression line.
    #[must_use]
    pub fn growth(&self) -> f64 {
        self.slope() * self.seconds()
    }

    /// Growth in an hour, in percent of the mean.
    #[must_use]
    pub fn percent_per_hour(&self) -> f64 {
        if self.mean() == 0.0 { 0.0 } else { self.slope() * 3600.0 / self.mean() * 100.0 }
    }

    /// Whether the value grows no more than the limit allows.
    #[must_use]
    pub fn is_within(&self, limit: GrowthLimit) -> bool {
        self.growth() <= limit.noise || self.percent_per_hour() <= limit.percent_per_hour
    }

    fn seconds(&self) -> f64 {
        let times = self.samples.first().zip(self.samples.last());
        times.map_or(0.0, |(first, last)| last.0 - first.0)
    }

    /// Least squares; units per second.
    fn slope(&self) -> f64 {
        let (at, value) = (mean(self.samples.iter().map(|(at, _)| *at)), self.mean());
        let (mut covariance, mut variance) = (0.0, 0.0);
        for (t, v) in &self.samples {
            covariance += (t - at) * (v - value);
            variance += (t - at) * (t - at);
        }
        if variance == 0.0 { 0.0 } else { covariance / variance }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count == 0.0 { 0.0 } else { sum / count }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: GrowthLimit = GrowthLimit { percent_per_hour: 1.0, noise: 0.5 };

    /// An hour with a value each minute.
    fn hour(value: impl Fn(f64) -> f64) -> Series {
        let mut series = Series::default();
        for minute in 0..=60_u32 {
            let at = Duration::from_secs(u64::from(minute) * 60);
            series.add(at, value(f64::from(minute) / 60.0));
        }
        series
    }

    #[test]
    fn a_leak_of_two_percent_an_hour_is_found() {
        let leak = hour(|hours| 100.0 + 2.0 * hours);

        assert!((leak.growth() - 2.0).abs() < 0.01);
        assert!((leak.percent_per_hour() - 1.98).abs() < 0.01);
        assert!(!leak.is_within(LIMIT));
    }

    #[test]
    fn a_value_that_goes_up_and_down_is_no_leak() {
        let wave = hour(|hours| 100.0 + 10.0 * (hours * 60.0 * std::f64::consts::PI).sin());

        assert!(wave.is_within(LIMIT), "{}", wave.percent_per_hour());
        assert!(hour(|hours| 100.0 - hours).is_within(LIMIT));
        assert!(hour(|_| 0.0).is_within(LIMIT));
    }

    #[test]
    fn growth_that_is_small_in_units_is_noise() {
        assert!(hour(|hours| 1.0 + 0.4 * hours).is_within(LIMIT));
        assert!(!hour(|hours| 1.0 + 0.6 * hours).is_within(LIMIT));
    }
}
