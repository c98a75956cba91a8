//! Scripted model for tests.
//!
//! Checks on every request what providers require: each call is followed by exactly one result
//! before any other message, and each result has its call. A request that breaks this is refused,
//! as a provider would do, and recorded in [`Scripted::violations`].

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_types::{Chat, ChatMessage, Reply, ToolCall};
use tokio_util::sync::CancellationToken;

use crate::{Error, Model, OnDelta, ReplyFuture, Request, model::say};

type Answer = Box<dyn FnMut(&Request) -> Result<Reply, Error> + Send>;

/// Model that follows a script.
pub struct ScriptedModel {
    answer: Mutex<Answer>,
    delay: Duration,
    requests: Mutex<Vec<Chat>>,
    violations: Mutex<Vec<String>>,
}

impl ScriptedModel {
    /// Answers with each of these in turn, then fails.
    #[must_use]
    pub fn replies(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::outcomes(replies.into_iter().map(Ok))
    }

    /// Answers or fails with each of these in turn, then fails.
    #[must_use]
    pub fn outcomes(outcomes: impl IntoIterator<Item = Result<Reply, Error>>) -> Self {
        let mut left: VecDeque<Result<Reply, Error>> = outcomes.into_iter().collect();
        Self::answering(move |_| {
            left.pop_front().unwrap_or(Err(Error::Malformed("the script is at its end")))
        })
    }

    /// Answers with the function's result.
    #[must_use]
    pub fn answering(
        answer: impl FnMut(&Request) -> Result<Reply, Error> + Send + 'static,
    ) -> Self {
        Self {
            answer: Mutex::new(Box::new(answer)),
            delay: Duration::ZERO,
            requests: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    /// Adds a delay before each answer.
    #[must_use]
    pub const fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    #[must_use]
    pub fn text(text: &str) -> Reply {
        Reply { text: text.to_owned(), ..Reply::default() }
    }

    /// Returns a reply with calls: `(id, tool, input)`.
    #[must_use]
    pub fn calls(calls: &[(&str, &str, &str)]) -> Reply {
        let call = |(id, tool, input): &(&str, &str, &str)| ToolCall {
            id: (*id).to_owned(),
            tool: (*tool).to_owned(),
            input: (*input).to_owned(),
        };
        Reply { calls: calls.iter().map(call).collect(), ..Reply::default() }
    }

    /// Returns all requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Chat> {
        lock(&self.requests).clone()
    }

    /// Returns the violations found in requests so far.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        lock(&self.violations).clone()
    }

    fn answer(&self, request: &Request) -> Result<Reply, Error> {
        lock(&self.requests).push(request.chat.clone());
        if let Err(violation) = check(&request.chat.messages) {
            lock(&self.violations).push(violation);
            return Err(Error::BadRequest { status: 400, code: "unpaired_tool_call".to_owned() });
        }
        let mut reply = (lock(&self.answer))(request)?;
        if reply.model.is_empty() {
            reply.model = request.model.to_string();
        }
        Ok(reply)
    }
}

impl Model for ScriptedModel {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        Box::pin(async move {
            let reply = self.answer(request)?;
            tokio::select! {
                biased;
                () = cancelled.cancelled() => return Err(Error::Cancelled),
                () = tokio::time::sleep(self.delay) => {}
                () = tokio::time::sleep_until(request.deadline) => return Err(Error::Timeout),
            }
            say(&reply, on_delta);
            Ok(reply)
        })
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("delay", &self.delay).finish_non_exhaustive()
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that each call has exactly one immediate result, and each result a call.
fn check(messages: &[ChatMessage]) -> Result<(), String> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            ChatMessage::Tool { call, .. } if open.remove(call.as_str()) => {}
            ChatMessage::Tool { call, .. } => {
                return Err(format!("message {at} answers `{call}`, which nobody asked for"));
            }
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } if !open.is_empty() => {
                return Err(format!("message {at} comes before the results of {open:?}"));
            }
            ChatMessage::User { .. } => {}
            ChatMessage::Assistant { calls, .. } => {
                open.extend(calls.iter().map(|call| call.id.as_str()));
                if open.len() != calls.len() {
                    return Err(format!("message {at} uses an id for two calls"));
                }
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("there are no results of {open:?}")) }
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::Delta;

    pub(crate) fn request() -> Request {
        let deadline = Instant::now() + Duration::from_secs(60);
        Request::new("test:scripted".parse().unwrap(), Chat::default(), deadline)
    }

    fn tool(call: &str) -> ChatMessage {
        ChatMessage::Tool { call: call.into(), output: String::new(), failed: false }
    }

    fn asking(ids: &[&str]) -> ChatMessage {
        let calls: Vec<_> = ids.iter().map(|id| (*id, "t", "{}")).collect();
        ChatMessage::assistant("", ScriptedModel::calls(&calls).calls)
    }

    fn user() -> ChatMessage {
        ChatMessage::user("hi")
    }

    #[tokio::test]
    async fn it_says_what_it_was_told_to_say_and_then_fails() {
        let model = ScriptedModel::replies([
            ScriptedModel::text("one two"),
            ScriptedModel::calls(&[("1", "t", "{}")]),
        ]);
        let (request, cancelled) = (request(), CancellationToken::new());
        let mut deltas = vec![];
        let mut note = |delta| deltas.push(delta);

        assert_eq!(model.reply(&request, &mut note, &cancelled).await.unwrap().text, "one two");
        assert_eq!(model.reply(&request, &mut note, &cancelled).await.unwrap().calls.len(), 1);
        assert!(model.reply(&request, &mut note, &cancelled).await.is_err());

        assert_eq!(
            deltas,
            [
                Delta::Text("one ".into()),
                Delta::Text("two".into()),
                Delta::ToolCallStarted { id: "1".into(), name: "t".into() },
            ]
        );
        assert_eq!(model.requests().len(), 3);
    }

    #[tokio::test]
    async fn a_chat_that_a_provider_would_refuse_is_refused_and_remembered() {
        for (messages, why) in [
            (vec![user(), asking(&["a"])], "there are no results of {\"a\"}"),
            (
                vec![asking(&["a"]), user(), tool("a")],
                "message 1 comes before the results of {\"a\"}",
            ),
            (
                vec![asking(&["a"]), tool("a"), tool("a")],
                "message 2 answers `a`, which nobody asked for",
            ),
            (vec![asking(&["a", "a"]), tool("a")], "message 0 uses an id for two calls"),
        ] {
            let model = ScriptedModel::replies([ScriptedModel::text("never")]);
            let request = Request { chat: Chat { messages, ..Chat::default() }, ..request() };

            let answer = model.reply(&request, &mut |_| {}, &CancellationToken::new()).await;

            assert!(matches!(answer, Err(Error::BadRequest { .. })));
            assert_eq!(model.violations(), [why]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_one_meets_its_deadline_and_can_be_cancelled() {
        let model = ScriptedModel::answering(|_| Ok(ScriptedModel::text("late")))
            .with_delay(Duration::from_secs(120));
        let (request, cancelled) = (request(), CancellationToken::new());

        let late = model.reply(&request, &mut |_| {}, &cancelled).await;
        cancelled.cancel();
        let unwanted = model.reply(&request, &mut |_| {}, &cancelled).await;

        assert!(matches!(late, Err(Error::Timeout)));
        assert!(matches!(unwanted, Err(Error::Cancelled)));
    }
}
