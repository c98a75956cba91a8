//! Merging deltas that arrive twice, late, or not at all into one sequence of events.
//!
//! A session's deltas report all its turns. The merge selects those that answer one message, and of
//! them those of the newest claim. It never reports a text with a gap: the text of a step that lost
//! a delta is not streamed, and comes complete with the answer.

use holdfast_bus::{Delta, DeltaBody};
use holdfast_session::Awaited;
use holdfast_types::RunId;

use super::event::{Event, Finished, What, journalled};

/// Outcome of processing a delta.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// Ignored: not about the message, or from an outdated claim.
    No,
    Yes,
    /// From a turn that may have seen the message: query the journal, [`adopt`](Merge::adopt) the
    /// turn if so, and process the delta again.
    Unsure,
}

/// State of merging the deltas of one message.
#[derive(Debug)]
pub struct Merge {
    seq: i64,
    ours: Vec<RunId>,
    /// Turn and step about which the journal was queried last, and which is not ours.
    others: Option<(RunId, u32)>,
    /// Epoch of the newest claim, and the number of its last delta.
    newest: Option<(i64, u32)>,
    step: Option<Step>,
}

#[derive(Debug)]
struct Step {
    run: RunId,
    number: u32,
    epoch: i64,
    /// A delta of the step was lost.
    torn: bool,
    /// Text of the step was reported, under this claim or an earlier one.
    told: bool,
    /// Nothing was reported since the step began or restarted.
    fresh: bool,
}

impl Merge {
    /// Merges for the message at `seq`; `runs` are the turns that it may begin.
    pub fn new(seq: i64, runs: Vec<RunId>) -> Self {
        Self { seq, ours: runs, others: None, newest: None, step: None }
    }

    /// Adds a turn that has seen the message.
    pub fn adopt(&mut self, run: RunId) {
        if !self.ours.contains(&run) {
            self.ours.push(run);
        }
    }

    /// Processes a delta, and passes the resulting events to `tell`.
    pub fn take(&mut self, delta: Delta, tell: &mut impl FnMut(Event)) -> Taken {
        let Delta { run, epoch, step, n, body } = delta;
        if let DeltaBody::Done { seqs, text, outcome, reason, usage, model } = body {
            return self.end(seqs, run, step, tell, || Finished {
                outcome: journalled(outcome),
                text,
                reason,
                usage,
                model,
            });
        }
        if self.is_void(epoch) {
            return Taken::No;
        }
        if self.is_strange(run, step) {
            self.others = Some((run, step));
            return Taken::Unsure;
        }
        let gap = match self.newest {
            Some((newest, last)) if newest == epoch => n != last.wrapping_add(1),
            // The first delta of a claim only reports its start, so missing it loses nothing.
            _ => n > 1,
        };
        self.newest = Some((epoch, n));
        if !self.ours.contains(&run) {
            return Taken::No;
        }
        self.begin(run, epoch, step, gap, &body, tell);
        self.tell(run, step, body, tell);
        Taken::Yes
    }

    /// Whether the journal has to be queried before the delta can be processed.
    pub fn is_unsure(&self, delta: &Delta) -> bool {
        !matches!(delta.body, DeltaBody::Done { .. })
            && !self.is_void(delta.epoch)
            && self.is_strange(delta.run, delta.step)
    }

    fn is_void(&self, epoch: i64) -> bool {
        self.newest.is_some_and(|(newest, _)| epoch < newest)
    }

    /// Whether the step belongs to an unknown turn about which the journal was not queried.
    fn is_strange(&self, run: RunId, step: u32) -> bool {
        !self.ours.contains(&run) && self.others != Some((run, step))
    }

    fn end(
        &self,
        seqs: Vec<i64>,
        run: RunId,
        step: u32,
        tell: &mut impl FnMut(Event),
        finished: impl FnOnce() -> Finished,
    ) -> Taken {
        // The end is committed before it is published, so it is valid whatever the claim.
        if !seqs.contains(&self.seq) {
            return Taken::No;
        }
        tell(Event { run: Some(run), step: Some(step), what: What::Done(finished()) });
        Taken::Yes
    }

