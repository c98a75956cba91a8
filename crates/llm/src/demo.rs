//! The built-in demonstration model.
//!
//! Lets a new installation without keys show a conversation with a tool call. Offline, immediate
//! and deterministic; its replies say what it is and how to connect a real model.

use holdfast_types::{Chat, ChatMessage, Reply, ToolCall, Usage};
use tokio_util::sync::CancellationToken;

use crate::{Error, Model, OnDelta, ReplyFuture, Request, model::say};

/// Tool that the model calls.
const STATUS_TOOL: &str = "session_status";

/// Tool that describes the status tool, where that one is not in the request.
const DESCRIBE_TOOL: &str = "tool_describe";

/// Text for the first answer and for questions about the model.
const ABOUT_TEXT: &str = "I am Holdfast's built-in demonstration model: I run offline, I understand \
     next to nothing, and I am here to show that everything around a model works. To connect a \
     real one, set OPENAI_API_KEY (and OPENAI_BASE_URL, if the server is not OpenAI's) and \
     HOLDFAST_MODEL=openai:<id>.";

/// Mark in the instructions of a step of a behaviour, whose answer is JSON (docs/behaviours.md).
const STEP_MARK: &str = "<<output_protocol>>";

/// Maximum length of a quotation from the user, in characters.
const MAX_QUOTE_CHARS: usize = 300;

#[derive(Debug, Clone, Copy, Default)]
pub struct Demo;

impl Model for Demo {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        Box::pin(async move {
            if cancelled.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let mut reply = answer(&request.chat);
            reply.model = request.model.to_string();
            say(&reply, on_delta);
            Ok(reply)
        })
    }
}

/// Returns the reply, a pure function of the chat.
fn answer(chat: &Chat) -> Reply {
    if [&*chat.stable, &*chat.dynamic].iter().any(|text| text.contains(STEP_MARK)) {
        return step_result(chat);
    }
    let last_answer = chat.messages.iter().rposition(is_answer);
    let turn = &chat.messages[last_answer.map_or(0, |at| at + 1)..];
    let is_first = last_answer.is_none();
    let said = turn.iter().rev().find_map(user_text).unwrap_or_default().trim();
    let result = turn.iter().rev().find_map(tool_result).filter(|_| has_called(turn, STATUS_TOOL));
    let is_offered = |name: &str| chat.tools.iter().any(|tool| tool.name == name);
    let wants = result.is_none() && (is_first || asks_for_status(said));

    let mut reply = Reply::default();
    if wants && is_offered(STATUS_TOOL) {
        reply.text = "Let me look at this session first.".to_owned();
        reply.calls = vec![call("call_demo_1", STATUS_TOOL, "{}".to_owned())];
    } else if wants && is_offered(DESCRIBE_TOOL) && !has_called(turn, DESCRIBE_TOOL) {
        let input = serde_json::json!({ "name": STATUS_TOOL }).to_string();
        reply.calls = vec![call("call_demo_0", DESCRIBE_TOOL, input)];
    } else {
        let mut parts = Vec::new();
        if is_first {
            parts.push(format!("Hello! {ABOUT_TEXT}"));
        }
        parts.extend(result.map(report));
        parts.extend(respond(said, is_first));
        reply.text = parts.join("\n\n");
    }
    reply.usage = usage(chat, &reply);
    reply
}

/// Result of a step, which ends the work: it cannot plan.
fn step_result(chat: &Chat) -> Reply {
    let text = serde_json::json!({
        "reply": format!("Hello! {ABOUT_TEXT} I cannot work by behaviours."),
        "next_behavior": "END",
        "memory_queries": [],
    });
    let mut reply = Reply { text: text.to_string(), ..Reply::default() };
    reply.usage = usage(chat, &reply);
    reply
}

fn call(id: &str, tool: &str, input: String) -> ToolCall {
    ToolCall { id: id.to_owned(), tool: tool.to_owned(), input }
}

fn has_called(turn: &[ChatMessage], tool: &str) -> bool {
    turn.iter().any(|message| match message {
        ChatMessage::Assistant { calls, .. } => calls.iter().any(|call| call.tool == tool),
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => false,
    })
}

const fn is_answer(message: &ChatMessage) -> bool {
    match message {
        ChatMessage::Assistant { calls, .. } => calls.is_empty(),
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => false,
    }
}

