//! Indexing of documents: unchanged chunks keep their vectors.

use std::collections::HashMap;

use holdfast_pg::TenantTx;
use holdfast_recall::{ChunkLimits, split};
use holdfast_types::TenantId;
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use sha2::{Digest as _, Sha256};
use sqlx::types::Json;
use uuid::Uuid;

use super::MemoryService;
use crate::{
    Error,
    store::{
        documents::{self, Document, DocumentFilter},
        items::to_column,
        units::{self, ChunkPosition},
    },
    unit::{Unit, UnitContent, hash, kind, terms_of},
    validation::Provenance,
    viewer::Viewer,
};

/// File that is never used in a group, whatever the request says (spec BST-007, C-07).
const PRIVATE_FILE: &str = "MEMORY.md";

/// Document to index, with validated fields.
#[derive(Debug, Clone)]
pub struct NewDocument {
    pub path: String,
    pub text: String,
    pub hash: String,
    pub group_safe: bool,
    pub dated: Option<Timestamp>,
    pub provenance: Provenance,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexResult {
    pub id: Uuid,
    /// The document was already indexed with the same content.
    pub unchanged: bool,
    pub chunks: usize,
    /// Number of chunks that existed before.
    pub kept: usize,
}

impl MemoryService {
    /// Indexes a document and replaces its former content.
    pub async fn index(
        &self,
        tenant: TenantId,
        who: &Viewer,
        new: &NewDocument,
    ) -> Result<IndexResult, Error> {
        let hash = match new.hash.as_str() {
            "" => text_hash(&new.text),
            given => given.to_owned(),
        };
        let group_safe = new.group_safe && !new.path.ends_with(PRIVATE_FILE);
        let dated = new.dated.or_else(|| day_of(&new.path));

        let mut tx = self.pools.tenant(tenant).await?;
        let there = documents::by_path(&mut tx, who, &new.path).await?;
        if let Some(there) = &there
            && there.hash == hash
            && there.group_safe == group_safe
            && there.dated.map(jiff_sqlx::Timestamp::to_jiff) == dated
        {
            let chunks = units::chunks(&mut tx, there.document_id).await?.len();
            tx.finish_reading();
            let id = there.document_id;
            return Ok(IndexResult { id, unchanged: true, chunks, kept: chunks });
        }
        let document = Document {
            document_id: there.as_ref().map_or_else(Uuid::now_v7, |there| there.document_id),
            kind: kind::DOCUMENT,
            agent_id: who.agent,
            user_id: who.user.clone(),
            scope: 0,
            path: new.path.clone(),
            hash,
            group_safe,
            dated: dated.map(to_column),
            tags: Vec::new(),
            version: there.as_ref().map_or(1, |there| there.version + 1),
            last_version: 0,
            provenance: Json(new.provenance.clone()),
            created_at: to_column(Timestamp::now()),
            updated_at: to_column(Timestamp::now()),
        };
        documents::put(&mut tx, &document, None).await?;
        let may_keep = there.is_none_or(|there| there.group_safe == group_safe);
        let (chunks, kept) = index_chunks(&mut tx, &document, &new.text, "", may_keep).await?;
        tx.commit().await?;
        self.waiting.notify_one();
        Ok(IndexResult { id: document.document_id, unchanged: false, chunks, kept })
    }

    /// Deletes a document. Returns whether it existed.
    pub async fn remove_document(
        &self,
        tenant: TenantId,
        who: &Viewer,
        path: &str,
    ) -> Result<bool, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let Some(there) = documents::by_path(&mut tx, who, path).await? else {
            tx.finish_reading();
            return Ok(false);
        };
        units::remove_of(&mut tx, there.document_id).await?;
        documents::remove(&mut tx, there.document_id).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Lists documents with the number of chunks and of those that wait for embedding.
    pub async fn documents(
        &self,
        tenant: TenantId,
        who: &Viewer,
        which: &DocumentFilter,
    ) -> Result<Vec<(Document, i64, i64)>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let found = documents::list(&mut tx, who, which).await?;
        let ids: Vec<Uuid> = found.iter().map(|document| document.document_id).collect();
        let progress: HashMap<Uuid, (i64, i64)> = documents::progress(&mut tx, &ids)
            .await?
            .into_iter()
            .map(|(id, chunks, pending)| (id, (chunks, pending)))
            .collect();
        tx.finish_reading();
        let with = |document: Document| {
            let (chunks, pending) =
                progress.get(&document.document_id).copied().unwrap_or_default();
            (document, chunks, pending)
        };
        Ok(found.into_iter().map(with).collect())
    }
}

