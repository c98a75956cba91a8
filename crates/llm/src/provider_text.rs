//! A provider's own words about a failed request, made fit for the record of a run.
//!
//! Providers quote what they refuse: keys, and parts of the conversation. These are removed:
//!
//! | part | how it is recognised |
//! |---|---|
//! | the key of the request | its exact value |
//! | other secrets | known beginnings, values of names such as `api_key=`, long random words |
//! | e-mail addresses | `@` |
//! | credentials, query and fragment of URLs | their place |
//! | the conversation | runs of 12 characters (6 of scripts other than Latin) that the request has, too, without regard to spaces, quotation marks, escapes and case |
//!
//! Names of the request's model and tools are kept.

use std::{collections::HashSet, ops::Range};

use holdfast_types::ChatMessage;
use serde_json::Value;

use crate::{Request, refusal::word};

/// Maximum length of a text, in characters.
const MAX_TEXT_CHARS: usize = 500;

/// Part of a text that is looked at, in characters. A text of which much is removed is shorter.
const MAX_READ_CHARS: usize = 4_000;

/// Length of a run that a text and the conversation have in common, in characters without spaces.
const MIN_COMMON_CHARS: usize = 12;

/// The same for runs without ASCII characters, of which a sentence has fewer.
const MIN_COMMON_WIDE_CHARS: usize = 6;

/// Text in place of a removed part.
const REMOVAL_MARK: &str = "[…]";

/// Levels of errors within errors that are looked at: routers quote the provider's answer.
const MAX_DEPTH: usize = 8;

/// Beginnings of keys.
const KEY_PREFIXES: [&str; 26] = [
    "sk-",
    "sk_",
    "pk-",
    "pk_",
    "rk_",
    "gsk_",
    "csk-",
    "xai-",
    "aiza",
    "ya29.",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "hf_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "akia",
    "asia",
    "eyj",
    "nvapi-",
    "r8_",
    "pplx-",
    "sess-",
    "fw_",
];

/// Returns the text of a response with an error status.
pub(crate) fn text_of_body(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.starts_with('<') {
        return page_title(text).unwrap_or_else(|| "a web page".to_owned());
    }
    text_of_part(body).unwrap_or_else(|| text.to_owned())
}

/// Returns the error's text of a JSON value; `None` if it has none.
pub(crate) fn text_of_part(json: &[u8]) -> Option<String> {
    message(&serde_json::from_slice(json).ok()?, MAX_DEPTH)
}

/// Returns the error's code of a JSON value.
pub(crate) fn code(json: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(json).ok()?;
    let places = ["/error", "/0/error", "/response/error", ""];
    let errors = places.iter().filter_map(|place| body.pointer(place));
    let mut codes = errors.flat_map(|error| ["code", "status", "type"].map(|name| &error[name]));
    codes.find_map(word).filter(|code| *code != "error").map(str::to_owned)
}

