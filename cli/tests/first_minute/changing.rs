//! A command that changes a thing resets nothing that it does not name.

use serde_json::{Value, json};

use crate::installation::Installation;

/// A thing with all its options, and changes of one option each.
struct Thing {
    create: &'static [&'static str],
    list: &'static [&'static str],
    /// Field and value by which the thing is found in the list.
    key: (&'static str, &'static str),
    /// Command line, and the fields that it changes, with their new values.
    changes: Vec<(Vec<&'static str>, Value)>,
}

/// Fields that change with time.
const TIMES: [&str; 3] = ["updated_at", "next_run_at", "version"];

fn find(installation: &Installation, thing: &Thing) -> Value {
    let listed = installation.json(thing.list);
    let (field, value) = thing.key;
    let listed = listed.as_array().unwrap().iter().find(|one| one[field] == value);
    let mut found = listed.unwrap_or_else(|| panic!("there is no {value}")).clone();
    found.as_object_mut().unwrap().retain(|field, _| !TIMES.contains(&field.as_str()));
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_resets_nothing_that_it_does_not_name() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    installation.run(&["agents", "create", "bob"]).ok();

    for thing in things() {
        installation.run(thing.create).ok();
        for (line, changed) in &thing.changes {
            let mut wanted = find(&installation, &thing);
            installation.run(line).ok();
            for (field, value) in changed.as_object().unwrap() {
                assert_ne!(wanted[field], *value, "{line:?} changes nothing");
                wanted[field] = value.clone();
            }
            assert_eq!(find(&installation, &thing), wanted, "{line:?}");
        }
    }

    a_job_keeps_its_zone(&installation);
    installation.run(&["down"]).ok();
    Ok(())
}

fn a_job_keeps_its_zone(installation: &Installation) {
    let tokyo = ["--tz", "Asia/Tokyo", "-m", "look", "--channel", "telegram", "--to", "7"];
    let made = installation
        .json(&[&["cron", "add", "daily", "--cron", "0 10 * * *"][..], &tokyo].concat());
    let id = made["id"].as_str().unwrap();
    let edit = |line: &[&str]| {
        installation.json(&[&["cron", "edit", id][..], line].concat())["what"].clone()
    };

    let later = edit(&["--cron", "0 11 * * *"]);
    let cron = json!({"kind": "cron", "expr": "0 11 * * *", "tz": "Asia/Tokyo"});
    assert_eq!(later["schedule"], cron);
    let other_text = edit(&["-m", "look again"]);
    assert_eq!(other_text["payload"]["to"], "7");
    assert_eq!(other_text["schedule"], cron);
    let once = edit(&["--at", "2030-01-01 09:00"]);
    let midnight_in_utc = "2030-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap();
    assert_eq!(once["schedule"]["at_ms"], midnight_in_utc.as_millisecond());
}

fn things() -> Vec<Thing> {
    vec![
        Thing {
            create: &[
                "providers",
                "put",
                "acme",
                "--kind",
                "anthropic",
                "--base-url",
                "https://acme.example",
                "--api-key",
                "k",
                "--model",
                "acme:one",
            ],
            list: &["providers", "list"],
            key: ("name", "acme"),
            changes: vec![
                (
                    vec!["providers", "put", "acme", "--model", "acme:two"],
                    json!({"default_model": "acme:two"}),
                ),
                (vec!["providers", "put", "acme", "--api-key", "other"], json!({})),
                (vec!["providers", "put", "acme", "--model", ""], json!({"default_model": ""})),
            ],
        },
        Thing {
            create: &[
                "models",
                "put",
                "acme:one",
                "--context",
                "9000",
                "--max-output",
                "800",
                "--images",
                "--input-price",
                "1",
                "--output-price",
                "2",
            ],
            list: &["models", "list", "--own"],
            key: ("model", "acme:one"),
            changes: vec![(
                vec!["models", "put", "acme:one", "--context", "9001"],
                json!({"context": 9001}),
            )],
        },
        Thing {
            create: &["budgets", "set", "--agent", "bob", "--tokens", "5000", "--usd", "2.5"],
            list: &["budgets", "list"],
            key: ("agent", "bob"),
            changes: vec![
                (vec!["budgets", "set", "--agent", "bob", "--usd", "3.5"], json!({"usd": "3.50"})),
                (
                    vec!["budgets", "set", "--agent", "bob", "--tokens", "0"],
                    json!({"tokens": null}),
                ),
            ],
        },
        Thing {
            create: &[
                "mcp",
                "add",
                "files",
                "--url",
                "https://mcp.example.com/a",
                "--header",
                "A: b",
                "--agent",
                "bob",
                "--disabled",
            ],
            list: &["mcp", "list"],
            key: ("name", "files"),
            changes: vec![(
                vec!["mcp", "add", "files", "--url", "https://mcp.example.com/a", "--enabled"],
                json!({"enabled": true}),
            )],
        },
        Thing {
            create: &[
                "connections",
                "add",
                "dav",
                "caldav",
                "--set",
                "url=https://dav.example.com/anna/home/",
                "--set",
                "user=anna",
                "--secret",
                "s",
                "--agent",
                "bob",
                "--for",
                "everyone",
            ],
            list: &["connections", "list"],
            key: ("name", "dav"),
            changes: vec![
                (
                    vec!["connections", "add", "dav", "caldav", "--for", "owner"],
                    json!({"used_by": "owner"}),
                ),
                (
                    vec!["connections", "add", "dav", "caldav", "--set", "user=ben"],
                    json!({"settings": {
                        "url": "https://dav.example.com/anna/home/", "user": "ben",
                    }}),
                ),
            ],
        },
        Thing {
            create: &[
                "plans",
                "put",
                "small",
                "--description",
                "for a start",
                "--sessions",
                "5",
                "--tokens-per-day",
                "100",
                "--usd-per-month",
                "7",
            ],
            list: &["plans", "list"],
            key: ("name", "small"),
            changes: vec![
                (vec!["plans", "put", "small", "--sessions", "6"], json!({"sessions": 6})),
                (
                    vec!["plans", "put", "small", "--description", "for two"],
                    json!({"description": "for two"}),
                ),
            ],
        },
        Thing {
            create: &[
                "agents",
                "update",
                "bob",
                "--description",
                "a helper",
                "--instructions",
                "help",
                "--model",
                "acme:one",
                "--time-zone",
                "Asia/Tokyo",
            ],
            list: &["agents", "list"],
            key: ("name", "bob"),
            changes: vec![
                (
                    vec!["agents", "update", "bob", "--description", "another helper"],
                    json!({"description": "another helper"}),
                ),
                (
                    vec!["agents", "update", "bob", "--time-zone", "Europe/Oslo"],
                    json!({"time_zone": "Europe/Oslo"}),
                ),
            ],
        },
    ]
}
