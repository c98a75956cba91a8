//! Tests of the signatures of jobs.

use holdfast_types::AccountId;
use serde_json::json;

use super::*;
use crate::store::{JobState, Overlap};

const KEY: [u8; 32] = [7; 32];

fn keys() -> JobKeys {
    JobKeys::new([KEY])
}

fn owner() -> Author {
    Author { id: "api:key_1".to_owned(), roles: vec!["owner".to_owned()] }
}

/// A job of the owner, not signed.
fn job(kind: JobKind, payload: Value) -> Job {
    Job {
        tenant: TenantId::from(uuid::Uuid::from_u128(1)),
        id: JobId::from(uuid::Uuid::from_u128(2)),
        external_id: "cron_1".to_owned(),
        short_id: "1".to_owned(),
        kind,
        agent: AgentId::from(uuid::Uuid::from_u128(3)),
        owner: None,
        author: Some(owner()),
        signature: None,
        name: "tea".to_owned(),
        description: String::new(),
        spec: json!({}),
        payload,
        session_target: None,
        wake_mode: None,
        isolation: None,
        overlap: Overlap::Skip,
        delete_after_run: false,
        state: JobState::Active,
        next_slot: None,
        next_due: None,
        running: None,
        errors: 0,
        last: None,
        version: 1,
        trace: None,
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: Timestamp::UNIX_EPOCH,
    }
}

fn signed(job: Job) -> Job {
    let signature = keys().sign_job(job.tenant, &JobFields::from(&job)).unwrap();
    Job { signature, ..job }
}

fn turn() -> Job {
    let payload = json!({"kind": "agentTurn", "message": "look", "channel": "telegram", "to": "7"});
    let isolation = Some(json!({"postToMainPrefix": "Look"}));
    signed(Job { isolation, ..job(JobKind::Cron, payload) })
}

fn reminder() -> Job {
    let payload = json!({
        "content": "stretch", "session": "agent:main:dm:telegram:7", "auto_continue": true,
        "author": owner(),
    });
    let owner = Some("telegram:7".to_owned());
    signed(Job { owner, ..job(JobKind::Reminder, payload) })
}

/// A reminder whose text repeats text from outside.
fn outside_reminder() -> Job {
    let mut job = reminder();
    job.payload["outside"] = json!(true);
    signed(job)
}

fn target(channel: &str, chat: &str) -> Target {
    let account = AccountId::from(uuid::Uuid::from_u128(4));
    Target { channel: channel.into(), account, chat: chat.into(), thread: None, reply_to: None }
}

/// The message of a job's firing, as it reaches a session.
struct Firing {
    tenant: TenantId,
    agent: AgentId,
    key: SessionKey,
    body: Body,
    target: Option<Target>,
}

impl Firing {
    fn of(job: &Job, key: &str) -> Self {
        Self {
            tenant: job.tenant,
            agent: job.agent,
            key: key.parse().unwrap(),
            body: job.message(Timestamp::from_second(9).unwrap()).unwrap(),
            target: None,
        }
    }

    fn of_turn() -> Self {
        let job = turn();
        Self::of(&job, &format!("agent:main:cron:{}:9", job.id))
    }

    fn is_verified(&self) -> bool {
        let Self { tenant, agent, ref key, ref body, ref target } = *self;
        keys().verify(&FiredMessage { tenant, agent, key, body, target: target.as_ref() })
    }
}

#[test]
fn a_message_is_verified_at_any_time_in_the_session_and_on_the_channel_that_the_job_says() {
    let event = signed(job(JobKind::At, json!({"kind": "systemEvent", "text": " tea \n"})));
    let fixed = json!({"kind": "message", "message": "sit", "session": "agent:main:api:a"});
    let timer = signed(job(JobKind::Timer, json!({"kind": "timer", "event": "tea"})));
    let fixed = signed(job(JobKind::Every, fixed));
    let of_turn = Firing::of_turn();

    for firing in [
        Firing { target: Some(target("telegram", "7")), ..Firing::of_turn() },
        Firing { body: Body { outside: true, ..of_turn.body.clone() }, ..Firing::of_turn() },
        Firing::of(&event, "agent:main:main"),
        Firing::of(&fixed, "agent:main:api:a"),
        Firing { target: Some(target("x", "y")), ..Firing::of(&fixed, "agent:main:api:a") },
        Firing::of(&timer, "agent:main:main"),
        Firing::of(&reminder(), "agent:main:dm:telegram:7"),
        Firing::of(&outside_reminder(), "agent:main:dm:telegram:7"),
        of_turn,
    ] {
        assert!(firing.is_verified(), "{:?}", firing.body);
    }
    let body = event.message(Timestamp::UNIX_EPOCH).unwrap();
    let waits = SignedAuthor { author: body.author, signature: *body.job_signature.unwrap() };
    let main = "agent:main:main".parse().unwrap();
    let verify = |text: &str| keys().verify_event((event.tenant, event.agent), &main, text, &waits);
    assert!(verify("tea") && !verify("coffee"));
    let stranger = SignedAuthor { author: None, ..waits.clone() };
    assert!(!keys().verify_event((event.tenant, event.agent), &main, "tea", &stranger));
}

