//! holdfast-grpc
