//! Replies: their delivery and target, and the texts for turns without an answer.

use std::borrow::Cow;

use holdfast_llm::{Error, FailedCandidate, Reason};
use holdfast_session::{InboxMessage, NewDelivery};
use holdfast_tools::sent_text_target;
use holdfast_types::{DeliveryId, Entry, FailureClass, Fault as _, Kind, RunId, Target};

/// Names of the tool that sends messages.
const MESSAGE_TOOL_NAMES: [&str; 3] = ["message", "send_message", "send_msg"];

/// Target of the newest of the turn's messages that has one.
pub(crate) fn reply_target(waiting: &[InboxMessage], heard: &[i64]) -> Option<Target> {
    let mine = waiting.iter().filter(|row| heard.contains(&row.seq));
    mine.rev().find_map(|row| row.target.clone())
}

/// Delivery of the answer; `None` if the turn has already written to the target with a tool (spec
/// C-34).
pub(crate) fn reply_delivery(
    run: RunId,
    turn: &[Entry],
    target: Option<&Target>,
    text: &str,
) -> Option<NewDelivery> {
    let target = target.filter(|target| !was_written_to(turn, target))?;
    // One reply per run: the delivery's id is made from the run's.
    let id = DeliveryId::from(run.as_uuid());
    Some(NewDelivery {
        target: target.clone(),
        text: text.to_owned(),
        act: None,
        id,
        delay: std::time::Duration::ZERO,
    })
}

