//! Files that come with messages: fetched for the agent from addresses that a platform gave.
//!
//! **What can go wrong.** A file is too large, deleted, or its server does not answer: the message is
//! accepted without it, and says that there was one. No message waits long for a file.

use std::time::Duration;

use holdfast_proto::gateway::v1::{AcceptRequest, MessageAttachment};
use reqwest::header::AUTHORIZATION;
use secrecy::{ExposeSecret as _, SecretString};
use tracing::debug;

use crate::guard::{Clients, PlatformHosts};

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;

/// Maximum size of the files of one message together, in bytes: the gateway's limit.
const MAX_FILES_BYTES: usize = 20 * 1024 * 1024;

/// Timeout per file.
const FILE_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the kind of a file by its media type.
pub fn kind_of(media_type: &str) -> &'static str {
    match media_type.split('/').next() {
        Some("image") => "photo",
        Some("audio") => "audio",
        Some("video") => "video",
        _ => "document",
    }
}

/// Server of a platform's files.
#[derive(Debug, Clone, Copy)]
pub struct FileServer<'a> {
    pub clients: &'a Clients,
    pub hosts: &'a PlatformHosts,
    /// Credential that the server wants in the header `Authorization`.
    pub token: Option<&'a SecretString>,
}

/// Fetches the files of a message by their references, which are URLs of the platform; not of a silent
/// message, and no videos: they are large, and no model here can watch them.
pub async fn fetch_files(server: FileServer<'_>, request: &mut AcceptRequest) {
    if request.silent {
        return;
    }
    let mut left = MAX_FILES_BYTES;
    for attachment in &mut request.attachments {
        if attachment.kind == "video" {
            continue;
        }
        let most = left.min(MAX_FILE_BYTES);
        let fetched = fetch(server, attachment, most);
        match tokio::time::timeout(FILE_TIMEOUT, fetched).await {
            Ok(Ok(content)) => {
                left -= content.len();
                attachment.content = content;
            }
            Ok(Err(why)) => debug!(why, "a file was not fetched"),
            Err(_) => debug!("a file took too long to fetch"),
        }
    }
}

async fn fetch(
    server: FileServer<'_>,
    attachment: &MessageAttachment,
    most: usize,
) -> Result<Vec<u8>, &'static str> {
    let called = server.clients.for_platform(server.hosts, &attachment.reference);
    let (http, url) = called.map_err(|_| "its address may not be called")?;
    let mut request = http.get(url);
    if let Some(token) = server.token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose_secret()));
    }
    let mut response = request.send().await.map_err(|_| "its server did not answer")?;
    if !response.status().is_success() {
        return Err("its server refused");
    }
    let mut content = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| "the connection broke")? {
        if content.len() + chunk.len() > most {
            return Err("it is too large");
        }
        content.extend_from_slice(&chunk);
    }
    Ok(content)
}
