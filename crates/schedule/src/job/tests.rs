//! Tests of adding and changing jobs.

use serde_json::json;

use super::*;

const NOW: i64 = 1_767_225_600_000;

/// A job that is added now.
fn add(id: &str, what: NewJob, now: Timestamp, allowed: ScheduleLimits) -> Result<Job, Error> {
    what.check(now, allowed)?;
    let at = now.as_millisecond();
    let id = id.to_owned();
    let mut job =
        Job { id, created_at_ms: at, updated_at_ms: at, state: JobState::default(), what };
    job.reschedule(now, allowed);
    Ok(job)
}

fn now() -> Timestamp {
    Timestamp::from_millisecond(NOW).unwrap()
}

fn allowed() -> ScheduleLimits {
    ScheduleLimits {
        min_interval: SignedDuration::from_secs(10),
        max_lateness: SignedDuration::from_mins(5),
    }
}

fn job() -> Job {
    let what = NewJob::from_json(json!({
        "name": "tea", "payload": {"kind": "systemEvent", "message": "tea is ready"}
    }));
    add("cron_00001a2b", what.unwrap(), now(), allowed()).unwrap()
}

fn patch(json: Value) -> Result<Job, Error> {
    let mut job = job();
    job.update(JobPatch::from_json(json)?, now(), allowed())?;
    Ok(job)
}

#[test]
fn a_job_of_which_little_is_said_is_the_seeds_usual_one() {
    let written = serde_json::to_value(job()).unwrap();

    assert_eq!(
        written,
        json!({
            "id": "cron_00001a2b", "name": "tea", "description": "", "enabled": true,
            "delete_after_run": false, "created_at_ms": NOW, "updated_at_ms": NOW,
            "schedule": {"kind": "every", "every_ms": 3_600_000, "anchor_ms": NOW},
            "session_target": "main", "wake_mode": "next-heartbeat",
            "payload": {"kind": "systemEvent", "message": "tea is ready"},
            "missed": {"policy": "skip"}, "overlap": "skip",
            "state": {
                "next_run_at_ms": NOW + 3_600_000, "running_at_ms": null,
                "last_run_at_ms": null, "last_status": null, "last_error": null,
                "last_duration_ms": null, "consecutive_errors": 0
            }
        })
    );
    assert_eq!(serde_json::from_value::<Job>(written).unwrap(), job());
}

#[test]
fn a_timer_of_which_no_interval_is_said_fires_every_three_minutes() {
    let timer = json!({"kind": "timer", "event": "tea"});
    let hourly = json!({"kind": "every", "every_ms": 3_600_000});

    let usual = NewJob::from_json(json!({"name": "a", "payload": timer})).unwrap();
    let said = NewJob::from_json(json!({"name": "a", "payload": timer, "schedule": hourly}));

    assert_eq!(usual.schedule, Schedule::every(180_000, None).unwrap());
    assert_eq!(said.unwrap().schedule, Schedule::usual());
}

