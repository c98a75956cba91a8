//! iCalendar files, line by line (RFC 5545, section 3.1).
//!
//! A changed event must keep everything that this code does not know: alarms, guests, other
//! programs' properties, time zones. So a calendar is stored as its lines, and unchanged lines are
//! written as they were read; only changed ones are interpreted.

use std::{fmt::Write as _, ops::Range};

/// Maximum length of a written line, in bytes, without its line break.
const MAX_LINE_LEN: usize = 75;

/// Line of a file, in the form `NAME;PARAMETERS:VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    name: String,
    /// Parameters as written, with the `;` before each.
    params: String,
    /// Value as written, with escapes.
    value: String,
}

impl Line {
    fn new(name: &str, params: &str, value: &str) -> Self {
        Self { name: name.to_owned(), params: params.to_owned(), value: value.to_owned() }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut quoted = false;
        let colon = line.char_indices().find_map(|(at, c)| {
            quoted ^= c == '"';
            (c == ':' && !quoted).then_some(at)
        })?;
        let (head, value) = (&line[..colon], &line[colon + 1..]);
        let end = head.find(';').unwrap_or(head.len());
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        if end == 0 || !head[..end].chars().all(is_name) {
            return None;
        }
        Some(Self::new(&head[..end].to_ascii_uppercase(), &head[end..], value))
    }

    /// Returns the value as written.
    pub(super) fn value(&self) -> &str {
        &self.value
    }

    /// Returns the value of a text property, unescaped.
    pub(super) fn text(&self) -> String {
        let mut text = String::with_capacity(self.value.len());
        let mut letters = self.value.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => match letters.next() {
                    Some('n' | 'N') => text.push('\n'),
                    Some(other) => text.push(other),
                    None => text.push('\\'),
                },
                letter => text.push(letter),
            }
        }
        text
    }

    /// Returns the value of a parameter, without its quotes.
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        let params = self.params.split(';').filter_map(|param| param.split_once('='));
        params
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim_matches('"'))
            .next()
    }

    fn write(&self, out: &mut String) {
        let line = format!("{}{}:{}", self.name, self.params, self.value);
        let mut rest = line.as_str();
        let mut room = MAX_LINE_LEN;
        while rest.len() > room {
            let at = rest.floor_char_boundary(room);
            // Writing to a `String` cannot fail.
            let _ = write!(out, "{}\r\n ", &rest[..at]);
            rest = &rest[at..];
            // The space at the start of a continuation line counts.
            room = MAX_LINE_LEN - 1;
        }
        let _ = write!(out, "{rest}\r\n");
    }
}

