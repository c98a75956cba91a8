//! Behaviour of a process on signals.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

use std::{
    io::{BufRead as _, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use holdfast_kit::shutdown;

/// Not a test: the process that the other tests send signals to.
#[tokio::test]
#[ignore = "started by the other tests"]
async fn deaf_child() {
    let stop = shutdown::on_signal().unwrap();
    println!("\nready");
    stop.cancelled().await;
    println!("\nstopping");
    std::future::pending::<()>().await;
}

fn start() -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "deaf_child", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

fn wait_for(word: &str, lines: &mut Lines<BufReader<ChildStdout>>) {
    assert!(lines.any(|line| line.unwrap() == word), "the child ended without `{word}`");
}

fn send(signal: &str, child: &Child) {
    assert!(
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success()
    );
}

#[test]
fn the_first_signal_asks_and_the_second_ends() {
    for (first, second, code) in [("-TERM", "-TERM", 143), ("-TERM", "-INT", 130)] {
        let (mut child, mut lines) = start();
        wait_for("ready", &mut lines);

        send(first, &child);
        wait_for("stopping", &mut lines);
        assert!(child.try_wait().unwrap().is_none());

        send(second, &child);
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}
