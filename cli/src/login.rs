//! `holdfast login`, `logout` and `whoami`: signing in at an identity provider (OpenID Connect).
//!
//! | file | contents |
//! |---|---|
//! | `browser.rs` | sign-in in a browser on this machine: loopback redirect with PKCE |
//! | `device.rs` | sign-in in a browser on another machine: a code to type in |
//!
//! The gateway is given the ID token: its audience is the client id, which the gateway has in
//! `oidc.issuers.audiences`.

mod browser;
mod device;

use clap::Args;
use holdfast_proto::gateway::v1::{GetCallerRequest, GetCallerResponse};
use serde_json::{Value, json};

use crate::{
    client::{Client, Target},
    error::Error,
    global::Global,
    screen::Screen,
    tokens::{Login, Provider},
};

pub use browser::open as open_browser;

/// `holdfast login`
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// The identity provider's issuer URL, as in the gateway's `oidc.issuers`
    #[arg(long, env = "HOLDFAST_OIDC_ISSUER", value_name = "URL")]
    issuer: String,
    /// The client id that the provider knows this command by
    #[arg(long, env = "HOLDFAST_OIDC_CLIENT_ID", value_name = "ID")]
    client_id: String,
    /// Scopes to ask for; `offline_access` lets the sign-in outlive its first token
    #[arg(long, value_delimiter = ',', default_values = ["openid", "profile", "offline_access"])]
    scope: Vec<String>,
    /// Sign in with a browser on another machine: a code is shown to type in there
    #[arg(long)]
    device: bool,
    /// Only print the address to open, and open no browser
    #[arg(long)]
    no_browser: bool,
    /// Port of this machine to which the browser returns; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// Signs in, and keeps the tokens if the gateway accepts them.
pub async fn login(args: LoginArgs, global: &Global, screen: &Screen) -> Result<(), Error> {
    let gateway = Target::new(global)?.url;
    let provider = Provider::discover(&args.issuer, &args.client_id).await?;
    let scope = args.scope.join(" ");
    let tokens = if args.device {
        device::sign_in(&provider, &scope, screen).await?
    } else {
        let browser = browser::Options { opens: !args.no_browser, port: args.port };
        browser::sign_in(&provider, &scope, browser, screen).await?
    };
    let login = Login::new(&gateway, &provider, tokens)?;

    let client = Client::with_token(global, &gateway, login.token())?;
    let who = caller(&client).await?;
    login.save(global)?;
    if !login.is_renewable() {
        screen
            .note("The provider gave no refresh token: sign in again when this token expires.")?;
    }
    screen.done(&sentence("signed in as", &who), &view(&who))
}

/// Forgets the tokens, and withdraws them at the provider if it can.
pub async fn logout(global: &Global, screen: &Screen) -> Result<(), Error> {
    let Some(login) = Login::load(global)? else {
        return screen.done("nobody was signed in", &json!({"signed_out": false}));
    };
    Login::delete(global)?;
    if let Err(error) = login.revoke().await {
        screen.warn(&[format!("the tokens are deleted here, but not withdrawn: {error}")])?;
    }
    screen.done("signed out", &json!({"signed_out": true}))
}

/// Shows who the gateway takes the caller for.
pub async fn whoami(client: &Client, screen: &Screen) -> Result<(), Error> {
    let who = caller(client).await?;
    screen.one(&["id", "name", "tenant", "role", "scopes"], &view(&who))
}

async fn caller(client: &Client) -> Result<GetCallerResponse, Error> {
    let asked = client.people().get_caller(client.request(GetCallerRequest {})).await;
    client.answer(asked)
}

fn sentence(verb: &str, who: &GetCallerResponse) -> String {
    format!("{verb} {} ({} of the tenant {})", who.name, who.role, who.tenant)
}

fn view(who: &GetCallerResponse) -> Value {
    json!({
        "id": who.id,
        "name": who.name,
        "tenant": who.tenant,
        "tenant_id": who.tenant_id,
        "role": who.role,
        "scopes": who.scopes,
    })
}
