//! Syntax checks of URLs, without network access.

/// Returns the authority of an http or https URL: the host, with any user information and port.
pub fn authority(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let host = rest.split(['/', '?', '#']).next()?;
    let is_plain = !url.contains(|c: char| c.is_whitespace() || c.is_control());
    (is_plain && !host.is_empty()).then_some(host)
}
