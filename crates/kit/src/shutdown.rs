//! Signals that ask a process to stop.

use std::{io, process};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Returns a token that SIGTERM or SIGINT cancels. A second signal ends the process immediately.
pub fn on_signal() -> io::Result<CancellationToken> {
    let mut signals =
        Signals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? };
    let stop = CancellationToken::new();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            let (name, _) = signals.next().await;
            info!(signal = name, "stopping");
            stop.cancel();
            let (name, code) = signals.next().await;
            warn!(signal = name, "stopping at once");
            process::exit(code);
        }
    });
    Ok(stop)
}

struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Waits for a signal. Returns its name and the exit code that shells use for it.
    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.term.recv() => ("SIGTERM", 143),
            _ = self.int.recv() => ("SIGINT", 130),
        }
    }
}
