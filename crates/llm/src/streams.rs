//! Decoding of recorded streams in tests, whole and cut at every byte.

use holdfast_types::Reply;

use crate::{
    Delta, Error,
    http::{Decode, FrameSplitter, Frames},
};

/// The pieces and the result of decoding a stream.
pub(crate) type DecodedStream = (Vec<Delta>, Result<Reply, Error>);

/// Decodes a stream that arrives in these chunks.
pub(crate) fn decode<D: Decode>(mut decoder: D, frames: Frames, chunks: &[&[u8]]) -> DecodedStream {
    let (mut cutter, mut deltas) = (FrameSplitter::new(frames), vec![]);
    for chunk in chunks {
        if let Err(error) = cutter.push(chunk) {
            return (deltas, Err(error));
        }
        while let Some(data) = cutter.pop() {
            match decoder.push(&data) {
                Ok(more) => deltas.extend(more),
                Err(error) => return (deltas, Err(error)),
            }
        }
    }
    cutter.end();
    while let Some(Ok(more)) = cutter.pop().map(|data| decoder.push(&data)) {
        deltas.extend(more);
    }
    (deltas, decoder.finish())
}

/// Decodes a stream and checks that the result does not depend on where it is cut.
pub(crate) fn cut_everywhere<D: Decode>(
    new: impl Fn() -> D,
    frames: Frames,
    stream: &str,
) -> DecodedStream {
    let whole = decode(new(), frames, &[stream.as_bytes()]);
    let shown = |(deltas, reply): &DecodedStream| format!("{deltas:?} {reply:?}");
    for at in 0..=stream.len() {
        let (one, other) = stream.as_bytes().split_at(at);
        let cut = decode(new(), frames, &[one, other]);
        assert_eq!(shown(&cut), shown(&whole), "cut at {at}");
    }
    let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
    assert_eq!(shown(&decode(new(), frames, &bytes)), shown(&whole));
    whole
}

/// Checks that a stream cut before the end of `text` is reported as interrupted, and is complete
/// after it.
pub(crate) fn broken_before<D: Decode>(
    new: impl Fn() -> D,
    frames: Frames,
    stream: &str,
    text: &str,
) {
    let end = stream.rfind(text).unwrap_or_else(|| panic!("no `{text}`")) + text.len();
    for at in 0..end {
        let (_, reply) = decode(new(), frames, &[&stream.as_bytes()[..at]]);
        assert!(matches!(reply, Err(Error::Interrupted)), "at {at}: {reply:?}");
    }
    let (_, reply) = decode(new(), frames, &[&stream.as_bytes()[..end]]);
    assert!(reply.is_ok(), "{reply:?}");
}
