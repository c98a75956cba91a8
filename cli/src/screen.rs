//! Output of commands: tables or JSON on stdout, everything else on stderr.
//!
//! Much of the output was written by other people or models, so control characters are removed
//! before a terminal could interpret them.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::{Value, json};

use crate::error::Error;

/// Output format
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Tables and sentences for people
    Text,
    /// JSON with stable field names
    Json,
}

/// Maximum width of a table cell, in characters; `--output json` has the whole value.
const MAX_CELL_CHARS: usize = 60;

#[derive(Debug, Clone, Copy)]
pub struct Screen {
    format: Format,
}

impl Screen {
    pub const fn new(format: Format) -> Self {
        Self { format }
    }

    pub fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Prints several things: a table of these columns, or a JSON array with all fields.
    pub fn list(self, columns: &[&str], rows: Vec<Value>) -> Result<(), Error> {
        match self.format {
            Format::Json => self.json(&Value::Array(rows)),
            Format::Text if rows.is_empty() => self.note("there are none"),
            Format::Text => self.print(&table(columns, &rows)),
        }
    }

    /// Prints one thing with all its fields, those of `first` at the top.
    pub fn one(self, first: &[&str], thing: &Value) -> Result<(), Error> {
        match self.format {
            Format::Json => self.json(thing),
            Format::Text => self.print(&sheet(first, thing)),
        }
    }

    /// Prints that an action was done: a sentence for people, the affected thing for programs.
    pub fn done(self, sentence: &str, thing: &Value) -> Result<(), Error> {
        match self.format {
            Format::Json => self.json(thing),
            Format::Text => self.print(&format!("{sentence}\n")),
        }
    }

    /// Prints a text unchanged to stdout.
    pub fn print(self, text: &str) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Prints a remark to stderr.
    pub fn note(self, text: &str) -> Result<(), Error> {
        Ok(writeln!(io::stderr().lock(), "{text}")?)
    }

    /// Prints warnings to stderr.
    pub fn warn(self, warnings: &[String]) -> Result<(), Error> {
        warnings.iter().try_for_each(|warning| self.note(&format!("warning: {warning}")))
    }

    /// Prints a less important remark to stderr, dimmed on a terminal.
    pub fn aside(self, text: &str) -> Result<(), Error> {
        let mut err = io::stderr().lock();
        if err.is_terminal() {
            Ok(writeln!(err, "\x1b[2m{text}\x1b[0m")?)
        } else {
            Ok(writeln!(err, "{text}")?)
        }
    }

    /// Prints the reason why the command failed. A failure to print it is ignored.
    pub fn fail(self, error: &Error) {
        if error.is_closed_pipe() {
            return;
        }
        let mut err = io::stderr().lock();
        drop(match self.format {
            Format::Text => {
                // Texts for models begin so.
                let text = plain(&error.to_string());
                writeln!(err, "error: {}", text.strip_prefix("Error: ").unwrap_or(&text))
            }
            Format::Json => {
                let error = json!({"error": error.code_name(), "message": error.to_string()});
                writeln!(err, "{error}")
            }
        });
    }

    fn json(self, value: &Value) -> Result<(), Error> {
        self.print(&format!("{value:#}\n"))
    }
}

/// Removes control characters that a terminal would interpret.
pub fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

fn table(columns: &[&str], rows: &[Value]) -> String {
    let head = columns.iter().map(|name| name.replace('_', " ").to_uppercase()).collect();
    let body = rows.iter().map(|row| columns.iter().map(|name| cell(name, &row[*name])).collect());
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(body).collect();
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();

    let mut text = String::new();
    for line in &lines {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn sheet(first: &[&str], thing: &Value) -> String {
    let Value::Object(fields) = thing else { return format!("{}\n", words(thing)) };
    let width = fields.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    let others = fields.keys().map(String::as_str).filter(|name| !first.contains(name));
    let mut text = String::new();
    for name in first.iter().copied().filter(|name| fields.contains_key(*name)).chain(others) {
        let value = words(&thing[name]).replace('\n', &format!("\n{:width$}  ", ""));
        let name = name.replace('_', " ");
        text.push_str(format!("{name:width$}  {value}").trim_end());
        text.push('\n');
    }
    text
}

/// Formats a value for one table cell: on one line, truncated, times without fractions of a second.
fn cell(column: &str, value: &Value) -> String {
    let mut text = words(value).replace(['\n', '\t'], " ");
    if column.ends_with("_at")
        && let Some((seconds, _)) = text.split_once('.')
    {
        text = format!("{seconds}Z");
    }
    if text.chars().count() <= MAX_CELL_CHARS {
        return if text.is_empty() { "-".to_owned() } else { text };
    }
    let head: String = text.chars().take(MAX_CELL_CHARS - 1).collect();
    format!("{head}…")
}

fn words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(is) => if *is { "yes" } else { "no" }.to_owned(),
        Value::String(text) => plain(text),
        Value::Number(number) => number.to_string(),
        Value::Array(values) => values.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name} {}", words(value)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_and_shows_what_is_missing() {
        let rows = vec![
            json!({"name": "main", "is_default": true, "model": ""}),
            json!({"name": "helper", "is_default": false, "model": "demo:demo"}),
        ];

        assert_eq!(
            table(&["name", "is_default", "model"], &rows),
            "NAME    IS DEFAULT  MODEL\n\
             main    yes         -\n\
             helper  no          demo:demo\n"
        );
    }

    #[test]
    fn times_are_shown_to_the_second() {
        let rows = vec![json!({"made_at": "2026-01-02T03:04:05.678901Z"})];

        assert_eq!(table(&["made_at"], &rows), "MADE AT\n2026-01-02T03:04:05Z\n");
    }

    #[test]
    fn what_others_wrote_cannot_drive_the_terminal_or_break_the_table() {
        let rows = vec![json!({"text": format!("a\x1b[2J\r\nb{}", "c".repeat(100))})];

        let text = table(&["text"], &rows);

        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains('\x1b') && !text.contains('\r'), "{text:?}");
        assert!(text.lines().all(|line| line.chars().count() <= MAX_CELL_CHARS), "{text}");
    }

    #[test]
    fn a_sheet_indents_long_values() {
        let thing = json!({"a": 1, "id": "ses_1", "text": "one\ntwo"});

        assert_eq!(sheet(&["id", "text"], &thing), "id    ses_1\ntext  one\n      two\na     1\n");
    }
}
