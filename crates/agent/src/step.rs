//! The next step of a turn, a pure function of the journal.
//!
//! The journal is append-only and also the transcript: it contains earlier turns, and a model may
//! reuse a call id in every reply. So only the current turn is considered, and for calls only its
//! last thought: an earlier one was answered completely before the model was asked again.
//!
//! | last thought of the turn | calls without a result | step |
//! |---|---|---|
//! | none | – | think, if a message needs an answer; else rest |
//! | some | begun, with an effect on the outside world | unknown outcome |
//! | some | waits for an approval | await the decision |
//! | some | beyond a limit of the turn or of one thought | refuse them |
//! | some | only calls of the client's tools are left | hand them over |
//! | some | other | call: consecutive reads together, all others alone, in the model's order |
//! | some | none | think; without tools once calls were refused for the turn |
//! | from a command, not a model | none, and no new message | answer with the call's result |
//! | made without tools, but with calls | – | halt |
//!
//! **What can go wrong.** The runner must append heard messages *before* it asks the model, and
//! never between the request and the thought: a message before a thought counts as seen by it.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::{ClientTool, Effect, Entry, Note, ToolCall};

use crate::turn;

/// Result of a call that was started by a lost runner.
pub const UNKNOWN_OUTCOME: &str = "the outcome of this call is unknown: it was begun, and then \
     the process that ran it was lost; check before you do it again";

/// Lost acting calls of a turn after which nothing that it does counts as progress.
const MAX_LOST_CALLS: usize = 5;

/// Whether an acting call of the turn was lost with its runner, and no acting call has returned
/// since; or whether five were lost. A call id may occur again in a later thought.
#[must_use]
pub fn has_lost_call(turn: &[Entry]) -> bool {
    let (mut begun, mut is_lost, mut lost) = (Vec::new(), false, 0);
    for entry in turn {
        match entry {
            Entry::Thought { .. } => begun.clear(),
            Entry::Called { call, .. } => begun.push(call),
            // Only the runner that made a call knows when it began.
            Entry::Returned { call, record, .. } if begun.contains(&call) => {
                is_lost = record.started_at_ms == 0;
                lost += usize::from(is_lost);
            }
            Entry::Returned { .. } | Entry::Heard { .. } | Entry::Noted { .. } => {}
        }
    }
    is_lost || lost >= MAX_LOST_CALLS
}

/// Returns the result of a call beyond a limit.
#[must_use]
pub fn limit_reached(limits: Limits, limit: Limit) -> String {
    match limit {
        Limit::Turn => {
            format!("limit of {} calls a turn reached: answer now with what you have", limits.calls)
        }
        Limit::Thought => format!(
            "not made: limit of {} calls at once reached; read the results of those before it, \
             then ask again for what is still needed",
            limits.at_once
        ),
    }
}

/// Limits of an agent's autonomy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of calls in one turn.
    pub calls: usize,
    /// Maximum number of calls in one thought. 0 counts as 1: otherwise a turn could not end.
    pub at_once: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { calls: 20, at_once: 10 }
    }
}

impl Limits {
    /// Number of a thought's calls that count towards the turn's limit; the others are refused and
    /// free.
    fn counted(self, calls: usize) -> usize {
        calls.min(self.at_once.max(1))
    }
}

/// Limit that a call exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The turn's limit: the model must answer now.
    Turn,
    /// The limit of one thought: the model may call again.
    Thought,
}