/// Finds the message of an error, and of the error that it quotes.
fn message(error: &Value, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    match error {
        Value::String(text) => {
            let within = serde_json::from_str(text).ok().filter(|json: &Value| json.is_object());
            within.and_then(|json| message(&json, depth)).or_else(|| Some(text.clone()))
        }
        Value::Array(items) => {
            let all: Vec<String> = items.iter().filter_map(|item| message(item, depth)).collect();
            (!all.is_empty()).then(|| all.join("; "))
        }
        Value::Object(fields) => {
            let names = ["error", "message", "msg", "detail", "error_description", "response"];
            let own = names
                .iter()
                .filter_map(|name| fields.get(*name))
                .find_map(|inner| message(inner, depth));
            let quoted = error.pointer("/metadata/raw").and_then(|raw| message(raw, depth));
            match (own, quoted) {
                (Some(own), Some(quoted)) => Some(format!("{own}: {quoted}")),
                (own, quoted) => own.or(quoted),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn page_title(html: &str) -> Option<String> {
    let lower = html.to_ascii_lowercase();
    let from = lower.find("<title>")? + "<title>".len();
    let to = from + lower[from..].find('<')?;
    let title = html.get(from..to)?.trim();
    (!title.is_empty()).then(|| format!("a web page: {title}"))
}

/// Removes secrets and the conversation of the request from a text, and shortens it.
pub(crate) fn clean(text: &str, key: Option<&str>, request: &Request) -> String {
    let text = printable(text);
    let chars: Vec<char> = text.chars().collect();
    let mut removed = vec![false; chars.len()];
    mark_conversation(&chars, request, &mut removed);
    let names = request.chat.tools.iter().map(|tool| tool.name.as_str());
    for name in names.chain([request.model.id()]) {
        occurrences(&chars, name).for_each(|place| removed[place].fill(false));
    }
    mark_secrets(&chars, request.model.id(), &mut removed);
    if let Some(key) = key {
        occurrences(&chars, key).for_each(|place| removed[place].fill(true));
    }
    shorten(&without(&chars, &removed))
}

/// Shortens a text.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some(_) => text.chars().take(MAX_TEXT_CHARS - 1).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// The text on one line, without control characters and marks that change the order of others.
fn printable(text: &str) -> String {
    let is_hidden = |char: char| {
        matches!(char, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut line = String::new();
    for (length, char) in text.chars().filter(|char| !is_hidden(*char)).enumerate() {
        if length == MAX_READ_CHARS {
            // Half a secret is not recognised.
            line.truncate(line.rfind(' ').unwrap_or(0));
            break;
        }
        match char.is_whitespace() || char.is_control() {
            false => line.push(char),
            true if line.ends_with(' ') || line.is_empty() => {}
            true => line.push(' '),
        }
    }
    line.truncate(line.trim_end().len());
    line
}

fn without(chars: &[char], removed: &[bool]) -> String {
    let mut text = String::new();
    let mut in_gap = false;
    for (char, is_removed) in chars.iter().zip(removed) {
        match is_removed {
            false => text.push(*char),
            true if in_gap => {}
            true => text.push_str(REMOVAL_MARK),
        }
        in_gap = *is_removed;
    }
    text
}

/// Places where a word of at least four characters occurs.
fn occurrences(chars: &[char], word: &str) -> impl Iterator<Item = Range<usize>> {
    let word: Vec<char> = word.chars().collect();
    let last = chars.len().checked_sub(word.len()).filter(|_| word.len() >= 4);
    let places = last.map_or(0..0, |last| 0..last + 1);
    let ranges =
        places.map(move |at| (at..at + word.len(), chars[at..at + word.len()] == word[..]));
    ranges.filter(|(_, is_word)| *is_word).map(|(range, _)| range)
}

/// Marks what the text and the conversation have in common.
fn mark_conversation(chars: &[char], request: &Request, removed: &mut [bool]) {
    let (text, places): (Vec<char>, Vec<usize>) = comparable(chars).into_iter().unzip();
    let mut texts: Vec<&str> = vec![&*request.chat.stable, request.chat.dynamic.as_str()];
    for message in &request.chat.messages {
        match message {
            ChatMessage::User { text, .. } => texts.push(text),
            ChatMessage::Assistant { text, calls, .. } => {
                texts.push(text);
                texts.extend(calls.iter().map(|call| call.input.as_str()));
            }
            ChatMessage::Tool { output, .. } => texts.push(output),
        }
    }
    for length in [MIN_COMMON_CHARS, MIN_COMMON_WIDE_CHARS] {
        let is_fit =
            |run: &[char]| length == MIN_COMMON_CHARS || run.iter().all(|char| !char.is_ascii());
        let sought: HashSet<u64> = hashes(&text, length)
            .filter(|(at, _)| is_fit(&text[*at..*at + length]))
            .map(|(_, hash)| hash)
            .collect();
        if sought.is_empty() {
            continue;
        }
        let mut common = HashSet::new();
        for one in &texts {
            let one: Vec<char> = one.chars().collect();
            let one: Vec<char> = comparable(&one).into_iter().map(|(char, _)| char).collect();
            common
                .extend(hashes(&one, length).map(|(_, hash)| hash).filter(|h| sought.contains(h)));
        }
        for (at, _) in hashes(&text, length).filter(|(_, hash)| common.contains(hash)) {
            removed[places[at]..=places[at + length - 1]].fill(true);
        }
    }
}

/// Characters of a text that are compared, in lower case, each with its place: no spaces, quotation
/// marks and escapes, which differ where a text is quoted.
fn comparable(chars: &[char]) -> Vec<(char, usize)> {
    let lower = |char: char| char.to_lowercase().next().unwrap_or(char);
    let (mut kept, mut at) = (Vec::with_capacity(chars.len()), 0);
    while let Some(&char) = chars.get(at) {
        let escaped = (char == '\\').then(|| chars.get(at + 1)).flatten();
        at += match escaped {
            Some('u') => match unicode_escape(&chars[at..]) {
                Some((decoded, length)) => {
                    kept.push((lower(decoded), at));
                    length
                }
                None => 1,
            },
            Some('n' | 'r' | 't' | '\\' | '"' | '\'' | '/') => 2,
            Some(_) | None => {
                if !char.is_whitespace() && !matches!(char, '\\' | '"' | '\'' | '`') {
                    kept.push((lower(char), at));
                }
                1
            }
        };
    }
    kept
}

/// Decodes the escape of a character, `\u00e9` or a pair of surrogates, and returns its length.
fn unicode_escape(chars: &[char]) -> Option<(char, usize)> {
    let unit = |from: usize| -> Option<u16> {
        let escape: String = chars.get(from..from + 6)?.iter().collect();
        u16::from_str_radix(escape.strip_prefix("\\u")?, 16).ok()
    };
    let first = unit(0)?;
    let units = [first, unit(6).unwrap_or_default()];
    match char::decode_utf16(units).next()? {
        Ok(char) => Some((char, 6 * char.len_utf16())),
        Err(_) => None,
    }
}

/// Hash of each run of a length, with its first place.
fn hashes(chars: &[char], length: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
    const BASE: u64 = 0x0000_0100_0000_01b3;
    let highest = (1..length).fold(1_u64, |power, _| power.wrapping_mul(BASE));
    let mut hash = 0_u64;
    chars.iter().enumerate().filter_map(move |(at, &char)| {
        if let Some(before) = at.checked_sub(length) {
            hash = hash.wrapping_sub(u64::from(u32::from(chars[before])).wrapping_mul(highest));
        }
        hash = hash.wrapping_mul(BASE).wrapping_add(u64::from(u32::from(char)));
        (at + 1).checked_sub(length).map(|first| (first, hash))
    })
}

/// Marks what looks like a secret.
fn mark_secrets(chars: &[char], model: &str, removed: &mut [bool]) {
    let is_between = |char: &char| char.is_whitespace() || "\"'`()<>[]{},;".contains(*char);
    let mut at = 0;
    let mut follows_scheme = false;
    for token in chars.split(is_between) {
        let text: String = token.iter().collect();
        let lower = text.to_ascii_lowercase();
        if follows_scheme && is_credential(&text) {
            removed[at..at + token.len()].fill(true);
        }
        if !token.is_empty() {
            follows_scheme = matches!(lower.trim_end_matches(':'), "bearer" | "basic");
        }
        for (from, to) in secret_parts(token, &text, model) {
            removed[at + from..at + to].fill(true);
        }
        at += token.len() + 1;
    }
}

/// Whether a word after `Bearer` is a credential, and no ordinary word.
fn is_credential(word: &str) -> bool {
    word.len() >= 24 || (word.len() >= 6 && word.bytes().any(|byte| byte.is_ascii_digit()))
}

/// Parts of a word that are secret, as ranges of its characters.
fn secret_parts(token: &[char], text: &str, model: &str) -> Vec<(usize, usize)> {
    let find = |from: usize, sought: &[char]| {
        let rest = token[from..].iter().position(|char| sought.contains(char));
        rest.map(|at| from + at)
    };
    let mut parts = Vec::new();
    let mut from = 0;
    if let Some(scheme) = text.find("://") {
        let host = text[..scheme].chars().count() + 3;
        let path = find(host, &['/', '?', '#']).unwrap_or(token.len());
        if let Some(at) = token[host..path].iter().rposition(|char| *char == '@') {
            parts.push((host, host + at + 1));
        }
        let query = find(host, &['?', '#']).unwrap_or(token.len());
        parts.push((query, token.len()));
        from = path;
    } else if text.char_indices().any(|(at, char)| char == '@' && at > 0 && at + 1 < text.len()) {
        return vec![(0, token.len())];
    }
    let mut name = String::new();
    let separators: &[char] = if from > 0 { &['/', '=', ':'] } else { &['=', ':'] };
    while from <= token.len() {
        let to = find(from, separators).unwrap_or(token.len());
        let part: String = token[from..to].iter().collect();
        if is_secret(&part, model) || is_value_of_secret(&name, &part) {
            parts.push((from, to));
        }
        name = part.to_ascii_lowercase();
        from = to + 1;
    }
    parts
}

fn is_value_of_secret(name: &str, value: &str) -> bool {
    let is_secret = ["key", "token", "secret", "password", "passwd", "authorization"]
        .iter()
        .any(|word| name.ends_with(word));
    is_secret && value.chars().count() >= 4 && !value.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a word is a key by its beginning, or too random for a word.
fn is_secret(word: &str, model: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    let has_prefix = KEY_PREFIXES
        .iter()
        .any(|prefix| lower.strip_prefix(prefix).is_some_and(|rest| rest.chars().count() >= 4));
    if has_prefix {
        return true;
    }
    if !word.is_ascii() || model.contains(word) {
        return false;
    }
    let has = |part: &str, is: fn(&u8) -> bool| part.bytes().filter(is).count();
    let is_random = |part: &str| {
        part.len() >= 20
            && has(part, u8::is_ascii_digit) > 0
            && has(part, u8::is_ascii_alphabetic) > 0
    };
    let is_mixed = word.len() >= 32
        && has(word, u8::is_ascii_digit) >= 3
        && has(word, u8::is_ascii_uppercase) >= 3
        && has(word, u8::is_ascii_lowercase) >= 3;
    is_mixed || word.split(|char: char| !char.is_ascii_alphanumeric()).any(is_random)
}

#[cfg(test)]
mod tests;
