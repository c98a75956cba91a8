//! Merging deltas that arrive twice, late, or not at all into one sequence of events.
//!
//! A session's deltas report all its turns. The merge selects those that answer one message, and of
//! them those of the newest claim. It never reports a text with a gap: the text of a step that lost
//! a delta is not streamed, and comes complete with the answer.

use holdfast_bus::{Delta, DeltaBody};
use holdfast_session::PendingApproval;
use holdfast_types::RunId;

use super::event::{Event, EventKind, TurnResult, journal_outcome};

/// Outcome of processing a delta.
#[derive(Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// Ignored: not about the message, or from an outdated claim.
    Ignored,
    Processed,
    /// From a turn that may have seen the message: query the journal, [`adopt`](Merge::adopt) the
    /// turn if so, and process the delta again.
    NeedsQuery,
}

/// State of merging the deltas of one message.
#[derive(Debug)]
pub struct DeltaMerge {
    seq: i64,
    own_runs: Vec<RunId>,
    /// Turn and step about which the journal was queried last, and which is not ours.
    last_foreign_step: Option<(RunId, u32)>,
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
    has_gap: bool,
    /// Text of the step was reported, under this claim or an earlier one.
    was_reported: bool,
    /// Nothing was reported since the step began or restarted.
    is_fresh: bool,
}

impl DeltaMerge {
    /// Merges for the message at `seq`; `runs` are the turns that it may begin.
    pub fn new(seq: i64, runs: Vec<RunId>) -> Self {
        Self { seq, own_runs: runs, last_foreign_step: None, newest: None, step: None }
    }

    pub const fn seq(&self) -> i64 {
        self.seq
    }

    /// Adds a turn that has seen the message.
    pub fn adopt(&mut self, run: RunId) {
        if !self.own_runs.contains(&run) {
            self.own_runs.push(run);
        }
    }

    /// Processes a delta, and passes the resulting events to `tell`.
    pub fn process(&mut self, delta: Delta, tell: &mut impl FnMut(Event)) -> MergeOutcome {
        let Delta { run, epoch, step, n, body } = delta;
        if let DeltaBody::Done { seqs, text, outcome, reason, usage, model, calls } = body {
            return self.end(seqs, run, step, tell, || TurnResult {
                outcome: journal_outcome(outcome),
                text,
                reason,
                usage,
                model,
                calls,
            });
        }
        if self.is_outdated(epoch) {
            return MergeOutcome::Ignored;
        }
        if self.is_unknown_turn(run, step) {
            self.last_foreign_step = Some((run, step));
            return MergeOutcome::NeedsQuery;
        }
        if let DeltaBody::StepProgress(progress) = body {
            // Outside of the numbering, and no part of a step's text.
            if self.own_runs.contains(&run) {
                let kind = EventKind::Progress(progress);
                tell(Event { run: Some(run), step: Some(step), kind });
            }
            return MergeOutcome::Processed;
        }
        let gap = match self.newest {
            Some((newest, last)) if newest == epoch => n != last.wrapping_add(1),
            // The first delta of a claim only reports its start, so missing it loses nothing.
            _ => n > 1,
        };
        self.newest = Some((epoch, n));
        if !self.own_runs.contains(&run) {
            return MergeOutcome::Ignored;
        }
        self.begin(run, epoch, step, gap, &body, tell);
        self.report(run, step, body, tell);
        MergeOutcome::Processed
    }

    /// Whether the journal has to be queried before the delta can be processed.
    pub fn needs_query(&self, delta: &Delta) -> bool {
        !matches!(delta.body, DeltaBody::Done { .. })
            && !self.is_outdated(delta.epoch)
            && self.is_unknown_turn(delta.run, delta.step)
    }

    fn is_outdated(&self, epoch: i64) -> bool {
        self.newest.is_some_and(|(newest, _)| epoch < newest)
    }

    /// Whether the step belongs to an unknown turn about which the journal was not queried.
    fn is_unknown_turn(&self, run: RunId, step: u32) -> bool {
        !self.own_runs.contains(&run) && self.last_foreign_step != Some((run, step))
    }

    fn end(
        &self,
        seqs: Vec<i64>,
        run: RunId,
        step: u32,
        tell: &mut impl FnMut(Event),
        finished: impl FnOnce() -> TurnResult,
    ) -> MergeOutcome {
        // The end is committed before it is published, so it is valid whatever the claim.
        if !seqs.contains(&self.seq) {
            return MergeOutcome::Ignored;
        }
        tell(Event { run: Some(run), step: Some(step), kind: EventKind::Done(finished()) });
        MergeOutcome::Processed
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
        let told = same.is_some_and(|step| step.was_reported);
        let anew = matches!(body, DeltaBody::StepRestarted);
        let goes_on = same.is_some_and(|step| step.epoch == epoch && (step.is_fresh || !anew));
        if goes_on {
            if let Some(step) = &mut self.step {
                step.has_gap = (step.has_gap || gap) && !anew;
            }
            return;
        }
        self.step = Some(Step {
            run,
            number,
            epoch,
            has_gap: gap && !marked,
            was_reported: told,
            is_fresh: true,
        });
        tell(Event {
            run: Some(run),
            step: Some(number),
            kind: EventKind::StepStarted { again: told },
        });
    }

