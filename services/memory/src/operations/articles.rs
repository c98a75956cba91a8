//! Knowledge base: versioned articles and the right to change them.

use holdfast_pg::TenantTx;
use holdfast_types::TenantId;
use jiff::Timestamp;
use sqlx::types::Json;
use uuid::Uuid;

use super::{
    MemoryService,
    documents::{index_chunks, text_hash},
    policy::MaskedText,
    reading,
};
use crate::{
    Error,
    store::{
        articles::{self, Version},
        documents::{self, Document, DocumentFilter},
        items::to_column,
        sources, units,
    },
    unit::kind,
    validation::{Provenance, prefixed_id},
    viewer::{ALL_AGENTS, Viewer},
};

/// Scopes, numbered as in the API and in the tables.
pub mod scope {
    pub const TENANT: i16 = 1;
    pub const WORKSPACE: i16 = 2;
}

/// Maximum characters of a title.
const MAX_TITLE_CHARS: usize = 200;

/// Article to add, with validated fields.
#[derive(Debug, Clone)]
pub struct NewArticle {
    pub scope: i16,
    pub title: String,
    pub content: Vec<u8>,
    pub media_type: String,
    pub tags: Vec<String>,
    pub provenance: Provenance,
    pub author: String,
    pub confidence: Option<f64>,
    pub request: String,
    /// Session in which the article is written; may be empty.
    pub session: String,
}

/// Change of an article; `None` or empty keeps a field.
#[derive(Debug, Clone)]
pub struct Revision {
    pub content: Vec<u8>,
    pub media_type: String,
    pub title: String,
    pub tags: Option<Vec<String>>,
    pub provenance: Provenance,
    pub author: String,
    pub confidence: Option<f64>,
    pub version: u32,
    /// Session in which the change is written, and its user; may be empty.
    pub session: String,
    pub user: String,
}

/// Article in one of its versions.
#[derive(Debug, Clone)]
pub struct Article {
    pub document: Document,
    pub version: Version,
    /// Number of chunks, and number of those that wait for embedding.
    pub progress: (i64, i64),
}

impl MemoryService {
    pub async fn ingest(
        &self,
        tenant: TenantId,
        who: &Viewer,
        new: &NewArticle,
    ) -> Result<Article, Error> {
        let whose = owner(who, new.scope)?;
        let read = reading::read((&self.documents, tenant), &new.content, &new.media_type).await?;
        let masked = self.policy.apply(&read.text)?;
        let given = if new.title.trim().is_empty() { &read.title } else { &new.title };
        let title = self.policy.apply(&title(given, &masked.text))?.text;

        let mut tx = self.pools.tenant(tenant).await?;
        if !new.request.is_empty()
            && let Some(id) = documents::of_request(&mut tx, &new.request).await?
        {
            tx.finish_reading();
            return self.article(tenant, who, id, 0).await;
        }
        let now = to_column(Timestamp::now());
        let document = Document {
            document_id: Uuid::now_v7(),
            kind: kind::KNOWLEDGE,
            agent_id: whose,
            user_id: String::new(),
            scope: new.scope,
            path: title.clone(),
            hash: text_hash(&masked.text),
            group_safe: true,
            dated: None,
            tags: new.tags.clone(),
            version: 1,
            last_version: 0,
            provenance: Json(new.provenance.clone()),
            created_at: now,
            updated_at: now,
        };
        let approved = new.scope == scope::TENANT && who.maintainer;
        let version = version(&document, masked, (&new.author, new.confidence), approved);
        let request = Some(new.request.as_str()).filter(|request| !request.is_empty());
        documents::put(&mut tx, &document, request).await?;
        articles::insert(&mut tx, &version).await?;
        let made = (version.document_id, version.version);
        sources::put(&mut tx, made, (&new.session, &who.user)).await?;
        let (chunks, _) =
            index_chunks(&mut tx, &document, &version.text, &new.author, true).await?;
        tx.commit().await?;
        self.waiting.notify_one();
        let chunks = i64::try_from(chunks).unwrap_or(i64::MAX);
        Ok(Article { document, version, progress: (chunks, chunks) })
    }

    /// Writes a new version of an article; earlier versions are kept.
    pub async fn update(
        &self,
        tenant: TenantId,
        who: &Viewer,
        id: Uuid,
        change: &Revision,
    ) -> Result<Article, Error> {
        let text = if change.content.is_empty() {
            None
        } else {
            Some(
                reading::read((&self.documents, tenant), &change.content, &change.media_type)
                    .await?
                    .text,
            )
        };
        let mut tx = self.pools.tenant(tenant).await?;
        let there = self.lock_article(&mut tx, who, id).await?;
        may_change(who, &there)?;
        if change.version != 0 && i64::from(there.version) != i64::from(change.version) {
            return Err(Error::Changed { have: there.version, given: change.version });
        }
        let article = self.revise(&mut tx, there, change, text).await?;
        tx.commit().await?;
        self.waiting.notify_one();
        Ok(article)
    }

    /// Locks and returns an article.
    pub(super) async fn lock_article(
        &self,
        tx: &mut TenantTx,
        who: &Viewer,
        id: Uuid,
    ) -> Result<Document, Error> {
        documents::lock(tx, id).await?;
        let there = documents::get(tx, who, kind::KNOWLEDGE, id).await?;
        there.ok_or_else(|| not_found(id))
    }

