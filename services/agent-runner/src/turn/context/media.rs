//! Images and files of a turn: stores those of tools, shows the model those it can see, sends those
//! that belong to the answer.
//!
//! The journal holds references, with paths as the conversation sees them; the contents are in the
//! agent's workspace, in the folder of the conversation's person.

use holdfast_agent::{Picture, is_silent};
use holdfast_session::NewDelivery;
use holdfast_tools::{Output, Part, Speech, SpeechExtract, ToolError, extract_speech};
use holdfast_types::{Entry, Fault as _, ImageData, Kind, Media, StoredFile, Target, VoiceReplies};
use holdfast_workspace::{ChangeAuthor, ContentHash, NewMedia};

use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    tools::channel_messages::media_act,
    tools::media_providers::image_for_models,
    tools::mesh,
    turn::{calls, state::TurnState},
};

/// Images of a conversation that a model is shown: the newest.
const MAX_IMAGES: usize = 8;

/// Limit on an image's file, in bytes. The model is shown a smaller copy of a large one.
const MAX_IMAGE_BYTES: u64 = 20_000_000;

/// Limit on all shown images together, in bytes of base64.
const MAX_TOTAL_IMAGE_BYTES: usize = 16_000_000;

/// Files that one call can return.
const MAX_FILES_PER_CALL: usize = 8;

/// Limit on a text that is sent to the user at once, in bytes.
const MAX_USER_TEXT_BYTES: usize = 32 * 1024;

/// Passages of an answer that are spoken.
const MAX_SPOKEN_PARTS: usize = 3;

/// An answer of which parts are spoken.
#[derive(Debug)]
pub(crate) struct SpokenAnswer {
    /// Text that remains to be read.
    pub(crate) text: String,
    /// Spoken parts.
    files: Vec<StoredFile>,
}

/// Synthesises the parts of the answer that are marked for speech, if it goes to a channel
/// (spec TOL-024). A part that cannot be spoken remains text.
pub(crate) async fn synthesize_answer(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    thought: &Entry,
) -> Result<(), Error> {
    turn.spoken = None;
    let Entry::Thought { text, .. } = thought else { return Ok(()) };
    let is_by_voice = answers_by_voice(turn) && !is_silent(text);
    if !(text.contains("[[") || is_by_voice) || turn.reply_target().is_none() {
        return Ok(());
    }
    let SpeechExtract { text, mut said } = extract_speech(text);
    if said.is_empty() && is_by_voice && !text.trim().is_empty() {
        said.push(Speech { text: text.clone(), voice: None, provider: None });
    }
    if said.is_empty() {
        return Ok(());
    }
    let mut aloud = SpokenAnswer { text, files: Vec::new() };
    let may = calls::allowed_tools(turn, snapshot).allows("tts") && can_send_files(turn, snapshot);
    for (at, speech) in said.into_iter().enumerate() {
        let file = match may && at < MAX_SPOKEN_PARTS {
            true => synthesize(turn, snapshot, &speech).await?,
            false => None,
        };
        match file {
            Some(file) => aloud.files.push(file),
            None if aloud.text.contains(&speech.text) => {}
            None => {
                let gap = if aloud.text.is_empty() { "" } else { "\n" };
                aloud.text = format!("{}{gap}{}", aloud.text, speech.text);
            }
        }
    }
    turn.spoken = Some(aloud);
    Ok(())
}

