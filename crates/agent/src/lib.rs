//! holdfast-agent