    fn report(&mut self, run: RunId, number: u32, body: DeltaBody, tell: &mut impl FnMut(Event)) {
        let what = match body {
            DeltaBody::Text { text } => match &mut self.step {
                Some(step) if !step.has_gap => {
                    step.was_reported = true;
                    step.is_fresh = false;
                    EventKind::Text(text)
                }
                _ => return,
            },
            // Thinking is no part of the answer, so gaps in it do not matter.
            DeltaBody::Thought { text } => match &mut self.step {
                Some(step) => {
                    step.is_fresh = false;
                    EventKind::Thinking(text)
                }
                None => return,
            },
            DeltaBody::ToolStarted { call, tool } => EventKind::ToolStarted { call, tool },
            DeltaBody::ToolEnded { call, failed } => EventKind::ToolEnded { call, failed },
            DeltaBody::ApprovalRequested { approval, tool, summary, subject, pattern, left_ms } => {
                EventKind::Approval(PendingApproval {
                    approval,
                    tool,
                    summary,
                    subject,
                    pattern,
                    left_ms,
                })
            }
            DeltaBody::Canvas { surfaces } => EventKind::Canvas(surfaces),
            DeltaBody::Started
            | DeltaBody::StepRestarted
            | DeltaBody::StepProgress(_)
            | DeltaBody::Done { .. } => return,
        };
        tell(Event { run: Some(run), step: Some(number), kind: what });
    }
}

/// A completed result without usage, for tests.
#[cfg(test)]
pub fn finished(text: &str) -> TurnResult {
    TurnResult {
        outcome: holdfast_session::TurnOutcome::Completed,
        text: text.to_owned(),
        reason: None,
        usage: holdfast_types::Usage::default(),
        model: String::new(),
        calls: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_bus::StepProgress;
    use holdfast_types::Usage;
    use proptest::prelude::*;

    use super::*;

    struct Story {
        merge: DeltaMerge,
        run: RunId,
        told: Vec<EventKind>,
    }

    impl Story {
        fn new() -> Self {
            let run = RunId::generate();
            Self { merge: DeltaMerge::new(7, vec![run]), run, told: Vec::new() }
        }

        fn hear(
            &mut self,
            run: RunId,
            epoch: i64,
            step: u32,
            n: u32,
            body: DeltaBody,
        ) -> MergeOutcome {
            let told = &mut self.told;
            let delta = Delta { run, epoch, step, n, body };
            self.merge.process(delta, &mut |event| told.push(event.kind))
        }

        fn ours(&mut self, epoch: i64, step: u32, n: u32, body: DeltaBody) {
            self.hear(self.run, epoch, step, n, body);
        }

        fn text(&self) -> String {
            let texts = self.told.iter().filter_map(|what| match what {
                EventKind::Text(text) => Some(text.as_str()),
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
            calls: Vec::new(),
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
                EventKind::StepStarted { again: false },
                EventKind::Text("he".into()),
                EventKind::Text("llo".into()),
                EventKind::Done(finished("whole")),
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

        let began = || EventKind::StepStarted { again: false };
        assert_eq!(
            story.told,
            [began(), EventKind::Thinking("hm".into()), began(), EventKind::Text("hello".into())]
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
            [EventKind::StepStarted { again: true }, EventKind::Text("hello".into())]
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

        let again = |again| EventKind::StepStarted { again };
        assert_eq!(story.told[..2], [again(false), EventKind::Text("he".into())]);
        assert_eq!(story.told[2..], [again(true), again(true), EventKind::Text("hello".into())]);
    }

    #[test]
    fn a_restart_that_nobody_announced_is_noticed() {
        let mut story = Story::new();

        story.ours(3, 1, 0, DeltaBody::Started);
        story.ours(3, 1, 1, text("he"));
        story.ours(5, 1, 0, text("hello"));

        assert_eq!(story.told[2], EventKind::StepStarted { again: true });
    }

    #[test]
    fn progress_begins_no_step_and_is_no_gap_of_its_text() {
        let mut story = Story::new();
        let progress = StepProgress { behavior: "do".into(), step: 2, ..StepProgress::default() };
        let told = DeltaBody::StepProgress(progress.clone());
        let other = RunId::generate();

        story.ours(3, 0, 0, DeltaBody::Started);
        story.ours(3, 1, 1, told.clone());
        story.ours(3, 1, 1, text("a"));
        story.ours(3, 1, 2, told.clone());
        story.ours(3, 1, 2, text("b"));
        story.hear(other, 3, 0, 3, told.clone());
        assert_eq!(story.hear(other, 3, 0, 3, told), MergeOutcome::Processed);

        assert_eq!(story.text(), "ab");
        assert_eq!(story.told[1], EventKind::Progress(progress));
        let told = story.told.iter().filter(|kind| matches!(kind, EventKind::Progress(_)));
        assert_eq!(told.count(), 2);
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

        assert_eq!(story.hear(other, 3, 0, 0, text("x")), MergeOutcome::NeedsQuery);
        assert_eq!(story.hear(other, 3, 0, 0, text("x")), MergeOutcome::Ignored);
        assert_eq!(story.hear(other, 3, 0, 1, text("y")), MergeOutcome::Ignored);
        assert_eq!(story.hear(other, 3, 1, 2, text("z")), MergeOutcome::NeedsQuery);
        assert_eq!(story.hear(other, 3, 1, 3, done(&[6])), MergeOutcome::Ignored);

        assert_eq!(story.told, []);
    }

    #[test]
    fn a_turn_that_took_the_message_in_is_told_from_there() {
        let mut story = Story::new();
        let other = RunId::generate();
        story.hear(other, 3, 0, 0, text("x"));
        story.hear(other, 3, 0, 0, text("x"));

        assert_eq!(story.hear(other, 3, 1, 1, text("both")), MergeOutcome::NeedsQuery);
        story.merge.adopt(other);
        assert_eq!(story.hear(other, 3, 1, 1, text("both")), MergeOutcome::Processed);
        story.hear(other, 3, 1, 2, done(&[6, 7]));

        assert_eq!(story.text(), "both");
        assert_eq!(story.told.last(), Some(&EventKind::Done(finished("whole"))));
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
