//! Intake: which inbox messages a turn hears.
//!
//! | queue mode of the turn's first message | the turn hears |
//! |---|---|
//! | steer, collect | it and those behind it, up to the first of another mode |
//! | steer_backlog | as steer; but each message of this mode is also answered by a turn of its own |
//! | followup, interrupt | only this message |
//!
//! If more messages wait than their cap when a turn begins, those beyond it are heard with the turn as
//! their drop policy says, and are not answered for themselves.
//!
//! A command is a turn of its own; `/stop` cancels everything before it. Silent messages are heard
//! together with the next message. The order never changes: a message of another mode blocks those
//! behind it. A message of mode interrupt ends the turn before it.

use holdfast_session::InboxMessage;
use holdfast_types::{Body, Command, DropPolicy, QueueMode};

/// Characters that stay of a message beyond the cap.
const SUMMARY_CHARS: usize = 140;

/// Text in place of a message that was dropped.
const DROPPED: &str = "(A message was dropped here: more waited than the queue takes.)";

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
    let excess = if open { Vec::new() } else { excess_messages(waiting, heard).0 };
    let head = match first_message(waiting, heard) {
        None if !open => waiting.iter().find(|row| !row.body.silent && !excess.contains(&row.seq)),
        found => found,
    };
    if head.is_none() && !open {
        return Intake::Hear(Vec::new());
    }
    let mut new = messages_to_hear(waiting, heard, head, &excess, open);
    new.extend(excess.iter().filter(|seq| !new.contains(seq)).copied().collect::<Vec<_>>());
    new.sort_unstable();
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

/// Messages beyond the cap when a turn begins, and what becomes of them. The settings of the newest
/// message count.
pub(crate) fn excess_messages(waiting: &[InboxMessage], heard: &[i64]) -> (Vec<i64>, DropPolicy) {
    let pending = |row: &&InboxMessage| {
        !row.body.silent && !heard.contains(&row.seq) && row.body.command().is_none()
    };
    let newest = waiting.iter().rev().find(|row| pending(row));
    let Some(options) = newest.and_then(|row| row.body.options.as_ref()) else {
        return (Vec::new(), DropPolicy::default());
    };
    let policy = options.channel.queue.drop.unwrap_or_default();
    let cap = options.channel.queue.cap.map_or(usize::MAX, |cap| cap as usize);
    let pending: Vec<i64> = waiting.iter().filter(pending).map(|row| row.seq).collect();
    let count = pending.len().saturating_sub(cap);
    let excess = match policy {
        DropPolicy::Old | DropPolicy::Summarize => &pending[..count],
        DropPolicy::New => &pending[pending.len() - count..],
    };
    (excess.to_vec(), policy)
}

/// A message beyond the cap, as the turn hears it.
pub(crate) fn shortened(body: Body, policy: DropPolicy) -> Body {
    let text = match policy {
        DropPolicy::Old | DropPolicy::New => DROPPED.to_owned(),
        DropPolicy::Summarize => match body.text.char_indices().nth(SUMMARY_CHARS) {
            Some((end, _)) => format!("{}…", &body.text[..end]),
            None => body.text.clone(),
        },
    };
    Body { text, silent: true, attachments: Vec::new(), ..body }
}

/// Whether the turn has only seen a message, which is answered by a turn of its own.
pub(crate) fn is_for_later(row: &InboxMessage, first: Option<&InboxMessage>) -> bool {
    row.mode == QueueMode::SteerBacklog
        && !row.body.silent
        && first.is_some_and(|first| first.seq != row.seq)
}

