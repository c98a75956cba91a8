//! Search in messages: words, pages and excerpts.

use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{self as pb, SearchMessagesRequest, SearchMessagesResponse};
use holdfast_session::{SearchCursor, TextHit, TextSearch};

use super::{Handler, paging};
use crate::{
    Error,
    control::{AgentNames, invalid, non_empty, page_size, schedules, timestamp},
    permissions::rights::{self, ConversationRight},
};

const DEFAULT_PAGE_SIZE: u32 = 20;
const MAX_PAGE_SIZE: u32 = 100;

const MAX_QUERY_CHARS: usize = 256;
const MAX_WORDS: usize = 16;

/// Length of an excerpt, and what of it stands before the first hit, in characters.
const EXCERPT_CHARS: usize = 300;
const CHARS_BEFORE: usize = 80;

const KINDS: [&str; 3] = ["heard", "thought", "returned"];

pub(super) async fn search(
    of: &Handler,
    caller: &Caller,
    request: SearchMessagesRequest,
) -> Result<SearchMessagesResponse, Error> {
    let tenant = caller.tenant;
    let most = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
    let words = words(&request.query)?;
    let session = match non_empty(request.session) {
        Some(session) => Some(of.find(caller, &session, ConversationRight::Read).await?),
        None => None,
    };
    let agent = match non_empty(request.agent) {
        Some(agent) => Some(of.0.directory.agents().get(tenant, &agent).await?.id),
        None => None,
    };
    let search = TextSearch {
        kinds: kinds(&request.kinds)?,
        since: request.since.map(|at| schedules::moment("since", &at)).transpose()?,
        until: request.until.map(|at| schedules::moment("until", &at)).transpose()?,
        limit: usize::try_from(most).unwrap_or(usize::MAX),
        after: paging::parse_token(request.page_token, parse_place)?,
        words,
        agent,
        session,
        person: rights::reads_only_own(caller),
    };

    let found = of.0.sessions.views().search_texts(tenant, &search).await?;

    let names = of.0.agent_names(tenant).await?;
    let hits = found.hits.into_iter().map(|hit| shown(hit, &search.words, &names)).collect();
    Ok(SearchMessagesResponse {
        hits,
        searched_to: found.next.map(|next| timestamp(next.session.updated_at)),
        next_page_token: found.next.map(token).unwrap_or_default(),
    })
}

fn token(place: SearchCursor) -> String {
    format!("{}-{}", place.before, paging::cursor_token(place.session))
}

fn parse_place(token: &str) -> Option<SearchCursor> {
    let (before, session) = token.split_once('-')?;
    Some(SearchCursor { before: before.parse().ok()?, session: paging::parse_cursor(session)? })
}

/// Words of a query; a phrase between quotation marks is one.
fn words(query: &str) -> Result<Vec<String>, Error> {
    let chars = query.chars().count();
    if chars > MAX_QUERY_CHARS || query.contains('\0') {
        return Err(invalid(format!(
            "`query` has {MAX_QUERY_CHARS} characters at most, without NUL, and this one has {chars}"
        )));
    }
    let parts = query.split('"').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().collect::<Vec<_>>(),
        _ => vec![part.trim()],
    });
    let words: Vec<String> = words.filter(|word| !word.is_empty()).map(str::to_owned).collect();
    match words.len() {
        0 => Err(Error::MissingField("query")),
        1..=MAX_WORDS => Ok(words),
        many => Err(invalid(format!(
            "`query` has {MAX_WORDS} words at most, and this one has {many}: write a phrase between \
             quotation marks"
        ))),
    }
}

fn kinds(asked: &[String]) -> Result<Vec<&'static str>, Error> {
    let parse = |word: &String| {
        KINDS.into_iter().find(|kind| kind == word).ok_or_else(|| Error::UnknownValue {
            field: "kinds",
            given: word.chars().take(80).collect(),
            wanted: "heard, thought or returned",
        })
    };
    match asked {
        [] => Ok(vec!["heard", "thought"]),
        words => words.iter().map(parse).collect(),
    }
}

fn shown(hit: TextHit, words: &[String], names: &AgentNames) -> pb::MessageHit {
    let (excerpt, hits) = excerpt(&hit.text, words);
    pb::MessageHit {
        session_id: hit.session.to_string(),
        session_key: hit.key,
        label: hit.label,
        agent: names.of(hit.agent),
        seq: hit.seq,
        run_id: hit.run.to_string(),
        kind: hit.kind,
        excerpt,
        hits,
        created_at: Some(timestamp(hit.at)),
    }
}

/// Text around the first hit, and the places of all hits in it, in characters.
fn excerpt(text: &str, words: &[String]) -> (String, Vec<pb::ExcerptHit>) {
    let chars: Vec<char> = text.chars().collect();
    // One character for each, so that places are those of the text.
    let lower: Vec<char> = chars.iter().map(|c| c.to_lowercase().next().unwrap_or(*c)).collect();
    let words: Vec<Vec<char>> =
        words.iter().map(|word| word.to_lowercase().chars().collect()).collect();
    let begins = |at: usize, word: &Vec<char>| lower[at..].starts_with(word);
    let first = (0..lower.len()).find(|at| words.iter().any(|word| begins(*at, word)));
    let from = first.unwrap_or(0).saturating_sub(CHARS_BEFORE);
    let to = (from + EXCERPT_CHARS).min(chars.len());
    let mut hits = Vec::new();
    let mut at = from;
    while at < to {
        let word = words.iter().filter(|word| begins(at, word)).max_by_key(|word| word.len());
        let Some(word) = word.filter(|word| at + word.len() <= to) else {
            at += 1;
            continue;
        };
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        hits.push(pb::ExcerptHit { start: number(at - from), length: number(word.len()) });
        at += word.len();
    }
    (chars[from..to].iter().collect(), hits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_one_word() {
        assert_eq!(words("tea \"with milk\" now").unwrap(), ["tea", "with milk", "now"]);
        assert!(words(" \"\" ").is_err());
        assert!(words(&"a ".repeat(17)).is_err());
        assert!(words(&"a".repeat(257)).is_err());
    }

    #[test]
    fn an_excerpt_is_around_the_first_hit_and_marks_all() {
        let text = format!("{}Zürich has TEA, and tea.{}", "x".repeat(500), "y".repeat(500));

        let (excerpt, hits) = excerpt(&text, &["tea".to_owned(), "zürich".to_owned()]);

        let chars: Vec<char> = excerpt.chars().collect();
        let marked = hits.iter().map(|hit| {
            let (start, length) = (hit.start as usize, hit.length as usize);
            chars[start..start + length].iter().collect::<String>()
        });
        assert_eq!(marked.collect::<Vec<_>>(), ["Zürich", "TEA", "tea"]);
        assert_eq!((chars.len(), hits[0].start), (EXCERPT_CHARS, 80));
    }
}
