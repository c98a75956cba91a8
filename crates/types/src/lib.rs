//! holdfast-types
