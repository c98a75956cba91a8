//! Report of a chaos test: on stderr, and in `target/chaos/<name>.txt`.

use std::fmt::{Display, Write as _};
use std::io::Write as _;

use holdfast_tests::dice;

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
