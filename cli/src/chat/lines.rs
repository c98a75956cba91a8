//! Lines from stdin, with or without a terminal.
//!
//! A separate thread reads them: tokio's stdin would keep the process alive until one more line.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use tokio::sync::mpsc;

use crate::{
    error::Error,
    screen::{Screen, progress},
};

/// Lines, as they are typed. Nothing is read before the first is asked for.
pub struct Lines {
    read: Option<mpsc::Receiver<io::Result<String>>>,
    screen: Screen,
    is_terminal: bool,
}

impl Lines {
    pub fn new(screen: Screen) -> Self {
        Self { read: None, screen, is_terminal: io::stdin().is_terminal() }
    }

    /// Tells a person at a terminal what to type.
    pub fn show_hint(&self) -> Result<(), Error> {
        if self.is_terminal {
            self.screen.aside("Type a message, `exit` to leave; Ctrl-C ends an answer.")?;
        }
        Ok(())
    }

    /// Returns the next line without a prompt; `None` at the end of input.
    pub async fn read(&mut self) -> Result<Option<String>, Error> {
        Ok(self.receiver()?.recv().await.transpose()?)
    }

    /// Prompts a person for a line.
    pub fn prompt(&self) -> Result<(), Error> {
        progress::end();
        if self.has_prompt() { self.screen.print("> ") } else { Ok(()) }
    }

    /// Begins a new line behind the prompt.
    pub fn leave_prompt(&self) -> Result<(), Error> {
        if self.has_prompt() { self.screen.print("\n") } else { Ok(()) }
    }

    fn has_prompt(&self) -> bool {
        self.is_terminal && !self.screen.is_json()
    }

    /// Returns the next line; `None` at the end of input or on Ctrl-C. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<String>, Error> {
        tokio::select! {
            line = self.receiver()?.recv() => Ok(line.transpose()?),
            _ = tokio::signal::ctrl_c() => Ok(None),
        }
    }

    fn receiver(&mut self) -> Result<&mut mpsc::Receiver<io::Result<String>>, Error> {
        let read = match self.read.take() {
            Some(read) => read,
            None => read_stdin()?,
        };
        Ok(self.read.insert(read))
    }
}

/// Starts the thread.
fn read_stdin() -> Result<mpsc::Receiver<io::Result<String>>, Error> {
    let (send, read) = mpsc::channel(1);
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            for line in io::stdin().lines() {
                if send.blocking_send(line).is_err() {
                    break;
                }
            }
        })
        .context("cannot start a thread that reads stdin")?;
    Ok(read)
}
