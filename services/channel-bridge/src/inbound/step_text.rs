//! Text that a turn is writing, from its deltas.

use holdfast_bus::{Delta, DeltaBody};
use holdfast_types::RunId;

/// Minimum length of a text that is shown, in characters. Shorter ones may be `NO_REPLY`, which is
/// not an answer.
const MIN_SHOWN_CHARS: usize = 20;

/// Maximum length of a text that is collected, in bytes: more than any platform shows in a message.
const MAX_TEXT_BYTES: usize = 128 * 1024;

/// Text of the step that a turn is at. A step of which a delta was lost has none.
#[derive(Debug)]
pub(super) struct StepText {
    run: RunId,
    /// Number of the message in its session.
    seq: i64,
    /// Epoch and number of the last delta of the session.
    newest: Option<(i64, u32)>,
    /// Epoch and number of the step.
    step: Option<(i64, u32)>,
    text: String,
    has_gap: bool,
}

impl StepText {
    pub(super) const fn new(run: RunId, seq: i64) -> Self {
        Self { run, seq, newest: None, step: None, text: String::new(), has_gap: false }
    }

    /// Adds a delta of the session. Returns whether the turn has ended, or another one has answered
    /// the message.
    pub(super) fn add(&mut self, delta: Delta) -> bool {
        let Delta { run, epoch, step, n, body } = delta;
        if let DeltaBody::Done { seqs, .. } = &body {
            return run == self.run || seqs.contains(&self.seq);
        }
        let is_gap = match self.newest {
            Some((newest, _)) if epoch < newest => return false,
            Some((newest, last)) if epoch == newest => n != last.wrapping_add(1),
            // The first delta of a claim only reports its start.
            _ => n > 1,
        };
        self.newest = Some((epoch, n));
        if run != self.run {
            return false;
        }
        if self.step != Some((epoch, step)) {
            self.step = Some((epoch, step));
            self.text.clear();
            self.has_gap = false;
        }
        self.has_gap |= is_gap;
        match body {
            DeltaBody::StepRestarted => {
                self.text.clear();
                self.has_gap = false;
            }
            DeltaBody::Text { text } if self.text.len() < MAX_TEXT_BYTES => {
                self.text.push_str(&text);
            }
            _ => {}
        }
        false
    }

    /// Returns the text to show, which ends in an ellipsis and lacks the last word: whoever sees it
    /// without the answer that replaces it knows that it is incomplete. `None` if it is too short.
    pub(super) fn shown(&self) -> Option<String> {
        if self.has_gap {
            return None;
        }
        let text = without_tags(&self.text);
        let end = text.trim_end().rfind(char::is_whitespace)?;
        let text = text[..end].trim();
        (text.chars().count() >= MIN_SHOWN_CHARS).then(|| format!("{text} …"))
    }
}

/// Removes the tags of the reply, `[[reply_to_current]]`, and one that is not complete yet.
fn without_tags(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, from)) = rest.split_once("[[") {
        plain.push_str(before);
        rest = from.split_once("]]").map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain.trim_end_matches('[').to_owned()
}

#[cfg(test)]
mod tests {
    use holdfast_bus::Outcome;
    use holdfast_types::Usage;

    use super::*;

    fn run() -> RunId {
        "run_019ab3c4d5e67f8090a1b2c3d4e5f609".parse().unwrap()
    }

    fn delta(epoch: i64, step: u32, n: u32, body: DeltaBody) -> Delta {
        Delta { run: run(), epoch, step, n, body }
    }

    fn text(text: &str) -> DeltaBody {
        DeltaBody::Text { text: text.into() }
    }

    #[test]
    fn a_text_with_a_gap_is_not_shown_until_the_next_step() {
        let mut shown = StepText::new(run(), 1);
        shown.add(delta(1, 0, 0, DeltaBody::Started));
        shown.add(delta(1, 0, 1, text("A beginning that is long enough ")));
        assert!(shown.shown().unwrap().starts_with("A beginning"));

        shown.add(delta(1, 0, 3, text("and an end")));
        assert_eq!(shown.shown(), None);
        shown.add(delta(1, 1, 4, text("The next step has all of its words")));
        assert_eq!(shown.shown().unwrap(), "The next step has all of its …");
        // A runner that has lost the session.
        shown.add(delta(0, 0, 2, text("outdated")));
        shown.add(delta(2, 1, 0, DeltaBody::Started));
        assert_eq!(shown.shown(), None);
    }

    #[test]
    fn it_is_never_the_whole_answer_and_has_no_tags() {
        let shown_of = |written: &str| {
            let mut shown = StepText::new(run(), 1);
            shown.add(delta(1, 0, 0, text(written)));
            shown.shown()
        };

        assert_eq!(shown_of("NO_REPLY"), None);
        assert_eq!(shown_of("short answer"), None);
        let tagged = shown_of("[[reply_to_current]] It was on Tuesday at ten [[react");
        assert_eq!(tagged.unwrap(), "It was on Tuesday at …");
    }

    #[test]
    fn it_ends_with_the_turn_that_answers_the_message() {
        let done = |run: RunId, seqs: Vec<i64>| Delta {
            run,
            ..delta(
                1,
                0,
                1,
                DeltaBody::Done {
                    seqs,
                    text: String::new(),
                    outcome: Outcome::Completed,
                    reason: None,
                    usage: Usage::default(),
                    model: String::new(),
                    calls: Vec::new(),
                },
            )
        };
        let mut shown = StepText::new(run(), 7);

        assert!(!shown.add(done(RunId::generate(), vec![6])));
        assert!(shown.add(done(RunId::generate(), vec![6, 7])));
        assert!(shown.add(done(run(), vec![])));
    }
}