    /// Detects a step that begins, restarts, or lost a delta.
    fn begin(
        &mut self,
        run: RunId,
        epoch: i64,
        number: u32,
        gap: bool,
        body: &DeltaBody,
        tell: &mut impl FnMut(Event),
    ) {
        let marked = matches!(body, DeltaBody::Started | DeltaBody::StepRestarted);
        let same = self.step.as_ref().filter(|step| step.run == run && step.number == number);
        let told = same.is_some_and(|step| step.told);
        let anew = matches!(body, DeltaBody::StepRestarted);
        let goes_on = same.is_some_and(|step| step.epoch == epoch && (step.fresh || !anew));
        if goes_on {
            if let Some(step) = &mut self.step {
                step.torn = (step.torn || gap) && !anew;
            }
            return;
        }
        self.step = Some(Step { run, number, epoch, torn: gap && !marked, told, fresh: true });
        tell(Event { run: Some(run), step: Some(number), what: What::StepStarted { again: told } });
    }

    fn tell(&mut self, run: RunId, number: u32, body: DeltaBody, tell: &mut impl FnMut(Event)) {
        let what = match body {
            DeltaBody::Text { text } => match &mut self.step {
                Some(step) if !step.torn => {
                    step.told = true;
                    step.fresh = false;
                    What::Text(text)
                }
                _ => return,
            },
            // Thinking is no part of the answer, so gaps in it do not matter.
            DeltaBody::Thought { text } => match &mut self.step {
                Some(step) => {
                    step.fresh = false;
                    What::Thought(text)
                }
                None => return,
            },
            DeltaBody::ToolStarted { call, tool } => What::ToolStarted { call, tool },
            DeltaBody::ToolEnded { call, failed } => What::ToolEnded { call, failed },
            DeltaBody::ApprovalRequested { approval, tool, summary, left_ms } => {
                What::Approval(Awaited { approval, tool, summary, left_ms })
            }
            DeltaBody::Canvas { surfaces } => What::Canvas(surfaces),
            DeltaBody::Started | DeltaBody::StepRestarted | DeltaBody::Done { .. } => return,
        };
        tell(Event { run: Some(run), step: Some(number), what });
    }
}

