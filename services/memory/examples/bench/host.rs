//! CPU time that the host took from this virtual machine (steal). It tells slow questions from
//! questions that were not scheduled.

use std::fs;

/// Ticks of all CPUs since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks {
    all: u64,
    taken: u64,
}

impl Ticks {
    /// Current value; `None` if the system does not report it.
    pub fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line of `/proc/stat`: `cpu`, then user, nice, system, idle, iowait, irq,
    /// softirq, steal (man 5 proc_stat). The columns after that are included in user and nice.
    fn read(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { all: ticks.iter().sum(), taken: *ticks.get(7)? })
    }

    /// Returns the percentage of CPU time taken since `before`.
    pub fn taken_since(self, before: Self) -> u64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.taken.saturating_sub(before.taken) * 100 / all
    }
}
