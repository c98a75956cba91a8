//! Scripted replies of the fake model.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use super::{Dialect, wire::MAX_TEXT_CHUNKS};

/// One answer of the model. Made by the functions below.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub(super) what: ReplyKind,
    pub(super) usage: Option<Usage>,
    pub(super) finish: Option<String>,
    pub(super) gate: Option<Gate>,
    pub(super) latency: Duration,
    pub(super) pace: Option<Duration>,
    pub(super) pieces: usize,
}

/// Keeps answers back until it is opened, for good: so that a test says which of two things that
/// go on at once ends first.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// Lets all through that wait, and whoever comes.
    pub fn open(&self) {
        self.0.close();
    }

    pub(super) async fn pass(&self) {
        // It has no permits: this ends, with an error, when it is closed.
        let _: Result<_, _> = self.0.acquire().await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReplyKind {
    Message { text: String, calls: Vec<ToolCall>, reasoning: String },
    Status { code: u16, headers: Vec<(String, String)>, body: Option<String> },
    Hang(Duration),
    CutMidStream(String),
    Malformed(String),
}

/// A call that the model makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// What the result must name.
    pub id: String,
    pub name: String,
    /// JSON in a string; not checked, so that a model's mistakes can be played.
    pub arguments: String,
}

/// What the provider charges for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub prompt: u64,
    /// Of those, tokens that were cached.
    pub cached: u64,
    pub completion: u64,
}

impl Reply {
    pub fn text(text: impl Into<String>) -> Self {
        let (text, calls, reasoning) = (text.into(), Vec::new(), String::new());
        ReplyKind::Message { text, calls, reasoning }.into()
    }

    /// Says nothing and calls nothing, as models sometimes do.
    #[must_use]
    pub fn empty() -> Self {
        Self::text("")
    }

    /// Calls one tool; `arguments` is JSON in a string.
    pub fn call(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Self::calls([(id.into(), name.into(), arguments.into())])
    }

    /// Calls several tools at once: (id, name, arguments).
    pub fn calls<I, S>(calls: I) -> Self
    where
        I: IntoIterator<Item = (S, S, S)>,
        S: Into<String>,
    {
        let calls = calls.into_iter().map(|(id, name, arguments)| ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        });
        let (text, reasoning) = (String::new(), String::new());
        ReplyKind::Message { text, calls: calls.collect(), reasoning }.into()
    }

    /// Thinks this first, and says it in `reasoning_content`.
    #[must_use]
    pub fn thinking(mut self, thoughts: impl Into<String>) -> Self {
        if let ReplyKind::Message { reasoning, .. } = &mut self.what {
            *reasoning = thoughts.into();
        }
        self
    }

    /// Says something before its calls.
    #[must_use]
    pub fn saying(mut self, words: impl Into<String>) -> Self {
        if let ReplyKind::Message { text, .. } = &mut self.what {
            *text = words.into();
        }
        self
    }

    /// Answers with an error, in the provider's form.
    #[must_use]
    pub fn status(code: u16) -> Self {
        ReplyKind::Status { code, headers: Vec::new(), body: None }.into()
    }

    /// Answers 429 and says when to come back.
    #[must_use]
    pub fn rate_limited(retry_after: Duration) -> Self {
        let seconds = crate::faults::retry_seconds(retry_after);
        Self::status(429).header("retry-after", seconds.to_string())
    }

    /// Answers that a filter refuses the prompt, in the form of an API that has one.
    #[must_use]
    pub fn filtered_prompt(dialect: Dialect) -> Self {
        let text = "The response was filtered due to the prompt triggering the content management \
                    policy.";
        Self::status(400).body(dialect.error(400, "content_filter", text))
    }

    /// Adds a header to an error.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let ReplyKind::Status { headers, .. } = &mut self.what {
            headers.push((name.into(), value.into()));
        }
        self
    }

    /// Gives an error a body of its own.
    #[must_use]
    pub fn body(mut self, text: impl Into<String>) -> Self {
        if let ReplyKind::Status { body, .. } = &mut self.what {
            *body = Some(text.into());
        }
        self
    }

    /// Answers nothing for so long, then 504.
    #[must_use]
    pub fn hang(time: Duration) -> Self {
        ReplyKind::Hang(time).into()
    }

    /// Says this and is cut off before it says that it is done.
    pub fn cut_mid_stream(text: impl Into<String>) -> Self {
        ReplyKind::CutMidStream(text.into()).into()
    }

    /// Answers 200 with these bytes, whatever they are.
    pub fn malformed(raw: impl Into<String>) -> Self {
        ReplyKind::Malformed(raw.into()).into()
    }

    /// Charges this; otherwise a quarter of the characters.
    #[must_use]
    pub const fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Waits until this is opened before its first byte.
    #[must_use]
    pub fn behind(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Waits this long before its first byte, in addition to the model's latency.
    #[must_use]
    pub const fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Waits this long before each further chunk of its stream, instead of the model's pace.
    #[must_use]
    pub const fn pace(mut self, pace: Duration) -> Self {
        self.pace = Some(pace);
        self
    }

    /// Streams its text in about this many pieces at most.
    #[must_use]
    pub const fn pieces(mut self, pieces: usize) -> Self {
        self.pieces = pieces;
        self
    }

    /// Ends for this reason, such as `length` or `content_filter`.
    #[must_use]
    pub fn finish(mut self, reason: impl Into<String>) -> Self {
        self.finish = Some(reason.into());
        self
    }
}

impl From<ReplyKind> for Reply {
    fn from(what: ReplyKind) -> Self {
        Self {
            what,
            usage: None,
            finish: None,
            gate: None,
            latency: Duration::ZERO,
            pace: None,
            pieces: MAX_TEXT_CHUNKS,
        }
    }
}
