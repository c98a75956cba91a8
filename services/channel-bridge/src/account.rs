//! Why an account that is stored cannot be served here.
//!
//! What its settings may be is checked where they are stored, by `holdfast_directory::channel`.
//! What depends on this installation, and on its version, only the bridge can tell.

use holdfast_directory::channel;

use crate::guard::Refused;

/// Why an account cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// What is stored is not understood.
    #[error("{0}")]
    Stored(#[from] channel::Unusable),
    /// An address may not be called.
    #[error("`settings.{0}` cannot be used: {1}")]
    Address(&'static str, #[source] Refused),
    /// Nobody serves its kind of channel.
    #[error("`{0}` is no channel that this bridge serves")]
    Channel(String),
    /// Its token cannot be part of an address.
    #[error("`secrets.token` is none: copy it from @BotFather, `123456:ABC-DEF`")]
    Token,
}
