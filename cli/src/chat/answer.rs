//! An answer as it comes in, and as it is shown.
//!
//! What was printed cannot be taken back. So when a step begins anew on another runner, or an
//! answer turns out to be another than what was streamed, that is said and the text printed again.

use holdfast_proto::gateway::v1::{ApprovalRequested, Done, RunEvent, run_event::Event};

use super::words;
use crate::{
    error::Error,
    screen::{Screen, plain},
};

/// What is known of an answer so far.
#[derive(Debug)]
pub struct Answer {
    screen: Screen,
    message: String,
    session: String,
    run: String,
    /// The text of the current step that was printed.
    printed: String,
    /// Whether what was printed last needs a line's end.
    mid_line: bool,
    /// Whether the next text belongs to a new connection, which may repeat the step.
    is_new_stream: bool,
    /// Calls that a person was asked about.
    asked: Vec<ApprovalRequested>,
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
            asked: Vec::new(),
            done: None,
        }
    }

    /// Whether the gateway said that it has the message.
    pub fn is_accepted(&self) -> bool {
        !self.message.is_empty()
    }

    pub fn message_id(&self) -> &str {
        &self.message
    }

    pub fn session(&self) -> Option<&str> {
        Some(self.session.as_str()).filter(|session| !session.is_empty())
    }

    pub fn run_id(&self) -> &str {
        &self.run
    }

    /// How it ended; nothing yet is an outcome that nobody knows.
    pub fn done(&self) -> Done {
        self.done.clone().unwrap_or_default()
    }

    /// The call that a person is to decide about now.
    pub fn asked(&self) -> Option<ApprovalRequested> {
        self.asked.first().cloned()
    }

    /// The call was decided about.
    pub fn decided(&mut self) {
        if !self.asked.is_empty() {
            self.asked.remove(0);
        }
    }

    /// The connection is a new one.
    pub const fn reconnected(&mut self) {
        self.is_new_stream = true;
    }

    /// Takes an event in and shows it; returns whether it was the last.
    pub fn take(&mut self, event: RunEvent) -> Result<bool, Error> {
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
                self.asked.clear();
            }
            Some(Event::Text(delta)) => {
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
            Some(Event::ToolStarted(tool)) => self.aside(&format!("[{}]", plain(&tool.tool)))?,
            Some(Event::ApprovalRequested(asked)) => {
                self.break_line()?;
                self.screen.note(&words::request(&asked))?;
                if self.asked.iter().all(|known| known.approval_id != asked.approval_id) {
                    self.asked.push(asked);
                }
            }
            Some(Event::CanvasChanged(changed)) => {
                let surfaces = plain(&changed.surfaces.join(", "));
                self.aside(&format!("[shown: {surfaces}; see `holdfast sessions canvas`]"))?;
            }
            Some(Event::ToolEnded(tool)) if tool.failed => self.aside("[the tool failed]")?,
            Some(Event::Done(done)) => {
                self.finish(&done.text)?;
                self.done = Some(done);
                return Ok(true);
            }
            Some(Event::Accepted(_) | Event::ToolEnded(_)) | None => {}
        }
        Ok(false)
    }

    /// Shows what of the whole answer was not shown yet.
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
    use crate::screen::Format;

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
        Answer::new(Screen::new(Format::Json))
    }

    #[test]
    fn what_was_lost_of_a_stream_is_made_up_for_at_its_end() {
        let mut answer = answer();
        answer.take(text("Hel")).unwrap();

        assert!(answer.take(done("Hello")).unwrap());

        assert!(answer.is_accepted());
        assert_eq!(answer.printed, "Hello");
        assert_eq!(answer.done().text, "Hello");
    }

    #[test]
    fn a_step_that_begins_anew_forgets_its_text() {
        let mut answer = answer();
        answer.take(text("Hel")).unwrap();
        answer.take(event(Event::StepStarted(StepStarted { again: true }))).unwrap();
        answer.take(text("Good")).unwrap();

        assert_eq!(answer.printed, "Good");
    }

    #[test]
    fn a_new_connection_repeats_and_does_not_append() {
        let mut answer = answer();
        answer.take(text("Hel")).unwrap();
        answer.reconnected();
        answer.take(text("Hello")).unwrap();
        answer.take(done("Hello")).unwrap();

        assert_eq!(answer.printed, "Hello");
    }
}
