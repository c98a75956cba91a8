//! Tests of the judgement of what leaves a conversation.

use holdfast_tools::{Tool, ToolError};
use holdfast_types::{AccountId, Author, Body, Effect, ReplyTo, Usage};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const NAMES: [&str; 3] = ["browser", "web_fetch", "web_search"];

/// Tool of [`NAMES`] whose calls are only judged.
struct Judged<const AT: usize>;

impl<const AT: usize> Tool for Judged<AT> {
    const NAME: &'static str = NAMES[AT];
    const EFFECT: Effect = Effect::Reads;
    type Input = Value;

    async fn call(&self, _: holdfast_tools::Call, _: Value) -> Result<String, ToolError> {
        Err(ToolError::Tell("it is not called".to_owned()))
    }
}

fn registry() -> Registry {
    Registry::default().with(Judged::<0>).with(Judged::<1>).with(Judged::<2>)
}

fn destination(
    tool: &str,
    input: &Value,
    chat: Option<&Target>,
    entries: &[Entry],
) -> Option<String> {
    let registry = registry();
    Conversation { registry: &registry, chat, entries }
        .destination(tool, input)
        .map(|destination| destination.name)
}

fn heard(body: Body) -> Entry {
    Entry::Heard { seq: 1, body }
}

/// A call that was made, with its result.
fn made(tool: &str, input: Value, output: &str) -> [Entry; 2] {
    let call = ToolCall { id: tool.into(), tool: tool.into(), input: input.to_string() };
    let thought = Entry::Thought {
        text: "https://thought.example/".into(),
        calls: vec![call],
        usage: Usage::default(),
        model: String::new(),
        carry: None,
        record: None,
    };
    [thought, Entry::returned(tool, output, false)]
}

/// Asserts whether a person is asked about each address.
fn assert_free(entries: &[Entry], addresses: &[(&str, bool)]) {
    for (url, is_free) in addresses {
        for (tool, input) in [
            ("web_fetch", json!({ "url": url })),
            ("browser", json!({ "action": "navigate", "url": url })),
            // The tool takes a name of an action with `null`, too.
            ("browser", json!({ "action": { "navigate": null }, "url": url })),
        ] {
            let asked = destination(tool, &input, None, entries);
            assert_eq!(asked.is_none(), *is_free, "{tool} {url}: {asked:?}");
        }
    }
}

#[test]
fn an_address_is_free_only_if_somebody_else_gave_it() {
    let outside = |text: &str| Body { outside: true, ..Body::text(text) };
    let mut entries = vec![
        heard(Body::text("see https://said.example/a?b=c#d (or plain.example/x), please.")),
        heard(outside("https://told.example/")),
        heard(Body { author: Some(Author::default()), ..outside("https://sent.example/") }),
    ];
    let page = "[next](https://page.example/2)[more](HTTPS://Page.example:443/3), \
                <https://page.example/4>";
    entries.extend(made("web_fetch", json!({ "url": "https://said.example/a?b=c" }), page));
    let echo = "https://echo.example/?q=tea https://found.example/";
    entries.extend(made("web_search", json!({ "query": "https://echo.example/?q=tea" }), echo));
    entries.extend(made("exec", json!({}), "https://exec.example/"));

    assert_free(
        &entries,
        &[
            ("https://said.example/a?b=c#d", true),
            ("http://said.example/a?b=c", true),
            ("https://said.example/a", false),
            ("https://said.example/a?b=c&secret=1", false),
            ("https://secret.said.example/", false),
            ("plain.example/x", true),
            ("plain.example/xy", false),
            ("https://page.example/2", true),
            ("https://page.example/3", true),
            ("https://page.example/4", true),
            ("https://page.example/5", false),
            ("https://sent.example", true),
            ("https://told.example/", false),
            ("https://found.example/", true),
            ("https://echo.example/?q=tea", false),
            ("https://exec.example/", false),
            ("https://thought.example/", false),
        ],
    );
    // The tool refuses it.
    assert_free(&entries, &[("", true), ("https://", true)]);
}

#[test]
fn a_page_of_an_address_that_the_agent_wrote_gives_no_address_with_what_it_wrote() {
    let asked = "https://news.example/go?to=https%3A%2F%2Fevil.example%2F%3Fd%3Dmy%2520note";
    let page = "https://evil.example/?d=my%20note https://news.example/about \
                https://other.example/ https://news.example/go?to=https%3A%2F%2Fevil.example";
    let entries = made("web_fetch", json!({ "url": asked }), page);

    assert_free(
        &entries,
        &[
            ("https://evil.example/?d=my%20note", false),
            ("https://other.example/", false),
            ("https://news.example/go?to=https%3A%2F%2Fevil.example", false),
            ("https://news.example/about", true),
        ],
    );
}

