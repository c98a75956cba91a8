//! Tests that the judge accepts a history without faults and finds each kind of broken promise.

use std::time::{Duration, Instant};

use super::*;

const GRPC: Client = Client { tenant: 0, number: 1, link: Link::Grpc };
const KEYED: Client = Client { tenant: 0, number: 2, link: Link::Keyed };
const PLAIN: Client = Client { tenant: 0, number: 3, link: Link::Plain };

/// A history that is written line by line.
#[derive(Default)]
struct Told(Vec<Event>);

fn id(number: u32) -> MessageId {
    MessageId { tenant: 0, number }
}

impl Told {
    fn event(mut self, what: Observation) -> Self {
        let begin = self.0.first().map_or_else(Instant::now, |first| first.at);
        let at = begin + Duration::from_secs(self.0.len().try_into().unwrap());
        self.0.push(Event { at, what });
        self
    }

    fn client(self, client: Client, kind: EventKind) -> Self {
        self.event(Observation::OfClient(client, kind))
    }

    fn sent(self, client: Client, number: u32, wish: MessageKind) -> Self {
        let (message, may_be_interrupted) = (id(number), false);
        self.client(client, EventKind::Sent { message, wish, may_be_interrupted }).acknowledged(
            client,
            number,
            &format!("msg_{number}"),
        )
    }

    fn acknowledged(self, client: Client, number: u32, name: &str) -> Self {
        let name = (client.link != Link::Plain).then(|| name.to_owned());
        self.client(client, EventKind::Acknowledged { message: id(number), name })
    }

    fn shown(self, numbers: &[u32]) -> Self {
        let messages = numbers.iter().copied().map(id).collect();
        self.event(Observation::OfWitness(WitnessKind::Shown { tenant: 0, messages }))
    }

    fn answered(self, text: &str) -> Self {
        let text = text.to_owned();
        self.event(Observation::OfWitness(WitnessKind::Answered { tenant: 0, text }))
    }

    fn acted(self, number: u32, key: &str) -> Self {
        let (message, key) = (id(number), key.to_owned());
        self.event(Observation::OfWitness(WitnessKind::Acted { message, key }))
    }

    fn heard(self, client: Client, text: &str, key: Option<&str>) -> Self {
        let (text, key) = (text.to_owned(), key.map(str::to_owned));
        self.client(client, EventKind::Heard { text, key })
    }

    fn ended(self, client: Client, number: u32, end: End, text: &str) -> Self {
        let text = text.to_owned();
        self.client(client, EventKind::Ended { message: id(number), end, text })
    }

    fn completed(self, client: Client, number: u32) -> Self {
        self.ended(client, number, End::Completed, &format!("re {}", id(number)))
    }

    #[track_caller]
    fn holds(self) -> BTreeMap<&'static str, usize> {
        let verdict = judge(&self.0);
        assert_eq!(verdict.broken, Vec::<String>::new());
        verdict.counts
    }

    #[track_caller]
    fn breaks(self, promise: &str) {
        let broken = judge(&self.0).broken;
        assert!(!broken.is_empty(), "it is accepted, though: {promise}");
        assert!(broken.iter().all(|one| one.contains(promise)), "{broken:?}");
    }
}

#[test]
fn a_history_in_which_every_promise_is_kept_is_accepted() {
    let counts = Told::default()
        .sent(GRPC, 1, MessageKind::Act)
        .acknowledged(GRPC, 1, "msg_1")
        .shown(&[1])
        .acted(1, "key-1")
        .answered("re t0m000001")
        .completed(GRPC, 1)
        .sent(KEYED, 2, MessageKind::Remind)
        .answered("re t0m000002")
        .heard(KEYED, "re t0m000002", Some("a"))
        .heard(KEYED, "reminded t0m000002", Some("b"))
        .completed(KEYED, 2)
        .sent(PLAIN, 3, MessageKind::Say)
        .heard(PLAIN, "re t0m000003", None)
        .holds();

    assert_eq!(counts["messages acknowledged"], 3);
    assert_eq!((counts["actions"], counts["reminders heard"]), (1, 1));
}

