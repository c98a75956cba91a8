//! Intake: which inbox messages a turn hears.
//!
//! | queue mode of the turn's first message | the turn hears |
//! |---|---|
//! | steer, collect | it and those behind it, up to the first of another mode |
//! | followup, interrupt | only this message |
//!
//! A command is a turn of its own; `/stop` cancels everything before it. Silent messages are heard
//! together with the next message. The order never changes: a message of another mode blocks those
//! behind it. A message of mode interrupt ends the turn before it.

use holdfast_session::InboxMessage;
use holdfast_types::{Command, QueueMode};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Intake {
    /// These messages were cancelled by the user: finish them.
    Cancelled(Vec<i64>),
    /// Newer input ends the turn, which includes these messages besides those already heard.
    Interrupted(Vec<i64>),
    /// Hear these messages besides those already heard; may be empty.
    Hear(Vec<i64>),
}

/// Decides about the inbox of a turn that has heard `heard` so far. `open` is whether the turn has
/// begun.
pub(crate) fn decide_intake(
    waiting: &[InboxMessage],
    heard: &[i64],
    open: bool,
    cancel_upto: i64,
) -> Intake {
    let stop = waiting.iter().rev().find(|row| row.body.command() == Some(Command::Stop));
    let cancel_upto = stop.map_or(cancel_upto, |stop| cancel_upto.max(stop.seq - 1));
    let unwanted: Vec<i64> =
        waiting.iter().map(|row| row.seq).filter(|seq| *seq <= cancel_upto).collect();
    if !unwanted.is_empty() {
        return Intake::Cancelled(unwanted);
    }
    let head = match first_message(waiting, heard) {
        None if !open => waiting.iter().find(|row| !row.body.silent),
        found => found,
    };
    if head.is_none() && !open {
        return Intake::Hear(Vec::new());
    }
    let new = messages_to_hear(waiting, heard, head);
    let ends = |row: &InboxMessage| {
        row.mode == QueueMode::Interrupt
            && !row.body.silent
            && row.body.command().is_none()
            && !heard.contains(&row.seq)
            && head.is_some_and(|head| row.seq > head.seq)
    };
    if waiting.iter().any(ends) { Intake::Interrupted(new) } else { Intake::Hear(new) }
}

/// The message that began the turn, if it is not finished.
pub(crate) fn first_message<'w>(
    waiting: &'w [InboxMessage],
    heard: &[i64],
) -> Option<&'w InboxMessage> {
    waiting.iter().find(|row| !row.body.silent && heard.contains(&row.seq))
}

fn messages_to_hear(
    waiting: &[InboxMessage],
    heard: &[i64],
    head: Option<&InboxMessage>,
) -> Vec<i64> {
    let gathers = head.is_none_or(can_be_combined);
    let mut new = Vec::new();
    for row in waiting.iter().filter(|row| !heard.contains(&row.seq)) {
        let is_head = head.is_some_and(|head| head.seq == row.seq);
        let before_head = head.is_some_and(|head| row.seq < head.seq);
        let fits = is_head || (row.body.silent && before_head) || (gathers && can_be_combined(row));
        if !fits {
            break;
        }
        new.push(row.seq);
    }
    new
}

fn can_be_combined(row: &InboxMessage) -> bool {
    row.body.silent || (combines(row.mode) && row.body.command().is_none())
}

