//! Keyword and vector search, with the union of their hits; in one statement or in four, or among
//! filtered units.
//!
//! The keyword search is a database function that reads the index as its owner (see the migration).
//! The vector search scans all visible vectors, or uses the tenant's own table with its index. Each
//! hit is returned with both signals, since a keyword hit needs its cosine too.
//!
//! One statement is one round trip. For tenants with many units each search takes longer than that,
//! so the two run at once on two connections, and the units of keyword hits are loaded while the
//! vector search runs.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
};

use holdfast_pg::{Setting, TenantTx};
use serde::Serialize;
use sqlx::{AssertSqlSafe, types::Json};
use uuid::Uuid;

use crate::{unit::kind, validation::Provenance, viewer::Viewer, words};

/// Number of vector hits and keyword hits that are ranked: 30 lose nothing against all
/// (docs/decisions/0029). Keyword hits are preselected by a coarser score, so there are more of
/// them.
const MAX_VECTOR_HITS: i32 = 30;
const MAX_KEYWORD_HITS: i32 = 100;

/// Maximum terms of a question that are searched.
const MAX_TERMS: usize = 24;

/// Settings of a transaction for [`find`]. Planning the statement takes longer than scanning a few
/// hundred units, and the generic plan is no slower with 15,000 (docs/decisions/0033), so it is
/// planned once per connection.
pub const EXACT_SETTINGS: &[Setting] = &[("plan_cache_mode", "force_generic_plan")];

/// Settings of a transaction for [`near`]: the size of the index's candidate list, which determines
/// recall (docs/decisions/0033), and iterative scans if too few candidates are visible. Hits are
/// sorted afterwards by their full vectors.
pub const INDEX_SETTINGS: &[Setting] =
    &[("hnsw.ef_search", "350"), ("hnsw.iterative_scan", "relaxed_order")];

#[derive(Debug, Clone)]
pub struct SearchParams {
    /// Terms of the question; a unit needs any one of them.
    pub terms: Vec<String>,
    /// Document frequency of each term, where it is known.
    pub held_by: Vec<Option<i32>>,
    pub kinds: Vec<i16>,
    pub narrow: Option<SearchFilter>,
    /// Number of hits in the result.
    pub k: u32,
    /// Whether to return the hits' vectors.
    pub with_vectors: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct QuestionEmbedding {
    /// Model of the embedding.
    pub model: String,
    pub vector: Vec<f32>,
    /// The tenant's own indexed table, if it is to be searched.
    pub own: Option<String>,
}

#[derive(Debug, Default)]
pub struct KeywordHits {
    units: Vec<Uuid>,
    /// Document frequency of each term of the question; `None` if there are no keyword hits.
    held_by: Option<Vec<i32>>,
}

impl KeywordHits {
    /// Returns the units, best first.
    pub fn units(&self) -> impl Iterator<Item = Uuid> {
        self.units.iter().copied()
    }
}

/// Additional filters. `None` or empty matches all.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SearchFilter {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_sessions: Vec<String>,
    /// In seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_prefix: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<i16>,
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct FoundUnit {
    pub unit_id: Uuid,
    pub kind: i16,
    pub source_id: Uuid,
    pub agent_id: Uuid,
    pub user_id: String,
    pub session: String,
    #[sqlx(rename = "type")]
    pub of_type: String,
    pub scope: i16,
    pub author: String,
    #[sqlx(rename = "ref")]
    pub reference: String,
    pub path: String,
    pub headings: Vec<String>,
    pub starts: i32,
    pub ends: i32,
    pub tags: Vec<String>,
    pub text: String,
    pub at: jiff_sqlx::Timestamp,
    pub dated: bool,
    pub terms: i32,
    pub provenance: Json<Provenance>,
    /// Number of terms, including those of the context.
    pub length: i32,
    /// Number of occurrences of each term of the question in the unit.
    pub held: Json<HashMap<String, u32>>,
    /// Document frequency of each term of the question, in their order; up to 1,001.
    pub held_by: Option<Vec<i32>>,
    pub meant: f32,
    /// Vector, if requested and present.
    pub vector: Option<Vec<f32>>,
}

/// Returns keyword and vector hits, unordered, in one statement. For small tenants; [`near`] uses
/// the index.
pub async fn find(
    tx: &mut TenantTx,
    who: &Viewer,
    ask: &SearchParams,
    meaning: Option<&QuestionEmbedding>,
) -> sqlx::Result<Vec<FoundUnit>> {
    let tenant = tx.tenant();
    let sql = format!(
        "with q as materialized (select $2::real[]::vector as v), near as ({vector_hits}), said as (
             select unit_id, held_by
             from memory.words($10::text[]::tsquery[], $4, $5, $6, $7, $9, $11, $12)
         ), found as (
             select unit_id from near union select unit_id from said
         )
         {shown}",
        vector_hits = vector_hits_sql(ask, meaning),
        shown = load_hits_sql(ask, "$13", "(select held_by from said limit 1)"),
    );
    let terms = ask.terms();
    holdfast_pg::query_as(AssertSqlSafe(sql))
        .bind(tenant.as_uuid())
        .bind(meaning.map(|meaning| &meaning.vector))
        .bind(meaning.map_or("", |meaning| &meaning.model))
        .bind(who.agents())
        .bind(who.users())
        .bind(&ask.kinds)
        .bind(who.group)
        .bind(MAX_VECTOR_HITS.max(ask.k()))
        .bind(ask.narrow.as_ref().map(Json))
        .bind(words::each_of(terms))
        .bind(MAX_KEYWORD_HITS.max(ask.k()))
        .bind(&ask.held_by)
        .bind(terms)
        .fetch_all(tx.conn())
        .await
}

