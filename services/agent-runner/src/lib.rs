//! agent-runner
