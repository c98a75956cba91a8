//! holdfast-pg
