//! Text of a stream that cannot revoke what it has sent.
//!
//! A turn may restart on another runner and then repeat its text, or produce a different one.
//! Repeated text is skipped. Different text ends the stream with an error; a repeated request gets
//! the stored answer. Each step's text is a separate part: text before a tool call is not part of
//! the answer.

use holdfast_session::PendingApproval;

use crate::{
    api_error::ApiError,
    follow::{Event, EventKind, TurnResult},
};

#[derive(Debug, PartialEq, Eq)]
pub enum AnswerOutput {
    Text {
        /// Number of the step that the text belongs to.
        step: u32,
        /// Whether the text begins a new part.
        part: bool,
        text: String,
    },
    /// Next part of the model's thinking.
    Thinking(String),
    /// The agent calls a tool of its own.
    ToolStarted {
        call: String,
        tool: String,
    },
    ToolEnded {
        call: String,
        failed: bool,
    },
    End(TurnResult),
    /// End of a stream without an answer.
    Fail(ApiError),
}

/// Text that the stream has sent so far.
#[derive(Debug, Default)]
pub struct SentText {
    step: Option<u32>,
    /// Text of the step that was sent.
    sent: String,
    /// Text of the step since its restart, while all of it was sent before.
    restarted_text: Option<String>,
    /// The step called tools, so it has no more text.
    is_closed: bool,
    /// Text was sent in earlier steps.
    has_earlier_text: bool,
    /// Only the final answer is sent: it has a form that texts before it would break, and that a
    /// correction may still change.
    is_final_only: bool,
}

impl SentText {
    pub fn new(is_final_only: bool) -> Self {
        Self { is_final_only, ..Self::default() }
    }

    /// Processes an event and returns the output for it.
    pub fn process(&mut self, event: Event) -> Vec<AnswerOutput> {
        match event.kind {
            EventKind::StepStarted { again } => {
                self.begin(event.step, again);
                Vec::new()
            }
            EventKind::Text(text) => self.text(text),
            EventKind::ToolStarted { call, tool } => {
                self.is_closed |= !self.sent.is_empty();
                vec![AnswerOutput::ToolStarted { call, tool }]
            }
            EventKind::ToolEnded { call, failed } => vec![AnswerOutput::ToolEnded { call, failed }],
            // Thinking of a step that restarted was sent already, in other words perhaps.
            EventKind::Thinking(_) if self.restarted_text.is_some() => Vec::new(),
            EventKind::Thinking(text) => vec![AnswerOutput::Thinking(text)],
            // These formats have no field for a canvas or progress.
            EventKind::Canvas(_) | EventKind::Progress(_) => Vec::new(),
            EventKind::Approval(awaited) => self.wait(&awaited),
            EventKind::Done(finished) => self.end(event.step, finished),
        }
    }

    fn begin(&mut self, step: Option<u32>, again: bool) {
        if again && step == self.step {
            self.restarted_text = Some(String::new());
            self.is_closed = false;
            return;
        }
        self.step = step;
        self.end_part();
    }

    fn next_step(&self) -> u32 {
        self.step.map_or(0, |step| step.saturating_add(1))
    }

    /// Ends the current part.
    fn end_part(&mut self) {
        self.has_earlier_text |= !self.sent.is_empty();
        self.sent.clear();
        self.restarted_text = None;
        self.is_closed = false;
    }

    fn text(&mut self, text: String) -> Vec<AnswerOutput> {
        if self.is_final_only {
            return Vec::new();
        }
        let text = match self.restarted_text.take() {
            None => text,
            Some(anew) => {
                let anew = anew + &text;
                if self.sent.starts_with(&anew) {
                    self.restarted_text = Some(anew);
                    return Vec::new();
                }
                match anew.strip_prefix(&self.sent) {
                    Some(more) => more.to_owned(),
                    None => return vec![AnswerOutput::Fail(ApiError::text_revoked())],
                }
            }
        };
        if text.is_empty() {
            return Vec::new();
        }
        let part = self.has_earlier_text && self.sent.is_empty();
        self.sent.push_str(&text);
        vec![AnswerOutput::Text { step: self.step.unwrap_or_default(), part, text }]
    }