/// Keyword search: the first part of [`find`].
pub async fn keyword_hits(
    tx: &mut TenantTx,
    who: &Viewer,
    ask: &SearchParams,
) -> sqlx::Result<KeywordHits> {
    const SQL: &str = "
        select unit_id, held_by
        from memory.words($1::text[]::tsquery[], $2, $3, $4, $5, $6, $7, $8)";

    let rows: Vec<(Uuid, Vec<i32>)> = holdfast_pg::query_as(SQL)
        .bind(words::each_of(ask.terms()))
        .bind(who.agents())
        .bind(who.users())
        .bind(&ask.kinds)
        .bind(who.group)
        .bind(ask.narrow.as_ref().map(Json))
        .bind(MAX_KEYWORD_HITS.max(ask.k()))
        .bind(&ask.held_by)
        .fetch_all(tx.conn())
        .await?;
    let mut said = KeywordHits::default();
    for (unit, held_by) in rows {
        said.units.push(unit);
        said.held_by.get_or_insert(held_by);
    }
    Ok(said)
}

/// Vector search: the second part of [`find`].
pub async fn vector_hits(
    tx: &mut TenantTx,
    who: &Viewer,
    ask: &SearchParams,
    meaning: &QuestionEmbedding,
) -> sqlx::Result<Vec<Uuid>> {
    let tenant = tx.tenant();
    let sql = format!(
        "with q as materialized (select $2::real[]::vector as v) {}",
        vector_hits_sql(ask, Some(meaning))
    );
    holdfast_pg::query_scalar(AssertSqlSafe(sql))
        .bind(tenant.as_uuid())
        .bind(&meaning.vector)
        .bind(&meaning.model)
        .bind(who.agents())
        .bind(who.users())
        .bind(&ask.kinds)
        .bind(who.group)
        .bind(MAX_VECTOR_HITS.max(ask.k()))
        .bind(ask.narrow.as_ref().map(Json))
        .fetch_all(tx.conn())
        .await
}

/// Loads the units of hits with both signals: the last part of [`find`].
pub async fn load_hits(
    tx: &mut TenantTx,
    ask: &SearchParams,
    meaning: Option<&QuestionEmbedding>,
    said: &KeywordHits,
    found: impl IntoIterator<Item = Uuid>,
) -> sqlx::Result<Vec<FoundUnit>> {
    let sql = format!(
        "with q as materialized (select $2::real[]::vector as v),
         found as (select unnest($4::uuid[]) as unit_id) {}",
        load_hits_sql(ask, "$5", "$6::integer[]")
    );
    holdfast_pg::query_as(AssertSqlSafe(sql))
        .bind(tx.tenant().as_uuid())
        .bind(meaning.map(|meaning| &meaning.vector))
        .bind(meaning.map_or("", |meaning| &meaning.model))
        .bind(found.into_iter().collect::<Vec<_>>())
        .bind(ask.terms())
        .bind(&said.held_by)
        .fetch_all(tx.conn())
        .await
}

