//! Scopes of OpenClaw's protocol, derived from what the caller may do.
//!
//! They narrow what a connection or a device may do: a method also has the rule of each gRPC method that it
//! calls (`permissions.rs`).

use std::collections::BTreeSet;

use holdfast_grpc::Caller;

use crate::permissions::{self, Permission};

/// Scope of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorScope {
    Read,
    Write,
    Admin,
    Approvals,
    Pairing,
    Questions,
    /// The durable log of events. Not a scope of the protocol: reading includes it.
    Events,
}

impl OperatorScope {
    pub const ALL: [Self; 7] = [
        Self::Admin,
        Self::Read,
        Self::Write,
        Self::Approvals,
        Self::Pairing,
        Self::Questions,
        Self::Events,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "operator.read",
            Self::Write => "operator.write",
            Self::Admin => "operator.admin",
            Self::Approvals => "operator.approvals",
            Self::Pairing => "operator.pairing",
            Self::Questions => "operator.questions",
            Self::Events => "operator.events",
        }
    }

    /// What a caller must be able to do to be granted the scope.
    const fn permission(self) -> Permission {
        match self {
            Self::Read => Permission::Read,
            Self::Write | Self::Questions => Permission::Chat,
            Self::Admin | Self::Pairing => Permission::Manage,
            Self::Approvals => Permission::Approve,
            Self::Events => Permission::ReadEvents,
        }
    }
}

/// Set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grants(u8);

impl Grants {
    /// Scopes that a caller may have.
    pub fn of(caller: &Caller) -> Self {
        let may = |scope: &OperatorScope| permissions::require(caller, scope.permission()).is_ok();
        OperatorScope::ALL.into_iter().filter(may).fold(Self::default(), Self::with)
    }

    /// All scopes that a list asks for. In the protocol `operator.admin` includes all scopes, and
    /// `operator.write` reading and questions; scopes that mean nothing here are left out.
    pub fn asked_by(scopes: &[String]) -> Self {
        let all = OperatorScope::ALL.into_iter().fold(Self::default(), Self::with);
        all.limit_to(Some(scopes))
    }

    /// The scopes that the client asks for as well. Without a list it asks for all.
    pub fn limit_to(self, asked: Option<&[String]>) -> Self {
        let Some(asked) = asked else { return self };
        let asked: BTreeSet<&str> = asked.iter().map(String::as_str).collect();
        let is_asked = |scope: &OperatorScope| {
            let is_asked = |scope: OperatorScope| asked.contains(scope.as_str());
            let by_other = match scope {
                OperatorScope::Read | OperatorScope::Questions => is_asked(OperatorScope::Write),
                OperatorScope::Events => {
                    is_asked(OperatorScope::Read) || is_asked(OperatorScope::Write)
                }
                OperatorScope::Write
                | OperatorScope::Admin
                | OperatorScope::Approvals
                | OperatorScope::Pairing => false,
            };
            asked.contains(scope.as_str())
                || by_other
                || asked.contains(OperatorScope::Admin.as_str())
        };
        self.iter().filter(is_asked).fold(Self::default(), Self::with)
    }

    /// The first of the scopes that are missing here.
    pub fn lacks(self, wanted: Self) -> Option<OperatorScope> {
        wanted.iter().find(|scope| !self.has(*scope))
    }

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn with(self, scope: OperatorScope) -> Self {
        Self(self.0 | 1 << scope as u8)
    }

    pub const fn has(self, scope: OperatorScope) -> bool {
        self.0 & 1 << scope as u8 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = OperatorScope> {
        OperatorScope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }

    /// Names of the scopes, as the client is told. Reading includes the log of events.
    pub fn names(self) -> Vec<&'static str> {
        let is_told = |scope: &OperatorScope| {
            *scope != OperatorScope::Events || !self.has(OperatorScope::Read)
        };
        self.iter().filter(is_told).map(OperatorScope::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_grpc::{Principal, Scope, Scopes};
    use holdfast_types::{KeyId, TenantId};

    use super::*;

    #[test]
    fn a_connection_gets_what_it_asks_for_and_its_key_permits() {
        let caller = |scopes| Caller {
            tenant: TenantId::generate(),
            principal: Principal::Key(KeyId::generate()),
            person: None,
            agent: None,
            via: None,
            scopes,
            name: String::new(),
        };
        let chat = Grants::of(&caller(Scopes::EMPTY.with(Scope::Chat).with(Scope::Read)));
        assert_eq!(chat.names(), ["operator.read", "operator.write", "operator.questions"]);

        let asked = |scope: &str| Some(vec![scope.to_owned()]);
        let limited = |scope| chat.limit_to(asked(scope).as_deref());
        assert_eq!(limited("operator.read").names(), ["operator.read"]);
        assert_eq!((limited("operator.admin"), chat.limit_to(None)), (chat, chat));
        assert!(limited("operator.write").has(OperatorScope::Read));
        let admin = Grants::of(&caller(Scopes::EMPTY.with(Scope::Admin)));
        assert_eq!(admin.names(), ["operator.admin", "operator.pairing"]);
        assert_eq!(chat.lacks(Grants::asked_by(&["operator.write".to_owned()])), None);
        assert_eq!(
            chat.lacks(Grants::asked_by(&["operator.admin".to_owned()])),
            Some(OperatorScope::Admin)
        );
        let talker = Grants::of(&caller(Scopes::EMPTY.with(Scope::Chat)));
        let limited = talker.limit_to(asked("operator.write").as_deref());
        assert_eq!(limited.names(), ["operator.write", "operator.questions"]);
        let subscriber = Grants::of(&caller(Scopes::EMPTY.with(Scope::Events)));
        assert_eq!(subscriber.names(), ["operator.events"]);
        assert!(
            limited.with(OperatorScope::Read).iter().all(|scope| scope != OperatorScope::Events)
        );
        assert!(chat.limit_to(asked("operator.read").as_deref()).has(OperatorScope::Events));
        assert!(!chat.limit_to(asked("operator.approvals").as_deref()).has(OperatorScope::Events));
    }
}
