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

use holdfast_bus::{Responder, Subject};
use holdfast_sandbox::{Owner, ProcessId};
use holdfast_tools::{
    CommandResult, ProcessInput, ProcessSignal, ProcessSummary, StreamOutput, ToolError,
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Shell, background::STOP_TIMEOUT, jobs::BackgroundJob, lost_error};

/// Time limit of another runner's answer, in addition to the requested wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for collecting lists.
const LIST_TIMEOUT: Duration = Duration::from_millis(300);

/// Runners that may have background commands of one session.
const MAX_RUNNERS: usize = 16;

/// Limit on each of the two outputs in an answer, in bytes; JSON escaping may make it six times as
/// long.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// A request on a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProcessRequest {
    /// Status, after the end of the process or after this time.
    Look { wait_ms: u64 },
    /// Input to write to the process.
    Write {
        #[serde(flatten)]
        input: ProcessInput,
        /// The writer has read text from outside.
        #[serde(default)]
        outside: bool,
    },
    /// Signal to send to the process.
    Signal(ProcessSignal),
    /// Stop the process; answered after its end.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProcessAnswer {
    Nothing,
    Ran(Box<CommandResult>),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Question {
    List,
    Do { id: String, wish: ProcessRequest },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Listed(Vec<ProcessSummary>),
    Done(ProcessAnswer),
    /// Error for the model.
    Told(String),
}

/// Answers questions about a session's processes on this runner, until it has none.
pub(super) async fn serve_questions(shell: Shell, owner: Owner, gone: CancellationToken) {
    let subject = Subject::jobs(owner.tenant, owner.session);
    let mut questions = match shell.0.bus.questions(&subject).await {
        Ok(questions) => questions,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            return debug!(error, "other runners cannot ask about a process");
        }
    };
    while let Some(Some((question, asker))) = gone.run_until_cancelled(questions.next()).await {
        tokio::spawn(serve_question(shell.clone(), owner, question, asker));
    }
}

async fn serve_question(shell: Shell, owner: Owner, question: Question, asker: Responder) {
    let answer = match question {
        Question::List => Answer::Listed(shell.list_here(owner)),
        Question::Do { id, wish } => {
            let id: Option<ProcessId> = id.parse().ok();
            // Another runner may have it.
            let Some(job) = id.and_then(|id| shell.0.jobs.find(owner, id)) else { return };
            match shell.request_here(owner, &job, wish).await {
                Ok(done) => Answer::Done(truncate_outputs(done)),
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
    ) -> Result<Vec<ProcessSummary>, ToolError> {
        let subject = Subject::jobs(owner.tenant, owner.session);
        let asked = self.0.bus.ask(&subject, &Question::List, LIST_TIMEOUT, MAX_RUNNERS).await;
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

    fn list_here(&self, owner: Owner) -> Vec<ProcessSummary> {
        let line = |job: &BackgroundJob| ProcessSummary {
            id: job.id.to_string(),
            title: job.title.clone(),
            stands: job.end().map_or("running".to_owned(), |end| end.ended.to_string()),
            age: job.began.elapsed(),
            is_approved: job.traits.is_approved,
        };
        self.0.jobs.of_session(owner).iter().map(|job| line(job)).collect()
    }

    /// Sends a request to the runner of a process.
    pub(super) async fn request_elsewhere(
        &self,
        owner: Owner,
        id: ProcessId,
        wish: ProcessRequest,
    ) -> Result<ProcessAnswer, ToolError> {
        let patience = match &wish {
            ProcessRequest::Look { wait_ms } => ANSWER_TIMEOUT + Duration::from_millis(*wait_ms),
            ProcessRequest::Write { .. } | ProcessRequest::Signal(_) => ANSWER_TIMEOUT,
            ProcessRequest::End => ANSWER_TIMEOUT + STOP_TIMEOUT,
        };
        let subject = Subject::jobs(owner.tenant, owner.session);
        let question = Question::Do { id: id.to_string(), wish };
        let asked = self.0.bus.ask(&subject, &question, patience, 1).await;
        match asked.map(|mut answers: Vec<Answer>| answers.pop()) {
            Ok(Some(Answer::Done(done))) => Ok(done),
            Ok(Some(Answer::Told(text))) => Err(ToolError::Tell(text)),
            Ok(Some(Answer::Listed(_)) | None) => Err(lost_error(&id.to_string())),
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "a process cannot be asked for");
                Err(ToolError::Tell(
                    "it may run elsewhere and cannot be asked now: try again later".to_owned(),
                ))
            }
        }
    }
}

fn truncate_outputs(done: ProcessAnswer) -> ProcessAnswer {
    match done {
        ProcessAnswer::Nothing => ProcessAnswer::Nothing,
        ProcessAnswer::Ran(mut ran) => {
            keep_tail(&mut ran.out);
            keep_tail(&mut ran.err);
            ProcessAnswer::Ran(ran)
        }
    }
}

/// Keeps the end of an output.
fn keep_tail(written: &mut StreamOutput) {
    let excess = written.text.len().saturating_sub(MAX_OUTPUT_BYTES);
    let cut = written.text.ceil_char_boundary(excess);
    written.text.drain(..cut);
    written.skipped += u64::try_from(cut).unwrap_or(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_does_not_fit_the_end_is_sent_and_the_rest_is_counted() {
        let mut written =
            StreamOutput { text: format!("{}end", "ä".repeat(MAX_OUTPUT_BYTES)), skipped: 5 };
        let before = written.text.len();

        keep_tail(&mut written);

        assert!(written.text.len() <= MAX_OUTPUT_BYTES && written.text.ends_with("ääend"));
        let skipped = usize::try_from(written.skipped).unwrap();
        assert_eq!(skipped - 5 + written.text.len(), before);
    }
}
