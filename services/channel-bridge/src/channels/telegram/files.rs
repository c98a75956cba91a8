//! Files that come with a message: fetched for the agent.
//!
//! **What can go wrong.** A file is too large, deleted, or Telegram does not answer: the message is
//! accepted without it, and says that there was one. No message waits long for a file.

use std::time::Duration;

use holdfast_proto::gateway::v1::AcceptRequest;
use serde::Deserialize;
use tracing::debug;

use super::{Telegram, client::CallError};

/// Kinds of attachments that are fetched. Videos are large, and no model here can watch them.
const FETCHED_KINDS: [&str; 5] = ["photo", "document", "voice", "audio", "sticker"];

/// Maximum size of a file, in bytes; Telegram lets bots fetch twice as much
/// (<https://core.telegram.org/bots/api#getfile>).
const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;

/// Maximum size of the files of one message together, in bytes: the gateway's limit.
const MAX_FILES_BYTES: usize = 20 * 1024 * 1024;

/// Timeout per file.
const FILE_TIMEOUT: Duration = Duration::from_secs(20);

/// Path of a file on Telegram's server.
#[derive(Debug, Deserialize)]
pub(super) struct FilePath {
    #[serde(default)]
    file_size: Option<usize>,
    #[serde(default)]
    file_path: String,
}

impl Telegram {
    /// Fetches the files of a message, unless the message is silent.
    pub(super) async fn fetch_files(&self, request: &mut AcceptRequest) {
        if request.silent {
            return;
        }
        let mut left = MAX_FILES_BYTES;
        for attachment in &mut request.attachments {
            if !FETCHED_KINDS.contains(&attachment.kind.as_str()) {
                continue;
            }
            let most = left.min(MAX_FILE_BYTES);
            match tokio::time::timeout(FILE_TIMEOUT, self.file(&attachment.reference, most)).await {
                Ok(Ok(content)) => {
                    left -= content.len();
                    attachment.content = content;
                }
                Ok(Err(error)) => debug!(%error, "a file was not fetched"),
                Err(_) => debug!("a file took too long to fetch"),
            }
        }
    }

    async fn file(&self, id: &str, most: usize) -> Result<Vec<u8>, CallError> {
        let params = serde_json::json!({ "file_id": id });
        let found: FilePath = self.bot.method("getFile", &params).await?;
        if found.file_size.is_some_and(|size| size > most) || !is_plain(&found.file_path) {
            return Err(CallError::Refused {
                status: 0,
                description: "it is too large, or has no path".to_owned(),
                moved_to: None,
            });
        }
        self.bot.download(&found.file_path, most).await
    }
}

/// Whether a path stays below the bot's own files.
fn is_plain(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    path.split('/')
        .all(|name| !name.is_empty() && name.chars().all(plain) && !name.chars().all(|c| c == '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_nowhere_else() {
        assert!(is_plain("photos/file_1.jpg"));
        for path in ["", "/etc/passwd", "../x", "a/../b", "a//b", "a?b", "a#b", "a%2e", "http://x"]
        {
            assert!(!is_plain(path), "{path}");
        }
    }
}
