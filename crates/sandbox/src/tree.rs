//! Processes of a command, as `/proc` shows them, and signals to them.
//!
//! **What can go wrong.** Processes come and go while we read, and their ids are reused. A reused
//! id makes a measurement wrong for a moment. Signals therefore go through a pidfd, and only to a
//! process that was the command's both before and after the pidfd was opened.

use std::{collections::HashSet, fs};

use rustix::{
    fd::OwnedFd,
    fs::{CWD, Mode, OFlags, openat},
    io::read,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

/// Number of processes after which counting stops; no limit allows so many.
const MAX_PROCESSES: usize = 10_000;

/// Resources that a command's processes use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ResourceUsage {
    pub tasks: u64,
    /// Anonymous and shared memory, and page tables, in bytes. Shared memory counts once for each
    /// process.
    pub memory: u64,
}

/// Returns the process and all its descendants.
pub(crate) fn pids(root: Pid) -> Vec<Pid> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        at += 1;
        if found.len() < MAX_PROCESSES {
            children(pid, &mut found);
        }
    }
    found
}

pub(crate) fn is_child(parent: Pid, child: Pid) -> bool {
    let mut found = Vec::new();
    children(parent, &mut found);
    found.contains(&child)
}

/// Whether a process that has one thread, and makes no more children, has none now.
///
/// All processes of a namespace descend from its first, including those that are still to be
/// reaped: if the list is empty once, there are none and will be none.
pub(crate) fn is_childless(pid: Pid) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) {
        Ok(list) => list.is_empty(),
        // The process is gone, and with it all its descendants.
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn children(pid: Pid, found: &mut Vec<Pid>) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for task in tasks.flatten() {
        let Ok(list) = fs::read_to_string(task.path().join("children")) else { continue };
        let numbers = list.split_ascii_whitespace().filter_map(|number| number.parse().ok());
        found.extend(numbers.filter_map(Pid::from_raw));
    }
}

/// Measures the resources that these processes use now.
pub(crate) fn measure(pids: &[Pid]) -> ResourceUsage {
    let mut weight = ResourceUsage::default();
    let mut buffer = vec![0; 4096];
    for pid in pids {
        // A status is below 4 KiB; if it were cut, the fields that we need come first.
        let Some(length) = read_file(&format!("/proc/{pid}/status"), &mut buffer) else { continue };
        add(&String::from_utf8_lossy(&buffer[..length]), &mut weight);
    }
    weight
}

fn read_file(path: &str, buffer: &mut [u8]) -> Option<usize> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    read(file, buffer).ok()
}

/// Adds the figures of one process' `status`; see proc_pid_status(5).
fn add(status: &str, weight: &mut ResourceUsage) {
    for line in status.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let value = || rest.split_ascii_whitespace().next()?.parse::<u64>().ok();
        match name {
            "RssAnon" | "RssShmem" | "VmPTE" => weight.memory += value().unwrap_or(0) * 1024,
            "Threads" => weight.tasks += value().unwrap_or(0),
            _ => {}
        }
    }
}

/// Sends a signal to all descendants of the process, and not to the process itself.
pub(crate) fn signal_descendants(root: Pid, signal: Signal) {
    let before: Vec<(Pid, OwnedFd)> = pids(root)
        .into_iter()
        .filter(|pid| *pid != root)
        .filter_map(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)))
        .collect();
    let after: HashSet<Pid> = pids(root).into_iter().collect();
    for (pid, handle) in before {
        if after.contains(&pid) {
            // A process that ended meanwhile needs no signal.
            let _ended = pidfd_send_signal(handle, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_added_up() {
        let status = "Name:\tx\nVmPTE:\t      4 kB\nRssAnon:\t     100 kB\nRssFile:\t  999 kB\n\
                      RssShmem:\t      2 kB\nThreads:\t3\nSigQ:\t1/2\n";
        let mut weight = ResourceUsage { tasks: 1, memory: 1024 };

        add(status, &mut weight);

        assert_eq!(weight, ResourceUsage { tasks: 4, memory: 107 * 1024 });
    }

    #[test]
    fn this_process_weighs_something_and_one_that_is_gone_nothing() {
        let own = rustix::process::getpid();
        let weight = measure(&[own]);
        assert!(weight.tasks >= 1 && weight.memory > 10_000, "{weight:?}");

        let gone = Pid::from_raw(i32::MAX).unwrap();
        assert_eq!(measure(&[gone]), ResourceUsage::default());
        assert_eq!(pids(gone), [gone]);
    }

    #[test]
    fn a_child_is_found_and_is_no_longer_when_it_ended() {
        let own = rustix::process::getpid();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(is_child(own, pid));
        assert!(pids(own).contains(&pid));

        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_child(own, pid));
    }
}
