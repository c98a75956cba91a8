//! holdfast-tools