    /// Ends the stream when an approval is needed: it could not be given over this stream.
    fn wait(&mut self, awaited: &PendingApproval) -> Vec<AnswerOutput> {
        self.end_part();
        let finished = TurnResult::approval_needed(awaited);
        let (step, text) = (self.next_step(), finished.text.clone());
        vec![
            AnswerOutput::Text { step, part: self.has_earlier_text, text },
            AnswerOutput::End(finished),
        ]
    }

    fn end(&mut self, step: Option<u32>, finished: TurnResult) -> Vec<AnswerOutput> {
        if let Some(refusal) = ApiError::of_result(&finished) {
            return vec![AnswerOutput::Fail(refusal)];
        }
        // The answer is the last step's text; text of earlier steps is a part before it.
        // The text before calls of the client stays the last part, though the agent called tools too.
        let is_closed = self.is_closed && finished.calls.is_empty();
        if is_closed || (step.is_some() && step > self.step) {
            self.step = step.max(is_closed.then(|| self.next_step()));
            self.end_part();
        }
        let answer = finished.text.trim();
        if answer.is_empty() {
            // The agent chose not to answer; text already sent stays.
            return vec![AnswerOutput::End(finished)];
        }
        let Some(more) = answer.strip_prefix(self.sent.trim()) else {
            return vec![AnswerOutput::Fail(ApiError::text_revoked())];
        };
        let part = self.has_earlier_text && self.sent.is_empty();
        let mut say = Vec::with_capacity(2);
        if !more.is_empty() {
            // The text sent may end in spaces that were trimmed for the comparison.
            let spaces = self.sent.len() - self.sent.trim_end().len();
            let more = if spaces > 0 { more.trim_start() } else { more };
            let step = self.step.unwrap_or_default();
            say.push(AnswerOutput::Text { step, part, text: more.to_owned() });
        }
        say.push(AnswerOutput::End(finished));
        say
    }
}

#[cfg(test)]
mod tests {
    use holdfast_session::TurnOutcome;
    use proptest::prelude::*;

    use super::*;
    use crate::follow::finished;

    fn event(step: u32, what: EventKind) -> Event {
        Event { run: None, step: Some(step), kind: what }
    }

    fn started(step: u32, again: bool) -> Event {
        event(step, EventKind::StepStarted { again })
    }

    fn text(step: u32, text: &str) -> Event {
        event(step, EventKind::Text(text.into()))
    }

    fn done(step: u32, text: &str) -> Event {
        event(step, EventKind::Done(finished(text)))
    }

    fn tool(step: u32) -> Event {
        event(step, EventKind::ToolStarted { call: "1".into(), tool: "t".into() })
    }

    /// Everything that a client reads, with `|` between parts, and whether it ends with an answer.
    fn read(events: impl IntoIterator<Item = Event>) -> (String, bool) {
        let mut spoken = SentText::default();
        let mut read = String::new();
        for event in events {
            for say in spoken.process(event) {
                match say {
                    AnswerOutput::Text { part, text, .. } => {
                        read.push_str(if part { "|" } else { "" });
                        read.push_str(&text);
                    }
                    AnswerOutput::Thinking(_)
                    | AnswerOutput::ToolStarted { .. }
                    | AnswerOutput::ToolEnded { .. } => {}
                    AnswerOutput::End(_) => return (read, true),
                    AnswerOutput::Fail(_) => return (read, false),
                }
            }
        }
        panic!("the stream hangs after `{read}`")
    }

