//! Cursor over a text that is parsed from left to right.

use super::words::digit;

/// Maximum digits of a number.
const MAX_NUMBER_DIGITS: usize = 6;

#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a>(pub(super) &'a str);

impl<'a> Cursor<'a> {
    /// Returns whether only white space is left.
    pub(super) fn is_done(&self) -> bool {
        self.0.trim_start().is_empty()
    }

    pub(super) fn gap(&mut self) {
        self.0 = self.0.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == '，');
    }

    /// Consumes `text` if the rest begins with it.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        match self.0.strip_prefix(text) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Consumes the first of the texts that matches. Returns its value.
    pub(super) fn eat_any<T: Copy>(&mut self, known: &[(&str, T)]) -> Option<T> {
        known.iter().find(|(text, _)| self.eat(text)).map(|(_, what)| *what)
    }

    /// Consumes a word if the rest begins with it and no letter follows.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let mut ahead = *self;
        let is_next = ahead.word() == Some(word);
        if is_next {
            *self = ahead;
        }
        is_next
    }

    /// Consumes several words with white space or commas between them.
    pub(super) fn eat_words(&mut self, words: &str) -> bool {
        let mut ahead = *self;
        let are_next = words.split(' ').all(|word| {
            ahead.gap();
            ahead.eat_word(word)
        });
        if are_next {
            *self = ahead;
        }
        are_next
    }

    /// Consumes a word of ASCII letters.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        let end = self.0.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        if word.is_empty() {
            return None;
        }
        self.0 = rest;
        Some(word)
    }

    pub(super) fn sign(&mut self) -> Option<char> {
        let sign = self.0.chars().next()?;
        self.0 = &self.0[sign.len_utf8()..];
        Some(sign)
    }

    /// Consumes a decimal or Chinese number. Returns its value and the number of digits, 0 for
    /// Chinese.
    pub(super) fn number(&mut self) -> Option<(i64, usize)> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        if end == 0 {
            return self.chinese().map(|number| (number, 0));
        }
        if end > MAX_NUMBER_DIGITS {
            return None;
        }
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits.parse().ok().map(|number| (number, end))
    }

    /// Consumes a Chinese number below 100: 五, 十, 十五, 五十, 五十五, 零五.
    fn chinese(&mut self) -> Option<i64> {
        let mut digit = || {
            let number = self.0.chars().next().and_then(digit)?;
            self.sign();
            Some(number)
        };
        let first = digit();
        if first == Some(0) {
            return Some(digit().unwrap_or(0));
        }
        if !self.eat("十") {
            return first;
        }
        let tens = first.unwrap_or(1) * 10;
        let mut ahead = *self;
        match ahead.sign().and_then(super::words::digit).filter(|ones| *ones > 0) {
            Some(ones) => {
                *self = ahead;
                Some(tens + ones)
            }
            None => Some(tens),
        }
    }
}
