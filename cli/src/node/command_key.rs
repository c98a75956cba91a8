//! Key with which the installation signs commands, and who this node is: what the gateway told it
//! first.
//!
//! A gateway that tells anything else later cannot make this machine run anything, unless the key
//! that this node knows has signed the new one.

use std::{fs, io, path::PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use holdfast_grpc::NodeCommandKeys;
use tonic::Status;

use crate::state_dir::write_private;

/// File that keeps the key.
#[derive(Debug)]
pub(super) struct CommandKeyFile(PathBuf);

impl CommandKeyFile {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Compares the keys, the tenant and the node's id that a gateway tells with the kept ones; keeps
    /// them if there are none. Returns the keys whose commands are accepted.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED` if one differs, or the file cannot be read or written.
    pub(super) fn check(
        &self,
        keys: &NodeCommandKeys,
        tenant: &str,
        node: &str,
    ) -> Result<Vec<Vec<u8>>, Status> {
        let path = self.0.display();
        let identity = format!("{tenant} {node}");
        let (known, is_kept) = match fs::read_to_string(&self.0) {
            Ok(text) => match text.trim().split_once(' ') {
                Some((key, known)) if known == identity => {
                    let key = BASE64_STANDARD.decode(key).unwrap_or_default();
                    let is_kept = key == keys.current();
                    (key, is_kept)
                }
                Some(_) | None => (Vec::new(), false),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (keys.current().to_vec(), false)
            }
            Err(error) => {
                return Err(Status::permission_denied(format!("cannot read `{path}`: {error}")));
            }
        };
        let accepted = keys.accepted_by(&known).ok_or_else(|| {
            Status::permission_denied(format!(
                "the gateway tells another key for commands, or another node or tenant, than when \
                 this node first connected: if that is right, remove `{path}` and start again"
            ))
        })?;
        if !is_kept {
            let line = format!("{} {identity}\n", BASE64_STANDARD.encode(keys.current()));
            write_private(&self.0, &line)
                .map_err(|error| Status::permission_denied(error.to_string()))?;
        }
        Ok(accepted)
    }
}
