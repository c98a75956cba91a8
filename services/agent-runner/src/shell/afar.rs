//! Background commands on other runners: a session's next turn may run elsewhere, while its
//! background commands stay where they were started.
//!
//! The runner of a background command answers questions about it on the bus; the subject contains
//! the tenant and the session. A process whose runner does not answer counts as lost.
//!
//! ## What can go wrong
//!
//! A request or its answer may be lost, so its outcome is unknown: the model is told that the
//! process is lost or cannot be reached, and may look again.

use std::time::Duration;

use holdfast_bus::{Asker, Subject};
use holdfast_sandbox::{Owner, ProcessId};
use holdfast_tools::{ProcessInput, ProcessLine, ProcessSignal, Ran, ToolError, Written};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Shell, behind::LAST_WORDS, jobs::Job, lost};

/// Time limit of another runner's answer, in addition to the requested wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time for collecting lists.
const GATHER: Duration = Duration::from_millis(300);

/// Runners that may have background commands of one session.
const MOST_RUNNERS: usize = 16;

/// Limit on each of the two outputs in an answer, in bytes; JSON escaping may make it six times as
/// long.
const MOST_SENT: usize = 64 * 1024;

/// A request on a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Wish {
    /// Status, after the end of the process or after this time.
    Look { wait_ms: u64 },
    /// Input to write to the process.
    Write(ProcessInput),
    /// Signal to send to the process.
    Signal(ProcessSignal),
    /// Stop the process; answered after its end.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Done {
    Nothing,
    Ran(Box<Ran>),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Question {
    List,
    Do { id: String, wish: Wish },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Listed(Vec<ProcessLine>),
    Done(Done),
    /// Error for the model.
    Told(String),
}

/// Answers questions about a session's processes on this runner, until it has none.
pub(super) async fn answer(shell: Shell, owner: Owner, gone: CancellationToken) {
    let subject = Subject::jobs(owner.tenant, owner.session);
    let mut questions = match shell.0.bus.questions(&subject).await {
        Ok(questions) => questions,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            return debug!(error, "other runners cannot ask about a process");
        }
    };
    while let Some(Some((question, asker))) = gone.run_until_cancelled(questions.next()).await {
        tokio::spawn(answer_one(shell.clone(), owner, question, asker));
    }
}

async fn answer_one(shell: Shell, owner: Owner, question: Question, asker: Asker) {
    let answer = match question {
        Question::List => Answer::Listed(shell.list_here(owner)),
        Question::Do { id, wish } => {
            let id: Option<ProcessId> = id.parse().ok();
            // Another runner may have it.
            let Some(job) = id.and_then(|id| shell.0.jobs.find(owner, id)) else { return };
            match shell.do_here(owner, &job, wish).await {
                Ok(done) => Answer::Done(shortened(done)),
                Err(error) => Answer::Told(error.to_string()),
            }
        }
    };
    asker.answer(&answer).await;
}

impl Shell {
    /// Lists the session's processes on all runners, oldest first.
    pub(super) async fn list_everywhere(
        &self,
        owner: Owner,
    ) -> Result<Vec<ProcessLine>, ToolError> {
        let subject = Subject::jobs(owner.tenant, owner.session);
        let asked = self.0.bus.ask(&subject, &Question::List, GATHER, MOST_RUNNERS).await;
        let mut lines = self.list_here(owner);
        for answer in asked.unwrap_or_default() {
            if let Answer::Listed(others) = answer {
                for line in others {
                    if lines.iter().all(|known| known.id != line.id) {
                        lines.push(line);
                    }
                }
            }
        }
        // Ids are ordered by time.
        lines.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(lines)
    }

    fn list_here(&self, owner: Owner) -> Vec<ProcessLine> {
        let line = |job: &Job| ProcessLine {
            id: job.id.to_string(),
            title: job.title.clone(),
            stands: job.end().map_or("running".to_owned(), |end| end.ended.to_string()),
            age: job.began.elapsed(),
        };
        self.0.jobs.of(owner).iter().map(|job| line(job)).collect()
    }

    /// Sends a request to the runner of a process.
    pub(super) async fn do_afar(
        &self,
        owner: Owner,
        id: ProcessId,
        wish: Wish,
    ) -> Result<Done, ToolError> {
        let patience = match &wish {
            Wish::Look { wait_ms } => PATIENCE + Duration::from_millis(*wait_ms),
            Wish::Write(_) | Wish::Signal(_) => PATIENCE,
            Wish::End => PATIENCE + LAST_WORDS,
        };
        let subject = Subject::jobs(owner.tenant, owner.session);
        let question = Question::Do { id: id.to_string(), wish };
        let asked = self.0.bus.ask(&subject, &question, patience, 1).await;
        match asked.map(|mut answers: Vec<Answer>| answers.pop()) {
            Ok(Some(Answer::Done(done))) => Ok(done),
            Ok(Some(Answer::Told(text))) => Err(ToolError::Tell(text)),
            Ok(Some(Answer::Listed(_)) | None) => Err(lost(&id.to_string())),
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "a process cannot be asked for");
                Err(ToolError::Tell(
                    "it may run elsewhere and cannot be asked now: try again later".to_owned(),
                ))
            }
        }
    }
}

fn shortened(done: Done) -> Done {
    match done {
        Done::Nothing => Done::Nothing,
        Done::Ran(mut ran) => {
            shorten(&mut ran.out);
            shorten(&mut ran.err);
            Done::Ran(ran)
        }
    }
}

/// Keeps the end of an output.
fn shorten(written: &mut Written) {
    let excess = written.text.len().saturating_sub(MOST_SENT);
    let cut = written.text.ceil_char_boundary(excess);
    written.text.drain(..cut);
    written.skipped += u64::try_from(cut).unwrap_or(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_does_not_fit_the_end_is_sent_and_the_rest_is_counted() {
        let mut written = Written { text: format!("{}end", "ä".repeat(MOST_SENT)), skipped: 5 };
        let before = written.text.len();

        shorten(&mut written);

        assert!(written.text.len() <= MOST_SENT && written.text.ends_with("ääend"));
        let skipped = usize::try_from(written.skipped).unwrap();
        assert_eq!(skipped - 5 + written.text.len(), before);
    }
}
