//! Addresses that others gave to a conversation: the model has put nothing of its own into them.
//!
//! | text | gives its addresses |
//! |---|---|
//! | message of a person, or that a person quotes | unless the quotation repeats what the agent wrote |
//! | result of `web_fetch` | of a given address: all; of another: those of the same host that do not repeat the input |
//! | result of `web_search` | those of its hits that do not repeat the input |
//! | anything else | none: the agent may have written it |
//!
//! Addresses are taken out of the texts, parsed as a client parses them, and compared as a whole.

use std::{cell::OnceCell, collections::HashSet};

use holdfast_egress::Guard;
use holdfast_tools::{ANSWER_HEADING, Registry};
use holdfast_types::{Body, Entry, ToolCall};
use reqwest::Url;
use serde_json::Value;

use super::{address, calls, comparable};
use crate::turn::approvals::tool_flows::{Source, sink_of, source_of};

/// Places in a text at which its address may end.
const MAX_ENDS: usize = 8;

/// Longest address that counts, in bytes.
const MAX_ADDRESS_BYTES: usize = 2_048;

/// Addresses in a text that count: a page may have any number.
const MAX_ADDRESSES: usize = 2_000;

/// Rounds of percent-decoding.
const MAX_DECODE_ROUNDS: usize = 8;

/// Addresses that were given, as [`comparable`] writes them.
pub(super) fn given_addresses(registry: &Registry, entries: &[Entry]) -> HashSet<String> {
    let mut given = HashSet::new();
    let mut called: Vec<&ToolCall> = Vec::new();
    let own = OnceCell::new();
    for entry in entries {
        match entry {
            Entry::Heard { body, .. } => {
                given.extend(of_message(body, || own.get_or_init(|| OwnTexts::of_agent(entries))));
            }
            Entry::Thought { calls, .. } => called.extend(calls),
            Entry::Returned { call, output, failed: false, .. } => {
                let call = called.iter().rev().find(|made| made.id == *call);
                let call = call.and_then(|call| registry.parse_call(&call.tool, &call.input));
                if let Some((tool, input)) = call.filter(|(tool, _)| source_of(tool) == Source::Web)
                {
                    let asked = address(sink_of(registry, tool), &input);
                    let new = of_result(asked.as_ref(), &input, output, &given);
                    given.extend(new);
                }
            }
            Entry::Returned { .. } | Entry::Called { .. } | Entry::Noted { .. } => {}
        }
    }
    given
}

/// Addresses of a message. A message of another conversation, or of a subagent's parent, is the agent's
/// own text, and an event may name what the agent chose.
fn of_message<'a>(body: &Body, own: impl Fn() -> &'a OwnTexts) -> Vec<String> {
    if body.author.is_none() && (body.outside || body.event.is_some()) {
        return Vec::new();
    }
    let mut found: Vec<String> =
        addresses_in(&body.text, BareHosts::Count).map(|url| comparable(&url)).collect();
    if let Some(quoted) = body.reply_to.as_ref().filter(|quoted| !quoted.text.is_empty()) {
        let of_others = addresses_in(&quoted.text, BareHosts::Count)
            .filter(|url| !own().have(url))
            .map(|url| comparable(&url));
        found.extend(of_others);
    }
    found
}

/// Texts that the agent wrote.
struct OwnTexts {
    /// All of them, folded.
    folded: String,
    /// Addresses in them, as [`comparable`] writes them: a parser may change the spelling of one.
    addresses: HashSet<String>,
}

impl OwnTexts {
    fn of(texts: &[&str]) -> Self {
        let addresses = texts.iter().flat_map(|text| addresses_in(text, BareHosts::Count));
        Self {
            folded: texts.iter().map(|text| fold(text)).collect(),
            addresses: addresses.map(|url| comparable(&url)).collect(),
        }
    }

