//! Isolated Redis key prefix for each test.

use std::collections::BTreeMap;

use redis::AsyncCommands as _;

use crate::backends::Backends;
use crate::scratch;

/// A prefix for keys that no other test uses; dropping the value deletes them.
#[derive(Debug)]
pub struct Namespace {
    url: String,
    service_urls: BTreeMap<String, String>,
    prefix: String,
}

impl Namespace {
    /// A corner of the shared Redis.
    pub async fn create() -> anyhow::Result<Self> {
        Ok(Self::create_on(Backends::get().await?))
    }

    /// A corner of the Redis that `backends` names.
    #[must_use]
    pub fn create_on(backends: &Backends) -> Self {
        let service_urls = backends.redis_service_urls.clone();
        let prefix = format!("t_{}", scratch::token());
        Self { url: backends.redis_url.clone(), service_urls, prefix }
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The same Redis as a service logs in, with the rights of that service and no others. Given
    /// backends have one login for all, and a service that does not connect to Redis has none.
    #[must_use]
    pub fn service_url(&self, service: &str) -> &str {
        self.service_urls.get(service).unwrap_or(&self.url)
    }

    /// What keys start with: letters, digits and `_` only.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl Namespace {
    /// The Redis as a user who may do nothing but log in; the user is gone when `self` is dropped.
    pub async fn url_without_rights(&self) -> anyhow::Result<String> {
        let mut connection =
            redis::Client::open(self.url.as_str())?.get_multiplexed_async_connection().await?;
        let mut create = redis::cmd("ACL");
        create
            .arg("SETUSER")
            .arg(&self.prefix)
            .arg(&["on", ">secret", "-@all", "+client", "+ping"]);
        create.query_async::<()>(&mut connection).await?;
        let at = self.url.rfind('@').map_or("", |at| &self.url[at..]);
        Ok(format!("redis://{}:secret{at}", self.prefix))
    }

    /// Empties it now, as a Redis that restarts does; says how many keys there were.
    pub async fn flush(&self) -> anyhow::Result<u64> {
        unlink(&self.url, &self.prefix).await
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let (url, prefix) = (self.url.clone(), self.prefix.clone());
        scratch::clean_up(async move {
            unlink(&url, &prefix).await?;
            let client = redis::Client::open(url)?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            Ok(redis::cmd("ACL").arg("DELUSER").arg(prefix).query_async(&mut connection).await?)
        });
    }
}

async fn unlink(url: &str, prefix: &str) -> anyhow::Result<u64> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut keys = Vec::<String>::new();
    {
        let mut found = connection.scan_match(format!("{prefix}*")).await?;
        while let Some(key) = found.next_item().await {
            keys.push(key?);
        }
    }
    if keys.is_empty() {
        return Ok(0);
    }
    Ok(connection.unlink(keys).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_go_with_their_namespace_and_others_stay() {
        let (ours, other) =
            (Namespace::create().await.unwrap(), Namespace::create().await.unwrap());
        let client = redis::Client::open(ours.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let gone = format!("{}:lock", ours.prefix());
        let kept = format!("{}:lock", other.prefix());
        for key in [&gone, &kept] {
            let () = connection.set_ex(key, 1, 60).await.unwrap();
        }

        drop(ours);

        let found: Vec<Option<i64>> = connection.mget(&[gone, kept]).await.unwrap();
        assert_eq!(found, [None, Some(1)]);
    }
}
