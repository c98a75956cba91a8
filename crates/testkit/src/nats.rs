//! Isolated NATS namespace for each test.

use std::collections::BTreeMap;

use async_nats::jetstream;
use futures::TryStreamExt as _;

use crate::backends::Backends;
use crate::scratch;

const PREFIX: &str = "t_";

/// A prefix for subjects and streams that no other test uses.
///
/// Dropping the value deletes the streams and key-value buckets whose names start with it.
#[derive(Debug)]
pub struct Namespace {
    url: String,
    service_urls: BTreeMap<String, String>,
    prefix: String,
}

impl Namespace {
    /// A corner of the shared NATS.
    pub async fn create() -> anyhow::Result<Self> {
        Ok(Self::create_on(Backends::get().await?))
    }

    /// A corner of the NATS that `backends` names.
    #[must_use]
    pub fn create_on(backends: &Backends) -> Self {
        let prefix = format!("{PREFIX}{}", scratch::token());
        let service_urls = backends.nats_service_urls.clone();
        Self { url: backends.nats_url.clone(), service_urls, prefix }
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The same NATS as a service logs in, with the rights of that service and no others. Given
    /// backends have one login for all, and a service that does not connect to NATS has none.
    #[must_use]
    pub fn service_url(&self, service: &str) -> &str {
        self.service_urls.get(service).unwrap_or(&self.url)
    }

    /// What names of subjects and streams start with: letters, digits and `_` only.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let (url, prefix) = (self.url.clone(), self.prefix.clone());
        scratch::clean_up(delete_streams(url, move |name| {
            name.starts_with(&prefix) || is_leftover(name)
        }));
    }
}

/// Connects with the user and the password of the URL, which the client does not use by itself.
pub async fn connect(url: &str) -> anyhow::Result<async_nats::Client> {
    let server: async_nats::ServerAddr = url.parse()?;
    let options = match (server.username(), server.password()) {
        (Some(user), Some(password)) => {
            async_nats::ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned())
        }
        _ => async_nats::ConnectOptions::new(),
    };
    Ok(options.connect(server).await?)
}

async fn delete_streams(url: String, unwanted: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let client = connect(&url).await?;
    let context = jetstream::new(client);
    let names: Vec<String> = context.stream_names().try_collect().await?;
    for name in names {
        // A bucket's stream is called KV_ and the bucket's name.
        if unwanted(name.strip_prefix("KV_").unwrap_or(&name)) {
            context.delete_stream(&name).await?;
        }
    }
    Ok(())
}

fn is_leftover(name: &str) -> bool {
    name.strip_prefix(PREFIX).and_then(scratch::age).is_some_and(|age| age > scratch::LEFTOVER_AGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn streams(url: &str) -> Vec<String> {
        let context = jetstream::new(connect(url).await.unwrap());
        context.stream_names().try_collect().await.unwrap()
    }

    #[tokio::test]
    async fn streams_go_with_their_namespace_and_others_stay() {
        let (ours, other) =
            (Namespace::create().await.unwrap(), Namespace::create().await.unwrap());
        let context = jetstream::new(connect(ours.url()).await.unwrap());
        for prefix in [ours.prefix(), other.prefix()] {
            let config = jetstream::stream::Config {
                name: format!("{prefix}_RUNS"),
                subjects: vec![format!("{prefix}.runs.>")],
                ..Default::default()
            };
            context.create_stream(config).await.unwrap();
        }
        let (gone, kept) = (format!("{}_RUNS", ours.prefix()), format!("{}_RUNS", other.prefix()));

        drop(ours);

        let left = streams(other.url()).await;
        assert!(left.contains(&kept));
        assert!(!left.contains(&gone));
    }

    #[test]
    fn only_old_namespaces_are_leftovers() {
        assert!(is_leftover("t_00000000000000000000_RUNS"));
        assert!(!is_leftover(&format!("t_{}_RUNS", scratch::token())));
        assert!(!is_leftover("RUNS"));
    }
}
