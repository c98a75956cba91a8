//! State and display of a streamed answer.
//!
//! Printed text cannot be removed. If a step restarts on another runner, or a new connection
//! repeats a step, a remark is printed and then the text again. If the final answer differs from
//! the streamed text, it is printed in full.

use holdfast_proto::gateway::v1::{ApprovalRequested, Done, RunEvent, run_event::Event};

use super::approval_texts;
use crate::{
    error::Error,
    screen::{Screen, plain, progress},
    view,
};

/// State of an answer while it is streamed.
#[derive(Debug)]
pub struct Answer {
    screen: Screen,
    message: String,
    session: String,
    run: String,
    /// Printed text of the current step.
    printed: String,
    /// Whether the output does not end with a newline.
    mid_line: bool,
    /// Whether the next text comes from a new connection, which may repeat the step.
    is_new_stream: bool,
    /// Approvals that are not decided yet.
    pending_approvals: Vec<ApprovalRequested>,
    done: Option<Done>,
}

impl Answer {
    pub const fn new(screen: Screen) -> Self {
        Self {
            screen,
            message: String::new(),
            session: String::new(),
            run: String::new(),
            printed: String::new(),
            mid_line: false,
            is_new_stream: false,
            pending_approvals: Vec::new(),
            done: None,
        }
    }

    /// Returns the id of the message once the gateway has accepted it.
    pub fn message_id(&self) -> Option<&str> {
        Some(self.message.as_str()).filter(|message| !message.is_empty())
    }

    pub fn session(&self) -> Option<&str> {
        Some(self.session.as_str()).filter(|session| !session.is_empty())
    }

    pub fn run_id(&self) -> &str {
        &self.run
    }

    /// Returns the end of the run; the default value if it has not ended.
    pub fn done(&self) -> Done {
        self.done.clone().unwrap_or_default()
    }

    /// Returns the approval to decide next.
    pub fn pending_approval(&self) -> Option<ApprovalRequested> {
        self.pending_approvals.first().cloned()
    }

    /// Removes the approval that was decided.
    pub fn approval_decided(&mut self) {
        if !self.pending_approvals.is_empty() {
            self.pending_approvals.remove(0);
        }
    }

    /// Marks the start of a new connection.
    pub const fn reconnected(&mut self) {
        self.is_new_stream = true;
    }

    /// Processes and shows an event. Returns whether it was the last one.
    pub fn apply_event(&mut self, event: RunEvent) -> Result<bool, Error> {
        let RunEvent { message_id, session_id, run_id, event, .. } = event;
        for (known, told) in [
            (&mut self.message, message_id),
            (&mut self.session, session_id),
            (&mut self.run, run_id),
        ] {
            if !told.is_empty() {
                *known = told;
            }
        }
        match event {
            Some(Event::StepStarted(step)) => {
                if step.again && !self.printed.is_empty() {
                    self.aside("[begun anew on another runner]")?;
                }
                self.break_line()?;
                self.printed.clear();
                self.is_new_stream = false;
                self.pending_approvals.clear();
                progress::begin("the model thinks");
            }
            Some(Event::Text(delta)) => {
                // The line would be drawn over the text.
                progress::end();
                if std::mem::take(&mut self.is_new_stream) && !self.printed.is_empty() {
                    self.aside("[once more]")?;
                    self.printed.clear();
                }
                self.show(&delta.text)?;
            }
            Some(Event::Thinking(delta)) => {
                self.break_line()?;
                self.screen.note(&plain(&delta.text))?;
            }
            Some(Event::ToolStarted(tool)) => {
                let tool = plain(&tool.tool);
                self.aside(&format!("[{tool}]"))?;
                progress::begin(format!("{tool} runs"));
            }
            Some(Event::ApprovalRequested(asked)) => {
                progress::end();
                self.break_line()?;
                self.screen.note(&approval_texts::request(&asked))?;
                if self.pending_approvals.iter().all(|known| known.approval_id != asked.approval_id)
                {
                    self.pending_approvals.push(asked);
                }
            }
            Some(Event::CanvasChanged(changed)) => {
                let surfaces = plain(&changed.surfaces.join(", "));
                self.aside(&format!("[shown: {surfaces}; see `holdfast sessions canvas`]"))?;
            }
            Some(Event::StepProgress(progress)) => {
                let line = plain(&view::step_progress(&progress));
                self.aside(&format!("· {line}"))?;
                progress::begin("the model thinks");
            }
            Some(Event::ToolEnded(tool)) if tool.failed => self.aside("[the tool failed]")?,
            Some(Event::Done(done)) => {
                progress::end();
                self.finish(&done.text)?;
                self.done = Some(done);
                return Ok(true);
            }
            Some(Event::Accepted(_) | Event::ToolEnded(_)) | None => {}
        }
        Ok(false)
    }

    /// Shows the part of the final answer that is not shown yet.
    fn finish(&mut self, whole: &str) -> Result<(), Error> {
        match whole.strip_prefix(self.printed.as_str()) {
            Some(rest) => self.show(rest)?,
            None if whole.is_empty() => {}
            None => {
                self.break_line()?;
                self.show(whole)?;
            }
        }
        self.break_line()
    }

    fn show(&mut self, text: &str) -> Result<(), Error> {
        self.printed.push_str(text);
        let shown = plain(text);
        if self.screen.is_json() || shown.is_empty() {
            return Ok(());
        }
        self.mid_line = !shown.ends_with('\n');
        self.screen.print(&shown)
    }

    fn break_line(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.mid_line) { self.screen.print("\n") } else { Ok(()) }
    }

    fn aside(&mut self, text: &str) -> Result<(), Error> {
        self.break_line()?;
        self.screen.aside(text)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::gateway::v1::{StepStarted, TextDelta};

    use super::*;
    use crate::screen::{Color, Format};

    fn event(event: Event) -> RunEvent {
        RunEvent { message_id: "msg_1".to_owned(), event: Some(event), ..RunEvent::default() }
    }

    fn text(text: &str) -> RunEvent {
        event(Event::Text(TextDelta { text: text.to_owned() }))
    }

    fn done(text: &str) -> RunEvent {
        event(Event::Done(Done { text: text.to_owned(), ..Done::default() }))
    }

    fn answer() -> Answer {
        Answer::new(Screen::new(Format::Json, Color::Never))
    }

    #[test]
    fn what_was_lost_of_a_stream_is_made_up_for_at_its_end() {
        let mut answer = answer();
        answer.apply_event(text("Hel")).unwrap();

        assert!(answer.apply_event(done("Hello")).unwrap());

        assert!(answer.message_id().is_some());
        assert_eq!(answer.printed, "Hello");
        assert_eq!(answer.done().text, "Hello");
    }

    #[test]
    fn a_step_that_begins_anew_forgets_its_text() {
        let mut answer = answer();
        answer.apply_event(text("Hel")).unwrap();
        answer.apply_event(event(Event::StepStarted(StepStarted { again: true }))).unwrap();
        answer.apply_event(text("Good")).unwrap();

        assert_eq!(answer.printed, "Good");
    }

    #[test]
    fn a_new_connection_repeats_and_does_not_append() {
        let mut answer = answer();
        answer.apply_event(text("Hel")).unwrap();
        answer.reconnected();
        answer.apply_event(text("Hello")).unwrap();
        answer.apply_event(done("Hello")).unwrap();

        assert_eq!(answer.printed, "Hello");
    }
}
