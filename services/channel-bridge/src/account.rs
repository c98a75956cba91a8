//! Reasons why a stored channel account cannot be served here.
//!
//! `holdfast_directory::channel` checks settings when they are stored. This file holds the checks
//! that depend on this installation and on its version.

use holdfast_directory::channel;

use crate::guard::AddressRefusal;

/// Reason why an account cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The stored settings cannot be parsed.
    #[error("{0}")]
    Stored(#[from] channel::UnusableAccount),
    /// An address in the settings must not be called.
    #[error("`settings.{0}` cannot be used: {1}")]
    Address(&'static str, #[source] AddressRefusal),
    /// This bridge does not serve this kind of channel.
    #[error("`{0}` is no channel that this bridge serves")]
    Channel(String),
    /// The token contains characters that a URL path must not contain.
    #[error("`secrets.token` is none: copy it from @BotFather, `123456:ABC-DEF`")]
    Token,
}
