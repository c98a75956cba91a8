//! Signed messages that a process has accepted, until they expire.

use std::collections::BTreeSet;

/// Maximum number of remembered messages. At about 40 bytes each they take 40 MB.
const MAX_SEEN_MESSAGES: usize = 1_000_000;

/// Random part of a signed message.
pub type Nonce = [u8; 12];

/// Reason why a signed message is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedMessage {
    Seen,
    /// Too many messages are remembered.
    Full,
}

/// Accepted messages by the time at which they were signed and their nonce.
#[derive(Debug, Default)]
pub struct SeenMessages {
    messages: BTreeSet<(u64, Nonce)>,
}

impl SeenMessages {
    /// Records a message that was signed at `issued`, and forgets those that were signed before
    /// `expired`, in one unit of time.
    ///
    /// # Errors
    ///
    /// [`RefusedMessage`] if it was recorded before, or too many are remembered.
    pub fn record(
        &mut self,
        issued: u64,
        nonce: Nonce,
        expired: u64,
    ) -> Result<(), RefusedMessage> {
        while self.messages.first().is_some_and(|(issued, _)| *issued < expired) {
            self.messages.pop_first();
        }
        // A forgotten message could be repeated, so a full set accepts no other.
        if self.messages.len() >= MAX_SEEN_MESSAGES {
            return Err(RefusedMessage::Full);
        }
        match self.messages.insert((issued, nonce)) {
            true => Ok(()),
            false => Err(RefusedMessage::Seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_remembered_until_it_expires_and_others_are_not_forgotten_for_it() {
        let mut seen = SeenMessages::default();

        assert_eq!(seen.record(100, [1; 12], 0), Ok(()));
        assert_eq!(seen.record(100, [2; 12], 100), Ok(()));
        assert_eq!(seen.record(100, [1; 12], 100), Err(RefusedMessage::Seen));
        assert_eq!(seen.record(200, [1; 12], 101), Ok(()));

        assert_eq!(seen.messages.len(), 1);
    }
}
