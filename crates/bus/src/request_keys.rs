//! Installation of the keys of requests on a connection.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, warn};

use crate::{Bus, RequestKeys};

/// Delay before the keys are read again.
const LOAD_DELAY: Duration = Duration::from_secs(1);

/// Failed attempts to read the keys for each of which there is one warning.
const FAILURES_PER_WARNING: u32 = 30;

impl RequestKeys {
    /// Sets the keys of a connection, unless they are set.
    pub fn install(self, bus: &Bus) {
        bus.signatures.set_keys(self);
    }

    /// Reads the keys of a connection in the background until that succeeds. Requests that arrive
    /// earlier wait.
    pub fn load<F, K, E>(bus: &Bus, load: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<K, E>> + Send + 'static,
        K: IntoIterator<Item = [u8; 32]> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let bus = bus.clone();
        tokio::spawn(async move {
            let mut failures = 0_u32;
            loop {
                match load().await {
                    Ok(keys) => return Self::new(keys).install(&bus),
                    Err(error) => {
                        failures = failures.wrapping_add(1);
                        let error = &error as &dyn std::error::Error;
                        if failures.is_multiple_of(FAILURES_PER_WARNING) {
                            warn!(error, "the keys of requests on nats cannot be read");
                        } else {
                            debug!(error, "the keys of requests on nats cannot be read");
                        }
                    }
                }
                sleep(LOAD_DELAY).await;
            }
        });
    }
}
