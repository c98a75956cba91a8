//! Results of operations that consist of parts which do not depend on each other.

use crate::Error;

/// What an operation did, and the first error of its parts.
#[derive(Debug)]
#[must_use = "a part may have failed"]
pub struct Partial<T> {
    pub done: T,
    /// First error of the parts that failed; `None` if none did.
    pub failure: Option<Error>,
}

/// First error of several operations that do not depend on each other.
#[derive(Default)]
pub(crate) struct FirstError(Option<Error>);

impl FirstError {
    /// Returns the value of an operation; the default if it failed.
    pub(crate) fn value<T: Default>(&mut self, result: Result<T, Error>) -> T {
        result.unwrap_or_else(|error| {
            self.0.get_or_insert(error);
            T::default()
        })
    }

    pub(crate) fn with<T>(self, done: T) -> Partial<T> {
        Partial { done, failure: self.0 }
    }
}
