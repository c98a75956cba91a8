//! Cookies of sessions.

use std::time::Duration;

use holdfast_directory::Directory;
use http::{HeaderMap, HeaderValue, header::COOKIE};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

/// Beginning of the name of a session's cookie; its public id follows.
const SESSION: &str = "holdfast-session-";

/// Beginning of names that browsers accept over TLS only, for exactly this host.
const HOST_ONLY: &str = "__Host-";

/// Sessions of one browser. The oldest are forgotten, or the header with all cookies would be too large.
const MAX_SESSIONS: usize = 12;

/// Where and when a cookie is sent.
#[derive(Debug, Clone, Copy)]
pub struct CookieKind {
    /// Whether the browser uses TLS.
    pub is_secure: bool,
    /// `Strict`, or `Lax` for one that must come back from another site.
    pub same_site: &'static str,
}

impl CookieKind {
    pub const fn strict(is_secure: bool) -> Self {
        Self { is_secure, same_site: "Strict" }
    }

    /// Header that stores a cookie for so long.
    pub fn store(self, name: &str, value: &str, max_age: Duration) -> Option<HeaderValue> {
        let Self { is_secure, same_site } = self;
        let (prefix, path, secure) =
            if is_secure { (HOST_ONLY, "/", "; Secure") } else { ("", "/console", "") };
        let seconds = max_age.as_secs();
        let cookie = format!(
            "{prefix}{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; \
             SameSite={same_site}{secure}"
        );
        let mut header = HeaderValue::from_str(&cookie).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Header that deletes a cookie.
    pub fn delete(self, name: &str) -> Option<HeaderValue> {
        self.store(name, "", Duration::ZERO)
    }
}

/// Name of the cookie of a session.
pub fn session_name(session: Uuid) -> String {
    format!("{SESSION}{}", session.simple())
}

/// Token of a session, if the request has its cookie. A token has the id of its session: that of
/// another one is refused, since whoever can set a cookie for this host could plant their own.
pub fn find_session(headers: &HeaderMap, session: Uuid) -> Option<SecretString> {
    let token = find(headers, &session_name(session))?;
    (Directory::console_session_of(token.expose_secret()) == Some(session)).then_some(token)
}

/// Value of a cookie. One that other hosts of the domain cannot have set takes precedence.
pub fn find(headers: &HeaderMap, name: &str) -> Option<SecretString> {
    let host_only = format!("{HOST_ONLY}{name}");
    let find = |wanted: &str| all(headers).find(|(name, _)| *name == wanted);
    let (_, value) = find(&host_only).or_else(|| find(name))?;
    Some(value.into())
}

/// Sessions whose cookies a request has, beyond the newest ones: names of cookies to delete.
pub fn surplus_sessions(headers: &HeaderMap) -> Vec<String> {
    let mut sessions: Vec<&str> = all(headers)
        .map(|(name, _)| name.strip_prefix(HOST_ONLY).unwrap_or(name))
        .filter(|name| name.starts_with(SESSION))
        .collect();
    // The ids begin with the time.
    sessions.sort_unstable();
    sessions.dedup();
    let surplus = (sessions.len() + 1).saturating_sub(MAX_SESSIONS);
    sessions.into_iter().take(surplus).map(str::to_owned).collect()
}

fn all(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lists = headers.get_all(COOKIE).into_iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

/// Header with the cookie of a new session.
pub fn store_session(
    kind: CookieKind,
    session: Uuid,
    token: &SecretString,
    lifetime: Duration,
) -> Option<HeaderValue> {
    kind.store(&session_name(session), token.expose_secret(), lifetime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cookies: &[&str]) -> HeaderMap {
        cookies.iter().map(|list| (COOKIE, list.parse().unwrap())).collect()
    }

    #[test]
    fn a_cookie_is_found_in_any_header_and_the_one_of_this_host_comes_first() {
        let headers = request(&["a=1; __Host-b=2", "b=3;c=4"]);
        let value = |name| find(&headers, name).map(|value| value.expose_secret().to_owned());

        assert_eq!(value("a").as_deref(), Some("1"));
        assert_eq!(value("b").as_deref(), Some("2"));
        assert_eq!(value("c").as_deref(), Some("4"));
        assert_eq!(value("d"), None);
    }

    #[test]
    fn a_token_under_the_name_of_another_session_is_none() {
        let [own, other] = [1, 2].map(Uuid::from_u128);
        let token = format!("hfs_{}_{}", own.simple(), "A".repeat(43));
        let headers = |session| request(&[&format!("{}={token}", session_name(session))]);

        let found = find_session(&headers(own), own).unwrap();
        assert_eq!(found.expose_secret(), token);
        assert!(find_session(&headers(other), other).is_none());
        assert!(find_session(&headers(own), other).is_none());
    }

    #[test]
    fn a_browser_keeps_the_newest_sessions() {
        let ids: Vec<Uuid> = (0..MAX_SESSIONS as u128).map(Uuid::from_u128).collect();
        let names: Vec<String> = ids.iter().map(|id| session_name(*id)).collect();
        let pairs: Vec<String> =
            names.iter().rev().map(|name| format!("__Host-{name}=x")).collect();

        assert_eq!(surplus_sessions(&request(&[&pairs.join("; ")])), [names[0].clone()]);
        assert!(surplus_sessions(&request(&[&pairs[1..].join("; ")])).is_empty());
    }

    #[test]
    fn over_tls_a_cookie_is_of_this_host_alone() {
        let text = |kind: CookieKind| {
            kind.store("x", "1", Duration::from_secs(5)).unwrap().to_str().unwrap().to_owned()
        };

        assert_eq!(
            text(CookieKind::strict(true)),
            "__Host-x=1; Path=/; Max-Age=5; HttpOnly; SameSite=Strict; Secure"
        );
        assert_eq!(
            text(CookieKind::strict(false)),
            "x=1; Path=/console; Max-Age=5; HttpOnly; SameSite=Strict"
        );
    }
}
