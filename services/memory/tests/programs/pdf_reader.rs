//! Reads a PDF, as the `holdfast` binary does when it is asked to.

use std::process::ExitCode;

fn main() -> ExitCode {
    memory::read_pdf().unwrap_or(ExitCode::FAILURE)
}
