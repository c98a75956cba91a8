//! The binary reads PDFs for the memory service, within its own limits.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

#[test]
fn the_binary_reads_a_pdf_and_needs_nothing_for_it() {
    let mut reader = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["read-document", "pdf"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    reader.stdin.take().unwrap().write_all(b"%PDF-1.4 broken").unwrap();

    let read = reader.wait_with_output().unwrap();

    assert!(read.status.success(), "{}", read.status);
    assert_eq!(String::from_utf8_lossy(&read.stdout), r#"{"Err":"broken_pdf"}"#);
}
