//! Errors of the browser.

/// Failure of a browser action. The text is shown to the model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The browser is not installed, does not start, or cannot be reached.
    #[error("the browser is away: {0}")]
    Unavailable(String),
    /// The browser or the page refused the action; holds the reason.
    #[error("{0}")]
    Refused(String),
    /// The action timed out; holds the limit in seconds.
    #[error("it took longer than {0} s")]
    Timeout(u64),
    /// The maximum number of windows is open.
    #[error(
        "the browser is in use by {0} conversations, which is the limit: try again in a few minutes"
    )]
    Full(usize),
}
