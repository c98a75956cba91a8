//! Hostile inputs for parsers: mutations of valid ones, and of each other.
//!
//! The corpus of a parser stands beside its test. A mutation that once failed is kept by proptest, and
//! an input that is worth keeping is added to the corpus. `make fuzz` runs each test for a minute.

use proptest::{prelude::*, sample::Index};
use serde_json::Value;

/// Texts that parsers often mishandle.
const TOKENS: [&str; 28] = [
    "",
    "\0",
    "\u{1}",
    "\n",
    "\r\n",
    "\t",
    " ",
    "\"",
    "'",
    "\\",
    "\\u0000",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "`",
    "../",
    "%00",
    "\u{202e}",
    "\u{200b}",
    "👩‍👩‍👧‍👦",
    "ﬀ",
    "-1",
    "1e999",
    "9223372036854775808",
];

/// Maximum number of times that a part is repeated.
const MAX_REPETITIONS: usize = 300;

#[derive(Debug, Clone)]
enum Edit {
    /// Inserts one of [`TOKENS`].
    Insert(Index, Index),
    /// Removes a part.
    Remove(Index, Index),
    /// Repeats a part.
    Repeat(Index, Index, usize),
    /// Continues with another input of the corpus.
    Splice(Index, Index, Index),
    /// Replaces one character.
    Replace(Index, char),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        any::<(Index, Index)>().prop_map(|(at, token)| Edit::Insert(at, token)),
        any::<(Index, Index)>().prop_map(|(from, to)| Edit::Remove(from, to)),
        (any::<Index>(), any::<Index>(), 1..MAX_REPETITIONS)
            .prop_map(|(from, to, count)| Edit::Repeat(from, to, count)),
        any::<(Index, Index, Index)>().prop_map(|(at, other, from)| Edit::Splice(at, other, from)),
        any::<(Index, char)>().prop_map(|(at, letter)| Edit::Replace(at, letter)),
    ]
}

/// Texts like those of a corpus: each valid input as it is, and with up to six mutations.
pub fn mutated(corpus: &'static [&'static str]) -> impl Strategy<Value = String> {
    let edits = proptest::collection::vec(edit(), 0..6);
    (proptest::sample::select(corpus), edits).prop_map(move |(text, edits)| {
        let mut letters: Vec<char> = text.chars().collect();
        for edit in edits {
            apply(&mut letters, edit, corpus);
        }
        letters.into_iter().collect()
    })
}

fn apply(letters: &mut Vec<char>, edit: Edit, corpus: &[&str]) {
    // One past the last letter is a place, too.
    let place = |letters: &[char], at: Index| at.index(letters.len() + 1);
    let part = |letters: &[char], from: Index, to: Index| {
        let (from, to) = (place(letters, from), place(letters, to));
        from.min(to)..from.max(to)
    };
    match edit {
        Edit::Insert(at, token) => {
            let at = place(letters, at);
            letters.splice(at..at, TOKENS[token.index(TOKENS.len())].chars());
        }
        Edit::Remove(from, to) => drop(letters.drain(part(letters, from, to))),
        Edit::Repeat(from, to, count) => {
            let range = part(letters, from, to);
            let repeated = letters[range.clone()].repeat(count.min(20_000 / (range.len() + 1)));
            letters.splice(range.end..range.end, repeated);
        }
        Edit::Splice(at, other, from) => {
            letters.truncate(place(letters, at));
            let other: Vec<char> = corpus[other.index(corpus.len())].chars().collect();
            letters.extend(&other[place(&other, from)..]);
        }
        Edit::Replace(at, letter) => {
            let at = place(letters, at);
            if let Some(replaced) = letters.get_mut(at) {
                *replaced = letter;
            }
        }
    }
}

/// JSON texts like those of a corpus: with mutated letters, or with one value replaced by another of
/// any type.
pub fn mutated_json(corpus: &'static [&'static str]) -> impl Strategy<Value = String> {
    let replaced = (proptest::sample::select(corpus), any::<Index>(), value()).prop_map(
        |(text, at, value)| {
            let mut json: Value = serde_json::from_str(text).unwrap_or_default();
            let mut left = at.index(count(&json));
            replace(&mut json, &mut left, &value);
            json.to_string()
        },
    );
    prop_oneof![mutated(corpus), replaced]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(&TOKENS[..]).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map("[a-z_]{0,8}", inner, 0..4)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// Number of values in a JSON value, itself included.
fn count(json: &Value) -> usize {
    match json {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// Replaces the value in this place, in the order of [`count`].
fn replace(json: &mut Value, left: &mut usize, by: &Value) {
    if *left == 0 {
        json.clone_from(by);
    }
    *left = left.wrapping_sub(1);
    match json {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, left, by)),
        Value::Object(fields) => fields.values_mut().for_each(|item| replace(item, left, by)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