fn user_text(message: &ChatMessage) -> Option<&str> {
    match message {
        ChatMessage::User { text, .. } => Some(text),
        ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => None,
    }
}

fn tool_result(message: &ChatMessage) -> Option<(&str, bool)> {
    match message {
        ChatMessage::Tool { output, failed, .. } => Some((output, *failed)),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

fn asks_for_status(text: &str) -> bool {
    words(text).any(|word| {
        matches!(word.as_str(), "status" | "session" | "sessions" | "tool" | "tools" | "usage")
    })
}

fn report((output, failed): (&str, bool)) -> String {
    if failed {
        format!("I asked the tool `{STATUS_TOOL}`, and it failed: {}", excerpt(output))
    } else {
        format!("I asked the tool `{STATUS_TOOL}` how we stand. It says:\n\n{}", output.trim_end())
    }
}

/// Returns a comment on the user's message, or `None` if none is needed.
fn respond(said: &str, is_first: bool) -> Option<String> {
    let spoken: Vec<String> = words(said).collect();
    let has = |wanted: &[&str]| spoken.iter().any(|word| wanted.contains(&word.as_str()));
    if asks_for_status(said) {
        return None;
    }
    if has(&["thanks", "thank", "danke", "merci"]) {
        return Some("You are welcome.".to_owned());
    }
    if has(&["bye", "goodbye", "tschüss"]) {
        return Some("Goodbye! Whatever you send me while I am away is kept.".to_owned());
    }
    if !is_first && (has(&["who", "model", "demo", "help"]) || said == "?") {
        return Some(ABOUT_TEXT.to_owned());
    }
    if spoken.len() <= 4 && has(&["hello", "hi", "hey", "hallo", "hola", "bonjour", "morning"]) {
        return (!is_first).then(|| "Hello again! What would you like to try?".to_owned());
    }
    match (said, said.ends_with('?')) {
        ("", _) => None,
        (_, true) => Some(format!(
            "You asked: \"{}\" A real model could answer that; I can only tell you that your \
             question arrived whole.",
            excerpt(said)
        )),
        (_, false) => Some(format!(
            "You said: \"{}\" That is {} word(s), and all of them arrived.",
            excerpt(said),
            said.split_whitespace().count()
        )),
    }
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE_CHARS) {
        Some((at, _)) => format!("{} …", text[..at].trim_end()),
        None => text.to_owned(),
    }
}

/// Estimate: four characters per token.
fn usage(chat: &Chat, reply: &Reply) -> Usage {
    let tokens = |text: &str| u64::try_from(text.chars().count() / 4 + 1).unwrap_or(u64::MAX);
    let read = chat.messages.iter().map(|message| match message {
        ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } => tokens(text),
        ChatMessage::Tool { output, .. } => tokens(output),
    });
    Usage {
        input: tokens(&chat.stable) + tokens(&chat.dynamic) + read.sum::<u64>(),
        output: tokens(&reply.text),
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::ToolSpec;

    use super::*;
    use crate::{Delta, scripted_model::tests::request};

    fn user(text: &str) -> ChatMessage {
        ChatMessage::user(text)
    }

    fn assistant(text: &str) -> ChatMessage {
        ChatMessage::assistant(text, vec![])
    }

    fn chat(messages: &[ChatMessage]) -> Chat {
        let tool = ToolSpec {
            name: STATUS_TOOL.into(),
            description: String::new(),
            input: serde_json::json!({ "type": "object" }),
        };
        Chat { messages: messages.to_vec(), tools: vec![tool], ..Chat::default() }
    }

    /// Returns the chat after the model called its tool and got this result.
    fn with_result(mut chat: Chat, output: &str) -> Chat {
        let reply = answer(&chat);
        let [call] = reply.calls.as_slice() else { panic!("{reply:?}") };
        let result =
            ChatMessage::Tool { call: call.id.clone(), output: output.into(), failed: false };
        chat.messages.push(ChatMessage::assistant(reply.text, reply.calls));
        chat.messages.push(result);
        chat
    }

    #[test]
    fn its_first_answer_uses_a_tool_and_says_what_it_is_and_how_to_connect_another() {
        let reply = answer(&with_result(chat(&[user("hello")]), "tokens: 5\n"));

        assert!(reply.calls.is_empty());
        assert_eq!(
            reply.text,
            format!(
                "Hello! {ABOUT_TEXT}\n\nI asked the tool `session_status` how we stand. It says:\n\n\
                 tokens: 5"
            )
        );
        for setting in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "HOLDFAST_MODEL=openai:<id>"] {
            assert!(ABOUT_TEXT.contains(setting));
        }
    }

    #[test]
    fn a_step_of_a_behaviour_is_answered_in_its_form() {
        let stable = format!("…\n{STEP_MARK}\nAnswer with JSON.");
        let reply = answer(&Chat { stable: stable.into(), ..chat(&[user("hello")]) });

        let result: serde_json::Value = serde_json::from_str(&reply.text).unwrap();
        assert!(result["reply"].as_str().unwrap().contains(ABOUT_TEXT));
        assert_eq!((&result["next_behavior"], reply.calls.len()), (&"END".into(), 0));
    }

    #[test]
    fn it_uses_the_tool_again_only_when_asked() {
        let begun = |text: &str| chat(&[user("hi"), assistant("Hello!"), user(text)]);

        assert_eq!(answer(&begun("what is my status?")).calls.len(), 1);
        let reply = answer(&with_result(begun("what is my status?"), "fine"));
        assert!(reply.text.ends_with("It says:\n\nfine"), "{}", reply.text);
        assert!(answer(&begun("nice weather")).calls.is_empty());
    }

    #[test]
    fn a_tool_that_is_not_shown_is_looked_up_once() {
        let mut chat = chat(&[user("hello")]);
        chat.tools[0].name = DESCRIBE_TOOL.into();

        let lookup = answer(&chat);
        let after = answer(&with_result(chat.clone(), "session_status …"));

        assert_eq!(lookup.calls[0].tool, DESCRIBE_TOOL);
        assert_eq!(lookup.calls[0].input, r#"{"name":"session_status"}"#);
        assert!(after.calls.is_empty() && !after.text.contains("It says"), "{}", after.text);
        chat.tools[0].name = STATUS_TOOL.into();
        assert_eq!(answer(&chat).calls[0].tool, STATUS_TOOL);
    }

    #[test]
    fn without_the_tool_it_asks_for_none() {
        let chat = Chat { tools: vec![], ..chat(&[user("status")]) };

        let reply = answer(&chat);

        assert!(reply.calls.is_empty());
        assert!(reply.text.starts_with("Hello! I am Holdfast's built-in demonstration model"));
    }

    #[test]
    fn it_answers_what_it_can_and_says_what_it_cannot() {
        let later = |text: &str| answer(&chat(&[user("hi"), assistant("Hello!"), user(text)])).text;

        assert_eq!(later("hello"), "Hello again! What would you like to try?");
        assert_eq!(later("Thanks a lot!"), "You are welcome.");
        assert_eq!(later("who are you?"), ABOUT_TEXT);
        assert_eq!(
            later("Buy milk."),
            "You said: \"Buy milk.\" That is 2 word(s), and all of them arrived."
        );
        assert!(later("Is it late?").starts_with("You asked: \"Is it late?\""));
        assert!(later(&"x".repeat(10_000)).chars().count() < 500);
        assert!(!later("").is_empty() || answer(&chat(&[])).calls.len() == 1);
    }

    #[tokio::test]
    async fn it_speaks_in_words_that_make_the_whole() {
        let request = Request {
            model: "demo:demo".parse().unwrap(),
            chat: Chat { tools: vec![], ..chat(&[user("hi")]) },
            ..request()
        };
        let mut streamed = vec![];
        let mut note = |delta| streamed.push(delta);

        let reply = Demo.reply(&request, &mut note, &CancellationToken::new()).await.unwrap();

        assert!(streamed.len() > 10);
        let text: String = streamed
            .iter()
            .map(|delta| match delta {
                Delta::Text(text) => text.as_str(),
                Delta::Thought(_) | Delta::ToolCallStarted { .. } | Delta::Restarted => {
                    panic!("{delta:?}")
                }
            })
            .collect();
        assert_eq!(text, reply.text);
        assert_eq!(reply.model, "demo:demo");
        assert!(reply.usage.output > 0);
    }
}
