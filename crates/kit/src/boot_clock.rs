//! A clock that goes on while the machine is suspended.
//!
//! A lease is a promise about time as everyone else sees it. `Instant` is
//! `CLOCK_MONOTONIC` on Linux, which stands still while a laptop or a virtual
//! machine sleeps: its holder would wake up believing. `/proc/uptime` is
//! `CLOCK_BOOTTIME` and needs no `unsafe`. Its grain is 10 ms and reading it
//! costs some microseconds, both nothing beside a lease of 30 s. Where there is
//! no such file the clock is `Instant` after all.

use std::{fs, sync::LazyLock, time::Duration, time::Instant};

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time since some fixed moment before this process asked first.
#[must_use]
pub fn now() -> Duration {
    uptime().unwrap_or_else(|| STARTED.elapsed())
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
