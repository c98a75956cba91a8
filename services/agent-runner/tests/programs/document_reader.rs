//! Reads a document, as the `holdfast` binary does when it is asked to.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_documents::run_document_reader().unwrap_or(ExitCode::FAILURE)
}
