//! Lines of IRC (<https://modern.ircdocs.horse/>), with the tags of IRCv3.

/// A line, parsed. The text of its last parameter may contain spaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Line {
    tags: Vec<(String, String)>,
    /// Nick of the sender, or the server's name.
    pub(super) source: String,
    /// Command in upper case, or a numeric.
    pub(super) command: String,
    pub(super) params: Vec<String>,
}

impl Line {
    /// Parses a line without its end; `None` if it has no command.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut parsed = Self::default();
        let mut rest = line.trim_end_matches(['\r', '\n']).trim_start_matches(' ');
        if let Some(tagged) = rest.strip_prefix('@') {
            let (tags, after) = tagged.split_once(' ')?;
            let tag = |tag: &str| {
                let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
                (key.to_owned(), unescape(value))
            };
            parsed.tags = tags.split(';').map(tag).collect();
            rest = after.trim_start_matches(' ');
        }
        if let Some(prefixed) = rest.strip_prefix(':') {
            let (source, after) = prefixed.split_once(' ')?;
            let nick = source.split(['!', '@']).next().unwrap_or_default();
            nick.clone_into(&mut parsed.source);
            rest = after.trim_start_matches(' ');
        }
        let (head, trailing) = match rest.split_once(" :") {
            Some((head, trailing)) => (head, Some(trailing)),
            None => (rest, None),
        };
        let mut words = head.split(' ').filter(|word| !word.is_empty());
        parsed.command = words.next()?.to_ascii_uppercase();
        parsed.params = words.map(str::to_owned).collect();
        parsed.params.extend(trailing.map(str::to_owned));
        Some(parsed)
    }

    pub(super) fn tag(&self, name: &str) -> Option<&str> {
        let found = self.tags.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns a parameter; empty if there is none.
    pub(super) fn param(&self, at: usize) -> &str {
        self.params.get(at).map(String::as_str).unwrap_or_default()
    }

    /// Returns the last parameter, which numerics use for their explanation.
    pub(super) fn text(&self) -> &str {
        self.params.last().map(String::as_str).unwrap_or_default()
    }
}

fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some(':')) => plain.push(';'),
            ('\\', Some('s')) => plain.push(' '),
            ('\\', Some('r')) => plain.push('\r'),
            ('\\', Some('n')) => plain.push('\n'),
            ('\\', Some(other)) => plain.push(other),
            ('\\', None) => {}
            (c, _) => plain.push(c),
        }
    }
    plain
}

pub(super) fn is_channel(target: &str) -> bool {
    target.starts_with(['#', '&', '+', '!'])
}

/// Whether a text can be the target of a message: one word, and not several targets.
pub(super) fn is_target(target: &str) -> bool {
    !target.is_empty()
        && target.len() <= 80
        && !target.starts_with(':')
        && !target.chars().any(|c| c.is_whitespace() || c.is_control() || c == ',')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = Line::parse("@account=anna;msgid=a\\sb :anna!u@h PRIVMSG #team :hi : there\r\n");
        let line = line.unwrap();

        assert_eq!((line.source.as_str(), line.command.as_str()), ("anna", "PRIVMSG"));
        assert_eq!(line.params, ["#team", "hi : there"]);
        assert_eq!((line.tag("account"), line.tag("msgid")), (Some("anna"), Some("a b")));
        assert_eq!(line.tag("time"), None);
        assert_eq!(Line::parse("PING :x").unwrap().params, ["x"]);
        assert_eq!(Line::parse(":irc 001 bot :Welcome").unwrap().param(0), "bot");
        for nothing in ["", " ", ":only", "@tags"] {
            assert_eq!(Line::parse(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_target_is_one_word() {
        assert!(is_target("#team") && is_target("anna"));
        for bad in ["", "a b", "a,b", "a\r\nQUIT", ":a"] {
            assert!(!is_target(bad), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_it_fail(line in "[@: ;=a-z\\\\!\\PC]{0,80}") {
            let _ = Line::parse(&line);
        }
    }
}
