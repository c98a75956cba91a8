//! Lexical parts that structured headers share: comments, folding, quoted strings (RFC 5322,
//! section 3.2).
//!
//! Strict: a header with something that these rules do not permit is malformed as a whole, since
//! another program may have read it in another way.

/// A header violates its grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedHeader;

/// Position in the value of a header.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(value: &'a str) -> Self {
        Self { rest: value }
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    pub(super) const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes this character, if it is the next one.
    pub(super) fn take(&mut self, wanted: char) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes the characters that match; may be empty.
    pub(super) fn take_while(&mut self, matches: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|letter| !matches(letter)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Skips white space and comments, which may be nested; returns whether there was any.
    pub(super) fn skip_comments(&mut self) -> Result<bool, MalformedHeader> {
        let before = self.rest.len();
        loop {
            self.take_while(is_space);
            if !self.take('(') {
                return Ok(self.rest.len() < before);
            }
            let mut depth = 1_usize;
            while depth > 0 {
                match self.next()? {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    '\\' => drop(self.next()?),
                    _ => {}
                }
            }
        }
    }

    /// Takes a quoted string, whose opening quote is the next character, without its quotes.
    pub(super) fn quoted_string(&mut self) -> Result<String, MalformedHeader> {
        if !self.take('"') {
            return Err(MalformedHeader);
        }
        let mut text = String::new();
        loop {
            match self.next()? {
                '"' => return Ok(text),
                '\\' => text.push(self.next()?),
                // The line break of a folded header is no part of the text.
                '\r' | '\n' => {}
                letter => text.push(letter),
            }
        }
    }

    fn next(&mut self) -> Result<char, MalformedHeader> {
        let letter = self.peek().ok_or(MalformedHeader)?;
        self.rest = &self.rest[letter.len_utf8()..];
        Ok(letter)
    }
}

pub(super) const fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n')
}

/// Whether a header has characters that no honest program writes: control characters other than
/// those of folding.
pub(super) fn has_control_characters(value: &str) -> bool {
    value.chars().any(|letter| letter.is_control() && !is_space(letter))
}

/// Whether a text is a domain name as it stands in DNS. International names have their ASCII form
/// (`xn--…`) there: one in Unicode may look like another.
pub(super) fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}
