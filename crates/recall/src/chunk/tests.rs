//! Tests of chunk boundaries.

use proptest::prelude::{any, proptest};
use proptest::{collection::vec, prop_assert, prop_oneof, strategy::Just, strategy::Strategy};

use super::{ChunkLimits, split, tokens};

const SMALL: ChunkLimits = ChunkLimits { max_tokens: 20, overlap_tokens: 6 };

fn texts(source: &str, limits: ChunkLimits) -> Vec<&str> {
    split(source, limits).into_iter().map(|c| &source[c.range]).collect()
}

#[test]
fn a_short_note_is_one_chunk() {
    assert_eq!(
        texts("One thing.\n\nAnother.\n", ChunkLimits::default()),
        ["One thing.\n\nAnother."]
    );
    assert_eq!(texts(" \n\n", ChunkLimits::default()), Vec::<&str>::new());
}

#[test]
fn a_chunk_never_spans_two_sections_and_knows_its_headings() {
    let source = "# Trip\n## Rome\nIt was hot.\n## Paris ##\nIt rained.\n# Work\nNothing.\n";

    let chunks = split(source, ChunkLimits::default());

    let seen: Vec<_> =
        chunks.iter().map(|c| (&source[c.range.clone()], c.headings.join("/"))).collect();
    assert_eq!(
        seen,
        [
            ("# Trip\n## Rome\nIt was hot.", "Trip/Rome".to_owned()),
            ("## Paris ##\nIt rained.", "Trip/Paris".to_owned()),
            ("# Work\nNothing.", "Work".to_owned()),
        ]
    );
}

#[test]
fn a_fence_is_kept_whole_and_its_comment_is_no_heading() {
    let code = "```sh\n# not a heading\necho one\n\necho two\n```";
    let source = format!("Words before it are here now.\n\n{code}\n\nWords after it are here now.");

    let found = texts(&source, ChunkLimits { max_tokens: 25, overlap_tokens: 0 });

    assert!(found.iter().any(|text| text.contains(code)), "{found:?}");
    assert!(split(&source, SMALL).iter().all(|c| c.headings.is_empty()));
}

#[test]
fn a_fence_that_is_too_long_is_cut_between_lines() {
    let source = format!("~~~\n{}~~~\n", "let x = 1;\n".repeat(30));

    for text in texts(&source, SMALL) {
        assert!(text.lines().all(|l| l == "let x = 1;" || l == "~~~"), "{text}");
    }
}

#[test]
fn chunks_overlap_by_whole_sentences() {
    let source = "Ann has a cat. Bob has a dog. Eve has a cow. Dan has an owl. Kim has a pig.";

    let found = texts(source, ChunkLimits { max_tokens: 15, overlap_tokens: 5 });

    assert_eq!(
        found,
        [
            "Ann has a cat. Bob has a dog. Eve has a cow.",
            " Eve has a cow. Dan has an owl. Kim has a pig.",
        ]
    );
}

#[test]
fn chinese_is_cut_after_its_sentences() {
    let source = "今天天气很好。我们去公园散步。晚上吃了火锅。";

    assert_eq!(tokens("今天天气很好。"), 7);
    assert_eq!(
        texts(source, ChunkLimits { max_tokens: 15, overlap_tokens: 0 }),
        ["今天天气很好。我们去公园散步。", "晚上吃了火锅。"]
    );
}

#[test]
fn a_text_without_any_place_to_cut_is_cut_all_the_same() {
    let source = "x".repeat(4_000);

    let found = split(&source, ChunkLimits::default());

    assert!(found.len() > 2 && found.iter().all(|c| c.tokens <= 400));
}

#[test]
fn a_heading_at_the_end_is_not_lost() {
    assert_eq!(texts("Text.\n\n# Last", ChunkLimits::default()), ["Text.", "# Last"]);
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("# Heading".to_owned()),
        Just("```".to_owned()),
        Just(String::new()),
        Just("    indented code".to_owned()),
        Just("一二三四五。六七八九十！".repeat(3)),
        vec(any::<char>(), 0..200).prop_map(String::from_iter),
        "[a-z]{1,9}( [a-z]{1,9}[.?]?){0,60}",
    ]
}

proptest! {
    #[test]
    fn whatever_the_text_chunks_are_small_in_order_and_miss_nothing(lines in vec(line(), 0..25)) {
        let source = lines.join("\n");

        let chunks = split(&source, SMALL);

        let mut covered = 0;
        let mut start = 0;
        for chunk in &chunks {
            prop_assert!(!source[chunk.range.clone()].trim().is_empty());
            prop_assert!(chunk.range.start >= start && chunk.range.end > covered);
            let between = source.get(covered..chunk.range.start).unwrap_or_default();
            prop_assert!(between.trim().is_empty(), "lost {between:?}");
            prop_assert!(chunk.tokens <= SMALL.max_tokens, "{} tokens", chunk.tokens);
            prop_assert!(tokens(&source[chunk.range.clone()]) <= SMALL.max_tokens + 1);
            (start, covered) = (chunk.range.start, chunk.range.end);
        }
        prop_assert!(source[covered..].trim().is_empty());
    }
}
