//! Search: keyword search and vector search, combined in one ranking.
//!
//! Signals and weights were chosen by measurement: see docs/decisions/0029 and `holdfast_recall`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    future::ready,
    sync::OnceLock,
    time::{Duration, Instant},
};

use holdfast_pg::Pools;
use holdfast_recall::{
    Bm25, Collection, Question, RankCandidate, RankedUnit, Weights, decay, rank, spread,
};
use holdfast_types::TenantId;
use jiff::Timestamp;
use tracing::debug;
use uuid::Uuid;

use crate::{
    Error,
    embedders::{self, Embedders},
    space::{MAX_COUNTED_UNITS, View, Views},
    store::search::{self, FoundUnit, QuestionEmbedding, SearchFilter, SearchParams, VisibleStats},
    unit::kind,
    viewer::Viewer,
};

/// Minimum decay factor, so that old notes are found where nothing newer answers.
const MIN_DECAY: f32 = 0.3;

/// Default diversity for document chunks, which overlap.
const DEFAULT_DIVERSITY: f32 = 0.1;

#[derive(Debug, Clone)]
pub struct SearchQuery {
    pub query: String,
    pub k: u32,
    /// Kinds of units to search; empty means all.
    pub kinds: Vec<i16>,
    pub narrow: Option<SearchFilter>,
    /// Half-life of dated notes in days; 0 or less disables aging.
    pub half_life_days: f64,
    /// Weight of diversity, 0 to 1; `None` means the default.
    pub diversity: Option<f64>,
    /// Time until the caller's deadline, if it has one.
    pub within: Option<Duration>,
}

/// Search result, best hit first.
#[derive(Debug)]
pub struct SearchResult {
    pub hits: Vec<Hit>,
    /// Model that embedded the question; empty if only keywords were used.
    pub model: String,
    /// Vector search method: `exact` or `index`; empty if only keywords were used.
    pub method: &'static str,
}

#[derive(Debug)]
pub struct Hit {
    pub ranked: RankedUnit<Uuid>,
    pub unit: FoundUnit,
    /// Keyword score before normalisation by the best one.
    pub words: f32,
}

#[derive(Debug, Clone)]
pub struct Searcher {
    pools: Pools,
    embedders: Embedders,
    views: Views,
}

impl Searcher {
    pub const fn new(pools: Pools, embedders: Embedders, views: Views) -> Self {
        Self { pools, embedders, views }
    }

    /// Searches the units that `who` may see.
    pub async fn find(
        &self,
        tenant: TenantId,
        who: &Viewer,
        wanted: &SearchQuery,
    ) -> Result<SearchResult, Error> {
        let began = Instant::now();
        let view = self.views.of(tenant, who).await?;
        let question = Question::read(&wanted.query, &view.seen.authors);

        let kinds = if wanted.kinds.is_empty() { kind::ALL.to_vec() } else { wanted.kinds.clone() };
        let diversity = diversity(wanted, &kinds);
        let ask = SearchParams {
            held_by: view.doc_freqs(&question.terms),
            terms: question.terms.clone(),
            kinds,
            narrow: wanted.narrow.clone(),
            k: wanted.k,
            with_vectors: diversity > 0.0,
        };
        let limit = embedders::embedding_timeout(wanted.within).saturating_sub(began.elapsed());
        let own = self.views.index_table(&view, &ask.kinds);
        let is_indexed = own.is_some();
        let meaning = self.embed_question(&view, own, &question.meaning, limit);
        let whom = (tenant, who);
        let is_much = view.seen.vectors > self.views.max_scanned_units();
        let choosy = ask.narrow.as_ref().filter(|narrow| is_much && narrow.is_selective());
        let (meaning, found) = match choosy {
            None => self.search_visible(whom, &ask, is_indexed, meaning).await?,
            Some(narrow) => self.search_filtered(whom, &ask, narrow, is_indexed, meaning).await?,
        };
        let how = match &meaning {
            None => "",
            Some(meaning) if meaning.own.is_none() => "exact",
            Some(_) => "index",
        };
        if let Some(held_by) = found.first().and_then(|unit| unit.held_by.as_ref()) {
            view.cache_doc_freqs(&question.terms, held_by);
        }
        debug!(found = found.len(), how, whole_ms = began.elapsed().as_millis(), "searched");
        let model = meaning.map(|meaning| meaning.model).unwrap_or_default();
        let all = collection(&view.seen);
        Ok(SearchResult {
            hits: rank_hits(found, &question, all, wanted, diversity),
            model,
            method: how,
        })
    }

