//! holdfast-session
