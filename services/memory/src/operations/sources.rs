//! Erasure of knowledge base articles with the conversations that they came from (decision 0041).
//!
//! | article | versions from the conversation | consequence |
//! |---|---|---|
//! | of one agent | deleted | the newest remaining version becomes current; without one the article is deleted |
//! | of the tenant, added by others than maintainers | deleted | the same |
//! | of the tenant, written or accepted by a maintainer | kept | references to the conversation and its speakers are removed |
//!
//! A chunk has the provenance of the version that created it, even if later versions kept it. So
//! the chunks of deleted versions are created again from the current text; all others keep their
//! vectors.

use holdfast_pg::TenantTx;
use uuid::Uuid;

use super::documents::{index_chunks, text_hash};
use crate::{
    Error,
    store::{
        articles, documents,
        forget::{self, Count, Erase},
        sources::{self, Conversations, SourcedVersion},
        units,
    },
    unit::kind,
    viewer::{ALL_AGENTS, Viewer},
};

/// Erases everything that an erasure covers, including articles. Returns the erased and the
/// remaining rows by table; none should remain.
pub async fn erase(tx: &mut TenantTx, what: &Erase) -> Result<(Vec<Count>, Vec<Count>), Error> {
    let (mut erased, mut left) = forget::erase(tx, what).await?;
    if let Some(of) = Conversations::of(what) {
        let (of_articles, left_of_articles) = erase_articles(tx, &of).await?;
        add(&mut erased, &of_articles);
        add(&mut left, &left_of_articles);
    }
    Ok((erased, left))
}

/// Erases the articles' part of [`erase`].
pub async fn erase_articles(
    tx: &mut TenantTx,
    of: &Conversations,
) -> Result<(Vec<Count>, Vec<Count>), Error> {
    let articles = sources::lock(tx, of).await?;
    if articles.is_empty() {
        // Nothing was found, as for nearly all conversations.
        let nothing = || vec![("versions", 0), ("sources", 0), ("documents", 0)];
        return Ok((nothing(), nothing()));
    }
    let brought = sources::versions(tx, of).await?;
    let (stay, gone): (Vec<&SourcedVersion>, Vec<&SourcedVersion>) =
        brought.iter().partition(|one| one.approved);
    let made = sources::units(tx, &articles, &brought).await?;
    let mut erased = forget::count_dependents(tx, &made).await?;
    units::remove(tx, &made).await?;
    sources::remove_versions(tx, &gone).await?;
    sources::remove_names(tx, &stay).await?;
    let unnamed = sources::remove(tx, of).await?;
    let mut emptied = 0;
    for article in &articles {
        emptied += i64::from(restore_article(tx, *article).await? == RestoreOutcome::Gone);
    }
    erased.extend([
        ("units", rows(made.len())),
        ("versions", rows(gone.len())),
        ("sources", i64::try_from(unnamed).unwrap_or(i64::MAX)),
        ("documents", emptied),
    ]);
    let mut left = forget::count_dependents(tx, &made).await?;
    left.push(("units", forget::units_left(tx, &made).await?));
    left.extend(sources::left(tx, of, &gone, &articles).await?);
    Ok((erased, left))
}

/// Result of restoring an article.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestoreOutcome {
    Yes,
    Gone,
}

/// Restores an article from its newest remaining version, or deletes it if there is none.
async fn restore_article(tx: &mut TenantTx, id: Uuid) -> Result<RestoreOutcome, Error> {
    let Some(version) = articles::get(tx, id, 0).await? else {
        units::remove_of(tx, id).await?;
        documents::remove(tx, id).await?;
        return Ok(RestoreOutcome::Gone);
    };
    let all = Viewer {
        agent: ALL_AGENTS,
        user: String::new(),
        group: false,
        maintainer: false,
        everything: true,
    };
    let document = documents::get(tx, &all, kind::KNOWLEDGE, id).await?;
    let mut document = document.ok_or(Error::Corrupt("article"))?;
    document.path = version.title;
    document.hash = text_hash(&version.text);
    document.tags = version.tags;
    document.version = version.version;
    document.provenance = version.provenance;
    document.updated_at = version.created_at;
    documents::put(tx, &document, None).await?;
    index_chunks(tx, &document, &version.text, &version.author, true).await?;
    Ok(RestoreOutcome::Yes)
}

pub fn add(counts: &mut Vec<Count>, more: &[Count]) {
    for (what, rows) in more {
        match counts.iter_mut().find(|(there, _)| there == what) {
            Some((_, there)) => *there += rows,
            None => counts.push((what, *rows)),
        }
    }
}

fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
