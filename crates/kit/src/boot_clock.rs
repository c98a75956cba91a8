//! A clock that continues while the machine is suspended.
//!
//! A lease runs out by the other processes' time. On Linux, `Instant` is `CLOCK_MONOTONIC`, which
//! stops while a laptop or a virtual machine sleeps: a holder would wake up and believe that its
//! lease is still valid. `/proc/uptime` is `CLOCK_BOOTTIME` and needs no `unsafe`. Its resolution
//! is 10 ms and a read takes some microseconds, both negligible for a lease of 30 s. Without that
//! file the clock falls back to `Instant`.

use std::{fs, sync::LazyLock, time::Duration, time::Instant};

static FALLBACK_START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns the time since a fixed moment at or before the first call in this process.
#[must_use]
pub fn now() -> Duration {
    uptime().unwrap_or_else(|| FALLBACK_START.elapsed())
}

fn uptime() -> Option<Duration> {
    parse(&fs::read_to_string("/proc/uptime").ok()?)
}

fn parse(uptime: &str) -> Option<Duration> {
    let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward() {
        let before = now();
        std::thread::sleep(Duration::from_millis(30));

        assert!(now() - before >= Duration::from_millis(20));
    }

    #[test]
    fn the_kernels_line_is_read() {
        assert_eq!(parse("350735.47 234388.90\n"), Some(Duration::from_millis(350_735_470)));
        assert_eq!(parse(""), None);
        assert_eq!(parse("-1 0"), None);
    }
}
