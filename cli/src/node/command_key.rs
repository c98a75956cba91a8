//! Key with which the installation signs commands: the first one that the gateway told this node.
//!
//! A gateway that tells another key later cannot make this machine run anything.

use std::{fs, io, path::PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use tonic::Status;

use crate::state_dir::write_private;

/// File that keeps the key.
#[derive(Debug)]
pub(super) struct CommandKeyFile(PathBuf);

impl CommandKeyFile {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Compares the key that a gateway tells with the kept one; keeps it if there is none.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED` if it is another one, or the file cannot be read or written.
    pub(super) fn check(&self, key: &[u8]) -> Result<(), Status> {
        let path = self.0.display();
        let key = BASE64_STANDARD.encode(key);
        match fs::read_to_string(&self.0) {
            Ok(known) if known.trim() == key => Ok(()),
            Ok(_) => Err(Status::permission_denied(format!(
                "the gateway tells another key for commands than when this node first connected: if \
                 the installation's operator changed it, remove `{path}` and start again"
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write_private(&self.0, &format!("{key}\n"))
                    .map_err(|error| Status::permission_denied(error.to_string()))
            }
            Err(error) => Err(Status::permission_denied(format!("cannot read `{path}`: {error}"))),
        }
    }
}
