//! holdfast-tests
