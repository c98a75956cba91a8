//! The file with the tokens of a sign-in, and their renewal.
//!
//! `login.json` in `--dir`, or else in the user's configuration folder. Only its owner can read it.
//! Its tokens are sent to the gateway that accepted them at the sign-in, and to no other.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tonic::metadata::{Ascii, MetadataValue};

use super::{Provider, Tokens, bearer, claims};
use crate::{error::Error, global::Global, state_dir::write_private};

/// Time before its expiry at which a token is renewed.
const RENEWAL_MARGIN: Duration = Duration::from_secs(60);
/// Wait after a renewal that failed.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// A sign-in, as the file has it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Login {
    /// Address of the gateway that accepted it.
    gateway: String,
    issuer: String,
    client_id: String,
    id_token: String,
    #[serde(default)]
    refresh_token: Option<String>,
    expires_at: Timestamp,
}

impl Login {
    pub fn new(gateway: &str, provider: &Provider, tokens: Tokens) -> anyhow::Result<Self> {
        let id_token = tokens
            .id_token
            .context("the provider gave no ID token: the scope `openid` has to be among --scope")?;
        Ok(Self {
            gateway: gateway.to_owned(),
            issuer: provider.issuer.clone(),
            client_id: provider.client_id.clone(),
            expires_at: expiry(&id_token)?,
            id_token,
            refresh_token: tokens.refresh_token,
        })
    }

    pub fn token(&self) -> &str {
        &self.id_token
    }

    pub const fn is_renewable(&self) -> bool {
        self.refresh_token.is_some()
    }

    /// Reads the file; `None` if nobody is signed in.
    pub fn load(global: &Global) -> anyhow::Result<Option<Self>> {
        match path(global) {
            Some(path) => read(&path),
            None => Ok(None),
        }
    }

    pub fn save(&self, global: &Global) -> anyhow::Result<()> {
        let path = path(global).context("there is no HOME to keep the tokens in: give a --dir")?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make `{}`", folder.display()))?;
        }
        write(self, &path)
    }

    pub fn delete(global: &Global) -> anyhow::Result<()> {
        let Some(path) = path(global) else { return Ok(()) };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot delete `{}`", path.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Withdraws the refresh token at the provider.
    pub async fn revoke(&self) -> anyhow::Result<()> {
        let Some(token) = &self.refresh_token else { return Ok(()) };
        Provider::discover(&self.issuer, &self.client_id).await?.revoke(token).await
    }

    fn needs_renewal(&self) -> bool {
        self.time_left() < RENEWAL_MARGIN
    }

    fn time_left(&self) -> Duration {
        let left = self.expires_at.duration_since(Timestamp::now());
        Duration::try_from(left).unwrap_or_default()
    }
}

/// The sign-in of a running command. Its token is renewed in the background.
#[derive(Debug, Clone)]
pub struct Session {
    token: Arc<Mutex<MetadataValue<Ascii>>>,
}

impl Session {
    /// Opens the sign-in for a gateway, and renews its token if it is about to expire; `None` if
    /// nobody is signed in there.
    pub async fn open(global: &Global, gateway: &str) -> Result<Option<Self>, Error> {
        let Some(path) = path(global) else { return Ok(None) };
        let Some(login) = read(&path)?.filter(|login| login.gateway == gateway) else {
            return Ok(None);
        };
        let login = if login.needs_renewal() { renew(&path).await? } else { login };
        let session = Self { token: Arc::new(Mutex::new(bearer(&login.id_token)?)) };
        if login.is_renewable() {
            tokio::spawn(session.clone().keep_valid(path, login));
        }
        Ok(Some(session))
    }

    /// The value of `authorization`.
    pub fn token(&self) -> MetadataValue<Ascii> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn keep_valid(self, path: PathBuf, mut login: Login) {
        loop {
            sleep(login.time_left().saturating_sub(RENEWAL_MARGIN).max(RETRY_DELAY)).await;
            // If it fails, the gateway says that the token has expired.
            if let Ok(renewed) = renew(&path).await
                && let Ok(token) = bearer(&renewed.id_token)
            {
                *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
                login = renewed;
            }
        }
    }
}

/// Renews the tokens of the file, unless another command has done so meanwhile.
async fn renew(path: &Path) -> anyhow::Result<Login> {
    // A provider may accept a refresh token once: two commands must not use the same one.
    let _lock = lock(path).await?;
    let mut login =
        read(path)?.context("somebody has signed out: sign in with `holdfast login`")?;
    if !login.needs_renewal() {
        return Ok(login);
    }
    let Some(refresh) = login.refresh_token.clone() else {
        bail!("the sign-in has expired: sign in again with `holdfast login`");
    };
    let provider = Provider::discover(&login.issuer, &login.client_id).await?;
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", &refresh),
        ("client_id", &provider.client_id),
    ];
    let tokens = match provider.tokens(&fields).await? {
        Ok(tokens) => tokens,
        Err(refusal) => {
            bail!("the sign-in has ended ({}): sign in again with `holdfast login`", refusal.text())
        }
    };
    login.id_token = tokens
        .id_token
        .context("the provider renews no ID tokens: sign in again with `holdfast login`")?;
    login.expires_at = expiry(&login.id_token)?;
    if tokens.refresh_token.is_some() {
        login.refresh_token = tokens.refresh_token;
    }
    write(&login, path)?;
    Ok(login)
}

async fn lock(path: &Path) -> anyhow::Result<File> {
    let path = path.with_extension("lock");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.open(&path).with_context(|| format!("cannot open `{}`", path.display()))?;
    let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await?;
    locked.with_context(|| format!("cannot lock `{}`", path.display()))
}

fn read(path: &Path) -> anyhow::Result<Option<Login>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read `{}`", path.display()));
        }
    };
    // The parser's message would quote the text.
    let login = serde_json::from_str(&text).ok().with_context(|| {
        format!("`{}` is damaged: sign in again with `holdfast login`", path.display())
    })?;
    Ok(Some(login))
}

fn write(login: &Login, path: &Path) -> anyhow::Result<()> {
    write_private(path, &serde_json::to_string_pretty(login)?)
}

/// Path of the file; `None` if there is neither `--dir` nor a home.
fn path(global: &Global) -> Option<PathBuf> {
    let folder = match &global.dir {
        Some(dir) => dir.clone(),
        None => match env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path).join("holdfast"),
            None => PathBuf::from(env::var_os("HOME")?).join(".config/holdfast"),
        },
    };
    Some(folder.join("login.json"))
}

fn expiry(token: &str) -> anyhow::Result<Timestamp> {
    let seconds = claims(token)?["exp"].as_i64().context("the ID token has no `exp`")?;
    Ok(Timestamp::from_second(seconds)?)
}
