//! Errors of moving what belongs to a person.

use holdfast_grpc::MemoryCallError;
use holdfast_types::{Fault, Kind};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Directory(#[from] holdfast_directory::Error),
    #[error(transparent)]
    Session(#[from] holdfast_session::Error),
    #[error(transparent)]
    Jobs(#[from] holdfast_schedule::store::Error),
    #[error(transparent)]
    Files(#[from] holdfast_workspace::Error),
    #[error(transparent)]
    Memory(#[from] MemoryCallError),
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Directory(error) => error.kind(),
            Self::Session(error) => error.kind(),
            Self::Jobs(error) => error.kind(),
            Self::Files(error) => error.kind(),
            Self::Memory(error) => error.kind(),
        }
    }
}
