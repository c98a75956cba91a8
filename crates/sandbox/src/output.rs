//! Output of a command, kept up to a limit.

use std::{collections::VecDeque, fmt};

/// Consumer of a command's output.
pub(crate) trait OutputSink: Send + 'static {
    fn push(&mut self, bytes: &[u8]);
}

/// Output of a command: all of it, or its beginning and its end.
///
/// `Debug` shows sizes, never the text.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct CapturedOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

impl CapturedOutput {
    /// Keeps `most` bytes: half of them from the beginning, half from the end.
    pub(crate) fn at_most(most: usize) -> Self {
        Self { half: most / 2, ..Self::default() }
    }

    /// Number of bytes missing between the beginning and the end.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        let kept = self.head.len() + self.tail.len();
        self.total.saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX))
    }

    /// Returns the text, with a note about the number of missing bytes at the gap.
    ///
    /// Invalid UTF-8 is replaced by `�`.
    #[must_use]
    pub fn to_text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        match self.omitted() {
            0 => String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned(),
            omitted => format!(
                "{}\n[… {omitted} bytes left out …]\n{}",
                String::from_utf8_lossy(&self.head),
                String::from_utf8_lossy(&tail),
            ),
        }
    }
}

impl OutputSink for CapturedOutput {
    fn push(&mut self, bytes: &[u8]) {
        self.total += u64::try_from(bytes.len()).unwrap_or(0);
        let room = (self.half - self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        push_last(&mut self.tail, rest, self.half);
    }
}

impl fmt::Debug for CapturedOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Captured({} bytes, {} left out)", self.total, self.omitted())
    }
}

/// Appends the bytes, and drops the oldest beyond `most`.
fn push_last(kept: &mut VecDeque<u8>, bytes: &[u8], most: usize) {
    let bytes = &bytes[bytes.len().saturating_sub(most)..];
    let excess = (kept.len() + bytes.len()).saturating_sub(most);
    kept.drain(..excess);
    kept.extend(bytes);
}

/// Latest output of a background process, addressed by byte number.
pub(crate) struct OutputRing {
    kept: VecDeque<u8>,
    most: usize,
    total: u64,
}

/// Part of the output of a background process.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct OutputChunk {
    pub bytes: Vec<u8>,
    /// Number of bytes before them that were dropped unread.
    pub skipped: u64,
    /// Byte number to read from next.
    pub next: u64,
}

impl fmt::Debug for OutputChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes, {} skipped)", self.bytes.len(), self.skipped)
    }
}

impl fmt::Debug for OutputRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutputRing({} bytes)", self.total)
    }
}

impl OutputRing {
    pub(crate) const fn at_most(most: usize) -> Self {
        Self { kept: VecDeque::new(), most, total: 0 }
    }

    /// Returns the output from byte number `from` on.
    pub(crate) fn read(&self, from: u64) -> OutputChunk {
        let kept = u64::try_from(self.kept.len()).unwrap_or(0);
        let oldest = self.total - kept;
        let from = from.min(self.total);
        let skipped = oldest.saturating_sub(from);
        let skip = usize::try_from(from.saturating_sub(oldest)).unwrap_or(usize::MAX);
        OutputChunk {
            bytes: self.kept.iter().skip(skip).copied().collect(),
            skipped,
            next: self.total,
        }
    }
}

impl OutputSink for OutputRing {
    fn push(&mut self, bytes: &[u8]) {
        self.total += u64::try_from(bytes.len()).unwrap_or(0);
        push_last(&mut self.kept, bytes, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(most: usize, pieces: &[&str]) -> CapturedOutput {
        let mut captured = CapturedOutput::at_most(most);
        for piece in pieces {
            captured.push(piece.as_bytes());
        }
        captured
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let captured = captured(10, &["abc", "def", "ghij"]);

        assert_eq!(captured.to_text(), "abcdefghij");
        assert_eq!((captured.total, captured.omitted()), (10, 0));
    }

    #[test]
    fn of_more_the_beginning_and_the_end_are_kept_and_the_gap_is_told() {
        let captured = captured(10, &["0123456", "789", "0123456789", "X"]);

        assert_eq!(captured.to_text(), "01234\n[… 11 bytes left out …]\n6789X");
        assert_eq!((captured.total, captured.omitted()), (21, 11));
    }

    #[test]
    fn a_flood_takes_no_more_than_its_share() {
        let mut captured = CapturedOutput::at_most(1000);
        for _ in 0..1000 {
            captured.push(&[b'x'; 5000]);
        }

        assert_eq!(captured.total, 5_000_000);
        assert!(captured.head.len() + captured.tail.len() <= 1000);
        assert!(captured.tail.capacity() <= 4000, "{}", captured.tail.capacity());
    }

    #[test]
    fn a_ring_is_read_on_and_tells_what_it_forgot() {
        let mut ring = OutputRing::at_most(4);
        ring.push(b"ab");
        let first = ring.read(0);
        assert_eq!(first, OutputChunk { bytes: b"ab".to_vec(), skipped: 0, next: 2 });

        ring.push(b"cd");
        assert_eq!(ring.read(first.next).bytes, b"cd");
        assert_eq!(ring.read(first.next).bytes, b"cd", "reading takes nothing away");

        ring.push(b"efgh");
        assert_eq!(ring.read(2), OutputChunk { bytes: b"efgh".to_vec(), skipped: 2, next: 8 });
        assert_eq!(ring.read(99), OutputChunk { bytes: Vec::new(), skipped: 0, next: 8 });
    }
}