#[test]
fn an_acknowledged_message_without_an_answer_is_a_loss() {
    let promise = "an acknowledged message is answered";
    for client in [GRPC, KEYED, PLAIN] {
        Told::default().sent(client, 1, MessageKind::Say).breaks(promise);
        Told::default().sent(client, 1, MessageKind::Say).ended(client, 1, End::Dead, "").holds();
    }
    // What was not acknowledged may be lost.
    let (message, wish, may_be_interrupted) = (id(1), MessageKind::Say, false);
    Told::default()
        .client(GRPC, EventKind::Sent { message, wish, may_be_interrupted })
        .client(GRPC, EventKind::Unanswered { message })
        .holds();
    let two = || Told::default().sent(PLAIN, 1, MessageKind::Say).sent(PLAIN, 2, MessageKind::Say);
    two().client(PLAIN, EventKind::UnknownReplies { count: 2 }).holds();
    // One answer may name both, but not if one between them was heard.
    two().client(PLAIN, EventKind::UnknownReplies { count: 1 }).holds();
    two()
        .sent(PLAIN, 3, MessageKind::Say)
        .answered("re t0m000002")
        .heard(PLAIN, "re t0m000002", None)
        .client(PLAIN, EventKind::UnknownReplies { count: 1 })
        .breaks(promise);
}

#[test]
fn copies_that_become_two_messages_are_found() {
    Told::default()
        .sent(GRPC, 1, MessageKind::Say)
        .acknowledged(GRPC, 1, "another")
        .completed(GRPC, 1)
        .breaks("copies of a message are one message");
    Told::default().acknowledged(GRPC, 1, "msg_1").breaks("nothing is accepted that nobody sent");
}

#[test]
fn a_refused_message_must_not_be_processed() {
    let (message, wish, may_be_interrupted) = (id(1), MessageKind::Say, false);
    Told::default()
        .client(GRPC, EventKind::Sent { message, wish, may_be_interrupted })
        .client(GRPC, EventKind::Refused { message })
        .shown(&[1])
        .breaks("a refused message is not processed");
}

#[test]
fn an_end_that_nobody_asked_for_is_found() {
    let promise = "a message ends as its client asked for";
    let said = || Told::default().sent(GRPC, 1, MessageKind::Say);
    said().ended(GRPC, 1, End::Failed, "").breaks(promise);
    said().ended(GRPC, 1, End::Interrupted, "").breaks(promise);
    said().ended(GRPC, 1, End::Cancelled, "").breaks(promise);
    let cancelled = said().client(GRPC, EventKind::Cancelling);
    cancelled.ended(GRPC, 1, End::Cancelled, "").holds();
    said().completed(GRPC, 1).ended(GRPC, 1, End::Dead, "").breaks("a message has one end");
    said().ended(GRPC, 1, End::Completed, "re").breaks("an answer names its message");
}

#[test]
fn a_keyed_reply_that_is_missing_or_doubled_is_found() {
    let said = || Told::default().sent(KEYED, 1, MessageKind::Spawn);
    let answered = || said().heard(KEYED, "re t0m000001", Some("a"));
    said().completed(KEYED, 1).breaks("a reply to a keyed channel arrives");
    // The answer came, the subagent's end did not.
    answered().completed(KEYED, 1).breaks("a reply to a keyed channel arrives");
    let dead = EventKind::ConsequenceDead { message: id(1) };
    answered().client(KEYED, dead).completed(KEYED, 1).holds();
    let told = || answered().heard(KEYED, "told t0m000001", Some("b")).completed(KEYED, 1);
    told().holds();
    told().heard(KEYED, "told t0m000001", Some("c")).breaks("a reply arrives at most once");
    told().heard(KEYED, "hello", Some("b")).breaks("a key has one reply");
}

#[test]
fn a_plain_reply_that_is_doubled_is_found() {
    Told::default()
        .sent(PLAIN, 1, MessageKind::Say)
        .heard(PLAIN, "re t0m000001", None)
        .heard(PLAIN, "re t0m000001", None)
        .breaks("a reply arrives at most once");
}

