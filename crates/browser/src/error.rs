//! Why the browser did not do what was asked.

/// Every way in which the browser says no.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no browser to be had: it is not installed, does not start, or is not reached.
    #[error("the browser is away: {0}")]
    Away(String),
    /// It refused what was asked, or the page did.
    #[error("{0}")]
    Refused(String),
    /// It took too long.
    #[error("it took longer than {0} s")]
    Slow(u64),
    /// As many conversations use it as may.
    #[error("the browser is in use by {0} conversations, which are the most: try again later")]
    Full(usize),
}
