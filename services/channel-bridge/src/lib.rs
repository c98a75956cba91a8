//! channel-bridge
