//! Calls that can carry what a conversation knows to somebody else. Once it has read text from
//! outside, which may have asked for that, a person decides about them.
//!
//! | sink | asks |
//! |---|---|
//! | chat | unless it is the conversation's own |
//! | session | if the other conversation is to answer on its channel |
//! | service | about changes |
//! | paid | about pictures and speech, which cost money each |
//! | address | unless the address was given to the conversation (`given.rs`), and few of its site were chosen |
//! | browser | as an address if it names one; about each site on which it acts |
//! | server | unless the tool is declared harmless |
//!
//! An address is judged as the value that the client's own parser makes of it. Mails and commands on
//! nodes always need an approval, commands with the network unless the policy allows them.

mod given;

use std::collections::BTreeSet;

use holdfast_egress::Guard;
use holdfast_tools::{Destination, Registry};
use holdfast_types::{Entry, Target, ToolCall};
use reqwest::Url;
use serde_json::Value;

use self::given::given_addresses;
use super::{
    outside_text,
    tool_flows::{Sink, sink_of},
};

/// Addresses of one site that a conversation with text from outside may choose among those that it was
/// given. Which ones it chooses can tell something, too.
const MAX_CHOSEN_PER_SITE: usize = 20;

/// Labels below a country's domain under which names are given to owners.
const SECOND_LEVELS: [&str; 7] = ["ac", "co", "com", "edu", "gov", "net", "org"];

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

/// A conversation as far as the judgement of its calls needs it.
pub(super) struct Conversation<'a> {
    pub(super) registry: &'a Registry,
    /// Chat that the conversation is held in.
    pub(super) chat: Option<&'a Target>,
    pub(super) entries: &'a [Entry],
}

impl Conversation<'_> {
    /// Where a call sends what the model wrote, if a person decides about it; `None` for other calls,
    /// and for those of which only the tool knows it. The input is as the tool gets it.
    pub(super) fn destination(&self, tool: &str, input: &Value) -> Option<Destination> {
        match sink_of(self.registry, tool) {
            Sink::Chat => other_chat(input, self.chat).map(Destination::new),
            Sink::Session => answers_elsewhere(input).map(Destination::new),
            Sink::Service => changes_service(tool, input).map(Destination::new),
            Sink::Paid => makes_paid_media(tool, input).map(Destination::new),
            Sink::Address | Sink::Browser => self.unknown_address(tool, input),
            Sink::Nothing
            | Sink::OwnConversation
            | Sink::KeepsMark
            | Sink::Instructions
            | Sink::OwnRules
            | Sink::Payment
            | Sink::Provider
            | Sink::Server => None,
        }
    }

    /// Host of the address of a call, if a person decides about the address.
    pub(super) fn host_to_stay_on(&self, tool: &str, input: &Value) -> Option<String> {
        self.unknown_address(tool, input)?;
        self.address(tool, input)?.host_str().map(str::to_owned)
    }

    fn unknown_address(&self, tool: &str, input: &Value) -> Option<Destination> {
        let url = self.address(tool, input)?;
        let is_free = given_addresses(self.registry, self.entries).contains(&comparable(&url))
            && self.chosen_of_site(&url) <= MAX_CHOSEN_PER_SITE;
        let host = url.host_str().unwrap_or_default();
        (!is_free).then(|| Destination::new(format!("addresses of {host}")))
    }

    fn address(&self, tool: &str, input: &Value) -> Option<Url> {
        address(sink_of(self.registry, tool), input)
    }

    /// Number of addresses of a site, this one included, that the conversation has chosen since it began
    /// anew.
    fn chosen_of_site(&self, url: &Url) -> usize {
        let site = site(url);
        let called = calls(outside_text::after_reset(self.entries)).filter_map(|call| {
            let (tool, input) = self.registry.parse_call(&call.tool, &call.input)?;
            self.address(tool, &input)
        });
        let of_site = called.filter(|other| self::site(other) == site);
        let mut chosen: BTreeSet<String> = of_site.map(|other| comparable(&other)).collect();
        chosen.insert(comparable(url));
        chosen.len()
    }
}

fn calls(entries: &[Entry]) -> impl Iterator<Item = &ToolCall> {
    entries.iter().flat_map(|entry| match entry {
        Entry::Thought { calls, .. } => calls.as_slice(),
        Entry::Heard { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => &[],
    })
}

/// Address that a call asks, as the tool parses it; `None` if it asks none.
fn address(sink: Sink, input: &Value) -> Option<Url> {
    // The name of the action does not matter: the tool reads several spellings of it.
    let has_address = match sink {
        Sink::Address | Sink::Browser => true,
        Sink::Nothing
        | Sink::OwnConversation
        | Sink::KeepsMark
        | Sink::Instructions
        | Sink::OwnRules
        | Sink::Payment
        | Sink::Provider
        | Sink::Paid
        | Sink::Chat
        | Sink::Session
        | Sink::Service
        | Sink::Server => false,
    };
    let text = input["url"].as_str().filter(|_| has_address)?;
    // The tool refuses what is no address.
    Guard::parse(text).ok()
}

/// An address as it is compared: the fragment is not sent, and a host is the same with TLS.
fn comparable(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    if url.scheme() == "http" && url.port().is_none() && url.set_scheme("https").is_err() {
        return String::new();
    }
    url.into()
}

/// The part of a host that one owner has, roughly: `a.example.com` and `b.example.com` are one site.
fn site(url: &Url) -> String {
    let Some(name) = url.domain() else { return url.host_str().unwrap_or_default().to_owned() };
    let labels: Vec<&str> = name.trim_end_matches('.').rsplit('.').collect();
    // As in `example.co.uk`.
    let is_second_level = labels.first().is_some_and(|top| top.len() == 2)
        && labels.get(1).is_some_and(|second| SECOND_LEVELS.contains(second));
    let count = if is_second_level { 3 } else { 2 };
    labels.into_iter().take(count).collect::<Vec<_>>().join(".")
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

/// Conversation that is to answer a message of `sessions_send` on its own channel.
fn answers_elsewhere(input: &Value) -> Option<String> {
    let session = ["session", "session_key"].iter().find_map(|field| input[*field].as_str());
    let delivers = !matches!(input["deliver"], Value::Null | Value::Bool(false));
    delivers.then(|| format!("answers in the conversation {}", session.unwrap_or_default()))
}

/// Connection that a call changes.
fn changes_service(tool: &str, input: &Value) -> Option<String> {
    let reads = matches!(input["action"].as_str(), Some("list" | "search" | "read"));
    let connection = input["connection"].as_str().unwrap_or("the only connection");
    (!reads).then(|| format!("changes by {tool} in {connection}"))
}

/// Kind of media that a call has a provider make. Other operations of the tools are free, or cost no more
/// than the model itself.
fn makes_paid_media(tool: &str, input: &Value) -> Option<String> {
    let operation = ["op", "action"].iter().find_map(|field| input[*field].as_str());
    let is_free = matches!(
        operation,
        Some("understand" | "info" | "resize" | "voices" | "providers" | "parse")
    );
    (!is_free).then(|| format!("paid calls of {tool}"))
}

#[cfg(test)]
mod tests;