#[test]
fn a_search_gives_no_address_of_its_query_in_any_spelling_and_none_of_an_answer() {
    let query = "https://evil.example?d=SECRET https://other.example:443/x";
    let output = format!(
        "Results for: {query} (via X)\n1. One\n   https://found.example/\n\n{}\nhttps://evil.example/SECRET",
        holdfast_tools::ANSWER_HEADING
    );
    let entries = made("web_search", json!({ "query": query }), &output);

    assert_free(
        &entries,
        &[
            ("https://evil.example/?d=SECRET", false),
            ("https://other.example/x", false),
            ("https://evil.example/SECRET", false),
            ("https://found.example/", true),
        ],
    );
}

#[test]
fn a_page_of_nothing_but_addresses_is_read_in_a_bounded_time() {
    let page = "https://".repeat(50_000) + &"%25".repeat(50_000);
    let entries = made("web_fetch", json!({ "url": "https://said.example/" }), &page);

    assert_free(&entries, &[("https://said.example/x", false)]);
}

#[test]
fn an_event_gives_no_address_that_a_name_in_it_looks_like() {
    let event = Body { event: Some("file".to_owned()), ..Body::text("evil.example/d/SECRET") };

    assert_free(&[heard(event)], &[("https://evil.example/d/SECRET", false)]);
}

#[test]
fn a_quotation_gives_addresses_unless_it_repeats_the_agent() {
    let quotes = |text: &str| {
        let quoted = ReplyTo { message_id: "1".into(), text: text.into() };
        heard(Body { reply_to: Some(Box::new(quoted)), ..Body::text("and?") })
    };
    let mut entries = made("exec", json!({}), "").to_vec();
    entries.push(quotes("https://quoted.example/ and https://thought.example"));

    assert_free(
        &entries,
        &[("https://quoted.example/", true), ("https://thought.example/", false)],
    );
}

#[test]
fn the_choice_among_many_given_addresses_of_a_site_asks() {
    let links = (0..=MAX_CHOSEN_PER_SITE).map(|at| format!("https://a{at}.page.example/{at}"));
    let links: Vec<String> = links.collect();
    let mut entries = vec![heard(Body::text(links.join("\n") + " https://b.example/"))];
    for link in &links[..MAX_CHOSEN_PER_SITE] {
        assert_free(&entries, &[(link.as_str(), true)]);
        entries.extend(made("web_fetch", json!({ "url": link }), ""));
    }

    assert_free(
        &entries,
        &[(links[MAX_CHOSEN_PER_SITE].as_str(), false), ("https://b.example/", true)],
    );
    assert_free(&entries, &[(links[0].as_str(), true)]);
}

#[test]
fn a_site_is_what_one_owner_has() {
    for (url, expected) in [
        ("https://a.b.example.com/", "com.example"),
        ("https://www.example.co.uk/", "uk.co.example"),
        ("https://example.org.:8443/", "org.example"),
        ("https://[::1]/", "[::1]"),
        ("https://127.1/", "127.0.0.1"),
    ] {
        assert_eq!(site(&Guard::parse(url).unwrap()), expected, "{url}");
    }
}

#[test]
fn a_message_is_free_only_in_its_own_chat() {
    let own = Target {
        channel: "telegram".into(),
        account: AccountId::generate(),
        chat: "7".into(),
        thread: None,
        reply_to: None,
    };
    let to = |chat: &str| json!({ "text": "a", "target": {"channel": "telegram", "chat": chat} });
    for (input, asked) in [
        (json!({ "text": "a", "attachments": ["x"], "target": null }), None),
        (to("7"), None),
        (to("8"), Some("messages to telegram:8")),
        (json!({ "text": "a", "channel": "8" }), Some("messages to another chat")),
    ] {
        assert_eq!(destination("message", &input, Some(&own), &[]).as_deref(), asked, "{input}");
    }
    assert!(destination("message", &to("7"), None, &[]).is_some());
}

