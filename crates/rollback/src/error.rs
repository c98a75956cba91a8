//! Errors of a rollback.

use holdfast_grpc::MemoryCallError;
use holdfast_types::{Fault, Kind};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Session(#[from] holdfast_session::Error),
    #[error(transparent)]
    Work(#[from] holdfast_work::Error),
    #[error(transparent)]
    Files(#[from] holdfast_workspace::Error),
    #[error(transparent)]
    Memory(#[from] MemoryCallError),
    /// The step has set values, and this process reaches no memory service.
    #[error("no memory service is set up, and the step has set values in the memory")]
    NoMemory,
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Session(error) => error.kind(),
            Self::Work(error) => error.kind(),
            Self::Files(error) => error.kind(),
            Self::Memory(error) => error.kind(),
            Self::NoMemory => Kind::Unavailable,
        }
    }
}
