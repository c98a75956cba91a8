//! holdfast-lock
