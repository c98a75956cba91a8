//! The state machine against a table of cases and a reference model.

use holdfast_types::{MessageFilter, MessageId};
use proptest::prelude::*;

use super::*;

const KNOWN: [&str; 5] = ["resolve_router", "plan", "do", "check", "adjust"];

fn exists(name: &BehaviorName) -> bool {
    KNOWN.iter().any(|known| known.eq_ignore_ascii_case(name.base()))
}

fn name(text: &str) -> BehaviorName {
    text.parse().unwrap()
}

fn at(behavior: &str, step: u32) -> BehaviorState {
    BehaviorState { step, ..BehaviorState::new(name(behavior)) }
}

/// Returns behaviour, step and action after a step of a behaviour with this limit and fallback.
fn after(
    state: &BehaviorState,
    (step_limit, fallback): (u32, Option<&str>),
    next: Option<&str>,
) -> (String, u32, NextAction) {
    let default = name("resolve_router");
    let rules = BehaviorRules { step_limit, fallback, default: &default, exists: &exists };
    let Transition { state, action } = advance(state, &rules, next, "done so far".into());
    (state.behavior.to_string(), state.step, action)
}

#[test]
fn a_result_names_what_follows() {
    let here = at("do:todo=T001", 2);
    let anything = NextAction::Wait(WaitKind::Anything);
    for (next, behavior, step, action) in [
        (None, "do:todo=T001", 3, NextAction::Continue),
        (Some(" "), "do:todo=T001", 3, NextAction::Continue),
        (Some("DO"), "do:todo=T001", 3, NextAction::Continue),
        (Some("Do:todo=T001"), "do:todo=T001", 3, NextAction::Continue),
        (Some("DO:todo=T002"), "DO:todo=T002", 0, NextAction::Continue),
        (Some("CHECK"), "CHECK", 0, NextAction::Continue),
        (Some("wait"), "do:todo=T001", 2, anything),
        (Some("WAIT_FOR_MSG:yes"), "do:todo=T001", 2, NextAction::Wait(WaitKind::Message)),
        (Some("wait_for_event"), "do:todo=T001", 2, NextAction::Wait(WaitKind::Event)),
        (Some("END"), "resolve_router", 0, NextAction::End),
        (Some("done"), "resolve_router", 0, NextAction::End),
        (Some("FLY"), "do:todo=T001", 3, NextAction::Continue),
        (Some("no name at all"), "do:todo=T001", 3, NextAction::Continue),
    ] {
        let found = after(&here, (0, None), next);
        assert_eq!(found, (behavior.to_owned(), step, action), "{next:?}");
    }
}

#[test]
fn a_step_beyond_the_limit_leads_to_the_fallback_else_the_session_waits() {
    let waits = NextAction::Wait(WaitKind::Anything);
    for (step, limit, fallback, behavior, next, action) in [
        (15, 16, None, "plan", 16, NextAction::Continue),
        (16, 16, None, "resolve_router", 0, waits),
        (16, 16, Some("adjust"), "adjust", 0, NextAction::Continue),
        (16, 16, Some("nowhere"), "resolve_router", 0, waits),
        (16, 16, Some("PLAN"), "resolve_router", 0, waits),
        (u32::MAX, 0, None, "plan", u32::MAX, NextAction::Continue),
    ] {
        let found = after(&at("plan", step), (limit, fallback), None);
        assert_eq!(found, (behavior.to_owned(), next, action), "{step} of {limit}, {fallback:?}");
    }
}

#[test]
fn a_behaviour_that_does_not_exist_is_told_once_and_then_left() {
    let default = name("resolve_router");
    let rules = BehaviorRules {
        step_limit: 0,
        fallback: Some("adjust"),
        default: &default,
        exists: &exists,
    };

    let first = advance(&at("do", 0), &rules, Some("FLY"), String::new());
    let again = advance(&first.state, &rules, Some("SWIM"), String::new());
    let mended = advance(&first.state, &rules, Some("check"), String::new());

    assert!(first.state.observation.contains("`FLY`"), "{}", first.state.observation);
    assert_eq!((first.state.behavior.base(), first.state.step), ("do", 1));
    assert_eq!((again.state.behavior.base(), again.action), ("adjust", NextAction::Continue));
    assert!(again.state.observation.contains("`SWIM`"));
    assert_eq!((mended.state.unknown_names, mended.state.observation.as_str()), (0, ""));
}

#[test]
fn an_end_forgets_the_step_and_the_next_turn_begins_with_the_default() {
    let default = name("resolve_router");
    let rules = BehaviorRules { step_limit: 0, fallback: None, default: &default, exists: &exists };
    let first = RunId::from(MessageId::generate());
    let begun = at("check", 4).in_run(first, &default);

    let ended = advance(&begun, &rules, Some("END"), "all is well".into()).state;
    let other = ended.clone().in_run(RunId::from(MessageId::generate()), &name("plan"));

    assert!(ended.ended && ended.last_step.is_empty());
    assert_eq!(ended.run.steps, 1);
    assert_eq!(ended.clone().in_run(first, &default), ended);
    assert_eq!((other.behavior.base(), other.ended, other.run.steps), ("plan", false, 0));
}

