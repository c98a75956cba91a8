//! Keys with which gateways and runners sign: requests that they send over NATS, and jobs.

use crate::{Directory, Error, seal::KeyPurpose, store};

impl Directory {
    /// Returns the keys of requests on NATS: the first one signs, and during a rotation of the
    /// key-encryption key requests with the second one are accepted, too.
    ///
    /// # Errors
    ///
    /// If this service may not read their secret, has no key-encryption key, or the secrets service does
    /// not answer.
    pub async fn request_keys(&self) -> Result<Vec<[u8; 32]>, Error> {
        self.signing_keys(KeyPurpose::Requests).await
    }

    /// Returns the keys that sign jobs, in the same order.
    ///
    /// # Errors
    ///
    /// As [`request_keys`](Self::request_keys).
    pub async fn job_keys(&self) -> Result<Vec<[u8; 32]>, Error> {
        self.signing_keys(KeyPurpose::Jobs).await
    }

    async fn signing_keys(&self, purpose: KeyPurpose) -> Result<Vec<[u8; 32]>, Error> {
        let seal = self.seal()?;
        let mut tx = self.pools.system().await?;
        let secret = store::keys::requests::secret(&mut tx).await?;
        tx.finish_reading();
        seal.signing_keys(purpose, &secret).await
    }
}
