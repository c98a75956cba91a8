//! Hosts that an agent's web tools may reach.

use crate::policy::{
    error::{Error, short},
    glob,
};

/// Lists of hosts; a host must be in each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLists(Vec<Vec<String>>);

impl HostLists {
    /// Combines the lists that are set; `None` if none is.
    pub(crate) fn of<'a>(lists: impl IntoIterator<Item = Option<&'a Vec<String>>>) -> Option<Self> {
        let lists: Vec<Vec<String>> = lists.into_iter().flatten().cloned().collect();
        (!lists.is_empty()).then_some(Self(lists))
    }

    /// Whether a host, in lower case, may be reached.
    #[must_use]
    pub fn allows(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        self.0
            .iter()
            .all(|list| list.iter().any(|entry| glob::matches(&entry.to_lowercase(), host)))
    }
}

/// Refuses an entry that can be no host: `example.com`, or `*.example.com` for those below it.
pub(crate) fn check_hosts(list: &[String], at: &str) -> Result<(), Error> {
    let is_host = |entry: &str| {
        let name = entry.strip_prefix("*.").unwrap_or(entry);
        let is_name =
            |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
        !name.is_empty() && !name.starts_with('.') && name.chars().all(is_name)
    };
    match list.iter().find(|entry| !is_host(entry)) {
        Some(wrong) => Err(Error::Host { at: at.to_owned(), host: short(wrong) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_must_be_in_each_list() {
        let tenant = vec!["example.com".to_owned(), "*.Wiki.org".to_owned()];
        let agent = vec!["en.wiki.org".to_owned(), "example.com".to_owned()];
        let lists = HostLists::of([Some(&tenant), None, Some(&agent)]).unwrap();
        for (host, is_allowed) in [
            ("example.com", true),
            ("example.com.", true),
            ("en.wiki.org", true),
            ("de.wiki.org", false),
            ("x.example.com", false),
            ("example.com.evil.test", false),
            ("evilexample.com", false),
            ("", false),
        ] {
            assert_eq!(lists.allows(host), is_allowed, "{host}");
        }
        assert_eq!(HostLists::of([None, None]), None);
        assert!(!HostLists::of([Some(&Vec::new())]).unwrap().allows("example.com"));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for (entry, is_host) in [
            ("example.com", true),
            ("*.example.com", true),
            ("[::1]", true),
            ("https://example.com", false),
            ("example.com/a", false),
            ("*", false),
            ("ex*mple.com", false),
            ("", false),
        ] {
            assert_eq!(check_hosts(&[entry.to_owned()], "x").is_ok(), is_host, "{entry}");
        }
    }
}
