//! holdfast-directory
