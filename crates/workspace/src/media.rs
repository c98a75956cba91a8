//! Media files that were received or generated, stored in the agent's tree.
//!
//! They are stored in one folder under names made of their hashes, so that storing a file again
//! changes nothing. The oldest files are deleted to make room for new ones; history keeps them.

use std::collections::BTreeMap;

use holdfast_types::{AgentId, StoredFile, TenantId, TreePath, extension, media_type};

use crate::{
    Base, ChangeAuthor, ContentHash, Edit, Error, FileEntry, Limits, Revision, Workspaces,
};

const MEDIA_FOLDER: &str = "media";

/// Digits of the hash in a file's name.
const HASH_DIGITS_IN_NAME: usize = 16;

/// Maximum size of a media file, in bytes: larger than for other files, small enough for a database
/// row.
pub const MAX_MEDIA_BYTES: u64 = 10 << 20;

/// Maximum size of all media files of a tree together, in bytes.
const MAX_MEDIA_FOLDER_BYTES: u64 = 32 << 20;

/// Retries after another call has deleted the same old files.
const MAX_EVICTION_RETRIES: u32 = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMedia {
    /// Original file name; may be empty. Only its extension is used, where the content tells no
    /// type.
    pub name: String,
    pub content: Vec<u8>,
}

impl Workspaces {
    /// Stores media files, all or none, and returns their paths. Storing them again changes
    /// nothing, so `by` needs no key.
    ///
    /// # Errors
    ///
    /// [`Error::FileTooLarge`] if a file is larger than [`MAX_MEDIA_BYTES`], or if the tree is full.
    pub async fn store_media(
        &self,
        tenant: TenantId,
        agent: AgentId,
        by: &ChangeAuthor,
        new: Vec<NewMedia>,
    ) -> Result<Vec<StoredFile>, Error> {
        let folder: TreePath = parse_path(MEDIA_FOLDER)?;
        let roomy = self.clone().with_limits(Limits { file: MAX_MEDIA_BYTES, ..self.limits });
        let stored = new.iter().map(stored_file).collect::<Result<Vec<StoredFile>, Error>>()?;
        if self.head(tenant, agent).await? == Revision::EMPTY {
            // Seed first: a tree at revision 1 or later never gets the bootstrap files.
            self.seed(tenant, agent).await?;
        }
        let mut tries = 0;
        loop {
            let there = self.list(tenant, agent, None, Some(&folder)).await?;
            let mut edits = evictions(&there, &stored);
            let puts: BTreeMap<&str, &NewMedia> =
                stored.iter().map(|file| file.path.as_str()).zip(&new).collect();
            for (name, media) in puts {
                let (path, content) = (parse_path(name)?, media.content.clone());
                edits.push(Edit::Put { path, content, base: Base::Any });
            }
            match roomy.commit(tenant, agent, by, edits).await {
                // Another call has deleted a file that this one was to delete.
                Err(Error::NotFound { .. }) if tries < MAX_EVICTION_RETRIES => tries += 1,
                Err(error) => return Err(error),
                Ok(_) => return Ok(stored),
            }
        }
    }

    /// Loads a content of the tenant's trees, current or historic; `None` if there is none.
    pub async fn content_by_hash(
        &self,
        tenant: TenantId,
        hash: &ContentHash,
    ) -> Result<Option<Vec<u8>>, Error> {
        const SQL: &str = "
            select content from workspace.contents where hash = $2 and tenant_id = $1";
        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Vec<u8>> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(hash.as_bytes().as_slice())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found)
    }
}

fn parse_path(text: &str) -> Result<TreePath, Error> {
    text.parse().map_err(|error: holdfast_types::InvalidPath| Error::Invalid(error.to_string()))
}

fn stored_file(media: &NewMedia) -> Result<StoredFile, Error> {
    let hash = ContentHash::of(&media.content).to_string();
    let size = u64::try_from(media.content.len()).unwrap_or(u64::MAX);
    let media_type = media_type(&media.name, &media.content);
    // The type detected from the content takes precedence over the name.
    let ending = match extension(media_type) {
        "bin" => extension_of_name(&media.name),
        known => known,
    };
    let path = format!("{MEDIA_FOLDER}/{}.{ending}", &hash[..HASH_DIGITS_IN_NAME]);
    if size > MAX_MEDIA_BYTES {
        return Err(Error::FileTooLarge {
            path: path
                .parse()
                .map_err(|error: holdfast_types::InvalidPath| Error::Invalid(error.to_string()))?,
            bytes: size,
            limit: MAX_MEDIA_BYTES,
        });
    }
    Ok(StoredFile { path, media_type: media_type.to_owned(), size, hash })
}

fn extension_of_name(name: &str) -> &str {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let is_plain =
        (1..=8).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_plain { ending } else { "bin" }
}

/// Whether this module named the file. Files that an agent put into the folder are left alone.
fn is_generated_name(path: &str) -> bool {
    let name = path.strip_prefix(MEDIA_FOLDER).and_then(|rest| rest.strip_prefix('/'));
    name.and_then(|name| name.split_once('.')).is_some_and(|(stem, _)| {
        stem.len() == HASH_DIGITS_IN_NAME && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Deletions that make room for the new files, the oldest files first.
fn evictions(there: &[FileEntry], new: &[StoredFile]) -> Vec<Edit> {
    let is_new = |path: &str| new.iter().any(|file| file.path == path);
    let mut old: Vec<&FileEntry> = there
        .iter()
        .filter(|file| is_generated_name(file.path.as_str()) && !is_new(file.path.as_str()))
        .collect();
    old.sort_by_key(|file| std::cmp::Reverse(file.changed_at));
    let mut total: u64 = new.iter().map(|file| file.size).sum();
    let mut edits = Vec::new();
    for file in old {
        total = total.saturating_add(file.size);
        if total > MAX_MEDIA_FOLDER_BYTES {
            edits.push(Edit::Delete { path: file.path.clone(), base: Base::Any });
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(name: &str, content: &[u8]) -> NewMedia {
        NewMedia { name: name.into(), content: content.into() }
    }

    #[test]
    fn a_file_is_named_by_what_it_is_and_never_by_who_sent_it() {
        let named = |name: &str, content: &[u8]| stored_file(&media(name, content)).unwrap().path;

        assert!(named("../../etc/passwd", b"x").ends_with(".bin"));
        assert!(named("a.png", b"\xff\xd8\xff..").ends_with(".jpg"));
        assert!(named("a.odt", b"x").ends_with(".odt"));
        assert!(named("a.o/t", b"x").ends_with(".bin"));
        assert_eq!(named("a.odt", b"x").len(), "media/0123456789abcdef.odt".len());
    }

    #[test]
    fn only_what_was_named_here_makes_room() {
        assert!(is_generated_name("media/0123456789abcdef.png"));
        for path in ["media/cat.png", "media/0123456789abcdef/a.png", "0123456789abcdef.png"] {
            assert!(!is_generated_name(path), "{path}");
        }
    }
}