const fn combines(mode: QueueMode) -> bool {
    match mode {
        QueueMode::Steer | QueueMode::Collect => true,
        QueueMode::Followup | QueueMode::Interrupt => false,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Body, MessageId};
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use QueueMode::{Collect, Followup, Interrupt, Steer};

    fn row(seq: i64, mode: QueueMode) -> InboxMessage {
        InboxMessage {
            seq,
            message: MessageId::generate(),
            body: Body::text("hi"),
            seen: false,
            mode,
            source: "test".to_owned(),
            target: None,
            trace: None,
            accepted_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn rows(modes: &[QueueMode]) -> Vec<InboxMessage> {
        (1..).zip(modes).map(|(seq, mode)| row(seq, *mode)).collect()
    }

    fn silent(seq: i64) -> InboxMessage {
        let body = Body { silent: true, ..Body::text("psst") };
        InboxMessage { body, ..row(seq, Steer) }
    }

    #[test]
    fn steered_and_collected_messages_are_one_turn() {
        let waiting = rows(&[Steer, Collect, Steer]);

        assert_eq!(decide_intake(&waiting, &[], false, 0), Intake::Hear(vec![1, 2, 3]));
        assert_eq!(decide_intake(&waiting, &[1], true, 0), Intake::Hear(vec![2, 3]));
    }

    #[test]
    fn a_followup_has_a_turn_of_its_own_and_keeps_its_place() {
        let waiting = rows(&[Steer, Followup, Steer]);

        assert_eq!(decide_intake(&waiting, &[], false, 0), Intake::Hear(vec![1]));
        assert_eq!(decide_intake(&waiting[1..], &[], false, 0), Intake::Hear(vec![2]));
        assert_eq!(decide_intake(&waiting[1..], &[2], true, 0), Intake::Hear(vec![]));
    }

    #[test]
    fn newer_input_ends_a_turn_only_if_it_says_so() {
        let waiting = rows(&[Interrupt, Interrupt, Interrupt]);

        assert_eq!(decide_intake(&waiting, &[], false, 0), Intake::Interrupted(vec![1]));
        assert_eq!(decide_intake(&waiting[1..], &[], false, 0), Intake::Interrupted(vec![2]));
        assert_eq!(decide_intake(&waiting[2..], &[], false, 0), Intake::Hear(vec![3]));
        assert_eq!(decide_intake(&waiting[2..], &[3], true, 0), Intake::Hear(vec![]));
        assert_eq!(
            decide_intake(&rows(&[Steer, Steer, Interrupt]), &[1], true, 0),
            Intake::Interrupted(vec![2])
        );
    }

    #[test]
    fn what_is_silent_is_taken_along_and_begins_nothing() {
        let waiting = [silent(1), row(2, Followup), silent(3), row(4, Steer)];

        assert_eq!(decide_intake(&waiting[..1], &[], false, 0), Intake::Hear(vec![]));
        assert_eq!(decide_intake(&waiting, &[], false, 0), Intake::Hear(vec![1, 2]));
        assert_eq!(decide_intake(&waiting[2..], &[], false, 0), Intake::Hear(vec![3, 4]));
    }

    fn says(seq: i64, mode: QueueMode, text: &str) -> InboxMessage {
        InboxMessage { body: Body::text(text), ..row(seq, mode) }
    }

    #[test]
    fn a_command_is_a_turn_of_its_own_and_ends_none() {
        let waiting = [row(1, Steer), says(2, Steer, "/status"), row(3, Steer)];
        assert_eq!(decide_intake(&waiting, &[], false, 0), Intake::Hear(vec![1]));
        assert_eq!(decide_intake(&waiting, &[1], true, 0), Intake::Hear(vec![]));
        assert_eq!(decide_intake(&waiting[1..], &[], false, 0), Intake::Hear(vec![2]));

        let waiting = [row(1, Interrupt), says(2, Interrupt, "/status")];
        assert_eq!(decide_intake(&waiting, &[1], true, 0), Intake::Hear(vec![]));
    }

    #[test]
    fn a_stop_cancels_what_is_before_it_and_nothing_else() {
        let waiting = [row(1, Steer), row(2, Followup), says(3, Steer, "/stop"), row(4, Steer)];

        assert_eq!(decide_intake(&waiting, &[1], true, 0), Intake::Cancelled(vec![1, 2]));
        assert_eq!(decide_intake(&waiting[2..], &[], false, 0), Intake::Hear(vec![3]));
    }

    #[test]
    fn what_is_cancelled_goes_before_anything_else() {
        let waiting = rows(&[Steer, Steer, Interrupt]);

        assert_eq!(decide_intake(&waiting, &[1], true, 2), Intake::Cancelled(vec![1, 2]));
    }

    proptest! {
        #[test]
        fn nothing_is_skipped(modes in prop::collection::vec(0..5_u8, 0..12)) {
            let waiting: Vec<InboxMessage> = (1..)
                .zip(&modes)
                .map(|(seq, mode)| match mode {
                    0 => row(seq, Steer),
                    1 => row(seq, Collect),
                    2 => row(seq, Followup),
                    3 => row(seq, Interrupt),
                    _ => silent(seq),
                })
                .collect();

            let (Intake::Hear(new) | Intake::Interrupted(new) | Intake::Cancelled(new)) =
                decide_intake(&waiting, &[], false, 0);

            let prefix: Vec<i64> = waiting.iter().map(|row| row.seq).take(new.len()).collect();
            prop_assert_eq!(new.is_empty(), waiting.iter().all(|row| row.body.silent));
            prop_assert_eq!(new, prefix);
        }
    }
}
