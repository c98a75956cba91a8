//! The rows of the matrix, and how the page shows them.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use holdfast_testkit::generated::check_part;

use super::callers::{ROLES, key_names};

/// Environment variable with which the page is rewritten.
const VARIABLE: &str = "HOLDFAST_WRITE_RIGHTS";

/// Cell of a call that is refused.
const REFUSED: &str = "–";

/// One call: what it is, and its outcome for each caller.
pub struct Row {
    pub call: String,
    pub cells: Vec<String>,
}

/// Outcomes of one caller for a call on several objects.
#[derive(Default)]
pub struct Cell {
    allowed: String,
    tried: usize,
}

impl Cell {
    pub fn add(&mut self, letter: char, is_allowed: bool) {
        self.tried += 1;
        if is_allowed {
            self.allowed.push(letter);
        }
    }

    /// The letters of the objects, or a word for all or none of them.
    pub fn shown(&self) -> String {
        match self.allowed.chars().count() {
            0 => REFUSED.to_owned(),
            all if all == self.tried && all > 1 => "all".to_owned(),
            _ => self.allowed.clone(),
        }
    }
}

/// Cell of a call that names no object.
pub fn yes_or_no(is_allowed: bool) -> String {
    if is_allowed { "yes".to_owned() } else { REFUSED.to_owned() }
}

/// Compares a part of the page with these rows.
pub fn check(part: &str, rows: &[Row]) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rights.md");
    let keys = key_names();
    let (keys, roles) = (keys.iter().map(String::as_str).collect::<Vec<_>>(), ROLES.as_slice());
    let text = format!(
        "People:\n\n{}\nKeys:\n\n{}",
        table(rows, roles, |row| &row.cells[..ROLES.len()]),
        table(rows, &keys, |row| &row.cells[ROLES.len()..]),
    );
    check_part(&page, part, &text, VARIABLE).unwrap();
}

/// One line for all calls with the same outcome, the most permissive first.
fn table<'a>(rows: &'a [Row], columns: &[&str], cells: impl Fn(&'a Row) -> &'a [String]) -> String {
    let mut groups: Vec<(&[String], Vec<&str>)> = Vec::new();
    for row in rows {
        let of = cells(row);
        match groups.iter_mut().find(|(known, _)| *known == of) {
            Some((_, calls)) => calls.push(&row.call),
            None => groups.push((of, vec![&row.call])),
        }
    }
    let refusals = |cells: &[String]| cells.iter().filter(|cell| *cell == REFUSED).count();
    groups.sort_by_key(|(cells, _)| refusals(cells));
    let mut text =
        format!("| calls | {} |\n|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    for (cells, calls) in groups {
        let _ = writeln!(text, "| {} | {} |", shown(&calls), cells.join(" | "));
    }
    text
}

/// Names of calls. Those of one service are named together: `Sessions`: `GetSession`, `GetHistory`.
fn shown(calls: &[&str]) -> String {
    let mut services: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut others = Vec::new();
    for call in calls {
        match call.split_once('/') {
            Some((service, method))
                if service.chars().all(char::is_alphanumeric) && !service.is_empty() =>
            {
                services.entry(service).or_default().push(method);
            }
            _ => others.push(code(call)),
        }
    }
    let mut parts: Vec<String> = services
        .into_iter()
        .map(|(service, methods)| {
            let methods: Vec<String> = methods.into_iter().map(code).collect();
            format!("{service}: {}", methods.join(", "))
        })
        .collect();
    if !others.is_empty() {
        parts.push(others.join(", "));
    }
    parts.join("; ")
}

/// A call as code, and what is said about it in words: `/v1/responses` with `user`.
fn code(call: &str) -> String {
    match call.split_once(" – ") {
        Some((call, words)) => format!("`{call}` ({words})"),
        None => format!("`{call}`"),
    }
}
