//! Calls that a service has accepted, until their contexts expire.

use std::collections::BTreeSet;

/// Maximum number of remembered calls. At about 40 bytes each they take 40 MB.
const MAX_SEEN_CALLS: usize = 1_000_000;

/// Random part of a context.
pub(crate) type Nonce = [u8; 12];

/// Reason why a call is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RefusedCall {
    Seen,
    /// Too many calls are remembered.
    Full,
}

/// Accepted calls by the time and the nonce of their contexts.
#[derive(Debug, Default)]
pub(crate) struct SeenCalls {
    calls: BTreeSet<(u64, Nonce)>,
}

impl SeenCalls {
    /// Records a call whose context was issued at `issued`, and forgets those that were issued
    /// before `expired`, both in Unix seconds.
    pub(crate) fn record(
        &mut self,
        issued: u64,
        nonce: Nonce,
        expired: u64,
    ) -> Result<(), RefusedCall> {
        while self.calls.first().is_some_and(|(issued, _)| *issued < expired) {
            self.calls.pop_first();
        }
        // A forgotten call could be repeated, so a full set accepts no other.
        if self.calls.len() >= MAX_SEEN_CALLS {
            return Err(RefusedCall::Full);
        }
        match self.calls.insert((issued, nonce)) {
            true => Ok(()),
            false => Err(RefusedCall::Seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_remembered_until_it_expires_and_others_are_not_forgotten_for_it() {
        let mut seen = SeenCalls::default();

        assert_eq!(seen.record(100, [1; 12], 0), Ok(()));
        assert_eq!(seen.record(100, [2; 12], 100), Ok(()));
        assert_eq!(seen.record(100, [1; 12], 100), Err(RefusedCall::Seen));
        assert_eq!(seen.record(200, [1; 12], 101), Ok(()));

        assert_eq!(seen.calls.len(), 1);
    }
}
