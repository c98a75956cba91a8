//! Frames of `application/vnd.amazon.eventstream`.
//!
//! | bytes | contents |
//! |---|---|
//! | 4 | length of the whole frame |
//! | 4 | length of the headers |
//! | 4 | CRC-32 of the 8 bytes before |
//! | … | headers: length of the name, name, type, value |
//! | … | payload |
//! | 4 | CRC-32 of all before |
//!
//! Source: <https://smithy.io/2.0/aws/amazon-eventstream.html>. A frame becomes a JSON object with one
//! field: the type of the event, or of the exception after `!`.

use std::collections::VecDeque;

use crate::Error;

/// Maximum size of a frame, in bytes.
const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;
/// Lengths and checksums of a frame, in bytes.
const PRELUDE_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;
/// Type of a header's value that is a text.
const STRING: u8 = 7;

/// Splits a stream into frames.
#[derive(Debug, Default)]
pub(crate) struct EventStream {
    buffer: Vec<u8>,
    ready: VecDeque<Vec<u8>>,
}

impl EventStream {
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.buffer.extend_from_slice(chunk);
        let mut at = 0;
        while let Some(length) = frame_length(&self.buffer[at..])? {
            let Some(frame) = self.buffer.get(at..at + length) else { break };
            if let Some(event) = event(frame)? {
                self.ready.push_back(event);
            }
            at += length;
        }
        self.buffer.drain(..at);
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }
}

/// Length of the frame at the beginning; `None` if it has not arrived.
fn frame_length(buffer: &[u8]) -> Result<Option<usize>, Error> {
    let Some(prelude) = buffer.get(..PRELUDE_BYTES) else { return Ok(None) };
    if number(prelude, 8) != crc32fast::hash(&prelude[..8]) {
        return Err(Error::Malformed("a frame's checksum is wrong"));
    }
    let (length, headers) = (size(prelude, 0), size(prelude, 4));
    if length > MAX_FRAME_BYTES {
        return Err(Error::TooLong { what: "frame, in bytes", limit: MAX_FRAME_BYTES });
    }
    if headers.saturating_add(PRELUDE_BYTES + CHECKSUM_BYTES) > length {
        return Err(Error::Malformed("a frame is shorter than its headers"));
    }
    Ok(Some(length))
}

/// Converts a whole frame; `None` for a kind that is not known.
fn event(frame: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let end = frame.len() - CHECKSUM_BYTES;
    if number(frame, end) != crc32fast::hash(&frame[..end]) {
        return Err(Error::Malformed("a frame's checksum is wrong"));
    }
    let payload = PRELUDE_BYTES + size(frame, 4);
    let names = names(&frame[PRELUDE_BYTES..payload])?;
    let payload = &frame[payload..end];
    let payload = if payload.is_empty() { b"{}" } else { payload };
    let name = match (names.event, names.exception) {
        (_, Some(exception)) => format!("!{exception}"),
        (Some(event), None) => event,
        (None, None) => return Ok(None),
    };
    let mut json = format!("{{{}:", serde_json::Value::from(name)).into_bytes();
    json.extend_from_slice(payload);
    json.push(b'}');
    Ok(Some(json))
}

/// Headers of a frame.
#[derive(Default)]
struct Names {
    event: Option<String>,
    /// Type of an exception, or code of an error.
    exception: Option<String>,
}

fn names(mut headers: &[u8]) -> Result<Names, Error> {
    let mut names = Names::default();
    while !headers.is_empty() {
        let length = usize::from(take(&mut headers, 1)?[0]);
        let name = take(&mut headers, length)?;
        let kind = take(&mut headers, 1)?[0];
        let length = match kind {
            0 | 1 => 0,
            2 => 1,
            3 => 2,
            4 => 4,
            5 | 8 => 8,
            6 | STRING => {
                let length = take(&mut headers, 2)?;
                usize::from(u16::from_be_bytes([length[0], length[1]]))
            }
            9 => 16,
            _ => return Err(Error::Malformed("a frame has a header of an unknown type")),
        };
        let value = take(&mut headers, length)?;
        if kind == STRING {
            let value = || String::from_utf8(value.to_vec()).ok();
            match name {
                b":event-type" => names.event = value(),
                b":exception-type" | b":error-code" => names.exception = value(),
                _ => {}
            }
        }
    }
    Ok(names)
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> Result<&'b [u8], Error> {
    let (taken, rest) = bytes
        .split_at_checked(length)
        .ok_or(Error::Malformed("a frame's header is longer than the frame"))?;
    *bytes = rest;
    Ok(taken)
}

/// Returns the big-endian number of four bytes; 0 beyond the end.
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes)
}

fn size(bytes: &[u8], at: usize) -> usize {
    usize::try_from(number(bytes, at)).unwrap_or(usize::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A frame as AWS writes it: `kind` is `event` or `exception`.
    pub(crate) fn frame(kind: &str, name: &str, payload: &str) -> Vec<u8> {
        let mut headers = Vec::new();
        let texts = [
            (":message-type", kind.to_owned()),
            (":content-type", "application/json".to_owned()),
            (if kind == "event" { ":event-type" } else { ":exception-type" }, name.to_owned()),
        ];
        for (name, value) in texts {
            headers.push(u8::try_from(name.len()).unwrap());
            headers.extend_from_slice(name.as_bytes());
            headers.push(STRING);
            headers.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
            headers.extend_from_slice(value.as_bytes());
        }
        let length = PRELUDE_BYTES + headers.len() + payload.len() + CHECKSUM_BYTES;
        let mut frame = u32::try_from(length).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(&u32::try_from(headers.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
        frame.extend_from_slice(&headers);
        frame.extend_from_slice(payload.as_bytes());
        frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
        frame
    }

    fn all(stream: &mut EventStream) -> Vec<String> {
        std::iter::from_fn(|| stream.pop()).map(|json| String::from_utf8(json).unwrap()).collect()
    }

    // A message without headers, from the test vectors of Smithy's implementations.
    #[test]
    fn a_published_frame_has_its_checksums() {
        let mut bytes = vec![0, 0, 0, 0x1d, 0, 0, 0, 0, 0xfd, 0x52, 0x8c, 0x5a];
        bytes.extend_from_slice(b"{'foo':'bar'}");
        bytes.extend_from_slice(&[0xc3, 0x65, 0x39, 0x36]);

        assert_eq!(frame_length(&bytes).unwrap(), Some(bytes.len()));
        assert_eq!(event(&bytes).unwrap(), None);
    }

    #[test]
    fn frames_are_read_however_the_stream_is_cut() {
        let mut bytes = frame("event", "messageStart", r#"{"role":"assistant"}"#);
        bytes.extend(frame("exception", "throttlingException", r#"{"message":"slow"}"#));
        for cut in 0..bytes.len() {
            let mut stream = EventStream::default();
            stream.push(&bytes[..cut]).unwrap();
            stream.push(&bytes[cut..]).unwrap();

            assert_eq!(
                all(&mut stream),
                [
                    r#"{"messageStart":{"role":"assistant"}}"#,
                    r#"{"!throttlingException":{"message":"slow"}}"#,
                ],
                "{cut}"
            );
        }
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let good = frame("event", "messageStart", r#"{"role":"assistant"}"#);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let mut stream = EventStream::default();
            let outcome = stream.push(&bad);
            assert!(outcome.is_err() && all(&mut stream).is_empty(), "{at}");
        }
    }
}
