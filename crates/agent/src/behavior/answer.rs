//! Checks of a model's answer as the result of a step of its behaviour.

use holdfast_types::StepResult;

use super::{definition::Behavior, result::parse_result, steps::RESULT_TOOL};

/// Searches of the memory for one step.
const MAX_QUERIES: usize = 4;

/// Values that one step may remember.
const MAX_VALUES: usize = 16;

/// Receivers of a reply that mean the one who wrote.
const ASKER: [&str; 4] = ["", "user", "sender", "asker"];

/// Parses and checks the result of a step.
///
/// # Errors
///
/// If the answer cannot be used; the text is for the model.
pub fn read_result(behavior: &Behavior, text: &str) -> Result<StepResult, String> {
    let result = parse_result(behavior.protocol, text).map_err(|error| error.to_string())?;
    let most = usize::try_from(behavior.limits.max_calls_per_round).unwrap_or(usize::MAX);
    if result.actions.len() > most {
        return Err(format!(
            "`actions` has {} calls, and {most} is the most of one step",
            result.actions.len()
        ));
    }
    if result.actions.iter().any(|action| action.tool == RESULT_TOOL) {
        return Err(format!("`actions` names `{RESULT_TOOL}`, which is no tool"));
    }
    if result.set_memory.len() > MAX_VALUES || result.memory_queries.len() > MAX_QUERIES {
        return Err(format!(
            "a step has {MAX_VALUES} entries of `set_memory` and {MAX_QUERIES} `memory_queries` \
             at most"
        ));
    }
    let is_asker = |audience: &str| ASKER.contains(&audience.trim().to_ascii_lowercase().as_str());
    match result.reply.iter().find(|reply| !is_asker(&reply.audience)) {
        Some(_) => {
            Err("`audience` names another receiver: leave it empty, and use a tool such as \
                        `message` to write to others"
                .to_owned())
        }
        None => Ok(result),
    }
}

/// Behaviour that follows in the session. A message that another session has ends the work here.
#[must_use]
pub fn next_behavior(result: &StepResult) -> Option<&str> {
    if hands_over(result) { Some("END") } else { result.next_behavior.as_deref() }
}

/// Whether a result gives the turn's messages to another session.
#[must_use]
pub const fn hands_over(result: &StepResult) -> bool {
    result.new_session.is_some() || result.route_session_id.is_some()
}
