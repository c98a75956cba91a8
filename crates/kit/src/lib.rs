//! holdfast-kit