    /// Scans all units that pass the filters, if these are few. Document frequencies are counted
    /// meanwhile on another connection, over all units, so that a word's weight does not depend on
    /// the filters.
    async fn search_filtered(
        &self,
        whom: (TenantId, &Viewer),
        ask: &SearchParams,
        narrow: &SearchFilter,
        is_indexed: bool,
        meaning: impl Future<Output = Option<QuestionEmbedding>>,
    ) -> sqlx::Result<(Option<QuestionEmbedding>, Vec<FoundUnit>)> {
        let (tenant, who) = whom;
        let few = self.views.max_scanned_units();
        let counted = async {
            let mut tx = self.pools.tenant(tenant).await?;
            let held_by = search::doc_freqs(&mut tx, who, ask).await?;
            tx.finish_reading();
            Ok::<_, sqlx::Error>(held_by)
        };
        let left = async {
            let mut tx = self.pools.tenant(tenant).await?;
            let left = search::filtered_units(&mut tx, who, ask, narrow, few + 1).await?;
            tx.finish_reading();
            Ok::<_, sqlx::Error>(left)
        };
        let (held_by, left, meaning) = tokio::join!(counted, left, meaning);
        let (held_by, left) = (held_by?, left?);
        if i64::try_from(left.len()).is_ok_and(|count| count <= few) {
            let meaning = meaning.map(|meaning| QuestionEmbedding { own: None, ..meaning });
            let mut tx = self.pools.tenant(tenant).await?;
            let found =
                search::search_filtered(&mut tx, ask, meaning.as_ref(), left, held_by).await?;
            tx.finish_reading();
            return Ok((meaning, found));
        }
        let ask = SearchParams { held_by: held_by.into_iter().map(Some).collect(), ..ask.clone() };
        self.search_visible(whom, &ask, is_indexed, ready(meaning)).await
    }

    /// Scans all visible units, or uses the index.
    async fn search_visible(
        &self,
        (tenant, who): (TenantId, &Viewer),
        ask: &SearchParams,
        is_indexed: bool,
        meaning: impl Future<Output = Option<QuestionEmbedding>>,
    ) -> sqlx::Result<(Option<QuestionEmbedding>, Vec<FoundUnit>)> {
        if is_indexed {
            return self.search_in_parallel(tenant, who, ask, meaning).await;
        }
        let meaning = meaning.await;
        let mut tx = self.pools.tenant_with(tenant, search::EXACT_SETTINGS).await?;
        let found = search::find(&mut tx, who, ask, meaning.as_ref()).await?;
        tx.finish_reading();
        Ok((meaning, found))
    }

    /// Embeds the question and chooses the table to search; `None` if the tenant has no vectors or
    /// no embedding is available within `limit`.
    async fn embed_question(
        &self,
        view: &View,
        own: Option<String>,
        text: &str,
        limit: Duration,
    ) -> Option<QuestionEmbedding> {
        let space = view.space.as_ref()?;
        // If that model is not loaded, the current one, by which units are being embedded again.
        let embedder = self.embedders.by_model(&space.model).unwrap_or(&self.embedders.current);
        let vector = embedders::embed_question(embedder.as_ref(), text, limit).await?;
        let model = embedder.model().to_owned();
        let own = own.filter(|_| model == space.model);
        Some(QuestionEmbedding { model, vector, own })
    }

    /// Runs keyword and vector search on two connections. The keyword search runs while the
    /// question is being embedded.
    async fn search_in_parallel(
        &self,
        tenant: TenantId,
        who: &Viewer,
        ask: &SearchParams,
        meaning: impl Future<Output = Option<QuestionEmbedding>>,
    ) -> sqlx::Result<(Option<QuestionEmbedding>, Vec<FoundUnit>)> {
        let known = OnceLock::new();
        let by_words = async {
            let mut tx = self.pools.tenant(tenant).await?;
            let said = search::keyword_hits(&mut tx, who, ask).await?;
            // Keyword search finishes first: load its units while the vector search runs.
            let found = match known.get() {
                Some(meaning) => {
                    search::load_hits(&mut tx, ask, Option::as_ref(meaning), &said, said.units())
                        .await?
                }
                None => Vec::new(),
            };
            tx.finish_reading();
            Ok::<_, sqlx::Error>((said, found))
        };
        let by_meaning = async {
            let meaning = meaning.await;
            let meaning = known.get_or_init(|| meaning);
            let mut tx = self.pools.tenant_with(tenant, search::INDEX_SETTINGS).await?;
            let near = match meaning {
                Some(meaning) => search::vector_hits(&mut tx, who, ask, meaning).await?,
                None => Vec::new(),
            };
            Ok::<_, sqlx::Error>((tx, near))
        };
        // Each task waits for a connection and may hold another. This cannot deadlock: the pool
        // serves requests in order, and the keyword task asks first and needs only one.
        let ((said, mut found), (mut tx, near)) = tokio::try_join!(biased; by_words, by_meaning)?;
        let meaning = known.into_inner().flatten();
        let mut rest: BTreeSet<Uuid> = said.units().chain(near).collect();
        for unit in &found {
            rest.remove(&unit.unit_id);
        }
        if !rest.is_empty() {
            found.extend(search::load_hits(&mut tx, ask, meaning.as_ref(), &said, rest).await?);
        }
        tx.finish_reading();
        Ok((meaning, found))
    }
}

