//! Keys of tenants in Secrets that the operator owns.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams},
};

use crate::{FIELD_MANAGER, error::Failure, resources::Tenant};

/// Name of the operator's keys in the gateway.
pub const KEY_NAME: &str = "kubernetes operator";
const SECRET_PREFIX: &str = "holdfast-tenant-";

/// A stored key.
#[derive(Debug)]
pub struct StoredKey {
    pub id: String,
    pub key: String,
}

/// Name of the Secret with the key of a tenant, by the name of its resource.
pub fn secret_name(tenant: &str) -> String {
    format!("{SECRET_PREFIX}{tenant}")
}

/// The Tenant resource whose key a Secret of this name holds.
pub fn tenant_of(secret: &str) -> Option<&str> {
    secret.strip_prefix(SECRET_PREFIX)
}

/// Reads the key of a tenant.
pub async fn read(secrets: &Api<Secret>, tenant: &str) -> Result<Option<StoredKey>, Failure> {
    let Some(secret) = secrets.get_opt(&secret_name(tenant)).await? else { return Ok(None) };
    let mut data = secret.data.unwrap_or_default();
    let mut text = |name: &str| {
        let value = data.remove(name)?;
        String::from_utf8(value.0).ok().filter(|text| !text.is_empty())
    };
    Ok(text("key").map(|key| StoredKey { id: text("id").unwrap_or_default(), key }))
}

/// Stores the key of a tenant. The Secret is deleted with the Tenant resource.
///
/// # Errors
///
/// If another writer owns the Secret's fields, or the API server does not answer.
pub async fn store(secrets: &Api<Secret>, tenant: &Tenant, key: &StoredKey) -> Result<(), Failure> {
    let name = secret_name(&tenant.name_any());
    let text = |text: &str| ByteString(text.as_bytes().to_vec());
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(BTreeMap::from([(
                "app.kubernetes.io/managed-by".to_owned(),
                FIELD_MANAGER.to_owned(),
            )])),
            owner_references: tenant.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([
            ("key".to_owned(), text(&key.key)),
            ("id".to_owned(), text(&key.id)),
        ])),
        ..Secret::default()
    };
    // The key cannot be read again: it must be stored, whoever wrote the fields before.
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    secrets.patch(&name, &parameters, &Patch::Apply(&secret)).await?;
    Ok(())
}
