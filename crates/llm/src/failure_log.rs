//! Failed attempts of a request, for the record of its run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_types::{ModelId, ProviderFailure};

use crate::{Error, Request, provider_text};

/// Failures of a request, which its clones share: each attempt of a retry or fallback adds its own.
#[derive(Debug, Clone, Default)]
pub struct FailureLog(Arc<Mutex<Vec<ProviderFailure>>>);

impl PartialEq for FailureLog {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || *self.lock() == *other.lock()
    }
}

impl FailureLog {
    pub fn push(&self, failure: ProviderFailure) {
        failure.push_to(&mut self.lock());
    }

    /// Adds the failure of a model that leaves no details.
    pub fn push_error(&self, model: &ModelId, error: &Error) {
        let attempt = FailedAttempt { status: None, code: None, text: String::new() };
        self.push(attempt.into_failure(model, error));
    }

    /// Returns the failures, and forgets them.
    #[must_use]
    pub fn take(&self) -> Vec<ProviderFailure> {
        std::mem::take(&mut self.lock())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Records how the request is changed because of the last failure.
    pub(crate) fn set_repair(&self, repair: &str) {
        if let Some(last) = self.lock().last_mut() {
            repair.clone_into(&mut last.repair);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ProviderFailure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a server said about a failed attempt; not cleaned yet.
#[derive(Debug, Default)]
pub(crate) struct FailedAttempt {
    pub(crate) status: Option<u16>,
    pub(crate) code: Option<String>,
    pub(crate) text: String,
}

impl FailedAttempt {
    /// What a response with an error status says.
    pub(crate) fn of_response(status: u16, body: &[u8]) -> Self {
        let code = provider_text::code(body);
        Self { status: Some(status), code, text: provider_text::text_of_body(body) }
    }

    /// What a part of an answer says that is an error. A part that cannot be read is the model's text,
    /// and is not repeated.
    pub(crate) fn of_part(error: &Error, part: &[u8]) -> Self {
        let is_unreadable = matches!(
            error,
            Error::Malformed(_) | Error::TooLong { .. } | Error::Interrupted | Error::Empty
        );
        if is_unreadable {
            return Self::default();
        }
        Self {
            status: None,
            code: provider_text::code(part),
            text: provider_text::text_of_part(part).unwrap_or_default(),
        }
    }

    /// Cleans the text and adds the failure to the request's log.
    pub(crate) fn record(mut self, request: &Request, key: Option<&str>, error: &Error) {
        self.text = provider_text::clean(&self.text, key, request);
        let is_fit = |code: &String| provider_text::clean(code, key, request) == *code;
        self.code = self.code.filter(is_fit);
        request.failures.push(self.into_failure(&request.model, error));
    }

    fn into_failure(self, model: &ModelId, error: &Error) -> ProviderFailure {
        let (mut status, mut code) = (self.status, self.code.unwrap_or_default());
        if let Error::BadRequest { status: of_error, code: word } = error {
            status = status.or(Some(*of_error));
            if code.is_empty() && word != "none" {
                code.clone_from(word);
            }
        }
        if let Error::Unavailable { status: of_error, .. } = error {
            status = status.or(*of_error);
        }
        let text = match self.text.is_empty() {
            true => own_text(error),
            false => self.text,
        };
        ProviderFailure {
            model: model.to_string(),
            class: error.class().to_owned(),
            status,
            code,
            text,
            attempts: 1,
            repair: String::new(),
        }
    }
}

/// Text for a failure about which no server said anything, if more is known than its class.
fn own_text(error: &Error) -> String {
    match error {
        Error::Unavailable { source: Some(source), .. } => {
            let causes: Vec<String> = source.chain().map(ToString::to_string).collect();
            provider_text::shorten(&causes.join(": "))
        }
        Error::Setup(_)
        | Error::Address(_)
        | Error::UnsupportedOption(_)
        | Error::NoProvider { .. }
        | Error::Malformed(_)
        | Error::TooLong { .. } => error.to_string(),
        Error::Auth
        | Error::NotPermitted
        | Error::Quota
        | Error::RateLimited { .. }
        | Error::ContextOverflow
        | Error::NoModel(_)
        | Error::BadRequest { .. }
        | Error::Filtered
        | Error::Unavailable { source: None, .. }
        | Error::Timeout
        | Error::Interrupted
        | Error::Empty
        | Error::AllFailed { .. }
        | Error::Cancelled => String::new(),
    }
}
