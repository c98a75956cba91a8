//! The binding cascade: six levels of bindings, the most specific first.
//!
//! A binding matches if everything that it names matches. It always names a channel. An empty
//! account means the one called `default`; `*` means any.
//!
//! | level | the binding names |
//! |---|---|
//! | peer | the peer: kind and id |
//! | peer.parent | the peer's parent |
//! | guild | the guild, and no peer |
//! | team | the team, and neither of those |
//! | account | nothing else, and one account |
//! | channel | nothing else, and any account |

use holdfast_directory::Binding;

use super::{MatchedBy, RoutingInput};

/// Returns the most specific matching binding and its level; of several on one level, the first.
pub(super) fn find_binding<'r>(
    bindings: &'r [Binding],
    inbound: &RoutingInput,
) -> Option<(&'r Binding, MatchedBy)> {
    let (channel, account) = (inbound.channel(), inbound.account());
    bindings
        .iter()
        .filter(|binding| binding.channel == channel && account_matches(&binding.account, &account))
        .filter_map(|binding| Some((binding, level(binding, inbound)?)))
        .min_by_key(|(_, level)| *level)
}

fn account_matches(wanted: &str, account: &str) -> bool {
    match wanted {
        "*" => true,
        "" => account == "default",
        wanted => wanted == account,
    }
}

/// Level on which a binding matches; `None` if it does not match.
fn level(binding: &Binding, inbound: &RoutingInput) -> Option<MatchedBy> {
    let named = |wanted: &Option<String>, given: &Option<String>| {
        wanted.is_none() || wanted.as_deref() == given.as_deref().map(str::trim)
    };
    if !named(&binding.guild, &inbound.guild) || !named(&binding.team, &inbound.team) {
        return None;
    }
    let is = |given: &holdfast_types::Peer, wanted: &holdfast_types::Peer| {
        given.kind == wanted.kind && given.id.trim() == wanted.id
    };
    if let Some(wanted) = &binding.peer {
        return if is(&inbound.peer, wanted) {
            Some(MatchedBy::Peer)
        } else if inbound.parent.as_ref().is_some_and(|parent| is(parent, wanted)) {
            Some(MatchedBy::ParentPeer)
        } else {
            None
        };
    }
    Some(match (&binding.guild, &binding.team, binding.account.as_str()) {
        (Some(_), _, _) => MatchedBy::Guild,
        (None, Some(_), _) => MatchedBy::Team,
        (None, None, "*") => MatchedBy::Channel,
        (None, None, _) => MatchedBy::Account,
    })
}
