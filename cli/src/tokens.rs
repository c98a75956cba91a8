//! Tokens of a person who signed in at an identity provider.
//!
//! | file | contents |
//! |---|---|
//! | `provider.rs` | the provider's endpoints, and requests for tokens |
//! | `store.rs` | the file with the tokens, and their renewal |

mod provider;
mod store;

use tonic::metadata::{Ascii, MetadataValue};

use crate::error::Error;

pub use provider::{Provider, Tokens, claims, form};
pub use store::{Login, Session};

/// Value of `authorization` for a key or a token.
pub fn bearer(credential: &str) -> Result<MetadataValue<Ascii>, Error> {
    let mut value: MetadataValue<Ascii> = format!("Bearer {credential}").parse().map_err(|_| {
        Error::Usage("the key holds characters that no key has: copy it anew".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}
