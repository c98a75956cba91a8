//! Key with which the installation signs commands, and who this node is: what the gateway told it
//! first.
//!
//! A gateway that tells anything else later cannot make this machine run anything.

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

    /// Compares the key, the tenant and the node's id that a gateway tells with the kept ones; keeps
    /// them if there are none.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED` if one differs, or the file cannot be read or written.
    pub(super) fn check(&self, key: &[u8], tenant: &str, node: &str) -> Result<(), Status> {
        let path = self.0.display();
        let key = format!("{} {tenant} {node}", BASE64_STANDARD.encode(key));
        match fs::read_to_string(&self.0) {
            Ok(known) if known.trim() == key => Ok(()),
            Ok(_) => Err(Status::permission_denied(format!(
                "the gateway tells another key for commands, or another node or tenant, than when \
                 this node first connected: if that is right, remove `{path}` and start again"
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write_private(&self.0, &format!("{key}\n"))
                    .map_err(|error| Status::permission_denied(error.to_string()))
            }
            Err(error) => Err(Status::permission_denied(format!("cannot read `{path}`: {error}"))),
        }
    }
}
