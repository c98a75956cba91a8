//! Rights of services: the secrets that each may seal or open.
//!
//! A service is in a list because its code does that, and for no other reason: with the keys of a
//! stolen service, nothing else can be opened.

use holdfast_directory::Purpose;

pub const GATEWAY: &str = "gateway";
pub const RUNNER: &str = "agent-runner";
pub const BRIDGE: &str = "channel-bridge";

/// Services that may call this one. The memory service and the scheduler use no secrets.
pub const CALLERS: [&str; 3] = [GATEWAY, RUNNER, BRIDGE];

/// Service that creates tenants, and with them data keys.
pub const CREATORS: &[&str] = &[GATEWAY];

/// Services that sign requests on NATS to each other, and jobs.
pub const SIGNERS: &[&str] = &[GATEWAY, RUNNER];

/// Returns the services that may open secrets for a purpose.
pub const fn openers(purpose: Purpose<'_>) -> &'static [&'static str] {
    match purpose {
        // The gateway asks providers for their models and for speech.
        Purpose::ProviderKey(_)
        | Purpose::ProviderHeaders(_)
        | Purpose::Credential { .. }
        | Purpose::PlatformKey { .. } => &[GATEWAY, RUNNER],
        // The gateway checks changed settings together with the stored secrets.
        Purpose::AccountSecrets(_) => &[GATEWAY, BRIDGE],
        Purpose::McpSecrets(_)
        | Purpose::ConnectionSecret(_)
        | Purpose::EventWebhook(_)
        | Purpose::SkillEnv { .. } => &[RUNNER],
        // The gateway asks identity providers about people who signed in.
        Purpose::RefreshToken(_) => &[GATEWAY],
    }
}

/// Returns the services that may seal secrets for a purpose.
pub const fn sealers(purpose: Purpose<'_>) -> &'static [&'static str] {
    match purpose {
        // Runners renew tokens.
        Purpose::Credential { .. } => &[GATEWAY, RUNNER],
        Purpose::ProviderKey(_)
        | Purpose::ProviderHeaders(_)
        | Purpose::PlatformKey { .. }
        | Purpose::AccountSecrets(_)
        | Purpose::McpSecrets(_)
        | Purpose::ConnectionSecret(_)
        | Purpose::EventWebhook(_)
        | Purpose::SkillEnv { .. }
        | Purpose::RefreshToken(_) => &[GATEWAY],
    }
}
