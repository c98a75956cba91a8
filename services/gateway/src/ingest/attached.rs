//! Files that come with a message: kept among the agent's own, and named in the message.
//!
//! The same message sent again brings the same files, which are kept under names that are made of
//! their contents: so it is still the same message. A file that cannot be kept (too large, or the
//! agent's tree is full) keeps no message from being heard; it is then only named.

use holdfast_proto::gateway::v1 as pb;
use holdfast_types::{AgentId, Attachment, Body, Fault as _, Kind, TenantId, extension};
use holdfast_workspace::{By, MOST_MEDIA, NewMedia};
use tracing::warn;

use super::{Ingest, channel::MOST_FILES};
use crate::Error;

/// A file that came with a message.
#[derive(Debug, Clone)]
pub struct Brought {
    /// Which of the message's attachments it is.
    at: usize,
    media: NewMedia,
}

/// The files among a message's attachments.
pub(super) fn brought(attachments: Vec<pb::MessageAttachment>) -> Vec<Brought> {
    let largest = usize::try_from(MOST_MEDIA).unwrap_or(usize::MAX);
    attachments
        .into_iter()
        .take(MOST_FILES)
        .enumerate()
        .filter(|(_, file)| (1..=largest).contains(&file.content.len()))
        .map(|(at, file)| Brought {
            at,
            media: NewMedia { name: ended(file.name, &file.media_type), content: file.content },
        })
        .collect()
}

/// A name that says what a file is, if whoever sent it says so and the name does not.
pub(super) fn ended(name: String, media_type: &str) -> String {
    let ending = extension(media_type.split(';').next().unwrap_or_default().trim());
    match name.as_str() {
        _ if ending == "bin" || name.trim_start_matches('.').contains('.') => name,
        "" => format!("file.{ending}"),
        name => format!("{name}.{ending}"),
    }
}

impl Ingest {
    /// What somebody said and showed, kept and ready to be stored.
    ///
    /// # Errors
    ///
    /// If the text is too long, or nothing was said or shown, or the pictures cannot be kept now.
    pub async fn shown(
        &self,
        tenant: TenantId,
        agent: AgentId,
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
        };
        let attachments = vec![picture; pictures.len()];
        let mut body = Body { attachments, ..Body::text(text) };
        let brought = |(at, content): (usize, Vec<u8>)| Brought {
            at,
            media: NewMedia { name: String::new(), content },
        };
        let files = pictures.into_iter().enumerate().map(brought).collect();
        self.keep(tenant, agent, &mut body, files).await?;
        Ok(body)
    }

    /// Keeps the files of a message, and says in it where.
    ///
    /// # Errors
    ///
    /// If they cannot be kept now: the message is to be sent again.
    pub(super) async fn keep(
        &self,
        tenant: TenantId,
        agent: AgentId,
        body: &mut Body,
        files: Vec<Brought>,
    ) -> Result<(), Error> {
        let Some(workspaces) = self.files.as_ref().filter(|_| !files.is_empty()) else {
            return Ok(());
        };
        let by = By::author("holdfast", "came with a message");
        let (places, media): (Vec<usize>, Vec<NewMedia>) =
            files.into_iter().map(|file| (file.at, file.media)).unzip();
        match workspaces.keep_media(tenant, agent, &by, media).await {
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
}