/// A completed result without usage, for tests.
#[cfg(test)]
pub fn finished(text: &str) -> Finished {
    Finished {
        outcome: holdfast_session::Outcome::Completed,
        text: text.to_owned(),
        reason: None,
        usage: holdfast_types::Usage::default(),
        model: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::Usage;
    use proptest::prelude::*;

    use super::*;

    struct Story {
        merge: Merge,
        run: RunId,
        told: Vec<What>,
    }

    impl Story {
        fn new() -> Self {
            let run = RunId::generate();
            Self { merge: Merge::new(7, vec![run]), run, told: Vec::new() }
        }

        fn hear(&mut self, run: RunId, epoch: i64, step: u32, n: u32, body: DeltaBody) -> Taken {
            let told = &mut self.told;
            let delta = Delta { run, epoch, step, n, body };
            self.merge.take(delta, &mut |event| told.push(event.what))
        }

        fn ours(&mut self, epoch: i64, step: u32, n: u32, body: DeltaBody) {
            self.hear(self.run, epoch, step, n, body);
        }

        fn text(&self) -> String {
            let texts = self.told.iter().filter_map(|what| match what {
                What::Text(text) => Some(text.as_str()),
                _ => None,
            });
            texts.collect()
        }
    }

    fn text(text: &str) -> DeltaBody {
        DeltaBody::Text { text: text.to_owned() }
    }

    fn done(seqs: &[i64]) -> DeltaBody {
        DeltaBody::Done {
            seqs: seqs.to_vec(),
            text: "whole".into(),
            outcome: holdfast_bus::Outcome::Completed,
            reason: None,
            usage: Usage::default(),
            model: String::new(),
        }
    }

    #[test]
    fn a_turn_is_told_from_its_start_to_its_answer() {
        let mut story = Story::new();

        story.ours(3, 0, 0, DeltaBody::Started);
        story.ours(3, 0, 1, text("he"));
        story.ours(3, 0, 2, text("llo"));
        story.ours(3, 0, 3, done(&[7]));

        assert_eq!(
            story.told,
            [
                What::StepStarted { again: false },
                What::Text("he".into()),
                What::Text("llo".into()),
                What::Done(finished("whole")),
            ]
        );
    }

    #[test]
    fn what_is_thought_is_told_and_is_no_text() {
        let mut story = Story::new();

        story.ours(3, 0, 0, DeltaBody::Started);
        story.ours(3, 0, 1, DeltaBody::Thought { text: "hm".into() });
        story.ours(4, 0, 0, DeltaBody::StepRestarted);
        story.ours(4, 0, 1, text("hello"));

        let began = || What::StepStarted { again: false };
        assert_eq!(
            story.told,
            [began(), What::Thought("hm".into()), began(), What::Text("hello".into())]
        );
    }

    #[test]
    fn a_runner_that_was_lost_is_not_listened_to_any_more() {
        let mut story = Story::new();

        story.ours(3, 0, 0, DeltaBody::Started);
        story.ours(3, 0, 1, text("he"));
        story.ours(4, 0, 0, DeltaBody::StepRestarted);
        story.ours(3, 0, 2, text("XXX"));
        story.ours(4, 0, 1, text("hello"));

        assert_eq!(
            story.told[2..],
            [What::StepStarted { again: true }, What::Text("hello".into())]
        );
    }

    #[test]
    fn a_restart_is_told_once_however_often_it_is_announced() {
        let mut story = Story::new();

        story.ours(3, 0, 0, DeltaBody::Started);
        story.ours(3, 0, 1, DeltaBody::StepRestarted);
        story.ours(3, 0, 2, text("he"));
        story.ours(3, 0, 3, DeltaBody::StepRestarted);
        story.ours(4, 0, 0, DeltaBody::Started);
        story.ours(4, 0, 1, DeltaBody::StepRestarted);
        story.ours(4, 0, 2, text("hello"));

        let again = |again| What::StepStarted { again };
        assert_eq!(story.told[..2], [again(false), What::Text("he".into())]);
        assert_eq!(story.told[2..], [again(true), again(true), What::Text("hello".into())]);
    }

    #[test]
    fn a_restart_that_nobody_announced_is_noticed() {
        let mut story = Story::new();

        story.ours(3, 1, 0, DeltaBody::Started);
        story.ours(3, 1, 1, text("he"));
        story.ours(5, 1, 0, text("hello"));

        assert_eq!(story.told[2], What::StepStarted { again: true });
    }

    #[test]
    fn a_step_that_lost_something_is_silent_and_the_next_is_not() {
        let mut story = Story::new();

        story.ours(3, 0, 0, DeltaBody::Started);
        story.ours(3, 0, 1, text("a"));
        story.ours(3, 0, 3, text("c"));
        story.ours(3, 0, 4, text("d"));
        story.ours(3, 1, 5, text("next"));

        assert_eq!(story.text(), "anext");
    }

    #[test]
    fn who_comes_late_hears_nothing_of_a_step_that_is_half_over() {
        let mut story = Story::new();

        story.ours(3, 0, 8, text("lf over"));
        story.ours(3, 1, 9, text("whole"));

        assert_eq!(story.text(), "whole");
    }

    #[test]
    fn another_messages_turn_is_asked_about_once_a_step_and_not_told() {
        let mut story = Story::new();
        let other = RunId::generate();

        assert_eq!(story.hear(other, 3, 0, 0, text("x")), Taken::Unsure);
        assert_eq!(story.hear(other, 3, 0, 0, text("x")), Taken::No);
        assert_eq!(story.hear(other, 3, 0, 1, text("y")), Taken::No);
        assert_eq!(story.hear(other, 3, 1, 2, text("z")), Taken::Unsure);
        assert_eq!(story.hear(other, 3, 1, 3, done(&[6])), Taken::No);

        assert_eq!(story.told, []);
    }

    #[test]
    fn a_turn_that_took_the_message_in_is_told_from_there() {
        let mut story = Story::new();
        let other = RunId::generate();
        story.hear(other, 3, 0, 0, text("x"));
        story.hear(other, 3, 0, 0, text("x"));

        assert_eq!(story.hear(other, 3, 1, 1, text("both")), Taken::Unsure);
        story.merge.adopt(other);
        assert_eq!(story.hear(other, 3, 1, 1, text("both")), Taken::Yes);
        story.hear(other, 3, 1, 2, done(&[6, 7]));

        assert_eq!(story.text(), "both");
        assert_eq!(story.told.last(), Some(&What::Done(finished("whole"))));
    }

    proptest! {
        /// Whichever deltas are lost, the reported text of the step has no gap.
        #[test]
        fn what_is_told_of_a_step_begins_at_its_beginning(
            kept in prop::collection::vec(any::<bool>(), 30),
        ) {
            let mut story = Story::new();
            let words: Vec<String> = (0..30).map(|n| format!("{n} ")).collect();
            story.ours(1, 0, 0, DeltaBody::Started);
            for (n, word) in words.iter().enumerate() {
                if kept[n] {
                    story.ours(1, 0, u32::try_from(n).unwrap() + 1, text(word));
                }
            }

            prop_assert!(words.concat().starts_with(&story.text()));
        }
    }
}