#[test]
fn a_wait_has_the_filter_and_the_deadline_of_the_result() {
    let about = |event: Option<&str>, deadline_ms| WaitDetails {
        filter: MessageFilter { event: event.map(str::to_owned), ..MessageFilter::default() },
        deadline_ms,
        note: String::new(),
    };

    assert_eq!(WaitKind::Anything.wait(None), Wait::Anything);
    assert_eq!(WaitKind::Anything.wait(Some(&about(None, None))), Wait::Anything);
    let timed = WaitKind::Anything.wait(Some(&about(None, Some(5))));
    assert!(matches!(timed, Wait::Message { deadline_ms: Some(5), .. }), "{timed:?}");
    let todo = WaitKind::Anything.wait(Some(&about(Some("todo.*"), None)));
    assert!(matches!(todo, Wait::Event { .. }), "{todo:?}");
    assert!(matches!(WaitKind::Message.wait(None), Wait::Message { deadline_ms: None, .. }));
    assert!(matches!(WaitKind::Event.wait(None), Wait::Event { .. }));
}

#[test]
fn what_an_older_version_stored_is_read() {
    let read: BehaviorState = serde_json::from_str(r#"{"behavior":"DO:todo=T1"}"#).unwrap();

    assert_eq!(read, BehaviorState::new(name("DO:todo=T1")));
    let stored = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<BehaviorState>(&stored).unwrap(), read);
}

/// The same rules, written as a table of words, without types.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reference {
    base: String,
    params: String,
    step: u32,
    strikes: u32,
    hops: u32,
    rests: bool,
    over: bool,
}

impl Reference {
    fn go(&mut self, word: Option<&str>, limit: u32, fallback: Option<&str>) {
        (self.rests, self.over) = (false, false);
        let word = word.unwrap_or_default();
        let (base, params) = word.split_once(':').unwrap_or((word, ""));
        let upper = base.to_uppercase();
        let is_known = KNOWN.contains(&base.to_lowercase().as_str());
        let is_word = word.is_empty() || is_known;
        if ["WAIT", "WAIT_FOR_MSG", "WAIT_FOR_EVENT"].contains(&upper.as_str()) {
            (self.rests, self.strikes) = (true, 0);
        } else if ["END", "DONE"].contains(&upper.as_str()) {
            *self =
                Self { strikes: 0, rests: true, over: true, ..self.moved("resolve_router", "") };
            self.hops -= 1;
        } else if is_known
            && (base.to_lowercase() != self.base.to_lowercase()
                || (!params.is_empty() && params != self.params))
        {
            *self = Self { strikes: 0, ..self.moved(base, params) };
        } else {
            self.strikes = if is_word { 0 } else { self.strikes + 1 };
            let leaves = self.strikes == 2 || (limit > 0 && self.step + 1 > limit);
            if self.strikes == 2 {
                self.strikes = 0;
            }
            match fallback
                .filter(|to| KNOWN.contains(to) && to.to_lowercase() != self.base.to_lowercase())
            {
                _ if !leaves => self.step += 1,
                Some(to) => *self = self.moved(to, ""),
                None => *self = Self { rests: true, ..self.moved("resolve_router", "") },
            }
        }
    }

    fn moved(&self, base: &str, params: &str) -> Self {
        let (base, params) = (base.to_owned(), params.to_owned());
        Self { base, params, step: 0, hops: self.hops + 1, ..self.clone() }
    }
}

fn word() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![
        None,
        Some("WAIT"),
        Some("WAIT_FOR_MSG"),
        Some("wait_for_event"),
        Some("END"),
        Some("DONE"),
        Some("plan"),
        Some("PLAN"),
        Some("do"),
        Some("DO:todo=T001"),
        Some("do:todo=T002"),
        Some("check"),
        Some("adjust"),
        Some("fly"),
        Some("swim"),
    ])
}

proptest! {
    #[test]
    fn every_course_is_that_of_the_reference_model(
        words in prop::collection::vec(word(), 0..60),
        limit in 0_u32..4,
        fallback in prop::sample::select(vec![None, Some("adjust"), Some("nowhere")]),
    ) {
        let default = name("resolve_router");
        let rules =
            BehaviorRules { step_limit: limit, fallback, default: &default, exists: &exists };
        let mut state = BehaviorState::new(default.clone());
        let mut reference = Reference {
            base: "resolve_router".into(),
            params: String::new(),
            step: 0,
            strikes: 0,
            hops: 0,
            rests: false,
            over: false,
        };
        for (at, word) in words.into_iter().enumerate() {
            let Transition { state: next, action } =
                advance(&state, &rules, word, String::new());
            reference.go(word, limit, fallback);

            let params = next.behavior.params();
            let params: Vec<_> = params.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let found = Reference {
                base: next.behavior.base().to_owned(),
                params: params.join(","),
                step: next.step,
                strikes: next.unknown_names,
                hops: next.run.hops,
                rests: action != NextAction::Continue,
                over: action == NextAction::End,
            };
            prop_assert_eq!(&found, &reference, "{} {:?}", at, word);
            prop_assert_eq!(next.ended, reference.over);
            prop_assert_eq!(next.run.steps, u32::try_from(at).unwrap() + 1);
            prop_assert!(limit == 0 || next.step <= limit);
            state = BehaviorState { ended: false, ..next };
        }
    }
}
