//! The tables of rights in `docs/operating.md` are those of the files from which users of NATS and
//! Redis are made.

use std::{collections::BTreeMap, fs, path::Path};

/// Commands of Redis that all users have.
const COMMON_COMMANDS: [&str; 6] =
    ["ping", "role", "select", "client|setinfo", "evalsha", "script|load"];

/// Users with two lists of rights each.
type Users = BTreeMap<String, [Vec<String>; 2]>;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::read_to_string(root.join(path)).unwrap()
}

/// Parts of a text that are between two of these marks.
fn quoted(text: &str, mark: char) -> Vec<String> {
    text.split(mark).skip(1).step_by(2).map(str::to_owned).collect()
}

/// Rows of the table with these headings.
fn documented(columns: &str) -> Users {
    let text = read("docs/operating.md");
    let (_, table) = text.split_once(&format!("| service | user | {columns} |\n")).unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let user = cells[2].trim().trim_matches('`').to_owned();
        (user, [quoted(cells[3], '`'), quoted(cells[4], '`')])
    })
    .collect()
}

fn users_of_nats() -> Users {
    let text = read("helm/holdfast/files/nats-users.conf");
    let blocks = text.split("user: ").skip(1);
    let users = blocks.filter_map(|block| {
        let rights = |name: &str| {
            let line = block.lines().find(|line| line.trim_start().starts_with(name))?;
            // A denial of everything is a list of no rights.
            Some(if line.contains(r#"{ deny: [">"] }"#) { Vec::new() } else { quoted(line, '"') })
        };
        let user = block.split(',').next()?.to_owned();
        let has_rights = block.contains("permissions:");
        assert!(!has_rights || block.contains("allow_responses: true"), "{user}");
        Some((user, [rights("publish:")?, rights("subscribe:")?]))
    });
    users.collect()
}

fn users_of_redis() -> Users {
    let text = read("helm/holdfast/files/redis-users.conf");
    let lines = text.lines().filter_map(|line| line.strip_prefix("user holdfast_"));
    let users = lines.map(|line| {
        let rights = |mark| -> Vec<String> {
            let rules = line.split(' ').filter_map(|rule| rule.strip_prefix(mark));
            rules.map(str::to_owned).collect()
        };
        let user = line.split(' ').next().unwrap();
        let (common, own): (Vec<_>, Vec<_>) = rights('+')
            .into_iter()
            .partition(|command| COMMON_COMMANDS.contains(&command.as_str()));
        assert_eq!(common, COMMON_COMMANDS, "{user}");
        assert!(line.contains(" resetchannels ") && line.contains(" -@all "), "{user}");
        (format!("holdfast_{user}"), [rights('~'), own])
    });
    users.collect()
}

#[test]
fn the_documented_rights_of_nats_users_are_those_that_they_have() {
    let users = users_of_nats();

    assert_eq!(users.len(), 4);
    assert_eq!(documented("`publish` | `subscribe`"), users);
}

#[test]
fn the_documented_rights_of_redis_users_are_those_that_they_have() {
    let users = users_of_redis();

    assert_eq!(users.len(), 4);
    assert_eq!(documented("keys | commands"), users);
}