/// Unit that passes the filters.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct FilteredUnit {
    unit_id: Uuid,
    /// Keyword score; `None` if no term matches.
    fits: Option<f32>,
}

/// Returns the visible units that pass the filters, unordered, at most `most`.
pub async fn filtered_units(
    tx: &mut TenantTx,
    who: &Viewer,
    ask: &SearchParams,
    narrow: &SearchFilter,
    most: i64,
) -> sqlx::Result<Vec<FilteredUnit>> {
    let sql = format!(
        "select u.unit_id, case when u.words @@ $8::tsquery
                then ts_rank(u.words, $8::tsquery, 1) end as fits
         from memory.units u
         where u.tenant_id = $1 and u.agent_id = any ($2) and u.user_id = any ($3)
           and u.kind = any ($4) and (u.group_safe or not $5)
           and (u.expires_at is null or u.expires_at > now())
           and memory.is_within(u, $6) and {by} limit $7",
        by = narrow.index_condition()
    );
    let terms = ask.terms();
    holdfast_pg::query_as(AssertSqlSafe(sql))
        .bind(tx.tenant().as_uuid())
        .bind(who.agents())
        .bind(who.users())
        .bind(&ask.kinds)
        .bind(who.group)
        .bind(Json(narrow))
        .bind(most)
        .bind((!terms.is_empty()).then(|| words::any_of(terms)))
        .fetch_all(tx.conn())
        .await
}

/// Returns the document frequency of each term among the visible units.
pub async fn doc_freqs(
    tx: &mut TenantTx,
    who: &Viewer,
    ask: &SearchParams,
) -> sqlx::Result<Vec<i32>> {
    const SQL: &str = "select memory.held_by($1::text[]::tsquery[], $2, $3, $4)";

    holdfast_pg::query_scalar(SQL)
        .bind(words::each_of(ask.terms()))
        .bind(who.agents())
        .bind(who.users())
        .bind(&ask.held_by)
        .fetch_one(tx.conn())
        .await
}

/// Searches among filtered units, like [`find`] among all.
pub async fn search_filtered(
    tx: &mut TenantTx,
    ask: &SearchParams,
    meaning: Option<&QuestionEmbedding>,
    left: Vec<FilteredUnit>,
    held_by: Vec<i32>,
) -> sqlx::Result<Vec<FoundUnit>> {
    const VECTOR_HITS: &str = "
        select g.unit_id from unnest($1::uuid[]) as g (unit_id)
        cross join lateral (
            select v.embedding from memory.vectors v
            where v.unit_id = g.unit_id and v.tenant_id = $2 and v.model = $3 offset 0
        ) v
        order by v.embedding <#> $4::real[]::vector limit $5";

    let mut found: Vec<Uuid> = Vec::new();
    if let Some(meaning) = meaning {
        found = holdfast_pg::query_scalar(VECTOR_HITS)
            .bind(left.iter().map(|one| one.unit_id).collect::<Vec<_>>())
            .bind(tx.tenant().as_uuid())
            .bind(&meaning.model)
            .bind(&meaning.vector)
            .bind(MAX_VECTOR_HITS.max(ask.k()))
            .fetch_all(tx.conn())
            .await?;
    }
    let mut said: Vec<FilteredUnit> = left.into_iter().filter(|one| one.fits.is_some()).collect();
    said.sort_by(|a, b| b.fits.partial_cmp(&a.fits).unwrap_or(Ordering::Equal));
    said.truncate(usize::try_from(MAX_KEYWORD_HITS.max(ask.k())).unwrap_or(0));
    found.extend(said.iter().map(|one| one.unit_id));
    let found: BTreeSet<Uuid> = found.into_iter().collect();
    let said = KeywordHits { units: Vec::new(), held_by: Some(held_by) };
    load_hits(tx, ask, meaning, &said, found).await
}

impl SearchFilter {
    /// Returns whether the filters may exclude most units. Excluding some sessions does not.
    pub fn is_selective(&self) -> bool {
        let Self { types, session, not_sessions: _, since, until, path_prefix, tags, scope } = self;
        session.is_some()
            || path_prefix.is_some()
            || since.is_some()
            || until.is_some()
            || scope.is_some()
            || !types.is_empty()
            || !tags.is_empty()
    }

