//! The npm package `oidc-provider` as the identity provider, which `make test-packages` installs.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use reqwest::{
    Client, Url,
    header::{COOKIE, LOCATION, SET_COOKIE},
    redirect::Policy,
};

use super::{end_of, installation_of, start_login};

/// The installed package's folder.
fn package() -> anyhow::Result<PathBuf> {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.holdfast/test-packages");
    let there = packages.join("oidc-provider").canonicalize();
    there.context("`oidc-provider` is not installed: run `make test-packages`")
}

/// A running provider; it is ended when dropped.
struct Provider(Child);

impl Provider {
    /// Starts the provider with a new key of this id.
    fn start(port: u16, kid: &str) -> anyhow::Result<Self> {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/first_minute/people/provider.mjs");
        let mut node = Command::new("node");
        node.arg(script).arg(package()?).args([&port.to_string(), kid]);
        node.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut provider = Self(node.spawn()?);
        let out = provider.0.stdout.take().context("no output")?;
        let ready = BufReader::new(out).lines().map_while(Result::ok).any(|line| line == "ready");
        ensure!(ready, "the provider does not start");
        Ok(provider)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Follows the redirects of a sign-in with the provider's cookies, as a browser does.
async fn browse(address: &str) -> anyhow::Result<()> {
    holdfast_kit::tls::install_crypto();
    let client = Client::builder().no_proxy().redirect(Policy::none()).build()?;
    let (mut url, mut cookies) = (Url::parse(address)?, Vec::<(String, String)>::new());
    for _ in 0..20 {
        let jar: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let page = client.get(url.clone()).header(COOKIE, jar.join("; ")).send().await?;
        for cookie in page.headers().get_all(SET_COOKIE) {
            let (name, rest) = cookie.to_str()?.split_once('=').context("no cookie")?;
            let value = rest.split(';').next().unwrap_or_default();
            cookies.retain(|(known, _)| known != name);
            if !value.is_empty() {
                cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        match page.headers().get(LOCATION) {
            Some(to) => url = url.join(to.to_str()?)?,
            None => {
                ensure!(page.status() == 200, "{url}: {}", page.status());
                return Ok(());
            }
        }
    }
    anyhow::bail!("too many redirects")
}

#[tokio::test(flavor = "multi_thread")]
async fn people_of_a_real_provider_sign_in_and_its_keys_roll_over() -> anyhow::Result<()> {
    let port = holdfast_testkit::free_address()?.port();
    let url = format!("http://127.0.0.1:{port}");
    let mut provider = Provider::start(port, "first")?;
    let installation = installation_of(&url).await?;

    for kid in ["first", "second"] {
        if kid == "second" {
            drop(provider);
            provider = Provider::start(port, kid)?;
            // The gateway fetches keys at most once in ten seconds.
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let (login, address) = start_login(&installation, &url, &["--no-browser"]);
        browse(&address).await?;
        let signed_in = end_of(login).ok();
        assert!(signed_in.out.contains("Anna of npm (operator"), "{}", signed_in.out);
        assert_eq!(installation.json(&["whoami"])["role"], "operator");
        installation.run(&["logout"]).ok();
    }
    drop(provider);
    Ok(())
}
