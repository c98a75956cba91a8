//! Tests of payloads: parsing and validation.

use super::*;

fn read(json: &str) -> Result<Payload, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[test]
fn a_payload_is_written_as_the_seed_writes_it() {
    let turn = r#"{"kind":"agentTurn","message":"look","model":"m","timeout_seconds":60,"deliver":false,"channel":"telegram","to":"42","best_effort_deliver":true}"#;
    assert_eq!(serde_json::to_string(&read(turn).unwrap()).unwrap(), turn);

    let event = read(r#"{"kind":"systemEvent","text":"tea"}"#).unwrap();
    assert_eq!(serde_json::to_string(&event).unwrap(), r#"{"kind":"systemEvent","message":"tea"}"#);
    let told = read(r#"{"kind":"agentTurn","message":"look"}"#).unwrap();
    assert_eq!(told, Payload::AgentTurn(AgentTurn::new("look")));
    let fixed = r#"{"kind":"message","message":"tea","session":"agent:main:api:a"}"#;
    assert_eq!(serde_json::to_string(&read(fixed).unwrap()).unwrap(), fixed);
}

#[test]
fn what_a_payload_does_not_have_is_refused() {
    for json in [
        r#"{"kind":"systemEvent","message":"a","model":"m"}"#,
        r#"{"kind":"agentTurn","message":"a","shell":"rm"}"#,
        r#"{"kind":"agentTurn"}"#,
        r#"{"kind":"command","message":"a"}"#,
    ] {
        assert!(read(json).is_err(), "{json}");
    }
}

#[test]
fn the_main_session_takes_events_and_an_isolated_one_turns() {
    let event = Payload::SystemEvent { message: "a".to_owned() };
    let turn = Payload::AgentTurn(AgentTurn::new("a"));
    let fixed = Payload::Message(FixedMessage { message: "a".to_owned(), session: None });

    assert_eq!(event.check(SessionTarget::Main), Ok(()));
    assert_eq!(fixed.check(SessionTarget::Main), Ok(()));
    assert_eq!(fixed.check(SessionTarget::Isolated), Err(Error::IsolatedTakesTurns));
    assert_eq!(turn.check(SessionTarget::Isolated), Ok(()));
    assert_eq!(
        turn.check(SessionTarget::Main).unwrap_err().to_string(),
        "main session must use systemEvent payload"
    );
    assert_eq!(
        event.check(SessionTarget::Isolated).unwrap_err().to_string(),
        "isolated session must use agentTurn payload"
    );
}

#[test]
fn what_says_nothing_or_too_much_is_refused_without_repeating_it() {
    for (message, told) in [(" \n", "empty"), (&*"x".repeat(16_001), "16001 characters long")] {
        let event = Payload::SystemEvent { message: message.to_owned() };
        let error = event.check(SessionTarget::Main).unwrap_err().to_string();
        assert!(error.contains(told) && error.len() < 120, "{error}");
    }
    let endless = AgentTurn { timeout_seconds: 0, ..AgentTurn::new("a") };
    assert!(Payload::AgentTurn(endless).check(SessionTarget::Isolated).is_err());
    let nowhere = AgentTurn { channel: String::new(), ..AgentTurn::new("a") };
    assert!(Payload::AgentTurn(nowhere).check(SessionTarget::Isolated).is_err());
}

#[test]
fn the_main_session_is_told_the_summary_or_all_of_it_and_no_more_than_it_may_be() {
    let summary = Isolation::default();
    let full = Isolation {
        post_to_main_prefix: "明天".to_owned(),
        post_to_main_mode: PostMode::Full,
        post_to_main_max_chars: 3,
    };

    assert_eq!(summary.post(" done ", "all of it").unwrap(), "Cron: done");
    assert_eq!(summary.post("", "all of it").unwrap(), "Cron: all of it");
    assert_eq!(full.post("done", "一二三四").unwrap(), "明天: 一二三…");
    assert_eq!(full.post("done", " "), None);
    let read: Isolation = serde_json::from_str(r#"{"postToMainMode":"full"}"#).unwrap();
    assert_eq!(read, Isolation { post_to_main_mode: PostMode::Full, ..Isolation::default() });
    assert!(serde_json::from_str::<Isolation>(r#"{"prefix":"a"}"#).is_err());
}
