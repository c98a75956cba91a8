//! Results of the client's tools, and the calls that they answer.
//!
//! | a request ends with results of | then |
//! |---|---|
//! | all calls that wait for this key, in whatever history | the session of these calls continues |
//! | calls that are in the history sent, and wait no more | a new session begins with calls and results |
//! | other calls, as those of another tenant or key | 400 |

use holdfast_grpc::Caller;
use holdfast_session::MessageStatus;
use holdfast_types::{ClientResult, Handover, MessageId};
use jiff::Timestamp;

use super::{
    OpenAi,
    content::{ConversationMessage, Role},
};
use crate::{Error, api_error::ApiError, ingest::source};

/// Calls that wait, and what the client adds to their conversation: their results first.
#[derive(Debug)]
pub struct AnsweredCalls {
    pub status: MessageStatus,
    pub turns: Vec<ConversationMessage>,
}

impl OpenAi {
    /// Finds the waiting calls that the end of a history answers.
    pub async fn answered_calls(
        &self,
        caller: &Caller,
        turns: &[ConversationMessage],
    ) -> Result<Option<AnsweredCalls>, ApiError> {
        let Some(at) = newest_results(turns) else { return Ok(None) };
        let runs = turns[at].results.iter().find_map(|result| Handover::run_of(&result.call));
        let Some(run) = runs else { return Ok(None) };
        let message = MessageId::from(run.as_uuid());
        let status = match self.ingest.message_status(caller.tenant, message).await {
            Err(Error::Session(holdfast_session::Error::NotFound { .. })) => return Ok(None),
            status => status?,
        };
        let is_own = status.source == source(caller).as_text();
        let Some(handover) = status.handover.as_ref().filter(|all| is_own && is_open(all)) else {
            return Ok(None);
        };
        let Ok(results) = results_of(handover, turns) else { return Ok(None) };
        let turns = with_results(results, turns[at + 1..].to_vec());
        Ok(Some(AnsweredCalls { status, turns }))
    }

    /// Matches the results in a request that continues a response to the calls of that response.
    pub fn answer_response(
        caller: &Caller,
        status: &MessageStatus,
        turns: Vec<ConversationMessage>,
    ) -> Result<Vec<ConversationMessage>, ApiError> {
        let Some(at) = newest_results(&turns) else { return Ok(turns) };
        let is_own = status.source == source(caller).as_text();
        let Some(handover) = status.handover.as_ref().filter(|_| is_own) else {
            return check_results(&turns, "input").map(|()| turns);
        };
        if !is_open(handover) {
            let message = "the calls of this response ended at their deadline, without results: \
                           continue with a message";
            return Err(ApiError::invalid_field("input", message));
        }
        let results = results_of(handover, &turns).map_err(|call| {
            let message =
                format!("no result of the call `{call}` was sent: send those of all calls");
            ApiError::invalid_field("input", message)
        })?;
        let is_known = |id: &str| handover.calls.iter().any(|call| call.id == id);
        let mut sent = turns[at].results.iter();
        if let Some(other) = sent.find(|result| !is_known(&result.call)) {
            return Err(unknown_call(&other.call, "input"));
        }
        Ok(with_results(results, turns[at + 1..].to_vec()))
    }
}

/// Refuses results of calls that are not in the history before them.
pub fn check_results(turns: &[ConversationMessage], param: &'static str) -> Result<(), ApiError> {
    for (at, turn) in turns.iter().enumerate() {
        let is_known =
            |id: &str| turns[..at].iter().flat_map(|turn| &turn.calls).any(|call| call.id == id);
        if let Some(other) = turn.results.iter().find(|result| !is_known(&result.call)) {
            return Err(unknown_call(&other.call, param));
        }
    }
    Ok(())
}

fn unknown_call(call: &str, param: &'static str) -> ApiError {
    let call: String = call.chars().take(80).collect();
    let message = format!(
        "no call `{call}` waits for a result of this key, and none is in the history before it: \
         it was answered, ran out, or is another key's"
    );
    ApiError::invalid_field(param, message)
}

/// Index of the newest results, unless an answer follows them.
fn newest_results(turns: &[ConversationMessage]) -> Option<usize> {
    let at = turns.iter().rposition(|turn| turn.role == Role::Tool)?;
    turns[at..].iter().all(|turn| turn.role != Role::Assistant).then_some(at)
}

fn is_open(handover: &Handover) -> bool {
    handover.until_ms > Timestamp::now().as_millisecond()
}

/// Results of all calls, under the model's ids; else the first call without one.
fn results_of(
    handover: &Handover,
    turns: &[ConversationMessage],
) -> Result<Vec<ClientResult>, String> {
    let sent: Vec<&ClientResult> = turns.iter().flat_map(|turn| &turn.results).collect();
    let calls = handover.calls.iter().map(|call| {
        let result = sent.iter().rev().find(|result| result.call == call.id);
        let result = result.ok_or_else(|| call.id.clone())?;
        Ok(ClientResult { call: call.call.clone(), output: result.output.clone() })
    });
    calls.collect()
}

fn with_results(
    results: Vec<ClientResult>,
    after: Vec<ConversationMessage>,
) -> Vec<ConversationMessage> {
    let answered = ConversationMessage {
        results,
        ..ConversationMessage::text_only(Role::Tool, String::new())
    };
    [answered].into_iter().chain(after).collect()
}

#[cfg(test)]
mod tests {
    use holdfast_types::{RunId, ToolCall};

    use super::*;

    fn results(ids: &[&str]) -> ConversationMessage {
        let result = |id: &&str| ClientResult { call: (*id).into(), output: format!("of {id}") };
        let results = ids.iter().map(result).collect();
        ConversationMessage { results, ..ConversationMessage::text_only(Role::Tool, String::new()) }
    }

    fn calls(ids: &[&str]) -> ConversationMessage {
        let call =
            |id: &&str| ToolCall { id: (*id).into(), tool: "look".into(), input: "{}".into() };
        let calls = ids.iter().map(call).collect();
        ConversationMessage {
            calls,
            ..ConversationMessage::text_only(Role::Assistant, String::new())
        }
    }

    #[test]
    fn results_belong_to_calls_before_them() {
        let user = ConversationMessage::text_only(Role::User, "hi".into());
        let history = [user.clone(), calls(&["a", "b"]), results(&["b", "a"])];

        assert_eq!(check_results(&history, "messages"), Ok(()));
        assert!(check_results(&[user, results(&["a"]), calls(&["a"])], "messages").is_err());
    }

    #[test]
    fn every_call_needs_its_result_and_gets_it_under_the_models_id() {
        let call = |id: &str| ToolCall { id: id.into(), tool: "look".into(), input: "{}".into() };
        let handover = Handover::new(RunId::generate(), String::new(), &[call("1"), call("2")], 0);
        let [one, two] = handover.calls.as_slice() else { panic!("{handover:?}") };

        let found = results_of(&handover, &[results(&[&two.id, &one.id])]).unwrap();
        let found: Vec<&str> = found.iter().map(|result| result.call.as_str()).collect();
        assert_eq!(found, ["1", "2"]);
        assert_eq!(results_of(&handover, &[results(&[&one.id])]), Err(two.id.clone()));
        assert!(!is_open(&handover));
    }
}