/// Whether the turn answers a voice message of a channel where the agent does so by voice.
fn answers_by_voice(turn: &TurnState<'_>) -> bool {
    let wanted = turn.message_options().and_then(|options| options.channel.voice_replies);
    let newest = turn.journal.turn().iter().rev().find_map(|entry| match entry {
        Entry::Heard { body, .. } if !body.silent => Some(body),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    let is_voice = newest
        .is_some_and(|body| body.attachments.iter().any(|attachment| attachment.kind == "voice"));
    wanted == Some(VoiceReplies::ToVoice) && is_voice
}

async fn synthesize(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    speech: &Speech,
) -> Result<Option<StoredFile>, Error> {
    turn.ensure_owned().await?;
    let tenant = turn.lease.claim.tenant;
    let broken = |source| Error::Tool { name: "tts".to_owned(), source };
    let spoken = turn.worker.media_providers.synthesize(tenant, snapshot.agent, speech).await;
    let content = match spoken.map_err(broken)? {
        Ok((made, used)) => {
            turn.journal.charge_used(&used);
            made.content
        }
        Err(_) => return Ok(None),
    };
    let by =
        ChangeAuthor { run: Some(turn.run), ..ChangeAuthor::new(snapshot.name.as_str(), "spoken") };
    let new = vec![NewMedia { name: "speech.mp3".to_owned(), content }];
    match store(turn, snapshot, &by, new).await {
        Ok(mut kept) => Ok(kept.pop()),
        Err(error) if matches!(error.kind(), Kind::Exhausted | Kind::Invalid) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether the conversation is on a channel that can send files.
fn can_send_files(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> bool {
    let place = turn.conversation_target();
    place.is_some_and(|place| snapshot.tenant.actions_at(&place).contains(&"media"))
}

/// A tool's message to the user. Sent once: the message is stored with the call's result, and
/// its id is made from the call's key.
pub(crate) fn user_message(
    turn: &TurnState<'_>,
    key: &str,
    output: &Output,
) -> Option<NewDelivery> {
    let text = output.for_user.as_deref().filter(|text| !text.trim().is_empty())?;
    let place = turn.conversation_target()?;
    let text = text[..text.floor_char_boundary(MAX_USER_TEXT_BYTES)].to_owned();
    let target = Target { reply_to: None, ..place };
    let id = mesh::delivery_id(&format!("{key}:user"));
    Some(NewDelivery { target, text, act: None, id, delay: std::time::Duration::ZERO })
}

/// Stores the files of a call's result and names their paths in its text.
pub(crate) async fn store_files(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    tool: &str,
    output: &mut Output,
) -> Result<Media, ToolError> {
    let (mut media, mut new, mut pictures) = (Media::default(), Vec::new(), 0);
    // Indexes into `new`, relative to the end of the images.
    let mut enclosed: Vec<usize> = Vec::new();
    for part in std::mem::take(&mut output.parts) {
        match part {
            Part::Shown(file) => media.shown.push(file),
            Part::Attached(file) => media.attached.push(file),
            Part::Image { data, .. } => {
                // Images come first, so that a stored file's index tells which it is.
                new.insert(pictures, NewMedia { name: String::new(), content: data });
                pictures += 1;
            }
            Part::Enclosed { name, data } => {
                enclosed.push(new.len() - pictures);
                new.push(NewMedia { name, content: data });
            }
            Part::Document { name, data, .. } => new.push(NewMedia { name, content: data }),
        }
    }
    let goes = !media.attached.is_empty() || !enclosed.is_empty();
    if goes && !can_send_files(turn, snapshot) {
        return Err(ToolError::Tell(
            "this conversation is held on no channel that files could be sent on: name the \
             file's path in your answer instead"
                .to_owned(),
        ));
    }
    if new.len() > MAX_FILES_PER_CALL {
        let left = new.len() - MAX_FILES_PER_CALL;
        output.for_llm.push_str(&format!("\n[{left} more files were not kept]"));
        new.truncate(MAX_FILES_PER_CALL);
        pictures = pictures.min(MAX_FILES_PER_CALL);
    }
    if new.is_empty() {
        return Ok(media);
    }
    let reason = format!("brought by {tool}");
    let by = ChangeAuthor::new(snapshot.name.as_str(), &reason);
    // Anyone may have made the files that a tool brings.
    let by = ChangeAuthor { run: Some(turn.run), outside: true, ..by };
    match store(turn, snapshot, &by, new).await {
        Ok(kept) => {
            for file in &kept {
                output.for_llm.push_str(&format!("\n[kept as `{}`]", file.path));
            }
            let goes = |at: &usize| kept.get(pictures + at).cloned();
            media.attached.extend(enclosed.iter().filter_map(goes));
            media.shown.extend(kept.into_iter().take(pictures).filter(StoredFile::is_picture));
        }
        Err(error) if matches!(error.kind(), Kind::Exhausted | Kind::Invalid) => {
            output.for_llm.push_str(&format!("\n[its files could not be kept: {error}]"));
        }
        Err(error) => return Err(ToolError::Broken(error.into())),
    }
    Ok(media)
}

/// Stores files where the conversation sees them.
async fn store(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    by: &ChangeAuthor,
    new: Vec<NewMedia>,
) -> Result<Vec<StoredFile>, holdfast_workspace::Error> {
    let (tenant, files) = (turn.lease.claim.tenant, turn.access(snapshot).files);
    let tree = turn.workspace_branch().unwrap_or(snapshot.agent);
    turn.worker.workspaces.store_media(tenant, tree, files.folder(), by, new).await
}

/// Loads the images that the model is shown. Those of the previous step are not loaded again.
pub(crate) async fn load_images(turn: &mut TurnState<'_>) -> Result<(), Error> {
    let mut wanted: Vec<StoredFile> = Vec::new();
    for file in turn.journal.entries().iter().rev().flat_map(images_of) {
        if wanted.len() == MAX_IMAGES {
            break;
        }
        let is_known = wanted.iter().any(|known| known.hash == file.hash);
        if !is_known && file.size <= MAX_IMAGE_BYTES {
            wanted.push(file.clone());
        }
    }
    let mut left = MAX_TOTAL_IMAGE_BYTES;
    let mut loaded: Vec<Picture> = Vec::with_capacity(wanted.len());
    for file in wanted {
        let picture = match turn.pictures.iter().position(|known| known.hash == file.hash) {
            Some(at) => Some(turn.pictures.swap_remove(at)),
            None => load_image(turn, &file).await?,
        };
        let size = picture.as_ref().map_or(0, |picture| match &picture.image.data {
            ImageData::Base64(data) => data.len(),
            ImageData::Url(_) => 0,
        });
        if let Some(picture) = picture.filter(|_| size <= left) {
            left -= size;
            loaded.push(picture);
        }
    }
    turn.pictures = loaded;
    Ok(())
}

/// Loads an image, or a smaller copy if a vendor of models would refuse it.
async fn load_image(turn: &TurnState<'_>, file: &StoredFile) -> Result<Option<Picture>, Error> {
    let Ok(hash) = file.hash.parse::<ContentHash>() else { return Ok(None) };
    let tenant = turn.lease.claim.tenant;
    let Some(content) = turn.worker.workspaces.content_by_hash(tenant, &hash).await? else {
        return Ok(None);
    };
    let image = image_for_models(file.media_type.clone(), content).await;
    Ok(image.map(|image| Picture { hash: file.hash.clone(), image }))
}

/// Deliveries of the answer's files, each once, after its text.
pub(crate) fn attachments(turn: &TurnState<'_>, target: Option<&Target>) -> Vec<NewDelivery> {
    let Some(target) = target else { return Vec::new() };
    let brought = turn.journal.turn().iter().filter_map(|entry| match entry {
        Entry::Returned { media, failed: false, .. } => Some(&media.attached),
        Entry::Returned { .. }
        | Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Noted { .. } => None,
    });
    let spoken = turn.spoken.iter().flat_map(|aloud| &aloud.files);
    let mut files: Vec<&StoredFile> = Vec::new();
    for file in brought.flatten().chain(spoken) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    let send = |(at, file): (usize, &StoredFile)| NewDelivery {
        target: Target { reply_to: None, ..target.clone() },
        text: String::new(),
        act: Some(media_act(file.clone())),
        id: mesh::delivery_id(&format!("{}:file:{at}", turn.run)),
        delay: std::time::Duration::ZERO,
    };
    files.into_iter().enumerate().map(send).collect()
}

/// Images that an entry refers to, the last first.
fn images_of(entry: &Entry) -> Vec<&StoredFile> {
    let mut found: Vec<&StoredFile> = match entry {
        Entry::Heard { body, .. } => {
            body.attachments.iter().filter_map(|attachment| attachment.file.as_ref()).collect()
        }
        Entry::Returned { media, .. } => media.shown.iter().collect(),
        Entry::Thought { .. } | Entry::Called { .. } | Entry::Noted { .. } => Vec::new(),
    };
    found.retain(|file| file.is_picture());
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Attachment, Body};

    use super::*;

    fn file(path: &str, media_type: &str) -> StoredFile {
        StoredFile {
            path: path.into(),
            media_type: media_type.into(),
            size: 1,
            hash: path.repeat(2),
        }
    }

    #[test]
    fn only_pictures_are_shown_and_the_newest_first() {
        let attachment = |path: &str, media_type: &str| Attachment {
            kind: "photo".into(),
            reference: "f".into(),
            name: String::new(),
            file: Some(file(path, media_type)),
            transcription: None,
        };
        let attachments = vec![
            attachment("a", "image/png"),
            attachment("b", "audio/ogg"),
            attachment("c", "image/svg+xml"),
            attachment("d", "image/jpeg"),
        ];
        let heard = Entry::Heard { seq: 1, body: Body { attachments, ..Body::text("") } };

        let paths: Vec<&str> = images_of(&heard).iter().map(|file| file.path.as_str()).collect();

        assert_eq!(paths, ["d", "a"]);
    }
}
