//! Keys of the requests that gateways and runners send over NATS.

use crate::{Directory, Error, store};

impl Directory {
    /// Returns the keys of requests on NATS: the first one signs, and during a rotation of the
    /// key-encryption key requests with the second one are accepted, too.
    ///
    /// # Errors
    ///
    /// If this service may not read their secret, or has no key-encryption key.
    pub async fn request_keys(&self) -> Result<Vec<[u8; 32]>, Error> {
        let seal = self.seal()?;
        let mut tx = self.pools.system().await?;
        let secret = store::keys::requests::secret(&mut tx).await?;
        tx.finish_reading();
        Ok(seal.request_keys(&secret))
    }
}
