//! JSON lines: splits a stream of bytes.
//!
//! The buffer of an incomplete line is bounded.

use std::collections::VecDeque;

use crate::Error;

/// Maximum length of a line, in bytes.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

/// Splits a stream of bytes into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
    ready: VecDeque<Vec<u8>>,
}

impl Lines {
    /// Adds bytes.
    ///
    /// # Errors
    ///
    /// If a line is longer than any provider's.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            self.end();
        }
        self.line.extend_from_slice(rest);
        if self.line.len() > MAX_LINE_BYTES {
            return Err(Error::TooLong { what: "lines", limit: MAX_LINE_BYTES });
        }
        Ok(())
    }

    /// Returns the next complete line.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// Ends the stream: a last line needs no line break.
    pub(crate) fn end(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.trim_ascii().is_empty() {
            self.ready.push_back(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_at_any_byte_changes_nothing() {
        let stream = "{\"a\":\"ä\"}\r\n\n{\"b\":2}";
        let read = |chunks: [&[u8]; 2]| {
            let mut lines = Lines::default();
            for chunk in chunks {
                lines.push(chunk).unwrap();
            }
            lines.end();
            std::iter::from_fn(|| lines.pop()).collect::<Vec<_>>()
        };

        for at in 0..=stream.len() {
            let (one, other) = stream.as_bytes().split_at(at);
            let lines = read([one, other]);
            assert_eq!(lines, ["{\"a\":\"ä\"}\r".as_bytes(), b"{\"b\":2}"], "cut at {at}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::default();

        assert!(lines.push(&vec![b'x'; MAX_LINE_BYTES]).is_ok());
        assert!(matches!(lines.push(b"x"), Err(Error::TooLong { .. })));
    }
}