/// Default diversity: chunks of documents overlap, turns and memories do not.
fn diversity(wanted: &SearchQuery, kinds: &[i16]) -> f32 {
    match wanted.diversity {
        #[expect(clippy::cast_possible_truncation, reason = "a share of one")]
        Some(given) => given.clamp(0.0, 1.0) as f32,
        None if kinds.iter().all(|of| matches!(*of, kind::DOCUMENT | kind::KNOWLEDGE)) => {
            DEFAULT_DIVERSITY
        }
        None => 0.0,
    }
}

/// Statistics for the keyword score.
///
/// `vectors` may have been counted further than [`COUNTED`], to choose between scan and index; the
/// cap keeps the weights of words independent of that.
#[expect(clippy::cast_possible_truncation, reason = "a mean of term counts")]
fn collection(seen: &VisibleStats) -> Collection {
    Collection {
        units: u32::try_from(seen.vectors.min(MAX_COUNTED_UNITS)).unwrap_or(u32::MAX),
        mean_terms: seen.mean_length as f32,
    }
}

/// Returns the keyword score of a unit.
fn keyword_score(unit: &FoundUnit, terms: &[String], all: Collection) -> f32 {
    let number = |count: i32| u32::try_from(count).unwrap_or(0);
    let held_by = unit.held_by.as_deref().unwrap_or_default();
    // Units that were added after the count.
    let most = held_by.iter().copied().max().unwrap_or(0);
    let all = Collection { units: all.units.max(number(most)), ..all };
    let weigh = |(term, units): (&String, &i32)| {
        let times = unit.held.0.get(term).copied().unwrap_or(0);
        if times == 0 {
            return 0.0;
        }
        Bm25::default().term(all, number(*units), times, number(unit.length))
    };
    terms.iter().zip(held_by).map(weigh).sum()
}

fn rank_hits(
    units: Vec<FoundUnit>,
    question: &Question,
    all: Collection,
    wanted: &SearchQuery,
    diversity: f32,
) -> Vec<Hit> {
    let now = Timestamp::now();
    let found: Vec<RankCandidate<Uuid>> = units
        .iter()
        .map(|unit| RankCandidate {
            id: unit.unit_id,
            words: keyword_score(unit, &question.terms, all),
            meaning: unit.meant,
            author: question.authors.contains(&unit.author),
            terms: u32::try_from(unit.terms).unwrap_or(0),
            decay: age(unit, now, wanted.half_life_days),
        })
        .collect();
    let mut ranked = rank(&found, &Weights::default());
    let mut units: HashMap<Uuid, FoundUnit> =
        units.into_iter().map(|unit| (unit.unit_id, unit)).collect();
    let k = usize::try_from(wanted.k).unwrap_or(usize::MAX);
    if diversity > 0.0 {
        let vectors: BTreeMap<Uuid, &[f32]> =
            units.iter().filter_map(|(id, unit)| Some((*id, unit.vector.as_deref()?))).collect();
        ranked = spread(&ranked, k, 1.0 - diversity, |a, b| similarity(&vectors, a, b));
    }
    ranked.truncate(k);
    let scores: HashMap<Uuid, f32> = found.iter().map(|one| (one.id, one.words)).collect();
    let hit = |ranked: RankedUnit<Uuid>| {
        let words = scores.get(&ranked.id).copied().unwrap_or_default();
        Some(Hit { ranked, unit: units.remove(&ranked.id)?, words })
    };
    ranked.into_iter().filter_map(hit).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "days; a float's 24 bits are enough")]
fn age(unit: &FoundUnit, now: Timestamp, half_life_days: f64) -> f32 {
    if !unit.dated || half_life_days <= 0.0 {
        return 1.0;
    }
    let days = now.duration_since(unit.at.to_jiff()).as_secs_f64() / 86_400.0;
    decay(days as f32, half_life_days as f32, MIN_DECAY)
}

fn similarity(vectors: &BTreeMap<Uuid, &[f32]>, a: Uuid, b: Uuid) -> f32 {
    match (vectors.get(&a), vectors.get(&b)) {
        (Some(a), Some(b)) => a.iter().zip(*b).map(|(a, b)| a * b).sum(),
        _ => 0.0,
    }
}
