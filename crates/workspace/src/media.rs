//! Media files that were received or generated, stored in the agent's tree.
//!
//! They are stored in a folder `media`, at the root or in a person's folder, under names made of
//! their hashes, so that storing a file again changes nothing. All media files of a tree share one
//! limit. To make room for new ones, the oldest files of the folder with the most bytes are deleted;
//! history keeps them. So a person who sends many files evicts their own.

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
const MAX_MEDIA_BYTES_OF_TREE: u64 = 32 << 20;

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
    /// Stores media files, all or none, and returns them with paths relative to `folder`, the folder
    /// of a person; `None` is the root. Storing them again changes nothing, so `by` needs no key.
    ///
    /// # Errors
    ///
    /// [`Error::FileTooLarge`] if a file is larger than [`MAX_MEDIA_BYTES`], or if the tree is full.
    pub async fn store_media(
        &self,
        tenant: TenantId,
        agent: AgentId,
        folder: Option<&str>,
        by: &ChangeAuthor,
        new: Vec<NewMedia>,
    ) -> Result<Vec<StoredFile>, Error> {
        let in_tree = |path: &str| match folder {
            Some(folder) => parse_path(&format!("{folder}/{path}")),
            None => parse_path(path),
        };
        let roomy = self.clone().with_limits(Limits { file: MAX_MEDIA_BYTES, ..self.limits });
        let stored = new.iter().map(stored_file).collect::<Result<Vec<StoredFile>, Error>>()?;
        if self.head(tenant, agent).await? == Revision::EMPTY {
            // Seed first: a tree at revision 1 or later never gets the bootstrap files.
            self.seed(tenant, agent).await?;
        }
        let mut tries = 0;
        loop {
            let mut puts: BTreeMap<TreePath, &NewMedia> = BTreeMap::new();
            for (file, media) in stored.iter().zip(&new) {
                puts.insert(in_tree(&file.path)?, media);
            }
            let there = self.list(tenant, agent, None, None).await?;
            let mut edits = evictions(there, &puts);
            edits.extend(puts.into_iter().map(|(path, media)| Edit::Put {
                path,
                content: media.content.clone(),
                base: Base::Any,
            }));
            match roomy.commit(tenant, agent, by, edits).await {
                // Another call has deleted a file that this one was to delete.
                Err(Error::NotFound { .. }) if tries < MAX_EVICTION_RETRIES => tries += 1,
                Err(error) => return Err(error),
                Ok(_) => return Ok(stored),
            }
        }
    }

    /// Loads a content that the agent's files have or had; `None` if there is none.
    pub async fn content_of_agent(
        &self,
        tenant: TenantId,
        agent: AgentId,
        hash: &ContentHash,
    ) -> Result<Option<Vec<u8>>, Error> {
        const SQL: &str = "
            select content from workspace.contents
            where hash = $2 and tenant_id = $1
              and exists (select from workspace.changes
                          where new_hash = $2 and tenant_id = $1 and agent_id = $3)";
        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Vec<u8>> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(hash.as_bytes().as_slice())
            .bind(agent.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found)
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

/// Folder of a file that this module named. Files that an agent put into such a folder are left
/// alone.
fn media_folder(path: &TreePath) -> Option<TreePath> {
    let folder = path.folder().filter(|folder| folder.name() == MEDIA_FOLDER)?;
    let (stem, _) = path.name().split_once('.')?;
    let is_generated =
        stem.len() == HASH_DIGITS_IN_NAME && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_generated.then_some(folder)
}

/// Deletions that make room for the new files.
fn evictions(there: Vec<FileEntry>, new: &BTreeMap<TreePath, &NewMedia>) -> Vec<Edit> {
    // Sizes of the folders, and their old files, the newest first.
    let mut folders: BTreeMap<TreePath, (u64, Vec<FileEntry>)> = BTreeMap::new();
    for (path, media) in new {
        let Some(folder) = media_folder(path) else { continue };
        folders.entry(folder).or_default().0 += media.content.len() as u64;
    }
    for file in there.into_iter().filter(|file| !new.contains_key(&file.path)) {
        let Some(folder) = media_folder(&file.path) else { continue };
        let (bytes, files) = folders.entry(folder).or_default();
        *bytes += file.size;
        files.push(file);
    }
    for (_, files) in folders.values_mut() {
        files.sort_by_key(|file| std::cmp::Reverse(file.changed_at));
    }
    let mut total: u64 = folders.values().map(|(bytes, _)| bytes).sum();
    let mut edits = Vec::new();
    while total > MAX_MEDIA_BYTES_OF_TREE {
        let largest = folders.values_mut().filter(|(_, files)| !files.is_empty());
        let Some((bytes, files)) = largest.max_by_key(|(bytes, _)| *bytes) else { break };
        let Some(oldest) = files.pop() else { break };
        *bytes -= oldest.size;
        total -= oldest.size;
        edits.push(Edit::Delete { path: oldest.path, base: Base::Any });
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

    fn file(path: &str, size: u64, second: i64) -> FileEntry {
        FileEntry {
            path: path.parse().unwrap(),
            size,
            hash: ContentHash::of(path.as_bytes()),
            revision: Revision::EMPTY,
            changed_at: jiff::Timestamp::from_second(second).unwrap(),
        }
    }

    fn evicted(there: Vec<FileEntry>, path: &str, bytes: usize) -> Vec<String> {
        let media = media("a.png", &vec![0; bytes]);
        let new = BTreeMap::from([(path.parse().unwrap(), &media)]);
        evictions(there, &new).iter().map(|edit| edit.path().to_string()).collect()
    }

    #[test]
    fn only_what_was_named_here_makes_room() {
        for (path, folder) in [
            ("media/0123456789abcdef.png", Some("media")),
            ("people/api=anna/media/0123456789abcdef.png", Some("people/api=anna/media")),
            ("media/cat.png", None),
            ("media/0123456789abcdef/a.png", None),
            ("0123456789abcdef.png", None),
            ("multimedia/0123456789abcdef.png", None),
        ] {
            let found = media_folder(&path.parse().unwrap());
            assert_eq!(found.as_ref().map(TreePath::as_str), folder, "{path}");
        }
    }

    #[test]
    fn who_sends_the_most_makes_room_with_their_own_oldest_files() {
        let path = |who: &str, n: u8| format!("people/{who}/media/{n:016x}.png");
        let there = || {
            vec![
                file(&path("anna", 1), 1 << 20, 1),
                file(&path("bob", 1), 16 << 20, 3),
                file(&path("bob", 2), 14 << 20, 2),
                file("media/cat.png", 60 << 20, 0),
            ]
        };

        assert_eq!(evicted(there(), &path("anna", 2), 1 << 20), [""; 0]);
        assert_eq!(evicted(there(), &path("anna", 2), 2 << 20), [path("bob", 2)]);
        assert_eq!(evicted(there(), &path("bob", 3), 20 << 20), [path("bob", 2), path("bob", 1)]);
        // A file that is stored again is not counted twice.
        assert_eq!(evicted(there(), &path("bob", 1), 16 << 20), [""; 0]);
    }
}