fn messages_to_hear(
    waiting: &[InboxMessage],
    heard: &[i64],
    head: Option<&InboxMessage>,
    excess: &[i64],
    open: bool,
) -> Vec<i64> {
    let gathers = head.is_none_or(|head| can_be_combined(head, true));
    let mut new = Vec::new();
    for row in waiting.iter().filter(|row| !heard.contains(&row.seq)) {
        let is_head = head.is_some_and(|head| head.seq == row.seq);
        let before_head = head.is_some_and(|head| row.seq < head.seq);
        let is_aside = row.body.silent || excess.contains(&row.seq);
        let fits = is_head || (is_aside && before_head) || (gathers && can_be_combined(row, open));
        if !fits {
            break;
        }
        new.push(row.seq);
    }
    new
}

fn can_be_combined(row: &InboxMessage, open: bool) -> bool {
    row.body.silent || (combines(row.mode, open) && row.body.command().is_none())
}

const fn combines(mode: QueueMode, open: bool) -> bool {
    match mode {
        QueueMode::Steer | QueueMode::Collect => true,
        // A turn that begins is of one such message; one that runs sees further ones.
        QueueMode::SteerBacklog => open,
        QueueMode::Followup | QueueMode::Interrupt => false,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{MessageId, MessageOptions, QueueSettings};
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use QueueMode::{Collect, Followup, Interrupt, Steer, SteerBacklog};

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
    fn a_steered_message_with_a_backlog_is_seen_at_once_and_answered_later() {
        let waiting = rows(&[SteerBacklog, SteerBacklog, Steer]);

        assert_eq!(decide_intake(&waiting, &[], false, 0), Intake::Hear(vec![1]));
        assert_eq!(decide_intake(&waiting, &[1], true, 0), Intake::Hear(vec![2, 3]));
        let later = |row: &InboxMessage| is_for_later(row, first_message(&waiting, &[1, 2, 3]));
        assert_eq!(waiting.iter().map(later).collect::<Vec<_>>(), [false, true, false]);
    }

    fn capped(count: usize, mode: QueueMode, drop: DropPolicy) -> Vec<InboxMessage> {
        let queue = QueueSettings { cap: Some(2), drop: Some(drop), ..QueueSettings::default() };
        let mut options = MessageOptions::default();
        options.channel.queue = queue;
        let mut rows = rows(&vec![mode; count]);
        for row in &mut rows {
            row.body.options = options.clone().boxed();
        }
        rows
    }

    #[test]
    fn more_messages_than_the_cap_are_dropped_or_shortened_when_a_turn_begins() {
        let heard = |count, mode, drop| {
            let Intake::Hear(heard) = decide_intake(&capped(count, mode, drop), &[], false, 0)
            else {
                panic!("nothing is heard");
            };
            heard
        };

        assert_eq!(heard(2, Followup, DropPolicy::Old), [1]);
        assert_eq!(heard(4, Followup, DropPolicy::Old), [1, 2, 3]);
        assert_eq!(heard(4, Followup, DropPolicy::New), [1, 3, 4]);
        assert_eq!(heard(4, Steer, DropPolicy::Summarize), [1, 2, 3, 4]);
        let waiting = capped(4, Followup, DropPolicy::Summarize);
        assert_eq!(excess_messages(&waiting, &[]), (vec![1, 2], DropPolicy::Summarize));
        // A turn that runs drops nothing.
        assert_eq!(decide_intake(&waiting, &[1], true, 0), Intake::Hear(vec![]));
        let long = shortened(Body::text("語".repeat(200)), DropPolicy::Summarize);
        assert_eq!((long.text.chars().count(), long.silent), (141, true));
        assert_eq!(shortened(Body::text("secret"), DropPolicy::Old).text, DROPPED);
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
        fn nothing_is_skipped(modes in prop::collection::vec(0..6_u8, 0..12)) {
            let waiting: Vec<InboxMessage> = (1..)
                .zip(&modes)
                .map(|(seq, mode)| match mode {
                    0 => row(seq, Steer),
                    1 => row(seq, Collect),
                    2 => row(seq, Followup),
                    3 => row(seq, Interrupt),
                    4 => row(seq, SteerBacklog),
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
