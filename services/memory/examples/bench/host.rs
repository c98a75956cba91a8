//! What a host takes of a virtual machine's time. Without it nobody knows whether a slow question
//! was slow or was not let run.

use std::fs;

/// Time of all processors since the machine began, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks {
    all: u64,
    taken: u64,
}

impl Ticks {
    /// Up to now; `None` where the system does not say.
    pub fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line of `/proc/stat`: `cpu`, then user, nice, system, idle, iowait, irq,
    /// softirq, steal (man 5 proc_stat). What follows is part of user and nice.
    fn read(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { all: ticks.iter().sum(), taken: *ticks.get(7)? })
    }

    /// How much of the time since `before` was taken, in percent.
    pub fn taken_since(self, before: Self) -> u64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.taken.saturating_sub(before.taken) * 100 / all
    }
}