/// Whether the tool sent a message to the target in this turn.
fn was_written_to(turn: &[Entry], target: &Target) -> bool {
    let went_well = |id: &str| {
        turn.iter()
            .any(|entry| matches!(entry, Entry::Returned { call, failed: false, .. } if call == id))
    };
    let there = |input: &str| match sent_text_target(input) {
        Some(None) => true,
        Some(Some(to)) => {
            to.channel == target.channel && to.chat == target.chat && to.thread == target.thread
        }
        None => false,
    };
    turn.iter().any(|entry| match entry {
        Entry::Thought { calls, .. } => calls.iter().any(|call| {
            MESSAGE_TOOL_NAMES.contains(&call.tool.as_str())
                && there(&call.input)
                && went_well(&call.id)
        }),
        Entry::Heard { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => false,
    })
}

/// Reason why a turn ends without an answer.
#[derive(Debug)]
pub(crate) enum Failure<'e> {
    Model(&'e Error),
    NoAgent,
    /// The agent's model cannot be used; its name, unless it is the tenant's default.
    NoModel(Option<&'e str>),
    TurnTimedOut,
    /// The model did not stop calling tools.
    ToolLoop,
    /// The subagent's task, which holds its limits, is deleted.
    NoTask,
    /// A limit of the subagent's task was reached.
    TaskLimit(TaskLimit),
    /// A daily budget is used up; the text for the user.
    BudgetSpent(&'e str),
    /// The answer has not the form that the client asked for; what is wrong with it.
    AnswerFormat(&'e str),
    /// A tool of the client has the name of a tool of the agent.
    ToolNameTaken(&'e str),
    /// The agent works by behaviours, and has none of this name.
    NoBehavior(&'e str),
    /// The behaviours of the agent do not end.
    StepLimit,
    /// The client brought tools, and behaviours take none.
    ClientTools,
}

/// A limit of a subagent's task (spec SUB-019).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskLimit {
    Steps,
    Tokens,
    Time,
}

impl Failure<'_> {
    /// Class of the failure for metrics and the run's record.
    pub(crate) fn class(&self) -> &'static str {
        let class = match self {
            Self::Model(Error::AllFailed { tried }) => return all_failed_class(tried),
            Self::Model(error) => return error.class(),
            Self::NoAgent => FailureClass::NoAgent,
            Self::NoModel(_) => FailureClass::NoModel,
            Self::TurnTimedOut => FailureClass::TurnTooLong,
            Self::ToolLoop => FailureClass::Halted,
            Self::NoTask => FailureClass::NoTask,
            Self::TaskLimit(TaskLimit::Steps) => FailureClass::TaskSteps,
            Self::TaskLimit(TaskLimit::Tokens) => FailureClass::TaskTokens,
            Self::TaskLimit(TaskLimit::Time) => FailureClass::TaskTime,
            Self::BudgetSpent(_) => FailureClass::BudgetSpent,
            Self::AnswerFormat(_) => FailureClass::AnswerFormat,
            Self::ToolNameTaken(_) => FailureClass::ToolNameTaken,
            Self::NoBehavior(_) => FailureClass::Setup,
            Self::StepLimit => FailureClass::Halted,
            Self::ClientTools => FailureClass::BadRequest,
        };
        class.as_str()
    }

    /// Text for the user: what happened, who can fix it, and the ids to quote.
    pub(crate) fn user_text(&self, run: RunId, trace: Option<&str>) -> String {
        let trace = trace.and_then(|parent| parent.split('-').nth(1));
        let trace = trace.map(|id| format!(", trace {id}")).unwrap_or_default();
        format!("Sorry, I could not answer: {} ({run}{trace})", self.description())
    }

    /// Cause of the failure, and who can fix it.
    pub(crate) fn description(&self) -> Cow<'_, str> {
        let text = match self {
            Self::Model(Error::NoModel(model)) => return no_model_text(Some(model)).into(),
            Self::Model(error @ Error::UnsupportedOption(_)) => return error.to_string().into(),
            Self::NoModel(model) => return no_model_text(*model).into(),
            Self::Model(error) => return model_error_text(error),
            Self::NoAgent => {
                "this conversation's assistant was removed. Whoever set it up should look."
            }
            Self::BudgetSpent(why) => why,
            Self::AnswerFormat(why) => {
                let text = format!(
                    "the model's answer has not the form that was asked for, even after a \
                     correction: {why}. Please ask another way, or use another model."
                );
                return text.into();
            }
            Self::ToolNameTaken(name) => {
                return format!(
                    "the agent has a tool named `{name}` of its own. Give yours another name."
                )
                .into();
            }
            Self::NoBehavior(name) => {
                return format!(
                    "this assistant has no behaviour named `{name}`. Whoever set it up should \
                     look at its behaviours."
                )
                .into();
            }
            Self::ClientTools => {
                "this assistant works by behaviours, which use no tools of a client. Send the \
                 request without tools."
            }
            Self::StepLimit => {
                "the work did not come to an end within the steps that it may take. Please ask \
                 for less at once, or tell me how to go on."
            }
            Self::TurnTimedOut => "it took too long. Please try again, or ask for less at once.",
            Self::NoTask => {
                "this subagent's task is deleted, and its limits with it: the conversation that \
                 asked for it was deleted, or the task ended long ago."
            }
            Self::TaskLimit(TaskLimit::Steps) => "the task took more steps than it may.",
            Self::TaskLimit(TaskLimit::Tokens) => "the task used more tokens than it may.",
            Self::TaskLimit(TaskLimit::Time) => "the task took longer than it may.",
            Self::ToolLoop => {
                "the model kept asking for tools instead of answering. Please ask another way."
            }
        };
        Cow::Borrowed(text)
    }
}

/// Cause of a failed model request.
fn model_error_text(error: &Error) -> Cow<'static, str> {
    let text = match error {
        Error::Auth => {
            "the model's provider refused the key. Whoever set up this assistant should \
             check the provider's API key."
        }
        Error::Quota => {
            "the account with the model's provider is out of credit. Whoever set up this \
             assistant should top it up."
        }
        Error::RateLimited { .. } => {
            "the model's provider takes no more requests for now. Please try again later."
        }
        Error::ContextOverflow => {
            "this conversation is longer than the model can read. Please begin a new one, \
             or send less at once."
        }
        Error::NoModel(_)
        | Error::UnsupportedOption(_)
        | Error::NoProvider { .. }
        | Error::Setup(_)
        | Error::Address(_) => {
            return no_model_text(None).into();
        }
        Error::BadRequest { .. } => {
            "the model's provider refused the request. Whoever set up this assistant \
             should look at its model's settings."
        }
        Error::Filtered => {
            "the model's provider kept the answer back: its content filter objects. \
             Please ask another way."
        }
        Error::AllFailed { .. } => all_failed_text(error.kind()),
        Error::Unavailable { .. } | Error::Interrupted => {
            "the model is not available right now. Please try again."
        }
        Error::Timeout => "the model did not answer in time. Please try again.",
        Error::Malformed(_) | Error::TooLong { .. } => {
            "the model's answer could not be read. Please try again, or ask another way."
        }
        Error::Empty => "the model's answer was empty. Please try again, or ask another way.",
        Error::Cancelled => "the request was cancelled.",
    };
    text.into()
}

/// Class for the case that every model of the chain failed: the one that they have in common.
fn all_failed_class(tried: &[FailedCandidate]) -> &'static str {
    let all = |reasons: &[Reason]| tried.iter().all(|tried| reasons.contains(&tried.reason));
    match tried.split_first() {
        Some((first, others))
            if first.class != "cooling"
                && others.iter().all(|other| other.class == first.class) =>
        {
            first.class
        }
        Some(_) if all(&[Reason::RateLimit, Reason::Billing]) => FailureClass::RateLimited.as_str(),
        Some(_) | None => FailureClass::AllFailed.as_str(),
    }
}

