//! Housekeeping requests of front ends: titles, tags and follow-up questions for a chat, and the like.
//!
//! They are not part of the user's conversation: the agent's model answers them without the agent's
//! tools, prompt and memory, in a session that is deleted with the answer. They count as any other
//! request: rights, limits, budgets and usage are the same.
//!
//! | front end | its requests, recognised in the last message of a request without tools |
//! |---|---|
//! | Open WebUI | begin with `### Task:`, with `<chat_history>` and `Output:`: title, tags, follow-ups, search queries, prompts of pictures, completion |
//! | Open WebUI | begin with the sentence about a fitting emoji |
//! | LibreChat | begin with the sentence about a title of five words, or about a language and a title |
//! | LibreChat | have instructions that begin with a sentence about the label of an activity or a step |
//!
//! The header `x-holdfast-task` says it in any case: `housekeeping`, or `chat` for none. A person who
//! types such a text is answered, only without the agent's memory.

use http::HeaderMap;

use super::{
    content::{ConversationMessage, Role},
    conversation::AnswerRequest,
};
use crate::api_error::ApiError;

const TASK: &str = "x-holdfast-task";

/// Beginnings of requests whose whole text follows them.
const BEGINNINGS: [&str; 4] = [
    "Your task is to reflect the speaker's likely facial expression through a fitting emoji.",
    "Provide a concise, 5-word-or-less title for the conversation",
    "Please generate a concise, 5-word-or-less title for the conversation",
    "Analyze this conversation and provide:\n1. The detected language of the conversation",
];

/// Beginnings of the instructions of requests whose only message has the subject.
const INSTRUCTION_BEGINNINGS: [&str; 3] = [
    "Write a short label describing what this block of agent activity accomplished.",
    "Summarize what this phase of an agent run accomplished.",
    "Write a short orientation title for a user-visible reasoning step in a chat UI.",
];

/// Marks a request that is housekeeping, by its header or its text.
///
/// # Errors
///
/// If the header is none of its words, or the request has tools, which the header excludes.
pub fn mark_housekeeping(ask: &mut AnswerRequest, headers: &HeaderMap) -> Result<(), ApiError> {
    let has_tools = ask.options.as_ref().is_some_and(|options| !options.tools.is_empty());
    let is_housekeeping = match headers.get(TASK).map(|value| value.to_str()) {
        Some(Ok("housekeeping")) if has_tools => {
            let message = "housekeeping is answered without tools: leave `tools` out";
            return Err(ApiError::invalid_field("tools", message));
        }
        Some(Ok("housekeeping")) => true,
        Some(Ok("chat")) => false,
        Some(_) => {
            let message = "the header `X-Holdfast-Task` must be `housekeeping` or `chat`";
            return Err(ApiError::invalid_field("X-Holdfast-Task", message));
        }
        None => !has_tools && is_recognised(&ask.turns),
    };
    if is_housekeeping {
        ask.options.get_or_insert_default().is_housekeeping = true;
    }
    Ok(())
}

/// Whether the last message, or the instructions of the only one, are what a known front end writes by
/// itself.
fn is_recognised(turns: &[ConversationMessage]) -> bool {
    if let [instructions, message] = turns
        && (instructions.role, message.role) == (Role::System, Role::User)
        && begins_with_any(&instructions.text, &INSTRUCTION_BEGINNINGS)
    {
        return true;
    }
    let said = turns.iter().rev().find(|turn| turn.role != Role::System);
    let Some(text) = said.filter(|turn| turn.role == Role::User).map(|turn| turn.text.trim())
    else {
        return false;
    };
    let is_task = text.starts_with("### Task:")
        && text.contains("<chat_history>")
        && text.contains("Output:");
    is_task || begins_with_any(text, &BEGINNINGS)
}

fn begins_with_any(text: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| text.trim_start().starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn ask(text: &str) -> AnswerRequest {
        let turns = vec![ConversationMessage::text_only(Role::User, text.to_owned())];
        AnswerRequest { turns, ..AnswerRequest::default() }
    }

    fn is_marked(ask: &mut AnswerRequest, header: Option<&'static str>) -> Result<bool, ApiError> {
        let header = header.map(|word| (TASK.parse().unwrap(), HeaderValue::from_static(word)));
        mark_housekeeping(ask, &header.into_iter().collect())?;
        Ok(ask.is_housekeeping())
    }

    #[test]
    fn requests_of_known_front_ends_are_recognised_and_messages_of_people_are_not() {
        for (text, is_housekeeping) in [
            (
                "### Task:\nGenerate a title.\n### Output:\nJSON\n<chat_history>\nUSER: hi\n</chat_history>",
                true,
            ),
            (
                "### Task:\nContinue the text.\n<chat_history>\n</chat_history>\n#### Output:\n",
                true,
            ),
            (
                "Your task is to reflect the speaker's likely facial expression through a fitting \
                 emoji. Interpret emotions.",
                true,
            ),
            (
                "Provide a concise, 5-word-or-less title for the conversation, using title case.",
                true,
            ),
            (
                "Analyze this conversation and provide:\n1. The detected language of the \
                 conversation\n2. A concise title\n\nUser: hi",
                true,
            ),
            ("Analyze this conversation and provide: a plan", false),
            ("### Task:\nWrite a report.\n### Output:\nMarkdown", false),
            ("What does `### Task:` with <chat_history> and Output: mean?", false),
            ("hi", false),
        ] {
            assert_eq!(is_marked(&mut ask(text), None), Ok(is_housekeeping), "{text}");
        }
    }

    #[test]
    fn labels_of_activities_are_recognised_by_their_instructions() {
        let label = "Write a short label describing what this block of agent activity \
                     accomplished. It appears as a header.";
        let turn = |role, text: &str| ConversationMessage::text_only(role, text.to_owned());
        let marked = |turns: Vec<ConversationMessage>| {
            is_marked(&mut AnswerRequest { turns, ..AnswerRequest::default() }, None).unwrap()
        };
        let (instructions, subject) = (turn(Role::System, label), turn(Role::User, "read a.txt"));

        assert!(marked(vec![instructions.clone(), subject.clone()]));
        for turns in [
            vec![turn(Role::System, "Be brief."), subject.clone()],
            vec![instructions, subject.clone(), turn(Role::Assistant, "so"), subject],
            vec![turn(Role::User, label)],
        ] {
            assert!(!marked(turns));
        }
    }

    #[test]
    fn the_header_decides_and_excludes_tools() {
        let title = "### Task:\n### Output:\n<chat_history>";
        assert_eq!(is_marked(&mut ask("hi"), Some("housekeeping")), Ok(true));
        assert_eq!(is_marked(&mut ask(title), Some("chat")), Ok(false));
        assert!(is_marked(&mut ask("hi"), Some("title")).is_err());

        let with_tools = |text: &str| {
            let mut ask = ask(text);
            let parameters = serde_json::json!({});
            ask.options.get_or_insert_default().tools.push(holdfast_types::ClientTool {
                name: "look".to_owned(),
                description: String::new(),
                parameters,
                strict: false,
            });
            ask
        };
        assert_eq!(is_marked(&mut with_tools(title), None), Ok(false));
        assert!(is_marked(&mut with_tools("hi"), Some("housekeeping")).is_err());
    }
}