    /// All that the agent wrote in a conversation.
    fn of_agent(entries: &[Entry]) -> Self {
        let thoughts = entries.iter().filter_map(|entry| match entry {
            Entry::Thought { text, .. } => Some(text.as_str()),
            Entry::Heard { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        });
        let inputs: Vec<Value> = calls(entries)
            .map(|call| serde_json::from_str(&call.input).unwrap_or(Value::Null))
            .collect();
        Self::of(&thoughts.chain(inputs.iter().flat_map(strings)).collect::<Vec<_>>())
    }

    /// Whether they have an address, or a longer one that begins with it, in any spelling.
    fn have(&self, url: &Url) -> bool {
        self.addresses.contains(&comparable(url))
            || self.folded.contains(&fold(without_scheme(url)))
    }
}

/// The texts in a JSON value.
fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(fields) => fields.values().flat_map(strings).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Addresses of the result of a tool that reads the web; `asked` is the address that it has read.
fn of_result(
    asked: Option<&Url>,
    input: &Value,
    output: &str,
    given: &HashSet<String>,
) -> Vec<String> {
    if asked.is_some_and(|url| given.contains(&comparable(url))) {
        return addresses_in(output, BareHosts::Ignore).map(|url| comparable(&url)).collect();
    }
    // A search engine's own answer may be made of the query.
    let output = output.split(ANSWER_HEADING).next().unwrap_or_default();
    let own = OwnTexts::of(&strings(input));
    // A server may send what was written into its address on to another host.
    let is_of_others =
        |url: &Url| asked.is_none_or(|asked| asked.host_str() == url.host_str()) && !own.have(url);
    let found = addresses_in(output, BareHosts::Ignore).filter(is_of_others);
    found.map(|url| comparable(&url)).collect()
}

/// Whether `example.com/x` counts as an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BareHosts {
    Count,
    Ignore,
}

/// Addresses in a text.
fn addresses_in(text: &str, bare: BareHosts) -> impl Iterator<Item = Url> {
    let is_between = |c: char| {
        c.is_whitespace()
            || c.is_control()
            || matches!(c, '<' | '>' | '"' | '`' | '|' | '^' | '{' | '}')
    };
    let found = text.split(is_between).flat_map(move |word| {
        let mut starts = word_starts(word);
        if starts.is_empty() && bare == BareHosts::Count {
            starts.extend(bare_start(word));
        }
        starts.into_iter().take(MAX_ADDRESSES).flat_map(possible_addresses)
    });
    found.take(MAX_ADDRESSES)
}

/// Parts of a word that begin with `http://` or `https://`.
fn word_starts(word: &str) -> Vec<&str> {
    let schemes = ["https", "http"];
    let starts = word.match_indices("://").filter_map(|(at, _)| {
        let before = word.get(..at)?;
        let scheme = schemes.iter().find(|scheme| {
            let from = before.len().checked_sub(scheme.len());
            from.and_then(|from| before.get(from..))
                .is_some_and(|end| end.eq_ignore_ascii_case(scheme))
        })?;
        word.get(at - scheme.len()..)
    });
    starts.collect()
}

/// The part of a word that looks like a host with a path.
fn bare_start(word: &str) -> Option<&str> {
    let start = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    let host = start.split(['/', '?', '#', ':']).next().unwrap_or_default();
    host.contains('.').then_some(start)
}

/// Addresses with which a text may begin: brackets and punctuation behind one may be the sentence's. What
/// is too long is none.
fn possible_addresses(start: &str) -> Vec<Url> {
    let closes = |c: char| matches!(c, ')' | ']' | '\'' | '*' | ',' | ';' | '\\');
    let head = &start[..start.floor_char_boundary(MAX_ADDRESS_BYTES)];
    let cut = head.match_indices(closes).take(MAX_ENDS).filter_map(|(at, _)| head.get(..at));
    let whole = (head.len() == start.len()).then_some(start);
    let mut found: Vec<Url> = Vec::new();
    for text in cut.chain(whole) {
        for text in [text, text.trim_end_matches(['.', ':', '!', '?', '_', '~', '…'])] {
            let url = Guard::parse(text).ok().filter(|url| url.host_str().is_some());
            found.extend(url.filter(|url| matches!(url.scheme(), "http" | "https")));
        }
    }
    found
}

fn without_scheme(url: &Url) -> &str {
    let text = url.as_str();
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split('#').next().unwrap_or_default()
}

/// A text without what a server may change when it repeats it: percent-encoding, case, spaces.
fn fold(text: &str) -> String {
    let mut decoded = text.to_owned();
    for _ in 0..MAX_DECODE_ROUNDS {
        let next = percent_encoding::percent_decode_str(&decoded).decode_utf8_lossy().into_owned();
        if next == decoded {
            break;
        }
        decoded = next;
    }
    decoded.retain(|c| !c.is_whitespace() && c != '+');
    decoded.to_lowercase()
}
