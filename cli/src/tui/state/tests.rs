//! Tests of the state: what keys and events change.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use holdfast_proto::gateway::v1::{
    Done, Outcome, StepStarted, TextDelta, ToolEnded, ToolStarted, run_event::Event,
};

use super::*;

fn state() -> State {
    State::new("main".to_owned(), "agent:main:main".to_owned())
}

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

fn control(c: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)
}

fn press(state: &mut State, code: KeyCode) -> Vec<Effect> {
    state.key(key(code), Instant::now())
}

fn enter(state: &mut State, text: &str) -> Vec<Effect> {
    state.input.insert(text);
    press(state, KeyCode::Enter)
}

fn tell(state: &mut State, event: Event) -> Vec<Effect> {
    state.update(Update::Event(Box::new(RunEvent { event: Some(event), ..RunEvent::default() })))
}

fn text(text: &str) -> Event {
    Event::Text(TextDelta { text: text.to_owned() })
}

fn done(text: &str) -> Event {
    let outcome = Outcome::Completed.into();
    Event::Done(Done { outcome, text: text.to_owned(), ..Done::default() })
}

fn items(state: &State) -> Vec<Item> {
    state.blocks.iter().map(|block| block.item.clone()).collect()
}

fn asked(id: &str) -> ApprovalRequested {
    ApprovalRequested { approval_id: id.to_owned(), ..ApprovalRequested::default() }
}

#[test]
fn an_answer_is_shown_as_it_is_written_with_its_tools() {
    let mut state = state();

    assert_eq!(enter(&mut state, "go"), [Effect::Send("go".to_owned())]);
    tell(&mut state, Event::StepStarted(StepStarted { again: false }));
    tell(&mut state, text("I look. "));
    let (call_id, tool) = ("c1".to_owned(), "read".to_owned());
    tell(&mut state, Event::ToolStarted(ToolStarted { call_id: call_id.clone(), tool }));
    tell(&mut state, Event::ToolEnded(ToolEnded { call_id, failed: true }));
    tell(&mut state, Event::StepStarted(StepStarted { again: false }));
    tell(&mut state, text("Hel"));
    tell(&mut state, done("Hello"));

    assert_eq!(
        items(&state),
        [
            Item::User("go".to_owned()),
            Item::Agent("I look. ".to_owned()),
            Item::Tool { id: "c1".to_owned(), name: "read".to_owned(), state: ToolState::Failed },
            Item::Agent("Hello".to_owned()),
        ]
    );
    assert!(state.turn.is_none());
}

#[test]
fn a_step_that_begins_anew_or_is_repeated_is_shown_once() {
    let mut state = state();
    enter(&mut state, "go");
    tell(&mut state, Event::StepStarted(StepStarted { again: false }));
    tell(&mut state, text("Hel"));
    tell(&mut state, Event::StepStarted(StepStarted { again: true }));
    tell(&mut state, text("Goo"));
    state.update(Update::Lost);
    tell(&mut state, text("Good"));

    let effects = tell(&mut state, done("Good day"));

    assert_eq!(items(&state)[1..], [Item::Agent("Good day".to_owned())]);
    assert_eq!(effects, [Effect::LoadHistory], "what was missed is in the journal");
}

#[test]
fn an_approval_is_decided_by_a_key_but_not_by_one_that_was_meant_as_text() {
    let mut state = state();
    enter(&mut state, "go");
    tell(&mut state, Event::ApprovalRequested(asked("apr_1")));
    tell(&mut state, Event::ApprovalRequested(asked("apr_1")));
    assert_eq!(state.approvals.len(), 1);

    let early = state.key(key(KeyCode::Char('y')), Instant::now());
    assert_eq!((early, state.input.is_empty()), (Vec::new(), true));
    let later = Instant::now() + APPROVAL_DELAY;
    state.input.insert("why");
    assert_eq!(state.key(key(KeyCode::Char('y')), later), []);
    state.key(control('u'), later);
    let decided = state.key(key(KeyCode::Char('a')), later);

    assert_eq!(decided, [Effect::Decide("apr_1".to_owned(), Decision::AllowAlways)]);
    assert!(state.approvals.is_empty());
}

#[test]
fn escape_stops_a_turn_and_does_nothing_without_one() {
    let mut state = state();
    assert_eq!(press(&mut state, KeyCode::Esc), []);
    enter(&mut state, "go");
    assert_eq!(press(&mut state, KeyCode::Esc), [Effect::Cancel]);
    let outcome = Outcome::Cancelled.into();
    tell(&mut state, Event::Done(Done { outcome, ..Done::default() }));
    assert_eq!(items(&state)[1..], [Item::Note("the turn was stopped".to_owned())]);
}

#[test]
fn a_message_to_a_running_turn_is_followed_after_it() {
    let mut state = state();
    enter(&mut state, "one");

    assert_eq!(enter(&mut state, "two"), [Effect::Queue("two".to_owned())]);
    state.update(Update::Queued("msg_2".to_owned()));
    // The history came too late to be shown.
    state.update(Update::History(Vec::new()));
    assert_eq!(tell(&mut state, done("1")), [Effect::Follow("msg_2".to_owned())]);
    assert_eq!(tell(&mut state, done("2")), [Effect::LoadHistory]);
}

#[test]
fn what_others_write_into_the_session_appears() {
    let mut state = state();
    let poll = |newest| Update::Polled(Poll { newest, ..Poll::default() });
    assert_eq!(state.update(poll(0)), []);
    assert_eq!(state.update(poll(3)), [Effect::LoadHistory]);
    let entry = |seq, kind: &str, text: &str, detail: &str| Entry {
        seq,
        kind: kind.to_owned(),
        text: text.to_owned(),
        detail: detail.to_owned(),
        ..Entry::default()
    };
    let calls = r#"{"calls": [{"id": "c1", "tool": "read", "input": "{}"}]}"#;
    state.update(Update::History(vec![
        entry(1, "heard", "hi", "{}"),
        entry(2, "thought", "", calls),
        entry(3, "returned", "…", r#"{"call": "c1", "failed": false}"#),
    ]));

    let tool = Item::Tool { id: "c1".to_owned(), name: "read".to_owned(), state: ToolState::Done };
    assert_eq!(items(&state), [Item::User("hi".to_owned()), tool]);
    assert_eq!(state.update(poll(3)), []);
}

#[test]
fn another_session_is_chosen_from_the_list() {
    let mut state = state();
    assert_eq!(press(&mut state, KeyCode::Tab), [Effect::LoadSessions]);
    let session = |key: &str, agent: &str| Session {
        key: key.to_owned(),
        agent: agent.to_owned(),
        ..Session::default()
    };
    state.update(Update::Sessions(vec![
        session("agent:main:main", "main"),
        session("agent:coach:main", "coach"),
    ]));
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Down);

    assert_eq!(press(&mut state, KeyCode::Enter), [Effect::Opened]);
    assert_eq!((state.agent.as_str(), state.session.as_str()), ("coach", "agent:coach:main"));
    assert!(state.list.is_none() && state.blocks.is_empty());
}

#[test]
fn a_key_with_shift_or_alt_begins_a_line() {
    let mut state = state();
    state.input.insert("a");
    state.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::ALT), Instant::now());
    state.key(control('j'), Instant::now());
    state.input.insert("b");

    assert_eq!(press(&mut state, KeyCode::Enter), [Effect::Send("a\n\nb".to_owned())]);
    assert_eq!(state.key(control('c'), Instant::now()), [Effect::Quit]);
}
