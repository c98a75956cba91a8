//! Conditions for compactions and flushes (CMP-008, CMP-010, AGT-008).

use holdfast_types::SessionKind;

use super::{Budget, Reason};
use crate::outcome::NO_REPLY;

/// Maximum number of messages without a background summary.
pub const SUMMARY_MESSAGES: usize = 20;

/// Number of the newest messages that a background summary keeps.
pub const KEPT_MESSAGES: usize = 4;

/// Number of times that the oldest half is dropped before a turn is given up.
pub const MAX_DROPS: u8 = 2;

/// Distance from the limit at which memory is flushed, in tokens.
pub const SOFT_THRESHOLD_TOKENS: usize = 4_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversationSize {
    pub messages: usize,
    pub tokens: usize,
    /// The model's context window, in tokens.
    pub window: usize,
}

/// Whether a background summary is due: more than 20 messages, or more than 75 % of the window.
#[must_use]
pub const fn needs_summary(fill: ConversationSize) -> bool {
    fill.messages > SUMMARY_MESSAGES
        || fill.tokens.saturating_mul(4) > fill.window.saturating_mul(3)
}

/// Measures already taken for one request that was refused as too long. Independent of the retries
/// that a key or a provider is charged with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverflowMeasures {
    /// A compaction was tried, with or without success.
    pub is_compacted: bool,
    /// Number of times that the oldest half was dropped.
    pub drops: u8,
}

/// Next measure for a request that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Summarise the older part ([`Plan::compact`](super::Plan::compact)), then ask again.
    Compact,
    /// Drop the oldest half ([`drop_oldest`](super::drop_oldest)), then ask again.
    DropOldest,
    GiveUp,
}

/// Returns the next measure for a request that is too long: one compaction, then at most two drops
/// of the oldest half (C-22).
#[must_use]
pub const fn remedy(tried: OverflowMeasures) -> Remedy {
    if !tried.is_compacted {
        Remedy::Compact
    } else if tried.drops < MAX_DROPS {
        Remedy::DropOldest
    } else {
        Remedy::GiveUp
    }
}

/// Conditions for a memory flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushConditions {
    pub reason: Reason,
    pub tokens: usize,
    pub budget: Budget,
    pub kind: SessionKind,
    /// The agent has the `write` tool in this session and may write to its workspace.
    pub may_write: bool,
    /// Number of compactions of this conversation.
    pub compactions: u32,
    /// That number at the last flush.
    pub flushed_at: Option<u32>,
}

/// Whether memory is flushed before the coming compaction: once for each, and only in sessions that
/// can write to a memory of their own.
#[must_use]
pub fn needs_memory_flush(flush: &FlushConditions) -> bool {
    let has_memory = match flush.kind {
        SessionKind::Main
        | SessionKind::Dm
        | SessionKind::Group
        | SessionKind::Topic
        | SessionKind::Cron
        | SessionKind::Work
        | SessionKind::Api
        | SessionKind::Global => true,
        // A subagent reports its results, and a heartbeat's conversation is not kept.
        SessionKind::Subagent | SessionKind::Heartbeat => false,
    };
    let is_near = match flush.reason {
        Reason::Overflow | Reason::Asked => true,
        Reason::Proactive => {
            !flush.budget.fits(flush.tokens.saturating_add(SOFT_THRESHOLD_TOKENS + 1))
        }
    };
    has_memory && flush.may_write && flush.flushed_at != Some(flush.compactions) && is_near
}

/// Returns the instruction for a flush; `note` is the path of the day's note, as
/// `memory/202612/20261201.md`.
#[must_use]
pub fn flush_instruction(note: &str) -> String {
    format!(
        "Pre-compaction memory flush: this conversation is about to be summarised. Store durable \
         memories now, with the write tool, in {note}: decisions, facts, preferences, \
         promises and open questions that should outlive it. If that file exists, keep what it \
         says and add to it. Do nothing else, and do not address the user. When you are done, or \
         if there is nothing to store, reply with {NO_REPLY}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_summarises_above_20_messages_or_three_quarters_of_the_window() {
        for (messages, tokens, window, is_time) in [
            (20, 0, 1_000, false),
            (21, 0, 1_000, true),
            (1, 750, 1_000, false),
            (1, 751, 1_000, true),
            (0, 0, 0, false),
        ] {
            assert_eq!(
                needs_summary(ConversationSize { messages, tokens, window }),
                is_time,
                "{messages} {tokens}"
            );
        }
    }

    #[test]
    fn an_overflow_is_compacted_once_then_the_oldest_half_goes_twice() {
        let mut tried = OverflowMeasures::default();
        let mut remedies = Vec::new();
        loop {
            let remedy = remedy(tried);
            remedies.push(remedy);
            match remedy {
                Remedy::Compact => tried.is_compacted = true,
                Remedy::DropOldest => tried.drops += 1,
                Remedy::GiveUp => break,
            }
        }

        assert_eq!(
            remedies,
            [Remedy::Compact, Remedy::DropOldest, Remedy::DropOldest, Remedy::GiveUp]
        );
    }

    const NEAR: FlushConditions = FlushConditions {
        reason: Reason::Proactive,
        tokens: 107_616, // 128 000 − 16 384 − 4 000
        budget: Budget { window: 128_000, reserve: 16_384, instructions: 0 },
        kind: SessionKind::Main,
        may_write: true,
        compactions: 2,
        flushed_at: None,
    };

    #[test]
    fn memory_is_written_down_4000_tokens_before_the_room_is_used_up() {
        assert!(needs_memory_flush(&NEAR));
        assert!(!needs_memory_flush(&FlushConditions { tokens: NEAR.tokens - 1, ..NEAR }));
    }

    #[test]
    fn a_model_that_refused_has_memory_written_down_whatever_was_estimated() {
        assert!(needs_memory_flush(&FlushConditions {
            reason: Reason::Overflow,
            tokens: 0,
            ..NEAR
        }));
    }

    #[test]
    fn memory_is_written_down_once_for_each_compaction() {
        for reason in [Reason::Proactive, Reason::Overflow] {
            assert!(!needs_memory_flush(&FlushConditions { reason, flushed_at: Some(2), ..NEAR }));
            assert!(needs_memory_flush(&FlushConditions { reason, flushed_at: Some(1), ..NEAR }));
        }
    }

    #[test]
    fn who_cannot_write_or_has_no_memory_is_not_asked_to() {
        assert!(!needs_memory_flush(&FlushConditions { may_write: false, ..NEAR }));
        assert!(!needs_memory_flush(&FlushConditions { kind: SessionKind::Heartbeat, ..NEAR }));
        assert!(!needs_memory_flush(&FlushConditions { kind: SessionKind::Subagent, ..NEAR }));
        assert!(needs_memory_flush(&FlushConditions { kind: SessionKind::Group, ..NEAR }));
    }

    #[test]
    fn the_instruction_names_the_file_the_tool_and_the_silent_reply() {
        let told = flush_instruction("memory/202612/20261201.md");

        assert!(told.contains("with the write tool, in memory/202612/20261201.md:"), "{told}");
        assert!(told.ends_with("reply with NO_REPLY."), "{told}");
    }
}
