//! holdfast-proto