/// Splits a text into the chunks of its document. If `may_keep`, chunks with unchanged text keep
/// their vectors. Returns the number of chunks and of those kept.
pub async fn index_chunks(
    tx: &mut TenantTx,
    document: &Document,
    text: &str,
    author: &str,
    may_keep: bool,
) -> Result<(usize, usize), Error> {
    let mut there: HashMap<Vec<u8>, Vec<Uuid>> = HashMap::new();
    for chunk in units::chunks(tx, document.document_id).await? {
        there.entry(chunk.hash).or_default().push(chunk.unit_id);
    }
    let whose = Viewer {
        agent: document.agent_id,
        user: document.user_id.clone(),
        group: false,
        maintainer: false,
        everything: false,
    };
    let at = document.dated.unwrap_or(document.updated_at).to_jiff();
    let (mut new, mut moved) = (Vec::new(), Vec::new());
    let mut like = None;
    for (place, chunk) in split(text, ChunkLimits::default()).into_iter().enumerate() {
        let (starts, ends) = (number(chunk.range.start), number(chunk.range.end));
        let part = &text[chunk.range];
        let headings = match document.kind {
            kind::KNOWLEDGE if chunk.headings.first() != Some(&document.path) => {
                [vec![document.path.clone()], chunk.headings].concat()
            }
            _ => chunk.headings,
        };
        let same = there.get_mut(&hash(&headings, part)).filter(|_| may_keep).and_then(Vec::pop);
        let needs_unit = same.is_none() || like.is_none();
        if let Some(unit_id) = same {
            moved.push(ChunkPosition { unit_id, place: number(place), starts, ends });
        }
        if needs_unit {
            let (terms, context) = (terms_of(part), terms_of(&headings.join("\n")));
            let said = UnitContent {
                text: part,
                terms: &terms,
                context: &context,
                at,
                provenance: &document.provenance.0,
            };
            let mut unit = Unit::new(tx.tenant(), &whose, document.kind, said).under(headings);
            unit.source_id = document.document_id;
            unit.scope = document.scope;
            author.clone_into(&mut unit.author);
            unit.place = number(place);
            unit.path.clone_from(&document.path);
            (unit.starts, unit.ends) = (starts, ends);
            unit.tags.clone_from(&document.tags);
            unit.group_safe = document.group_safe;
            unit.dated = document.kind == kind::DOCUMENT && document.dated.is_some();
            like.get_or_insert_with(|| unit.clone());
            if same.is_none() {
                new.push(unit);
            }
        }
    }
    let gone: Vec<Uuid> = there.into_values().flatten().collect();
    units::remove(tx, &gone).await?;
    if let Some(like) = &like {
        units::move_chunks(tx, &moved, like).await?;
    }
    let counts = (new.len() + moved.len(), moved.len());
    units::insert(tx, &new).await?;
    Ok(counts)
}

/// Returns the day in a daily note's path: `…/YYYYMM/YYYYMMDD.md` or `…/YYYY-MM-DD.md`.
fn day_of(path: &str) -> Option<Timestamp> {
    let name = path.rsplit('/').next()?.strip_suffix(".md")?;
    let digits: String = name.chars().filter(|c| *c != '-').collect();
    let is_date = digits.len() == 8
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (name.len() == 8 || name.len() == 10);
    if !is_date {
        return None;
    }
    let (year, month, day) = (&digits[..4], &digits[4..6], &digits[6..]);
    let date = Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()?;
    date.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp())
}

/// Returns the SHA-256 of a text, in hexadecimal.
pub fn text_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daily_note_has_its_day_and_other_files_have_none() {
        let noon = |text: &str| Some(text.parse::<Timestamp>().unwrap());

        assert_eq!(day_of("memory/202611/20261122.md"), noon("2026-11-22T00:00:00Z"));
        assert_eq!(day_of("memory/2026-11-22.md"), noon("2026-11-22T00:00:00Z"));
        for path in ["memory/MEMORY.md", "memory/20261399.md", "memory/12345678", "20-26-11-22.md"]
        {
            assert_eq!(day_of(path), None, "{path}");
        }
    }
}
