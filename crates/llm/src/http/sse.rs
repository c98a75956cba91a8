//! Server-sent events: splits a stream of bytes into the data of each event.
//!
//! Providers use only `data`; names, ids and comments are ignored. Chunks may end anywhere, even
//! within a character or a line break. The buffer of an incomplete event is bounded.

use std::collections::VecDeque;

use crate::Error;

/// Maximum size of an event, in bytes.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// Mark at the beginning of a stream, which is not part of its first line.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Splits a stream of bytes into events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Incomplete line.
    line: Vec<u8>,
    /// Data lines of the incomplete event.
    data: Option<Vec<u8>>,
    /// Whether the last byte was a `\r`, whose `\n` may follow in the next chunk.
    after_cr: bool,
    ready: VecDeque<Vec<u8>>,
    /// Whether the first line was read.
    has_begun: bool,
}

impl Events {
    /// Adds bytes.
    ///
    /// # Errors
    ///
    /// If an event is longer than any provider's.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        let mut rest = chunk;
        if self.after_cr && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        if !chunk.is_empty() {
            self.after_cr = false;
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.line.extend_from_slice(&rest[..end]);
            let cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if cr {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.end_line();
        }
        self.line.extend_from_slice(rest);
        let waiting = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
        if waiting > MAX_EVENT_BYTES {
            return Err(Error::TooLong { what: "events", limit: MAX_EVENT_BYTES });
        }
        Ok(())
    }

    /// Returns the data of the next complete event.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// Ends the stream: the last event needs no empty line.
    pub(crate) fn end(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.ready.extend(self.data.take());
    }

    fn end_line(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if is_first && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if line.is_empty() {
            self.ready.extend(self.data.take());
            return;
        }
        let Some(value) = line.strip_prefix(b"data") else { return };
        let value = match value {
            [] => value,
            [b':', b' ', value @ ..] | [b':', value @ ..] => value,
            // Another field whose name begins with `data`.
            [..] => return,
        };
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<String> {
        let mut events = Events::default();
        for chunk in chunks {
            events.push(chunk).unwrap();
        }
        events.end();
        std::iter::from_fn(|| events.pop()).map(|data| String::from_utf8(data).unwrap()).collect()
    }

    const STREAM: &str = ": hello\n\nevent: x\ndata: {\"a\":\"ä\"}\r\n\r\ndata:two\r\ndata: lines\n\n\
                          : keep-alive\r\n\r\nid: 7\ndatum: no\rdata\r\rdata: [DONE]\n";

    #[test]
    fn only_data_is_taken_whatever_ends_the_lines() {
        assert_eq!(read(&[STREAM.as_bytes()]), ["{\"a\":\"ä\"}", "two\nlines", "", "[DONE]"]);
    }

    #[test]
    fn a_byte_order_mark_costs_no_event() {
        let marked = format!("\u{feff}{STREAM}");
        let first = "\u{feff}data: a\n\ndata: \u{feff}b\n\n";

        assert_eq!(read(&[marked.as_bytes()]), read(&[STREAM.as_bytes()]));
        assert_eq!(read(&[first.as_bytes()]), ["a", "\u{feff}b"]);
    }

    #[test]
    fn a_cut_at_any_byte_changes_nothing() {
        let whole = read(&[STREAM.as_bytes()]);

        for at in 0..=STREAM.len() {
            let (one, other) = STREAM.as_bytes().split_at(at);
            assert_eq!(read(&[one, other]), whole, "cut at {at}");
            assert_eq!(read(&[one, b"", other]), whole, "cut at {at}, with nothing between");
        }
        let bytes: Vec<&[u8]> = STREAM.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), whole);
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = Events::default();
        let line = vec![b'x'; MAX_EVENT_BYTES];

        assert!(events.push(&line).is_ok());
        assert!(matches!(events.push(b"yy"), Err(Error::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20)) {
            let mut events = Events::default();
            for chunk in &chunks {
                events.push(chunk).unwrap();
            }
            events.end();
            while events.pop().is_some() {}
        }
    }
}
