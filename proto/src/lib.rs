//! The contracts between Holdfast and those who call it, generated from `holdfast/**/*.proto`.
//!
//! Read the `.proto` files: their comments are the reference.

/// The gateway's services and messages.
pub mod gateway {
    /// Version 1.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    pub mod v1 {
        tonic::include_proto!("holdfast.gateway.v1");
    }
}

/// The memory service's services and messages.
pub mod memory {
    /// Version 1.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    pub mod v1 {
        tonic::include_proto!("holdfast.memory.v1");
    }
}

/// The secrets service's methods and messages.
pub mod secrets {
    /// Version 1.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    pub mod v1 {
        tonic::include_proto!("holdfast.secrets.v1");
    }
}

/// Every contract of the gateway, encoded as a `FileDescriptorSet`, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
