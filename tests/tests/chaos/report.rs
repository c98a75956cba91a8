//! Report of a chaos test: on stderr, and in `target/chaos/<name>.txt`.

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::time::Duration;

use anyhow::ensure;
use holdfast_tests::dice;

/// How long the machine may stand still.
pub const STALL: Duration = Duration::from_secs(20);

/// Lines of a name and a number.
#[derive(Debug)]
pub struct Report {
    name: &'static str,
    text: String,
}

impl Report {
    pub fn of(name: &'static str) -> Self {
        Self { name, text: format!("{name}, HOLDFAST_CHAOS_SEED={}\n", dice::seed()) }
    }

    pub fn line(&mut self, what: &str, number: impl Display) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.text, "  {what:<58} {number}");
    }

    pub fn show(&self) -> anyhow::Result<()> {
        std::io::stderr().write_all(self.text.as_bytes())?;
        let exe = std::env::current_exe()?;
        if let Some(target) = exe.ancestors().nth(3) {
            std::fs::create_dir_all(target.join("chaos"))?;
            std::fs::write(target.join("chaos").join(self.name).with_extension("txt"), &self.text)?;
        }
        Ok(())
    }
}

/// Checks that at least half of the waits are within a limit, and that none exceeds it by more than
/// the machine may stand still.
pub fn ensure_most_within(waits: &[Duration], limit: Duration) -> anyhow::Result<()> {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    ensure!(!sorted.is_empty(), "nobody has waited");
    let median = sorted[(sorted.len() - 1) / 2];
    ensure!(median <= limit, "half of them took {median:?} or more, {limit:?} are allowed");
    let longest = slowest(waits);
    ensure!(longest <= limit + STALL, "one took {longest:?}");
    Ok(())
}

/// The longest of the waits.
pub fn slowest(waits: &[Duration]) -> Duration {
    waits.iter().max().copied().unwrap_or_default()
}
