//! Deadline of a call, from the `grpc-timeout` metadata.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// Timeout set by the caller; `None` if there is none or it cannot be parsed.
#[must_use]
pub fn caller_timeout(metadata: &MetadataMap) -> Option<Duration> {
    parse(metadata.get("grpc-timeout")?.to_str().ok()?)
}

/// Returns the shorter of the caller's timeout and `ours`.
#[must_use]
pub fn effective_timeout(metadata: &MetadataMap, ours: Duration) -> Duration {
    caller_timeout(metadata).map_or(ours, |theirs| theirs.min(ours))
}

/// Parses at most eight digits and a unit, as in the gRPC specification.
fn parse(text: &str) -> Option<Duration> {
    let (at, unit) = text.char_indices().next_back()?;
    let digits = &text[..at];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(n * 3600),
        'M' => Duration::from_secs(n * 60),
        'S' => Duration::from_secs(n),
        'm' => Duration::from_millis(n),
        'u' => Duration::from_micros(n),
        'n' => Duration::from_nanos(n),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        let read = ["2H", "3M", "4S", "5m", "6u", "7n"].map(|text| parse(text).unwrap());

        assert_eq!(
            read,
            [
                Duration::from_secs(7200),
                Duration::from_secs(180),
                Duration::from_secs(4),
                Duration::from_millis(5),
                Duration::from_micros(6),
                Duration::from_nanos(7),
            ]
        );
        for text in ["", "5", "m", "-1m", "123456789m", "5é", "5x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_shorter_time_wins() {
        let mut request = tonic::Request::new(());
        request.set_timeout(Duration::from_millis(250));

        let theirs = effective_timeout(request.metadata(), Duration::from_secs(1));
        let ours = effective_timeout(&MetadataMap::new(), Duration::from_secs(1));

        assert_eq!((theirs, ours), (Duration::from_millis(250), Duration::from_secs(1)));
    }
}