#[test]
fn what_a_job_does_not_have_is_refused_and_named() {
    for (json, why) in [
        (
            json!({"name": "a", "payload": {"kind": "systemEvent", "message": "m"}, "id": "x"}),
            "unknown field `id`",
        ),
        (json!({"name": "a"}), "missing field `payload`"),
        (json!({"payload": {"kind": "systemEvent", "message": "m"}}), "missing field `name`"),
        (
            json!({"name": "a", "payload": {"kind": "systemEvent", "message": "m"}, "schedule": {"kind": "at"}}),
            "missing field `at_ms`",
        ),
    ] {
        let error = NewJob::from_json(json).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn only_what_may_be_changed_can_be() {
    for field in ["id", "state", "created_at_ms", "updated_at_ms", "agent_id", "tenant_id"] {
        let error = JobPatch::from_json(json!({ field: "x" })).unwrap_err().to_string();
        assert!(error.contains(&format!("unknown field `{field}`")), "{error}");
        assert!(error.contains("expected one of `name`"), "{error}");
    }
    let changed = patch(json!({
        "name": "coffee", "description": "at ten", "delete_after_run": true,
        "wake_mode": "now", "missed": {"policy": "once"}, "overlap": "wait",
    }));
    let changed = changed.unwrap();
    assert_eq!((changed.what.name.as_str(), changed.what.wake_mode), ("coffee", WakeMode::Now));
    assert_eq!(changed.state, job().state);
}

#[test]
fn a_job_is_checked_as_a_whole_when_it_is_changed() {
    assert_eq!(patch(json!({"session_target": "isolated"})), Err(Error::IsolatedTakesTurns));
    let turn = json!({"kind": "agentTurn", "message": "look"});
    assert_eq!(patch(json!({"payload": turn})), Err(Error::MainTakesEvents));
    assert!(patch(json!({"payload": turn, "session_target": "isolated"})).is_ok());
    assert!(patch(json!({"schedule": {"kind": "every", "every_ms": 9_999}})).is_err());
    assert!(patch(json!({"name": ""})).is_err());
}

#[test]
fn a_job_that_could_not_be_changed_stays_as_it_was() {
    let mut changed = job();
    let patch = JobPatch::from_json(json!({"name": "b", "session_target": "isolated"}));

    assert!(changed.update(patch.unwrap(), now(), allowed()).is_err());

    assert_eq!(changed, job());
}

#[test]
fn what_is_told_to_the_main_session_may_be_said_and_taken_away() {
    let mut changed = patch(json!({"isolation": {"postToMainMode": "full"}})).unwrap();
    assert!(changed.what.isolation.is_some());

    changed.update(JobPatch::from_json(json!({})).unwrap(), now(), allowed()).unwrap();
    assert!(changed.what.isolation.is_some());
    let gone = JobPatch::from_json(json!({"isolation": null})).unwrap();
    changed.update(gone, now(), allowed()).unwrap();
    assert_eq!(changed.what.isolation, None);
}

#[test]
fn the_next_run_is_known_at_once_when_a_job_is_added_changed_or_enabled() {
    let schedule = json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokyo"});
    let changed = patch(json!({ "schedule": schedule })).unwrap();
    assert_eq!(changed.state.next_run_at_ms, Some(NOW + 24 * 3_600_000));

    let mut off = patch(json!({"enabled": false})).unwrap();
    assert_eq!(off.state.next_run_at_ms, None);
    off.state.consecutive_errors = 4;
    let on = JobPatch { enabled: Some(true), ..JobPatch::default() };
    off.update(on, now(), allowed()).unwrap();
    assert_eq!(off.state.next_run_at_ms, Some(NOW + 3_600_000));
    assert_eq!(off.state.consecutive_errors, 0);
}

#[test]
fn a_moment_that_is_just_over_still_runs_and_one_long_over_is_refused() {
    let at = |ms: i64| patch(json!({"schedule": {"kind": "at", "at_ms": ms}}));

    assert_eq!(at(NOW - 60_000).unwrap().state.next_run_at_ms, Some(NOW - 60_000));
    assert_eq!(at(NOW - 300_000).unwrap().state.next_run_at_ms, Some(NOW - 300_000));
    assert!(matches!(at(NOW - 300_001), Err(Error::Past { .. })));
    let mut over = at(NOW).unwrap();
    let later = now().checked_add(SignedDuration::from_hours(1)).unwrap();
    let off = JobPatch { enabled: Some(false), ..JobPatch::default() };
    assert_eq!(over.update(off, later, allowed()), Ok(()));
}

#[test]
fn a_job_that_ran_at_its_only_moment_is_not_enabled_for_it_again() {
    let mut over = patch(json!({"schedule": {"kind": "at", "at_ms": NOW + 1_000}})).unwrap();
    let ran = now().checked_add(SignedDuration::from_secs(2)).unwrap();
    over.state.last_run_at_ms = Some(ran.as_millisecond());
    over.what.enabled = false;
    let before = over.clone();

    let on = JobPatch { enabled: Some(true), ..JobPatch::default() };

    assert!(matches!(over.update(on, ran, allowed()), Err(Error::Past { .. })));
    assert_eq!(over, before);
}

#[test]
fn an_id_that_another_system_gave_may_stay() {
    assert!(["cron_12ab34cd", "a.b:c@d-1", "任务1"].iter().all(|id| check_id(id).is_ok()));
    assert!(["", "a b", "a\n", "../x", &"x".repeat(129)].iter().all(|id| check_id(id).is_err()));
}

/// A job with a value in every field that is not its default.
fn job_with_all_fields(schedule: Value, payload: Value, target: &str) -> Job {
    let isolation = json!({
        "postToMainPrefix": "News", "postToMainMode": "full", "postToMainMaxChars": 7,
    });
    let what = NewJob::from_json(json!({
        "name": "tea", "description": "at nine", "enabled": true, "delete_after_run": true,
        "schedule": schedule, "session_target": target, "wake_mode": "now", "payload": payload,
        "isolation": isolation, "missed": {"policy": "all", "within_ms": 60_000}, "overlap": "wait",
    }));
    add("cron_00001a2b", what.unwrap(), now(), allowed()).unwrap()
}

#[test]
fn a_change_resets_nothing_that_it_does_not_name() {
    let cron = json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokyo"});
    let every = json!({"kind": "every", "every_ms": 60_000, "anchor_ms": 5});
    let turn = json!({
        "kind": "agentTurn", "message": "look", "model": "a:b", "thinking": "high",
        "timeout_seconds": 9, "deliver": false, "channel": "telegram", "to": "7",
        "best_effort_deliver": true,
    });
    let message = json!({"kind": "message", "message": "tea", "session": "agent:main:api:a"});
    let timer = json!({"kind": "timer", "event": "tea", "session": "agent:main:api:a"});
    // Path of the changed field, its new value, and the change as callers write it.
    let changes = [
        ("/name", json!("b"), json!({"name": "b"})),
        ("/description", json!("b"), json!({"description": "b"})),
        ("/delete_after_run", json!(false), json!({"deleteAfterRun": false})),
        ("/wake_mode", json!("next-heartbeat"), json!({"wake_mode": "next-heartbeat"})),
        ("/missed", json!({"policy": "skip"}), json!({"missed": {"policy": "skip"}})),
        ("/overlap", json!("skip"), json!({"overlap": "skip"})),
        (
            "/isolation/postToMainMode",
            json!("summary"),
            json!({"isolation": {"post_to_main_mode": null}}),
        ),
        (
            "/schedule/expr",
            json!("0 8 * * *"),
            json!({"schedule": {"kind": "cron", "expr": "0 8 * * *"}}),
        ),
        ("/schedule/expr", json!("0 7 * * *"), json!({"schedule": {"expr": "0 7 * * *"}})),
        ("/schedule/tz", json!("Europe/Oslo"), json!({"schedule": {"tz": "Europe/Oslo"}})),
        ("/schedule/anchor_ms", json!(7), json!({"schedule": {"anchorMs": 7}})),
        ("/payload/message", json!("b"), json!({"payload": {"kind": "agentTurn", "message": "b"}})),
        ("/payload/message", json!("b"), json!({"payload": {"kind": "message", "text": "b"}})),
        ("/payload/timeout_seconds", json!(8), json!({"payload": {"timeoutSeconds": 8}})),
        ("/payload/timeout_seconds", json!(3_600), json!({"payload": {"timeoutSeconds": null}})),
        ("/payload/deliver", json!(true), json!({"payload": {"deliver": true}})),
        ("/payload/to", json!("8"), json!({"payload": {"to": "8"}})),
        ("/payload/event", json!("b"), json!({"payload": {"event": "b"}})),
    ];
    let jobs = [
        job_with_all_fields(cron.clone(), turn, "isolated"),
        job_with_all_fields(every, message, "main"),
        job_with_all_fields(cron, timer, "main"),
    ];

    for (path, value, change) in changes {
        let mut tried = 0;
        for before in &jobs {
            let mut wanted = serde_json::to_value(&before.what).unwrap();
            let is_of_job = wanted.pointer(path).is_some()
                && change["payload"]
                    .get("kind")
                    .is_none_or(|kind| *kind == wanted["payload"]["kind"]);
            let mut changed = before.clone();
            let patch = JobPatch::from_json(change.clone()).unwrap();
            if !is_of_job {
                continue;
            }
            *wanted.pointer_mut(path).unwrap() = value.clone();

            changed.update(patch, now(), allowed()).unwrap();

            assert_eq!(serde_json::to_value(&changed.what).unwrap(), wanted, "{change}");
            tried += 1;
        }
        assert!(tried > 0, "no job has {path}");
    }
}

#[test]
fn another_kind_begins_with_the_defaults_and_a_field_of_another_kind_is_refused() {
    let cron = json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokyo"});
    let turn = json!({"kind": "agentTurn", "message": "look", "to": "7"});
    let mut job = job_with_all_fields(cron, turn, "isolated");
    let patch = |patch: Value| JobPatch::from_json(patch).unwrap();

    job.update(patch(json!({"payload": {"channel": "slack"}})), now(), allowed()).unwrap();
    let what = serde_json::to_value(&job.what).unwrap();
    assert_eq!(what["payload"].get("to"), None, "a chat belongs to its channel");
    let wrong = job.update(patch(json!({"schedule": {"every_ms": 60_000}})), now(), allowed());
    assert!(wrong.unwrap_err().to_string().contains("unknown field `every_ms`"));
    let other = json!({
        "schedule": {"kind": "every", "every_ms": 60_000}, "session_target": "main",
        "payload": {"kind": "systemEvent", "message": "tea"},
    });
    job.update(patch(other), now(), allowed()).unwrap();

    let what = serde_json::to_value(&job.what).unwrap();
    assert_eq!(what["schedule"], json!({"kind": "every", "every_ms": 60_000, "anchor_ms": NOW}));
    assert_eq!(what["payload"], json!({"kind": "systemEvent", "message": "tea"}));
}
