//! Output of commands: tables or JSON on stdout, everything else on stderr.
//!
//! Much of the output was written by other people or models, so control characters are removed
//! before a terminal could interpret them.

pub mod progress;

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
};

use serde_json::{Value, json};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::error::Error;

/// Output format
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Tables and sentences for people
    Text,
    /// JSON with stable field names
    Json,
}

/// When to use colors
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set
    Auto,
    /// Also in pipes and files
    Always,
    /// Nowhere
    Never,
}

/// Maximum width of a table cell outside a terminal, in columns; `--output json` has whole values.
const MAX_CELL_WIDTH: usize = 60;
/// Width below which no column is narrowed, so that it can be recognized.
const MIN_CELL_WIDTH: usize = 8;
/// Columns between two cells.
const GAP: usize = 2;

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";

#[derive(Debug, Clone, Copy)]
pub struct Screen {
    format: Format,
    color: Color,
}

impl Screen {
    pub const fn new(format: Format, color: Color) -> Self {
        Self { format, color }
    }

    /// Whether a stream gets colors.
    pub fn has_color(self, is_terminal: bool) -> bool {
        has_color(self.color, is_terminal, env::var("NO_COLOR").ok(), env::var("TERM").ok())
    }

    /// Surrounds a text by the codes of a style.
    fn styled(self, style: &str, text: &str, is_terminal: bool) -> String {
        if self.has_color(is_terminal) {
            format!("\x1b[{style}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Prints several things: a table of these columns, or a JSON array with all fields.
    pub fn list(self, columns: &[&str], rows: Vec<Value>) -> Result<(), Error> {
        match self.format {
            Format::Json => self.json(&Value::Array(rows)),
            Format::Text if rows.is_empty() => self.note("there are none"),
            Format::Text => {
                let text = table(columns, &rows, terminal_width());
                let (head, body) = text.split_once('\n').unwrap_or((&text, ""));
                let head = self.styled(BOLD, head, io::stdout().is_terminal());
                self.print(&format!("{head}\n{body}"))
            }
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
        progress::clear();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Prints a remark to stderr.
    pub fn note(self, text: &str) -> Result<(), Error> {
        progress::clear();
        Ok(writeln!(io::stderr().lock(), "{text}")?)
    }

    /// Prints warnings to stderr.
    pub fn warn(self, warnings: &[String]) -> Result<(), Error> {
        warnings.iter().try_for_each(|warning| self.note(&format!("warning: {warning}")))
    }

    /// Prints a less important remark to stderr, dimmed on a terminal.
    pub fn aside(self, text: &str) -> Result<(), Error> {
        self.note(&self.styled(DIM, text, io::stderr().is_terminal()))
    }

    /// Prints the reason why the command failed. A failure to print it is ignored.
    pub fn fail(self, error: &Error) {
        if error.is_closed_pipe() {
            return;
        }
        progress::clear();
        let mut err = io::stderr().lock();
        drop(match self.format {
            Format::Text => {
                // Texts for models begin so.
                let text = plain(&error.to_string());
                let text = text.strip_prefix("Error: ").unwrap_or(&text);
                let head = self.styled(RED, "error:", err.is_terminal());
                writeln!(err, "{head} {text}")
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

/// Whether a stream gets colors, by the option and the environment.
fn has_color(
    color: Color,
    is_terminal: bool,
    no_color: Option<String>,
    term: Option<String>,
) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            is_terminal
                && no_color.is_none_or(|value| value.is_empty())
                && term.is_none_or(|term| term != "dumb")
        }
    }
}

/// Width of the terminal that stdout is, in columns.
fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (width, _) = crossterm::terminal::size().ok()?;
    Some(usize::from(width)).filter(|width| *width > 0)
}

/// Formats a table that is at most `limit` columns wide, if its cells can be shortened so far.
fn table(columns: &[&str], rows: &[Value], limit: Option<usize>) -> String {
    let head = columns.iter().map(|name| name.replace('_', " ").to_uppercase()).collect();
    let widest = limit.unwrap_or(MAX_CELL_WIDTH);
    let text = |row: &Value, name: &str| shorten(&cell(name, &row[name]), widest);
    let body = rows.iter().map(|row| columns.iter().map(|name| text(row, name)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(body).collect();
    let width = |at: usize| lines.iter().map(|line| line[at].width()).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns.len()).map(width).collect();
    if let Some(limit) = limit {
        let is_fixed: Vec<bool> = columns.iter().map(|name| *name == "id").collect();
        narrow(&mut widths, &is_fixed, limit);
    }

    let mut text = String::new();
    for line in &lines {
        let padded: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| pad(&shorten(cell, width), width))
            .collect();
        text.push_str(padded.join(&" ".repeat(GAP)).trim_end());
        text.push('\n');
    }
    text
}

/// Narrows the widest columns until all fit into a line. An id is of no use unless it is whole.
fn narrow(widths: &mut [usize], is_fixed: &[bool], limit: usize) {
    let gaps = widths.len().saturating_sub(1) * GAP;
    while widths.iter().sum::<usize>() + gaps > limit {
        let columns = widths.iter_mut().zip(is_fixed).filter(|(_, is_fixed)| !**is_fixed);
        match columns.map(|(width, _)| width).filter(|width| **width > MIN_CELL_WIDTH).max() {
            Some(widest) => *widest -= 1,
            None => return,
        }
    }
}

fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// Shortens a text to so many columns. A wide character takes two.
pub fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut head = String::new();
    let mut left = width.saturating_sub(1);
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if columns > left {
            break;
        }
        left -= columns;
        head.push(c);
    }
    format!("{head}…")
}

fn sheet(first: &[&str], thing: &Value) -> String {
    let Value::Object(fields) = thing else { return format!("{}\n", words(thing)) };
    let width = fields.keys().map(|name| name.width()).max().unwrap_or(0);
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

/// Formats a value for one table cell: on one line, times without fractions of a second.
fn cell(column: &str, value: &Value) -> String {
    let mut text = words(value).replace(['\n', '\t'], " ");
    if column.ends_with("_at")
        && let Some((seconds, _)) = text.split_once('.')
    {
        text = format!("{seconds}Z");
    }
    if text.is_empty() { "-".to_owned() } else { text }
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
            .map(|(name, value)| (name.replace('_', " "), words(value)))
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name} {value}"))
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
            table(&["name", "is_default", "model"], &rows, None),
            "NAME    IS DEFAULT  MODEL\n\
             main    yes         -\n\
             helper  no          demo:demo\n"
        );
    }

    #[test]
    fn times_are_shown_to_the_second() {
        let rows = vec![json!({"made_at": "2026-01-02T03:04:05.678901Z"})];

        assert_eq!(table(&["made_at"], &rows, None), "MADE AT\n2026-01-02T03:04:05Z\n");
    }

    #[test]
    fn what_others_wrote_cannot_drive_the_terminal_or_break_the_table() {
        let rows = vec![json!({"text": format!("a\x1b[2J\r\nb{}", "c".repeat(100))})];

        let text = table(&["text"], &rows, None);

        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains('\x1b') && !text.contains('\r'), "{text:?}");
        assert!(text.lines().all(|line| line.width() <= MAX_CELL_WIDTH), "{text}");
    }

    #[test]
    fn a_sheet_indents_long_values() {
        let thing = json!({"a": 1, "id": "ses_1", "text": "one\ntwo"});

        assert_eq!(sheet(&["id", "text"], &thing), "id    ses_1\ntext  one\n      two\na     1\n");
    }

    #[test]
    fn wide_characters_line_up() {
        let rows = vec![
            json!({"name": "学习计划", "agent": "main"}),
            json!({"name": "👍 ok", "agent": "main"}),
        ];

        let text = table(&["name", "agent"], &rows, None);

        let at: Vec<usize> = text.lines().map(|line| before_last_word(line).width()).collect();
        assert_eq!(at, [10, 10, 10], "{text}");
    }

    fn before_last_word(line: &str) -> &str {
        &line[..line.rfind(' ').map_or(0, |space| space + 1)]
    }

    #[test]
    fn a_table_fits_into_the_terminal_by_its_widest_columns() {
        let rows = vec![
            json!({"id": "ses_019a000000", "text": "学".repeat(40), "summary": "x".repeat(70)}),
        ];

        let text = table(&["id", "text", "summary"], &rows, Some(40));

        assert!(text.lines().all(|line| line.width() <= 40), "{text}");
        assert!(text.contains("ses_019a000000 ") && text.contains('…'), "{text}");
        let wide = table(&["summary"], &rows, Some(100));
        assert!(wide.contains(&"x".repeat(70)), "{wide}");
    }

    #[test]
    fn empty_fields_of_a_nested_value_are_left_out() {
        let rows = vec![json!({"context": {"exclude_skills": [], "max_files": 3}})];

        assert_eq!(table(&["context"], &rows, None), "CONTEXT\nmax files 3\n");
    }

    #[test]
    fn colors_are_for_terminals_of_people_who_want_them() {
        let set = |value: &str| Some(value.to_owned());

        assert!(has_color(Color::Auto, true, None, set("xterm")));
        assert!(has_color(Color::Auto, true, set(""), None));
        assert!(!has_color(Color::Auto, false, None, None));
        assert!(!has_color(Color::Auto, true, set("1"), None));
        assert!(!has_color(Color::Auto, true, None, set("dumb")));
        assert!(has_color(Color::Always, false, set("1"), None));
        assert!(!has_color(Color::Never, true, None, None));
    }
}