    /// Returns an indexable condition for the most selective filter, with the filters as `$6`. It
    /// repeats a part of `is_within` in a form that matches an index.
    fn index_condition(&self) -> String {
        if self.session.is_some() {
            return "u.session <> '' and u.session = $6->>'session'".to_owned();
        }
        if self.path_prefix.is_some() {
            return "u.path <> '' and u.path collate \"C\" >= $6->>'path_prefix'
                    and u.path collate \"C\" < ($6->>'path_prefix') || chr(1114111)"
                .to_owned();
        }
        if !self.tags.is_empty() {
            return "u.tags <> '{}'".to_owned();
        }
        let mut by = "u.place >= 0".to_owned();
        for (is_set, clause) in [
            (self.since.is_some(), "u.at >= to_timestamp(($6->>'since')::float8)"),
            (self.until.is_some(), "u.at < to_timestamp(($6->>'until')::float8)"),
            (
                !self.types.is_empty(),
                "u.type = any (array(select jsonb_array_elements_text($6->'types')))",
            ),
        ] {
            if is_set {
                by.push_str(" and ");
                by.push_str(clause);
            }
        }
        by
    }
}

impl SearchParams {
    fn terms(&self) -> &[String] {
        &self.terms[..self.terms.len().min(MAX_TERMS)]
    }

    fn k(&self) -> i32 {
        i32::try_from(self.k).unwrap_or(MAX_VECTOR_HITS)
    }
}

/// Builds the vector search, with parameters `$1` to `$9` and `q`.
///
/// No part of the SQL comes from a request, except the choice between fixed parts; the name of the
/// own table is used only if it consists of letters, digits and `_`.
fn vector_hits_sql(ask: &SearchParams, meaning: Option<&QuestionEmbedding>) -> String {
    let own = meaning.and_then(|meaning| meaning.own.as_ref()).filter(|own| {
        own.starts_with("own_") && own.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    });
    let (table, of_model, number) = match own {
        Some(own) => (own.as_str(), "$3::text is not null", "halfvec"),
        None => ("vectors", "v.tenant_id = $1 and v.model = $3", "vector"),
    };
    // `offset 0` forces a lookup by key: see `shown_sql`.
    let (join, within) = if ask.narrow.is_some() {
        (
            "join lateral (
                 select from memory.units u
                 where u.unit_id = v.unit_id and u.tenant_id = $1 and memory.is_within(u, $9)
                 offset 0
             ) u on true",
            "true",
        )
    } else {
        ("", "$9::jsonb is null")
    };
    format!(
        "select v.unit_id from memory.{table} v {join}
         where {of_model} and v.agent_id = any ($4) and v.user_id = any ($5)
           and v.kind = any ($6) and (v.group_safe or not $7)
           and $1::uuid is not null and $2::real[] is not null and {within}
         order by v.embedding <#> (select q.v::{number} from q) limit $8"
    )
}