    #[test]
    fn what_is_streamed_is_the_answer() {
        let events = [started(0, false), text(0, "hel"), text(0, "lo"), done(0, "hello")];
        assert_eq!(read(events), ("hello".into(), true));

        let lost = [started(0, false), text(0, "hel"), done(0, "hello")];
        assert_eq!(read(lost), ("hello".into(), true));

        assert_eq!(read([done(0, "hello")]), ("hello".into(), true));
        assert_eq!(read([done(0, "")]), (String::new(), true));

        let silent = [started(0, false), text(0, "NO_REPLY"), done(0, "")];
        assert_eq!(read(silent), ("NO_REPLY".into(), true));
    }

    #[test]
    fn a_step_that_begins_anew_and_says_the_same_is_not_heard_twice() {
        let events = [
            started(0, false),
            text(0, "hel"),
            started(0, true),
            text(0, "h"),
            text(0, "ello"),
            text(0, " you"),
            done(0, "hello you"),
        ];
        assert_eq!(read(events), ("hello you".into(), true));
    }

    #[test]
    fn a_step_that_begins_anew_twice_is_compared_from_its_beginning() {
        let events = [
            started(0, false),
            text(0, "hel"),
            started(0, true),
            started(0, true),
            text(0, "hello"),
            done(0, "hello"),
        ];
        assert_eq!(read(events), ("hello".into(), true));
    }

    #[test]
    fn a_step_that_begins_anew_in_other_words_ends_the_stream_with_an_error() {
        let events = [started(0, false), text(0, "hel"), started(0, true), text(0, "good day")];
        assert_eq!(read(events), ("hel".into(), false));

        let unheard = [started(0, false), text(0, "hel"), started(0, true), done(0, "good day")];
        assert_eq!(read(unheard), ("hel".into(), false));
    }

    #[test]
    fn what_is_said_before_a_tool_is_a_part_of_its_own() {
        let events = [
            started(0, false),
            text(0, "let me see"),
            tool(0),
            started(1, false),
            text(1, "it is 5"),
            done(1, "it is 5"),
        ];
        assert_eq!(read(events), ("let me see|it is 5".into(), true));

        let by_journal = EventKind::Done(finished("it is 5"));
        let lost = [
            started(0, false),
            text(0, "let me see"),
            tool(0),
            Event { run: None, step: None, kind: by_journal },
        ];
        assert_eq!(read(lost), ("let me see|it is 5".into(), true));
    }

    #[test]
    fn spaces_at_the_ends_do_not_matter() {
        let events = [started(0, false), text(0, "\nhello \n"), done(0, "hello")];
        assert_eq!(read(events), ("\nhello \n".into(), true));

        let more = [started(0, false), text(0, "hello "), done(0, "hello you")];
        assert_eq!(read(more), ("hello you".into(), true));
    }

    #[test]
    fn a_turn_without_an_answer_ends_with_its_reason() {
        let failed = TurnResult {
            outcome: TurnOutcome::Failed,
            reason: Some("no key".into()),
            ..finished("")
        };

        let said = SentText::default().process(event(0, EventKind::Done(failed)));

        let [AnswerOutput::Fail(refusal)] = said.as_slice() else { panic!("{said:?}") };
        assert!(refusal.message().contains("no key"));
    }

    proptest! {
        /// However the text is split, and wherever the turn restarts: the client reads the answer.
        #[test]
        fn a_turn_that_says_the_same_is_always_read_whole(
            answer in "[a-zé]{1,40}",
            cuts in prop::collection::vec((0_usize..41, any::<bool>()), 0..6),
        ) {
            let at = |n: usize| (0..=n.min(answer.len())).rev()
                .find(|at| answer.is_char_boundary(*at)).unwrap();
            let mut events = vec![started(0, false)];
            let mut from = 0;
            for (cut, anew) in cuts {
                let to = at(cut).max(from);
                events.push(text(0, &answer[from..to]));
                from = to;
                if anew {
                    events.push(started(0, true));
                    from = 0;
                }
            }
            events.push(done(0, &answer));

            prop_assert_eq!(read(events), (answer, true));
        }
    }
}
