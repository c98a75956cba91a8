//! Listens in a network namespace, as the `holdfast` binary does when it is asked to.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_proxy::run_listener().unwrap_or(ExitCode::FAILURE)
}
