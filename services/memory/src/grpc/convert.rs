//! Conversion between stored types and protobuf messages.

use holdfast_proto::memory::v1 as pb;
use uuid::Uuid;

use crate::{
    Error,
    operations::{Article, Proposal, Verdict},
    store::{
        articles::Version,
        documents::Document,
        erasures::{ErasureStatus, Rows},
        forget::Count,
        items::Item,
    },
    unit::kind,
    validation::{prefixed_id, proto_time},
    viewer::agent_text,
};

/// Converts kinds; unknown ones are refused.
pub fn kinds(given: &[i32]) -> Result<Vec<i16>, Error> {
    given
        .iter()
        .map(|given| {
            i16::try_from(*given).ok().filter(|of| kind::ALL.contains(of)).ok_or_else(|| {
                Error::field("kinds", format!("has `{given}`, which is no kind of the contract"))
            })
        })
        .collect()
}

pub fn after(given: &str) -> Result<Option<Uuid>, Error> {
    if given.is_empty() {
        return Ok(None);
    }
    // Either a token, or the id of the last entry of a page, such as `itm_…`.
    Uuid::try_parse(given.split_once('_').map_or(given, |(_, id)| id)).map(Some).map_err(|_| {
        Error::field(
            "after",
            "is neither the `next` of an answer nor an id: leave it empty to begin",
        )
    })
}

/// Returns the token of the next page; empty if this page is not full.
pub fn next(limit: i64, ids: impl ExactSizeIterator<Item = Uuid>) -> String {
    if i64::try_from(ids.len()).is_ok_and(|len| len >= limit) {
        ids.last().map(|id| id.simple().to_string()).unwrap_or_default()
    } else {
        String::new()
    }
}

pub fn item(item: Item) -> pb::Item {
    pb::Item {
        id: prefixed_id("itm", item.item_id),
        kind: i32::from(item.kind),
        r#type: item.of_type,
        content: item.content,
        subject: item.subject,
        predicate: item.predicate,
        agent: agent_text(item.agent_id),
        user: item.user_id,
        session: item.session,
        provenance: Some(item.provenance.0.into_proto()),
        confidence: item.confidence,
        importance: item.importance,
        tags: item.tags,
        group_safe: item.group_safe,
        active: item.active,
        at: Some(proto_time(item.at.to_jiff())),
        created_at: Some(proto_time(item.created_at.to_jiff())),
        expires_at: item.expires_at.map(|at| proto_time(at.to_jiff())),
        superseded_by: item.superseded_by.map(|id| prefixed_id("itm", id)).unwrap_or_default(),
        superseded_at: item.superseded_at.map(|at| proto_time(at.to_jiff())),
    }
}

pub fn document((document, chunks, pending): (Document, i64, i64)) -> pb::Document {
    pb::Document {
        document_id: prefixed_id("doc", document.document_id),
        path: document.path,
        hash: document.hash,
        agent: agent_text(document.agent_id),
        user: document.user_id,
        group_safe: document.group_safe,
        chunks: count(chunks),
        pending: count(pending),
        indexed_at: Some(proto_time(document.updated_at.to_jiff())),
        provenance: Some(document.provenance.0.into_proto()),
    }
}

pub fn article(article: Article) -> pb::Article {
    let Article { document, version, progress: (chunks, pending) } = article;
    pb::Article {
        text: version.text.clone(),
        chunks: count(chunks),
        pending: count(pending),
        ..one_version(&document, version)
    }
}

/// Converts a version of an article, without its text.
pub fn one_version(document: &Document, version: Version) -> pb::Article {
    let masked = version.masked.0.into_iter();
    let accepted_by = version.provenance.0.accepted_by.clone();
    pb::Article {
        id: prefixed_id("doc", document.document_id),
        version: count(version.version.into()),
        scope: i32::from(document.scope),
        agent: agent_text(document.agent_id),
        title: version.title,
        text: String::new(),
        tags: version.tags,
        provenance: Some(version.provenance.0.into_proto()),
        author: version.author,
        confidence: version.confidence,
        created_at: Some(proto_time(document.created_at.to_jiff())),
        updated_at: Some(proto_time(version.created_at.to_jiff())),
        chunks: 0,
        pending: 0,
        masked: masked.map(|(what, rows)| pb::Count { what, rows }).collect(),
        accepted_by,
    }
}

pub fn proposal(proposal: Proposal) -> pb::Proposal {
    let Proposal { item, change, decision } = proposal;
    let verdict = decision.as_ref().map(|decision| match decision.verdict {
        Verdict::Accepted => pb::Verdict::Accepted,
        Verdict::Declined => pb::Verdict::Declined,
    });
    let made = decision.as_ref().and_then(|decision| decision.made);
    let (by, reason) = decision.map(|one| (one.by, one.reason)).unwrap_or_default();
    pb::Proposal {
        id: prefixed_id("itm", item.item_id),
        article: change.article,
        version: change.version,
        title: change.title,
        text: change.text,
        author: change.author,
        agent: agent_text(item.agent_id),
        user: item.user_id,
        session: item.session,
        provenance: Some(item.provenance.0.into_proto()),
        created_at: Some(proto_time(item.created_at.to_jiff())),
        verdict: verdict.unwrap_or_default().into(),
        decided_by: by,
        reason,
        decided_at: item.superseded_at.map(|at| proto_time(at.to_jiff())),
        made: made.map_or(0, |made| count(made.into())),
    }
}

/// Converts a list entry, without text.
pub fn listed((document, chunks, pending): (Document, i64, i64)) -> pb::Article {
    pb::Article {
        id: prefixed_id("doc", document.document_id),
        version: count(document.version.into()),
        scope: i32::from(document.scope),
        agent: agent_text(document.agent_id),
        title: document.path,
        tags: document.tags,
        provenance: Some(document.provenance.0.into_proto()),
        created_at: Some(proto_time(document.created_at.to_jiff())),
        updated_at: Some(proto_time(document.updated_at.to_jiff())),
        chunks: count(chunks),
        pending: count(pending),
        ..pb::Article::default()
    }
}

pub fn erasure(looked: ErasureStatus) -> pb::Erasure {
    pb::Erasure {
        what: looked.what,
        subject: looked.subject,
        asked_at: Some(proto_time(looked.asked_at.to_jiff())),
        erased_at: looked.erased_at.map(|at| proto_time(at.to_jiff())),
        done: looked.done,
        erased: rows(looked.erased.0),
        left: rows(looked.left_over.0),
    }
}

fn rows(rows: Rows) -> Vec<pb::Count> {
    let one = |(what, rows)| pb::Count { what, rows: u64::try_from(rows).unwrap_or(0) };
    rows.into_iter().map(one).collect()
}

pub fn counts(counts: Vec<Count>) -> Vec<pb::Count> {
    let one = |(what, rows): Count| pb::Count {
        what: what.to_owned(),
        rows: u64::try_from(rows).unwrap_or(0),
    };
    counts.into_iter().map(one).collect()
}

pub fn count(rows: i64) -> u32 {
    u32::try_from(rows.max(0)).unwrap_or(u32::MAX)
}
