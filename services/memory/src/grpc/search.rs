//! Conversion of search requests and results.

use holdfast_proto::memory::v1 as pb;
use jiff::Timestamp;

use super::convert;
use crate::{
    Error,
    find::{Hit, SearchQuery, SearchResult},
    store::search::{FoundUnit, SearchFilter},
    unit::kind,
    validation::{self, prefixed_id, proto_time},
    viewer::agent_text,
};

/// Maximum bytes of a question; the rest is ignored.
const MAX_QUESTION_BYTES: usize = 4 * 1024;

pub fn search_query(request: pb::SearchRequest, half_life_days: f64) -> Result<SearchQuery, Error> {
    let query = beginning(&request.query).trim().to_owned();
    validation::non_blank("query", &query, MAX_QUESTION_BYTES)?;
    let k = match request.k {
        0 => 10,
        k @ 1..=100 => k,
        k => return Err(Error::field("k", format!("is {k}: write 1 to 100, or 0 for 10"))),
    };
    let filter = request.filter.unwrap_or_default();
    let kinds = convert::kinds(&filter.kinds)?;
    let diversity = validation::share("diversity", request.diversity)?;
    let half_life_days = match request.half_life_days {
        0.0 => half_life_days,
        days if days.is_finite() => days,
        _ => return Err(Error::field("half_life_days", "is no number of days")),
    };
    let narrow = Some(narrow(filter)?).filter(|narrow| *narrow != SearchFilter::default());
    Ok(SearchQuery { query, k, kinds, narrow, half_life_days, diversity, within: None })
}

/// Earliest timestamp that Postgres supports, in seconds since 1970.
const MIN_TIMESTAMP_SECONDS: f64 = -210_866_803_200.0;

fn narrow(filter: pb::Filter) -> Result<SearchFilter, Error> {
    let some = |text: String| (!text.is_empty()).then_some(text);
    for (field, list) in [
        ("filter.types", &filter.types),
        ("filter.not_sessions", &filter.not_sessions),
        ("filter.tags", &filter.tags),
    ] {
        if list.len() > 64 {
            let problem = format!("has {} entries, and 64 are the most", list.len());
            return Err(Error::field(field, problem));
        }
        list.iter().try_for_each(|entry| validation::at_most(field, entry, 256))?;
    }
    validation::at_most("filter.session", &filter.session, 256)?;
    validation::at_most("filter.path_prefix", &filter.path_prefix, 512)?;
    let seconds = |at: Timestamp| at.as_duration().as_secs_f64().max(MIN_TIMESTAMP_SECONDS);
    let scope = match filter.scope() {
        pb::Scope::Unspecified => None,
        pb::Scope::Tenant => Some(crate::operations::scope::TENANT),
        pb::Scope::Workspace => Some(crate::operations::scope::WORKSPACE),
    };
    Ok(SearchFilter {
        types: filter.types,
        session: some(filter.session),
        not_sessions: filter.not_sessions,
        since: validation::time("filter.since", filter.since)?.map(seconds),
        until: validation::time("filter.until", filter.until)?.map(seconds),
        path_prefix: some(filter.path_prefix),
        tags: filter.tags,
        scope,
    })
}

pub fn answer(answer: SearchResult) -> pb::SearchResponse {
    let hits = answer.hits.into_iter().map(|Hit { ranked, unit, words }| {
        let why = pb::Why {
            words: ranked.why.words.into(),
            meaning: ranked.why.meaning.into(),
            author: ranked.why.author.into(),
            substance: ranked.why.substance.into(),
            decay: ranked.why.decay.into(),
            words_raw: words.into(),
            cosine: unit.meant.into(),
        };
        hit(unit, ranked.score.into(), why)
    });
    pb::SearchResponse { hits: hits.collect(), model: answer.model, how: answer.method.to_owned() }
}

fn hit(unit: FoundUnit, score: f64, why: pb::Why) -> pb::Hit {
    let id = match unit.kind {
        kind::TURN => unit.reference,
        kind::DOCUMENT | kind::KNOWLEDGE => prefixed_id("doc", unit.source_id),
        _ => prefixed_id("itm", unit.source_id),
    };
    pb::Hit {
        kind: i32::from(unit.kind),
        id,
        text: unit.text,
        score,
        why: Some(why),
        path: unit.path,
        headings: unit.headings,
        start: convert::count(unit.starts.into()),
        end: convert::count(unit.ends.into()),
        r#type: unit.of_type,
        author: unit.author,
        session: unit.session,
        agent: agent_text(unit.agent_id),
        user: unit.user_id,
        at: Some(proto_time(unit.at.to_jiff())),
        provenance: Some(unit.provenance.0.into_proto()),
        tags: unit.tags,
        scope: i32::from(unit.scope),
    }
}

fn beginning(text: &str) -> &str {
    let mut end = text.len().min(MAX_QUESTION_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
