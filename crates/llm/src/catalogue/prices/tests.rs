//! Costs of requests.

use super::*;

const PLAIN: Prices = Prices {
    input: 2_500,
    cached: Some(1_250),
    written: None,
    written_long: None,
    output: 10_000,
    reasoning: None,
    audio_input: None,
    audio_output: None,
    image_input: None,
    image_output: None,
    long: None,
    picture: None,
    search: None,
    audio_second: None,
};

#[test]
fn a_request_costs_what_it_read_and_wrote() {
    let usage = Usage { input: 1_000, cached: 400, output: 100, ..Usage::default() };
    assert_eq!(PLAIN.cost(&usage), 600 * 2_500 + 400 * 1_250 + 100 * 10_000);

    let no_discount = Prices { cached: None, ..PLAIN };
    assert_eq!(no_discount.cost(&usage), 1_000 * 2_500 + 100 * 10_000);

    let long = LongRequestPrices {
        over: 999,
        input: 5_000,
        cached: Some(10),
        output: 15_000,
        ..LongRequestPrices::default()
    };
    let tiered = Prices { long: Some(long), ..PLAIN };
    assert_eq!(tiered.cost(&usage), 600 * 5_000 + 400 * 10 + 100 * 15_000);
    assert_eq!(tiered.cost(&Usage { input: 999, ..usage }), 599 * 2_500 + 400 * 1_250 + 1_000_000);
    let all = Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() };
    assert_eq!(PLAIN.cost(&all), u64::MAX);
}

#[test]
fn each_part_has_its_own_price_or_that_of_the_whole() {
    let usage = Usage {
        input: 1_000,
        cached: 100,
        output: 500,
        written: 200,
        written_long: 300,
        audio_input: 50,
        image_input: 50,
        reasoning: 100,
        audio_output: 200,
        image_output: 100,
        searches: 3,
    };
    assert_eq!(PLAIN.cost(&usage), 900 * 2_500 + 100 * 1_250 + 500 * 10_000);

    let priced = Prices {
        written: Some(3_125),
        written_long: Some(5_000),
        reasoning: Some(1),
        audio_input: Some(7_000),
        audio_output: Some(20_000),
        image_input: Some(2_000),
        image_output: Some(40_000),
        search: Some(10_000),
        ..PLAIN
    };
    let input = 300 * 2_500 + 100 * 1_250 + 200 * 3_125 + 300 * 5_000 + 50 * 7_000 + 50 * 2_000;
    let output = 100 * 10_000 + 100 + 200 * 20_000 + 100 * 40_000;
    assert_eq!(priced.cost(&usage), input + output + 3 * 10_000_000);
}

#[test]
fn a_reservation_covers_input_that_is_written_to_the_cache() {
    let priced = Prices { written: Some(3_125), ..PLAIN };
    let usage = Usage { input: 1_000, written: 1_000, output: 10, ..Usage::default() };

    assert_eq!(priced.highest_cost(1_000, 10), priced.cost(&usage));
    assert_eq!(PLAIN.highest_cost(1_000, 10), 1_000 * 2_500 + 10 * 10_000);
}

#[test]
fn what_anthropic_writes_to_its_cache_costs_more_than_what_it_reads() {
    let model = "anthropic:claude-sonnet-4-6".parse().unwrap();
    let prices = crate::Catalogue::built_in().card(&model).prices.unwrap();
    let reported = serde_json::json!({
        "input_tokens": 10, "cache_creation_input_tokens": 100_000, "cache_read_input_tokens": 0,
        "output_tokens": 1,
    });

    let usage = crate::anthropic::usage_of(&reported);

    assert_eq!((usage.input, usage.written), (100_010, 100_000));
    assert_eq!(prices.cost(&usage), 10 * 3_000 + 100_000 * 3_750 + 15_000);
}

/// A published bill: what the vendor's API reported, and what it costs by the vendor's prices.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    model: String,
    /// Where the numbers were published.
    source: String,
    /// Tokens times dollars per million tokens, in millionths of a US dollar.
    arithmetic: String,
    api: Api,
    /// Prices at the time.
    prices: Prices,
    /// As the API reports it; for `responses`, the object that has the usage.
    usage: serde_json::Value,
    nanodollars: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Api {
    Anthropic,
    Gemini,
    Openai,
    Responses,
}

#[test]
fn published_bills_are_recomputed() {
    let examples: Vec<Example> = serde_json::from_str(include_str!("examples.json")).unwrap();

    assert!(examples.len() >= 30, "{}", examples.len());
    for example in examples {
        let Example { model, source, arithmetic, api, prices, usage, nanodollars } = example;
        let usage = match api {
            Api::Anthropic => crate::anthropic::usage_of(&usage),
            Api::Gemini => crate::gemini::usage_of(&usage),
            Api::Openai => crate::openai::usage_of(&usage),
            Api::Responses => crate::responses::usage_of(&usage),
        };
        assert_eq!(prices.cost(&usage), nanodollars, "{model}: {arithmetic} ({source})");
    }
}
