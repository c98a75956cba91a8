//! CPU time and memory of processes, read from `/proc`.
//!
//! Times have the kernel's resolution of 10 ms, so only what runs for seconds is measured so.

use std::time::Duration;

use anyhow::Context as _;

/// Linux counts processes' times in hundredths of a second, whatever its own tick is.
const TICK: Duration = Duration::from_millis(10);

/// The CPU time that a process has used.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    Ok(Stat::read(pid)?.own)
}

/// The CPU time that a process and all it has started have used, what has ended included.
pub fn family_cpu(pid: u32) -> anyhow::Result<Duration> {
    let parent = Stat::read(pid)?;
    let mut sum = parent.own + parent.ended;
    for child in children(pid)? {
        // One that ends meanwhile is missed this once; its parent has its time by the next look.
        if let Ok(child) = Stat::read(child) {
            sum += child.own + child.ended;
        }
    }
    Ok(sum)
}

/// A process' resident memory, in units of 1024² bytes.
#[derive(Debug, Clone, Copy)]
pub struct Resident {
    /// All of it, with what is mapped from files: most of that is its program, which the processes
    /// of one machine share.
    pub all: f64,
    pub own: f64,
}

impl Resident {
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .with_context(|| format!("process {pid} has ended"))?;
        let megabytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes = line.and_then(|line| line.split_whitespace().next());
            let kilobytes = kilobytes.with_context(|| format!("no {name}"))?;
            anyhow::Ok(kilobytes.parse::<f64>()? / 1024.0)
        };
        Ok(Self { all: megabytes("VmRSS:")?, own: megabytes("RssAnon:")? })
    }
}

fn children(pid: u32) -> anyhow::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(other) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if Stat::read(other).is_ok_and(|stat| stat.parent == pid) {
            found.push(other);
        }
    }
    Ok(found)
}

struct Stat {
    parent: u32,
    own: Duration,
    /// Of children that have ended and were waited for.
    ended: Duration,
}

impl Stat {
    fn read(pid: u32) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .with_context(|| format!("process {pid} has ended"))?;
        Self::parse(&text).with_context(|| format!("`/proc/{pid}/stat` is not as it should be"))
    }

    fn parse(text: &str) -> Option<Self> {
        // The name in brackets may hold anything; the fields begin after the last one.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: TICK * (ticks(11)? + ticks(12)?),
            ended: TICK * (ticks(13)? + ticks(14)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_no_field() {
        let text = "7 (a) b) S 3 7 7 0 -1 0 0 0 0 0 11 22 1 2 20 0 1 0 5 6 7";

        let stat = Stat::parse(text).unwrap();

        assert_eq!((stat.parent, stat.own.as_millis(), stat.ended.as_millis()), (3, 330, 30));
    }

    #[test]
    fn we_ourselves_use_something() {
        let pid = std::process::id();

        let resident = Resident::of(pid).unwrap();
        assert!(resident.own > 0.1 && resident.all > resident.own, "{resident:?}");
        let own = cpu(pid).unwrap();
        assert!(family_cpu(pid).unwrap() >= own);
        assert!(cpu(u32::MAX).is_err());
    }
}