/// Builds the query for the units in `found`, with parameters `$1` to `$3` and `q`; `terms` and
/// `held_by` are the parameters with the terms and their document frequencies.
///
/// The question's terms are marked by a weight (no term has one otherwise) and filtered before
/// unpacking: unpacking all terms takes 25 µs.
///
/// `offset 0` forces a lookup by key. The planner knows only the average number of units per
/// tenant, and would read all units of a large tenant instead.
///
/// Units of a deleted session are not found from its deletion on: they are erased a moment later, and
/// those that a running turn still stores a minute later.
fn load_hits_sql(ask: &SearchParams, terms: &str, held_by: &str) -> String {
    let vector = if ask.with_vectors { "v.embedding::real[]" } else { "null::real[]" };
    format!(
        "select u.unit_id, u.kind, u.source_id, u.agent_id, u.user_id, u.session, u.type, u.scope,
                u.author, u.ref, u.path, u.headings, u.starts, u.ends, u.tags, u.text, u.at, u.dated,
                u.terms, u.provenance, u.length, {held_by} as held_by,
                (select coalesce(jsonb_object_agg(w.lexeme, cardinality(w.positions)), '{{}}')
                 from unnest(ts_filter(setweight(u.words, 'A', {terms}), '{{a}}')) w) as held,
                coalesce(-(v.embedding <#> (select q.v from q)), 0)::real as meant,
                {vector} as vector
         from found f
         cross join lateral (
             select * from memory.units u where u.unit_id = f.unit_id and u.tenant_id = $1 offset 0
         ) u
         left join lateral (
             select v.embedding from memory.vectors v
             where v.unit_id = f.unit_id and v.tenant_id = $1 and v.model = $3 offset 0
         ) v on true
         where (u.expires_at is null or u.expires_at > now())
           and u.session not in (
               select e.subject from memory.erasures e
               where e.tenant_id = $1 and e.what = 'session' and e.until is null
                 and e.due_at is not null)"
    )
}

/// Statistics of what `who` may see.
#[derive(Debug, Clone, Default)]
pub struct VisibleStats {
    pub authors: Vec<String>,
    /// Number of vectors, up to a bound.
    pub vectors: i64,
    /// Number of vectors by kind, up to the bound; empty if there are few vectors.
    pub of_kind: Vec<(i16, i64)>,
    /// Mean number of terms per unit, including their context.
    pub mean_length: f64,
}

impl VisibleStats {
    /// Returns the number of vectors of these kinds, up to a bound.
    pub fn vectors_of(&self, kinds: &[i16]) -> i64 {
        if self.of_kind.is_empty() {
            return self.vectors;
        }
        let of = self.of_kind.iter().filter(|(kind, _)| kinds.contains(kind));
        of.map(|(_, vectors)| vectors).sum()
    }
}

/// Reads authors and counts vectors, by kind if there are more than `much`.
pub async fn visible_stats(
    tx: &mut TenantTx,
    who: &Viewer,
    model: &str,
    (most, much): (i64, i64),
) -> sqlx::Result<VisibleStats> {
    const AUTHORS: &str = "
        select distinct name from memory.authors
        where tenant_id = $1 and agent_id = any ($2) and user_id = any ($3) limit 500";
    const COUNT: &str = "
        select count(*) from (
            select from memory.vectors
            where tenant_id = $1 and model = $4 and agent_id = any ($2) and user_id = any ($3)
            limit $5) counted";
    const OF_KIND: &str = "
        select k, (select count(*) from (
            select from memory.vectors
            where tenant_id = $1 and model = $4 and agent_id = any ($2) and user_id = any ($3)
              and kind = k
            limit $5) counted)
        from unnest($6::smallint[]) as k";
    const MEAN: &str = "
        select coalesce(avg(length), 0)::float8 from (
            select length from memory.units where tenant_id = $1 and place >= 0 limit 300) sample";

    let tenant = tx.tenant().as_uuid();
    let authors = holdfast_pg::query_scalar(AUTHORS)
        .bind(tenant)
        .bind(who.agents())
        .bind(who.users())
        .fetch_all(tx.conn())
        .await?;
    let vectors: i64 = holdfast_pg::query_scalar(COUNT)
        .bind(tenant)
        .bind(who.agents())
        .bind(who.users())
        .bind(model)
        .bind(most)
        .fetch_one(tx.conn())
        .await?;
    let of_kind = if vectors > much {
        holdfast_pg::query_as(OF_KIND)
            .bind(tenant)
            .bind(who.agents())
            .bind(who.users())
            .bind(model)
            .bind(most)
            .bind(kind::ALL)
            .fetch_all(tx.conn())
            .await?
    } else {
        Vec::new()
    };
    let mean_length = holdfast_pg::query_scalar(MEAN).bind(tenant).fetch_one(tx.conn()).await?;
    Ok(VisibleStats { authors, vectors, of_kind, mean_length })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_table_of_ours_never_reaches_the_statement() {
        let ask = SearchParams {
            terms: Vec::new(),
            held_by: Vec::new(),
            kinds: Vec::new(),
            narrow: None,
            k: 10,
            with_vectors: false,
        };
        let of = |own: &str| {
            let own = Some(own.to_owned());
            vector_hits_sql(
                &ask,
                Some(&QuestionEmbedding { model: "m".to_owned(), vector: vec![1.0], own }),
            )
        };

        assert!(of("own_12ab_34").contains("memory.own_12ab_34 v"));
        for bad in ["own_1; drop table x", "vectors2", "own_a\"b"] {
            assert!(of(bad).contains("memory.vectors v "), "{bad}");
        }
    }

    #[test]
    fn filters_that_are_not_set_are_not_said() {
        let narrow = SearchFilter { session: Some("s".into()), ..SearchFilter::default() };

        assert_eq!(serde_json::to_string(&narrow).unwrap(), r#"{"session":"s"}"#);
    }
}
