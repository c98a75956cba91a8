//! Sign-in in a browser on another machine (RFC 8628): a code is shown here and typed in there.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::{
    screen::Screen,
    tokens::{Provider, Tokens},
};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Added to the interval when the provider asks to be asked less often.
const SLOW_DOWN: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
struct DeviceCode {
    device_code: String,
    user_code: String,
    verification_uri: String,
    #[serde(default)]
    verification_uri_complete: Option<String>,
    expires_in: u64,
    #[serde(default = "default_interval")]
    interval: u64,
}

const fn default_interval() -> u64 {
    5
}

pub async fn sign_in(provider: &Provider, scope: &str, screen: &Screen) -> anyhow::Result<Tokens> {
    let url = provider.endpoints.device_authorization_endpoint.as_deref().context(
        "the provider has no sign-in with a code (`device_authorization_endpoint`): leave out \
         --device",
    )?;
    let fields = [("client_id", provider.client_id.as_str()), ("scope", scope)];
    let code: DeviceCode = match provider.post(url, &fields).await? {
        Ok(code) => code,
        Err(refusal) => bail!("the provider gave no code: {}", refusal.text()),
    };
    let address = code.verification_uri_complete.as_ref().unwrap_or(&code.verification_uri);
    screen.note(&format!(
        "Open this address in any browser, and type in or compare the code {}:\n\n  {address}\n",
        code.user_code
    ))?;
    wait_for_tokens(provider, &code).await
}

async fn wait_for_tokens(provider: &Provider, code: &DeviceCode) -> anyhow::Result<Tokens> {
    let until = Instant::now() + Duration::from_secs(code.expires_in);
    let mut interval = Duration::from_secs(code.interval.clamp(1, 60));
    let fields = [
        ("grant_type", GRANT),
        ("device_code", code.device_code.as_str()),
        ("client_id", provider.client_id.as_str()),
    ];
    while Instant::now() < until {
        sleep(interval).await;
        match provider.tokens(&fields).await? {
            Ok(tokens) => return Ok(tokens),
            Err(refusal) => match refusal.error.as_str() {
                "authorization_pending" => {}
                "slow_down" => interval += SLOW_DOWN,
                "expired_token" => break,
                "access_denied" => bail!("the sign-in was refused in the browser"),
                _ => bail!("the provider gave no token: {}", refusal.text()),
            },
        }
    }
    bail!("nobody signed in before the code expired: try again")
}
