//! Follows the frames of a client while their bytes are read.
//!
//! A large message is charged to its tenant's budget of requests in memory when its frames announce
//! their sizes, before they are in memory. The codec keeps the buffer of a large frame for later
//! ones; reads end with such a frame, so that the codec is empty then and can be replaced.

use std::{fmt, io::Cursor};

use holdfast_kit::BudgetShare;
use holdfast_types::TenantId;
use tokio_tungstenite::tungstenite::protocol::frame::{
    FrameHeader,
    coding::{Data, OpCode},
};

use crate::bodies::BodyBudget;

/// Size of a message up to which it is not charged, and of a frame up to which its buffer is kept.
pub const SMALL_BYTES: u64 = 16 * 1024;

/// Maximum length of a frame's header.
const MAX_HEADER_BYTES: usize = 14;

/// Messages of all connections have as many bytes as they may.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the requests that are being read have as many bytes as they may")]
pub struct NoRoom;

/// Bytes of a large message, until it is answered.
pub type MessageCharge = BudgetShare<TenantId>;

pub struct FrameTracker {
    budget: BodyBudget,
    tenant: TenantId,
    /// Header of the next frame, as far as it was read.
    header: [u8; MAX_HEADER_BYTES],
    header_len: usize,
    /// Bytes of the current frame that were not read.
    left: u64,
    /// Size of the current message's frames so far.
    message: u64,
    is_in_message: bool,
    /// Whether a frame of the current message is large.
    is_large: bool,
    charge: Option<MessageCharge>,
    /// Charge of a message before the current one.
    ended: Option<MessageCharge>,
}

impl FrameTracker {
    pub const fn new(budget: BodyBudget, tenant: TenantId) -> Self {
        Self {
            budget,
            tenant,
            header: [0; MAX_HEADER_BYTES],
            header_len: 0,
            left: 0,
            message: 0,
            is_in_message: false,
            is_large: false,
            charge: None,
            ended: None,
        }
    }

    /// Number of bytes that may be read next: in a large message no more than its frame has.
    pub fn read_limit(&self) -> usize {
        match (self.is_large, self.left) {
            (false, _) => usize::MAX,
            (true, 0) => 1,
            (true, left) => usize::try_from(left).unwrap_or(usize::MAX),
        }
    }

    /// Follows bytes that were read.
    pub fn observe(&mut self, mut bytes: &[u8]) -> Result<(), NoRoom> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let read = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= read as u64;
                bytes = bytes.get(read..).unwrap_or_default();
                continue;
            }
            bytes = rest;
            if let Some(byte) = self.header.get_mut(self.header_len) {
                *byte = *first;
                self.header_len += 1;
            }
            let header = self.header.get(..self.header_len).unwrap_or_default();
            match FrameHeader::parse(&mut Cursor::new(header)) {
                Ok(None) => {}
                Ok(Some((header, length))) => self.begin(&header, length)?,
                // The codec ends the connection.
                Err(_) => self.left = u64::MAX,
            }
        }
        Ok(())
    }

    fn begin(&mut self, header: &FrameHeader, length: u64) -> Result<(), NoRoom> {
        (self.header_len, self.left) = (0, length);
        let OpCode::Data(kind) = header.opcode else { return Ok(()) };
        if !matches!(kind, Data::Continue) {
            self.message = 0;
            self.ended = self.charge.take();
        }
        self.is_in_message = !header.is_final;
        self.is_large |= length > SMALL_BYTES;
        let before = self.message;
        self.message = before.saturating_add(length);
        if self.message <= SMALL_BYTES {
            return Ok(());
        }
        let new = if before <= SMALL_BYTES { self.message } else { length };
        let charge = self.charge.get_or_insert_with(|| self.budget.share(self.tenant));
        charge.grow(new).map_err(|_| NoRoom)
    }

    /// Charge of the message that the codec has returned; `None` of a small one.
    pub fn take_charge(&mut self) -> Option<MessageCharge> {
        let is_current = self.is_between_messages();
        self.ended.take().or_else(|| self.charge.take_if(|_| is_current))
    }

    /// Whether the codec has returned a message with a large frame, and has read nothing after it.
    pub fn has_ended_large(&self) -> bool {
        self.is_large && self.is_between_messages()
    }

    /// Registers that the codec was replaced by one with small buffers.
    pub fn reset(&mut self) {
        self.is_large = false;
    }

    const fn is_between_messages(&self) -> bool {
        self.left == 0 && self.header_len == 0 && !self.is_in_message
    }
}

