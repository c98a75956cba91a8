//! Texts of a turn's steps from the journal, for a follower that was not there from the start.
//!
//! A step is in the journal once its reply is complete. So before a follower reports a later step,
//! or the end, it reports the steps before from the journal; deltas tell only the step that runs.

use holdfast_types::{Fault as _, RunId};
use tokio::time::sleep;
use tracing::debug;

use super::{Event, EventKind, FollowedMessage, SILENCE_BEFORE_QUERY};
use crate::Error;

/// Steps that are reported already.
#[derive(Debug, Default)]
pub struct Replay {
    /// Number of steps whose whole text was reported, or is known to be in the events that wait.
    whole: usize,
    /// Step that was begun by a delta.
    begun: Option<u32>,
    /// The journal was read at least once.
    has_read: bool,
}

impl Replay {
    /// Number of steps to report from the journal before an event; `None` if there are none.
    fn steps_before(&self, event: Option<&Event>) -> Option<usize> {
        let wanted = match event {
            Some(Event { kind: EventKind::Done(_), .. }) => usize::MAX,
            Some(Event { kind: EventKind::StepStarted { .. }, step: Some(step), .. }) => {
                usize::try_from(*step).unwrap_or(usize::MAX)
            }
            _ if self.has_read => return None,
            _ => usize::MAX,
        };
        (wanted > self.whole || !self.has_read).then_some(wanted)
    }

    /// The steps from the first one that was not reported whole, up to `wanted`.
    fn events(&mut self, run: RunId, texts: &[String], wanted: usize, is_end: bool) -> Vec<Event> {
        let upto = wanted.min(texts.len());
        let mut events = Vec::new();
        for (n, text) in texts.iter().enumerate().take(upto).skip(self.whole) {
            let step = u32::try_from(n).ok();
            let again = step.is_some() && self.begun == step;
            let event = |kind| Event { run: Some(run), step, kind };
            events.push(event(EventKind::StepStarted { again }));
            events.push(event(EventKind::Text(text.clone())));
        }
        self.has_read = true;
        self.whole = if is_end { usize::MAX } else { upto.max(self.whole) };
        events
    }
}

impl FollowedMessage {
    /// Puts the steps that the journal has before the next event.
    pub(super) async fn replay_steps(&mut self) -> Result<(), Error> {
        let Some(replay) = &mut self.replay else { return Ok(()) };
        let next = self.pending_events.front();
        let wanted = replay.steps_before(next);
        let is_end = next.is_some_and(|event| matches!(event.kind, EventKind::Done(_)));
        if let Some(wanted) = wanted {
            let run = next.and_then(|event| event.run).unwrap_or_else(|| self.message.into());
            let texts = loop {
                let views = self.follower.sessions.views();
                match views.step_texts(self.tenant, self.session, run).await {
                    Ok(texts) => break texts,
                    // The turn goes on, so its follower can wait until the database is back.
                    Err(error) if error.kind().is_transient() => {
                        debug!(%error, "the journal does not answer; asking again");
                    }
                    Err(error) => return Err(error.into()),
                }
                tokio::select! {
                    () = self.follower.stop.cancelled() => return Err(Error::Stopping),
                    () = sleep(SILENCE_BEFORE_QUERY) => {}
                }
            };
            for event in replay.events(run, &texts, wanted, is_end).into_iter().rev() {
                self.pending_events.push_front(event);
            }
        }
        if let Some(Event { kind: EventKind::StepStarted { .. }, step, .. }) =
            self.pending_events.front()
        {
            replay.begun = *step;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::finished;

    fn texts(events: &[Event]) -> Vec<(bool, &str)> {
        events
            .chunks(2)
            .map(|pair| match (&pair[0].kind, &pair[1].kind) {
                (EventKind::StepStarted { again }, EventKind::Text(text)) => (*again, &**text),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn each_step_is_read_once_and_before_what_follows_it() {
        let run = RunId::generate();
        let event = |step, kind| Event { run: Some(run), step: Some(step), kind };
        let journal = ["one".to_owned(), "two".to_owned(), "three".to_owned()];
        let mut replay = Replay::default();

        assert_eq!(replay.steps_before(None), Some(usize::MAX));
        let first = replay.events(run, &journal[..1], usize::MAX, false);
        assert_eq!(texts(&first), [(false, "one")]);
        let began = event(1, EventKind::StepStarted { again: false });
        assert_eq!(replay.steps_before(Some(&began)), None);
        replay.begun = Some(1);
        let next = event(2, EventKind::StepStarted { again: false });
        assert_eq!(replay.steps_before(Some(&next)), Some(2));
        let second = replay.events(run, &journal[..2], 2, false);
        assert_eq!(texts(&second), [(true, "two")]);
        let end = event(2, EventKind::Done(finished("three")));
        assert_eq!(replay.steps_before(Some(&end)), Some(usize::MAX));
        assert_eq!(texts(&replay.events(run, &journal, usize::MAX, true)), [(false, "three")]);
        assert_eq!(replay.steps_before(Some(&end)), None);
    }
}