/// Escapes a text for use as a value.
pub(super) fn escaped(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for letter in text.replace("\r\n", "\n").chars() {
        match letter {
            '\\' | ',' | ';' => value.extend(['\\', letter]),
            '\n' => value.push_str("\\n"),
            // Other control characters are not permitted in a text.
            letter if letter.is_control() && letter != '\t' => {}
            letter => value.push(letter),
        }
    }
    value
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ics(Vec<Line>);

impl Ics {
    /// Builds a calendar with one event from its properties: name, parameters, value.
    pub(super) fn event(properties: &[(&str, &str, String)]) -> Self {
        let mut lines = vec![
            Line::new("BEGIN", "", "VCALENDAR"),
            Line::new("VERSION", "", "2.0"),
            Line::new("PRODID", "", "-//Holdfast//Holdfast//EN"),
            Line::new("BEGIN", "", "VEVENT"),
        ];
        lines.extend(properties.iter().map(|(name, params, value)| Line::new(name, params, value)));
        lines.push(Line::new("END", "", "VEVENT"));
        lines.push(Line::new("END", "", "VCALENDAR"));
        Self(lines)
    }

    /// Parses a calendar; `None` if the text is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unfolded =
            text.replace("\r\n", "\n").replace("\n ", "").replace("\n\t", "").replace('\r', "");
        let lines = unfolded.lines().filter(|line| !line.trim().is_empty());
        let lines: Vec<Line> = lines.map(Line::parse).collect::<Option<_>>()?;
        let begins = lines.first().is_some_and(|line| {
            line.name == "BEGIN" && line.value.eq_ignore_ascii_case("VCALENDAR")
        });
        begins.then_some(Self(lines))
    }

    /// Line ranges of the events, without their `BEGIN` and `END`.
    pub(super) fn events(&self) -> Vec<Range<usize>> {
        let mut events = Vec::new();
        let mut begun = None;
        for (at, line) in self.0.iter().enumerate() {
            let is_event = line.value.eq_ignore_ascii_case("VEVENT");
            match line.name.as_str() {
                "BEGIN" if is_event => begun = Some(at + 1),
                "END" if is_event => events.extend(begun.take().map(|from| from..at)),
                _ => {}
            }
        }
        events
    }

    /// The event itself, and not a moved occurrence of a series.
    pub(super) fn main_event(&self) -> Option<Range<usize>> {
        let events = self.events();
        let main = events.iter().find(|event| self.get(event, "RECURRENCE-ID").is_none());
        main.or_else(|| events.first()).cloned()
    }

    /// Lines of an event without those of its alarms, with their indices.
    fn own_lines<'a>(&'a self, event: &Range<usize>) -> impl Iterator<Item = (usize, &'a Line)> {
        let mut depth = 0_usize;
        let lines = self.0.iter().enumerate().take(event.end).skip(event.start);
        lines.filter(move |(_, line)| {
            let was = depth;
            match line.name.as_str() {
                "BEGIN" => depth += 1,
                "END" => depth = depth.saturating_sub(1),
                _ => {}
            }
            was == 0 && depth == 0
        })
    }

    /// Returns a property of an event.
    pub(super) fn get(&self, event: &Range<usize>, name: &str) -> Option<&Line> {
        self.own_lines(event).find(|(_, line)| line.name == name).map(|(_, line)| line)
    }

    /// Sets a property of an event; returns the event's new range.
    #[must_use]
    pub(super) fn set(
        &mut self,
        event: Range<usize>,
        name: &str,
        params: &str,
        value: &str,
    ) -> Range<usize> {
        let event = self.remove(event, name);
        self.0.insert(event.start, Line::new(name, params, value));
        event.start..event.end + 1
    }

    /// Removes a property of an event; returns the event's new range.
    #[must_use]
    pub(super) fn remove(&mut self, event: Range<usize>, name: &str) -> Range<usize> {
        let places: Vec<usize> = self
            .own_lines(&event)
            .filter(|(_, line)| line.name == name)
            .map(|(at, _)| at)
            .collect();
        for at in places.iter().rev() {
            self.0.remove(*at);
        }
        event.start..event.end - places.len()
    }

    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        self.0.iter().for_each(|line| line.write(&mut out));
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OTHERS: &str = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//Other//EN\r\n\
        BEGIN:VTIMEZONE\r\nTZID:Europe/Berlin\r\nBEGIN:STANDARD\r\nDTSTART:19701025T030000\r\n\
        TZOFFSETFROM:+0200\r\nTZOFFSETTO:+0100\r\nEND:STANDARD\r\nEND:VTIMEZONE\r\n\
        BEGIN:VEVENT\r\nUID:1@other\r\nDTSTAMP:20261101T000000Z\r\n\
        DTSTART;TZID=Europe/Berlin:20261201T090000\r\nDTEND;TZID=Europe/Berlin:20261201T100000\r\n\
        SUMMARY:Dentist\\, again\r\nATTENDEE;CN=\"Doe; Jane\":mailto:jane@example.com\r\n\
        ATTENDEE;CN=Ben:mailto:ben@example.com\r\nX-MINE:a:b;c\r\n\
        BEGIN:VALARM\r\nACTION:DISPLAY\r\nSUMMARY:the alarm's\r\nTRIGGER:-PT15M\r\nEND:VALARM\r\n\
        END:VEVENT\r\nEND:VCALENDAR\r\n";

    #[test]
    fn what_is_not_changed_stays_as_it_was() {
        let mut ics = Ics::parse(OTHERS).unwrap();
        assert_eq!(ics.text(), OTHERS);

        let event = ics.main_event().unwrap();
        let event = ics.set(event, "SUMMARY", "", &escaped("Dentist; moved"));
        let event = ics.remove(event, "DTEND");

        assert_eq!(ics.get(&event, "SUMMARY").unwrap().text(), "Dentist; moved");
        let expected = OTHERS
            .replace("SUMMARY:Dentist\\, again\r\n", "")
            .replace("DTEND;TZID=Europe/Berlin:20261201T100000\r\n", "")
            .replace("UID:1@other", "SUMMARY:Dentist\\; moved\r\nUID:1@other");
        assert_eq!(ics.text(), expected);
        assert_eq!(&ics.events(), std::slice::from_ref(&event));
    }

    #[test]
    fn an_event_s_parts_are_read() {
        let ics = Ics::parse(OTHERS).unwrap();
        let event = ics.main_event().unwrap();

        let start = ics.get(&event, "DTSTART").unwrap();
        assert_eq!(
            (start.param("tzid"), start.value()),
            (Some("Europe/Berlin"), "20261201T090000")
        );
        assert_eq!(ics.get(&event, "SUMMARY").unwrap().text(), "Dentist, again");
        assert_eq!(ics.get(&event, "TRIGGER"), None);
    }

    #[test]
    fn what_is_no_calendar_is_none() {
        for text in ["", "hello", "BEGIN:VEVENT\nEND:VEVENT", "BEGIN:VCALENDAR\nno colon here"] {
            assert_eq!(Ics::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_reads_back_and_begins_no_line(text in "[\\PC\n,;:\\\\\"]{0,300}") {
            let ics = Ics::event(&[("SUMMARY", "", escaped(&text))]);

            let written = ics.text();

            prop_assert!(written.split("\r\n").all(|line| line.len() <= MAX_LINE_LEN));
            let read = Ics::parse(&written).unwrap();
            let event = read.main_event().unwrap();
            prop_assert_eq!(read.get(&event, "SUMMARY").unwrap().text(), text);
            prop_assert_eq!(read.events().len(), 1);
        }

        #[test]
        fn no_text_breaks_the_reader(text in "(BEGIN:VCALENDAR\n)?.{0,200}") {
            if let Some(ics) = Ics::parse(&text) {
                let _ = (ics.events(), ics.text());
            }
        }
    }
}