/// Text for the case that every model of the chain failed.
const fn all_failed_text(kind: Kind) -> &'static str {
    match kind {
        Kind::Forbidden => {
            "the providers of all its models refused their keys. Whoever set up this assistant \
             should check them."
        }
        Kind::Exhausted => {
            "the providers of all its models take no more requests for now, or their accounts are \
             out of credit. Please try again later; whoever set up this assistant should look."
        }
        Kind::Unavailable
        | Kind::Invalid
        | Kind::NotFound
        | Kind::Conflict
        | Kind::Unauthenticated
        | Kind::Internal => {
            "the model is not available right now, and neither is any that stands in for it. \
             Please try again."
        }
    }
}

fn no_model_text(model: Option<&str>) -> String {
    let named = model.map(|model| format!(" `{}`", model.replace('`', "'"))).unwrap_or_default();
    format!(
        "the model{named} is not set up rightly. Whoever set up this assistant should check its \
         model and the model's provider."
    )
}

#[cfg(test)]
mod tests {
    use holdfast_types::{AccountId, MessageId, ToolCall, Usage};

    use super::*;

    fn place(chat: &str) -> Target {
        Target {
            channel: "telegram".into(),
            account: AccountId::generate(),
            chat: chat.into(),
            thread: None,
            reply_to: None,
        }
    }

    fn sent(input: &str, failed: bool) -> Vec<Entry> {
        let call =
            ToolCall { id: "a".into(), tool: MESSAGE_TOOL_NAMES[0].into(), input: input.into() };
        vec![
            Entry::Thought {
                text: String::new(),
                calls: vec![call],
                usage: Usage::default(),
                model: String::new(),
                carry: None,
                record: None,
            },
            Entry::returned("a", "", failed),
        ]
    }

    #[test]
    fn no_answer_goes_where_the_turn_has_written_already() {
        let (run, here) = (RunId::from(MessageId::generate()), place("7"));
        let goes = |turn: &[Entry]| reply_delivery(run, turn, Some(&here), "hi").is_some();

        assert!(goes(&[]));
        assert!(!goes(&sent(r#"{"text":"soon"}"#, false)));
        assert!(!goes(&sent(
            r#"{"text":"soon","target":{"channel":"telegram","chat":"7"}}"#,
            false
        )));
        assert!(goes(&sent(
            r#"{"text":"soon","target":{"channel":"telegram","chat":"8"}}"#,
            false
        )));
        assert!(goes(&sent(r#"{"text":"soon"}"#, true)));
    }

    #[test]
    fn the_answer_of_a_run_has_the_same_id_whenever_it_is_made() {
        let (run, here) = (RunId::from(MessageId::generate()), place("7"));
        let id = || reply_delivery(run, &[], Some(&here), "hi").map(|delivery| delivery.id);

        assert_eq!(id(), id());
        assert_eq!(reply_delivery(run, &[], None, "hi").map(|delivery| delivery.id), None);
    }

    #[test]
    fn people_are_told_what_to_do_and_which_run_to_name() {
        let run = RunId::from(MessageId::generate());
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

        let text = Failure::Model(&Error::Auth).user_text(run, Some(trace));

        assert!(text.contains("API key"), "{text}");
        assert!(text.ends_with(&format!("({run}, trace 0af7651916cd43dd8448eb211c80319c)")));
    }

    #[test]
    fn nothing_internal_is_told() {
        let error = Error::BadRequest { status: 418, code: "teapot".into() };

        let text = Failure::Model(&error).user_text(RunId::from(MessageId::generate()), None);

        assert!(!text.contains("418") && !text.contains("teapot"), "{text}");
    }
}
