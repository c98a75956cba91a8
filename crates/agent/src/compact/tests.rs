//! Whole compactions: from a journal to the appended entry and the conversation after it.

use holdfast_types::{ChatMessage, Effect, Entry, SessionKind};
use proptest::prelude::*;

use super::{
    Budget, Plan, Progress, Reason, Summary, compute_adaptive_chunk_ratio, drop_oldest,
    measure::share,
};
use crate::{
    Conversation,
    history::fixtures::is_valid,
    tokens::{QuarterOfChars, messages_tokens},
    turn::tests::{called, heard, returned, thought},
};

fn read(journal: &[Entry]) -> Conversation<'_> {
    Conversation::read(journal, SessionKind::Main)
}

/// A text of so many tokens.
fn long(tokens: usize) -> String {
    "x".repeat((tokens - 1) * 4)
}

/// Questions and answers, in turns, of so many tokens each.
fn talk(turns: usize, tokens: usize) -> Vec<Entry> {
    let turn = |at: usize| {
        let seq = i64::try_from(at).unwrap_or_default() + 1;
        [heard(seq, &long(tokens)), thought(&long(tokens), &[])]
    };
    (0..turns).flat_map(turn).collect()
}

fn compact(journal: &[Entry], reason: Reason, budget: Budget) -> Option<Plan> {
    Plan::compact(&read(journal), reason, budget, &QuarterOfChars)
}

/// Answers every request with one word; returns the summary and the number of requests.
fn asked(plan: Plan) -> (Summary, usize) {
    let (mut plan, mut count) = (plan, 0);
    loop {
        count += plan.requests().len();
        let answers = vec!["sum".to_owned(); plan.requests().len()];
        match plan.take_answers(answers).unwrap() {
            Progress::Ask(more) => plan = more,
            Progress::Done(summary) => return (summary, count),
        }
    }
}

const BUDGET: Budget = Budget { window: 1_000, reserve: 100, instructions: 0 };

#[test]
fn a_conversation_that_fits_is_left_alone() {
    let fits = talk(9, 50); // 900 tokens
    let too_long = [fits.clone(), vec![heard(99, "")]].concat();

    assert_eq!(compact(&fits, Reason::Proactive, BUDGET), None);
    assert!(compact(&too_long, Reason::Proactive, BUDGET).is_some());
    let instructed = Budget { instructions: 1, ..BUDGET };
    assert!(compact(&fits, Reason::Proactive, instructed).is_some());
}

#[test]
fn a_model_that_refused_is_believed_although_all_was_to_fit() {
    assert!(compact(&talk(9, 50), Reason::Overflow, BUDGET).is_some());
    assert_eq!(compact(&talk(4, 50), Reason::Overflow, BUDGET), None);
}

#[test]
fn the_newest_messages_are_kept_up_to_their_share_of_the_window() {
    // 1 000 × 0.4 = 400 tokens: 8 messages of 50.
    let journal = talk(10, 50);

    let (summary, questions) = asked(compact(&journal, Reason::Proactive, BUDGET).unwrap());

    assert_eq!(summary, Summary { text: "sum".into(), keeps: 8 });
    // 600 tokens in two parts of at most 250: [250, 50, 250, 50] and one to merge them.
    assert_eq!(questions, 5);
    let noted = [journal.clone(), vec![summary.entry(0)]].concat();
    assert_eq!(read(&noted).messages(), &read(&journal).messages()[12..]);
    assert_eq!(read(&noted).summary(), Some("sum"));
}

#[test]
fn keeping_stops_at_the_first_message_that_does_not_fit() {
    let journal = [talk(8, 50), vec![heard(50, &long(390)), thought(&long(11), &[])]].concat();

    let plan = compact(&journal, Reason::Proactive, BUDGET).unwrap();

    // The long messages shrink the share: of 400 tokens not even the last but one would fit.
    assert_eq!(asked(plan).0.keeps, 1);
}

#[test]
fn a_call_is_kept_with_its_results_or_not_at_all() {
    let results = [thought("", &[("a", "t"), ("b", "t")]), returned("a"), returned("b")];
    let journal = [talk(10, 50), vec![heard(50, "q")], results.to_vec()].concat();

    for window in 8..1_000 {
        let budget = Budget { window, reserve: 0, instructions: 0 };
        let Some(plan) = compact(&journal, Reason::Overflow, budget) else { continue };
        let keeps = asked(plan).0.keeps;
        assert!(keeps == 0 || keeps >= 3, "{window}: {keeps}");
    }
}

#[test]
fn calls_without_results_are_kept_whatever_they_cost() {
    let open = [thought(&long(300), &[("a", "t")]), called("a", Effect::Reads)];
    let journal = [talk(5, 100), vec![heard(50, "q")], open.to_vec()].concat();
    let budget = Budget { window: 500, reserve: 0, instructions: 0 };

    let (summary, _) = asked(compact(&journal, Reason::Proactive, budget).unwrap());

    assert_eq!(summary.keeps, 2);
    let noted = [journal, vec![summary.entry(0), returned("a")]].concat();
    let noted = read(&noted);
    assert!(is_valid(noted.messages()));
    assert!(matches!(&noted.messages()[0], ChatMessage::User { text, .. } if text == "q"));
    assert!(matches!(&noted.messages()[2], ChatMessage::Tool { failed: false, .. }));
}

