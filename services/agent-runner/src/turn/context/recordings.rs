//! Recordings of a turn's messages: voice messages and audio files are transcribed before a model
//! is asked.
//!
//! The transcription is stored with the heard message at once, so a successor or a later turn does
//! not pay for it again. A recording of which there is no transcription does not stop the message: the
//! model is told why, and tells the person.
//!
//! **What can go wrong.** A runner crashes after a provider has answered and before the message is
//! stored: the successor asks again.

use holdfast_llm::audio::Recording;
use holdfast_types::{Body, Entry, StoredFile, Transcription};
use holdfast_workspace::ContentHash;
use tokio::time::{Duration, Instant, timeout_at};

use crate::{
    error::Error,
    turn::{budget, state::TurnState},
};

/// Time limit of all recordings of a step.
const RECORDINGS_TIMEOUT: Duration = Duration::from_secs(120);

/// Recordings of one message that are transcribed.
const MAX_RECORDINGS_PER_MESSAGE: usize = 8;

/// Reasons of failures, as the model is told them.
const TIME_REASON: &str =
    "the recordings together took too long: fewer or shorter ones can be heard";
const COUNT_REASON: &str = "the message has more recordings than are transcribed at once";
const DELETION_REASON: &str = "the file was deleted";

/// A recording that was not transcribed.
struct NewRecording {
    /// Indexes of the journal's entry and of its attachment.
    place: (usize, usize),
    file: StoredFile,
    /// Whether the message has enough recordings before this one.
    is_excess: bool,
}

/// Transcribes the recordings of messages that the turn has newly heard, and stores the messages.
///
/// # Errors
///
/// If the session is lost or must be released, or the database fails.
pub(crate) async fn transcribe_recordings(turn: &mut TurnState<'_>) -> Result<(), Error> {
    let new: Vec<NewRecording> = turn
        .journal
        .unstored_messages()
        .filter(|(_, body)| !body.silent)
        .flat_map(|(entry, body)| new_recordings(entry, body))
        .collect();
    // The turn ends with the spent budget.
    if new.is_empty() || budget::is_spent(turn).await? {
        return Ok(());
    }
    turn.ensure_owned().await?;
    let began = Instant::now();
    for NewRecording { place, file, is_excess } in new {
        let transcription = match known_transcription(turn.journal.entries(), &file) {
            Some(known) => known,
            None if is_excess => Transcription::failed(COUNT_REASON),
            None => transcribe(turn, &file, began + RECORDINGS_TIMEOUT).await?,
        };
        turn.journal.set_transcription(place, transcription);
    }
    turn.timing.tools += began.elapsed();
    turn.append(Vec::new()).await.map(|_| ())
}

fn new_recordings(entry: usize, body: &Body) -> impl Iterator<Item = NewRecording> {
    let attachments = body.attachments.iter().enumerate();
    let recordings = attachments.filter_map(move |(at, attachment)| {
        let file = attachment.recording().filter(|_| attachment.transcription.is_none())?;
        Some(((entry, at), file.clone()))
    });
    recordings.enumerate().map(|(number, (place, file))| NewRecording {
        place,
        file,
        is_excess: number >= MAX_RECORDINGS_PER_MESSAGE,
    })
}

/// The transcription of the same recording in an earlier message: a message is heard again after a
/// turn that failed.
fn known_transcription(entries: &[Entry], file: &StoredFile) -> Option<Transcription> {
    let bodies = entries.iter().rev().filter_map(|entry| match entry {
        Entry::Heard { body, .. } => Some(body),
        Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    let same = bodies
        .flat_map(|body| &body.attachments)
        .filter(|attachment| attachment.file.as_ref().is_some_and(|known| known.hash == file.hash));
    let mut known = same.filter_map(|attachment| attachment.transcription.as_deref());
    known.find(|known| known.failure.is_empty()).cloned()
}

/// Transcribes one recording, and charges the turn with it.
async fn transcribe(
    turn: &TurnState<'_>,
    file: &StoredFile,
    deadline: Instant,
) -> Result<Transcription, Error> {
    let (worker, tenant) = (turn.worker, turn.lease.claim.tenant);
    let content = match file.hash.parse::<ContentHash>() {
        Ok(hash) => worker.workspaces.content_by_hash(tenant, &hash).await?,
        Err(_) => None,
    };
    let Some(content) = content else { return Ok(Transcription::failed(DELETION_REASON)) };
    let recording = Recording { media_type: file.media_type.clone(), content: content.into() };
    let heard = worker.media_providers.transcribe(tenant, turn.agent, &recording);
    let heard = tokio::select! {
        heard = timeout_at(deadline, Box::pin(heard)) => heard,
        () = turn.lease.lost.cancelled() => return Err(Error::Lost),
        () = worker.giving_up.cancelled() => return Err(Error::ReleaseRequested),
    };
    let Ok(heard) = heard else { return Ok(Transcription::failed(TIME_REASON)) };
    let (transcription, used) = heard.map_err(Error::directory)?;
    if let Some(used) = &used {
        turn.journal.charge_used(used);
    }
    let outcome = if transcription.failure.is_empty() { "done" } else { "failed" };
    metrics::counter!("holdfast_runner_transcriptions_total", "outcome" => outcome).increment(1);
    Ok(transcription)
}

#[cfg(test)]
mod tests {
    use holdfast_types::Attachment;

    use super::*;

    fn heard(hash: &str, transcription: Option<Transcription>) -> Body {
        let file = StoredFile {
            path: "media/v.ogg".into(),
            media_type: "audio/ogg".into(),
            size: 1,
            hash: hash.into(),
        };
        let attachment = Attachment {
            kind: "voice".into(),
            reference: String::new(),
            name: String::new(),
            file: Some(file),
            transcription: transcription.map(Box::new),
        };
        Body { attachments: vec![attachment], ..Body::text("") }
    }

    #[test]
    fn what_was_transcribed_is_not_transcribed_again_and_what_failed_is() {
        let done = Transcription { text: "hi".into(), ..Transcription::default() };
        let known = |body: Body| {
            let file = heard("a", None).attachments[0].file.clone().unwrap();
            known_transcription(&[Entry::Heard { seq: 1, body }], &file)
        };

        assert_eq!(known(heard("a", Some(done.clone()))), Some(done.clone()));
        assert_eq!(known(heard("b", Some(done.clone()))), None);
        assert_eq!(known(heard("a", Some(Transcription::failed("no")))), None);
        assert_eq!(new_recordings(0, &heard("a", Some(done))).count(), 0);
        let mut many = heard("a", None);
        many.attachments = vec![many.attachments[0].clone(); 9];
        let new: Vec<_> = new_recordings(3, &many).collect();
        assert_eq!((new[8].place, new[7].is_excess, new[8].is_excess), ((3, 8), false, true));
    }
}
