//! Quote tags in answers: the message that an answer quotes (spec SYS-014).
//!
//! | tag | quoted message |
//! |---|---|
//! | `[[reply_to_current]]` | the message that is answered |
//! | `[[reply_to:<id>]]` | the message with that id, if it occurs in the conversation |
//!
//! Tags are removed from the text even if nothing can be quoted. The first tag counts.

use holdfast_types::{Entry, Target};

use crate::turn::state::TurnState;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Quote {
    /// The message that is answered.
    Current,
    /// Platform's id of a message.
    Message(String),
}

/// Adds the quoted message to the target.
pub(crate) fn with_quote(turn: &TurnState<'_>, target: Option<Target>) -> Option<Target> {
    let target = target?;
    let quoted = match &turn.quote {
        None => None,
        Some(Quote::Current) => turn.platform_message(),
        Some(Quote::Message(id)) => Some(id.clone()).filter(|id| knows_message(turn, id)),
    };
    Some(Target { reply_to: quoted.or(target.reply_to), ..target })
}

/// Whether the conversation contains this id: the model may name any.
fn knows_message(turn: &TurnState<'_>, id: &str) -> bool {
    turn.journal.entries().iter().any(|entry| match entry {
        Entry::Heard { body, .. } => {
            let answered = body.reply_to.as_ref().map(|reply| reply.message_id.as_str());
            body.message_id.as_deref() == Some(id) || answered == Some(id)
        }
        Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => false,
    })
}

/// Removes the tags from a text and returns the first.
pub(crate) fn extract_quote(text: &str) -> (String, Option<Quote>) {
    let (mut out, mut rest, mut quote) = (String::with_capacity(text.len()), text, None);
    let mut is_tagged = false;
    while let Some(start) = rest.find("[[") {
        let inside = &rest[start + 2..];
        let Some((end, found)) =
            inside.find("]]").and_then(|end| Some((end, parse_tag(&inside[..end])?)))
        else {
            out.push_str(&rest[..start + 2]);
            rest = inside;
            continue;
        };
        out.push_str(&rest[..start]);
        is_tagged = true;
        quote = quote.or(Some(found));
        rest = &inside[end + 2..];
        // Whitespace after a tag is removed with it.
        if out.is_empty() || out.ends_with(char::is_whitespace) {
            rest = rest.trim_start_matches([' ', '\n', '\r']);
        }
    }
    out.push_str(rest);
    if is_tagged {
        out.truncate(out.trim_end().len());
    }
    (out, quote)
}

fn parse_tag(tag: &str) -> Option<Quote> {
    let tag = tag.trim();
    if tag == "reply_to_current" {
        return Some(Quote::Current);
    }
    let id = tag.strip_prefix("reply_to:")?.trim();
    let is_id = (1..=128).contains(&id.len()) && !id.contains(char::is_whitespace);
    is_id.then(|| Quote::Message(id.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tags_are_taken_out_and_the_first_counts() {
        let message = |id: &str| Some(Quote::Message(id.to_owned()));
        for (text, said, quote) in [
            ("[[reply_to_current]] Yes.", "Yes.", Some(Quote::Current)),
            ("[[reply_to_current]]\n\nYes.", "Yes.", Some(Quote::Current)),
            ("Yes.\n[[ reply_to: 42 ]]", "Yes.", message("42")),
            ("a [[reply_to:1]] b [[reply_to_current]]", "a b", message("1")),
            ("[[reply_to_current]]", "", Some(Quote::Current)),
        ] {
            assert_eq!(extract_quote(text), (said.to_owned(), quote), "{text}");
        }
    }

    #[test]
    fn what_is_no_tag_stays() {
        for text in
            ["", "a [[b]] c", "[[reply_to:]]", "[[reply_to:a b]]", "[[reply_to_current", "x[[[[ "]
        {
            assert_eq!(extract_quote(text), (text.to_owned(), None), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "(\\[\\[|\\]\\]|reply_to|_current|:|[a-z \n]){0,12}") {
            let (said, quote) = extract_quote(&text);
            prop_assert!(said.len() <= text.len());
            prop_assert_eq!(quote.is_none(), said == text);
        }
    }
}