#[test]
fn the_summary_so_far_goes_into_the_new_one() {
    let old = [vec![Entry::summary("They met in Rome.", 0)], talk(10, 50)].concat();
    let told = |plan: &Plan| {
        let tells = |at: usize| plan.requests()[at].prompt.contains("They met in Rome.");
        (0..plan.requests().len()).map(tells).collect::<Vec<_>>()
    };

    let compact = compact(&old, Reason::Proactive, BUDGET).unwrap();
    let few = [vec![Entry::summary("They met in Rome.", 0)], talk(5, 50)].concat();
    let one_part = Plan::background(&read(&few), 600, &QuarterOfChars).unwrap();
    let two_parts = Plan::background(&read(&old), 1_000, &QuarterOfChars).unwrap();

    assert_eq!(told(&compact), [true, false, false, false]);
    assert_eq!(told(&one_part), [true]);
    assert_eq!(told(&two_parts)[..2], [true, false]);
}

#[test]
fn what_is_appended_while_a_summary_is_made_is_seen_after_it() {
    let mut journal = talk(11, 10);
    let plan = Plan::background(&read(&journal), 10_000, &QuarterOfChars).unwrap();

    journal.extend([heard(50, "meanwhile"), thought("yes", &[])]);
    journal.push(asked(plan).0.entry(2));
    journal.push(heard(51, "after"));

    let seen = read(&journal);
    let texts: Vec<&str> = seen.messages()[4..]
        .iter()
        .map(|message| match message {
            ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } => text.as_str(),
            ChatMessage::Tool { output, .. } => output,
        })
        .collect();
    assert_eq!(seen.messages().len(), 7);
    assert_eq!(texts, ["meanwhile", "yes", "after"]);
}

#[test]
fn the_background_keeps_four_messages_of_21_and_leaves_20_alone() {
    let twenty = talk(10, 10);
    let more = [twenty.clone(), vec![heard(50, "one more")]].concat();

    assert_eq!(Plan::background(&read(&twenty), 10_000, &QuarterOfChars), None);
    let plan = Plan::background(&read(&more), 10_000, &QuarterOfChars).unwrap();
    assert_eq!(plan.requests().len(), 2);
    assert_eq!(asked(plan).0.keeps, 4);
}

#[test]
fn the_background_summarises_above_three_quarters_of_the_window() {
    let journal = talk(5, 75); // 750 tokens, 10 messages

    assert_eq!(Plan::background(&read(&journal), 1_000, &QuarterOfChars), None);
    let plan = Plan::background(&read(&journal), 999, &QuarterOfChars).unwrap();
    assert_eq!((plan.requests().len(), asked(plan).0.keeps), (1, 4));
    assert_eq!(Plan::background(&read(&talk(2, 75)), 100, &QuarterOfChars), None);
}

#[test]
fn ten_messages_are_summarised_whole_and_eleven_in_two_halves() {
    // Four long messages fill the window, so that only the halves part the others.
    let questions = |spoken: usize| {
        let older = talk(10, 2);
        let journal = [older[..spoken].to_vec(), talk(2, 100)].concat();
        Plan::background(&read(&journal), 500, &QuarterOfChars).unwrap().requests().len()
    };

    assert_eq!(questions(10), 1);
    assert_eq!(questions(11), 2);
}

#[test]
fn what_is_longer_than_half_the_window_is_left_out_and_remarked() {
    let journal = [
        vec![heard(1, &long(501)), thought(&long(500), &[])],
        vec![heard(2, "a"), thought("b", &[]), heard(3, "c"), thought("d", &[])],
    ]
    .concat();

    let plan = Plan::background(&read(&journal), 1_000, &QuarterOfChars).unwrap();

    let prompt = &plan.requests()[0].prompt;
    assert!(!prompt.contains("user:") && prompt.contains("assistant: xxx"), "{prompt}");
    assert!(
        asked(plan)
            .0
            .text
            .ends_with("\n\n[Some messages were too long to be part of this summary.]")
    );
    let nothing_else =
        [heard(1, &long(900)), heard(2, "a"), heard(3, "b"), heard(4, "c"), heard(5, "d")];
    assert_eq!(Plan::background(&read(&nothing_else), 1_000, &QuarterOfChars), None);
}

#[test]
fn the_background_tells_of_no_tools() {
    let calls =
        [heard(50, "look"), thought("I look", &[("a", "t")]), returned("a"), thought("ok", &[])];
    let journal = [calls.to_vec(), talk(10, 10)].concat();

    let plan = Plan::background(&read(&journal), 10_000, &QuarterOfChars).unwrap();

    let prompt = &plan.requests()[0].prompt;
    assert!(prompt.contains("user: look\nassistant: I look\nassistant: ok\nuser: x"), "{prompt}");
    assert!(!prompt.contains("tool"), "{prompt}");
}

