//! `holdfast console`: a link that signs in to the web console, as the person whose the key is. A
//! colleague is invited with `holdfast people invite`.

use clap::Args;
use holdfast_proto::gateway::v1::CreateSignInLinkRequest;
use serde_json::json;

use crate::{client::Client, error::Error, login, screen::Screen, view::time};

#[derive(Debug, Args)]
pub struct Console {
    /// Open the link in a browser
    #[arg(long)]
    open: bool,

    /// Let the link do less than the key: only these scopes
    #[arg(
        long = "scope",
        value_delimiter = ',',
        value_parser = ["guest", "chat", "read", "events", "approve", "admin", "owner", "platform"]
    )]
    scopes: Vec<String>,

    /// Name of the session, as in a list of them [default: the key's]
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
}

impl Console {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let Self { open, scopes, name } = self;
        let request = client.request(CreateSignInLinkRequest { scopes, name, role: String::new() });
        let link = client.answer(client.console().create_sign_in_link(request).await)?;
        if open {
            login::open_browser(&link.url);
        }
        let expires_at = time(link.expires_at.as_ref());
        screen.one(&["url"], &json!({ "url": link.url, "expires_at": expires_at }))?;
        if !screen.is_json() {
            screen.note("The link signs in once, within ten minutes.")?;
        }
        Ok(())
    }
}
