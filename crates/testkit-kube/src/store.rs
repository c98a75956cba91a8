//! Objects with resource versions and the history of their changes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::ownership::Manager;

/// Address of an object: `group/plural`, namespace (empty for cluster scope), name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub resource: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone)]
pub struct Stored {
    pub object: Value,
    pub managers: Vec<Manager>,
}

/// A change, as watches report it.
#[derive(Debug, Clone)]
pub struct Change {
    pub version: u64,
    pub key: Key,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: &'static str,
    pub object: Value,
    before: Option<Value>,
}

#[derive(Debug, Default)]
pub struct Store {
    objects: BTreeMap<Key, Stored>,
    changes: Vec<Change>,
    version: u64,
    /// The newest version whose history was compacted away.
    compacted: u64,
}

impl Store {
    pub const fn version(&self) -> u64 {
        self.version
    }

    pub fn get(&self, key: &Key) -> Option<&Stored> {
        self.objects.get(key)
    }

    /// Stores an object under a new resource version, and returns it.
    pub fn put(&mut self, key: Key, mut object: Value, managers: Vec<Manager>) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let before = self
            .objects
            .insert(key.clone(), Stored { object: object.clone(), managers })
            .map(|stored| stored.object);
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.changes.push(Change {
            version: self.version,
            key,
            kind,
            object: object.clone(),
            before,
        });
        object
    }

    /// Replaces the managers of an object that did not change otherwise, and returns it.
    pub fn set_managers(&mut self, key: &Key, managers: Vec<Manager>, object: Value) -> Value {
        if let Some(stored) = self.objects.get_mut(key) {
            stored.managers = managers;
        }
        object
    }

    /// Removes an object, and returns its last state.
    pub fn remove(&mut self, key: &Key) -> Option<Value> {
        let before = self.objects.remove(key)?.object;
        self.version += 1;
        let mut object = before.clone();
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.changes.push(Change {
            version: self.version,
            key: key.clone(),
            kind: "DELETED",
            object: object.clone(),
            before: Some(before),
        });
        Some(object)
    }

    /// Objects of a resource as they were at `version`, in the order of their keys. `None` if its
    /// history was compacted away.
    pub fn list_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        version: u64,
    ) -> Option<BTreeMap<Key, Value>> {
        if version < self.compacted {
            return None;
        }
        let is_asked = |key: &Key| {
            key.resource == resource && namespace.is_none_or(|name| key.namespace == name)
        };
        let mut listed: BTreeMap<Key, Value> = self
            .objects
            .iter()
            .filter(|(key, _)| is_asked(key))
            .map(|(key, stored)| (key.clone(), stored.object.clone()))
            .collect();
        let newer = self.changes.iter().rev().take_while(|change| change.version > version);
        for change in newer.filter(|change| is_asked(&change.key)) {
            match &change.before {
                Some(before) => listed.insert(change.key.clone(), before.clone()),
                None => listed.remove(&change.key),
            };
        }
        Some(listed)
    }

    /// Changes after `version`. `None` if they were compacted away.
    pub fn changes_after(&self, version: u64) -> Option<&[Change]> {
        if version < self.compacted {
            return None;
        }
        let first = self.changes.partition_point(|change| change.version <= version);
        Some(&self.changes[first..])
    }

    /// Forgets the history, as etcd does after some minutes.
    pub fn compact(&mut self) {
        self.changes.clear();
        self.compacted = self.version;
    }

    /// Keys of the objects that name `uid` as their owner.
    pub fn owned_by(&self, uid: &str) -> Vec<Key> {
        let names_owner = |object: &Value| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
        };
        self.objects
            .iter()
            .filter(|(_, stored)| names_owner(&stored.object))
            .map(|(key, _)| key.clone())
            .collect()
    }
}