#[test]
fn an_answer_is_not_missing_where_a_note_took_its_place() {
    let said = |answer: &str| {
        Told::default()
            .sent(KEYED, 1, MessageKind::Note)
            .sent(KEYED, 2, MessageKind::Say)
            .answered(answer)
            .heard(KEYED, "note t0m000001", Some("a"))
            .ended(KEYED, 1, End::Completed, "re t0m000001")
            .completed(KEYED, 2)
    };
    said("re t0m000001 t0m000002").holds();
    said("re t0m000001").breaks("a reply to a keyed channel arrives");
}

#[test]
fn answers_out_of_order_are_found() {
    let promise = "first answers follow the order";
    let said = || Told::default().sent(KEYED, 1, MessageKind::Say).sent(KEYED, 2, MessageKind::Say);
    let heard = |told: Told| {
        told.heard(KEYED, "re t0m000001", Some("a")).heard(KEYED, "re t0m000002", Some("b"))
    };
    let ends = |told: Told| told.completed(KEYED, 1).completed(KEYED, 2);
    ends(heard(said().answered("re t0m000001 t0m000002"))).holds();
    ends(heard(said().answered("re t0m000002").answered("re t0m000001"))).breaks(promise);
    let reversed =
        said().heard(KEYED, "re t0m000002", Some("b")).heard(KEYED, "re t0m000001", Some("a"));
    ends(reversed).breaks(promise);
}

#[test]
fn words_of_another_tenant_or_client_are_found() {
    let own = "a client sees its own conversation only";
    let said = || Told::default().sent(GRPC, 1, MessageKind::Say).completed(GRPC, 1);
    said().heard(PLAIN, "somebody said t0m000001", None).breaks(own);
    said().heard(PLAIN, "somebody said t0m000009", None).breaks(own);
    let foreign = WitnessKind::Shown { tenant: 1, messages: vec![id(1)] };
    said().event(Observation::OfWitness(foreign)).breaks("a model sees its tenant's messages only");
}

#[test]
fn an_action_that_is_doubled_or_was_not_allowed_is_found() {
    let allowed = "only what was asked for and allowed is done";
    let said = |wish| Told::default().sent(GRPC, 1, wish);
    let act = said(MessageKind::Act).acted(1, "a");
    act.acted(1, "b").completed(GRPC, 1).breaks("an action is done at most once");
    said(MessageKind::Say).acted(1, "a").completed(GRPC, 1).breaks(allowed);
    let decided = |allow| {
        let decision = EventKind::Deciding { message: id(1), allow };
        said(MessageKind::ActIfAllowed).client(GRPC, decision).acted(1, "a").completed(GRPC, 1)
    };
    decided(true).holds();
    decided(false).breaks(allowed);
    said(MessageKind::ActIfAllowed)
        .acted(1, "a")
        .client(GRPC, EventKind::Deciding { message: id(1), allow: true })
        .completed(GRPC, 1)
        .breaks(allowed);
}

#[test]
fn a_paused_session_that_works_is_found() {
    let paused = || {
        Told::default().client(GRPC, EventKind::Paused).sent(GRPC, 1, MessageKind::Say).shown(&[])
    };
    let resumed = |told: Told| told.client(GRPC, EventKind::Resuming);
    resumed(paused()).shown(&[1]).completed(GRPC, 1).holds();
    resumed(paused().shown(&[1])).completed(GRPC, 1).breaks("a paused session works on nothing");
}

#[test]
fn a_deleted_session_that_is_remembered_is_found() {
    let deleted = || {
        Told::default()
            .sent(GRPC, 1, MessageKind::Say)
            .client(GRPC, EventKind::Deleting)
            .client(GRPC, EventKind::Deleted)
            .sent(GRPC, 2, MessageKind::Say)
    };
    deleted().shown(&[1]).shown(&[2]).completed(GRPC, 2).holds();
    deleted().shown(&[1, 2]).completed(GRPC, 2).breaks("a deleted session is forgotten");
}

#[test]
fn only_a_text_that_begins_with_a_statement_is_one() {
    let both = statements("re t0m000001, told t0m000002");
    assert_eq!(both, [(Verb::Re, id(1)), (Verb::Told, id(2))]);
    assert_eq!(statements("we're sorry about t0m000001"), []);
}
