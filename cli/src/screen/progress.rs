//! A line on the terminal that says what a command waits for, and for how long.
//!
//! It appears on stderr after a second, only on a terminal and only in output for people. Whatever
//! else is printed removes it first.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::time::{MissedTickBehavior, interval};
use unicode_width::UnicodeWidthStr as _;

use super::{Screen, shorten};

/// Time after which a wait is shown.
const DELAY: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// The current wait. One process has one terminal, so it is one value.
static WAIT: Mutex<Option<Wait>> = Mutex::new(None);

#[derive(Debug)]
struct Wait {
    label: String,
    since: Instant,
    is_shown: bool,
}

fn wait() -> MutexGuard<'static, Option<Wait>> {
    WAIT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names what is waited for from now on.
pub fn begin(label: impl Into<String>) {
    let mut wait = wait();
    remove(wait.as_mut());
    *wait = Some(Wait { label: label.into(), since: Instant::now(), is_shown: false });
}

/// Ends the wait: nothing is shown until the next [`begin`].
pub fn end() {
    remove(wait().take().as_mut());
}

/// Removes the line from the terminal, before something is printed. It appears again.
pub fn clear() {
    if let Some(wait) = wait().as_mut() {
        remove(Some(wait));
        wait.since = Instant::now();
    }
}

fn remove(wait: Option<&mut Wait>) {
    if let Some(wait) = wait.filter(|wait| wait.is_shown) {
        // A line that stays is ugly and does no harm.
        drop(write!(io::stderr().lock(), "\r\x1b[K"));
        wait.is_shown = false;
    }
}

impl Screen {
    /// Runs something that may take long, and shows what [`begin`] names while it does.
    pub async fn watch<T>(self, label: &str, work: impl Future<Output = T>) -> T {
        let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        if self.is_json() || !io::stderr().is_terminal() || is_dumb {
            return work.await;
        }
        begin(label);
        let mut work = std::pin::pin!(work);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut frame = 0;
        let done = loop {
            tokio::select! {
                biased;
                done = &mut work => break done,
                _ = ticks.tick() => {
                    frame = (frame + 1) % FRAMES.len();
                    draw(FRAMES[frame]);
                }
            }
        };
        end();
        done
    }
}

fn draw(frame: char) {
    let mut wait = wait();
    let Some(wait) = wait.as_mut().filter(|wait| wait.since.elapsed() >= DELAY) else { return };
    let width = crossterm::terminal::size().map_or(80, |(width, _)| usize::from(width));
    let text = line(frame, &wait.label, wait.since.elapsed(), width);
    drop(write!(io::stderr().lock(), "\r{text}\x1b[K"));
    wait.is_shown = true;
}

/// One line that does not reach the terminal's edge, where it would wrap.
fn line(frame: char, label: &str, waited: Duration, width: usize) -> String {
    let time = format!(" {} s", waited.as_secs());
    let label = shorten(label, width.saturating_sub(time.width() + 3).max(1));
    format!("{frame} {label}{time}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_stays_within_the_terminal() {
        let waited = Duration::from_secs(75);

        assert_eq!(line('⠋', "migrating", waited, 80), "⠋ migrating 75 s");
        assert!(line('⠋', &"学".repeat(100), waited, 40).width() < 40);
    }
}
