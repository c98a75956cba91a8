//! Replies: their delivery and target, and the texts for turns without an answer.

use std::borrow::Cow;

use holdfast_llm::{Error, FailedCandidate, Reason};
use holdfast_session::{InboxMessage, NewDelivery};
use holdfast_tools::sent_text_target;
use holdfast_types::{DeliveryId, Entry, FailureClass, RunId, Target};

use crate::turn::reply::{failure_texts, language::Language};

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

    /// Text for the user: what happened, what to do, and the ids to quote.
    pub(crate) fn user_text(&self, run: RunId, trace: Option<&str>, language: Language) -> String {
        let trace = trace.and_then(|parent| parent.split('-').nth(1));
        let trace = trace.map(|id| format!(", trace {id}")).unwrap_or_default();
        let cause = self.description(language);
        match language {
            Language::English => format!("Sorry, I could not answer: {cause} ({run}{trace})"),
            Language::Chinese => format!("抱歉，我无法回答：{cause} ({run}{trace})"),
        }
    }

    /// Cause of the failure, and who can fix it.
    pub(crate) fn description(&self, language: Language) -> Cow<'_, str> {
        failure_texts::describe(self, language)
    }
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

        let text = Failure::Model(&Error::Auth).user_text(run, Some(trace), Language::English);

        assert!(text.contains("API key"), "{text}");
        assert!(text.ends_with(&format!("({run}, trace 0af7651916cd43dd8448eb211c80319c)")));
    }
}