impl fmt::Debug for FrameTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameTracker").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_kit::{BudgetSpent, config::reload::Current};
    use proptest::prelude::*;

    use super::*;
    use crate::Config;

    fn tracker(body_bytes_per_tenant: u64) -> FrameTracker {
        let mut config = Config::default();
        config.gateway.body_bytes_per_tenant = body_bytes_per_tenant;
        FrameTracker::new(BodyBudget::new(Current::from(config)), TenantId::generate())
    }

    /// Frame of a client, masked with zeros.
    fn frame(opcode: u8, is_final: bool, length: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let opcode = OpCode::from(opcode);
        let header = FrameHeader { is_final, opcode, mask: Some([0; 4]), ..FrameHeader::default() };
        header.format(length, &mut bytes).unwrap();
        bytes.resize(bytes.len() + usize::try_from(length).unwrap(), b'x');
        bytes
    }

    /// Reads as the codec does: as much as there is room for, and as may be read.
    fn read(tracker: &mut FrameTracker, mut bytes: &[u8], chunk: usize) -> Result<(), NoRoom> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(chunk).min(tracker.read_limit()));
            tracker.observe(now)?;
            bytes = later;
        }
        Ok(())
    }

    #[test]
    fn a_large_message_is_charged_until_it_is_answered_and_a_small_one_is_not() {
        let mut tracker = tracker(100_000);
        read(&mut tracker, &frame(1, true, 16 * 1024), 1024).unwrap();
        assert!(tracker.take_charge().is_none() && !tracker.has_ended_large());

        for length in [70_000, 80_000] {
            read(&mut tracker, &frame(1, true, length), 1024).unwrap();
            assert!(tracker.has_ended_large());
            tracker.reset();
            assert_eq!(tracker.budget.share(tracker.tenant).grow(40_000), Err(BudgetSpent::Owner));
            assert!(tracker.take_charge().is_some());
        }
        let held = {
            read(&mut tracker, &frame(1, true, 70_000), 1024).unwrap();
            tracker.take_charge()
        };
        assert!(read(&mut tracker, &frame(1, true, 40_000), 1024).is_err());
        drop(held);
    }

    #[test]
    fn the_parts_of_a_message_are_charged_together() {
        let mut tracker = tracker(100_000);
        for (opcode, is_final) in [(1, false), (0, false), (9, true), (0, false), (0, true)] {
            let length = if opcode == 9 { 5 } else { 20_000 };
            read(&mut tracker, &frame(opcode, is_final, length), 1024).unwrap();
            assert_eq!(tracker.has_ended_large(), opcode == 0 && is_final);
        }
        assert!(tracker.take_charge().is_some());

        read(&mut tracker, &frame(1, false, 60_000), 1024).unwrap();
        assert!(read(&mut tracker, &frame(0, false, 60_000), 1024).is_err());
    }

    proptest! {
        /// However the frames are cut into reads: a codec that has returned a large message has read
        /// nothing of what follows.
        #[test]
        fn nothing_is_read_beyond_a_large_message(
            lengths in prop::collection::vec(prop_oneof![0_u64..200, 15_000_u64..40_000], 1..8),
            parts in prop::collection::vec(any::<bool>(), 8),
            chunk in 1_usize..1024,
        ) {
            let mut tracker = tracker(10_000_000);
            let mut is_in_message = false;
            for (length, is_final) in lengths.into_iter().zip(parts) {
                let opcode = if is_in_message { 0 } else { 1 };
                let bytes = frame(opcode, is_final, length);
                is_in_message = !is_final;
                prop_assert!(read(&mut tracker, &bytes, chunk).is_ok());
                prop_assert_eq!((tracker.left, tracker.header_len), (0, 0));
                prop_assert_eq!(tracker.is_in_message, is_in_message);
                if tracker.has_ended_large() {
                    tracker.reset();
                    tracker.take_charge();
                }
            }
        }

        #[test]
        fn any_bytes_of_a_client_are_followed(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            chunk in 1_usize..50,
        ) {
            let mut tracker = tracker(1_000_000);
            // A frame that is announced too large is refused, which ends the connection.
            let _ = read(&mut tracker, &bytes, chunk);
            tracker.take_charge();
        }
    }
}
