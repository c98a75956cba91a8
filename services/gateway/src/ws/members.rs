//! Connections of one tenant, by what they are told: an event of a session costs the connections that
//! want it, and not all.

use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use super::{
    connection::{Connection, Protocol},
    events::{Audience, Event},
};

type ById = HashMap<Uuid, Arc<Connection>>;

#[derive(Debug, Default)]
pub struct Members {
    all: ById,
    /// Connections that are told of all sessions, as far as they may read them.
    unscoped: ById,
    /// Other connections, by the sessions that they have subscribed to.
    of_session: HashMap<String, ById>,
    /// Connections that may want to know of changes of the list of sessions.
    of_list: ById,
}

impl Members {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.all.values()
    }

    pub fn insert(&mut self, connection: &Arc<Connection>) {
        self.all.insert(connection.id, Arc::clone(connection));
        let is_lurkbot = connection.protocol == Protocol::LurkBot;
        if is_lurkbot || !connection.client.is_session_scoped {
            self.unscoped.insert(connection.id, Arc::clone(connection));
        }
        if is_lurkbot {
            self.of_list.insert(connection.id, Arc::clone(connection));
        }
    }

    pub fn remove(&mut self, connection: &Connection) {
        self.all.remove(&connection.id);
        self.unscoped.remove(&connection.id);
        self.of_list.remove(&connection.id);
        for session in &connection.subscriptions().sessions {
            self.leave_session(session, connection);
        }
    }

    /// Adds a connection to those of a session, unless it has ended or is told of all sessions.
    pub fn join_session(&mut self, session: &str, connection: &Connection) {
        let Some(member) = self.all.get(&connection.id) else { return };
        if !self.unscoped.contains_key(&connection.id) {
            let members = self.of_session.entry(session.to_owned()).or_default();
            members.insert(connection.id, Arc::clone(member));
        }
    }

    pub fn leave_session(&mut self, session: &str, connection: &Connection) {
        let Some(members) = self.of_session.get_mut(session) else { return };
        members.remove(&connection.id);
        if members.is_empty() {
            self.of_session.remove(session);
        }
    }

    /// Adds a connection to those that are told of changes of the list of sessions, unless it has
    /// ended.
    pub fn join_list(&mut self, connection: &Connection) {
        if let Some(member) = self.all.get(&connection.id) {
            self.of_list.insert(connection.id, Arc::clone(member));
        }
    }

    pub fn leave_list(&mut self, connection: &Connection) {
        self.of_list.remove(&connection.id);
    }

    pub fn is_list_watched(&self) -> bool {
        !self.of_list.is_empty()
    }

    /// Tells an event to the connections that want it.
    pub fn tell(&self, event: &Event) {
        match &event.audience {
            Audience::Session { key, starter, .. } => {
                let subscribed = self.of_session.get(key);
                let is_told = |id: &Uuid| {
                    self.unscoped.contains_key(id)
                        || subscribed.is_some_and(|members| members.contains_key(id))
                };
                let starter = starter.filter(|id| !is_told(id)).and_then(|id| self.all.get(&id));
                let subscribed = subscribed.into_iter().flat_map(HashMap::values);
                let members = self.unscoped.values().chain(subscribed).chain(starter);
                members.for_each(|connection| connection.tell(event));
            }
            Audience::SessionList => self.of_list.values().for_each(|member| member.tell(event)),
            Audience::Readers | Audience::Approvers | Audience::Pairing { .. } => {
                self.all.values().for_each(|connection| connection.tell(event));
            }
        }
    }
}