    /// Writes the next version of a locked article; `None` keeps the text.
    pub(super) async fn revise(
        &self,
        tx: &mut TenantTx,
        there: Document,
        change: &Revision,
        text: Option<String>,
    ) -> Result<Article, Error> {
        let id = there.document_id;
        let before = articles::get(tx, id, there.version).await?;
        let before = before.ok_or(Error::Corrupt("article"))?;
        let keeps_text = text.is_none();
        let masked = match text {
            Some(text) => self.policy.apply(&text)?,
            None => MaskedText { text: before.text, counts: before.masked.0 },
        };
        let title = match change.title.trim() {
            "" => there.path.clone(),
            given => self.policy.apply(&title(given, ""))?.text,
        };
        let document = Document {
            path: title,
            hash: text_hash(&masked.text),
            tags: change.tags.clone().unwrap_or_else(|| there.tags.clone()),
            version: there.version.max(there.last_version) + 1,
            provenance: Json(change.provenance.clone()),
            updated_at: to_column(Timestamp::now()),
            ..there
        };
        let author = if change.author.is_empty() { &before.author } else { &change.author };
        let confidence = change.confidence.or(before.confidence);
        // Callers check the right to change articles of the tenant, so their versions are approved.
        let approved = document.scope == scope::TENANT;
        let version = version(&document, masked, (author, confidence), approved);
        documents::put(tx, &document, None).await?;
        articles::insert(tx, &version).await?;
        sources::put(tx, (id, version.version), (&change.session, &change.user)).await?;
        if keeps_text {
            sources::copy_sources(tx, id, (before.version, version.version)).await?;
        }
        index_chunks(tx, &document, &version.text, author, true).await?;
        let progress = progress(tx, id).await?;
        Ok(Article { document, version, progress })
    }

    /// Returns an article in one version; 0 means the current one.
    pub async fn article(
        &self,
        tenant: TenantId,
        who: &Viewer,
        id: Uuid,
        version: i32,
    ) -> Result<Article, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let document = documents::get(&mut tx, who, kind::KNOWLEDGE, id).await?;
        let document = document.ok_or_else(|| not_found(id))?;
        let version = articles::get(&mut tx, id, version)
            .await?
            .ok_or_else(|| Error::not_found("such version of", &prefixed_id("doc", id)))?;
        let progress = progress(&mut tx, id).await?;
        tx.finish_reading();
        Ok(Article { document, version, progress })
    }

    pub async fn articles(
        &self,
        tenant: TenantId,
        who: &Viewer,
        which: &DocumentFilter,
    ) -> Result<Vec<(Document, i64, i64)>, Error> {
        self.documents(tenant, who, &DocumentFilter { kind: kind::KNOWLEDGE, ..which.clone() })
            .await
    }

    /// Returns an article's versions, newest first, without texts.
    pub async fn versions(
        &self,
        tenant: TenantId,
        who: &Viewer,
        id: Uuid,
    ) -> Result<(Document, Vec<Version>), Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let document = documents::get(&mut tx, who, kind::KNOWLEDGE, id).await?;
        let document = document.ok_or_else(|| not_found(id))?;
        let versions = articles::all(&mut tx, id).await?;
        tx.finish_reading();
        Ok((document, versions))
    }

    /// Deletes an article with all versions. Returns whether it existed.
    pub async fn remove_article(
        &self,
        tenant: TenantId,
        who: &Viewer,
        id: Uuid,
    ) -> Result<bool, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        documents::lock(&mut tx, id).await?;
        let Some(there) = documents::get(&mut tx, who, kind::KNOWLEDGE, id).await? else {
            tx.finish_reading();
            return Ok(false);
        };
        may_change(who, &there)?;
        units::remove_of(&mut tx, id).await?;
        documents::remove(&mut tx, id).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Returns the agent that owns articles of a scope.
fn owner(who: &Viewer, scope: i16) -> Result<Uuid, Error> {
    match scope {
        scope::TENANT => Ok(ALL_AGENTS),
        _ if who.agent == ALL_AGENTS => {
            Err(Error::field("scope", "is `workspace`, and `who` names no agent whose that is"))
        }
        _ => Ok(who.agent),
    }
}

fn may_change(who: &Viewer, article: &Document) -> Result<(), Error> {
    let is_free = article.scope == scope::WORKSPACE || who.maintainer;
    if is_free { Ok(()) } else { Err(Error::NotMaintainer) }
}

/// Returns the given title, or the first line of the text that is not blank.
fn title(given: &str, text: &str) -> String {
    let given = given.trim();
    let first = || text.lines().map(|line| line.trim_start_matches('#').trim());
    let title = if given.is_empty() {
        first().find(|line| !line.is_empty()).unwrap_or("untitled")
    } else {
        given
    };
    title.chars().take(MAX_TITLE_CHARS).collect()
}

fn version(
    document: &Document,
    masked: MaskedText,
    (author, confidence): (&str, Option<f64>),
    approved: bool,
) -> Version {
    Version {
        document_id: document.document_id,
        version: document.version,
        title: document.path.clone(),
        text: masked.text,
        tags: document.tags.clone(),
        provenance: document.provenance.clone(),
        author: author.to_owned(),
        confidence,
        masked: Json(masked.counts),
        approved,
        created_at: document.updated_at,
    }
}

async fn progress(tx: &mut TenantTx, id: Uuid) -> sqlx::Result<(i64, i64)> {
    let found = documents::progress(tx, &[id]).await?;
    Ok(found.first().map_or((0, 0), |(_, chunks, waiting)| (*chunks, *waiting)))
}

fn not_found(id: Uuid) -> Error {
    Error::not_found("article", &prefixed_id("doc", id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untitled_text_is_called_by_its_first_line() {
        assert_eq!(title("", "\n## How to brew\nBoil."), "How to brew");
        assert_eq!(title(" Tea ", "# Other"), "Tea");
        assert_eq!(title("", " \n"), "untitled");
    }
}