/// Next step of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'j> {
    /// Wait for input: the turn is over, or there is none.
    Rest,
    /// Ask the model, and append its reply as a thought.
    Think,
    /// Ask the model without tools, and append its reply. Calls that it makes nevertheless should
    /// be left out of the thought if it has text.
    ThinkWithoutTools,
    /// Make these calls, concurrently if there are several. For each, append `Called` before it and
    /// `Returned` after it.
    Call(Vec<&'j ToolCall>),
    /// Wait for the approvals of these calls. Append `Allowed` for each allowed one, and a failed
    /// `Returned` for each denied one. Without any decision, release the turn until there is one.
    Await(Vec<&'j ToolCall>),
    /// Append a failed `Returned` with [`UNKNOWN_OUTCOME`] for this call; do not make it.
    Unknown(&'j ToolCall),
    /// Append a failed `Returned` with [`limit_reached`] for each of these; do not make them.
    Refuse(Vec<&'j ToolCall>, Limit),
    /// End the turn with these calls, which are the client's: it sends their results.
    HandOver(Vec<&'j ToolCall>),
    /// End the turn with the result of this call, which came from a command: no model is asked.
    Answer(&'j ToolCall, CallResult<'j>),
    /// End the turn: the model asked for tools after it had been told to answer without them.
    Halt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallResult<'j> {
    pub output: &'j str,
    pub failed: bool,
}

/// Returns the next step of a session. `effect_of` returns a tool's effect by its name.
#[must_use]
pub fn next(journal: &[Entry], limits: Limits, effect_of: impl Fn(&str) -> Effect) -> Step<'_> {
    let turn = turn::open(journal);
    let Some(last) = LastThought::of(turn) else {
        let is_asked = turn.iter().any(turn::asks_for_answer) || turn::open_flush(turn).is_some();
        return if is_asked { Step::Think } else { Step::Rest };
    };
    let earlier = last.earlier(limits);
    if earlier > limits.calls {
        return Step::Halt;
    }
    let own = last.own_calls();
    let counted = limits.counted(own.len());
    let limit = if counted > limits.calls - earlier { Limit::Turn } else { Limit::Thought };
    let (within, beyond) = own.split_at(counted.min(limits.calls - earlier));
    if let Some(step) = last.first_pending(within, effect_of) {
        return step;
    }
    let refused: Vec<&ToolCall> = last.pending(beyond).collect();
    if !refused.is_empty() {
        return Step::Refuse(refused, limit);
    }
    let clients: Vec<&ToolCall> =
        last.calls.iter().filter(|call| last.is_of_client(call)).collect();
    let handed: Vec<&ToolCall> = last.pending(&clients).collect();
    if !handed.is_empty() {
        return Step::HandOver(handed);
    }
    if let Some(answer) = command_answer(turn) {
        return answer;
    }
    match limit {
        Limit::Turn => Step::ThinkWithoutTools,
        Limit::Thought => Step::Think,
    }
}

/// Returns the answer of a command's turn once its call has returned. If messages arrived
/// meanwhile, the model answers both.
fn command_answer(turn: &[Entry]) -> Option<Step<'_>> {
    let is_command = |entry: &Entry| matches!(entry, Entry::Noted { note: Note::Dispatched, .. });
    let since = &turn[turn.iter().position(is_command)? + 1..];
    let [Entry::Thought { calls, .. }, rest @ ..] = since else { return None };
    let ([call], false) = (calls.as_slice(), rest.iter().any(turn::asks_for_answer)) else {
        return None;
    };
    let came = rest.iter().find_map(|entry| match entry {
        Entry::Returned { call: id, output, failed, .. } if *id == call.id => {
            Some(CallResult { output, failed: *failed })
        }
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    })?;
    let is_thought_about = rest.iter().any(|entry| matches!(entry, Entry::Thought { .. }));
    (!is_thought_about).then_some(Step::Answer(call, came))
}

/// Returns the calls of the open turn's last thought that wait for an approval.
#[must_use]
pub fn calls_awaiting_approval(journal: &[Entry]) -> Vec<&ToolCall> {
    let Some(last) = LastThought::of(turn::open(journal)) else { return Vec::new() };
    let is_waiting = |call: &&ToolCall| last.waits.contains(call.id.as_str());
    last.calls.iter().filter(is_waiting).collect()
}

/// Returns the calls of the open turn's last thought, within the limits, that are neither started
/// nor returned, and for which no approval was requested.
#[must_use]
pub fn new_calls(journal: &[Entry], limits: Limits) -> Vec<&ToolCall> {
    let Some(last) = LastThought::of(turn::open(journal)) else { return Vec::new() };
    let is_new = |call: &&ToolCall| {
        let id = call.id.as_str();
        !last.states.contains_key(id) && !last.waits.contains(id) && !last.allowed.contains(id)
    };
    let left = limits.calls.saturating_sub(last.earlier(limits));
    let own = last.own_calls();
    let within = limits.counted(own.len()).min(left);
    own.into_iter().take(within).filter(is_new).collect()
}

/// Whether this call of the open turn's last thought was approved.
#[must_use]
pub fn is_allowed(journal: &[Entry], call: &str) -> bool {
    LastThought::of(turn::open(journal)).is_some_and(|last| last.allowed.contains(call))
}

/// Last thought of an open turn, and the state of its calls.
struct LastThought<'j> {
    calls: &'j [ToolCall],
    /// Tools of the client that the thought could call.
    client_tools: &'j [ClientTool],
    /// Number of the agent's own calls in each earlier thought of this turn.
    before: Vec<usize>,
    /// By call: `Some` effect if it was started and has not returned, `None` if it has.
    states: BTreeMap<&'j str, Option<Effect>>,
    /// Calls that wait for an approval.
    waits: BTreeSet<&'j str>,
    /// Approved calls.
    allowed: BTreeSet<&'j str>,
}

impl<'j> LastThought<'j> {
    fn of(turn: &'j [Entry]) -> Option<Self> {
        let (mut last, mut client_tools): (Option<Self>, &[ClientTool]) = (None, &[]);
        for entry in turn::deciding_entries(turn) {
            match entry {
                Entry::Heard { body, .. } if !body.silent => {
                    client_tools =
                        body.answer_options.as_ref().map_or(&[], |options| &options.tools);
                }
                Entry::Thought { calls, .. } => {
                    let before = last.map_or_else(Vec::new, |last| {
                        let own = last.own_calls().len();
                        [last.before, vec![own]].concat()
                    });
                    last = Some(Self {
                        calls,
                        client_tools,
                        before,
                        states: BTreeMap::new(),
                        waits: BTreeSet::new(),
                        allowed: BTreeSet::new(),
                    });
                }
                Entry::Called { call, effect } => {
                    if let Some(last) = &mut last {
                        last.states.entry(call).or_insert(Some(*effect));
                    }
                }
                Entry::Returned { call, .. } => {
                    if let Some(last) = &mut last {
                        last.states.insert(call, None);
                        last.waits.remove(call.as_str());
                    }
                }
                Entry::Noted { note: Note::Asked, text, .. } => {
                    if let Some(last) = &mut last {
                        last.waits.insert(text);
                    }
                }
                Entry::Noted { note: Note::Allowed, text, .. } => {
                    if let Some(last) = &mut last {
                        last.waits.remove(text.as_str());
                        last.allowed.insert(text);
                    }
                }
                Entry::Heard { .. } | Entry::Noted { .. } => {}
            }
        }
        last
    }

    fn is_of_client(&self, call: &ToolCall) -> bool {
        self.client_tools.iter().any(|tool| tool.name == call.tool)
    }

    /// Calls that the mesh makes.
    fn own_calls(&self) -> Vec<&'j ToolCall> {
        self.calls.iter().filter(|call| !self.is_of_client(call)).collect()
    }

    /// Number of earlier calls in this turn that count towards the limit.
    fn earlier(&self, limits: Limits) -> usize {
        self.before.iter().map(|calls| limits.counted(*calls)).sum()
    }

    fn pending<'a>(&'a self, calls: &'a [&'j ToolCall]) -> impl Iterator<Item = &'j ToolCall> + 'a {
        calls.iter().copied().filter(|call| self.states.get(call.id.as_str()) != Some(&None))
    }

    fn first_pending(
        &self,
        calls: &[&'j ToolCall],
        effect_of: impl Fn(&str) -> Effect,
    ) -> Option<Step<'j>> {
        // Another version may have declared another effect for the tool; the more serious one
        // counts.
        let begun_to_act = |call: &ToolCall, now: Effect| match self.states.get(call.id.as_str()) {
            Some(Some(then)) => *then == Effect::Acts || now == Effect::Acts,
            Some(None) | None => false,
        };
        let is_waiting = |call: &&ToolCall| self.waits.contains(call.id.as_str());
        let mut batch = Vec::new();
        for call in self.pending(calls) {
            if is_waiting(&call) {
                if batch.is_empty() {
                    return Some(Step::Await(calls.iter().copied().filter(is_waiting).collect()));
                }
                break;
            }
            let effect = effect_of(&call.tool);
            let unknown = begun_to_act(call, effect);
            match (batch.is_empty(), effect) {
                (true, _) if unknown => return Some(Step::Unknown(call)),
                (true, Effect::Writes | Effect::Acts) => return Some(Step::Call(vec![call])),
                (_, Effect::Reads) if !unknown => batch.push(call),
                (false, _) | (true, Effect::Reads) => break,
            }
        }
        (!batch.is_empty()).then_some(Step::Call(batch))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdfast_types::Note;
    use proptest::prelude::*;

    use super::*;
    use crate::turn::tests::{call, called, heard, noted, overheard, returned, thought};

    const LIMITS: Limits = Limits { calls: 4, at_once: 3 };

    fn effect_of(tool: &str) -> Effect {
        match tool {
            "read" => Effect::Reads,
            "write" => Effect::Writes,
            _ => Effect::Acts,
        }
    }

    fn step(journal: &[Entry]) -> Step<'_> {
        next(journal, LIMITS, effect_of)
    }

    /// Returns the ids of the calls to make; panics on any other step.
    fn calls(journal: &[Entry]) -> Vec<&str> {
        match step(journal) {
            Step::Call(calls) => calls.iter().map(|call| call.id.as_str()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_turn_alternates_between_thinking_and_calling_until_the_model_is_done() {
        let mut journal = vec![];
        assert_eq!(step(&journal), Step::Rest);

        journal.push(heard(1, "hi"));
        assert_eq!(step(&journal), Step::Think);

        journal.push(thought("", &[("a", "read")]));
        assert_eq!(step(&journal), Step::Call(vec![&call("a", "read")]));

        journal.extend([called("a", Effect::Reads), returned("a")]);
        assert_eq!(step(&journal), Step::Think);

        journal.push(thought("done", &[]));
        assert_eq!(step(&journal), Step::Rest);
    }

    #[test]
    fn reads_run_together_and_all_else_alone_in_the_models_order() {
        let mut journal =
            vec![heard(1, "hi"), thought("", &[("a", "read"), ("b", "read"), ("c", "write")])];
        assert_eq!(calls(&journal), ["a", "b"]);

        journal.push(returned("b"));
        assert_eq!(calls(&journal), ["a"]);

        journal.push(returned("a"));
        assert_eq!(calls(&journal), ["c"]);

        journal.extend([returned("c"), thought("", &[("d", "read")])]);
        assert_eq!(calls(&journal), ["d"]);
    }

    #[test]
    fn a_call_that_was_begun_runs_again_unless_it_acts() {
        for (tool, effect) in [("read", Effect::Reads), ("write", Effect::Writes)] {
            let journal = [heard(1, "hi"), thought("", &[("a", tool)]), called("a", effect)];

            assert_eq!(calls(&journal), ["a"]);
        }

        let asked = thought("", &[("a", "act")]);
        let journal = [heard(1, "hi"), asked, called("a", Effect::Acts)];

        assert_eq!(step(&journal), Step::Unknown(&call("a", "act")));
    }

    #[test]
    fn of_two_declared_effects_the_graver_one_counts() {
        let then = [heard(1, ""), thought("", &[("a", "read")]), called("a", Effect::Acts)];
        let now = [heard(1, ""), thought("", &[("a", "act")]), called("a", Effect::Reads)];

        assert_eq!(step(&then), Step::Unknown(&call("a", "read")));
        assert_eq!(step(&now), Step::Unknown(&call("a", "act")));
    }

    /// A message of a client with tools of its own.
    fn heard_with_tools(seq: i64, tools: &[&str]) -> Entry {
        let tool = |name: &&str| ClientTool {
            name: (*name).to_owned(),
            description: String::new(),
            parameters: serde_json::json!({}),
            strict: false,
        };
        let tools = tools.iter().map(tool).collect();
        let options = holdfast_types::AnswerOptions { tools, ..Default::default() };
        let body = holdfast_types::Body {
            answer_options: Some(Box::new(options)),
            ..holdfast_types::Body::text("hi")
        };
        Entry::Heard { seq, body }
    }

    #[test]
    fn the_agents_own_calls_come_first_and_the_clients_are_handed_over_together() {
        let mut journal = vec![
            heard_with_tools(1, &["look", "ask"]),
            thought("", &[("a", "look"), ("b", "act"), ("c", "ask")]),
        ];
        assert_eq!(calls(&journal), ["b"]);

        journal.push(returned("b"));
        assert_eq!(step(&journal), Step::HandOver(vec![&call("a", "look"), &call("c", "ask")]));

        journal.push(noted(Note::HandedOver));
        assert_eq!(step(&journal), Step::Rest);

        journal.push(heard_with_tools(2, &["look"]));
        assert_eq!(step(&journal), Step::Think);
    }

    #[test]
    fn calls_of_a_client_count_towards_no_limit() {
        let many = [("a", "look"), ("b", "look"), ("c", "look"), ("d", "look"), ("e", "look")];
        let journal = [heard_with_tools(1, &["look"]), thought("", &many)];

        let Step::HandOver(handed) = step(&journal) else { panic!("{:?}", step(&journal)) };
        assert_eq!(handed.len(), many.len());
        assert!(new_calls(&journal, LIMITS).is_empty());
    }

    fn about(note: Note, call: &str) -> Entry {
        Entry::noted(note, call)
    }

    #[test]
    fn a_call_that_a_person_was_asked_about_waits_and_is_made_once_it_is_allowed() {
        let mut journal = vec![
            heard(1, "hi"),
            thought("", &[("a", "read"), ("b", "act"), ("c", "act")]),
            about(Note::Asked, "b"),
            about(Note::Asked, "c"),
        ];
        assert_eq!(calls(&journal), ["a"]);
        assert_eq!(calls_awaiting_approval(&journal), [&call("b", "act"), &call("c", "act")]);
        assert_eq!(new_calls(&journal, LIMITS), [&call("a", "read")]);

        journal.push(returned("a"));
        assert_eq!(step(&journal), Step::Await(vec![&call("b", "act"), &call("c", "act")]));

        journal.push(about(Note::Allowed, "b"));
        assert_eq!(calls(&journal), ["b"]);
        assert!(is_allowed(&journal, "b") && !is_allowed(&journal, "c"));

        journal.extend([called("b", Effect::Acts)]);
        assert_eq!(step(&journal), Step::Unknown(&call("b", "act")));

        journal.push(returned("b"));
        assert_eq!(step(&journal), Step::Await(vec![&call("c", "act")]));

        journal.push(returned("c"));
        assert_eq!(step(&journal), Step::Think);
    }

    #[test]
    fn nobody_is_asked_about_calls_that_are_past_a_limit() {
        let three = [("a", "act"), ("b", "act"), ("c", "act")];
        let journal = [heard(1, "hi"), thought("", &three)];

        for limits in [Limits { calls: 2, at_once: 3 }, Limits { calls: 9, at_once: 2 }] {
            assert_eq!(new_calls(&journal, limits), [&call("a", "act"), &call("b", "act")]);
        }
    }

    #[test]
    fn a_word_on_a_call_is_for_that_call_of_that_thought_alone() {
        let journal = [
            heard(1, "hi"),
            thought("", &[("a", "act")]),
            about(Note::Asked, "a"),
            about(Note::Allowed, "a"),
            called("a", Effect::Acts),
            returned("a"),
            thought("", &[("a", "act")]),
        ];

        assert!(!is_allowed(&journal, "a"));
        assert_eq!(new_calls(&journal, LIMITS), [&call("a", "act")]);
        let ended = [&journal[..2], &[about(Note::Asked, "a"), noted(Note::Cancelled)]].concat();
        assert_eq!((step(&ended), calls_awaiting_approval(&ended)), (Step::Rest, Vec::new()));
    }

    #[test]
    fn an_id_used_again_in_a_later_thought_is_another_call() {
        let journal = [
            heard(1, "hi"),
            thought("", &[("a", "act")]),
            called("a", Effect::Acts),
            returned("a"),
            thought("", &[("a", "act")]),
        ];

        assert_eq!(calls(&journal), ["a"]);
    }

    #[test]
    fn what_is_heard_in_the_midst_of_a_turn_waits_for_the_calls() {
        let mut journal =
            vec![heard(1, "hi"), thought("", &[("a", "read")]), heard(2, "and hurry")];
        assert_eq!(calls(&journal), ["a"]);

        journal.push(returned("a"));
        assert_eq!(step(&journal), Step::Think);

        journal.push(thought("done", &[]));
        assert_eq!(step(&journal), Step::Rest);
    }

    #[test]
    fn what_is_only_overheard_asks_for_nothing() {
        assert_eq!(step(&[overheard(1, "psst")]), Step::Rest);
        assert_eq!(step(&[overheard(1, "psst"), heard(2, "you!")]), Step::Think);
        assert_eq!(step(&[heard(1, "a"), thought("A", &[]), overheard(2, "b")]), Step::Rest);
    }

    #[test]
    fn a_note_that_ends_a_turn_leaves_its_calls_behind() {
        for note in [Note::Interrupted, Note::Cancelled, Note::Failed] {
            let mut journal = vec![heard(1, "hi"), thought("", &[("a", "read")]), noted(note)];
            assert_eq!(step(&journal), Step::Rest);

            journal.push(heard(2, "again"));
            assert_eq!(step(&journal), Step::Think);
        }
    }

    #[test]
    fn a_deadline_that_passed_asks_for_an_answer_and_a_summary_does_not() {
        let spoke = [heard(1, "hi"), thought("done", &[])];

        assert_eq!(step(&[&spoke[..], &[noted(Note::DeadlinePassed)]].concat()), Step::Think);
        assert_eq!(step(&[&spoke[..], &[noted(Note::Summary)]].concat()), Step::Rest);
    }

    #[test]
    fn what_is_called_while_memory_is_written_down_is_made_and_counts_for_nothing_after() {
        let mut journal = vec![heard(1, "hi"), thought("", &[("a", "read")]), returned("a")];
        journal.push(noted(Note::Flush));
        assert_eq!(step(&journal), Step::Think);

        journal.push(thought("", &[("b", "write"), ("c", "write"), ("d", "write")]));
        assert_eq!(calls(&journal), ["b"]);
        journal.extend([returned("b"), returned("c"), returned("d")]);
        assert_eq!(step(&journal), Step::Think);

        journal.push(noted(Note::Flushed));
        assert_eq!(step(&journal), Step::Think);
        journal.push(thought("", &[("e", "act"), ("f", "act")]));
        assert_eq!(calls(&journal), ["e"]);
        journal.extend([returned("e"), returned("f"), thought("done", &[])]);
        assert_eq!(step(&journal), Step::Rest);
    }

    #[test]
    fn a_turn_that_is_cancelled_while_memory_is_written_down_rests() {
        let begun = [heard(1, "hi"), noted(Note::Flush), thought("", &[("a", "write")])];

        let ended = [&begun[..], &[noted(Note::Cancelled)]].concat();

        assert_eq!(step(&ended), Step::Rest);
        assert_eq!(step(&[&ended[..], &[heard(2, "again")]].concat()), Step::Think);
    }

    #[test]
    fn calls_past_the_limit_are_refused_and_the_model_answers_without_tools() {
        let mut journal = vec![heard(1, "hi")];
        for id in ["a", "b", "c"] {
            journal.extend([thought("", &[(id, "read")]), returned(id)]);
        }
        journal.push(thought("", &[("d", "read"), ("e", "act"), ("f", "read")]));
        assert_eq!(calls(&journal), ["d"]);

        journal.push(returned("d"));
        assert_eq!(
            step(&journal),
            Step::Refuse(vec![&call("e", "act"), &call("f", "read")], Limit::Turn)
        );

        journal.push(returned("e"));
        assert_eq!(step(&journal), Step::Refuse(vec![&call("f", "read")], Limit::Turn));

        journal.push(returned("f"));
        assert_eq!(step(&journal), Step::ThinkWithoutTools);

        journal.push(thought("", &[("g", "read")]));
        assert_eq!(step(&journal), Step::Halt);

        journal.extend([noted(Note::Failed), heard(2, "and now?")]);
        assert_eq!(step(&journal), Step::Think);
    }

    #[test]
    fn calls_past_the_limit_of_one_thought_are_refused_and_asked_for_again() {
        let mut journal = vec![
            heard(1, "hi"),
            thought(
                "",
                &[("a", "read"), ("b", "read"), ("c", "read"), ("d", "act"), ("e", "read")],
            ),
        ];
        assert_eq!(calls(&journal), ["a", "b", "c"]);

        journal.extend([returned("a"), returned("b"), returned("c")]);
        assert_eq!(
            step(&journal),
            Step::Refuse(vec![&call("d", "act"), &call("e", "read")], Limit::Thought)
        );

        journal.extend([returned("d"), returned("e")]);
        assert_eq!(step(&journal), Step::Think);

        journal.push(thought("", &[("d", "act"), ("e", "read")]));
        assert_eq!(calls(&journal), ["d"]);
        journal.push(returned("d"));
        assert_eq!(step(&journal), Step::Refuse(vec![&call("e", "read")], Limit::Turn));
        journal.push(returned("e"));
        assert_eq!(step(&journal), Step::ThinkWithoutTools);
    }

    #[test]
    fn a_limit_of_none_at_once_still_comes_to_an_end() {
        let limits = Limits { calls: 1, at_once: 0 };
        let mut journal = vec![heard(1, "hi")];
        for _ in 0..2 {
            journal.extend([thought("", &[("a", "read")]), returned("a")]);
        }

        assert_eq!(next(&journal, limits, effect_of), Step::ThinkWithoutTools);
        journal.push(thought("", &[("a", "read")]));
        assert_eq!(next(&journal, limits, effect_of), Step::Halt);
    }

    #[test]
    fn what_came_of_a_commands_call_is_the_answer_unless_somebody_spoke_since() {
        let mut journal = vec![
            heard(1, "/weather Rome"),
            about(Note::Dispatched, "weather"),
            thought("", &[("command", "read")]),
        ];
        assert_eq!(calls(&journal), ["command"]);

        journal.push(returned("command"));
        let came = CallResult { output: "result of command", failed: false };
        assert_eq!(step(&journal), Step::Answer(&call("command", "read"), came));
        let overheard = [journal.clone(), vec![overheard(2, "psst")]].concat();
        assert!(matches!(step(&overheard), Step::Answer(..)));

        journal.push(heard(2, "and Paris?"));
        assert_eq!(step(&journal), Step::Think);
        journal.extend([thought("", &[("b", "read")]), returned("b")]);
        assert_eq!(step(&journal), Step::Think);
    }

    #[test]
    fn a_commands_call_that_acts_waits_for_a_word_and_is_unknown_after_a_crash_as_every_call() {
        let command = vec![
            heard(1, "/send hi"),
            about(Note::Dispatched, "send"),
            thought("", &[("command", "act")]),
        ];

        let asked = [command.clone(), vec![about(Note::Asked, "command")]].concat();
        assert_eq!(step(&asked), Step::Await(vec![&call("command", "act")]));
        let begun = [command, vec![called("command", Effect::Acts)]].concat();
        assert_eq!(step(&begun), Step::Unknown(&call("command", "act")));
        let denied = [asked, vec![Entry::returned("command", "no", true)]].concat();
        let came = CallResult { output: "no", failed: true };
        assert_eq!(step(&denied), Step::Answer(&call("command", "act"), came));
    }

    #[test]
    fn the_last_call_within_the_limit_still_leads_to_a_thought_with_tools() {
        let mut journal = vec![heard(1, "hi")];
        for id in ["a", "b", "c", "d"] {
            journal.extend([thought("", &[(id, "read")]), returned(id)]);
        }

        assert_eq!(step(&journal), Step::Think);
    }

    /// Scripted run: the model's calls, the messages, and the losses of runners.
    #[derive(Debug, Clone)]
    struct Life {
        thoughts: Vec<Vec<&'static str>>,
        /// Numbers of the appends at which a runner crashes and another takes over.
        crashes: BTreeSet<usize>,
        /// Numbers of the appends at which a message arrives.
        steers: BTreeSet<usize>,
        /// Whether calls that act need an approval.
        asks: bool,
    }

    fn life() -> impl Strategy<Value = Life> {
        let tool = prop_oneof![Just("read"), Just("write"), Just("act")];
        let thoughts = prop::collection::vec(prop::collection::vec(tool, 0..6), 0..8);
        let places = || prop::collection::btree_set(0_usize..60, 0..12);
        (thoughts, places(), places(), any::<bool>())
            .prop_map(|(thoughts, crashes, steers, asks)| Life { thoughts, crashes, steers, asks })
    }

    /// Executes a scripted run to its end and checks the invariants after each step.
    fn live(life: &Life) -> Vec<Entry> {
        let mut journal = vec![heard(1, "begin")];
        let mut thoughts = life.thoughts.iter();
        let mut seq = 1;
        for _ in 0..400 {
            let before = journal.len();
            let lost = |journal: &[Entry]| life.crashes.contains(&journal.len());
            let appended: Vec<Entry> = match step(&journal) {
                Step::Rest => return journal,
                Step::Think | Step::ThinkWithoutTools => {
                    let ids = ["a", "b", "c", "d", "e"];
                    let wanted = thoughts.next().cloned().unwrap_or_default();
                    let wanted: Vec<_> = ids.into_iter().zip(wanted).collect();
                    vec![thought("", &wanted)]
                }
                Step::Call(batch)
                    if life.asks
                        && batch[0].tool == "act"
                        && !is_allowed(&journal, &batch[0].id) =>
                {
                    let new = new_calls(&journal, LIMITS);
                    let act = new.iter().filter(|call| call.tool == "act");
                    act.map(|call| about(Note::Asked, &call.id)).collect()
                }
                Step::Await(waiting) => match lost(&journal) {
                    true => vec![returned(&waiting[0].id)],
                    false => vec![about(Note::Allowed, &waiting[0].id)],
                },
                Step::Call(batch) => {
                    let mut appended: Vec<Entry> =
                        batch.iter().map(|c| called(&c.id, effect_of(&c.tool))).collect();
                    for call in &batch {
                        let begun = journal.iter().rev().take_while(|e| !is_thought(e));
                        let acts = begun.clone().any(|e| *e == called(&call.id, Effect::Acts));
                        assert!(!acts, "a call that acts was begun twice");
                    }
                    assert!(batch.len() == 1 || batch.iter().all(|call| call.tool == "read"));
                    if !lost(&journal) {
                        appended.extend(batch.iter().map(|call| returned(&call.id)));
                    }
                    appended
                }
                Step::Unknown(call) => vec![returned(&call.id)],
                Step::Refuse(calls, _) => calls.iter().map(|call| returned(&call.id)).collect(),
                Step::Answer(..) => panic!("no command was given"),
                Step::HandOver(..) => panic!("no client gave tools"),
                Step::Halt => vec![noted(Note::Failed)],
            };
            journal.extend(appended);
            if (before..journal.len()).any(|at| life.steers.contains(&at)) {
                seq += 1;
                journal.push(heard(seq, "steer"));
            }
        }
        panic!("it never rests");
    }

    fn is_thought(entry: &Entry) -> bool {
        matches!(entry, Entry::Thought { .. })
    }

    proptest! {
        #[test]
        fn every_life_rests_with_one_result_for_each_call_and_none_acted_twice(life in life()) {
            let journal = live(&life);

            for (at, entry) in journal.iter().enumerate() {
                let Entry::Thought { calls, .. } = entry else { continue };
                let rest = &journal[at + 1..];
                let until = rest.iter().position(|e| is_thought(e) || turn::ends(e));
                let own = &rest[..until.unwrap_or(rest.len())];
                let halted = until.is_some_and(|until| !is_thought(&rest[until]));
                for call in calls {
                    let results = own.iter().filter(|e| **e == returned(&call.id)).count();
                    prop_assert!(results == 1 || (halted && results == 0), "{call:?}: {results}");
                }
            }
        }

        #[test]
        fn at_no_prefix_is_a_call_issued_that_returned_or_that_began_to_act(life in life(), at in 0_usize..80) {
            let journal = live(&life);
            let prefix = &journal[..at.min(journal.len())];

            if let Step::Call(batch) = step(prefix) {
                let since: Vec<_> = prefix.iter().rev().take_while(|e| !is_thought(e)).collect();
                for call in batch {
                    prop_assert!(!since.contains(&&called(&call.id, Effect::Acts)));
                    prop_assert!(!since.contains(&&returned(&call.id)));
                }
            }
        }
    }
}