#[test]
fn changes_at_services_answers_elsewhere_and_paid_media_are_asked_about_and_reading_is_not() {
    for (tool, input, asked) in [
        ("calendar", json!({ "action": "list" }), None),
        ("notion", json!({ "action": "search", "query": "x" }), None),
        ("notion", json!({ "action": "append" }), Some("changes by notion in the only connection")),
        (
            "calendar",
            json!({ "action": "create", "connection": "home" }),
            Some("changes by calendar in home"),
        ),
        (
            "calendar",
            json!({ "action": ["create"] }),
            Some("changes by calendar in the only connection"),
        ),
        ("sessions_send", json!({ "session": "s", "message": "x" }), None),
        (
            "sessions_send",
            json!({ "session": "s", "message": "x", "deliver": true }),
            Some("answers in the conversation s"),
        ),
        ("image", json!({ "op": "understand", "path": "x" }), None),
        ("image", json!({ "op": "generate", "prompt": "x" }), Some("paid calls of image")),
        ("image", json!({ "action": "generate", "prompt": "x" }), Some("paid calls of image")),
        ("image", json!({ "op": { "generate": null } }), Some("paid calls of image")),
        ("tts", json!({ "op": "voices" }), None),
        ("tts", json!({ "text": "x" }), Some("paid calls of tts")),
        ("write", json!({ "path": "x" }), None),
    ] {
        assert_eq!(destination(tool, &input, None, &[]).as_deref(), asked, "{tool} {input}");
    }
}

/// Address that a person gave.
const GIVEN: &str = "https://news.example/today";

/// Spellings of addresses, among them those that parsers read differently.
fn spelling() -> impl Strategy<Value = String> {
    let scheme = prop::sample::select(vec![
        "",
        "https://",
        "http://",
        "HTTPS://",
        "https:",
        "https:/",
        "https:///",
        r"https:\\",
        "//",
        r"\\",
        "ht\ttps://",
        " https://",
        "data:text/html,",
        "javascript://",
        "ftp://",
        "://",
    ]);
    let user = prop::sample::select(vec!["", "news.example@", "a:SECRET@", "news.example%2f@"]);
    let host = prop::sample::select(vec![
        "news.example",
        "NEWS.example",
        "news.example.",
        "ne\nws.example",
        "evil.example",
        "bücher.example",
        "xn--bcher-kva.example",
        "ｎews.example",
        "[::1]",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        r"news.example\@evil.example",
        "news.example:443",
        "news.example:80",
        "news.example:99",
        "news.example%00evil.example",
        "",
    ]);
    let rest = prop::sample::select(vec![
        "",
        "/",
        "/today",
        "/today#SECRET",
        "/today/",
        "/x/../today",
        "/%74oday",
        "/today?",
        "/today?d=SECRET",
        "?d=SECRET&r=://news.example/today",
        "/c?r=https://news.example/today",
        "#://news.example/today",
        r"\today",
        "/SECRET/..//today",
        "/today\t",
    ]);
    (scheme, user, host, rest)
        .prop_map(|(scheme, user, host, rest)| [scheme, user, host, rest].concat())
}

proptest! {
    /// What is judged is what the client asks.
    #[test]
    fn an_address_is_judged_by_the_host_that_its_client_asks(text in spelling()) {
        let asked = Guard::parse(&text).ok();
        let expected = asked.map(|url| format!("addresses of {}", url.host_str().unwrap_or_default()));

        for input in [json!({ "url": text }), json!({ "action": "navigate", "url": text })] {
            let tool = if input["action"].is_null() { "web_fetch" } else { "browser" };
            prop_assert_eq!(destination(tool, &input, None, &[]), expected.clone(), "{:?}", text);
        }
    }

    /// An address for which nobody is asked is the given one, whatever its spelling.
    #[test]
    fn a_spelling_that_is_free_is_the_given_address(text in spelling(), before in "[a-z(<\"]{0,3}") {
        let entries = [heard(Body::text(format!("{before} {GIVEN}, and SECRET")))];

        let is_free = destination("web_fetch", &json!({ "url": text }), None, &entries).is_none();

        if let (true, Ok(url)) = (is_free, Guard::parse(&text)) {
            prop_assert_eq!(comparable(&url), GIVEN, "{:?}", text);
        }
    }

    /// No text of a message or page breaks the search for addresses.
    #[test]
    fn any_text_can_be_searched_for_addresses(text in r"(?s)(https?://|://|[a-z./()\]é語…\\ ]|.){0,40}") {
        let entries = [heard(Body::text(text))];

        let secret = json!({ "url": "https://x.example/SECRET" });
        prop_assert!(destination("web_fetch", &secret, None, &entries).is_some());
    }
}