#[test]
fn the_oldest_half_goes_with_a_note_and_the_summary_stays() {
    let journal = [vec![Entry::summary("They met.", 0)], talk(5, 10)].concat();

    let dropped = drop_oldest(&read(&journal)).unwrap();

    assert_eq!(dropped.keeps, 5);
    assert_eq!(
        dropped.text,
        "They met.\n\n[Emergency compression dropped the 5 oldest messages: the conversation was \
         too long for the model.]"
    );
    assert_eq!(drop_oldest(&read(&[heard(1, "hi")])), None);
    assert_eq!(drop_oldest(&read(&[])), None);
}

#[test]
fn dropping_parts_no_call_from_its_result_and_never_drops_the_question() {
    let calls = [thought("", &[("a", "t")]), returned("a")];
    let journal = [vec![heard(1, "q")], vec![calls.to_vec(); 9].concat()].concat();

    let once = [journal, vec![]].concat();
    let dropped = drop_oldest(&read(&once)).unwrap().entry(0);
    let once = [once, vec![dropped]].concat();
    let dropped = drop_oldest(&read(&once)).unwrap().entry(0);
    let twice = [once, vec![dropped]].concat();

    let seen = read(&twice);
    assert!(is_valid(seen.messages()), "{seen:?}");
    assert!(matches!(&seen.messages()[0], ChatMessage::User { text, .. } if text == "q"));
    assert!(seen.messages().len() < 8, "{seen:?}");
}

#[test]
fn a_cut_that_would_free_nothing_is_not_made() {
    let journal = [
        heard(1, &long(90)),
        thought("", &[("a", "t")]),
        returned("a"),
        thought(&long(10), &[("b", "t")]),
        returned("b"),
        Entry::summary("sum", 4),
    ];
    let shorter = [&journal[..3], &[Entry::summary("sum", 2)]].concat();

    // The repeated question, a call and its result.
    assert_eq!(read(&shorter).messages().len(), 3);
    assert_eq!(drop_oldest(&read(&shorter)), None);
    assert_eq!(read(&journal).messages().len(), 5);
    assert_eq!(drop_oldest(&read(&journal)).map(|dropped| dropped.keeps), Some(3));
}

fn entry() -> impl Strategy<Value = Entry> {
    let id = || prop_oneof![Just("a"), Just("b"), Just("c")];
    let calls = prop::collection::btree_set(id(), 0..3);
    prop_oneof![
        (1_i64..99, 1_usize..60).prop_map(|(seq, tokens)| heard(seq, &long(tokens))),
        calls.prop_map(|ids| thought("t", &ids.iter().map(|i| (*i, "t")).collect::<Vec<_>>())),
        id().prop_map(|id| called(id, Effect::Acts)),
        id().prop_map(returned),
        (0_u32..9).prop_map(|keeps| Entry::summary("old", keeps)),
    ]
}

proptest! {
    #[test]
    fn whatever_the_journal_what_is_kept_fits_and_is_valid_and_the_newest(
        journal in prop::collection::vec(entry(), 0..60),
        window in 1_usize..800,
    ) {
        let before = read(&journal);
        let budget = Budget { window, reserve: window / 8, instructions: 0 };
        let ratio = compute_adaptive_chunk_ratio(before.messages(), window, &QuarterOfChars);
        let plans = [
            Plan::compact(&before, Reason::Proactive, budget, &QuarterOfChars).map(asked),
            Plan::compact(&before, Reason::Overflow, budget, &QuarterOfChars).map(asked),
            Plan::background(&before, window, &QuarterOfChars).map(asked),
            drop_oldest(&before).map(|dropped| (dropped, 0)),
        ];

        for (at, plan) in plans.into_iter().enumerate() {
            let Some((summary, _)) = plan else { continue };
            let kept_entries = usize::try_from(summary.keeps).unwrap();
            let mut noted = journal.clone();
            noted.push(summary.entry(0));
            let after = read(&noted);

            prop_assert!(is_valid(after.messages()), "{at}: {after:?}");
            // Messages were dropped, and the rest is the end of the conversation.
            prop_assert!(kept_entries < before.entries);
            let from = before.entries - kept_entries;
            let places = before.cuts.iter().copied().chain([before.end]);
            let first = places.into_iter().position(|place| place == Some(from)).unwrap();
            let kept = &before.messages()[first..];
            prop_assert!(after.messages().ends_with(kept));
            let tokens = messages_tokens(&QuarterOfChars, kept);
            let is_open = before.end.is_none();
            prop_assert!(at > 1 || is_open || tokens <= share(window, ratio), "{at}: {tokens}");
        }
    }
}

#[test]
fn who_asks_for_it_has_all_but_the_newest_exchange_summarised_however_short_it_is() {
    let journal = [talk(3, 5), vec![heard(9, "/compact")]].concat();

    let plan = compact(&journal, Reason::Asked, BUDGET).unwrap();

    assert_eq!(plan.keeps(), 3);
    assert_eq!(compact(&talk(1, 5), Reason::Asked, BUDGET), None);
    assert_eq!(compact(&[heard(9, "/compact")], Reason::Asked, BUDGET), None);
}
