//! Report of the measurements: a table for people or a JSON document.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use serde::Serialize;

/// Everything that was measured, and under which conditions.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    conditions: Vec<(String, String)>,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Line {
    section: &'static str,
    what: String,
    value: f64,
    unit: Unit,
    bound: Option<Bound>,
    /// Whether the benchmark fails if the bound is missed.
    required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub enum Unit {
    #[serde(rename = "µs")]
    Micros,
    #[serde(rename = "ms")]
    Millis,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "/s")]
    PerSecond,
    /// 1024 bytes.
    #[serde(rename = "KB")]
    Kilobytes,
    /// 1024² bytes.
    #[serde(rename = "MB")]
    Megabytes,
    #[serde(rename = "%")]
    Percent,
    #[serde(rename = "")]
    Count,
    #[serde(rename = "per turn")]
    PerTurn,
    /// One figure divided by another.
    #[serde(rename = "ratio")]
    Ratio,
}

/// What is to be reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Line {
    /// A figure that nothing is expected of.
    pub fn new(what: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self {
            section: "",
            what: what.into(),
            value,
            unit,
            bound: None,
            required: false,
            note: None,
        }
    }

    pub fn millis(what: impl Into<String>, time: Duration) -> Self {
        Self::new(what, time.as_secs_f64() * 1000.0, Unit::Millis)
    }

    pub fn micros(what: impl Into<String>, time: Duration) -> Self {
        Self::new(what, time.as_secs_f64() * 1_000_000.0, Unit::Micros)
    }

    pub fn count(what: impl Into<String>, count: usize) -> Self {
        Self::new(what, float(count), Unit::Count)
    }

    /// It is to be so much or less.
    pub const fn at_most(mut self, bound: f64) -> Self {
        self.bound = Some(Bound::AtMost(bound));
        self
    }

    /// It is to be so much or more.
    pub const fn at_least(mut self, bound: f64) -> Self {
        self.bound = Some(Bound::AtLeast(bound));
        self
    }

    /// The benchmark fails if the bound is missed.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Adds what a reader should know of it.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    fn cells(&self) -> [String; 4] {
        let bound = match self.bound {
            None => String::new(),
            Some(Bound::AtMost(bound)) => format!("≤ {}", self.unit.show(bound)),
            Some(Bound::AtLeast(bound)) => format!("≥ {}", self.unit.show(bound)),
        };
        [self.what.clone(), self.unit.show(self.value), bound, self.verdict().to_owned()]
    }

    fn verdict(&self) -> &'static str {
        match self.bound {
            None => "",
            Some(Bound::AtMost(bound)) if self.value <= bound => "ok",
            Some(Bound::AtLeast(bound)) if self.value >= bound => "ok",
            Some(Bound::AtMost(_) | Bound::AtLeast(_)) => "MISSED",
        }
    }
}

impl Report {
    /// Says under which conditions was measured.
    pub fn condition(&mut self, what: &str, value: impl Into<String>) {
        self.conditions.push((what.to_owned(), value.into()));
    }

    pub fn add(&mut self, section: &'static str, lines: impl IntoIterator<Item = Line>) {
        self.lines.extend(lines.into_iter().map(|line| Line { section, ..line }));
    }

    /// The names of required figures that are missed.
    pub fn failures(&self) -> Vec<&str> {
        let missed = |line: &&Line| line.required && line.verdict() == "MISSED";
        self.lines.iter().filter(missed).map(|line| line.what.as_str()).collect()
    }

    /// The report as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// The report as a table.
    ///
    /// # Errors
    ///
    /// Never; it is what writing text returns.
    pub fn table(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        for (what, value) in &self.conditions {
            writeln!(out, "{what:<12} {value}")?;
        }
        let rows: Vec<[String; 4]> = self.lines.iter().map(Line::cells).collect();
        let width = |column: usize, least: usize| {
            rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(least)
        };
        let (what, value, bound) = (width(0, 4), width(1, 8), width(2, 8));
        let mut section = "";
        for (line, [name, is, wanted, verdict]) in self.lines.iter().zip(&rows) {
            if line.section != section {
                section = line.section;
                let (measured, to_reach) = ("measured", "to reach");
                writeln!(out, "\n{section:<what$}  {measured:>value$}  {to_reach:>bound$}")?;
            }
            let note = line.note.as_deref().unwrap_or_default();
            let row =
                format!("{name:<what$}  {is:>value$}  {wanted:>bound$}  {verdict:<6}  {note}");
            writeln!(out, "{}", row.trim_end())?;
        }
        let missed = self.lines.iter().filter(|line| line.verdict() == "MISSED").count();
        let bound = self.lines.iter().filter(|line| line.bound.is_some()).count();
        writeln!(out, "\n{} of {bound} figures are reached", bound - missed)?;
        Ok(out)
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Micros => format!("{value:.2} µs"),
            Self::Millis if value < 10.0 => format!("{value:.2} ms"),
            Self::Millis => format!("{value:.1} ms"),
            Self::Seconds => format!("{value:.2} s"),
            Self::PerSecond => format!("{value:.0} /s"),
            Self::Kilobytes => format!("{value:.1} KB"),
            Self::Megabytes if value.abs() < 1.0 => format!("{value:.4} MB"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::Percent => format!("{value:.2} %"),
            Self::Count => format!("{value:.0}"),
            Self::PerTurn | Self::Ratio => format!("{value:.2}"),
        }
    }
}

/// A count as a figure. No count here comes near the 2⁵³ from which on that is not exact.
#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
pub const fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_said() {
        let mut report = Report::default();
        report.add(
            "turns",
            [
                Line::millis("p50", Duration::from_millis(5)).at_most(6.0),
                Line::new("rate", 99.0, Unit::PerSecond).at_least(100.0).note("too few"),
                Line::count("lost", 0),
            ],
        );

        let table = report.table().unwrap();

        let verdicts: Vec<_> = report.lines.iter().map(Line::verdict).collect();
        assert_eq!(verdicts, ["ok", "MISSED", ""]);
        assert!(
            table.contains("5.00 ms") && table.contains("≥ 100 /s  MISSED  too few"),
            "{table}"
        );
        assert!(table.contains("1 of 2 figures are reached"), "{table}");
        assert!(report.failures().is_empty());
        report.add("turns", [Line::count("late", 2).at_most(1.0).required()]);
        assert_eq!(report.failures(), ["late"]);
    }
}
