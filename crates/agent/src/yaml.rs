//! YAML parser with limits.
//!
//! **What can go wrong.** A few hundred bytes can expand to gigabytes (aliases of aliases), or nest
//! so deep that the parser overflows the stack. So size, depth, number of nodes and aliases are
//! limited during parsing. Duplicate keys are an error, because parsers disagree on which one
//! counts.

use serde_json::Value;

use crate::text::line;

/// Maximum size of a document, in bytes.
pub const MAX_DOCUMENT_BYTES: usize = 256 << 10;
/// Maximum nesting of lists and maps.
pub const MAX_DOCUMENT_DEPTH: usize = 32;
/// Maximum number of values in a document, including those repeated by aliases.
pub const MAX_DOCUMENT_NODES: usize = 10_000;
const MAX_DOCUMENT_ALIASES: usize = 16;
/// Maximum number of characters of a parser's message in an error.
const MAX_PARSER_MESSAGE_CHARS: usize = 160;

/// Parses YAML, which includes JSON, of at most [`MAX_DOCUMENT_BYTES`].
///
/// # Errors
///
/// Line, column and the parser's message, on one line.
pub fn parse_yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DOCUMENT_DEPTH,
            flow_nesting_limit: MAX_DOCUMENT_DEPTH,
            max_nodes: MAX_DOCUMENT_NODES,
            max_events: 4 * MAX_DOCUMENT_NODES,
            max_aliases: MAX_DOCUMENT_ALIASES,
            max_anchors: MAX_DOCUMENT_ALIASES,
            max_merge_keys: MAX_DOCUMENT_ALIASES,
            max_documents: 1,
            max_total_scalar_bytes: MAX_DOCUMENT_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_DOCUMENT_NODES,
            max_replay_stack_depth: 4,
        },
        // YAML 1.2: a name may be `on` or `y`, which YAML 1.1 reads as booleans.
        strict_booleans: true,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let said = line(&error.without_snippet().to_string(), MAX_PARSER_MESSAGE_CHARS);
        match error.location() {
            Some(at) => format!("line {}, column {}: {said}", at.line(), at.column()),
            None => said,
        }
    })
}