#[test]
fn whatever_a_scheduler_changes_in_a_message_the_signature_is_not_for_it() {
    type Change<'a> = &'a dyn Fn(&mut Firing);

    let other: JobId = JobId::from(uuid::Uuid::from_u128(9));
    let changed = |change: Change<'_>| {
        let mut firing = Firing::of_turn();
        change(&mut firing);
        firing
    };
    let cases: [(&str, Change<'_>); 17] = [
        ("text", &|firing| firing.body.text = "send it all".to_owned()),
        ("author", &|firing| firing.body.author.as_mut().unwrap().id = "api:key_2".to_owned()),
        ("roles", &|firing| firing.body.author.as_mut().unwrap().roles.push("admin".to_owned())),
        ("no author", &|firing| firing.body.author = None),
        ("tools", &|firing| firing.body.tools = Some(Vec::new())),
        ("role", &|firing| firing.body.role = Some("system".to_owned())),
        ("post", &|firing| firing.body.fired = None),
        ("as it is", &|firing| firing.body.fired.as_mut().unwrap().as_is = true),
        ("job", &|firing| firing.body.job_signature.as_mut().unwrap().job = other),
        ("job of firing", &|firing| firing.body.fired.as_mut().unwrap().job = other),
        ("tenant", &|firing| firing.tenant = TenantId::from(uuid::Uuid::from_u128(9))),
        ("agent", &|firing| firing.agent = AgentId::from(uuid::Uuid::from_u128(9))),
        ("main session", &|firing| firing.key = "agent:main:main".parse().unwrap()),
        ("run of another", &|firing| firing.key = "agent:main:cron:job_1:9".parse().unwrap()),
        ("chat", &|firing| firing.target = Some(target("telegram", "8"))),
        ("destination", &|firing| {
            firing.target = Some(target("telegram", "8"));
            firing.body.job_signature.as_mut().unwrap().destination.chat = None;
        }),
        ("signature", &|firing| firing.body.job_signature = None),
    ];
    for (name, change) in cases {
        assert!(!changed(change).is_verified(), "{name}");
    }

    let elsewhere = Firing::of(&reminder(), "agent:main:dm:telegram:8");
    let mut unmarked = Firing::of(&outside_reminder(), "agent:main:dm:telegram:7");
    unmarked.body.outside = false;
    assert!(!unmarked.is_verified(), "text from outside keeps its mark");
    assert!(!elsewhere.is_verified());
    let mut named = elsewhere;
    let signature = named.body.job_signature.as_mut().unwrap();
    signature.session = Some("agent:main:dm:telegram:8".to_owned());
    assert!(!named.is_verified());
    let silent = signed(job(JobKind::Timer, json!({"kind": "timer", "event": "tea"})));
    let mut loud = Firing::of(&silent, "agent:main:main");
    loud.body.silent = false;
    assert!(!loud.is_verified());
}

#[test]
fn a_job_is_signed_only_as_it_is_and_by_one_of_the_keys() {
    let whole = turn();
    assert!(keys().is_job_signed(&whole));
    for changed in [
        Job { author: None, ..whole.clone() },
        Job { id: JobId::from(uuid::Uuid::from_u128(9)), ..whole.clone() },
        Job { isolation: None, ..whole.clone() },
        Job { payload: json!({"kind": "agentTurn", "message": "look"}), ..whole.clone() },
        Job { signature: None, ..whole.clone() },
    ] {
        assert!(!keys().is_job_signed(&changed), "{changed:?}");
    }
    // Its times and its name are not what it does.
    let renamed = Job { name: "other".to_owned(), spec: json!({"a": 1}), ..whole.clone() };
    assert!(keys().is_job_signed(&renamed));
    let timer = signed(job(JobKind::Timer, json!({"kind": "timer", "event": "tea"})));
    assert!(!keys().is_job_signed(&Job { name: "other".to_owned(), ..timer }));

    assert!(JobKeys::new([[1; 32], KEY]).is_job_signed(&whole), "another key signs now");
    assert!(!JobKeys::new([[1; 32]]).is_job_signed(&whole));
    assert!(!JobKeys::new([]).is_job_signed(&whole));
    let beat = job(JobKind::Heartbeat, json!({}));
    assert_eq!(keys().sign_job(beat.tenant, &JobFields::from(&beat)).unwrap(), None);
}

/// A reminder in this language, about which the agent is asked, or which is sent as it is.
fn reminder_in(locale: &str, auto_continue: bool) -> Job {
    let mut job = reminder();
    job.payload["locale"] = json!(locale);
    job.payload["auto_continue"] = json!(auto_continue);
    signed(job)
}

#[test]
fn jobs_that_were_signed_by_this_version_are_signed_in_the_next_one() {
    let event = job(JobKind::At, json!({"kind": "systemEvent", "text": "tea"}));
    let fixed = json!({"kind": "message", "message": "sit", "session": "agent:main:api:a"});
    let timer = job(JobKind::Timer, json!({"kind": "timer", "event": "tea"}));

    for (name, job, signature) in [
        ("turn", turn(), "nXWqKiPZva6wamf6l5-lKY0khMCd_vaUXkrJRunNqmk"),
        ("event", signed(event), "RzuZ8S7SWkPTOxzicdsPkb4T9HzdaLvFC-QzKRsP-TI"),
        (
            "fixed",
            signed(job(JobKind::Every, fixed)),
            "DKh73iGwBnu_mhEzQdFNoeh3Kkt78-gKZT6ipNwjQgk",
        ),
        ("timer", signed(timer), "M1AE1xIoeEIs5HNNkb8e0ZZw1rcvlaEIZ6SAsVDF-88"),
        ("en", reminder_in("en", true), "57M2OSEjlDeRZX7zuvB8cenV1hT9KqgVb7f8njpv9Ls"),
        ("en push", reminder_in("en", false), "C5PahlinI0CYdrOdDkZxtMN8YCVpjlVZtzfOf8fuSSE"),
        ("zh", reminder_in("zh-CN", true), "AofcT2D74vdqQFtZAhSWpaw-youPrnfG0YUCMabmvrg"),
        ("zh push", reminder_in("zh-CN", false), "FncbubqCLTSxaB07f-wWLCRXPz8uZgLBsfvzb6gjCGc"),
    ] {
        assert_eq!(job.signature.as_deref(), Some(signature), "{name}");
    }
}
