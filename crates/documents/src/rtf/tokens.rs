//! Tokens of Rich Text Format: groups, control words, symbols and text.

/// Maximum length of a control word's name and of its number, in bytes.
const MAX_NAME_BYTES: usize = 32;
const MAX_NUMBER_BYTES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    GroupStart,
    GroupEnd,
    /// Control word, as in `\fs24`, without its backslash.
    Word {
        name: &'a [u8],
        value: Option<i32>,
    },
    /// Backslash and a character that is no letter.
    Symbol(u8),
    /// Byte written as two hexadecimal digits.
    Byte(u8),
    /// Text in the current encoding, without line ends.
    Text(&'a [u8]),
}

/// Iterator over the tokens of a document. Binary data in it is passed over.
#[derive(Debug)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub const fn new(content: &'a [u8]) -> Self {
        Self { rest: content }
    }

    /// Splits off a number of bytes, or all that are left.
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, most: usize, is_taken: impl Fn(u8) -> bool) -> &'a [u8] {
        let count = self.rest.iter().take(most).take_while(|byte| is_taken(**byte)).count();
        self.take(count)
    }

    /// Reads what follows a backslash.
    fn control(&mut self) -> Option<Token<'a>> {
        let first = *self.rest.first()?;
        if first.is_ascii_alphabetic() {
            return Some(self.word());
        }
        self.take(1);
        if first != b'\'' {
            return Some(Token::Symbol(first));
        }
        let digits = std::str::from_utf8(self.take(2)).unwrap_or_default();
        Some(u8::from_str_radix(digits, 16).map_or(Token::Text(b""), Token::Byte))
    }

    fn word(&mut self) -> Token<'a> {
        let name = self.take_while(MAX_NAME_BYTES, |byte| byte.is_ascii_alphabetic());
        let sign = self.take_while(1, |byte| byte == b'-');
        let digits = self.take_while(MAX_NUMBER_BYTES, |byte| byte.is_ascii_digit());
        self.take_while(1, |byte| byte == b' ');
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<i32>().ok());
        let value = number.map(|number| if sign.is_empty() { number } else { -number });
        if name == b"bin" {
            self.take(usize::try_from(value.unwrap_or_default()).unwrap_or_default());
        }
        Token::Word { name, value }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.take_while(usize::MAX, |byte| matches!(byte, b'\r' | b'\n' | 0));
        match self.rest.first()? {
            b'{' => {
                self.take(1);
                Some(Token::GroupStart)
            }
            b'}' => {
                self.take(1);
                Some(Token::GroupEnd)
            }
            b'\\' => {
                self.take(1);
                self.control()
            }
            _ => {
                let is_text = |byte| !matches!(byte, b'{' | b'}' | b'\\' | b'\r' | b'\n' | 0);
                Some(Token::Text(self.take_while(usize::MAX, is_text)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(name: &str, value: Option<i32>) -> Token<'_> {
        Token::Word { name: name.as_bytes(), value }
    }

    #[test]
    fn words_symbols_bytes_and_text_are_told_apart() {
        let tokens: Vec<Token<'_>> =
            Tokens::new(b"{\\u-10179\\'3f \\b x\\~\r\n\\*\\bin3 }{\\ z\\'zz}\\").collect();

        assert_eq!(
            tokens,
            [
                Token::GroupStart,
                word("u", Some(-10179)),
                Token::Byte(b'?'),
                Token::Text(b" "),
                word("b", None),
                Token::Text(b"x"),
                Token::Symbol(b'~'),
                Token::Symbol(b'*'),
                word("bin", Some(3)),
                Token::Text(b" z"),
                Token::Text(b""),
                Token::GroupEnd,
            ]
        );
    }
}
