//! holdfast-bus
