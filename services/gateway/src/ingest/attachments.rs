//! Files of a message: stored in the agent's workspace, and named in the message.
//!
//! Each file is stored in the folder of the conversation's person (decision 0058), and the message
//! names the path that the conversation sees. Stored names are derived from the contents, so a repeated message stays the same message. A file
//! that cannot be stored (too large, or the workspace is full) does not prevent the message: the
//! message then only names the file.

use holdfast_agent::file_view::FileSpace;
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1 as pb;
use holdfast_types::{
    Attachment, Author, Body, Fault as _, Kind, SessionKind, TenantId, extension,
};
use holdfast_workspace::{ChangeAuthor, MAX_MEDIA_BYTES, NewMedia};
use tracing::warn;

use super::{Destination, Ingest, author::access_of, channel::MAX_FILES};
use crate::Error;

#[derive(Debug, Clone)]
pub struct AttachedFile {
    /// Index of the attachment in the message.
    index: usize,
    media: NewMedia,
}

/// Selects the files to store: non-empty, not too large, and not too many.
pub(super) fn storable_files(attachments: Vec<pb::MessageAttachment>) -> Vec<AttachedFile> {
    let largest = usize::try_from(MAX_MEDIA_BYTES).unwrap_or(usize::MAX);
    attachments
        .into_iter()
        .take(MAX_FILES)
        .enumerate()
        .filter(|(_, file)| (1..=largest).contains(&file.content.len()))
        .map(|(at, file)| AttachedFile {
            index: at,
            media: NewMedia {
                name: with_extension(file.name, &file.media_type),
                content: file.content,
            },
        })
        .collect()
}

/// Adds an extension that fits the media type to a name without one.
pub(super) fn with_extension(name: String, media_type: &str) -> String {
    let ending = extension(media_type.split(';').next().unwrap_or_default().trim());
    match name.as_str() {
        _ if ending == "bin" || name.trim_start_matches('.').contains('.') => name,
        "" => format!("file.{ending}"),
        name => format!("{name}.{ending}"),
    }
}

impl Ingest {
    /// Returns a message body with the text and the stored pictures.
    ///
    /// # Errors
    ///
    /// If the text is not valid, there is neither text nor picture, or the pictures cannot be
    /// stored now.
    pub async fn body_with_pictures(
        &self,
        caller: &Caller,
        place: &Destination,
        text: &str,
        pictures: Vec<Vec<u8>>,
    ) -> Result<Body, Error> {
        let text = match self.text(text) {
            Err(Error::Empty) if !pictures.is_empty() => String::new(),
            text => text?,
        };
        let picture = Attachment {
            kind: "picture".to_owned(),
            reference: String::new(),
            name: String::new(),
            file: None,
            transcription: None,
        };
        let attachments = vec![picture; pictures.len()];
        let author = self.author(caller, &place.key).await?;
        let mut body = Body { attachments, author, ..Body::text(text) };
        let brought = |(at, content): (usize, Vec<u8>)| AttachedFile {
            index: at,
            media: NewMedia { name: String::new(), content },
        };
        let files = pictures.into_iter().enumerate().map(brought).collect();
        self.store_files(caller.tenant, place, &mut body, files).await?;
        Ok(body)
    }

    /// Stores the files of a message, and adds their paths to it.
    ///
    /// # Errors
    ///
    /// If the files cannot be stored now; the sender must retry.
    pub(super) async fn store_files(
        &self,
        tenant: TenantId,
        place: &Destination,
        body: &mut Body,
        files: Vec<AttachedFile>,
    ) -> Result<(), Error> {
        let Some(workspaces) = self.files.as_ref().filter(|_| !files.is_empty()) else {
            return Ok(());
        };
        let by = ChangeAuthor::new("holdfast", "came with a message").from_outside(true);
        let (places, media): (Vec<usize>, Vec<NewMedia>) =
            files.into_iter().map(|file| (file.index, file.media)).unzip();
        let agent = place.agent.id;
        let space = self.file_space(tenant, place, body.author.as_ref()).await?;
        match workspaces.store_media(tenant, agent, space.folder(), &by, media).await {
            Ok(kept) => {
                for (at, file) in places.into_iter().zip(kept) {
                    if let Some(attachment) = body.attachments.get_mut(at) {
                        attachment.file = Some(file);
                    }
                }
                Ok(())
            }
            Err(error) if matches!(error.kind(), Kind::Exhausted | Kind::Invalid) => {
                warn!(agent.id = %agent, "files of a message were not kept: the agent's tree is full");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Part of the agent's files that the conversation sees, as a runner determines it when it has
    /// heard the message.
    async fn file_space(
        &self,
        tenant: TenantId,
        place: &Destination,
        author: Option<&Author>,
    ) -> Result<FileSpace, Error> {
        let (kind, scope) = (place.key.kind(), place.agent.settings.dm_scope);
        let by_author = matches!(
            kind,
            SessionKind::Main | SessionKind::Heartbeat | SessionKind::Dm | SessionKind::Api
        );
        let mut speakers = Vec::new();
        if by_author {
            speakers = self.sessions.views().speakers(tenant, &place.key).await?;
            speakers.extend(author.cloned());
        }
        let agent = (place.agent.id, scope);
        let access = access_of(&self.directory, tenant, agent, &place.key, &speakers).await?;
        Ok(access.files)
    }
}
